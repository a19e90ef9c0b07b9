//! Workloads that change: their new pods go where zones have room now.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use crate::facts::DEFAULT_SCHEDULER;
use crate::fixture::{Fixture, PodRef};
use crate::need::Need::{Aligning, DefaultScheduler, Devices, Scheduler};
use crate::padding::Left;
use crate::payload::slots;
use crate::spec::{Result, Skip, Spec};

/// The most pods of the set whose time is taken.
const TIMED_PODS: usize = 10;
/// How much longer than the default scheduler the one under test may take: this many times its time, and this besides.
const TIMES_LONGER: f64 = 3.0;
const SPARE: Duration = Duration::from_secs(2);

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("47591", 1, "new pods of a deployment follow the room: same node, then another", follows)
            .needs([Devices]),
        Spec::new("48746", 2, "replicas of nearly a zone are made anew with less", shrinks)
            .labels(&["deployment"])
            .needs([Devices]),
        Spec::new("47627", 3, "a replica set is up about as soon as with the default scheduler", as_soon)
            .needs([DefaultScheduler]),
    ];
    let all = specs.into_iter();
    all.map(|s| s.labels(&["scheduler", "disruptive"]).needs([Scheduler, Aligning(2)])).collect()
}

async fn follows(f: Fixture) -> Result {
    let (target, little) = (f.target()?.clone(), f.amounts("1 4Gi")?);
    f.require_zones(&f.amounts("16 4Gi")?)?;
    let Some((next, _)) = f.others().split_first() else { return Err(Skip("a second node".into()).into()) };
    let mut padding = f.pad(std::slice::from_ref(next), Left(std::slice::from_ref(&little))).await?;
    f.pad(f.others().get(1..).unwrap_or_default(), Left(std::slice::from_ref(&little))).await?;
    let before = f.free(&target.name).await?;
    let plan = |cpus: u32| -> Result<_> {
        let each = f.amounts(&format!("{cpus} 256Mi"))?;
        Ok(f.pod("p").guaranteed(&each).guaranteed(&each))
    };
    let deployment = f.deployment(plan(2)?, 1).await?;
    let old = deployment.running(1).await?;
    on(&f, &old, &target.name).await?;
    f.accounted(&target.name, &before, &old).await?;
    deployment.update(plan(3)?).await?;
    let old = deployment.renewed(&old).await?;
    on(&f, &old, &target.name).await?;
    f.accounted(&target.name, &before, &old).await?;
    // Now the other way round.
    for pod in padding.drain(..) {
        f.delete(&pod).await?;
    }
    f.restored(&next.name, f.before(&next.name)?).await?;
    f.pad(std::slice::from_ref(&target), Left(&[little])).await?;
    deployment.update(plan(6)?).await?;
    let new = deployment.renewed(&old).await?;
    on(&f, &new, &next.name).await?;
    f.accounted(&next.name, f.before(&next.name)?, &new).await
}

async fn on(f: &Fixture, pods: &[PodRef], node: &str) -> Result {
    for pod in pods {
        f.runs_on(pod, node).await?;
    }
    Ok(())
}

async fn shrinks(f: Fixture) -> Result {
    let target = f.target()?.clone();
    f.require_zones(&f.amounts("8 4Gi")?)?;
    f.pad(f.others(), Left(&[f.amounts("1 4Gi")?])).await?;
    let before = f.free(&target.name).await?;
    let replicas = target.topology.zones.len();
    let large = f.room();
    let small = large.clone().minus(&f.amounts("4 100Mi")?);
    let deployment = f.recreated(f.pod("p").guaranteed(&large), replicas).await?;
    let old = deployment.running(replicas).await?;
    on(&f, &old, &target.name).await?;
    f.accounted(&target.name, &before, &old).await?;
    deployment.update(f.pod("p").guaranteed(&small)).await?;
    let new = deployment.renewed(&old).await?;
    on(&f, &new, &target.name).await?;
    f.accounted(&target.name, &before, &new).await
}

/// Times are compared as a ratio: both schedulers wait for the same API server and the same kubelets.
async fn as_soon(f: Fixture) -> Result {
    let each = f.amounts("2 64Mi")?;
    let whole = each.clone().plus(&each);
    let mut room = 0;
    for node in f.nodes() {
        room += slots(node, &f.free(&node.name).await?, &whole);
    }
    // Half of the room, so that no pod of the default scheduler is rejected for its zones.
    let count = TIMED_PODS.min(room / 2);
    if count == 0 {
        return Err(Skip("zones with room for 4 CPUs".into()).into());
    }
    let mut times = Vec::new();
    for (name, scheduler) in [("default", DEFAULT_SCHEDULER), ("tested", f.scheduler())] {
        let plan = f.pod(name).guaranteed(&each).guaranteed(&each).scheduler(scheduler);
        let began = Instant::now();
        let set = f.replica_set(plan, count).await?;
        set.running(count).await?;
        times.push(began.elapsed());
        set.delete().await?;
        f.untouched().await?;
    }
    let (stock, tested) =
        (times.first().copied().unwrap_or_default(), times.last().copied().unwrap_or_default());
    let most = stock.mul_f64(TIMES_LONGER) + SPARE;
    ensure!(tested <= most, "{count} pods run after {tested:?}; after {stock:?} with the default scheduler");
    Ok(())
}
