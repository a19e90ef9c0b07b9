//! What the exporter's service account must be allowed to do, by feature. Next to the code that needs it.
//!
//! In: which features are on ([`Needs`]). Out: the rules of a ClusterRole and of a Role in the exporter's own namespace.
//! Never: more than is used.
//!
//! RBAC cannot tie a shared role to the object of one's own node: [`crate::policy`] does. With less than this the exporter
//! goes on as well as it can ([`crate::publish`] says how), so the roles made for other exporters do too.

use api::nrt;
use api::rbac::{rule, rule_for};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::settings::{KubeletConfigAt, Mode, OwnerKind, Settings};

/// What is to be done, as far as permissions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The verb of writes; `None`: the object is not written at all.
    pub mode: Option<Mode>,
    /// Who owns the object.
    pub owner: OwnerKind,
    /// Conditions are kept on the exporter's own pod.
    pub conditions: bool,
    /// The kubelet's settings are read from its `/configz`.
    pub configz: bool,
}

/// Rules for the two roles; an empty list needs no role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Of the ClusterRole.
    pub cluster: Vec<PolicyRule>,
    /// Of the Role in the namespace the exporter runs in.
    pub namespaced: Vec<PolicyRule>,
}

impl From<&Settings> for Needs {
    fn from(settings: &Settings) -> Self {
        Self {
            mode: settings.publishing.map(|publishing| publishing.mode),
            owner: settings.publishing.map_or(OwnerKind::Leave, |publishing| publishing.owner),
            conditions: settings.readiness.is_some(),
            configz: matches!(settings.sources.kubelet_config, KubeletConfigAt::Configz { .. }),
        }
    }
}

/// The rules for an exporter in `namespace`.
#[must_use]
pub fn rules(needs: Needs, namespace: &str) -> Rules {
    let mut rules = Rules::default();
    rules.cluster.extend(needs.mode.map(object));
    match needs.owner {
        OwnerKind::Leave => {}
        OwnerKind::Node => rules.cluster.push(owner_node()),
        OwnerKind::Namespace => rules.cluster.push(owner_namespace(namespace)),
    }
    if needs.configz {
        rules.cluster.push(configz());
    }
    if needs.conditions {
        rules.namespaced.extend(conditions());
    }
    rules
}

/// Its own object: `list` and `watch` by name, `get` after a conflict, `create`, and the verb of the mode.
#[must_use]
pub fn object(mode: Mode) -> PolicyRule {
    let verb = match mode {
        Mode::Patch | Mode::Apply => "patch",
        Mode::Update => "update",
    };
    rule(nrt::GROUP, &[nrt::PLURAL], &["get", "list", "watch", "create", verb])
}

/// The UID of its Node, for the owner reference.
#[must_use]
pub fn owner_node() -> PolicyRule {
    rule("", &["nodes"], &["get"])
}

/// The UID of its own namespace, for the owner reference.
#[must_use]
pub fn owner_namespace(namespace: &str) -> PolicyRule {
    rule_for("", &["namespaces"], namespace, &["get"])
}

/// Conditions on its own pod. Pods of a DaemonSet have no name that could be written here.
#[must_use]
pub fn conditions() -> [PolicyRule; 2] {
    [rule("", &["pods"], &["get"]), rule("", &["pods/status"], &["patch"])]
}

/// The kubelet's settings, from the kubelet itself (Kubernetes 1.33 and later; before, that was `nodes/proxy`).
#[must_use]
pub fn configz() -> PolicyRule {
    rule("", &["nodes/configz"], &["get"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `resources: verbs; ...` of the two roles.
    fn show(needs: Needs) -> (String, String) {
        let rules = rules(needs, "numa");
        (api::rbac::show(&rules.cluster), api::rbac::show(&rules.namespaced))
    }

    #[test]
    fn each_feature_adds_what_it_uses() {
        let least = Needs { mode: None, owner: OwnerKind::Leave, conditions: false, configz: false };
        let object = "noderesourcetopologies: get list watch create";
        for (needs, cluster, namespaced) in [
            (least, String::new(), ""),
            (Needs { mode: Some(Mode::Patch), ..least }, format!("{object} patch"), ""),
            (Needs { mode: Some(Mode::Apply), ..least }, format!("{object} patch"), ""),
            (Needs { mode: Some(Mode::Update), ..least }, format!("{object} update"), ""),
            (Needs { owner: OwnerKind::Node, ..least }, "nodes: get".to_owned(), ""),
            (Needs { owner: OwnerKind::Namespace, ..least }, "namespaces[numa]: get".to_owned(), ""),
            (Needs { configz: true, ..least }, "nodes/configz: get".to_owned(), ""),
            (Needs { conditions: true, ..least }, String::new(), "pods: get; pods/status: patch"),
        ] {
            assert_eq!(show(needs), (cluster, namespaced.to_owned()), "{needs:?}");
        }
    }
}
