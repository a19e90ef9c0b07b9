//! Conflicts between DeviceConfigs that ask for the same nodes.
//!
//! In: the table of [`Claims`]. Out: [`Conflict`]s, and DeviceConfigs whose selectors could overlap. Never: a conflict
//! with a DeviceConfig that is being deleted.

use std::collections::BTreeMap;

use super::{Claimant, Claims, Id};

/// Nodes that two DeviceConfigs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other DeviceConfig.
    pub other: Id,
    /// The nodes, sorted.
    pub nodes: Vec<String>,
    /// This DeviceConfig has the nodes, not the other one.
    pub won: bool,
}

impl Claims {
    /// The other DeviceConfigs that could match a node of this one, sorted.
    pub fn may_overlap(&self, id: &Id) -> impl Iterator<Item = &Id> + use<'_> {
        let this = self.configs.get(id).filter(|this| !this.deleting);
        let overlaps = move |other: &&Claimant| {
            let is_rival = |this: &&Claimant| this.id != other.id && !other.deleting;
            this.filter(is_rival).is_some_and(|this| this.selector.may_overlap(&other.selector))
        };
        self.configs.values().filter(overlaps).map(|other| &other.id)
    }

    /// The conflicts of a DeviceConfig: lost ones first, then by the other one's name.
    #[must_use]
    pub fn conflicts(&self, id: &Id) -> Vec<Conflict> {
        let is_rival =
            |other: &&Id| *other != id && self.configs.get(*other).is_some_and(|one| !one.deleting);
        let mut conflicts = BTreeMap::<(bool, Id), Vec<String>>::new();
        for name in self.matching(id) {
            let Some(node) = self.nodes.get(name) else { continue };
            let rivals: Vec<&Id> = node.matched.iter().filter(is_rival).collect();
            let winner = self.assignment(name).final_owner().filter(|_| !rivals.is_empty());
            let Some(winner) = winner else { continue };
            let won = winner == *id;
            for other in if won { rivals } else { vec![&winner] } {
                conflicts.entry((won, other.clone())).or_default().push(name.to_string());
            }
        }
        let conflict = |((won, other), nodes)| Conflict { other, nodes, won };
        conflicts.into_iter().map(conflict).collect()
    }
}
