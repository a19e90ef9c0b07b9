//! Keeps [`ServerState`] up to date, while the object may be watched.
//!
//! In: the API server's watch of one object. Out: [`ServerState`]. Never: an immediate retry of a refused watch: 5,000
//! exporters with a peer's role would flood the server with them.

use std::convert::Infallible;
use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use kube::Api;
use kube::core::DeserializeGuard;
use runtime::backoff::Backoff;
use tokio::sync::watch;
use tracing::{debug, info};

use super::ServerState;
use super::access::{REFUSAL_MAX, REFUSAL_MIN};

/// Watches the object of this name for ever.
pub async fn watch(
    objects: Api<DeserializeGuard<NodeResourceTopology>>,
    name: &str,
    metrics: &runtime::watch::Metrics,
    known: Arc<watch::Sender<ServerState>>,
) -> Infallible {
    let own = kube::runtime::watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut believed = Backoff::new(REFUSAL_MIN, REFUSAL_MAX);
    let mut told = false;
    loop {
        let take = |event| {
            known.send_if_modified(|known| known.take(event));
        };
        let refusal = runtime::watch::run_while_allowed::<NodeResourceTopology>(
            objects.clone(),
            own.clone(),
            metrics,
            take,
        );
        let refusal = refusal.await;
        if told {
            debug!(refusal, "watching is still not allowed");
        } else {
            info!(
                refusal,
                "not allowed to watch the object, reading it at each --sleep-interval instead; \
                 for immediate repairs, grant verbs list and watch on \
                 noderesourcetopologies.topology.node.k8s.io in a ClusterRole"
            );
            told = true;
        }
        known.send_if_modified(|known| !std::mem::replace(&mut known.unwatched, true));
        tokio::time::sleep(believed.next_delay()).await;
    }
}
