//! Service accounts, roles and bindings.
//!
//! In: names and rules; the rules of our own programs stand beside their code. Out: objects. Never: a rule.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::meta::{cluster, within};
use crate::options::Options;

/// The namespace and name of a service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceAccountRef<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl<'a> ServiceAccountRef<'a> {
    /// The topology updater's account; namespace and name are these unless options state others.
    pub(super) fn of_updater(options: &'a Options, namespace: &'a str, name: &'a str) -> Self {
        Self {
            namespace: options.updater.namespace.as_deref().unwrap_or(namespace),
            name: options.updater.name.as_deref().unwrap_or(name),
        }
    }

    /// The ServiceAccount object.
    #[must_use]
    pub fn object(&self) -> ServiceAccount {
        ServiceAccount { metadata: within(self.namespace, self.name), ..ServiceAccount::default() }
    }

    /// The user name in API requests.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Binds a ClusterRole to the account; the binding has the name of the role.
    #[must_use]
    pub fn with_cluster_role(&self, role: &str) -> ClusterRoleBinding {
        ClusterRoleBinding {
            metadata: cluster(role),
            role_ref: reference("ClusterRole", role),
            subjects: Some(vec![self.subject()]),
        }
    }

    /// Binds a Role in `namespace` to the account.
    #[must_use]
    pub fn with_role(&self, namespace: &str, binding: &str, role: &str) -> RoleBinding {
        RoleBinding {
            metadata: within(namespace, binding),
            role_ref: reference("Role", role),
            subjects: Some(vec![self.subject()]),
        }
    }

    /// The account as the subject of a binding.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let (kind, name) = ("ServiceAccount".to_owned(), self.name.to_owned());
        Subject { kind, name, namespace: Some(self.namespace.to_owned()), api_group: None }
    }
}

/// A ClusterRole.
#[must_use]
pub fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole { metadata: cluster(name), rules: Some(rules), aggregation_rule: None }
}

/// A Role.
#[must_use]
pub fn role(namespace: &str, name: &str, rules: Vec<PolicyRule>) -> Role {
    Role { metadata: within(namespace, name), rules: Some(rules) }
}

/// The reference of a binding to a role of this kind.
#[must_use]
pub fn reference(kind: &str, name: &str) -> RoleRef {
    let api_group = Some("rbac.authorization.k8s.io".to_owned());
    RoleRef { api_group, kind: kind.to_owned(), name: name.to_owned() }
}
