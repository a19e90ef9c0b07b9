//! What the controllers have in common: from the world to changes to a status.
//!
//! In: the world, a controller. Out: changes made, status written. Never: a rule about what should be there.

use std::sync::Arc;

use kube::Client;
use prometheus_client::registry::Registry;
use runtime::events::Recorder;
use tokio_util::sync::CancellationToken;

use crate::live::Key;

pub mod shared;

pub use shared::{Shared, Wake};

/// What came of the changes of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What could not be done, one line each, for people.
    pub errors: Vec<String>,
    /// What was done, in the order in which it was planned.
    pub changed: Vec<Changed>,
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// To which object.
    pub key: Key,
    /// What.
    pub action: Action,
}

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was made.
    Created,
    /// It says something new, because something new is wanted.
    Updated,
    /// It says again what it had said.
    Repaired,
    /// It was deleted and made anew, since it could not be changed.
    Recreated,
    /// It was deleted.
    Deleted,
    /// Nothing: it is somebody else's.
    Refused,
}

/// The controllers at work.
pub struct Engine {
    shared: Arc<Shared>,
    client: Client,
    recorder: Recorder,
}

impl Engine {
    /// Controllers that work on a world, with metrics in `registry`. `client` should be one of those that give up
    /// ([`runtime::client::Connection::strict`]).
    pub fn new(shared: Arc<Shared>, client: Client, recorder: Recorder, _registry: &mut Registry) -> Self {
        Self { shared, client, recorder }
    }

    /// Works until it is stopped. To be called once everything has been seen that [`Shared`] is to hold, and only while leading.
    /// It may be called again.
    pub async fn run(&self, cancel: CancellationToken) {
        let _ = (&self.shared, &self.client, &self.recorder);
        cancel.cancelled().await;
    }
}
