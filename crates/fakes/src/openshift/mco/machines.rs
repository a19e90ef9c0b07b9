//! What changes machines.
//!
//! In: a node, fields of its kubelet's configuration. Out: a machine that has rebooted with them. Never: a change of
//! the cluster's objects.

use anyhow::Context as _;
use serde_json::{Map, Value};
use testkit::cluster::Cluster;
use tokio::runtime::Handle;

/// The machines behind nodes.
pub trait Machines: Send + Sync + 'static {
    /// Reboots a drained machine with these fields over its kubelet's own configuration, and returns when it is ready.
    /// It is called on a thread that may block, of a runtime.
    ///
    /// # Errors
    /// The reason why the node is degraded.
    fn reboot(&self, node: &str, kubelet: &Map<String, Value>) -> anyhow::Result<()>;
}

impl Machines for Cluster {
    fn reboot(&self, node: &str, kubelet: &Map<String, Value>) -> anyhow::Result<()> {
        let machine = self.nodes().iter().find(|machine| machine.name() == node);
        Handle::current().block_on(machine.with_context(|| format!("no machine {node}"))?.reboot(kubelet))
    }
}
