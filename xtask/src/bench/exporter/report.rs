//! The newest NRT object of each node, as a watch shows it.
//!
//! In: a watch. Out: how many CPUs it says are left, and since when. Never: an older state after a newer one.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use api::nrt::NodeResourceTopology;
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What one object says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    /// CPUs available in all zones together, in thousandths.
    pub(super) cpus: i64,
    /// When the watch delivered it.
    pub(super) at: SystemTime,
}

/// The watch; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reports {
    nodes: BTreeMap<String, watch::Receiver<Option<Report>>>,
    task: JoinHandle<()>,
}

impl Reports {
    /// Watches the objects of these nodes.
    pub(super) fn watch<'a>(client: Client, nodes: impl IntoIterator<Item = &'a str>) -> Self {
        let (senders, nodes): (BTreeMap<_, _>, BTreeMap<_, _>) = nodes
            .into_iter()
            .map(|node| {
                let (sender, receiver) = watch::channel(None);
                ((node.to_owned(), sender), (node.to_owned(), receiver))
            })
            .unzip();
        let mut objects = watcher(Api::<NodeResourceTopology>::all(client), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        let task = tokio::spawn(async move {
            while let Some(object) = objects.next().await {
                let at = SystemTime::now();
                let Ok(object) = object else { continue };
                let Some(sender) = object.metadata.name.as_ref().and_then(|name| senders.get(name)) else {
                    continue;
                };
                if let Ok(cpus) = cpus(&object) {
                    sender.send_replace(Some(Report { cpus, at }));
                }
            }
        });
        Self { nodes, task }
    }

    /// Waits until a node's object says something that passes `test`.
    pub(super) async fn wait(
        &self,
        node: &str,
        within: Duration,
        test: impl Fn(i64) -> bool,
    ) -> anyhow::Result<Report> {
        let mut receiver = self.nodes.get(node).with_context(|| format!("{node} is not watched"))?.clone();
        let passes = |report: &Option<Report>| report.is_some_and(|report| test(report.cpus));
        let waited = tokio::time::timeout(within, receiver.wait_for(passes)).await;
        let last = || format!("{node}: the report never came; the last one was {:?}", self.last(node));
        let report = waited.with_context(last)?.context("the watch ended")?;
        report.with_context(last)
    }

    fn last(&self, node: &str) -> Option<Report> {
        *self.nodes.get(node)?.borrow()
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// CPUs available in all zones, in thousandths.
pub(in crate::bench) fn cpus(report: &NodeResourceTopology) -> anyhow::Result<i64> {
    let (topology, _) = api::convert::node_topology(report)?;
    let resources = topology.zones.iter().flat_map(|zone| &zone.resources);
    Ok(resources.filter(|r| r.name.as_str() == "cpu").map(|r| r.available).sum())
}
