//! Watch events into core events.
//!
//! In: what the three watches say. Out: [`Event`]s in an order the ledger can learn from. Never: an event before all three
//! watches have said what there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Node, Pod};
use runtime::watch::{self, Key};

use crate::core::Event;
use crate::metrics::Metrics;
use crate::node::NodeView;
use crate::pod::PodView;

/// Which watch speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    // In the order in which the first lists are handed on: reports last, they are understood from the pods.
    Nodes,
    Pods,
    Reports,
}

/// What a watch said, translated where it was heard, so that no whole object waits in a queue.
pub(super) type Change = (Source, Vec<Event>);

/// Holds back until all is there.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// First lists, and what came after the first of them.
    waiting: BTreeMap<Source, Vec<Event>>,
    synced: bool,
}

/// Reads reports, and complains about those that cannot be read.
#[derive(Debug)]
pub(super) struct Reports {
    metrics: Metrics,
    /// What was said about a report last, so that a broken one is complained about once per version.
    complaints: BTreeMap<String, String>,
}

/// Number of watches.
const SOURCES: usize = 3;

impl Intake {
    /// Whether everything that exists has been told.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Hands a change on; nothing while the first lists are incomplete, then everything at once.
    pub(super) fn take(&mut self, (source, events): Change) -> Vec<Event> {
        if self.synced {
            return events;
        }
        self.waiting.entry(source).or_default().extend(events);
        if self.waiting.len() < SOURCES {
            return vec![];
        }
        self.synced = true;
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }
}

impl Reports {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, complaints: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, event: watch::Event<NodeResourceTopology>) -> Vec<Event> {
        match event {
            watch::Event::Reset { objects, vanished } => {
                let gone = vanished.into_iter().map(|key| Event::ReportGone(key.name.as_ref().into()));
                let gone: Vec<_> = gone.collect();
                let read: Vec<_> = objects.iter().map(|object| self.read(object)).collect();
                gone.into_iter().chain(read).collect()
            }
            watch::Event::Applied(object) => vec![self.read(&object)],
            watch::Event::Deleted(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.complaints.remove(&name);
                vec![Event::ReportGone(name.into())]
            }
            watch::Event::Unreadable { key, reason } => {
                self.complain(&key.name, reason);
                vec![Event::ReportUnreadable(key.name.as_ref().into())]
            }
        }
    }

    fn read(&mut self, object: &NodeResourceTopology) -> Event {
        let name: Arc<str> = object.metadata.name.as_deref().unwrap_or_default().into();
        match api::convert::node_topology(object) {
            Ok((topology, warnings)) => {
                if warnings.is_empty() {
                    self.complaints.remove(name.as_ref());
                } else {
                    let text: Vec<_> = warnings.iter().map(ToString::to_string).collect();
                    self.complain(&name, text.join("; "));
                }
                Event::Report(name, Arc::new(topology))
            }
            Err(error) => {
                self.complain(&name, error.to_string());
                self.metrics.unusable_report();
                Event::ReportUnreadable(name)
            }
        }
    }

    fn complain(&mut self, name: &str, reason: String) {
        if self.complaints.get(name) != Some(&reason) {
            tracing::warn!(node = name, reason, "NodeResourceTopology object is not what it should be");
            self.complaints.insert(name.to_owned(), reason);
        }
    }
}

/// What the watch of pods says.
pub(super) fn pod(event: watch::Event<Pod>) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects, vanished } => {
            let mut views: Vec<_> = objects.iter().map(PodView::read).collect();
            // Bound pods the kubelet has not taken in yet were bound in the order of their versions: nothing but the
            // binding has changed them since.
            views.sort_by_key(|view| view.version);
            let gone = vanished.into_iter().map(|key: Key| Event::PodVanished(key.uid.as_ref().into()));
            gone.chain(views.into_iter().map(Event::Pod)).collect()
        }
        watch::Event::Applied(pod) => vec![Event::Pod(PodView::read(&pod))],
        watch::Event::Deleted(pod) => vec![Event::PodGone(PodView::read(&pod))],
        watch::Event::Unreadable { key, reason } => {
            tracing::warn!(pod = %key, reason, "pod cannot be read");
            vec![]
        }
    }
}

/// What the watch of nodes says.
pub(super) fn node(event: watch::Event<Node>) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects, vanished } => {
            let gone = vanished.into_iter().map(|key| Event::NodeGone(key.name.as_ref().into()));
            gone.chain(objects.iter().map(|node| Event::Node(NodeView::read(node)))).collect()
        }
        watch::Event::Applied(node) => vec![Event::Node(NodeView::read(&node))],
        watch::Event::Deleted(node) => vec![Event::NodeGone(node.metadata.name.unwrap_or_default().into())],
        watch::Event::Unreadable { key, reason } => {
            tracing::warn!(node = %key, reason, "node cannot be read");
            vec![Event::NodeGone(key.name.as_ref().into())]
        }
    }
}
