//! Claims: the owner of each node.
//!
//! In: DeviceConfigs as [`Claimant`]s, labels of nodes. Out: for each node an [`Assignment`], and the DeviceConfigs
//! that a change affects. Never: a write, a clock, a look at the pods of a node.
//!
//! A node has one claim, the label [`api::hardware::keys::LABEL_DRIVER`], which is the only selector of a Module. So no
//! node is ever in two Modules. The owner of a claim keeps the node as long as its selector matches. A free node goes
//! to the oldest DeviceConfig that matches, then to the first by namespace and name. Each node is decided by itself
//! from the present state; the order of past events has no influence.
//!
//! Cost: a change of a node looks at the DeviceConfigs that share a label with it. A new or changed DeviceConfig looks
//! at all nodes, and at all other DeviceConfigs for overlapping selectors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

mod claims;
mod conflicts;

pub use claims::{Assignment, Claims};
pub use conflicts::Conflict;

/// Labels of a node.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The nodes that a DeviceConfig asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Unknown: no new nodes; claimed nodes stay.
    None,
    /// All nodes.
    All,
    /// Nodes with all of these labels.
    Labels(BTreeMap<String, String>),
}

/// The fields of a DeviceConfig that decide about claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Namespace and name.
    pub id: Id,
    /// The value of the claim label.
    pub claim: String,
    /// The creation time; the oldest DeviceConfig comes first.
    pub created: Timestamp,
    /// The nodes that it asks for.
    pub selector: Selector,
    /// Deletion has begun: no more nodes; claimed nodes are released once the Module is gone.
    pub deleting: bool,
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl Id {
    /// The id of this namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Selector {
    /// Whether a node with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Labels(wanted) => {
                let has = |(key, value): (&String, &String)| {
                    labels.get(key.as_str()).is_some_and(|label| **label == **value)
                };
                wanted.iter().all(has)
            }
        }
    }

    /// Whether one node could match both selectors: no label needs two values.
    #[must_use]
    pub fn may_overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => false,
            (Self::All, _) | (_, Self::All) => true,
            (Self::Labels(one), Self::Labels(other)) => {
                one.iter().all(|(key, value)| other.get(key).is_none_or(|label| label == value))
            }
        }
    }
}

#[cfg(test)]
mod tests;
