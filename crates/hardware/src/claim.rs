//! Claims: the owner of each node.
//!
//! In: DeviceConfigs as [`Claimant`]s, labels of nodes. Out: for each node a [`Verdict`], and whom a change concerns.
//! Never: a write, a clock, or a look at what runs on a node.
//!
//! A node has one claim, the label [`api::hardware::keys::LABEL_DRIVER`], and that label is the only selector of a
//! Module. So no node can be in two Modules, whatever anybody decides; what is decided here is which claim it gets. The
//! one who has it keeps it as long as it matches; a free node goes to the oldest that matches, then the first by
//! namespace and name. Each node is decided on its own, from what is there now: in which order it came about plays no
//! part.
//!
//! Cost: a change of a node looks at the DeviceConfigs that share one label with it (each is filed under one label of
//! its selector), not at all; a new or changed DeviceConfig looks at all nodes once, and, to say whose selector may
//! meet its own, at all others. Nothing else looks at what did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Labels of a node.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The name of a DeviceConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Which nodes are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Unknown: no new nodes, and those it has stay.
    None,
    /// All.
    All,
    /// Those with all of these labels.
    Labels(BTreeMap<String, String>),
}

/// A DeviceConfig, as far as it claims nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its name.
    pub id: Id,
    /// What its claims say: the value of the label.
    pub claim: String,
    /// When it was made; the oldest comes first.
    pub created: Timestamp,
    /// Which nodes it asks for.
    pub selector: Selector,
    /// It is being deleted: it takes no more nodes, and gives back those it has when its Module is gone.
    pub leaving: bool,
}

/// What is to become of a node's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No DeviceConfig asks for it.
    Free,
    /// It has the claim of one that matches, or whose selector is unknown.
    Held(Id),
    /// It has the claim of one that no longer matches, and has to be given back once nothing there needs it. `heir`
    /// waits for it.
    Ending {
        /// Who has it.
        owner: Id,
        /// Who is next.
        heir: Option<Id>,
    },
    /// It has the claim of one that is being deleted.
    Leaving {
        /// Who has it.
        owner: Id,
        /// Who is next.
        heir: Option<Id>,
    },
    /// It has no claim or an unknown one, and this DeviceConfig gets it.
    Open(Id),
    /// It has an unknown claim, and no DeviceConfig asks for it.
    Stale,
}

/// Two that ask for the same nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other one.
    pub other: Id,
    /// Which nodes, sorted.
    pub nodes: Vec<String>,
    /// Whether the one who asked got them.
    pub won: bool,
}

/// Who asks for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    label: String,
    all: BTreeMap<Id, Claimant>,
    by_claim: BTreeMap<String, Id>,
    /// Under one label of each selector, those that have it.
    filed: BTreeMap<String, BTreeMap<String, BTreeSet<Id>>>,
    /// Those that ask for all nodes.
    everywhere: BTreeSet<Id>,
    nodes: BTreeMap<Arc<str>, NodeClaim>,
    matching: BTreeMap<Id, BTreeSet<Arc<str>>>,
    holding: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeClaim {
    matched: BTreeSet<Id>,
    claim: Option<Arc<str>>,
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl Id {
    /// The name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Selector {
    /// Whether a node with these labels is asked for.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Labels(wanted) => wanted
                .iter()
                .all(|(key, value)| labels.get(key.as_str()).is_some_and(|there| **there == **value)),
        }
    }

    /// Whether one node could be asked for by both: no label would need two values.
    #[must_use]
    pub fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => false,
            (Self::All, _) | (_, Self::All) => true,
            (Self::Labels(ours), Self::Labels(theirs)) => {
                ours.iter().all(|(key, value)| theirs.get(key).is_none_or(|other| other == value))
            }
        }
    }

    /// The label it is filed under.
    fn file(&self) -> Option<(&String, &String)> {
        match self {
            Self::Labels(wanted) => wanted.first_key_value(),
            Self::None | Self::All => None,
        }
    }
}

impl Claimant {
    /// Who comes first.
    fn seniority(&self) -> (Timestamp, &Id) {
        (self.created, &self.id)
    }
}

impl Verdict {
    /// Who has the node, or gets it.
    #[must_use]
    pub fn winner(&self) -> Option<&Id> {
        match self {
            Self::Held(owner) | Self::Open(owner) => Some(owner),
            Self::Ending { owner, heir } | Self::Leaving { owner, heir } => heir.as_ref().or(Some(owner)),
            Self::Free | Self::Stale => None,
        }
    }
}

