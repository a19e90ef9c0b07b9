//! The heartbeats of hollow nodes: renewals of their leases, and now and then their statuses.
//!
//! In: the nodes, a period. Out: calls, spread evenly over the period. Never: a retry; the next heartbeat is one.
//!
//! Cost: nodes / period calls a second, 16 at a time. A kubelet renews its lease every ten seconds; here it is as rare
//! as the node lifecycle controller allows.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tracing::debug;

use super::nodes::{RegisteredNode, write_lease};
use crate::heartbeat::Turns;
use crate::metrics::Metrics;
use crate::status;

/// The time between two writes of a node's status (`nodeStatusReportFrequency` of the kubelet).
pub(super) const STATUS: Duration = Duration::from_secs(300);
/// Turns are taken together that come so close to each other, so that the process sleeps between them.
const TICK: Duration = Duration::from_millis(100);
/// Calls at a time.
const CALLS: usize = 16;

/// A kind of heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heartbeat {
    /// The node's lease is renewed.
    Lease,
    /// The node's status is written.
    Status,
}

/// Writes heartbeats.
#[derive(Clone)]
pub(super) struct Heartbeats {
    client: Client,
    nodes: Arc<Vec<RegisteredNode>>,
    metrics: Metrics,
}

impl Heartbeats {
    pub(super) fn new(client: Client, nodes: Arc<Vec<RegisteredNode>>, metrics: Metrics) -> Self {
        Self { client, nodes, metrics }
    }

    /// Writes a heartbeat of each node once in a period, for ever.
    pub(super) async fn run(self, heartbeat: Heartbeat, period: Duration) -> Infallible {
        let (began, mut turns) = (Instant::now(), Turns::new(period, self.nodes.len()));
        loop {
            tokio::time::sleep(turns.spacing().max(TICK)).await;
            let due: Vec<usize> = turns.due(began.elapsed()).collect();
            let calls = due.into_iter().map(|at| self.write(heartbeat, at));
            futures::stream::iter(calls).buffer_unordered(CALLS).collect::<()>().await;
        }
    }

    async fn write(&self, heartbeat: Heartbeat, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        let result = match heartbeat {
            Heartbeat::Lease => write_lease(&self.client, node).await,
            Heartbeat::Status => {
                let patch = Patch::Strategic(status::node_heartbeat(Timestamp::now()));
                let api = Api::<Node>::all(self.client.clone());
                api.patch_status(&node.name, &PatchParams::default(), &patch).await.map(drop)
            }
        };
        self.metrics.wrote(if heartbeat == Heartbeat::Lease { "lease" } else { "node" }, result.is_ok());
        if let Err(error) = result {
            debug!(node = %node.name, ?heartbeat, "heartbeat: {}", runtime::client::brief(&error));
        }
    }
}
