//! Arguments of kube-scheduler's own plugins: `NodeResourcesFitArgs`, `NodeResourcesBalancedAllocationArgs`,
//! `NodeAffinityArgs`, and those about other pods (`in_tree::pods`).
//!
//! In: the `args` mapping of a plugin. Out: all fields, checked, with kube-scheduler's defaults. Never: a field that is
//! passed over. Source: kube-scheduler 1.36 `validation_pluginargs.go`, whose texts errors have; component-helpers
//! `nodeaffinity` for terms.

use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};
use serde_json::Value;

use super::decode::{Errors, Fields, Position};
use super::{ResourceWeight, Word};

mod pods;

pub use pods::{InterPodAffinityArgs, PodTopologySpreadArgs};

/// Arguments of kube-scheduler's own plugins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InTreeArgs {
    /// Those of NodeResourcesFit.
    pub fit: NodeResourcesFitArgs,
    /// Those of NodeResourcesBalancedAllocation.
    pub balanced: NodeResourcesBalancedAllocationArgs,
    /// Those of NodeAffinity.
    pub affinity: NodeAffinityArgs,
    /// Those of InterPodAffinity.
    pub pod_affinity: InterPodAffinityArgs,
    /// Those of PodTopologySpread.
    pub spread: PodTopologySpreadArgs,
}

/// `NodeResourcesFitArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResourcesFitArgs {
    /// Extended resources that are not checked.
    pub ignored_resources: Vec<String>,
    /// Extended resources that are not checked, by the part of their name before the `/`.
    pub ignored_resource_groups: Vec<String>,
    /// `scoringStrategy.type`.
    pub kind: FitStrategyType,
    /// `scoringStrategy.resources`, with weights of 1 to 100.
    pub resources: Vec<ResourceWeight>,
    /// `scoringStrategy.requestedToCapacityRatio.shape`: at least one point where the type asks for it, else none.
    pub shape: Vec<ShapePoint>,
}

/// `scoringStrategy.type` of NodeResourcesFitArgs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FitStrategyType {
    /// Prefer empty nodes.
    #[default]
    LeastAllocated,
    /// Prefer full nodes.
    MostAllocated,
    /// A function of the use.
    RequestedToCapacityRatio,
}

/// A point of a function of the use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    /// The use, 0 to 100 percent, above that of the point before.
    pub utilization: i32,
    /// 0 to 10.
    pub score: i32,
}

/// `NodeResourcesBalancedAllocationArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// The names of the resources, each once. Each weighs 1.
    pub resources: Vec<String>,
}

/// `NodeAffinityArgs`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeAffinityArgs {
    /// Counts for every pod, in addition to its own.
    pub added_affinity: Option<NodeAffinity>,
}

impl Word for FitStrategyType {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("LeastAllocated", Self::LeastAllocated),
        ("MostAllocated", Self::MostAllocated),
        ("RequestedToCapacityRatio", Self::RequestedToCapacityRatio),
    ];
}

impl Default for NodeResourcesFitArgs {
    fn default() -> Self {
        Self {
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            kind: FitStrategyType::default(),
            resources: default_resources(),
            shape: Vec::new(),
        }
    }
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        Self { resources: default_resources().into_iter().map(|resource| resource.name).collect() }
    }
}

fn default_resources() -> Vec<ResourceWeight> {
    ["cpu", "memory"].map(|name| ResourceWeight { name: name.to_owned(), weight: 1 }).into()
}

