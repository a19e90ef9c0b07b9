//! What reports say that pods hold.

use topology::resource::ResourceName;

use crate::amounts::Amounts;
use crate::fixture::{Fixture, PodRef};
use crate::need::Need::{Aligning, Devices, Scheduler};
use crate::padding::Left;
use crate::spec::{Result, Spec};

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("49068", 2, "a pod waits until the last pod in its zone has gone", waits_for_release)
            .labels(&["placement"]),
        Spec::new("48685", 1, "a best-effort pod is not accounted in any zone", best_effort),
        Spec::new("48686", 1, "a burstable pod is not accounted in any zone", burstable),
        Spec::new(
            "47618",
            2,
            "a burstable deployment's pod is not accounted in any zone",
            burstable_deployment,
        ),
        Spec::new("85768", 2, "one container with limits does not make a pod guaranteed", half_guaranteed),
        Spec::new("47620", 2, "a guaranteed pod waits for what a burstable pod requests", after_burstable),
        Spec::new(
            "49071",
            2,
            "a burstable daemonset's pod is not accounted in any zone",
            burstable_daemon_set,
        ),
    ];
    let all = specs.into_iter();
    all.map(|s| s.labels(&["scheduler", "disruptive"]).needs([Scheduler, Devices, Aligning(2)])).collect()
}

/// What the target has in all, without what its pods request.
fn room(f: &Fixture) -> Result<Amounts> {
    let target = f.target()?;
    let known = |name| [ResourceName::CPU, ResourceName::MEMORY].contains(&name);
    let cpus = ResourceName::CPU.base_units();
    let room = target.allocatable.clone().only(known).minus(&target.base_load);
    let whole = room.get(ResourceName::CPU) / cpus * cpus;
    Ok(room.with(ResourceName::CPU, whole))
}

async fn waits_for_release(f: Fixture) -> Result {
    let target = f.target()?.clone();
    let room = f.amounts("4 8Gi")?;
    f.require_zones(&room)?;
    f.pad(f.others(), Left(&[f.amounts("2 4Gi")?])).await?;
    f.pad(std::slice::from_ref(&target), Left(std::slice::from_ref(&room))).await?;
    let before = f.free(&target.name).await?;
    let mut holders = Vec::new();
    for zone in &target.topology.zones {
        let pin = ResourceName::new(&crate::devices::of_zone(zone.id)).map_err(anyhow::Error::from)?;
        let amounts = f.amounts("1 1Gi")?.with(pin, 1);
        let plan = f.pod(&format!("holder-{}", zone.id.0)).guaranteed(&amounts).on(&target.name);
        holders.push(f.create(plan).await?);
    }
    for holder in &holders {
        f.running(holder).await?;
    }
    f.accounted(&target.name, &before, &holders).await?;
    let pod = f.create(f.pod("p").guaranteed(&room)).await?;
    f.cannot_align(&pod).await?;
    if let Some(last) = holders.pop() {
        f.delete(&last).await?;
    }
    f.runs_on(&pod, &target.name).await?;
    holders.push(pod);
    f.accounted(&target.name, &before, &holders).await
}

/// A pod runs on the only node with room, and changes no report.
async fn unaccounted(f: &Fixture, pod: &PodRef) -> Result {
    let target = f.target()?.name.clone();
    f.runs_on(pod, &target).await?;
    f.restored(&target, f.before(&target)?).await
}

async fn best_effort(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let target = f.target()?.name.clone();
    let pod = f.create(f.pod("p").best_effort().among(&[&target])).await?;
    unaccounted(&f, &pod).await
}

async fn burstable(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let pod = f.create(f.pod("p").burstable(&room(&f)?)).await?;
    unaccounted(&f, &pod).await
}

async fn burstable_deployment(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let pods = f.deployment(f.pod("p").burstable(&room(&f)?), 1).await?.running(1).await?;
    for pod in &pods {
        unaccounted(&f, pod).await?;
    }
    Ok(())
}

async fn half_guaranteed(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let half = room(&f)?.part(1, 2, f.facts().scale().cpus);
    let pod = f.create(f.pod("p").guaranteed(&half).burstable(&half)).await?;
    unaccounted(&f, &pod).await
}

async fn after_burstable(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let target = f.target()?.name.clone();
    let first = f.create(f.pod("burstable").burstable(&room(&f)?)).await?;
    unaccounted(&f, &first).await?;
    let pod = f.create(f.pod("guaranteed").guaranteed(&f.amounts("4 4Gi")?)).await?;
    f.unschedulable(&pod).await?;
    f.delete(&first).await?;
    f.runs_on(&pod, &target).await?;
    let before = f.before(&target)?.clone();
    f.accounted(&target, &before, std::slice::from_ref(&pod)).await?;
    f.delete(&pod).await?;
    f.restored(&target, &before).await
}

async fn burstable_daemon_set(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let target = f.target()?.name.clone();
    let set = f.daemon_set(f.pod("p").burstable(&room(&f)?).among(&[&target])).await?;
    for pod in set.running(1).await? {
        unaccounted(&f, &pod).await?;
    }
    Ok(())
}
