//! Pods that no zone holds, although nodes have room in all.

use anyhow::ensure;
use topology::policy::Scope;
use topology::resource::ResourceName;

use crate::fixture::Fixture;
use crate::need::Need::{self, Aligning, DefaultScheduler, Devices, Scheduler};
use crate::padding::Left;
use crate::pods::{PodPlan, REJECTION_LABEL};
use crate::spec::{Result, Spec};

const LABELS: &[&str] = &["scheduler", "unsched", "disruptive"];

/// What owns a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Pod,
    Deployment,
    DaemonSet,
}

pub(super) fn specs() -> Vec<Spec> {
    let owners = [Owner::Pod, Owner::Deployment, Owner::DaemonSet];
    let words = ["pod", "deployment", "daemonset"];
    let zones = ["47617", "48963", "48962"].into_iter().zip(owners).zip(words).map(|((id, owner), word)| {
        Spec::new(id, 2, format!("{} that no zone holds waits", of(word)), move |f| {
            larger_than_zones(f, owner)
        })
        .labels(&[word])
    });
    let whole = owners.into_iter().zip(words).map(|(owner, word)| {
        let title = format!("{} that asks for a whole node waits", of(word));
        Spec::new(format!("47614/{word}"), 3, title, move |f| whole_node(f, owner)).labels(&[word])
    });
    let others = [
        Spec::new("47619", 3, "the kubelet rejects what the default scheduler sends it", rejected)
            .labels(&["default-scheduler"])
            .needs([DefaultScheduler]),
        Spec::new("47592", 2, "of a daemonset only the pod whose node has room runs", one_of_a_daemon_set)
            .labels(&["daemonset"]),
        Spec::new("47616", 2, "a pod whose containers fit apart and not together waits", together)
            .labels(&["tmscope:pod"])
            .needs([Need::Scope(Scope::Pod)]),
        Spec::new(
            "47615",
            2,
            "more replicas than zones: none of the large, and as many as fit of the small",
            replicas,
        )
        .labels(&["deployment"]),
    ];
    let all = zones.chain(others).chain(whole);
    all.map(|spec| spec.labels(LABELS).needs([Scheduler, Devices, Aligning(2)])).collect()
}

async fn make(f: &Fixture, owner: Owner, plan: PodPlan) -> Result<Vec<crate::fixture::PodRef>> {
    match owner {
        Owner::Pod => Ok(vec![f.create(plan).await?]),
        Owner::Deployment => f.deployment(plan, 1).await?.pods().await,
        Owner::DaemonSet => {
            let set = f.daemon_set(plan).await?;
            let wanted = f.nodes().len();
            set.count(wanted).await
        }
    }
}

async fn larger_than_zones(f: Fixture, owner: Owner) -> Result {
    f.require_zones(&f.amounts("16 16Gi")?)?;
    f.pad(f.nodes(), Left(&[f.amounts("12 12Gi")?])).await?;
    for pod in make(&f, owner, f.pod("p").guaranteed(&f.amounts("16 16Gi")?)).await? {
        f.cannot_align(&pod).await?;
    }
    Ok(())
}

async fn whole_node(f: Fixture, owner: Owner) -> Result {
    let largest =
        f.nodes().iter().map(|node| node.allocatable.clone()).reduce(|a, b| a.max(&b)).unwrap_or_default();
    let whole = largest.only(|name| [ResourceName::CPU, ResourceName::MEMORY].contains(&name));
    for pod in make(&f, owner, f.pod("p").guaranteed(&whole)).await? {
        f.unschedulable(&pod).await?;
    }
    f.untouched().await
}

async fn rejected(f: Fixture) -> Result {
    f.require_zones(&f.amounts("16 16Gi")?)?;
    f.pad(f.nodes(), Left(&[f.amounts("12 12Gi")?])).await?;
    let plan = f.pod("p").guaranteed(&f.amounts("16 16Gi")?).scheduler("default-scheduler");
    let pod = f.create(plan.label(REJECTION_LABEL, "")).await?;
    f.rejected(&pod).await
}

async fn one_of_a_daemon_set(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    let amounts = f.amounts("16 16Gi")?;
    f.require_zones(&amounts)?;
    f.pad(f.others(), Left(&[f.amounts("12 12Gi")?])).await?;
    let set = f.daemon_set(f.pod("p").guaranteed(&amounts)).await?;
    let mut ran = 0;
    for pod in set.count(f.nodes().len()).await? {
        if set.is_for(&pod, &target) {
            f.runs_on(&pod, &target).await?;
            ran += 1;
        } else {
            f.unschedulable(&pod).await?;
        }
    }
    ensure!(ran == 1, "{ran} pods of the set are for node {target}");
    Ok(())
}

async fn together(f: Fixture) -> Result {
    f.require_zones(&f.amounts("6 6Gi")?)?;
    f.pad(f.nodes(), Left(&[f.amounts("6 6Gi")?])).await?;
    let plan = f.pod("p").guaranteed(&f.amounts("4 4Gi")?).guaranteed(&f.amounts("5 5Gi")?);
    let pod = f.create(plan).await?;
    f.cannot_align(&pod).await
}

/// Every zone keeps room for one pod; there is a pod more than zones, and each is larger than that room at first.
async fn replicas(f: Fixture) -> Result {
    let room = f.amounts("6 6Gi")?;
    f.require_zones(&room)?;
    f.pad(f.nodes(), Left(&[room])).await?;
    let zones: usize = f.nodes().iter().map(|node| node.topology.zones.len()).sum();
    let large = f.recreated(f.pod("p").guaranteed(&f.amounts("10 10Gi")?), zones + 1).await?;
    for pod in large.pods().await? {
        f.cannot_align(&pod).await?;
    }
    large.update(f.pod("p").guaranteed(&f.amounts("4 4Gi")?)).await?;
    large.fits(zones).await
}

fn of(owner: &str) -> String {
    if owner == "pod" { "a pod".to_owned() } else { format!("a {owner}'s pod") }
}
