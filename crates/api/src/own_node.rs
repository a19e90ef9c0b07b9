//! Admission policies that tie each pod of a service account to the objects of its own node.
//!
//! In: whose it is about, what they write. Out: a ValidatingAdmissionPolicy and its binding. Never: a word about anybody
//! else: administrators, the operator and the garbage collector pass untouched.
//!
//! All pods of a DaemonSet share one service account, and RBAC cannot say "the object of your node". What tells them apart is
//! their token: the kubelet asks for one bound to the pod, and the API server (1.32 and later) then adds the pod's node to
//! who the bearer is, as `authentication.kubernetes.io/node-name`. A kubelet can have tokens only for pods bound to its
//! node (node authorizer), so whoever takes over a node can write that node's objects and no others.
//!
//! A bearer of the account without a node is refused: a token that is bound to no pod, somebody who impersonates it.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};

/// What the API server adds about the bearer of a token that is bound to a pod.
const NODE_OF_BEARER: &str = "authentication.kubernetes.io/node-name";

/// Who may write what.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnNode<'a> {
    /// How the names of policy and binding begin; namespace and account follow, for these are names in the whole cluster.
    pub name: &'a str,
    /// The namespace of the account.
    pub namespace: &'a str,
    /// The service account.
    pub account: &'a str,
    /// What its pods are, with an article: `an exporter`.
    pub who: &'a str,
    /// What they write, with an article if it is one: `the NodeResourceTopology`.
    pub what: &'a str,
    /// The writes that are looked at.
    pub writes: Vec<NamedRuleWithOperations>,
    /// Of which node an object is: an expression (CEL) over `request`, `object` and `oldObject`.
    pub node: &'a str,
}

/// These operations on one resource of a group, in all its versions. Patches and server-side applies are updates or creations here.
#[must_use]
pub fn writes(group: &str, resource: &str, operations: &[&str]) -> NamedRuleWithOperations {
    let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    NamedRuleWithOperations {
        api_groups: texts(&[group]),
        api_versions: texts(&["*"]),
        resources: texts(&[resource]),
        operations: texts(operations),
        ..Default::default()
    }
}

impl OwnNode<'_> {
    /// The policy and its binding.
    ///
    /// Needs Kubernetes 1.32 or later: before, tokens do not tell their node and every write would be refused.
    #[must_use]
    pub fn objects(self) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
        let name = format!("{}.{}.{}", self.name, self.namespace, self.account);
        let mut policy = ValidatingAdmissionPolicy { spec: Some(self.spec()), ..Default::default() };
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

    fn spec(self) -> ValidatingAdmissionPolicySpec {
        let variable = |name: &str, expression: &str| Variable {
            name: name.to_owned(),
            expression: expression.to_owned(),
        };
        let message = format!("{} may write {} of its own node only", self.who, self.what);
        let user = format!("system:serviceaccount:{}:{}", self.namespace, self.account);
        ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(self.writes),
                ..Default::default()
            }),
            match_conditions: Some(vec![MatchCondition {
                name: format!("is-{}", self.who.replace(' ', "-")),
                // Names of namespaces and accounts have no character that would end the quotes.
                expression: format!("request.userInfo.username == '{user}'"),
            }]),
            variables: Some(vec![variable("node", &node_of_bearer()), variable("wanted", self.node)]),
            validations: Some(vec![Validation {
                expression: "variables.node != '' && variables.node == variables.wanted".to_owned(),
                message_expression: Some(format!(
                    "'{message}: this one is on ' + \
                     (variables.node == '' ? 'no node (its token is not bound to a pod)' : variables.node) + \
                     ', the object is of ' + variables.wanted"
                )),
                message: Some(message),
                reason: Some("Forbidden".to_owned()),
            }]),
            ..Default::default()
        }
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