impl InTreeArgs {
    /// Reads the arguments of a plugin; gives them back if they are of none that is known here. Errors carry `context`.
    pub(super) fn take(
        &mut self,
        plugin: &str,
        value: Value,
        context: String,
        errors: &mut Errors,
    ) -> Result<(), Value> {
        let open = |value| Fields::of_args(value, plugin, context, errors);
        let (fields, errors) = match plugin {
            "NodeResourcesFit" => {
                let mut fields = open(value);
                self.fit = fit(&mut fields, errors);
                (fields, errors)
            }
            "NodeResourcesBalancedAllocation" => {
                let mut fields = open(value);
                self.balanced = balanced(&mut fields, errors);
                (fields, errors)
            }
            "NodeAffinity" => {
                let mut fields = open(value);
                let added = fields.raw("addedAffinity");
                let at = fields.at.field("addedAffinity");
                self.affinity.added_affinity =
                    added.map(|value| affinity(Fields::of(value, at, errors), errors));
                (fields, errors)
            }
            "InterPodAffinity" => {
                let mut fields = open(value);
                self.pod_affinity = pods::affinity(&mut fields, errors);
                (fields, errors)
            }
            "PodTopologySpread" => {
                let mut fields = open(value);
                self.spread = pods::spread(&mut fields, errors);
                (fields, errors)
            }
            _ => return Err(value),
        };
        fields.finish_naming(errors);
        Ok(())
    }
}

fn fit(fields: &mut Fields, errors: &mut Errors) -> NodeResourcesFitArgs {
    let default = NodeResourcesFitArgs::default();
    let (names, groups) = ("ignoredResources", "ignoredResourceGroups");
    let ignored_resources = fields.strings(names, errors);
    check_labels(&ignored_resources, &fields.at.field(names), errors);
    let ignored_resource_groups = fields.strings(groups, errors);
    for (i, group) in ignored_resource_groups.iter().enumerate().filter(|(_, group)| group.contains('/')) {
        let problem = format!("Invalid value: {group:?}: resource group name can't contain '/'");
        errors.invalid(&fields.at.field(groups).index(i), problem);
    }
    check_labels(&ignored_resource_groups, &fields.at.field(groups), errors);
    let Some(value) = fields.raw("scoringStrategy") else {
        return NodeResourcesFitArgs { ignored_resources, ignored_resource_groups, ..default };
    };
    let mut strategy = Fields::of(value, fields.at.field("scoringStrategy"), errors);
    // kube-scheduler gives the object a default but not its type, and then refuses the object. The default is meant.
    let kind = strategy.supported("type", FitStrategyType::WORDS, errors).unwrap_or_default();
    let resources = weights(&mut strategy, errors);
    let at = strategy.at.field("resources");
    for (i, ResourceWeight { name, weight }) in resources.iter().enumerate() {
        if !(1..=100).contains(weight) {
            let problem =
                format!("Invalid value: {weight}: resource weight of {name} not in valid range (0, 100]");
            errors.invalid(&at.index(i).field("weight"), problem);
        }
    }
    let shape = shape(&mut strategy, kind, errors);
    strategy.finish_naming(errors);
    let resources = if resources.is_empty() { default.resources } else { resources };
    NodeResourcesFitArgs { ignored_resources, ignored_resource_groups, kind, resources, shape }
}

/// Names with weights; a weight of 0 is the default of 1.
fn weights(fields: &mut Fields, errors: &mut Errors) -> Vec<ResourceWeight> {
    let mut resources = Vec::new();
    for mut entry in fields.objects("resources", errors) {
        let name = entry.string("name", errors).unwrap_or_default();
        if name.is_empty() {
            errors.invalid(&entry.at.field("name"), "Required value");
        }
        let weight = entry.integer("weight", errors).filter(|weight| *weight != 0).unwrap_or(1);
        entry.finish_naming(errors);
        resources.push(ResourceWeight { name, weight });
    }
    resources
}

fn shape(strategy: &mut Fields, kind: FitStrategyType, errors: &mut Errors) -> Vec<ShapePoint> {
    let at = strategy.at.field("requestedToCapacityRatio");
    let value = strategy.raw("requestedToCapacityRatio");
    match (kind, value) {
        (FitStrategyType::RequestedToCapacityRatio, Some(value)) => {
            let mut fields = Fields::of(value, at, errors);
            let points = points(&mut fields, errors);
            fields.finish_naming(errors);
            points
        }
        (FitStrategyType::RequestedToCapacityRatio, None) => {
            errors.invalid(&at, "Required value: must be specified when type is RequestedToCapacityRatio");
            Vec::new()
        }
        (_, Some(_)) => {
            errors.invalid(&at, "Forbidden: must be nil when type is not RequestedToCapacityRatio");
            Vec::new()
        }
        (_, None) => Vec::new(),
    }
}

