//! Pods on nodes, counted by selector and node as they come and go.
//!
//! In: pods with their labels, selectors. Out: how many pods of each node a selector selects. Never: a node's labels,
//! nor a verdict.
//!
//! Cost: a pod that comes, goes or gets other labels costs a comparison with each selector in use that may select in
//! its namespace; a new selector costs one with each pod of its namespace, or with each pod if it may select in
//! several; a known one nothing. kube-scheduler 1.36 counts anew for each pod that it places.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

use crate::affinity::Labels;
use crate::ledger::PodId;
use crate::namespace::{NamespaceChange, NamespaceSelection, Namespaces};

/// Selectors whose counts are kept. Beyond, those that were not used for longest are forgotten.
const MAX_SELECTORS: usize = 1_024;

/// What selects pods: each part has to. Selectors are compared by their text.
#[derive(Clone, Debug)]
pub struct PodSelector {
    text: Box<str>,
    parts: Vec<Part>,
    /// The only namespace in which it selects, if it is one.
    only: Option<Arc<str>>,
    /// Whether pods that are being deleted count.
    leaving: bool,
}

/// Namespaces, and labels in them.
#[derive(Clone, Debug)]
struct Part {
    namespaces: NamespaceSelection,
    /// `None`: no pod.
    labels: Option<Selector>,
}

/// A pod as selectors see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selectable {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.labels`.
    pub labels: Arc<Labels>,
    /// Whether it is being deleted.
    pub leaving: bool,
}

/// A pod on the node in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    slot: usize,
    pod: Selectable,
}

/// Numbers of selected pods, by the slot of their node. No zeros.
pub type Counts = BTreeMap<usize, i64>;

/// Selectors in use, each with its counts and its last use.
type Followed = BTreeMap<Arc<PodSelector>, (Counts, u64)>;

/// The pods on nodes, and what selectors in use select of them.
#[derive(Debug, Default)]
pub struct Selections {
    pods: BTreeMap<PodId, Placed>,
    /// Those of each namespace.
    residents: BTreeMap<Arc<str>, BTreeSet<PodId>>,
    /// Selectors in use that select in one namespace.
    local: BTreeMap<Arc<str>, Followed>,
    /// Those that may select in several.
    global: Followed,
    /// The number of both.
    followed: usize,
    /// Counts uses, to know which was the last.
    uses: u64,
    namespaces: Namespaces,
}

impl PodSelector {
    /// A selector with no part yet, which selects all pods.
    #[must_use]
    pub fn new(leaving: bool) -> Self {
        Self { text: leaving.to_string().into(), parts: Vec::new(), only: None, leaving }
    }

    /// Adds a part. Without a selector it selects no pod (kube-scheduler 1.36 `LabelSelectorAsSelector`).
    ///
    /// # Errors
    /// What is wrong with the selector.
    pub fn and(
        mut self,
        namespaces: NamespaceSelection,
        labels: Option<&LabelSelector>,
    ) -> Result<Self, String> {
        let part = serde_json::json!([namespaces, labels]);
        self.only = self.only.or_else(|| namespaces.only().map(Arc::from));
        self.text = format!("{}{part}", self.text).into();
        let labels = labels.map(|labels| Selector::try_from(labels.clone())).transpose();
        self.parts.push(Part { namespaces, labels: labels.map_err(|error| error.to_string())? });
        Ok(self)
    }

    /// Whether it selects the pod.
    #[must_use]
    pub fn selects(&self, pod: &Selectable, namespaces: &Namespaces) -> bool {
        (self.leaving || !pod.leaving)
            && self.matches(&pod.labels)
            && self.selects_in(&pod.namespace, namespaces)
    }

    /// Whether it selects pods with these labels, in some namespace.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.parts.iter().all(|part| part.labels.as_ref().is_some_and(|selector| selector.matches(labels)))
    }

    /// Whether it selects pods in this namespace.
    #[must_use]
    pub fn selects_in(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        self.parts.iter().all(|part| part.namespaces.selects(namespace, || namespaces.labels(namespace)))
    }

    /// Whether a change of a namespace may make a difference to it.
    #[must_use]
    pub fn is_turned_by(&self, change: &NamespaceChange) -> bool {
        self.parts.iter().any(|part| part.namespaces.is_turned_by(change))
    }
}

