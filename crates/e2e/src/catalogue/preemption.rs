//! Priorities: a pod takes the place of one with a lower priority, where that frees a zone for it, and of no other.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{ApiResource, PostParams};
use serde_json::json;
use tokio::time::Instant;
use topology::resource::ResourceName;

use crate::amounts::Amounts;
use crate::devices;
use crate::facts::NodeFacts;
use crate::fixture::{Fixture, PodRef};
use crate::need::Need::{Aligning, Devices, Preemption, Scheduler, ZoneScheduler};
use crate::payload::{LABEL, room, slots};
use crate::placement;
use crate::pods::PodPlan;
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The classes that every spec makes, with their priorities.
const CLASSES: [(&str, i32); 3] = [(LOW, 100), (MEDIUM, 200), (HIGH, 300)];
const LOW: &str = "tholepin-e2e-low";
const MEDIUM: &str = "tholepin-e2e-medium";
const HIGH: &str = "tholepin-e2e-high";
/// A class that every cluster has, above all others.
const CRITICAL: &str = "system-node-critical";
/// The time between two tries of a pod with a new class. The API server's own view of classes has no watch for others;
/// a pod that it refuses is all that tells. The tries are dry runs.
const TRY: Duration = Duration::from_millis(50);
/// A pod without a class.
const NONE: &str = "";

pub(super) fn specs() -> Vec<Spec> {
    let rows = [
        ("default-default", NONE, NONE, false),
        ("default-critical", NONE, CRITICAL, true),
        ("critical-default", CRITICAL, NONE, false),
        ("critical-critical", CRITICAL, CRITICAL, false),
        ("low-medium", LOW, MEDIUM, true),
        ("medium-low", MEDIUM, LOW, false),
    ];
    let rows = rows.into_iter().map(|(id, there, comes, yields)| {
        let name =
            |class: &'static str| class.rsplit('-').next().filter(|word| !word.is_empty()).unwrap_or("no");
        let end = if yields { "takes" } else { "does not take" };
        let title =
            format!("a pod of {} priority {end} the place of one of {} priority", name(comes), name(there));
        Spec::new(format!("preemption/{id}"), 2, title, move |f| meets(f, there, comes, yields))
    });
    let others = [
        Spec::new(
            "preemption/burst",
            2,
            "a burst that fills a node, the last pods of high priority, runs as a whole",
            burst,
        ),
        Spec::new(
            "preemption/mixed",
            2,
            "a pod takes the place of the one pod whose zone it needs, and of none before",
            mixed,
        )
        .needs([Devices, ZoneScheduler]),
    ];
    let all = rows.chain(others);
    all.map(|s| s.labels(&["scheduler", "disruptive"]).needs([Scheduler, Preemption, Aligning(1)])).collect()
}

/// Makes the classes, and waits until the API server takes pods that name them: it learns of them from a watch.
async fn classes(f: &Fixture) -> Result {
    let resource = ApiResource::erase::<PriorityClass>(&());
    for (name, value) in CLASSES {
        let object = json!({ "metadata": { "labels": {} }, "value": value, "globalDefault": false });
        f.make(&Target::of(&resource, "", name), object).await?;
        let pod = of_class(f.pod("probe").best_effort(), name).pod();
        let ends = Instant::now() + f.cluster().settings.patience;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        while let Err(error) = f.pods().create(&dry, &pod).await {
            if !runtime::client::is_forbidden(&error) || Instant::now() > ends {
                return Err(error.into());
            }
            tokio::time::sleep(TRY).await;
        }
    }
    Ok(())
}

fn of_class(plan: PodPlan, class: &str) -> PodPlan {
    plan.spec(|spec| spec.priority_class_name = Some(class.to_owned()).filter(|class| !class.is_empty()))
}

/// A pod for the target alone: pods on other nodes have nothing to fear.
fn on_target(f: &Fixture, name: &str) -> Result<PodPlan> {
    Ok(f.pod(name).among(&[&f.target()?.name]))
}

/// Half of a zone's room: two pods to a zone, and no place for one more.
async fn fill(f: &Fixture, class: &str) -> Result<(Amounts, Vec<PodRef>)> {
    let target = f.target()?;
    let (size, free) = (share(f, target, 1, 2), f.free(&target.name).await?);
    let count = slots(target, &free, &size);
    let plan = of_class(on_target(f, "filler")?.guaranteed(&size), class);
    f.payload("filler", &plan, count).await?;
    let fillers = f.payload_runs("filler", count).await?;
    // A scheduler that does not know zones must find the node full as well.
    let taken = Amounts::of(
        size.iter().map(|(name, amount)| (name, amount * fillers.len() as i64)).collect::<Vec<_>>(),
    );
    let rest = target.allocatable.clone().only(known).minus(&target.base_load).minus(&taken);
    if size.more_than(&rest).is_none() {
        return Err(Skip(format!("a node that {count} pods fill; {} has {rest} left", target.name)).into());
    }
    Ok((size, fillers))
}

fn known(name: ResourceName) -> bool {
    [ResourceName::CPU, ResourceName::MEMORY].contains(&name)
}