fn points(fields: &mut Fields, errors: &mut Errors) -> Vec<ShapePoint> {
    let mut points: Vec<ShapePoint> = Vec::new();
    let mut in_order = true;
    for mut entry in fields.objects("shape", errors) {
        let mut number = |name, most, errors: &mut Errors| {
            let number = entry.integer32(name, errors).unwrap_or(0);
            if !(0..=most).contains(&number) {
                let problem = format!("Invalid value: {number}: not in valid range [0, {most}]");
                errors.invalid(&entry.at.field(name), problem);
            }
            number
        };
        let utilization = number("utilization", 100, errors);
        let score = number("score", 10, errors);
        if in_order && points.last().is_some_and(|last| last.utilization >= utilization) {
            in_order = false;
            let problem = format!("Invalid value: {utilization}: values must be sorted in increasing order");
            errors.invalid(&entry.at.field("utilization"), problem);
        }
        entry.finish_naming(errors);
        points.push(ShapePoint { utilization, score });
    }
    if points.is_empty() {
        errors.invalid(&fields.at.field("shape"), "Required value: at least one point must be specified");
    }
    points
}

fn balanced(fields: &mut Fields, errors: &mut Errors) -> NodeResourcesBalancedAllocationArgs {
    let at = fields.at.field("resources");
    let mut resources: Vec<String> = Vec::new();
    for (i, ResourceWeight { name, weight }) in weights(fields, errors).into_iter().enumerate() {
        if resources.contains(&name) {
            errors.invalid(&at.index(i).field("name"), format!("Duplicate value: {name:?}"));
        }
        if weight != 1 {
            errors.invalid(&at.index(i).field("weight"), format!("Invalid value: {weight}: must be 1"));
        }
        resources.push(name);
    }
    let default = NodeResourcesBalancedAllocationArgs::default();
    if resources.is_empty() { default } else { NodeResourcesBalancedAllocationArgs { resources } }
}

/// `ValidateLabelName` of apimachinery: `name` or `domain/name`.
fn check_labels(names: &[String], at: &Position, errors: &mut Errors) {
    for (i, name) in names.iter().enumerate() {
        check_label(name, &at.index(i), errors);
    }
}

pub(super) fn check_label(text: &str, at: &Position, errors: &mut Errors) {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let is_part = |text: &str, others: &str| {
        text.starts_with(plain)
            && text.ends_with(plain)
            && text.chars().all(|c| plain(c) || others.contains(c))
    };
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let problem = if name.len() > 63 {
        "name part must be no more than 63 bytes"
    } else if !is_part(name, "-_.") {
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character"
    } else if domain.is_some_and(|domain| domain.len() > 253 || !is_part(domain, "-.")) {
        "prefix part must be a DNS subdomain of at most 253 bytes"
    } else {
        return;
    };
    errors.invalid(at, format!("Invalid value: {text:?}: {problem}"));
}

fn affinity(mut fields: Fields, errors: &mut Errors) -> NodeAffinity {
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let at = fields.at.field(required);
    let required = fields.raw(required).map(|value| {
        let mut selector = Fields::of(value, at.clone(), errors);
        let terms = selector.objects("nodeSelectorTerms", errors);
        if terms.is_empty() {
            let problem = "Required value: must have at least one node selector term";
            errors.invalid(&at.field("nodeSelectorTerms"), problem);
        }
        selector.finish_naming(errors);
        NodeSelector { node_selector_terms: terms.into_iter().map(|fields| term(fields, errors)).collect() }
    });
    let preferred = fields.objects(preferred, errors).into_iter().map(|mut entry| {
        let weight = entry.integer32("weight", errors).unwrap_or(0);
        if !(1..=100).contains(&weight) {
            let problem = format!("Invalid value: {weight}: must be in the range 1-100");
            errors.invalid(&entry.at.field("weight"), problem);
        }
        let preference = term(entry.object("preference", errors), errors);
        entry.finish_naming(errors);
        PreferredSchedulingTerm { weight, preference }
    });
    let preferred: Vec<_> = preferred.collect();
    fields.finish_naming(errors);
    NodeAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: Some(preferred).filter(|all| !all.is_empty()),
    }
}

