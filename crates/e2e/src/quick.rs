//! The quick test: a spec for each node, and one for each scope.
//!
//! In: what a cluster can do. Out: specs that need no devices and no padding: a pod on each node, whose kubelet must
//! take what the model says; a pod that no zone holds. Never: a spec of the catalogue.

use topology::policy::Scope;
use topology::resource::ResourceName;

use crate::amounts::Amounts;
use crate::facts::{Facts, NodeFacts};
use crate::fixture::Fixture;
use crate::need::Need::Scheduler;
use crate::spec::{Result, Skip, Spec};

/// Memory of a pod.
const MEMORY: i64 = 64 << 20;

/// The specs for a cluster.
#[must_use]
pub fn specs(facts: &Facts) -> Vec<Spec> {
    let nodes = facts.nodes.iter().map(|node| {
        let rules = node.rules();
        let (policy, scope) = (rules.policy.as_str(), rules.scope.as_str());
        // The model is exact where the kubelet aligns pods or rejects them.
        let spec = if rules.policy.enforces() {
            let title = format!("({policy}, scope {scope}) gives a pod what the model says");
            spec(&node.name, title, taken)
        } else {
            spec(&node.name, format!("({policy}) starts a pod"), started)
        };
        spec.needs([Scheduler])
    });
    let first = |scope: &Scope| facts.nodes.iter().find(|node| node.aligns_by(*scope));
    let scopes = facts.scopes();
    let large = scopes.iter().filter_map(first).map(|node| {
        let title = "has room, but no zone has: a pod waits and is not rejected".to_owned();
        spec(&node.name, title, waits).needs([Scheduler])
    });
    let specs = nodes.chain(large).enumerate();
    // An id is part of names of pods; a node's name may be too long for it.
    specs.map(|(number, spec)| Spec { id: format!("node-{number}"), ..spec }).collect()
}

fn spec<F>(node: &str, claim: String, body: impl Fn(Fixture) -> F + Send + Sync + 'static) -> Spec
where
    F: Future<Output = Result> + Send + 'static,
{
    let spec = Spec::new("", 0, format!("{node} {claim}"), body).on(node);
    Spec { feature: "test", ..spec }
}

/// A pod with a core of its own; afterwards the report is as before.
async fn taken(f: Fixture) -> Result {
    let node = f.target()?.name.clone();
    let before = f.free(&node).await?;
    let amounts = Amounts::cpu_and_memory(f.facts().scale().cpus, MEMORY);
    let pod = f.create(f.pod("one-core").guaranteed(&amounts)).await?;
    f.runs_on(&pod, &node).await?;
    f.accounted(&node, &before, std::slice::from_ref(&pod)).await?;
    f.delete(&pod).await?;
    f.restored(&node, &before).await
}

/// A pod with a core, on a node that promises no zone.
async fn started(f: Fixture) -> Result {
    let node = f.target()?.name.clone();
    let amounts = Amounts::cpu_and_memory(f.facts().scale().cpus, MEMORY);
    let pod = f.create(f.pod("one-core").guaranteed(&amounts)).await?;
    f.runs_on(&pod, &node).await?;
    f.delete(&pod).await?;
    f.restored(&node, f.before(&node)?).await
}

/// A pod with a core more than the largest free zone has.
async fn waits(f: Fixture) -> Result {
    let target = f.target()?;
    let cpus = too_many(target, f.facts().scale().cpus)?;
    let pod = f.create(f.pod("too-large").guaranteed(&Amounts::cpu_and_memory(cpus, MEMORY))).await?;
    f.cannot_align(&pod).await?;
    f.untouched().await
}

/// More CPUs than a zone has free, and fewer than the node has.
fn too_many(node: &NodeFacts, core: i64) -> Result<i64> {
    let free = node.topology.available();
    let by_zone = node.topology.zones.iter().map(|zone| free.amount(zone.id, ResourceName::CPU));
    let (largest, all) = by_zone.fold((0, 0), |(largest, all), cpus| (cpus.max(largest), all + cpus));
    let unit = ResourceName::CPU.base_units();
    let wanted = largest / unit / core * core + core;
    if wanted * unit > all {
        return Err(Skip(format!("node {} with free CPUs in two zones", node.name)).into());
    }
    Ok(wanted)
}
