//! The watches that feed the core.
//!
//! In: an API server. Out: core events, from each watch in the order of the server. Never: a whole object that waits in
//! a queue; each watch translates its own.

use std::convert::Infallible;
use std::sync::mpsc::Sender;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::runtime::watcher;
use runtime::client::Connection;
use runtime::shutdown::Tasks;
use runtime::watch;

use super::event_loop::Input;
use super::intake::volumes::Watches;
use super::intake::{self, ReportReader, Source};
use super::wire_pod::{Warnings, WirePod};
use super::wire_selecting::{Selecting, WireSelecting};
use crate::metrics::Metrics;

/// Starts them.
pub(super) fn spawn(
    tasks: &mut Tasks,
    connection: &Connection,
    watch_metrics: &watch::Metrics,
    metrics: &Metrics,
    sender: &Sender<Input>,
) -> anyhow::Result<()> {
    // All pods, finished ones too, although those hold nothing. With a selection of unfinished pods the server
    // announces an end as a deletion that shows the state *before*, which looks like a forced deletion.
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let pods: Api<WirePod> = Api::all(connection.watch_client()?);
    let mut warnings = Warnings::default();
    tasks.spawn("watch pods", async move {
        let forward = |event| drop(out.send(Input::Change((Source::Pods, intake::pod(event)))));
        let view = |pod: WirePod| Ok(warnings.view(pod));
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_mapped(pods, "pods", config, &m, view, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let nodes: Api<Node> = Api::all(connection.watch_client()?);
    tasks.spawn("watch nodes", async move {
        let forward = |event| drop(out.send(Input::Change((Source::Nodes, intake::node(event)))));
        Ok::<_, Infallible>(watch::run(nodes, watcher::Config::default(), &m, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let namespaces: Api<Namespace> = Api::all(connection.watch_client()?);
    tasks.spawn("watch namespaces", async move {
        let forward = |event| drop(out.send(Input::Change((Source::Namespaces, intake::namespace(event)))));
        Ok::<_, Infallible>(watch::run(namespaces, watcher::Config::default(), &m, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let budgets = Api::all(connection.watch_client()?);
    tasks.spawn("watch poddisruptionbudgets", async move {
        let forward = |event| drop(out.send(Input::Change((Source::Budgets, intake::budget(event)))));
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_guarded::<PodDisruptionBudget>(budgets, config, &m, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let reports = Api::all(connection.watch_client()?);
    let mut reader = ReportReader::new(metrics.clone());
    tasks.spawn("watch noderesourcetopologies", async move {
        let forward = |event| drop(out.send(Input::Change((Source::Reports, reader.take(event)))));
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_guarded::<NodeResourceTopology>(reports, config, &m, forward).await)
    });
    let to = (connection, watch_metrics, sender);
    selecting::<Service>(tasks, to, ("watch services", Source::Services))?;
    let controllers = ("watch replicationcontrollers", Source::ReplicationControllers);
    selecting::<ReplicationController>(tasks, to, controllers)?;
    selecting::<ReplicaSet>(tasks, to, ("watch replicasets", Source::ReplicaSets))?;
    selecting::<StatefulSet>(tasks, to, ("watch statefulsets", Source::StatefulSets))?;
    Watches { tasks, connection, metrics: watch_metrics, sender }.spawn()
}

/// Starts the watch of a kind of objects that select pods.
fn selecting<K: Selecting + Clone + std::fmt::Debug + Send + 'static>(
    tasks: &mut Tasks,
    (connection, watch_metrics, sender): (&Connection, &watch::Metrics, &Sender<Input>),
    (name, source): (&'static str, Source),
) -> anyhow::Result<()> {
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let objects: Api<WireSelecting<K>> = Api::all(connection.watch_client()?);
    let plural = K::plural(&());
    tasks.spawn(name, async move {
        let forward = |event| drop(out.send(Input::Change((source, intake::selecting(K::KIND, event)))));
        let view = |object: WireSelecting<K>| Ok(object.into_view());
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_mapped(objects, &plural, config, &m, view, forward).await)
    });
    Ok(())
}
