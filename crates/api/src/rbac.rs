//! Builders for the rules of roles.
//!
//! In: API group, resources, verbs. Out: [`PolicyRule`]s. Never: a default.

use k8s_openapi::api::rbac::v1::PolicyRule;

mod union;

pub use union::{covers, missing, union};

/// Rules of the roles of one program; an empty list needs no role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Rules of the ClusterRole.
    pub cluster: Vec<PolicyRule>,
    /// Rules of the Role in the program's own namespace.
    pub namespaced: Vec<PolicyRule>,
    /// Rules of the Role in the namespace `openshift-config-managed` (HyperShift).
    pub config_managed: Vec<PolicyRule>,
}

/// A rule that allows `verbs` on `resources` of one API group; the core group is the empty text.
#[must_use]
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(words(&[group])),
        resources: Some(words(resources)),
        verbs: words(verbs),
        ..PolicyRule::default()
    }
}

/// Like [`rule()`], for objects of one name only. Not for `create`: the API server does not know the name of a new
/// object.
#[must_use]
pub fn rule_for(group: &str, resources: &[&str], name: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule(group, resources, verbs) }
}

/// Rules as `resources[names]: verbs; ...`, for people and for comparison in tests.
#[must_use]
pub fn show(rules: &[PolicyRule]) -> String {
    let one = |rule: &PolicyRule| {
        let names = rule.resource_names.as_ref().map(|names| format!("[{}]", names.join(" ")));
        let resources = rule.resources.as_ref().map(|resources| resources.join(" "));
        format!("{}{}: {}", resources.unwrap_or_default(), names.unwrap_or_default(), rule.verbs.join(" "))
    };
    rules.iter().map(one).collect::<Vec<_>>().join("; ")
}
