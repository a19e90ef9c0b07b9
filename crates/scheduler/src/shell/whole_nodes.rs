//! Nodes as the API server has them, for extenders that do not know the nodes themselves.
//!
//! In: a watch of nodes. Out: whole objects by name. Never: where no extender needs them; the core keeps a small part.

use std::collections::BTreeMap;
use std::convert::Infallible;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher;
use runtime::client::Connection;
use runtime::shutdown::Tasks;
use runtime::watch::{self, Event};
use serde_json::Value;
use tokio::sync::watch as channel;

/// The nodes; `None` before the first list.
type Nodes = Option<BTreeMap<String, Value>>;

/// A reader of the nodes.
#[derive(Clone, Debug)]
pub(super) struct WholeNodes(channel::Receiver<Nodes>);

impl WholeNodes {
    /// Starts the watch.
    pub(super) fn spawn(
        tasks: &mut Tasks,
        connection: &Connection,
        metrics: &watch::Metrics,
    ) -> anyhow::Result<Self> {
        let (sender, receiver) = channel::channel(None);
        let (api, metrics) = (Api::<Node>::all(connection.watch_client()?), metrics.clone());
        tasks.spawn("watch whole nodes", async move {
            let sink = |event| sender.send_modify(|nodes| take(nodes.get_or_insert_default(), event));
            Ok::<_, Infallible>(watch::run(api, watcher::Config::default(), &metrics, sink).await)
        });
        Ok(Self(receiver))
    }

    /// These nodes, once there is a first list.
    ///
    /// # Errors
    /// The first node that is not known, or the end of the watch.
    pub(super) async fn of(&self, names: &[impl AsRef<str>]) -> Result<Vec<Value>, String> {
        let mut receiver = self.0.clone();
        let nodes = receiver.wait_for(Option::is_some).await.map_err(|_| "the watch of nodes has ended")?;
        let known = |name: &str| nodes.as_ref()?.get(name).cloned();
        let names = names.iter().map(AsRef::as_ref);
        names.map(|name| known(name).ok_or_else(|| format!("node {name:?} is not known yet"))).collect()
    }
}

fn take(nodes: &mut BTreeMap<String, Value>, event: Event<Node>) {
    match event {
        Event::Reset { objects, .. } => {
            nodes.clear();
            objects.into_iter().for_each(|node| apply(nodes, node));
        }
        Event::Applied(node) => apply(nodes, node),
        Event::Deleted(node) => drop(nodes.remove(&node.metadata.name.unwrap_or_default())),
        Event::Unreadable { key, .. } => drop(nodes.remove(&*key.name)),
    }
}

/// As kube-scheduler's informers, without managed fields.
fn apply(nodes: &mut BTreeMap<String, Value>, mut node: Node) {
    node.metadata.managed_fields = None;
    let name = node.metadata.name.clone().unwrap_or_default();
    if let Ok(object) = serde_json::to_value(node) {
        nodes.insert(name, object);
    }
}
