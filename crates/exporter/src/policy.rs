//! The admission policy that ties each exporter to the object of its own node, and to the status of pods there.
//!
//! In: whose it is about, a service account. Out: a ValidatingAdmissionPolicy and its binding. Never: a word about anybody
//! else: administrators, the operator and the garbage collector pass untouched.
//!
//! All exporters share one service account, and RBAC cannot say "the object named as your node". What tells them apart is
//! their token: the kubelet asks for one bound to the pod, and the API server (1.32 and later) then adds the pod's node to
//! who the bearer is, as `authentication.kubernetes.io/node-name`. A kubelet can have tokens only for pods bound to its
//! node (node authorizer), so whoever takes over a node can write that node's object and no other.
//!
//! A bearer of the account without a node is refused: a token that is bound to no pod, somebody who impersonates it.

use api::nrt;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};

/// What the API server adds about the bearer of a token that is bound to a pod.
const NODE_OF_BEARER: &str = "authentication.kubernetes.io/node-name";

/// The policy and its binding for the exporters that run as `account` in `namespace`; both are named after the two.
///
/// Needs Kubernetes 1.32 or later: before, tokens do not tell their node and every write would be refused.
#[must_use]
pub fn admission_policy(
    namespace: &str,
    account: &str,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    // Cluster-wide names; two exporters in two namespaces each have their own.
    let name = format!("tholepin-exporter-own-node.{namespace}.{account}");
    let mut policy = ValidatingAdmissionPolicy { spec: Some(spec(namespace, account)), ..Default::default() };
    policy.metadata.name = Some(name.clone());
    let mut binding = ValidatingAdmissionPolicyBinding {
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: name.clone(),
            validation_actions: vec!["Deny".to_owned()],
            ..Default::default()
        },
        ..Default::default()
    };
    binding.metadata.name = Some(name);
    (policy, binding)
}

fn spec(namespace: &str, account: &str) -> ValidatingAdmissionPolicySpec {
    let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    let rule = |group: &str, resource: &str, operations: &[&str]| NamedRuleWithOperations {
        api_groups: texts(&[group]),
        api_versions: texts(&["*"]),
        resources: texts(&[resource]),
        operations: texts(operations),
        ..Default::default()
    };
    let rules = vec![
        // Patches and server-side applies are updates or creations here.
        rule(nrt::GROUP, nrt::PLURAL, &["CREATE", "UPDATE", "DELETE"]),
        // The conditions on its own pod.
        rule("", "pods/status", &["UPDATE"]),
    ];
    let variable = |name: &str, expression: String| Variable { name: name.to_owned(), expression };
    ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources { resource_rules: Some(rules), ..Default::default() }),
        match_conditions: Some(vec![MatchCondition {
            name: "is-an-exporter".to_owned(),
            // Names of namespaces and accounts have no character that would end the quotes.
            expression: format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'"),
        }]),
        variables: Some(vec![
            variable("node", node_of_bearer()),
            // `request.name` is empty when a collection is deleted; the objects themselves are always there.
            variable(
                "wanted",
                "request.resource.resource == 'pods' ? oldObject.spec.nodeName : \
                 object != null ? object.metadata.name : oldObject.metadata.name"
                    .to_owned(),
            ),
        ]),
        validations: Some(vec![Validation {
            expression: "variables.node != '' && variables.node == variables.wanted".to_owned(),
            message_expression: Some(
                "'an exporter may write the NodeResourceTopology of its own node only: this one is on ' + \
                 (variables.node == '' ? 'no node (its token is not bound to a pod)' : variables.node) + \
                 ', the object is of ' + variables.wanted"
                    .to_owned(),
            ),
            message: Some("an exporter may write the NodeResourceTopology of its own node only".to_owned()),
            reason: Some("Forbidden".to_owned()),
        }]),
        ..Default::default()
    }
}

/// The bearer's node, or nothing when that is not told, or not as exactly one.
fn node_of_bearer() -> String {
    format!(
        "has(request.userInfo.extra) && '{NODE_OF_BEARER}' in request.userInfo.extra && \
         request.userInfo.extra['{NODE_OF_BEARER}'].size() == 1 ? \
         request.userInfo.extra['{NODE_OF_BEARER}'][0] : ''"
    )
}
