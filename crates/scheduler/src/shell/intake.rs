//! Core events from watch events.
//!
//! In: events of the watches. Out: [`Event`]s in an order that the ledger can follow. Never: an event before all
//! watches have delivered their first lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use runtime::watch::{self, Key};
use topology::zone::NodeTopology;

use crate::budget::BudgetView;
use crate::core::Event;
use crate::default_selector::{SelectingKey, SelectingKind, SelectingView};
use crate::devices::Change as DeviceChange;
use crate::metrics::Metrics;
use crate::namespace::NamespaceView;
use crate::node::NodeView;
use crate::pod::PodView;
use crate::pod_group::PodGroupView;
use crate::volumes::Change as VolumeChange;

/// The watch behind a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    // The first lists are delivered in this order: reports last, because the ledger explains them by the pods.
    Nodes,
    Namespaces,
    Services,
    ReplicationControllers,
    ReplicaSets,
    StatefulSets,
    PodGroups,
    Pods,
    Budgets,
    /// A kind of storage, by the name of its watch.
    Volumes(&'static str),
    /// A kind of devices, by the name of its watch.
    Devices(&'static str),
    Reports,
}

/// A watch event as core events. Watches translate their objects themselves, so that no whole object waits in a queue.
pub(super) type Change = (Source, Vec<Event>);

/// Holds events back until all first lists are complete.
#[derive(Debug)]
pub(super) struct Intake {
    /// How many watches there are.
    watches: usize,
    /// First lists, and the changes that followed them.
    waiting: BTreeMap<Source, Vec<Event>>,
    synced: bool,
}

/// Events that came together, in their order. Of the reports of a node only the newest is left: it holds all that the
/// others said, as after a watch that was interrupted. Cost: log(nodes) for each report.
#[derive(Debug, Default)]
pub(super) struct Burst {
    /// `None`: a report that a newer one has replaced.
    events: Vec<Option<Event>>,
    /// The place of each node's report.
    reports: BTreeMap<Arc<str>, usize>,
}

/// A report, made small as it arrives: a first list holds those of all nodes at once.
#[derive(Clone, Debug)]
pub(super) struct ReportView {
    /// The node.
    name: Arc<str>,
    /// What it says, with what was left out of it; or why it cannot be used.
    topology: Result<(Arc<NodeTopology>, Vec<String>), String>,
}

impl ReportView {
    pub(super) fn read(object: &NodeResourceTopology) -> Self {
        let name = object.metadata.name.as_deref().unwrap_or_default().into();
        let topology = match api::convert::node_topology(object) {
            Ok((topology, warnings)) => {
                Ok((Arc::new(topology), warnings.iter().map(ToString::to_string).collect()))
            }
            Err(error) => Err(error.to_string()),
        };
        Self { name, topology }
    }
}

/// Makes events of reports, and logs a warning about each that cannot be read.
#[derive(Debug)]
pub(super) struct ReportReader {
    metrics: Metrics,
    /// The last warning about each report, so that a warning is logged once until it changes.
    warnings_given: BTreeMap<String, String>,
}

impl Intake {
    /// Waits for the first lists of so many watches.
    pub(super) fn new(watches: usize) -> Self {
        Self { watches, waiting: BTreeMap::new(), synced: false }
    }

    /// Whether all first lists have been delivered.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Passes a change on; nothing while the first lists are incomplete, then everything at once.
    pub(super) fn take(&mut self, (source, events): Change) -> Vec<Event> {
        if self.synced {
            return events;
        }
        self.waiting.entry(source).or_default().extend(events);
        if self.waiting.len() < self.watches {
            return vec![];
        }
        self.synced = true;
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }
}

impl Burst {
    /// Adds events.
    pub(super) fn extend(&mut self, events: Vec<Event>) {
        for event in events {
            if let Event::Report(node, _) = &event
                && let Some(older) = self.reports.insert(Arc::clone(node), self.events.len())
                && let Some(replaced) = self.events.get_mut(older)
            {
                *replaced = None;
            }
            self.events.push(Some(event));
        }
    }

    pub(super) fn into_events(self) -> impl Iterator<Item = Event> {
        self.events.into_iter().flatten()
    }
}

impl ReportReader {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, warnings_given: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, event: watch::Event<ReportView>) -> Vec<Event> {
        match event {
            watch::Event::Reset { objects, vanished, served } => {
                let gone = vanished.into_iter().map(|key| Event::ReportGone(key.name.as_ref().into()));
                let mut events: Vec<_> = gone.chain([Event::ReportsServed(served)]).collect();
                events.extend(objects.into_iter().map(|report| self.event(report)));
                events
            }
            watch::Event::Applied(report) => vec![self.event(report)],
            watch::Event::Deleted(report) => {
                self.warnings_given.remove(report.name.as_ref());
                vec![Event::ReportGone(report.name)]
            }
            watch::Event::Unreadable { key, reason } => {
                self.warn_once(&key.name, reason);
                vec![Event::ReportUnreadable(key.name.as_ref().into())]
            }
        }
    }

    fn event(&mut self, ReportView { name, topology }: ReportView) -> Event {
        match topology {
            Ok((topology, warnings)) => {
                if warnings.is_empty() {
                    self.warnings_given.remove(name.as_ref());
                } else {
                    self.warn_once(&name, warnings.join("; "));
                }
                Event::Report(name, topology)
            }
            Err(reason) => {
                self.warn_once(&name, reason);
                self.metrics.unusable_report();
                Event::ReportUnreadable(name)
            }
        }
    }

    fn warn_once(&mut self, name: &str, reason: String) {
        if self.warnings_given.get(name) != Some(&reason) {
            tracing::warn!(node = name, reason, "invalid NodeResourceTopology object");
            self.warnings_given.insert(name.to_owned(), reason);
        }
    }
}