/// A part of the target's room.
fn share(f: &Fixture, target: &NodeFacts, parts: i64, of: i64) -> Amounts {
    let cpus = f.facts().scale().cpus;
    room(std::slice::from_ref(target), cpus).part(parts, of, cpus)
}

async fn meets(f: Fixture, there: &'static str, comes: &'static str, yields: bool) -> Result {
    classes(&f).await?;
    let (size, fillers) = fill(&f, there).await?;
    let pod = f.create(of_class(on_target(&f, "p")?.guaranteed(&size), comes)).await?;
    if yields {
        takes_one_place(&f, &pod, &fillers).await.map(drop)
    } else {
        f.unschedulable(&pod).await?;
        stays(&f, &pod, &fillers).await
    }
}

/// A scheduler names the node for which it evicts pods together with the reason why the pod waits.
async fn stays(f: &Fixture, pod: &PodRef, others: &[PodRef]) -> Result {
    let state = f.cluster().observer.now();
    let status = pod.find(&state).and_then(|pod| pod.status.as_ref());
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref());
    ensure!(
        nominated.is_none(),
        "pod {} is to take a place on node {}",
        pod.name,
        nominated.unwrap_or_default()
    );
    let gone = others.iter().find(|other| !other.find(&state).is_some_and(|pod| placement::runs(pod)));
    ensure!(gone.is_none(), "pod {} had to go", gone.map(|pod| &*pod.name).unwrap_or_default());
    let target = &f.target()?.name;
    f.accounted(target, f.before(target)?, others).await
}

/// Waits until a pod runs, and exactly one of the others is gone: that one.
async fn takes_one_place(f: &Fixture, pod: &PodRef, others: &[PodRef]) -> Result<PodRef> {
    f.running(pod).await?;
    f.scheduled(pod).await?;
    let state = f.cluster().observer.now();
    let is_gone = |other: &&PodRef| !other.find(&state).is_some_and(|pod| placement::runs(pod));
    let gone: Vec<PodRef> = others.iter().filter(is_gone).cloned().collect();
    let names = || gone.iter().map(|pod| &*pod.name).collect::<Vec<_>>().join(", ");
    let [victim] = &*gone else { anyhow::bail!("{} pods had to go, not 1: {}", gone.len(), names()) };
    let mut all: Vec<PodRef> = others.iter().filter(|other| *other != victim).cloned().collect();
    all.push(pod.clone());
    let target = &f.target()?.name;
    f.accounted(target, f.before(target)?, &all).await?;
    Ok(victim.clone())
}

/// What the scheduler has placed a moment ago is not taken for a reason to evict.
async fn burst(f: Fixture) -> Result {
    classes(&f).await?;
    let target = f.target()?;
    let size = f.amounts("2 32Mi")?;
    let count = slots(target, &f.free(&target.name).await?, &size);
    let urgent = 2.min(count);
    let plan = of_class(on_target(&f, "p")?.guaranteed(&size), MEDIUM);
    let mut pods = f.payload("p", &plan, count - urgent).await?;
    let plan = of_class(on_target(&f, "urgent")?.guaranteed(&size), HIGH);
    pods.extend(f.payload("p", &plan, urgent).await?);
    let mut running = f.payload_runs("p", count).await?;
    pods.sort();
    running.sort();
    ensure!(running == pods, "other pods run than were made");
    Ok(())
}

/// A low and a medium pod in each zone leave less than the next pod needs, although the node has as much in all. Only
/// without the medium pod is there room.
async fn mixed(f: Fixture) -> Result {
    classes(&f).await?;
    let target = f.target()?;
    let mut others = Vec::new();
    for zone in &target.topology.zones {
        let pin = ResourceName::new(&devices::of_zone(zone.id))?;
        for (class, parts) in [(LOW, 1), (MEDIUM, 4)] {
            let size = share(&f, target, parts, 8).with(pin, 1);
            let plan = on_target(&f, &format!("{class}-{}", zone.id.0))?.guaranteed(&size);
            others.push(f.create(of_class(plan.label(LABEL, class), class)).await?);
        }
    }
    for pod in &others {
        f.running(pod).await?;
    }
    let size = share(&f, target, 5, 8);
    let free = f.free(&target.name).await?;
    if let Some(zone) =
        target.topology.zones.iter().find(|zone| size.more_than(&Amounts::of_zone(&free, zone.id)).is_none())
    {
        return Err(Skip(format!("zones of about the same size; zone {} has {size} left", zone.id.0)).into());
    }
    let plan = on_target(&f, "low")?.guaranteed(&size);
    let pod = f.create(of_class(plan, LOW)).await?;
    f.cannot_align(&pod).await?;
    stays(&f, &pod, &others).await?;
    f.delete(&pod).await?;
    let medium = f.labelled(LABEL, MEDIUM);
    let plan = on_target(&f, "high")?.guaranteed(&size);
    let pod = f.create(of_class(plan, HIGH)).await?;
    let victim = takes_one_place(&f, &pod, &others).await?;
    ensure!(medium.contains(&victim), "pod {} had to go, whose place is too small", victim.name);
    Ok(())
}
