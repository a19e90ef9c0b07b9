//! `InterPodAffinityArgs` and `PodTopologySpreadArgs`.
//!
//! In: the `args` mapping. Out: all fields, checked, with kube-scheduler's defaults. Never: a default constraint with a
//! selector, which each pod has of its own. Source: kube-scheduler 1.36 `ValidateInterPodAffinityArgs` and
//! `ValidatePodTopologySpreadArgs`.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::super::Word;
use super::super::decode::{Errors, Fields};
use super::{check_label, unsupported};

/// `InterPodAffinityArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// The weight, 0 to 100, of required affinity of pods on nodes.
    pub hard_pod_affinity_weight: i32,
    /// Whether pods without preferred terms are scored without regard to terms of pods on nodes.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

/// `PodTopologySpreadArgs`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodTopologySpreadArgs {
    /// `defaultConstraints` of `defaultingType: List`; `None`: `defaultingType: System`.
    pub default_constraints: Option<Vec<TopologySpreadConstraint>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DefaultingType {
    #[default]
    System,
    List,
}

impl Word for DefaultingType {
    const WORDS: &'static [(&'static str, Self)] = &[("System", Self::System), ("List", Self::List)];
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

pub(super) fn affinity(fields: &mut Fields, errors: &mut Errors) -> InterPodAffinityArgs {
    const WEIGHT: &str = "hardPodAffinityWeight";
    let default = InterPodAffinityArgs::default();
    let weight = fields.integer32(WEIGHT, errors).unwrap_or(default.hard_pod_affinity_weight);
    if !(0..=100).contains(&weight) {
        let problem = format!("Invalid value: {weight}: not in valid range [0, 100]");
        errors.invalid(&fields.at.field(WEIGHT), problem);
    }
    let ignore = fields.boolean("ignorePreferredTermsOfExistingPods", errors);
    InterPodAffinityArgs {
        hard_pod_affinity_weight: weight,
        ignore_preferred_terms_of_existing_pods: ignore.unwrap_or_default(),
    }
}

pub(super) fn spread(fields: &mut Fields, errors: &mut Errors) -> PodTopologySpreadArgs {
    const LIST: &str = "defaultConstraints";
    let mut all: Vec<TopologySpreadConstraint> = Vec::new();
    for mut entry in fields.objects(LIST, errors) {
        let at = entry.at.clone();
        let constraint = constraint(&mut entry, errors);
        entry.finish_naming(errors);
        let TopologySpreadConstraint { topology_key: key, when_unsatisfiable: action, .. } = &constraint;
        if all.iter().any(|other| other.topology_key == *key && other.when_unsatisfiable == *action) {
            errors.invalid(&at, format!("Duplicate value: \"{{{key}, {action}}}\""));
        }
        all.push(constraint);
    }
    let kind = fields.supported("defaultingType", DefaultingType::WORDS, errors).unwrap_or_default();
    match kind {
        DefaultingType::List => PodTopologySpreadArgs { default_constraints: Some(all) },
        DefaultingType::System => {
            if !all.is_empty() {
                let problem = "Invalid value: \"System\": when .defaultConstraints are not empty";
                errors.invalid(&fields.at.field("defaultingType"), problem);
            }
            PodTopologySpreadArgs::default()
        }
    }
}

