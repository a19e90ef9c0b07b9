//! What the API server checks of DeviceConfigs beyond their definition, whose rules cannot see the namespace.
//!
//! In: nothing. Out: ValidatingAdmissionPolicies with their bindings. Never: a rule about two objects: which nodes belong to whom only the
//! operator decides.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{GROUP, MAX_NAMESPACE, PLURAL, VERSION, rules};

/// The name of [`name_policy`] and of its binding.
pub const NAME_POLICY: &str = "tholepin-deviceconfig-names";
/// The name of [`node_policy`] and of its binding.
pub const NODE_POLICY: &str = "tholepin-deviceconfig-nodes";

/// Namespaces in which KMM would refuse the Module are refused at once.
#[must_use]
pub fn name_policy() -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let rule = format!("size(request.namespace) <= {MAX_NAMESPACE}");
    (policy(NAME_POLICY, &["CREATE"], &rule, rules::NAMESPACE), binding(NAME_POLICY))
}

/// An example: DeviceConfigs of a namespace select nodes that bear a label with the namespace's name only, and never all nodes. Administrators who
/// write such labels decide by them who may load which nodes' drivers.
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
            // Or an object that is older than the policy could not lose its finalizer, and would never be gone.
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

fn binding(name: &str) -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: name.to_owned(),
            validation_actions: vec!["Deny".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    }
}