impl PartialEq for PodSelector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PodSelector {}

impl PartialOrd for PodSelector {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PodSelector {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for PodSelector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Selections {
    /// The pod is on the node in this slot now, or on none. Returns whether anything changed, with the pod as it was.
    pub fn set(&mut self, id: PodId, place: Option<(usize, Selectable)>) -> Option<Selectable> {
        let now = place.map(|(slot, pod)| Placed { slot, pod });
        if self.pods.get(&id) == now.as_ref() {
            return None;
        }
        let before = self.pods.remove(&id);
        for (placed, more) in [(&before, -1), (&now, 1)] {
            let Some(placed) = placed else { continue };
            let local = self.local.get_mut(&placed.pod.namespace).into_iter().flatten();
            for (selector, (counts, _)) in local.chain(&mut self.global) {
                if selector.selects(&placed.pod, &self.namespaces) {
                    shift(counts, placed.slot, more);
                }
            }
            let residents = self.residents.entry(Arc::clone(&placed.pod.namespace)).or_default();
            if more > 0 {
                residents.insert(id)
            } else {
                residents.remove(&id)
            };
            if residents.is_empty() {
                self.residents.remove(&placed.pod.namespace);
            }
        }
        let changed = before.map(|before| before.pod).or_else(|| now.as_ref().map(|now| now.pod.clone()));
        self.pods.extend(now.map(|now| (id, now)));
        changed
    }

    /// A namespace has these labels from now on, or is gone. `None`: nothing has changed. Selectors to which it makes a
    /// difference are counted anew when they are followed next.
    pub fn set_namespace(&mut self, name: Arc<str>, labels: Option<Arc<Labels>>) -> Option<NamespaceChange> {
        let change = self.namespaces.set(Arc::clone(&name), labels)?;
        for followed in self.local.get_mut(&name).into_iter().chain([&mut self.global]) {
            let before = followed.len();
            followed.retain(|selector, _| !selector.is_turned_by(&change));
            self.followed -= before - followed.len();
        }
        Some(change)
    }

    /// The namespaces that exist.
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Counts for a selector from now on.
    pub fn follow(&mut self, selector: &Arc<PodSelector>) {
        self.uses += 1;
        let uses = self.uses;
        let followed = match &selector.only {
            Some(namespace) => self.local.get_mut(namespace),
            None => Some(&mut self.global),
        };
        if let Some((_, last)) = followed.and_then(|followed| followed.get_mut(selector)) {
            *last = uses;
            return;
        }
        if self.followed >= MAX_SELECTORS {
            self.forget_oldest();
        }
        let mut counts = Counts::new();
        let mut count = |placed: &Placed| {
            if selector.selects(&placed.pod, &self.namespaces) {
                shift(&mut counts, placed.slot, 1);
            }
        };
        match &selector.only {
            Some(namespace) => {
                let residents = self.residents.get(namespace).into_iter().flatten();
                residents.filter_map(|id| self.pods.get(id)).for_each(count);
                let local = self.local.entry(Arc::clone(namespace)).or_default();
                local.insert(Arc::clone(selector), (counts, uses));
            }
            None => {
                self.pods.values().for_each(&mut count);
                self.global.insert(Arc::clone(selector), (counts, uses));
            }
        }
        self.followed += 1;
    }

    /// Forgets the selector that was not used for longest.
    fn forget_oldest(&mut self) {
        let all = self.local.values().flatten().chain(&self.global);
        let oldest = all.min_by_key(|(_, (_, last))| *last).map(|(selector, _)| Arc::clone(selector));
        let Some(oldest) = oldest else { return };
        self.followed -= 1;
        let Some(namespace) = &oldest.only else {
            self.global.remove(&oldest);
            return;
        };
        if let Some(local) = self.local.get_mut(namespace) {
            local.remove(&oldest);
            if local.is_empty() {
                self.local.remove(namespace);
            }
        }
    }

