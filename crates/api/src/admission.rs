//! Admission policies that deny.
//!
//! In: the writes to check, the rules in CEL. Out: a ValidatingAdmissionPolicy and its binding, with one name. Never: a
//! policy that lets a write pass because a rule cannot be computed.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// All operations that change an object.
pub const CHANGES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy<'a> {
    /// Name of the policy and of its binding.
    pub name: &'a str,
    /// The writes to check.
    pub writes: Vec<NamedRuleWithOperations>,
    /// The requests to check among them.
    pub condition: MatchCondition,
    /// Expressions that the rules share.
    pub variables: Vec<Variable>,
    /// The rules.
    pub validations: Vec<Validation>,
}

impl Policy<'_> {
    /// The policy and its binding.
    #[must_use]
    pub fn objects(self) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
        let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
        let spec = ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(self.writes),
                ..MatchResources::default()
            }),
            match_conditions: Some(vec![self.condition]),
            variables: Some(self.variables).filter(|variables| !variables.is_empty()),
            validations: Some(self.validations),
            ..ValidatingAdmissionPolicySpec::default()
        };
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: metadata.clone(),
            spec: ValidatingAdmissionPolicyBindingSpec {
                policy_name: self.name.to_owned(),
                validation_actions: vec!["Deny".to_owned()],
                ..ValidatingAdmissionPolicyBindingSpec::default()
            },
        };
        (ValidatingAdmissionPolicy { metadata, spec: Some(spec), status: None }, binding)
    }
}

/// Operations on resources of a group, in all its versions. Patches and server-side applies count as `UPDATE` or
/// `CREATE`.
#[must_use]
pub fn writes(group: &str, resources: &[&str], operations: &[&str]) -> NamedRuleWithOperations {
    let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    NamedRuleWithOperations {
        api_groups: texts(&[group]),
        api_versions: texts(&["*"]),
        resources: texts(resources),
        operations: texts(operations),
        ..NamedRuleWithOperations::default()
    }
}

/// The condition that a service account makes the request.
#[must_use]
pub fn is_account(condition: &str, namespace: &str, account: &str) -> MatchCondition {
    MatchCondition {
        name: condition.to_owned(),
        // Names of namespaces and accounts contain no quotes.
        expression: format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'"),
    }
}

/// An expression with a name.
#[must_use]
pub fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}

/// A rule; `message` says what it demands.
#[must_use]
pub fn validation(expression: &str, message: String) -> Validation {
    Validation {
        expression: expression.to_owned(),
        message: Some(message),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    }
}
