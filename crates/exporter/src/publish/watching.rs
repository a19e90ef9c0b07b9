//! Keeps [`Known`] up to date, as long as we may watch.
//!
//! In: the API server's watch of one object. Out: [`Known`]. Never: a watch that was refused, again at once: 5,000 exporters
//! with a peer's role would ask the server for nothing else.

use std::convert::Infallible;
use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use kube::Api;
use kube::core::DeserializeGuard;
use runtime::backoff::Backoff;
use tokio::sync::watch;
use tracing::{debug, info};

use super::Known;
use super::access::{BELIEVED_MAX, BELIEVED_MIN};

/// Watches the object of this name for ever.
pub async fn watch(
    objects: Api<DeserializeGuard<NodeResourceTopology>>,
    name: &str,
    metrics: &runtime::watch::Metrics,
    known: Arc<watch::Sender<Known>>,
) -> Infallible {
    let own = kube::runtime::watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut believed = Backoff::new(BELIEVED_MIN, BELIEVED_MAX);
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
            debug!(refusal, "still not allowed to watch");
        } else {
            info!(
                refusal,
                "not allowed to watch our object, so it is read at each --sleep-interval instead; verbs list and watch on \
                 noderesourcetopologies.topology.node.k8s.io in a ClusterRole would have it repaired at once"
            );
            told = true;
        }
        known.send_if_modified(|known| !std::mem::replace(&mut known.blind, true));
        tokio::time::sleep(believed.next_delay()).await;
    }
}