fn constraint(entry: &mut Fields, errors: &mut Errors) -> TopologySpreadConstraint {
    const EMPTY: &str = "Required value: can not be empty";
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    let max_skew = entry.integer32("maxSkew", errors).unwrap_or(0);
    if max_skew <= 0 {
        let problem = format!("Invalid value: {max_skew}: not in valid range (0, inf)");
        errors.invalid(&entry.at.field("maxSkew"), problem);
    }
    let topology_key = entry.string("topologyKey", errors).unwrap_or_default();
    let at = entry.at.field("topologyKey");
    if topology_key.is_empty() {
        errors.invalid(&at, EMPTY);
    } else {
        check_label(&topology_key, &at, errors);
    }
    let when_unsatisfiable = entry.string("whenUnsatisfiable", errors).unwrap_or_default();
    let at = entry.at.field("whenUnsatisfiable");
    if when_unsatisfiable.is_empty() {
        errors.invalid(&at, EMPTY);
    } else if !ACTIONS.contains(&when_unsatisfiable.as_str()) {
        errors.invalid(&at, unsupported(&when_unsatisfiable, &ACTIONS));
    }
    if entry.raw("labelSelector").is_some() {
        let problem = "Forbidden: constraint must not define a selector, as they deduced for each pod";
        errors.invalid(&entry.at.field("labelSelector"), problem);
    }
    // These keys are added to a selector, and a default constraint has none.
    entry.strings("matchLabelKeys", errors);
    TopologySpreadConstraint {
        max_skew,
        topology_key,
        when_unsatisfiable,
        min_domains: entry.integer32("minDomains", errors),
        node_affinity_policy: entry.string("nodeAffinityPolicy", errors),
        node_taints_policy: entry.string("nodeTaintsPolicy", errors),
        label_selector: None,
        match_label_keys: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::InTreeArgs;
    use super::super::tests::args;
    use super::*;

    const AFFINITY: &str = "InterPodAffinity";
    const SPREAD: &str = "PodTopologySpread";

    #[test]
    fn what_is_left_out_is_the_default() {
        for (plugin, text) in [
            (AFFINITY, "{}"),
            (AFFINITY, "null"),
            (AFFINITY, "{hardPodAffinityWeight: 1, ignorePreferredTermsOfExistingPods: false}"),
            (SPREAD, "{}"),
            (SPREAD, "{defaultConstraints: [], defaultingType: System}"),
            (SPREAD, "{defaultConstraints: null, kind: PodTopologySpreadArgs}"),
        ] {
            assert_eq!(args(plugin, text), Ok(InTreeArgs::default()), "{plugin} {text}");
        }
    }

    #[test]
    fn every_field_is_read() {
        let found = args(AFFINITY, "{hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true}");
        let wanted = InterPodAffinityArgs {
            hard_pod_affinity_weight: 0,
            ignore_preferred_terms_of_existing_pods: true,
        };
        assert_eq!(found.unwrap().pod_affinity, wanted);
        let found = args(SPREAD, "{defaultingType: List}").unwrap().spread;
        assert_eq!(found, PodTopologySpreadArgs { default_constraints: Some(vec![]) });
        let constraint = "{maxSkew: 2, topologyKey: a.io/rack, whenUnsatisfiable: DoNotSchedule, minDomains: 3, \
                          nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor, matchLabelKeys: [a]}";
        let found = args(SPREAD, &format!("{{defaultingType: List, defaultConstraints: [{constraint}]}}"));
        let wanted = TopologySpreadConstraint {
            max_skew: 2,
            topology_key: "a.io/rack".to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            min_domains: Some(3),
            node_affinity_policy: Some("Ignore".to_owned()),
            node_taints_policy: Some("Honor".to_owned()),
            ..TopologySpreadConstraint::default()
        };
        assert_eq!(found.unwrap().spread, PodTopologySpreadArgs { default_constraints: Some(vec![wanted]) });
    }

    #[test]
    fn what_kube_scheduler_refuses_is_refused() {
        let list = |constraint: &str| format!("{{defaultingType: List, defaultConstraints: [{constraint}]}}");
        let rack = "{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}";
        for (plugin, text, wanted) in [
            (
                AFFINITY,
                "{hardPodAffinityWeight: 101}".to_owned(),
                "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
            ),
            (
                AFFINITY,
                "{hardPodAffinityWeight: -1}".to_owned(),
                "hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]",
            ),
            (
                AFFINITY,
                "{hardWeight: 1}".to_owned(),
                "strict decoding error: unknown field \"hardWeight\"; allowed are apiVersion, kind, \
                 hardPodAffinityWeight, ignorePreferredTermsOfExistingPods",
            ),
            (
                SPREAD,
                "{defaultingType: None}".to_owned(),
                "defaultingType: Unsupported value: \"None\": supported values: \"System\", \"List\"",
            ),
            (
                SPREAD,
                format!("{{defaultConstraints: [{rack}]}}"),
                "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
            ),
            (
                SPREAD,
                list(&format!("{rack}, {rack}")),
                "defaultConstraints[1]: Duplicate value: \"{rack, DoNotSchedule}\"",
            ),
            (
                SPREAD,
                list("{topologyKey: rack, whenUnsatisfiable: DoNotSchedule}"),
                "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
            ),
            (
                SPREAD,
                list("{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}"),
                "defaultConstraints[0].topologyKey: Required value: can not be empty",
            ),
            (
                SPREAD,
                list("{maxSkew: 1, topologyKey: a b, whenUnsatisfiable: DoNotSchedule}"),
                "defaultConstraints[0].topologyKey: Invalid value: \"a b\": name part must consist of alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            ),
            (
                SPREAD,
                list("{maxSkew: 1, topologyKey: rack}"),
                "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
            ),
            (
                SPREAD,
                list("{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: Never}"),
                "defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": supported values: \
                 \"DoNotSchedule\", \"ScheduleAnyway\"",
            ),
            (
                SPREAD,
                list("{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}"),
                "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they \
                 deduced for each pod",
            ),
            (
                SPREAD,
                list("{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, skew: 1}"),
                "strict decoding error: unknown field \"defaultConstraints[0].skew\"; allowed are maxSkew, \
                 topologyKey, whenUnsatisfiable, labelSelector, matchLabelKeys, minDomains, nodeAffinityPolicy, \
                 nodeTaintsPolicy",
            ),
        ] {
            let place = format!("decoding .profiles[0].pluginConfig[0]: decoding args for plugin {plugin}: ");
            assert_eq!(args(plugin, &text), Err(vec![format!("{place}{wanted}")]), "{text}");
        }
    }
}
