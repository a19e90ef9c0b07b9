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

/// Something a watch said.
#[derive(Debug)]
pub(super) enum Change {
    Pod(watch::Event<Pod>),
    Node(watch::Event<Node>),
    Report(watch::Event<NodeResourceTopology>),
}

/// Holds back until all is there, then translates.
#[derive(Debug)]
pub(super) struct Intake {
    waiting: Waiting,
    synced: bool,
    metrics: Metrics,
    /// What was said about a report last, so that a broken one is complained about once per version.
    complaints: BTreeMap<String, String>,
}

/// First lists, and what came after the first of them.
#[derive(Debug, Default)]
struct Waiting {
    pods: Option<Vec<Event>>,
    nodes: Option<Vec<Event>>,
    reports: Option<Vec<Event>>,
}

impl Intake {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { waiting: Waiting::default(), synced: false, metrics, complaints: BTreeMap::new() }
    }

    /// Whether everything that exists has been told.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Translates a change; nothing while the first lists are incomplete, then everything at once.
    pub(super) fn take(&mut self, change: Change) -> Vec<Event> {
        let (events, list): (_, fn(&mut Waiting) -> &mut Option<Vec<Event>>) = match change {
            Change::Pod(event) => (pod(event), |w| &mut w.pods),
            Change::Node(event) => (node(event), |w| &mut w.nodes),
            Change::Report(event) => (self.report(event), |w| &mut w.reports),
        };
        if self.synced {
            return events;
        }
        list(&mut self.waiting).get_or_insert_default().extend(events);
        let waiting = &mut self.waiting;
        match (waiting.nodes.take(), waiting.pods.take(), waiting.reports.take()) {
            (Some(mut nodes), Some(pods), Some(reports)) => {
                self.synced = true;
                // Reports last: they are understood from the pods.
                nodes.extend(pods);
                nodes.extend(reports);
                nodes
            }
            (nodes, pods, reports) => {
                *waiting = Waiting { pods, nodes, reports };
                vec![]
            }
        }
    }

    fn report(&mut self, event: watch::Event<NodeResourceTopology>) -> Vec<Event> {
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
                vec![Event::ReportGone(key.name.as_ref().into())]
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
                Event::ReportGone(name)
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

fn pod(event: watch::Event<Pod>) -> Vec<Event> {
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

fn node(event: watch::Event<Node>) -> Vec<Event> {
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
