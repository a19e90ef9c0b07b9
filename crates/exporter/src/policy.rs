//! The admission policy that ties each exporter to the object of its own node, and to the status of pods there.
//!
//! In: a service account. Out: a ValidatingAdmissionPolicy and its binding ([`api::own_node`] describes how they work).
//! Never: a rule for another account.

use api::admission::{CHANGES, writes};
use api::nrt;
use api::own_node::OwnNode;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};

/// The policy and its binding for the exporters that run as `account` in `namespace`; both are named after the two.
///
/// Needs Kubernetes 1.32 or later: older tokens do not name their node, so every write would be refused.
#[must_use]
pub fn admission_policy(
    namespace: &str,
    account: &str,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let policy = OwnNode {
        name: "tholepin-exporter-own-node",
        namespace,
        account,
        who: "an exporter",
        what: "the NodeResourceTopology",
        writes: vec![
            writes(nrt::GROUP, &[nrt::PLURAL], CHANGES),
            // The conditions on the exporter's own pod.
            writes("", &["pods/status"], &["UPDATE"]),
        ],
        // `request.name` is empty when a collection is deleted; the objects themselves are always there.
        node: "request.resource.resource == 'pods' ? oldObject.spec.nodeName : \
               object != null ? object.metadata.name : oldObject.metadata.name",
    };
    policy.objects()
}
