//! Pods while the exporters write nothing: reports of nodes get old.

use anyhow::{Context as _, ensure};
use api::nrt::NodeResourceTopology;

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Operator, Scheduler};
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};

/// The field that suspends the exporters.
const PAUSE: &str = "infoRefreshPause";

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("85012", 2, "a best-effort pod runs while reports are old", |f: Fixture| async move {
            let plan = f.pod("p").best_effort();
            runs(&f, plan).await
        }),
        Spec::new("85013", 2, "a burstable pod runs while reports are old", |f: Fixture| async move {
            let plan = f.pod("p").burstable(&f.amounts("memory=256Mi")?);
            runs(&f, plan).await
        }),
        Spec::new(
            "47611",
            2,
            "a guaranteed pod runs while reports are old, and is accounted afterwards",
            accounted,
        ),
    ];
    let labels = ["no_nrt", "feature:nonreg", "disruptive", "scheduler"];
    specs.into_iter().map(|spec| spec.labels(&labels).needs([Operator, Scheduler, Aligning(1)])).collect()
}

/// Suspends the exporters of the only node group, and waits until all of them are.
async fn suspend(f: &Fixture, switch: &'static str) -> Result {
    let set = f.only_set().await?;
    f.configure(|config| config[PAUSE] = switch.into()).await?;
    let is_paused = |arg: &str| arg == "--no-publish";
    let wanted = switch == "Enabled";
    let nodes = f.nodes_of(&set);
    f.on_nodes(&set, &nodes, |pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.flat_map(|one| one.args.iter().flatten()).any(|arg| is_paused(arg)) == wanted
    })
    .await?;
    f.complete(&set).await?;
    Ok(())
}

fn report(f: &Fixture, node: &str) -> Result<NodeResourceTopology> {
    let report = f.cluster().observer.now().reports.get(node).map(|report| (**report).clone());
    report.with_context(|| format!("node {node} has no report"))
}

async fn runs(f: &Fixture, plan: PodPlan) -> Result {
    suspend(f, "Enabled").await?;
    let pod = f.create(plan).await?;
    f.running(&pod).await?;
    f.scheduled(&pod).await
}

async fn accounted(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    let amounts = f.amounts("4 100Mi")?;
    f.require_zones(&amounts)?;
    let before = f.before(&target)?.clone();
    suspend(&f, "Enabled").await?;
    let old = report(&f, &target)?;
    let pod = f.create(f.pod("p").among(&[&target]).guaranteed(&amounts)).await?;
    f.runs_on(&pod, &target).await?;
    ensure!(
        report(&f, &target)?.metadata.resource_version == old.metadata.resource_version,
        "the report was written"
    );
    suspend(&f, "Disabled").await?;
    f.accounted(&target, &before, &[pod]).await
}