fn term(mut fields: Fields, errors: &mut Errors) -> NodeSelectorTerm {
    let mut list = |name, of: fn(&Requirement) -> Option<(&'static str, String)>, errors: &mut Errors| {
        let mut all = Vec::new();
        for mut entry in fields.objects(name, errors) {
            let requirement = NodeSelectorRequirement {
                key: entry.string("key", errors).unwrap_or_default(),
                operator: entry.string("operator", errors).unwrap_or_default(),
                values: Some(entry.strings("values", errors)).filter(|values| !values.is_empty()),
            };
            if let Some((field, problem)) = of(&Requirement::of(&requirement)) {
                errors.invalid(&entry.at.field(field), problem);
            }
            entry.finish_naming(errors);
            all.push(requirement);
        }
        Some(all).filter(|all| !all.is_empty())
    };
    let match_expressions = list("matchExpressions", problem_of_labels, errors);
    let match_fields = list("matchFields", problem_of_fields, errors);
    fields.finish_naming(errors);
    NodeSelectorTerm { match_expressions, match_fields }
}

/// The parts of a requirement that are checked.
struct Requirement<'a> {
    key: &'a str,
    operator: &'a str,
    values: &'a [String],
}

impl<'a> Requirement<'a> {
    fn of(wire: &'a NodeSelectorRequirement) -> Self {
        Self { key: &wire.key, operator: &wire.operator, values: wire.values.as_deref().unwrap_or_default() }
    }
}

