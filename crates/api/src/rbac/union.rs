//! Rules from several places as one list.
//!
//! In: rules. Out: rules that allow the same, each thing once, in order. Never: a rule that allows more.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;

/// One thing that may be done: a verb to a resource of a group.
type Act = (String, String, String);
type Words = BTreeSet<String>;

/// What is allowed, act by act.
#[derive(Default)]
struct Allowed {
    /// Whatever its name.
    any: BTreeSet<Act>,
    /// By name.
    named: BTreeMap<Act, Words>,
}

/// Rules that allow what all of these allow together. Rules about paths instead of resources are kept as they are.
#[must_use]
pub fn union(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule.non_resource_urls.is_some());
    let mut out = Allowed::of(&resources).rules();
    for rule in paths {
        if !out.contains(&rule) {
            out.push(rule);
        }
    }
    out
}

/// Whether `holder` allows all that `rules` allow: the API server's own condition for granting them. Wildcards are not understood, and
/// nothing of ours has any.
#[must_use]
pub fn covers(holder: &[PolicyRule], rules: &[PolicyRule]) -> bool {
    missing(holder, rules).is_empty()
}

/// What `rules` allow beyond `holder`, as `group/resource[name]: verb`.
#[must_use]
pub fn missing(holder: &[PolicyRule], rules: &[PolicyRule]) -> Vec<String> {
    let (holder, wanted) = (Allowed::of(holder), Allowed::of(rules));
    let show = |(group, resource, verb): &Act, name: &str| format!("{group}/{resource}[{name}]: {verb}");
    let any = wanted.any.difference(&holder.any).map(|act| show(act, ""));
    let named = wanted.named.iter().flat_map(|(act, names)| names.iter().map(move |name| (act, name)));
    let held = |act: &Act, name: &String| {
        holder.any.contains(act) || holder.named.get(act).is_some_and(|names| names.contains(name))
    };
    any.chain(named.filter(|(act, name)| !held(act, name)).map(|(act, name)| show(act, name))).collect()
}

impl Allowed {
    fn of(rules: &[PolicyRule]) -> Self {
        let mut allowed = Self::default();
        for rule in rules {
            let names: &[String] = rule.resource_names.as_deref().unwrap_or_default();
            for act in acts(rule) {
                if names.is_empty() {
                    allowed.any.insert(act);
                } else {
                    allowed.named.entry(act).or_default().extend(names.iter().cloned());
                }
            }
        }
        allowed.named.retain(|act, _| !allowed.any.contains(act));
        allowed
    }

    /// First by group, resource and names to verbs; then resources and names of a group that allow the same become one rule.
    fn rules(&self) -> Vec<PolicyRule> {
        let mut verbs: BTreeMap<(String, String, Option<String>), Words> = BTreeMap::new();
        let mut add = |(group, resource, verb): &Act, name: Option<&String>| {
            let key = (group.clone(), resource.clone(), name.cloned());
            verbs.entry(key).or_default().insert(verb.clone());
        };
        self.any.iter().for_each(|act| add(act, None));
        for (act, names) in &self.named {
            names.iter().for_each(|name| add(act, Some(name)));
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

fn acts(rule: &PolicyRule) -> impl Iterator<Item = Act> {
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let (groups, resources) = (words(&rule.api_groups), words(&rule.resources));
    let mut acts = Vec::new();
    for group in &groups {
        for resource in &resources {
            acts.extend(rule.verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
        }
    }
    acts.into_iter()
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
