//! NodeResourceTopology objects: do they describe the present pods?

use api::nrt::NodeResourceTopology;
use topology::admit::is_exclusive;
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::zone::NodeTopology;

use super::report::{may_enforce, title};
use super::{Check, Findings};
use crate::validate::evidence::{Area, Evidence, Pod};

pub(super) const TABLE: [Check; 2] = [
    Check {
        id: "report-fingerprint",
        about: "NodeResourceTopology objects carry a pod fingerprint",
        severity: "warning",
        needs: &[Area::Nodes, Area::Reports],
        why: "without a fingerprint schedulers do not know which pods the amounts account for",
        fix: "turn fingerprints on in the exporter (--pods-fingerprint)",
        run: fingerprint,
    },
    Check {
        id: "report-stale",
        about: "NodeResourceTopology objects describe the pods that run now",
        severity: "warning",
        needs: &[Area::Nodes, Area::Reports, Area::Pods],
        why: "schedulers ignore amounts that account for other pods, so freed resources stay unused",
        fix: "check that the exporter on the node runs and may write; its log has the reason",
        run: stale,
    },
];

/// The time in milliseconds that an exporter has to publish a change of pods: its period, and a margin for clocks.
const GRACE_MS: i64 = 90_000;

fn fingerprint(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        let enforces = evidence.nodes.get(name).is_some_and(may_enforce);
        if let (true, Ok((topology, _))) = (enforces, &report.read)
            && topology.fingerprint.is_none()
        {
            findings.warning(title(name), "the object has no pod fingerprint that can be compared");
        }
    }
}

/// Whether an object describes the pods of its node. `None`: there is no fingerprint, or it may follow a change.
pub(crate) fn in_sync(
    evidence: &Evidence,
    object: &NodeResourceTopology,
    topology: &NodeTopology,
) -> Option<bool> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let (said, method) = topology.fingerprint?;
    let free = topology.allocatable();
    let mut hashes = Vec::new();
    for pod in evidence.pods_on(name) {
        let counts = match (method, &pod.request) {
            (Method::All, _) => true,
            (Method::WithExclusiveResources, Ok(request)) => {
                is_exclusive(topology.rules, &free, &request.needs())
            }
            (Method::WithExclusiveResources, Err(_)) => return None,
        };
        if counts {
            hashes.push(PodHash::of(&pod.namespace, &pod.name));
        }
    }
    let mut all = evidence.pods.values().filter(|pod| pod.node.as_deref() == Some(name));
    match Fingerprint::of(&mut hashes) == said {
        true => Some(true),
        false => (!all.any(|pod| is_moving(evidence, pod))).then_some(false),
    }
}

/// Whether a pod changes, or changed so lately that the exporter may not have seen it.
fn is_moving(evidence: &Evidence, pod: &Pod) -> bool {
    let recent = |time| evidence.age_ms(time).is_some_and(|age| age < GRACE_MS);
    let unadmitted = !pod.is_over() && pod.started.is_none();
    pod.deleting || unadmitted || recent(pod.changed) || recent(pod.created)
}

fn stale(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        let Ok((topology, _)) = &report.read else { continue };
        // A deleted node has no pods to compare with.
        if evidence.nodes.contains_key(name) && in_sync(evidence, &report.object, topology) == Some(false) {
            let pods = evidence.pods_on(name).count();
            let what = format!(
                "the fingerprint does not match the {pods} pods on the node, which did not change in the last {} s",
                GRACE_MS / 1000
            );
            findings.warning(title(name), what);
        }
    }
}