/// The field with the first problem of a requirement on labels, and the problem.
fn problem_of_labels(one: &Requirement) -> Option<(&'static str, String)> {
    let Requirement { key, operator, values } = one;
    if key.is_empty() {
        return Some(("key", "Required value".to_owned()));
    }
    let problem = match *operator {
        "In" | "NotIn" if values.is_empty() => "for 'in', 'notin' operators, values set can't be empty",
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        "Gt" | "Lt" if values.len() != 1 => "for 'Gt', 'Lt' operators, exactly one value is required",
        "Gt" | "Lt" if values[0].parse::<i64>().is_err() => {
            "for 'Gt', 'Lt' operators, the value must be an integer"
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => return None,
        other => {
            let words = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
            return Some(("operator", unsupported(other, &words)));
        }
    };
    Some(("values", format!("Invalid value: {values:?}: {problem}")))
}

/// As [`problem_of_labels`], of a requirement on fields.
fn problem_of_fields(one: &Requirement) -> Option<(&'static str, String)> {
    let Requirement { key, operator, values } = one;
    if *key != "metadata.name" {
        return Some(("key", unsupported(key, &["metadata.name"])));
    }
    if !["In", "NotIn"].contains(operator) {
        return Some(("operator", unsupported(operator, &["In", "NotIn"])));
    }
    (values.len() != 1).then(|| ("values", format!("Invalid value: {values:?}: must have one element")))
}

/// The text of `field.NotSupported`.
pub(super) fn unsupported(found: &str, words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("Unsupported value: {found:?}: supported values: {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::SchedulerConfig;
    use super::*;

    /// The arguments of one plugin.
    pub(super) fn args(plugin: &str, args: &str) -> Result<InTreeArgs, Vec<String>> {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
             - pluginConfig:\n  - name: {plugin}\n    args: {args}\n"
        );
        match SchedulerConfig::parse(&text) {
            Ok(mut config) => Ok(config.profiles.remove(0).in_tree),
            Err(error) => Err(error.errors.iter().map(ToString::to_string).collect()),
        }
    }

    const FIT: &str = "NodeResourcesFit";
    const BALANCED: &str = "NodeResourcesBalancedAllocation";
    const AFFINITY: &str = "NodeAffinity";

    #[test]
    fn what_is_left_out_is_the_default() {
        for (plugin, text) in [
            (FIT, "{}"),
            (FIT, "null"),
            (FIT, "{scoringStrategy: {}, ignoredResources: []}"),
            (FIT, "{scoringStrategy: {type: LeastAllocated, resources: []}}"),
            (FIT, "{scoringStrategy: {resources: [{name: cpu}, {name: memory, weight: 0}]}}"),
            (
                BALANCED,
                "{apiVersion: kubescheduler.config.k8s.io/v1, resources: [{name: cpu}, {name: memory}]}",
            ),
            (AFFINITY, "{kind: NodeAffinityArgs, addedAffinity: null}"),
        ] {
            assert_eq!(args(plugin, text), Ok(InTreeArgs::default()), "{plugin} {text}");
        }
    }

    #[test]
    fn fields_are_read() {
        let fit = args(
            FIT,
            "{ignoredResources: [a.io/b], ignoredResourceGroups: [c.io], scoringStrategy: {\
             type: RequestedToCapacityRatio, resources: [{name: a.io/d, weight: 100}], \
             requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, {utilization: 100}]}}}",
        );
        let point = |utilization, score| ShapePoint { utilization, score };
        assert_eq!(
            fit.unwrap().fit,
            NodeResourcesFitArgs {
                ignored_resources: vec!["a.io/b".to_owned()],
                ignored_resource_groups: vec!["c.io".to_owned()],
                kind: FitStrategyType::RequestedToCapacityRatio,
                resources: vec![ResourceWeight { name: "a.io/d".to_owned(), weight: 100 }],
                shape: vec![point(0, 10), point(100, 0)],
            }
        );
        let balanced = args(BALANCED, "{resources: [{name: a.io/b, weight: 1}]}").unwrap().balanced;
        assert_eq!(balanced.resources, ["a.io/b"]);
        let text = "{\"preferredDuringSchedulingIgnoredDuringExecution\": [{\"preference\": {\"matchExpressions\": \
                    [{\"key\": \"k\", \"operator\": \"Gt\", \"values\": [\"5\"]}]}, \"weight\": 7}], \
                    \"requiredDuringSchedulingIgnoredDuringExecution\": {\"nodeSelectorTerms\": [{\"matchFields\": \
                    [{\"key\": \"metadata.name\", \"operator\": \"In\", \"values\": [\"n\"]}]}]}}";
        let affinity = args(AFFINITY, &format!("{{addedAffinity: {text}}}")).unwrap().affinity;
        assert_eq!(affinity.added_affinity, serde_json::from_str(text).unwrap());
    }

    #[test]
    fn mistakes_name_the_place_in_kube_schedulers_words() {
        let strategy = |text: &str| format!("{{scoringStrategy: {text}}}");
        let shape = |points: &str| {
            strategy(&format!(
                "{{type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape: {points}}}}}"
            ))
        };
        let required = |requirement: &str| {
            format!(
                "{{addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
                 [{requirement}]}}}}}}"
            )
        };
        let labels = |text: &str| required(&format!("{{matchExpressions: [{text}]}}"));
        let names = |text: &str| required(&format!("{{matchFields: [{text}]}}"));
        let terms = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        let ratio = "scoringStrategy.requestedToCapacityRatio";
        for (plugin, text, wanted) in [
            (
                FIT,
                strategy("{type: Best}"),
                "scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \
                 \"MostAllocated\", \"RequestedToCapacityRatio\""
                    .to_owned(),
            ),
            (
                FIT,
                strategy("{resources: [{name: cpu, weight: 101}]}"),
                "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range \
                 (0, 100]"
                    .to_owned(),
            ),
            (
                FIT,
                strategy("{resources: [{name: cpu, wait: 1}]}"),
                "strict decoding error: unknown field \"scoringStrategy.resources[0].wait\"; allowed are name, weight"
                    .to_owned(),
            ),
            (
                FIT,
                "{ignoredResourceGroups: [a/b]}".to_owned(),
                "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'".to_owned(),
            ),
            (
                FIT,
                "{ignoredResources: [a/b/c]}".to_owned(),
                "ignoredResources[0]: Invalid value: \"a/b/c\": name part must consist of alphanumeric characters, \
                 '-', '_' or '.', and must start and end with an alphanumeric character"
                    .to_owned(),
            ),
            (
                FIT,
                "{ignoredResources: [1]}".to_owned(),
                "ignoredResources[0]: expected a text, found 1".to_owned(),
            ),
            (
                FIT,
                strategy("{type: RequestedToCapacityRatio}"),
                format!("{ratio}: Required value: must be specified when type is RequestedToCapacityRatio"),
            ),
            (
                FIT,
                strategy("{requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}]}}"),
                format!("{ratio}: Forbidden: must be nil when type is not RequestedToCapacityRatio"),
            ),
            (
                FIT,
                shape("[]"),
                format!("{ratio}.shape: Required value: at least one point must be specified"),
            ),
            (
                FIT,
                shape("[{utilization: 5, score: 1}, {utilization: 5, score: 2}]"),
                format!(
                    "{ratio}.shape[1].utilization: Invalid value: 5: values must be sorted in increasing order"
                ),
            ),
            (
                FIT,
                shape("[{utilization: 101, score: 1}]"),
                format!("{ratio}.shape[0].utilization: Invalid value: 101: not in valid range [0, 100]"),
            ),
            (
                FIT,
                shape("[{utilization: 1, score: 11}]"),
                format!("{ratio}.shape[0].score: Invalid value: 11: not in valid range [0, 10]"),
            ),
            (
                BALANCED,
                "{resources: [{name: cpu, weight: 2}]}".to_owned(),
                "resources[0].weight: Invalid value: 2: must be 1".to_owned(),
            ),
            (
                BALANCED,
                "{resources: [{name: cpu}, {name: cpu}]}".to_owned(),
                "resources[1].name: Duplicate value: \"cpu\"".to_owned(),
            ),
            (
                BALANCED,
                "{kind: OtherArgs}".to_owned(),
                format!(
                    "kind: args for plugin {BALANCED} cannot be \"OtherArgs\"; allowed is {BALANCED}Args"
                ),
            ),
            (
                AFFINITY,
                "{addedAffinities: {}}".to_owned(),
                "strict decoding error: unknown field \"addedAffinities\"; allowed are apiVersion, kind, addedAffinity"
                    .to_owned(),
            ),
            (
                AFFINITY,
                labels("{key: k, operator: Near}"),
                format!(
                    "{terms}[0].matchExpressions[0].operator: Unsupported value: \"Near\": supported values: \"In\", \
                     \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\""
                ),
            ),
            (
                AFFINITY,
                labels("{key: k, operator: In}"),
                format!(
                    "{terms}[0].matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values \
                     set can't be empty"
                ),
            ),
            (
                AFFINITY,
                labels("{key: k, operator: Lt, values: [x]}"),
                format!(
                    "{terms}[0].matchExpressions[0].values: Invalid value: [\"x\"]: for 'Gt', 'Lt' operators, the \
                     value must be an integer"
                ),
            ),
            (
                AFFINITY,
                names("{key: metadata.uid, operator: In, values: [x]}"),
                format!(
                    "{terms}[0].matchFields[0].key: Unsupported value: \"metadata.uid\": supported values: \
                     \"metadata.name\""
                ),
            ),
            (
                AFFINITY,
                names("{key: metadata.name, operator: In, values: [x, z]}"),
                format!(
                    "{terms}[0].matchFields[0].values: Invalid value: [\"x\", \"z\"]: must have one element"
                ),
            ),
            (
                AFFINITY,
                "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}".to_owned(),
                format!("{terms}: Required value: must have at least one node selector term"),
            ),
        ] {
            let place = format!("decoding .profiles[0].pluginConfig[0]: decoding args for plugin {plugin}: ");
            assert_eq!(args(plugin, &text), Err(vec![format!("{place}{wanted}")]), "{text}");
        }
    }
}
