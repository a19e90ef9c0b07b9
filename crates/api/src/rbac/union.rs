//! The union of rules of roles, and their comparison.
//!
//! In: rules. Out: sorted rules with the same permissions, each once. Never: a rule that allows more.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;

/// A permission: group, resource and verb.
type Permission = (String, String, String);
type Words = BTreeSet<String>;

/// A set of permissions.
#[derive(Default)]
struct Permissions {
    /// Permissions for objects of any name.
    any: BTreeSet<Permission>,
    /// Permissions for objects of some names.
    named: BTreeMap<Permission, Words>,
}

/// Rules with the permissions of all `rules`. Rules for paths instead of resources are kept unchanged.
#[must_use]
pub fn union(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule.non_resource_urls.is_some());
    let mut out = Permissions::of(&resources).rules();
    for rule in paths {
        if !out.contains(&rule) {
            out.push(rule);
        }
    }
    out
}

/// Whether `holder` has every permission of `rules`: the API server's own condition for granting them. Wildcards are
/// not supported, and no rule of this program has one.
#[must_use]
pub fn covers(holder: &[PolicyRule], rules: &[PolicyRule]) -> bool {
    missing(holder, rules).is_empty()
}

/// The permissions of `rules` that `holder` lacks, as `group/resource[name]: verb`.
#[must_use]
pub fn missing(holder: &[PolicyRule], rules: &[PolicyRule]) -> Vec<String> {
    let (holder, wanted) = (Permissions::of(holder), Permissions::of(rules));
    let show =
        |(group, resource, verb): &Permission, name: &str| format!("{group}/{resource}[{name}]: {verb}");
    let any = wanted.any.difference(&holder.any).map(|permission| show(permission, ""));
    let named =
        wanted.named.iter().flat_map(|(permission, names)| names.iter().map(move |name| (permission, name)));
    let held = |permission: &Permission, name: &String| {
        holder.any.contains(permission)
            || holder.named.get(permission).is_some_and(|names| names.contains(name))
    };
    any.chain(
        named
            .filter(|(permission, name)| !held(permission, name))
            .map(|(permission, name)| show(permission, name)),
    )
    .collect()
}

impl Permissions {
    fn of(rules: &[PolicyRule]) -> Self {
        let mut allowed = Self::default();
        for rule in rules {
            let names: &[String] = rule.resource_names.as_deref().unwrap_or_default();
            for permission in permissions(rule) {
                if names.is_empty() {
                    allowed.any.insert(permission);
                } else {
                    allowed.named.entry(permission).or_default().extend(names.iter().cloned());
                }
            }
        }
        allowed.named.retain(|permission, _| !allowed.any.contains(permission));
        allowed
    }

    /// Groups verbs by group, resource and name; then merges resources and names with equal verbs into one rule.
    fn rules(&self) -> Vec<PolicyRule> {
        let mut verbs: BTreeMap<(String, String, Option<String>), Words> = BTreeMap::new();
        let mut add = |(group, resource, verb): &Permission, name: Option<&String>| {
            let key = (group.clone(), resource.clone(), name.cloned());
            verbs.entry(key).or_default().insert(verb.clone());
        };
        self.any.iter().for_each(|permission| add(permission, None));
        for (permission, names) in &self.named {
            names.iter().for_each(|name| add(permission, Some(name)));
        }
        let mut names: BTreeMap<(String, String, bool, Words), Words> = BTreeMap::new();
        for ((group, resource, name), verbs) in verbs {
            let same = names.entry((group, resource, name.is_some(), verbs)).or_default();
            same.extend(name);
        }
        let mut resources: BTreeMap<(String, Words, Words), Words> = BTreeMap::new();
        for ((group, resource, _, verbs), names) in names {
            resources.entry((group, names, verbs)).or_default().insert(resource);
        }
        resources
            .into_iter()
            .map(|((group, names, verbs), resources)| rule(group, resources, names, verbs))
            .collect()
    }
}

fn permissions(rule: &PolicyRule) -> impl Iterator<Item = Permission> {
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let (groups, resources) = (words(&rule.api_groups), words(&rule.resources));
    let mut permissions = Vec::new();
    for group in &groups {
        for resource in &resources {
            permissions.extend(rule.verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
        }
    }
    permissions.into_iter()
}

fn rule(group: String, resources: Words, names: Words, verbs: Words) -> PolicyRule {
    let list = |words: Words| words.into_iter().collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group]),
        resources: Some(list(resources)),
        resource_names: (!names.is_empty()).then(|| list(names)),
        verbs: in_order(verbs),
        non_resource_urls: None,
    }
}

/// Reading before writing, as people write it.
fn in_order(verbs: Words) -> Vec<String> {
    const ORDER: [&str; 8] =
        ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let mut verbs: Vec<String> = verbs.into_iter().collect();
    verbs.sort_by_key(|verb| ORDER.iter().position(|known| known == verb).unwrap_or(ORDER.len()));
    verbs
}

#[cfg(test)]
mod tests {
    use crate::rbac::{rule, rule_for, show};

    use super::*;

    #[test]
    fn what_is_said_twice_is_allowed_once() {
        for (rules, wanted) in [
            (vec![], ""),
            (vec![rule("", &["pods"], &["list", "get"]), rule("", &["pods"], &["get"])], "pods: get list"),
            (vec![rule("", &["pods"], &["get"]), rule("", &["nodes"], &["get"])], "nodes pods: get"),
            // A name adds nothing to all names.
            (vec![rule("", &["pods"], &["get"]), rule_for("", &["pods"], "a", &["get"])], "pods: get"),
            (
                vec![rule("", &["pods"], &["list"]), rule_for("", &["pods"], "a", &["get"])],
                "pods: list; pods[a]: get",
            ),
            // Names are joined only where the same may be done to all of them.
            (
                vec![
                    rule_for("", &["pods"], "b", &["get"]),
                    rule_for("", &["pods"], "a", &["get"]),
                    rule_for("", &["pods"], "c", &["get", "patch"]),
                ],
                "pods[a b]: get; pods[c]: get patch",
            ),
            (
                vec![rule_for("", &["pods"], "a", &["get"]), rule_for("", &["nodes"], "b", &["get"])],
                "pods[a]: get; nodes[b]: get",
            ),
        ] {
            let union = union(rules.clone());
            assert_eq!(show(&union), wanted);
            assert!(covers(&union, &rules) && covers(&rules, &union), "{wanted}");
        }
    }

    #[test]
    fn groups_are_told_apart() {
        let rules = union(vec![rule("a", &["x"], &["get"]), rule("b", &["x"], &["get"])]);
        assert_eq!(rules.len(), 2);
        assert!(!covers(&rules[..1], &rules));
    }

    #[test]
    fn what_is_missing_is_named() {
        let holder = [rule_for("g", &["x"], "a", &["get"])];
        let wanted = [rule("g", &["x"], &["get"]), rule_for("g", &["x"], "b", &["get"])];
        assert_eq!(missing(&holder, &wanted[..1]), ["g/x[]: get"]);
        assert_eq!(missing(&holder, &wanted[1..]), ["g/x[b]: get"]);
        assert!(covers(&wanted[..1], &holder));
    }
}
