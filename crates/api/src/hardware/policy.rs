//! Admission policies for DeviceConfigs: rules about the namespace, which rules of a CRD cannot see.
//!
//! In: nothing, or a label. Out: ValidatingAdmissionPolicies with their bindings. Never: a rule about two objects; the
//! operator alone decides conflicts.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{GROUP, MAX_NAMESPACE, PLURAL, VERSION, rules};

/// Name of the objects of [`name_policy`].
pub const NAME_POLICY: &str = "tholepin-deviceconfig-names";
/// Name of the objects of [`node_policy`].
pub const NODE_POLICY: &str = "tholepin-deviceconfig-nodes";

/// Denies DeviceConfigs in namespaces where KMM would refuse the Module because of the length of its name.
#[must_use]
pub fn name_policy() -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let rule = format!("size(request.namespace) <= {MAX_NAMESPACE}");
    (policy(NAME_POLICY, &["CREATE"], &rule, rules::NAMESPACE), binding(NAME_POLICY))
}

/// An example for administrators: a DeviceConfig may select only nodes whose `label` is the name of its namespace, and
/// never all nodes.
#[must_use]
pub fn node_policy(label: &str) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let rule = format!(
        "has(object.spec.nodeSelector) && '{label}' in object.spec.nodeSelector && object.spec.nodeSelector['{label}'] == request.namespace"
    );
    let message = format!("spec.nodeSelector must have the label {label} with the name of this namespace");
    (policy(NODE_POLICY, &["CREATE", "UPDATE"], &rule, &message), binding(NODE_POLICY))
}

fn policy(name: &str, operations: &[&str], rule: &str, message: &str) -> ValidatingAdmissionPolicy {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let resources = NamedRuleWithOperations {
        api_groups: words(&[GROUP]),
        api_versions: words(&[VERSION]),
        operations: words(operations),
        resources: words(&[PLURAL]),
        ..NamedRuleWithOperations::default()
    };
    ValidatingAdmissionPolicy {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(vec![resources]),
                ..MatchResources::default()
            }),
            // Otherwise an object older than the policy could not lose its finalizer.
            match_conditions: Some(vec![MatchCondition {
                name: "spec-is-new".to_owned(),
                expression: "oldObject == null || object.spec != oldObject.spec".to_owned(),
            }]),
            validations: Some(vec![Validation {
                expression: rule.to_owned(),
                message: Some(message.to_owned()),
                reason: Some("Invalid".to_owned()),
                ..Validation::default()
            }]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    }
}

pub(super) fn binding(name: &str) -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: name.to_owned(),
            validation_actions: vec!["Deny".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    }
}
