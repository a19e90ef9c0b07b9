//! The nodes that belong to a pool.
//!
//! In: the requirements of its nodes, and those of earlier pools. Out: whether a node belongs; the same as a pod's node
//! selector and node affinity. Never: a node of two pools.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::requirement::Requirement;

/// The most terms of a node affinity. Each earlier pool that one label selects needs one.
const MOST_TERMS: usize = 64;

/// The nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Labels that they have.
    pub labels: BTreeMap<String, String>,
    /// Further requirements of their labels.
    pub rest: Vec<Requirement>,
    /// Sets of requirements, of which one holds completely: the node is in no earlier pool.
    pub apart: Vec<Vec<Requirement>>,
}

impl Choice {
    /// The nodes of a selector without those of `others`, the requirements of earlier pools.
    ///
    /// # Errors
    /// When the selector is invalid, or the pools' nodes cannot be told apart.
    pub fn new(selector: &LabelSelector, others: &[Vec<Requirement>]) -> Result<Self, String> {
        let describe = |error: String| format!("its node selector cannot be used: {error}");
        let labels = selector.match_labels.clone().unwrap_or_default();
        let expressions = LabelSelector { match_labels: None, ..selector.clone() };
        let rest = Requirement::all(&expressions).map_err(describe)?;
        let apart = apart(&labels, others)?;
        Ok(Self { labels, rest, apart })
    }

    /// Whether a node with these labels is one of them.
    pub fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str> + Copy) -> bool {
        let all = |requirements: &Vec<Requirement>| requirements.iter().all(|one| one.holds(label));
        self.selects(label) && self.apart.iter().any(all)
    }

    /// Whether the selector alone selects a node with these labels; it may be in an earlier pool.
    pub fn selects<'a>(&self, label: impl Fn(&str) -> Option<&'a str> + Copy) -> bool {
        let labels = self.labels.iter().all(|(key, value)| label(key) == Some(value));
        labels && self.rest.iter().all(|one| one.holds(label))
    }

    /// The terms of a pod's node affinity besides [`Self::labels`], of which one has to hold. Windows is excluded.
    #[must_use]
    pub fn terms(&self) -> Vec<NodeSelectorTerm> {
        let linux = Requirement::equals("kubernetes.io/os", "windows").opposite();
        let term = |apart: &Vec<Requirement>| NodeSelectorTerm {
            match_expressions: Some(
                self.rest.iter().chain(apart).chain([&linux]).map(Requirement::of_node).collect(),
            ),
            match_fields: None,
        };
        self.apart.iter().map(term).collect()
    }
}

/// The terms of which one holds for nodes of none of the others. The nodes have `labels` anyway.
fn apart(
    labels: &BTreeMap<String, String>,
    others: &[Vec<Requirement>],
) -> Result<Vec<Vec<Requirement>>, String> {
    let mut terms: Vec<Vec<Requirement>> = vec![Vec::new()];
    for other in others {
        let ways: Vec<Requirement> = other.iter().map(Requirement::opposite).collect();
        // A way that contradicts the labels is impossible; if all are, the other pool has every node.
        let label = |key: &str| labels.get(key).map(String::as_str);
        let is_possible = |way: &&Requirement| !labels.contains_key(&way.key) || way.holds(label);
        let possible: Vec<&Requirement> = ways.iter().filter(is_possible).collect();
        let ways = if possible.is_empty() { ways.iter().collect() } else { possible };
        if ways.is_empty() {
            return Err("another pool that comes before it selects every node".to_owned());
        }
        if terms.len().saturating_mul(ways.len()) > MOST_TERMS {
            return Err(
                "its nodes cannot be told from those of other pools: too many labels in their node selectors"
                    .to_owned(),
            );
        }
        terms = terms
            .iter()
            .flat_map(|term| {
                ways.iter().map(|way| {
                    let mut term = term.clone();
                    if !term.contains(way) {
                        term.push((*way).clone());
                    }
                    term
                })
            })
            .collect();
    }
    terms.sort();
    terms.dedup();
    Ok(terms)
}
