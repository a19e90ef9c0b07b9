//! Node selectors, node affinity, taints and tolerations.
//!
//! In: fields of a pod and a node. Out: whether the pod may run on the node, and how much it prefers the node. Never:
//! an API call. Matching follows kube-scheduler 1.36: terms are ORed, requirements within a term are ANDed, and an
//! empty term matches nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as wire;

/// `nodeSelector` and `affinity.nodeAffinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeAffinity {
    /// `nodeSelector`: the node must have all of these labels.
    pub selector: Vec<(String, String)>,
    /// Required terms; `None` when there is no requirement.
    pub required: Option<Vec<Term>>,
    /// Preferred terms with their weights.
    pub preferred: Vec<(i32, Term)>,
    /// The nodes to which the required terms limit the pod by `metadata.name`, in order; `None`: they do not. All other
    /// nodes are left out before any filter runs (1.36 `nodeaffinity` PreFilter).
    pub only: Option<Vec<String>>,
}

/// One node selector term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// An unknown operator, which matches nothing.
    Unknown,
}

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// `NoSchedule`.
    NoSchedule,
    /// `PreferNoSchedule`.
    PreferNoSchedule,
    /// `NoExecute`.
    NoExecute,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    pub value: String,
    /// The effect.
    pub effect: Effect,
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: String,
    /// `None`: any value (operator `Exists`).
    value: Option<String>,
    /// `None`: any effect.
    effect: Option<Effect>,
}

/// The only field that terms can require.
pub const NAME: &str = "metadata.name";

/// Labels of a node.
pub type Labels = BTreeMap<String, String>;

impl NodeAffinity {
    pub(crate) fn read(spec: &wire::PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let selector = spec.node_selector.iter().flatten();
        Self {
            selector: selector.map(|(key, value)| (key.clone(), value.clone())).collect(),
            ..affinity.map(Self::of).unwrap_or_default()
        }
    }

    /// Reads node affinity alone.
    #[must_use]
    pub fn of(wire: &wire::NodeAffinity) -> Self {
        let required = wire.required_during_scheduling_ignored_during_execution.as_ref();
        let required: Option<Vec<Term>> =
            required.map(|required| required.node_selector_terms.iter().map(Term::read).collect());
        let preferred = wire.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        Self {
            selector: Vec::new(),
            only: required.as_deref().filter(|terms| !terms.is_empty()).and_then(names),
            required,
            preferred: preferred.map(|term| (term.weight, Term::read(&term.preference))).collect(),
        }
    }

    /// Whether every required term names nodes, and this is none of them.
    #[must_use]
    pub fn is_elsewhere(&self, node: &str) -> bool {
        self.only
            .as_ref()
            .is_some_and(|names| names.binary_search_by(|name| name.as_str().cmp(node)).is_err())
    }

    /// Whether the required terms contradict themselves in the names of nodes, so that no node can match.
    #[must_use]
    pub fn is_contradictory(&self) -> bool {
        self.only.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether the pod may run on a node with this name and these labels.
    #[must_use]
    pub fn allows(&self, node: &str, labels: &Labels) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|t| t.matches(node, labels)))
    }

    /// Sum of the weights of the preferred terms that match.
    #[must_use]
    pub fn preference(&self, node: &str, labels: &Labels) -> i64 {
        let matching = self.preferred.iter().filter(|(_, term)| term.matches(node, labels));
        matching.map(|(weight, _)| i64::from(*weight)).sum()
    }
}

