//! Admission policies for DeviceConfigs: rules about the namespace, which rules of a CRD cannot see.
//!
//! In: nothing, or a label. Out: ValidatingAdmissionPolicies with their bindings. Never: a rule about two objects; the
//! operator alone decides conflicts.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    Validation,
};

use super::{GROUP, MAX_NAMESPACE, PLURAL, VERSION, rules};
use crate::admission::{Policy, validation, writes};

/// Name of the objects of [`name_policy`].
pub const NAME_POLICY: &str = "tholepin-deviceconfig-names";
/// Name of the objects of [`node_policy`].
pub const NODE_POLICY: &str = "tholepin-deviceconfig-nodes";

/// Denies DeviceConfigs in namespaces where KMM would refuse the Module because of the length of its name.
#[must_use]
pub fn name_policy() -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let rule = format!("size(request.namespace) <= {MAX_NAMESPACE}");
    policy(NAME_POLICY, &["CREATE"], &rule, rules::NAMESPACE.to_owned())
}

/// An example for administrators: a DeviceConfig may select only nodes whose `label` is the name of its namespace, and
/// never all nodes.
#[must_use]
pub fn node_policy(label: &str) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let rule = format!(
        "has(object.spec.nodeSelector) && '{label}' in object.spec.nodeSelector && object.spec.nodeSelector['{label}'] == request.namespace"
    );
    let message = format!("spec.nodeSelector must have the label {label} with the name of this namespace");
    policy(NODE_POLICY, &["CREATE", "UPDATE"], &rule, message)
}

fn policy(
    name: &str,
    operations: &[&str],
    rule: &str,
    message: String,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let all = writes(GROUP, &[PLURAL], operations);
    let policy = Policy {
        name,
        writes: vec![NamedRuleWithOperations { api_versions: Some(vec![VERSION.to_owned()]), ..all }],
        // Otherwise an object older than the policy could not lose its finalizer.
        condition: MatchCondition {
            name: "spec-is-new".to_owned(),
            expression: "oldObject == null || object.spec != oldObject.spec".to_owned(),
        },
        variables: Vec::new(),
        validations: vec![Validation { reason: Some("Invalid".to_owned()), ..validation(rule, message) }],
    };
    policy.objects()
}
