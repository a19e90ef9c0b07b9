//! What must work as without NUMA: pods with a node, deployments that grow.

use topology::resource::ResourceName;

use crate::amounts::Amounts;
use crate::facts::NodeFacts;
use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Devices, Scheduler};
use crate::padding::Left;
use crate::spec::{Result, Spec};

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("47584", 2, "a pod that names its node needs no scheduler, and is accounted", with_node),
        Spec::new(
            "48964",
            3,
            "a deployment whose pod names its node needs no scheduler",
            deployment_with_node,
        ),
        Spec::new("47613", 3, "a pod with a CPU more than the largest zone waits", too_many_cpus)
            .labels(&["unsched"]),
        Spec::new("85779", 2, "a deployment of large pods grows to twice as many", grows),
    ];
    let all = specs.into_iter();
    all.map(|s| s.labels(&["scheduler", "disruptive"]).needs([Scheduler, Devices, Aligning(2)])).collect()
}

async fn with_node(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    f.pad(f.others(), Left(&[f.amounts("2 4Gi")?])).await?;
    let before = f.free(&target).await?;
    let plan = f.pod("p").guaranteed(&f.amounts("2 100Mi")?).scheduler("none-such").on(&target);
    let pod = f.create(plan).await?;
    f.running(&pod).await?;
    f.accounted(&target, &before, std::slice::from_ref(&pod)).await?;
    f.delete(&pod).await?;
    f.restored(&target, &before).await
}

async fn deployment_with_node(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    f.pad(f.others(), Left(&[f.amounts("2 4Gi")?])).await?;
    let before = f.free(&target).await?;
    let plan = f.pod("p").guaranteed(&f.amounts("2 100Mi")?).scheduler("none-such").on(&target);
    let pods = f.deployment(plan, 1).await?.running(1).await?;
    f.accounted(&target, &before, &pods).await
}

async fn too_many_cpus(f: Fixture) -> Result {
    f.fill(f.others()).await?;
    let largest = f.nodes().iter().map(NodeFacts::most_cpus);
    let cpus = largest.max().unwrap_or_default() / ResourceName::CPU.base_units() + f.facts().scale().cpus;
    let pod = f.create(f.pod("p").guaranteed(&Amounts::cpu_and_memory(cpus, 100 << 20))).await?;
    f.unschedulable(&pod).await?;
    f.untouched_but(f.others()).await
}

/// Pods that take more than half of a zone: one fits each.
async fn grows(f: Fixture) -> Result {
    let smallest = f.nodes().iter().map(NodeFacts::smallest_zone).reduce(|a, b| a.min(&b));
    let share = smallest.unwrap_or_default().part(2, 3, f.facts().scale().cpus);
    let nodes = f.nodes().len();
    let mut deployment = f.deployment(f.pod("p").guaranteed(&share), nodes).await?;
    deployment.running(nodes).await?;
    deployment.scale(2 * nodes).await?;
    for pod in deployment.running(2 * nodes).await? {
        f.scheduled(&pod).await?;
    }
    Ok(())
}
