//! Readiness: a process is ready once all of its gates are open.
//!
//! In: one named gate for each condition of readiness. Out: the gates that are still closed. Never: unready again; a
//! condition that can fail later is a health check (`http`).
//!
//! ```
//! use runtime::ready::Readiness;
//!
//! let readiness = Readiness::default();
//! let pods = readiness.gate("pods");
//! assert_eq!(readiness.check(), Err("waiting for pods".to_owned()));
//! pods.open();
//! assert_eq!(readiness.check(), Ok(()));
//! ```

use std::collections::BTreeSet;
use tokio::sync::watch;

/// The set of gates of one process.
#[derive(Debug, Clone)]
pub struct Readiness {
    closed: watch::Sender<BTreeSet<String>>,
}

/// One condition of readiness. A gate that is dropped without [`Gate::open`] stays closed.
#[derive(Debug)]
pub struct Gate {
    name: String,
    closed: watch::Sender<BTreeSet<String>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { closed: watch::Sender::new(BTreeSet::new()) }
    }
}

impl Readiness {
    /// Adds a closed gate. Two gates of one name are one gate: the first to open opens it.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let name = name.into();
        self.closed.send_if_modified(|closed| closed.insert(name.clone()));
        Gate { name, closed: self.closed.clone() }
    }

    /// The names of the gates still closed, in order.
    pub fn closed(&self) -> Vec<String> {
        self.closed.borrow().iter().cloned().collect()
    }

    /// Returns once no gate is closed.
    pub async fn opened(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.closed.subscribe().wait_for(BTreeSet::is_empty).await;
    }

    /// `Ok` when every gate is open, in the form of a health check.
    ///
    /// # Errors
    /// The names of the gates that are still closed.
    pub fn check(&self) -> Result<(), String> {
        match self.closed() {
            closed if closed.is_empty() => Ok(()),
            closed => Err(format!("waiting for {}", closed.join(", "))),
        }
    }
}

impl Gate {
    /// Opens the gate. Further calls do nothing.
    pub fn open(&self) {
        self.closed.send_if_modified(|closed| closed.remove(&self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_when_all_gates_are_open() {
        let readiness = Readiness::default();
        let (pods, nodes) = (readiness.gate("pods"), readiness.gate("nodes"));
        assert_eq!(readiness.check(), Err("waiting for nodes, pods".to_owned()));
        pods.open();
        pods.open();
        assert_eq!(readiness.closed(), ["nodes"]);
        let waiter = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.opened().await }
        });
        nodes.open();
        waiter.await.unwrap();
        assert_eq!(readiness.check(), Ok(()));
    }

    #[test]
    fn a_dropped_gate_stays_closed() {
        let readiness = Readiness::default();
        drop(readiness.gate("index"));
        assert_eq!(readiness.closed(), ["index"]);
    }
}
