//! What the exporter's service account must be allowed to do. Next to the code that needs it.
//!
//! In: nothing. Out: the rules of one ClusterRole. Never: more than is used.
//!
//! RBAC cannot tie a shared role to the object of one's own node: an admission policy has to see to it that each exporter
//! writes only that one.

use api::nrt;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The rules.
///
/// - `noderesourcetopologies`: `list` and `watch` its own object (by name), `get` it after a conflict, `create` and `patch`.
/// - `nodes`: `get` its own for the UID in the owner reference; not needed with `--add-nrt-owner=false`.
#[must_use]
pub fn rules() -> Vec<PolicyRule> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    vec![
        rule(nrt::GROUP, nrt::PLURAL, &["get", "list", "watch", "create", "patch"]),
        rule("", "nodes", &["get"]),
    ]
}
