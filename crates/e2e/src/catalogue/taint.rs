//! Taints: pods that tolerate one go where their zones fit.

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Devices, Scheduler};
use crate::padding::Left;
use crate::spec::{Result, Spec};

/// The taint's key.
const KEY: &str = "e2e.tholepin.dev/taint";

pub(super) fn specs() -> Vec<Spec> {
    vec![
        Spec::new(
            "47594",
            1,
            "of pods on tainted nodes only the one that tolerates the taint runs, where a zone has room",
            tolerated,
        )
        .labels(&["scheduler", "disruptive"])
        .needs([Scheduler, Devices, Aligning(2)]),
    ]
}

async fn tolerated(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    let amounts = f.amounts("4 100Mi")?;
    f.require_zones(&amounts)?;
    f.pad(f.others(), Left(&[f.amounts("1 4Gi")?])).await?;
    for node in f.nodes() {
        f.changes().taint(&node.name, KEY, "true", "NoSchedule").await?;
    }
    let before = f.free(&target).await?;
    let refused = f.create(f.pod("refused").guaranteed(&amounts)).await?;
    f.unschedulable(&refused).await?;
    f.delete(&refused).await?;
    let pod = f.create(f.pod("tolerating").guaranteed(&amounts).tolerates(KEY)).await?;
    f.runs_on(&pod, &target).await?;
    f.accounted(&target, &before, std::slice::from_ref(&pod)).await?;
    f.delete(&pod).await?;
    f.restored(&target, &before).await
}
