//! When a report describes the pods of its node.
//!
//! In: an observed state. Out: nothing, or why a report is not settled. Never: a wait for a report to be rewritten,
//! since an exporter writes nothing that did not change.
//!
//! A report names the pods that it counts by their fingerprint, and the API server has the same pods. While both
//! differ, a pod comes or goes. A report without a fingerprint is settled when no pod of its node is on its way in or
//! out.

use api::convert::{node_topology, pod_request};
use k8s_openapi::api::core::v1::Pod;
use topology::admit::is_exclusive;
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::zone::NodeTopology;

use crate::observed::Observed;

/// The report of a node, read.
///
/// # Errors
/// Why there is none, or it cannot be read.
pub fn topology(state: &Observed, node: &str) -> Result<NodeTopology, String> {
    if let Some(reason) = state.unreadable.get(node) {
        return Err(format!("the report of {node} cannot be read: {reason}"));
    }
    let report = state.reports.get(node).ok_or_else(|| format!("node {node} has no report"))?;
    let (topology, _) = node_topology(report).map_err(|error| format!("the report of {node}: {error}"))?;
    Ok(topology)
}

/// The report of a node, once it describes the node's pods.
///
/// # Errors
/// Why it does not.
pub fn settled(state: &Observed, node: &str) -> Result<NodeTopology, String> {
    let topology = topology(state, node)?;
    let moving = pods(state, node).find(|pod| is_moving(pod));
    if let Some(pod) = moving {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        return Err(format!("pod {name} comes to node {node} or goes"));
    }
    let Some((reported, method)) = topology.fingerprint else { return Ok(topology) };
    let counted = pods(state, node).filter(|pod| counts(pod, method, &topology));
    let mut hashes: Vec<PodHash> = counted.map(hash).collect();
    let expected = Fingerprint::of(&mut hashes);
    if expected == reported {
        return Ok(topology);
    }
    Err(format!("the report of {node} is not about its {} pods ({reported}, not {expected})", hashes.len()))
}

/// The pods that the kubelet of a node has, without finished ones.
pub fn pods<'a>(state: &'a Observed, node: &'a str) -> impl Iterator<Item = &'a Pod> {
    let is_here = move |pod: &&Pod| {
        let is_bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        is_bound && !matches!(phase, Some("Succeeded" | "Failed"))
    };
    state.pods.values().map(|pod| &**pod).filter(is_here)
}

/// Whether the kubelet has not started a pod yet, or ends it.
fn is_moving(pod: &Pod) -> bool {
    let is_started = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
    pod.metadata.deletion_timestamp.is_some() || !is_started
}

fn counts(pod: &Pod, method: Method, topology: &NodeTopology) -> bool {
    match method {
        Method::All => true,
        Method::WithExclusiveResources => pod_request(pod)
            .is_ok_and(|request| is_exclusive(topology.rules, &topology.available(), &request.needs())),
    }
}

fn hash(pod: &Pod) -> PodHash {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    PodHash::of(&text(&pod.metadata.namespace), &text(&pod.metadata.name))
}
