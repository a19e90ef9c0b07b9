//! Which nodes belong to a pool.
//!
//! In: what its nodes have to be like, and those of other pools that come before it. Out: yes or no for a node; the same for a pod of the pool, as
//! node selector and node affinity. Never: a node of two pools.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::requirement::{self, Requirement};

/// The most ways in which a node may differ from those of other pools. Each pool whose nodes need one label is one.
const MOST_TERMS: usize = 64;

/// Which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Labels they have.
    pub labels: BTreeMap<String, String>,
    /// What else is required of their labels.
    pub rest: Vec<Requirement>,
    /// All requirements of at least one of these hold; so that they are nodes of no pool that comes before.
    pub apart: Vec<Vec<Requirement>>,
}

impl Choice {
    /// The nodes that a selector selects, apart from those of other pools; each of those by all that is required of its nodes.
    ///
    /// # Errors
    /// When the selector is not understood, or there is no telling the pools' nodes apart.
    pub fn new(selector: &LabelSelector, others: &[Vec<Requirement>]) -> Result<Self, String> {
        let describe = |error: requirement::Error| format!("its node selector cannot be used: {error}");
        let labels = selector.match_labels.clone().unwrap_or_default();
        let expressions = LabelSelector { match_labels: None, ..selector.clone() };
        let rest = Requirement::all(&expressions).map_err(describe)?;
        let apart = apart(&labels, others)?;
        Ok(Self { labels, rest, apart })
    }

    /// Whether a node with these labels is one of them.
    pub fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str> + Copy) -> bool {
        let all = |requirements: &Vec<Requirement>| requirements.iter().all(|one| one.holds(label));
        self.labels.iter().all(|(key, value)| label(key) == Some(value))
            && all(&self.rest)
            && self.apart.iter().any(all)
    }

    /// What is required of a pod's node besides [`Self::labels`]; one of the terms has to hold. An exporter cannot run on Windows.
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

/// What nodes are like that are none of the others': one of the terms. `labels` they have anyway.
fn apart(
    labels: &BTreeMap<String, String>,
    others: &[Vec<Requirement>],
) -> Result<Vec<Vec<Requirement>>, String> {
    let mut terms: Vec<Vec<Requirement>> = vec![Vec::new()];
    for other in others {
        let ways: Vec<Requirement> = other.iter().map(Requirement::opposite).collect();
        // What contradicts the labels holds nowhere; if all of it does, the other pool has every node.
        let label = |key: &str| labels.get(key).map(String::as_str);
        let hopeless = |way: &&Requirement| !labels.contains_key(&way.key) || way.holds(label);
        let possible: Vec<&Requirement> = ways.iter().filter(hopeless).collect();
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