/// Core events of the watch of pods.
pub(super) fn pod(event: watch::Event<PodView>) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects: mut views, vanished, .. } => {
            // Bound pods that no kubelet has admitted yet were bound in the order of their versions, because nothing
            // but the binding has changed them since.
            views.sort_by_key(|view| view.version);
            let gone = vanished.into_iter().map(|key: Key| Event::PodVanished(key.uid.as_ref().into()));
            gone.chain(views.into_iter().map(Event::Pod)).collect()
        }
        watch::Event::Applied(view) => vec![Event::Pod(view)],
        watch::Event::Deleted(view) => vec![Event::PodGone(view)],
        // Each pod is read as far as it can be.
        watch::Event::Unreadable { .. } => vec![],
    }
}

/// Core events of the watch of nodes.
pub(super) fn node(event: watch::Event<NodeView>) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            let gone = vanished.into_iter().map(|key| Event::NodeGone(key.name.as_ref().into()));
            gone.chain(objects.into_iter().map(Event::Node)).collect()
        }
        watch::Event::Applied(view) => vec![Event::Node(view)],
        watch::Event::Deleted(view) => vec![Event::NodeGone(view.name)],
        watch::Event::Unreadable { key, reason } => {
            tracing::warn!(node = %key, reason, "node cannot be read");
            vec![Event::NodeGone(key.name.as_ref().into())]
        }
    }
}

/// Core events of the watch of namespaces.
pub(super) fn namespace(event: watch::Event<Namespace>) -> Vec<Event> {
    let read = |namespace: &Namespace| Event::Namespace(NamespaceView::read(namespace));
    let gone = |key: Key| Event::NamespaceGone(key.name.as_ref().into());
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            vanished.into_iter().map(gone).chain(objects.iter().map(read)).collect()
        }
        watch::Event::Applied(namespace) => vec![read(&namespace)],
        watch::Event::Deleted(namespace) => vec![gone(Key::of(&namespace))],
        watch::Event::Unreadable { key, reason } => {
            // The labels that it had last hold on.
            tracing::warn!(namespace = %key, reason, "namespace cannot be read");
            vec![]
        }
    }
}

/// Core events of the watch of a kind of objects that select pods.
pub(super) fn selecting(kind: SelectingKind, event: watch::Event<SelectingView>) -> Vec<Event> {
    let gone = |key: Key| {
        let (namespace, name) = (key.namespace.as_ref().into(), key.name.as_ref().into());
        Event::SelectingGone(SelectingKey { kind, namespace, name })
    };
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            vanished.into_iter().map(gone).chain(objects.into_iter().map(Event::Selecting)).collect()
        }
        watch::Event::Applied(view) => vec![Event::Selecting(view)],
        watch::Event::Deleted(view) => vec![Event::SelectingGone(view.key)],
        // Each object is read as far as it can be.
        watch::Event::Unreadable { .. } => vec![],
    }
}

