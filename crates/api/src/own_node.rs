//! Admission policies that limit each pod of a service account to the objects of its own node.
//!
//! In: a service account, and the writes to limit. Out: a ValidatingAdmissionPolicy and its binding. Never: an effect
//! on other users: administrators, the operator and the garbage collector are not affected.
//!
//! All pods of a DaemonSet share one service account, and RBAC cannot express "the object of your node". Their tokens
//! differ: the kubelet requests a token bound to the pod, and the API server (1.32 and later) adds the pod's node to
//! the user information, as `authentication.kubernetes.io/node-name`. A kubelet gets tokens only for pods on its node
//! (node authorizer), so an attacker on a node can write that node's objects and no others.
//!
//! A user of the account without a node is denied: a token bound to no pod, or an impersonation.

use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation,
};

use crate::admission::{Policy, is_account, validation, variable};

/// The key that the API server adds to the user information for a token bound to a pod.
const NODE_OF_BEARER: &str = "authentication.kubernetes.io/node-name";

/// The subject and the writes of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnNode<'a> {
    /// Prefix of the names of policy and binding. Namespace and account follow, as both kinds are cluster-scoped.
    pub name: &'a str,
    /// Namespace of the service account.
    pub namespace: &'a str,
    /// Name of the service account.
    pub account: &'a str,
    /// The pods in messages, with an article: `an exporter`.
    pub who: &'a str,
    /// The objects in messages, with an article for a single one: `the NodeResourceTopology`.
    pub what: &'a str,
    /// The writes to check.
    pub writes: Vec<NamedRuleWithOperations>,
    /// The node of an object, as a CEL expression over `request`, `object` and `oldObject`.
    pub node: &'a str,
}

impl OwnNode<'_> {
    /// The policy and its binding.
    ///
    /// Requires Kubernetes 1.32 or later: older tokens do not carry the node, and every write would be denied.
    #[must_use]
    pub fn objects(self) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
        let name = format!("{}.{}.{}", self.name, self.namespace, self.account);
        let message = format!("{} may write {} of its own node only", self.who, self.what);
        let own = Validation {
            message_expression: Some(format!(
                "'{message}: this one is on ' + \
                 (variables.node == '' ? 'no node (its token is not bound to a pod)' : variables.node) + \
                 ', the object is of ' + variables.wanted"
            )),
            ..validation("variables.node != '' && variables.node == variables.wanted", message)
        };
        let condition = format!("is-{}", self.who.replace(' ', "-"));
        let policy = Policy {
            name: &name,
            writes: self.writes,
            condition: is_account(&condition, self.namespace, self.account),
            variables: vec![variable("node", &node_of_bearer()), variable("wanted", self.node)],
            validations: vec![own],
        };
        policy.objects()
    }
}

/// A CEL expression for the user's node; empty if the user information does not have exactly one.
fn node_of_bearer() -> String {
    format!(
        "has(request.userInfo.extra) && '{NODE_OF_BEARER}' in request.userInfo.extra && \
         request.userInfo.extra['{NODE_OF_BEARER}'].size() == 1 ? \
         request.userInfo.extra['{NODE_OF_BEARER}'][0] : ''"
    )
}