/// The names of nodes that any of these terms names; `None` if one names none.
fn names(terms: &[Term]) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for term in terms {
        all.extend(term.names()?);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

impl Term {
    /// The names of nodes that all of the term's `In` requirements for `metadata.name` list; `None` without one.
    fn names(&self) -> Option<Vec<String>> {
        let lists = || self.fields.iter().filter(|r| r.key == NAME && r.operator == Operator::In);
        let first = lists().next()?;
        let in_all = |name: &&String| lists().all(|list| list.values.contains(*name));
        Some(first.values.iter().filter(in_all).cloned().collect())
    }

    fn read(term: &wire::NodeSelectorTerm) -> Self {
        let list = |wire: &Option<Vec<wire::NodeSelectorRequirement>>| -> Vec<Requirement> {
            wire.iter().flatten().map(Requirement::read).collect()
        };
        Self { labels: list(&term.match_expressions), fields: list(&term.match_fields) }
    }

    fn matches(&self, node: &str, labels: &Labels) -> bool {
        let name = |key: &str| (key == NAME).then_some(node);
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
            && self.fields.iter().all(|r| r.matches(name(&r.key)))
    }
}

impl Requirement {
    fn read(requirement: &wire::NodeSelectorRequirement) -> Self {
        let operator = match requirement.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => Operator::Unknown,
        };
        Self {
            key: requirement.key.clone(),
            operator,
            values: requirement.values.clone().unwrap_or_default(),
        }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|v| v == value);
        match (self.operator, value) {
            (Operator::In, value) => value.is_some_and(listed),
            (Operator::NotIn, value) => !value.is_some_and(listed),
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::Gt, Some(value)) => self.compare(value, |have, want| have > want),
            (Operator::Lt, Some(value)) => self.compare(value, |have, want| have < want),
            (Operator::Gt | Operator::Lt | Operator::Unknown, _) => false,
        }
    }

    fn compare(&self, value: &str, test: impl Fn(i64, i64) -> bool) -> bool {
        let [bound] = self.values.as_slice() else { return false };
        matches!((value.parse(), bound.parse()), (Ok(have), Ok(want)) if test(have, want))
    }
}

impl Effect {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }
}

impl Taint {
    /// Reads a taint; `None` for effects that do not exist.
    pub(crate) fn read(taint: &wire::Taint) -> Option<Self> {
        Some(Self {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: Effect::parse(&taint.effect)?,
        })
    }
}

impl Toleration {
    /// Reads a toleration; `None` for one that covers nothing, because its operator or effect is unknown. So are `Gt`
    /// and `Lt`: they are alpha in Kubernetes 1.35, and its documents differ on which side is the greater.
    pub(crate) fn read(toleration: &wire::Toleration) -> Option<Self> {
        let value = match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => None,
            "" | "Equal" => Some(toleration.value.clone().unwrap_or_default()),
            _ => return None,
        };
        let effect = match toleration.effect.as_deref().unwrap_or_default() {
            "" => None,
            effect => Some(Effect::parse(effect)?),
        };
        Some(Self { key: toleration.key.clone().unwrap_or_default(), value, effect })
    }

    /// Whether the toleration covers a taint. An empty key with `Exists` covers every key.
    #[must_use]
    pub fn covers(&self, taint: &Taint) -> bool {
        self.covers_parts(&taint.key, &taint.value, taint.effect)
    }

    fn covers_parts(&self, key: &str, value: &str, effect: Effect) -> bool {
        self.effect.is_none_or(|known| known == effect)
            && (self.key == key || (self.key.is_empty() && self.value.is_none()))
            && self.value.as_ref().is_none_or(|known| known == value)
    }
}

/// Whether every taint that keeps pods away is tolerated.
#[must_use]
pub fn tolerates(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .all(|taint| tolerations.iter().any(|toleration| toleration.covers(taint)))
}

/// The taint that a controller gives to cordoned nodes.
pub(crate) const CORDON: &str = "node.kubernetes.io/unschedulable";

/// Whether a cordoned node is tolerated, by the taint that stands for `spec.unschedulable`.
#[must_use]
pub fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| toleration.covers_parts(CORDON, "", Effect::NoSchedule))
}

