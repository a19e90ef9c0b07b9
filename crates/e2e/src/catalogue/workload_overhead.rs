//! Overhead of a runtime class: it counts on the node, and in no zone.

use std::collections::BTreeSet;

use anyhow::ensure;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ApiResource;
use serde_json::json;
use topology::resource::ResourceName;

use crate::amounts::Amounts;
use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Devices, Scheduler};
use crate::padding::Left;
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// Handlers that run ordinary containers, the usual first.
const HANDLERS: [&str; 2] = ["runc", "crun"];

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("47582", 2, "a pod with overhead is placed, and no zone accounts the overhead", placed),
        Spec::new("53819", 2, "a pod waits for what its overhead lacks on every node", too_large)
            .labels(&["unsched"]),
    ];
    let all = specs.into_iter();
    all.map(|s| s.labels(&["scheduler", "disruptive"]).needs([Scheduler, Devices, Aligning(2)])).collect()
}

/// A handler that all nodes of the spec have.
fn handler(f: &Fixture) -> Result<&'static str> {
    let state = f.cluster().observer.now();
    let handlers = f.nodes().iter().map(|node| -> BTreeSet<String> {
        let status = state.nodes.get(&node.name).and_then(|node| node.status.as_ref());
        let handlers = status.and_then(|status| status.runtime_handlers.as_deref()).unwrap_or_default();
        handlers.iter().filter_map(|handler| handler.name.clone()).collect()
    });
    let handlers: Vec<_> = handlers.collect();
    let mut known = HANDLERS.into_iter();
    let found = known.find(|name| handlers.iter().all(|handlers| handlers.contains(*name)));
    found.ok_or_else(|| Skip(format!("a runtime handler {} on every node", HANDLERS.join(" or "))).into())
}

/// The name of the spec's runtime class.
fn name(f: &Fixture) -> String {
    format!("tholepin-e2e-{}", f.name())
}

/// Makes the runtime class.
async fn class(f: &Fixture, overhead: &Amounts) -> Result {
    let target = Target::of(&ApiResource::erase::<RuntimeClass>(&()), "", &name(f));
    let object = json!({
        "metadata": { "labels": {} },
        "handler": handler(f)?, "overhead": { "podFixed": overhead.quantities() },
    });
    f.make(&target, object).await.map(drop)
}

async fn placed(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    let wanted = f.amounts("6 6Gi")?;
    f.require_zones(&wanted)?;
    class(&f, &f.amounts("500m 500M")?).await?;
    f.pad(f.others(), Left(&[f.amounts("4 4Gi")?])).await?;
    let before = f.free(&target).await?;
    let plan = f.pod("p").guaranteed(&wanted);
    let plan = plan.spec(|spec| spec.runtime_class_name = Some(name(&f)));
    let pods = f.deployment(plan, 1).await?.running(1).await?;
    for pod in &pods {
        f.runs_on(pod, &target).await?;
        let overhead = f.running(pod).await?.spec.as_ref().and_then(|spec| spec.overhead.clone());
        ensure!(overhead.is_some(), "pod {} has no overhead: it would show nothing", pod.name);
    }
    f.accounted(&target, &before, &pods).await
}

/// The overhead alone makes the difference: a pod of the same size without it runs.
async fn too_large(f: Fixture) -> Result {
    let wanted = f.amounts("1 1Gi")?;
    let mut left = Amounts::default();
    for node in f.nodes() {
        left = left.max(&node.allocatable.clone().minus(&node.base_load));
    }
    let lacking = left.minus(&wanted).plus(&f.amounts("1")?).only(|name| name == ResourceName::CPU);
    class(&f, &lacking).await?;
    let plan = f.pod("p").guaranteed(&wanted).spec(|spec| spec.runtime_class_name = Some(name(&f)));
    let pod = f.create(plan).await?;
    f.lacks(&pod, ResourceName::CPU).await?;
    f.untouched().await?;
    let control = f.create(f.pod("control").guaranteed(&wanted)).await?;
    f.running(&control).await?;
    f.scheduled(&control).await
}
