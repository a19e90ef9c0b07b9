//! The permissions of the exporter's service account, by feature. Next to the code that needs them.
//!
//! In: the enabled features ([`Needs`]). Out: the rules of a ClusterRole and of a Role in the exporter's own namespace.
//! Never: an unused permission.
//!
//! RBAC cannot tie a shared role to the object of one's own node: [`crate::policy`] does. With fewer permissions the
//! exporter continues as far as possible ([`crate::publish`] describes how), so the roles of other exporters work too.

use api::nrt;
use api::rbac::{rule, rule_for};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::settings::{KubeletConfigSource, Mode, OwnerKind, Settings};

/// The features on which permissions depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The verb of writes; `None`: the object is not written.
    pub mode: Option<Mode>,
    /// The owner of the object.
    pub owner: OwnerKind,
    /// Whether conditions are kept on the exporter's own pod.
    pub conditions: bool,
    /// Whether the kubelet's settings are read from its `/configz`.
    pub configz: bool,
}

/// Rules for the two roles; an empty list needs no role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Rules of the ClusterRole.
    pub cluster: Vec<PolicyRule>,
    /// Rules of the Role in the namespace the exporter runs in.
    pub namespaced: Vec<PolicyRule>,
}

impl From<&Settings> for Needs {
    fn from(settings: &Settings) -> Self {
        Self {
            mode: settings.publishing.map(|publishing| publishing.mode),
            owner: settings.publishing.map_or(OwnerKind::Leave, |publishing| publishing.owner),
            conditions: settings.readiness.is_some(),
            configz: matches!(settings.sources.kubelet_config, KubeletConfigSource::Configz { .. }),
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

/// Access to the own object: `list` and `watch` by name, `get` after a conflict, `create`, and the verb of the mode.
#[must_use]
pub fn object(mode: Mode) -> PolicyRule {
    let verb = match mode {
        Mode::Patch | Mode::Apply => "patch",
        Mode::Update => "update",
    };
    rule(nrt::GROUP, &[nrt::PLURAL], &["get", "list", "watch", "create", verb])
}

/// Access to the UID of the Node, for the owner reference.
#[must_use]
pub fn owner_node() -> PolicyRule {
    rule("", &["nodes"], &["get"])
}

/// Access to the UID of the own namespace, for the owner reference.
#[must_use]
pub fn owner_namespace(namespace: &str) -> PolicyRule {
    rule_for("", &["namespaces"], namespace, &["get"])
}

/// Access to the conditions of the own pod. Pods of a DaemonSet have no fixed name to restrict the rule to.
#[must_use]
pub fn conditions() -> [PolicyRule; 2] {
    [rule("", &["pods"], &["get"]), rule("", &["pods/status"], &["patch"])]
}

/// Access to the kubelet's settings (Kubernetes 1.33 and later; before, that was `nodes/proxy`).
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