/// The number of `PreferNoSchedule` taints that are not tolerated.
#[must_use]
pub fn aversions(tolerations: &[Toleration], taints: &[Taint]) -> i64 {
    let untolerated = taints
        .iter()
        .filter(|taint| taint.effect == Effect::PreferNoSchedule)
        .filter(|taint| !tolerations.iter().any(|toleration| toleration.covers(taint)));
    i64::try_from(untolerated.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(expressions: &[(&str, &str, &[&str])], fields: &[(&str, &str, &[&str])]) -> Term {
        let list = |list: &[(&str, &str, &[&str])]| {
            Some(
                list.iter()
                    .map(|(key, operator, values)| wire::NodeSelectorRequirement {
                        key: (*key).to_owned(),
                        operator: (*operator).to_owned(),
                        values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
                    })
                    .collect(),
            )
        };
        Term::read(&wire::NodeSelectorTerm {
            match_expressions: list(expressions),
            match_fields: list(fields),
        })
    }

    #[test]
    fn terms_match_as_in_kube_scheduler() {
        let labels: Labels =
            [("zone", "a"), ("gen", "7"), ("ssd", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        type Rows = &'static [(&'static str, &'static str, &'static [&'static str])];
        let cases: [(Rows, Rows, bool); 16] = [
            (&[("zone", "In", &["a", "b"])], &[], true),
            (&[("zone", "In", &["b"])], &[], false),
            (&[("zone", "NotIn", &["b"])], &[], true),
            (&[("none", "NotIn", &["b"])], &[], true),
            (&[("ssd", "Exists", &[])], &[], true),
            (&[("none", "DoesNotExist", &[])], &[], true),
            (&[("gen", "Gt", &["6"])], &[], true),
            (&[("gen", "Gt", &["7"])], &[], false),
            (&[("gen", "Lt", &["8"])], &[], true),
            (&[("zone", "Gt", &["1"])], &[], false),
            (&[("gen", "Gt", &["1", "2"])], &[], false),
            (&[("zone", "Maybe", &["a"])], &[], false),
            (&[("zone", "In", &["a"]), ("gen", "In", &["8"])], &[], false),
            (&[], &[("metadata.name", "In", &["n1"])], true),
            (&[], &[("metadata.name", "NotIn", &["n1"])], false),
            (&[], &[], false),
        ];
        for (expressions, fields, expected) in cases {
            assert_eq!(
                term(expressions, fields).matches("n1", &labels),
                expected,
                "{expressions:?} {fields:?}"
            );
        }
    }

    #[test]
    fn terms_that_name_nodes_leave_out_all_others() {
        let named = |operator: &str, values: &[&str]| term(&[], &[(NAME, operator, values)]);
        let twice = |one: &[&str], other: &[&str]| term(&[], &[(NAME, "In", one), (NAME, "In", other)]);
        for (terms, wanted) in [
            (vec![], None),
            (vec![named("In", &["b", "a"])], Some(vec!["a", "b"])),
            (vec![named("In", &["b"]), named("In", &["a", "b"])], Some(vec!["a", "b"])),
            (vec![named("In", &["a"]), named("NotIn", &["b"])], None),
            (vec![named("In", &["a"]), term(&[("zone", "Exists", &[])], &[])], None),
            (vec![twice(&["a", "b"], &["b", "c"])], Some(vec!["b"])),
            (vec![twice(&["a"], &["b"])], Some(vec![])),
        ] {
            let only = Some(terms.as_slice()).filter(|terms| !terms.is_empty()).and_then(names);
            assert_eq!(only, wanted.map(|names| names.into_iter().map(str::to_owned).collect()), "{terms:?}");
            let affinity = NodeAffinity { only, ..NodeAffinity::default() };
            assert_eq!(affinity.is_contradictory(), affinity.only == Some(vec![]));
            assert_eq!(affinity.is_elsewhere("z"), affinity.only.is_some());
            assert!(affinity.only.iter().flatten().all(|name| !affinity.is_elsewhere(name)));
        }
    }

    #[test]
    fn tolerations_cover_as_in_kube_scheduler() {
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| {
            Toleration::read(&wire::Toleration {
                key: Some(key.to_owned()),
                operator: Some(operator.to_owned()),
                value: Some(value.to_owned()),
                effect: (!effect.is_empty()).then(|| effect.to_owned()),
                ..wire::Toleration::default()
            })
        };
        let taint = Taint { key: "k".into(), value: "v".into(), effect: Effect::NoSchedule };
        for (toleration, expected) in [
            (toleration("k", "Equal", "v", "NoSchedule"), true),
            (toleration("k", "", "v", ""), true),
            (toleration("k", "Equal", "w", ""), false),
            (toleration("k", "Exists", "", "NoExecute"), false),
            (toleration("", "Exists", "", ""), true),
            (toleration("", "Equal", "v", ""), false),
            (toleration("other", "Exists", "", ""), false),
            (toleration("k", "Gt", "v", ""), false),
            (toleration("k", "Lt", "v", ""), false),
            (toleration("k", "Maybe", "v", ""), false),
            (toleration("k", "Exists", "", "NoRunning"), false),
        ] {
            let tolerations: Vec<Toleration> = toleration.into_iter().collect();
            assert_eq!(tolerates(&tolerations, std::slice::from_ref(&taint)), expected, "{tolerations:?}");
        }
        let soft = Taint { effect: Effect::PreferNoSchedule, ..taint };
        assert!(tolerates(&[], std::slice::from_ref(&soft)));
        assert_eq!(aversions(&[], &[soft.clone(), soft]), 2);
    }
}
