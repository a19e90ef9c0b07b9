//! The admission policy that ties each device plugin to the ResourceSlices of its own node.
//!
//! In: a service account. Out: a ValidatingAdmissionPolicy and its binding ([`api::own_node`] says how they work).
//! Never: a rule for other accounts. The API server itself refuses slices of another node to kubelets only.

use api::admission::{CHANGES, writes};
use api::own_node::OwnNode;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};

use super::rbac::GROUP;

/// The policy and its binding for the device plugins that run as `account` in `namespace`; both are named after the
/// two.
#[must_use]
pub fn admission_policy(
    namespace: &str,
    account: &str,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let policy = OwnNode {
        name: "tholepin-resource-claims-own-node",
        namespace,
        account,
        who: "a device plugin",
        what: "the ResourceSlices",
        writes: vec![writes(GROUP, &["resourceslices"], CHANGES)],
        // The node of a slice cannot change. Slices of all nodes, or of selected ones, have none.
        node: "(object != null ? object : oldObject).spec.?nodeName.orValue('')",
    };
    policy.objects()
}
