//! Whether NodeResourceTopology objects speak of the pods that are there.

use api::nrt::NodeResourceTopology;
use topology::admit::is_exclusive;
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::zone::NodeTopology;

use super::Check;
use super::report::{may_enforce, title};
use crate::validate::evidence::{Area, Evidence, Pod};
use crate::validate::finding::Findings;

pub(super) const TABLE: [Check; 2] = [
    Check {
        id: "report-fingerprint",
        about: "NodeResourceTopology objects carry a pod fingerprint",
        severity: "warning",
        needs: &[Area::Nodes, Area::Reports],
        why: "without it nobody can tell which pods the numbers account for, so schedulers must be cautious or guess",
        fix: "turn fingerprints on in the exporter (--pods-fingerprint)",
        run: fingerprint,
    },
    Check {
        id: "report-stale",
        about: "NodeResourceTopology objects describe the pods that run now",
        severity: "warning",
        needs: &[Area::Nodes, Area::Reports, Area::Pods],
        why: "schedulers do not believe numbers of other pods: what those freed stays unused",
        fix: "see that the exporter on the node runs and may write; its log says what stops it",
        run: stale,
    },
];

/// How long after a change of its pods an object may still speak of the pods before, in milliseconds: an exporter's
/// period, and a margin for clocks.
const GRACE_MS: i64 = 90_000;

fn fingerprint(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        let enforces = evidence.nodes.get(name).is_some_and(may_enforce);
        if let (true, Ok((topology, _))) = (enforces, &report.read)
            && topology.fingerprint.is_none()
        {
            findings.warning(title(name), "it has no pod fingerprint that can be compared");
        }
    }
}

/// What became of comparing an object with the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::validate) enum Sync {
    /// It speaks of them.
    Same,
    /// It speaks of others.
    Other,
    /// Nobody can tell: there is no fingerprint, or the pods are changing.
    Unknown,
}

/// Compares an object with the pods of its node.
pub(in crate::validate) fn sync(
    evidence: &Evidence,
    object: &NodeResourceTopology,
    topology: &NodeTopology,
) -> Sync {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let Some((said, method)) = topology.fingerprint else { return Sync::Unknown };
    let all = evidence.pods.values().filter(|pod| pod.node.as_deref() == Some(name));
    if all.into_iter().any(|pod| is_moving(evidence, pod)) {
        return Sync::Unknown;
    }
    let free = topology.allocatable();
    let mut hashes = Vec::new();
    for pod in evidence.pods_on(name) {
        let counts = match (method, &pod.request) {
            (Method::All, _) => true,
            (Method::WithExclusiveResources, Ok(request)) => {
                is_exclusive(topology.rules, &free, &request.needs())
            }
            (Method::WithExclusiveResources, Err(_)) => return Sync::Unknown,
        };
        if counts {
            hashes.push(PodHash::of(&pod.namespace, &pod.name));
        }
    }
    if Fingerprint::of(&mut hashes) == said { Sync::Same } else { Sync::Other }
}

/// Whether a pod came, changed or is going, so lately that an exporter may not have seen it.
fn is_moving(evidence: &Evidence, pod: &Pod) -> bool {
    let recent = |time| evidence.age_ms(time).is_some_and(|age| age < GRACE_MS);
    let unadmitted = !pod.is_over() && pod.started.is_none();
    pod.deleting || unadmitted || recent(pod.changed) || recent(pod.created)
}

fn stale(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        let Ok((topology, _)) = &report.read else { continue };
        // Of a node that is gone there are no pods to compare with.
        if evidence.nodes.contains_key(name) && sync(evidence, &report.object, topology) == Sync::Other {
            let pods = evidence.pods_on(name).count();
            let what = format!(
                "its fingerprint is not that of the {pods} pods on the node, none of which changed in the last {} s",
                GRACE_MS / 1000
            );
            findings.warning(title(name), what);
        }
    }
}