    /// The pods that a selector selects which is followed.
    #[must_use]
    pub fn counts(&self, selector: &PodSelector) -> Option<&Counts> {
        let followed = match &selector.only {
            Some(namespace) => self.local.get(namespace)?,
            None => &self.global,
        };
        followed.get(selector).map(|(counts, _)| counts)
    }
}

/// Whether a selector selects every pod.
pub(crate) fn selects_all(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.iter().flatten().next();
    labels.is_none() && selector.match_expressions.iter().flatten().next().is_none()
}

/// Adds to the count of a slot, which goes with its last pod.
pub(crate) fn shift(counts: &mut Counts, slot: usize, more: i64) {
    let count = counts.entry(slot).or_default();
    *count += more;
    if *count == 0 {
        counts.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn selector(namespaces: &[&str], labels: serde_json::Value, leaving: bool) -> Arc<PodSelector> {
        let names = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let labels: Option<LabelSelector> = serde_json::from_value(labels).unwrap();
        let namespaces = NamespaceSelection::Some { names, labelled: None };
        Arc::new(PodSelector::new(leaving).and(namespaces, labels.as_ref()).unwrap())
    }

    /// Selects pods of namespaces with the label `team`.
    fn of_teams() -> Arc<PodSelector> {
        let labels = json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]});
        let labels: LabelSelector = serde_json::from_value(labels).unwrap();
        let labelled = Some(labels.try_into().unwrap());
        let namespaces = NamespaceSelection::Some { names: BTreeSet::new(), labelled };
        Arc::new(PodSelector::new(true).and(namespaces, Some(&LabelSelector::default())).unwrap())
    }

    fn pod(namespace: &str, app: &str, leaving: bool) -> Selectable {
        let labels = Labels::from([("app".to_owned(), app.to_owned())]);
        Selectable { namespace: namespace.into(), labels: Arc::new(labels), leaving }
    }

    #[test]
    fn selectors_select_by_namespace_labels_and_stage() {
        let web = json!({"matchLabels": {"app": "web"}});
        for (selector, pod, selected) in [
            (selector(&["a"], web.clone(), false), pod("a", "web", false), true),
            (selector(&["a"], web.clone(), false), pod("a", "web", true), false),
            (selector(&["a"], web.clone(), true), pod("a", "web", true), true),
            (selector(&["a"], web.clone(), false), pod("b", "web", false), false),
            (selector(&["a", "b"], web, false), pod("b", "db", false), false),
            (selector(&["a"], json!({}), false), pod("a", "db", false), true),
            (selector(&["a"], json!(null), false), pod("a", "db", false), false),
        ] {
            assert_eq!(selector.selects(&pod, &Namespaces::default()), selected, "{selector:?} {pod:?}");
        }
        let wrong = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
        let wrong: LabelSelector = serde_json::from_value(wrong).unwrap();
        assert!(PodSelector::new(false).and(NamespaceSelection::All, Some(&wrong)).is_err());
    }

    proptest! {
        /// Counts that follow each change are those of a count from the start.
        #[test]
        fn counts_follow_pods(
            steps in proptest::collection::vec((0_u64..8, 0_usize..4, 0_usize..4, any::<bool>(), any::<bool>()), 0..60),
        ) {
            let selectors = [
                selector(&["a"], json!({"matchLabels": {"app": "web"}}), false),
                selector(&["a", "b"], json!({}), true),
                of_teams(),
            ];
            let mut followed = Selections::default();
            selectors.iter().for_each(|selector| followed.follow(selector));
            let mut late = Selections::default();
            for (id, slot, kind, leaving, is_there) in steps {
                if kind == 3 {
                    let labels = is_there.then(|| Arc::new(Labels::from([("team".to_owned(), String::new())])));
                    for selections in [&mut followed, &mut late] {
                        selections.set_namespace(["a", "b"][slot % 2].into(), labels.clone());
                    }
                    selectors.iter().for_each(|selector| followed.follow(selector));
                    continue;
                }
                let pod = pod(["a", "b", "a"][kind], ["web", "web", "db"][kind], leaving);
                let place = is_there.then_some((slot, pod));
                followed.set(PodId(id), place.clone());
                late.set(PodId(id), place);
            }
            for selector in &selectors {
                late.follow(selector);
                prop_assert_eq!(followed.counts(selector), late.counts(selector));
            }
        }
    }
}