/// Core events of the watch of budgets.
pub(super) fn budget(event: watch::Event<PodDisruptionBudget>) -> Vec<Event> {
    let read = |budget: &PodDisruptionBudget| Event::Budget(BudgetView::read(budget));
    let gone = |key: Key| Event::BudgetGone(key.namespace.as_ref().into(), key.name.as_ref().into());
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            vanished.into_iter().map(gone).chain(objects.iter().map(read)).collect()
        }
        watch::Event::Applied(budget) => vec![read(&budget)],
        watch::Event::Deleted(budget) => vec![gone(Key::of(&budget))],
        watch::Event::Unreadable { key, reason } => {
            // What the budget said last holds on: it makes victims of other pods, and keeps none.
            tracing::warn!(budget = %key, reason, "budget cannot be read");
            vec![]
        }
    }
}

/// Core events of the watch of PodGroups.
pub(super) fn pod_group(event: watch::Event<PodGroup>) -> Vec<Event> {
    let read = |group: &PodGroup| Event::PodGroup(PodGroupView::read(group));
    let gone = |key: Key| Event::PodGroupGone(key.namespace.as_ref().into(), key.name.as_ref().into());
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            vanished.into_iter().map(gone).chain(objects.iter().map(read)).collect()
        }
        watch::Event::Applied(group) => vec![read(&group)],
        watch::Event::Deleted(group) => vec![gone(Key::of(&group))],
        watch::Event::Unreadable { key, reason } => {
            // Its pods are held back: a group of which the policy is not known may need all of them.
            tracing::warn!(group = %key, reason, "pod group cannot be read, and counts as missing");
            vec![gone(key)]
        }
    }
}

/// Core events of the watch of a kind of storage.
pub(super) fn volumes(event: watch::Event<(Key, VolumeChange)>, gone: fn(Key) -> VolumeChange) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            let objects = objects.into_iter().map(|(_, change)| change);
            vanished.into_iter().map(gone).chain(objects).map(Event::Volumes).collect()
        }
        watch::Event::Applied((_, change)) => vec![Event::Volumes(change)],
        watch::Event::Deleted((key, _)) => vec![Event::Volumes(gone(key))],
        watch::Event::Unreadable { key, reason } => {
            tracing::warn!(object = %key, reason, "an object of storage cannot be read, and counts as gone");
            vec![Event::Volumes(gone(key))]
        }
    }
}

/// Core events of the watch of a kind of devices.
pub(super) fn devices(event: watch::Event<(Key, DeviceChange)>, gone: fn(Key) -> DeviceChange) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects, vanished, .. } => {
            let objects = objects.into_iter().map(|(_, change)| change);
            vanished.into_iter().map(gone).chain(objects).map(Event::Devices).collect()
        }
        watch::Event::Applied((_, change)) => vec![Event::Devices(change)],
        watch::Event::Deleted((key, _)) => vec![Event::Devices(gone(key))],
        watch::Event::Unreadable { key, reason } => {
            // Devices that a claim had are still its own.
            tracing::warn!(object = %key, reason, "a claim, slice or class of devices cannot be read");
            vec![]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_burst_the_newest_report_of_each_node_is_left() {
        let report = |node: &str| Event::Report(node.into(), Arc::new(NodeTopology::default()));
        let gone = |node: &str| Event::ReportGone(node.into());
        let mut burst = Burst::default();
        burst.extend(vec![report("a"), gone("b"), report("b")]);
        burst.extend(vec![report("a"), gone("a"), report("a"), gone("b")]);
        let left = burst.into_events().map(|event| match event {
            Event::Report(node, _) => format!("report {node}"),
            Event::ReportGone(node) => format!("gone {node}"),
            other => panic!("{other:?}"),
        });
        assert_eq!(left.collect::<Vec<_>>(), ["gone b", "report b", "gone a", "report a", "gone b"]);
    }
}
