//! The resource that decides: zones with enough of one and too little of another.

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Devices, Scheduler};
use crate::padding::Left;
use crate::spec::{Result, Spec};

pub(super) fn specs() -> Vec<Spec> {
    let rows = [
        ("85792", "memory decides where CPUs would do", "16 8Gi"),
        ("85793", "CPUs decide where memory would do", "8 16Gi"),
    ];
    let spec = |(id, title, left)| {
        Spec::new(id, 0, title, move |f| decides(f, left))
            .labels(&["scheduler", "ressched", "byres"])
            .needs([Scheduler, Devices, Aligning(2)])
    };
    rows.into_iter().map(spec).collect()
}

async fn decides(f: Fixture, left: &'static str) -> Result {
    let target = f.target()?.name.clone();
    let amounts = f.amounts("16 16Gi")?;
    f.require_zones(&amounts)?;
    f.pad(f.others(), Left(&[f.amounts(left)?])).await?;
    let before = f.free(&target).await?;
    let pod = f.create(f.pod("large").guaranteed(&amounts)).await?;
    f.runs_on(&pod, &target).await?;
    f.accounted(&target, &before, &[pod]).await
}
