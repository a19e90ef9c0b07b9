//! The cluster under test.
//!
//! In: a client, settings. Out: what all specs share: the observed state, the facts, the record of changes. Never: a
//! state of one spec; [`crate::fixture`] has that.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use runtime::client::ClusterArgs;

use crate::facts::Facts;
use crate::observed::Observer;
use crate::pods::Images;
use crate::undo::Undo;

/// The namespace of the suite.
pub const NAMESPACE: &str = "tholepin-e2e";

/// How the suite behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest wait for one condition.
    pub patience: Duration,
    /// The longest wait for all machines of a pool, which reboot one after the other.
    pub rollout: Duration,
    /// The programs of pods.
    pub images: Images,
    /// The node that is preferred where one is chosen.
    pub target_node: Option<String>,
    /// Another reference of an image with the stack's programs, to which specs change its pods.
    pub other_image: Option<String>,
    /// The cluster, as flags of tools name it.
    pub access: ClusterArgs,
}

/// The cluster under test.
pub struct Cluster {
    /// The client of all specs.
    pub client: Client,
    /// The client of watches, which may be silent for long.
    pub watches: Client,
    /// Nodes, pods, reports and events.
    pub observer: Observer,
    /// What the cluster can do.
    pub facts: Facts,
    /// How the suite behaves.
    pub settings: Settings,
    /// Changes of objects that were there before.
    pub undo: Arc<Undo>,
}