impl Claims {
    /// No claimants yet; claims are values of this label.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// A node is new or has these labels now. Says whom that concerns: those who match it, before or now, and whose
    /// claim it has or had.
    pub fn put_node(&mut self, name: &Arc<str>, labels: &Labels) -> BTreeSet<Id> {
        let state =
            NodeClaim { matched: self.asking(labels), claim: labels.get(self.label.as_str()).cloned() };
        let before = self.nodes.get(name);
        if before == Some(&state) {
            return BTreeSet::new();
        }
        let mut concerned = self.take_out(name);
        for id in &state.matched {
            self.matching.entry(id.clone()).or_default().insert(Arc::clone(name));
        }
        concerned.extend(state.matched.iter().cloned());
        if let Some(claim) = &state.claim {
            self.holding.entry(Arc::clone(claim)).or_default().insert(Arc::clone(name));
            concerned.extend(self.by_claim.get(&**claim).cloned());
        }
        self.nodes.insert(Arc::clone(name), state);
        concerned
    }

    /// A node is gone.
    pub fn remove_node(&mut self, name: &Arc<str>) -> BTreeSet<Id> {
        self.take_out(name)
    }

    /// A DeviceConfig is new or changed. Says whom that concerns: itself and those it shares a node with, or might,
    /// before or now.
    pub fn put<'a>(
        &mut self,
        claimant: Claimant,
        nodes: impl Iterator<Item = (&'a Arc<str>, &'a Labels)>,
    ) -> BTreeSet<Id> {
        let id = claimant.id.clone();
        if self.all.get(&id) == Some(&claimant) {
            return BTreeSet::from([id]);
        }
        let mut concerned = self.remove(&id);
        match claimant.selector.file() {
            Some((key, value)) => {
                let values = self.filed.entry(key.clone()).or_default();
                values.entry(value.clone()).or_default().insert(id.clone());
            }
            None if claimant.selector == Selector::All => drop(self.everywhere.insert(id.clone())),
            None => {}
        }
        for (name, labels) in nodes {
            if claimant.selector.matches(labels) {
                self.nodes.entry(Arc::clone(name)).or_default().matched.insert(id.clone());
                self.matching.entry(id.clone()).or_default().insert(Arc::clone(name));
            }
        }
        self.by_claim.insert(claimant.claim.clone(), id.clone());
        self.all.insert(id.clone(), claimant);
        concerned.extend(self.neighbours(&id));
        concerned.insert(id);
        concerned
    }

    /// A DeviceConfig is gone.
    pub fn remove(&mut self, id: &Id) -> BTreeSet<Id> {
        let concerned = self.neighbours(id);
        let Some(claimant) = self.all.remove(id) else { return BTreeSet::new() };
        for name in self.matching.remove(id).unwrap_or_default() {
            if let Some(state) = self.nodes.get_mut(&name) {
                state.matched.remove(id);
            }
        }
        if self.by_claim.get(&claimant.claim) == Some(id) {
            self.by_claim.remove(&claimant.claim);
        }
        self.everywhere.remove(id);
        if let Some((key, value)) = claimant.selector.file()
            && let Some(values) = self.filed.get_mut(key)
        {
            if let Some(ids) = values.get_mut(value) {
                ids.remove(id);
                if ids.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.filed.remove(key);
            }
        }
        concerned
    }

    /// What is to become of a node's claim.
    #[must_use]
    pub fn verdict(&self, node: &str) -> Verdict {
        let Some(state) = self.nodes.get(node) else { return Verdict::Free };
        let heir = self.heir(state);
        let Some(claim) = &state.claim else { return heir.map_or(Verdict::Free, Verdict::Open) };
        match self.by_claim.get(&**claim).and_then(|id| self.all.get(id)) {
            None => heir.map_or(Verdict::Stale, Verdict::Open),
            Some(owner) if owner.leaving => Verdict::Leaving { owner: owner.id.clone(), heir },
            Some(owner) if state.matched.contains(&owner.id) || owner.selector == Selector::None => {
                Verdict::Held(owner.id.clone())
            }
            Some(owner) => Verdict::Ending { owner: owner.id.clone(), heir },
        }
    }

    /// The claim a node has.
    #[must_use]
    pub fn claim_on(&self, node: &str) -> Option<&str> {
        self.nodes.get(node)?.claim.as_deref()
    }

    /// The nodes that match a DeviceConfig, sorted.
    pub fn matching(&self, id: &Id) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.matching.get(id).into_iter().flatten()
    }

    /// The nodes with this claim, sorted.
    pub fn holding(&self, claim: &str) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.holding.get(claim).into_iter().flatten()
    }

    /// Claims on nodes without a known DeviceConfig, sorted.
    pub fn unknown(&self) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.holding.keys().filter(|claim| !self.by_claim.contains_key(&***claim))
    }

    /// Whose claim this is.
    #[must_use]
    pub fn owner(&self, claim: &str) -> Option<&Id> {
        self.by_claim.get(claim)
    }

    /// Whom a node concerns: who matches it, and whose claim it has.
    #[must_use]
    pub fn concerned(&self, node: &str) -> BTreeSet<Id> {
        let Some(state) = self.nodes.get(node) else { return BTreeSet::new() };
        let owner = state.claim.as_deref().and_then(|claim| self.by_claim.get(claim));
        state.matched.iter().chain(owner).cloned().collect()
    }

    /// The others that could ask for a node that this one asks for, sorted, whether there is one or not.
    pub fn may_meet(&self, id: &Id) -> impl Iterator<Item = &Id> + use<'_> {
        let me = self.all.get(id);
        let others = self.all.values().filter(move |other| {
            let stay = |me: &&Claimant| me.id != other.id && !me.leaving && !other.leaving;
            me.filter(stay).is_some_and(|me| me.selector.may_meet(&other.selector))
        });
        others.map(|other| &other.id)
    }

    /// With whom a DeviceConfig is at odds, about which nodes, and who got them; sorted, those it lost first.
    #[must_use]
    pub fn conflicts(&self, id: &Id) -> Vec<Conflict> {
        let mut lost: BTreeMap<Id, Vec<String>> = BTreeMap::new();
        let mut won: BTreeMap<Id, Vec<String>> = BTreeMap::new();
        for name in self.matching(id) {
            let Some(state) = self.nodes.get(name) else { continue };
            let rivals = state.matched.iter().filter(|other| {
                *other != id && self.all.get(other).is_some_and(|claimant| !claimant.leaving)
            });
            let mut rivals = rivals.peekable();
            if rivals.peek().is_none() {
                continue;
            }
            match self.verdict(name).winner() {
                Some(winner) if winner == id => {
                    rivals.for_each(|other| won.entry(other.clone()).or_default().push(name.to_string()));
                }
                Some(winner) => lost.entry(winner.clone()).or_default().push(name.to_string()),
                None => {}
            }
        }
        let told = |won| move |(other, nodes)| Conflict { other, nodes, won };
        lost.into_iter().map(told(false)).chain(won.into_iter().map(told(true))).collect()
    }

    /// Those whose selector has a label in common with these, or asks for all, and that match.
    fn asking(&self, labels: &Labels) -> BTreeSet<Id> {
        let filed = labels.iter().filter_map(|(key, value)| self.filed.get(&**key)?.get(&**value));
        let candidates = filed.flatten().chain(&self.everywhere);
        candidates
            .filter(|id| self.all.get(id).is_some_and(|claimant| claimant.selector.matches(labels)))
            .cloned()
            .collect()
    }

    /// The oldest that asks for a node and stays.
    fn heir(&self, state: &NodeClaim) -> Option<Id> {
        let staying = state.matched.iter().filter_map(|id| self.all.get(id)).filter(|one| !one.leaving);
        staying.min_by_key(|claimant| claimant.seniority()).map(|claimant| claimant.id.clone())
    }

    /// Those who share a node with this one, or might.
    fn neighbours(&self, id: &Id) -> BTreeSet<Id> {
        let claim = self.all.get(id).map_or("", |claimant| claimant.claim.as_str());
        let nodes = self.matching(id).chain(self.holding(claim));
        let mut all: BTreeSet<Id> = nodes.flat_map(|node| self.concerned(node)).collect();
        all.extend(self.may_meet(id).cloned());
        all.remove(id);
        all
    }

    fn take_out(&mut self, name: &Arc<str>) -> BTreeSet<Id> {
        let concerned = self.concerned(name);
        let Some(state) = self.nodes.remove(name) else { return concerned };
        for id in &state.matched {
            if let Some(nodes) = self.matching.get_mut(id) {
                nodes.remove(name);
                if nodes.is_empty() {
                    self.matching.remove(id);
                }
            }
        }
        if let Some(claim) = &state.claim
            && let Some(nodes) = self.holding.get_mut(claim)
        {
            nodes.remove(name);
            if nodes.is_empty() {
                self.holding.remove(claim);
            }
        }
        concerned
    }
}

#[cfg(test)]
mod tests;
