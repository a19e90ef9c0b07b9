//! The exporters' reports (NodeResourceTopology objects), deleted with the NUMAResourcesOperator or their node.
//!
//! In: the nodes that should have exporters, the number of ready exporters. Out: owner references on reports of those
//! nodes; owned reports of other nodes deleted. Never: a watch, since exporters write all the time; a change of a
//! report that another program publishes, such as NFD.
//!
//! A change of `spec.updaterType` leaves parts of the former program's reports: an annotation with an old fingerprint,
//! or an owner that outlives the NUMAResourcesOperator. Such reports are deleted once all pods are replaced, and
//! published anew. Reports of NFD have its namespace as their only owner, so with NFD they stay as they are.
//!
//! Reports are listed, by their metadata alone, when exporters have become ready or nodes have changed, and every few
//! minutes: a report that was deleted is published anew without its owner. The reference names an owner and not a
//! controller, which is the exporter.
//!
//! Without its NUMAResourcesOperator a report is garbage and is collected. An exporter that has not ended yet may
//! publish it once more, without an owner. So the reports of the former nodes are looked at until exporters have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use api::keys::ANNOTATION_UPDATE;
use api::nrt;
use api::numaresources::{GROUP, UpdaterType, keys, operator};
use deployer::install::ready::{self, Readiness};
use kube::core::params::PropagationPolicy;
use objects::client::{CallError, Force};
use objects::ownership::references;
use objects::{Object, ObjectKey, ObjectKind};
use runtime::backoff::Backoff;
use runtime::client::{brief, is_conflict, is_not_found};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use objects::applier::{Observer as _, Verb};

use super::rules::is_paused;
use super::{Applier, Shared};
use crate::cluster_state::{ClusterState, Node};
use crate::desired::Owner;
use crate::group::Groups;

/// The pause in which changes are gathered: exporters become ready one after the other.
const GATHER: Duration = Duration::from_secs(2);
/// Pauses before reports are listed again that were missing or could not be written.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Tries, after which only a change leads to another one.
const TRIES: u32 = 6;

/// The pause before the reports of an unchanged situation are listed again.
const AGAIN: Duration = Duration::from_secs(300);

/// The facts that decisions on reports depend on.
#[derive(Clone, Debug, PartialEq)]
struct Situation {
    owner: Owner,
    /// The operator's namespace, which owns reports of a former NFD; `None` while pods are replaced.
    former: Option<String>,
    /// The nodes with exporters; none with NFD.
    nodes: BTreeSet<String>,
    /// Ready exporters.
    ready: i64,
}

/// Reports that exporters published after the garbage collection of those with an owner.
#[must_use]
pub fn late(reports: Vec<Report>, nodes: &BTreeSet<String>) -> Vec<Report> {
    let late = |report: &Report| {
        report.ours
            && report.owners.is_empty()
            && report.namespaces.is_empty()
            && nodes.contains(&report.name)
    };
    reports.into_iter().filter(late).collect()
}

/// The fields of a report that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its name, which is its node's.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The UIDs of its owners that are NUMAResourcesOperators.
    pub owners: BTreeSet<String>,
    /// Whether an exporter like ours or RTE publishes it. Other programs do not write that annotation.
    pub ours: bool,
    /// The names of namespaces that own it, as nfd-topology-updater writes.
    pub namespaces: BTreeSet<String>,
}

/// An action on a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The report gets an owner reference to the NUMAResourcesOperator.
    Own(Report),
    /// The report is deleted: we own it, and its node is gone or has no exporter any more.
    Delete(Report),
}

/// When reports are listed.
struct Pace {
    /// The situation of the last time.
    done: Option<Situation>,
    /// The next time, if the situation stays.
    due: Instant,
}

impl Pace {
    fn is_due(&self, situation: &Situation, now: Instant) -> bool {
        self.done.as_ref() != Some(situation) || now >= self.due
    }
}

/// The actions, where exporters should run on `nodes`. The namespace `former` owns what a former NFD wrote.
#[must_use]
pub fn decide(
    reports: Vec<Report>,
    nodes: &BTreeSet<String>,
    (owner, former): (&str, Option<&str>),
) -> Vec<Step> {
    let steps = reports.into_iter().filter(|report| report.ours).filter_map(|report| {
        match nodes.contains(&report.name) {
            true if former.is_some_and(|former| report.namespaces.contains(former)) => {
                Some(Step::Delete(report))
            }
            // One with such an owner is NFD's.
            true => {
                (!report.owners.contains(owner) && report.namespaces.is_empty()).then_some(Step::Own(report))
            }
            false => (!report.owners.is_empty()).then_some(Step::Delete(report)),
        }
    });
    steps.collect()
}

impl Report {
    fn object(&self, kind: &ObjectKind) -> Object {
        Object::bare(ObjectKey { kind: kind.clone(), namespace: None, name: self.name.clone() })
    }

    /// The report with this metadata.
    fn read(body: &Value) -> Option<Self> {
        let metadata = &body["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let ours = references(body).iter().filter(|reference| {
            let group = reference["apiVersion"].as_str().unwrap_or_default().split('/').next();
            reference["kind"] == operator::KIND && group == Some(GROUP)
        });
        let owners = ours.filter_map(|reference| reference["uid"].as_str().map(str::to_owned)).collect();
        let namespaces = references(body).iter().filter(|reference| reference["kind"] == "Namespace");
        let namespaces =
            namespaces.filter_map(|reference| reference["name"].as_str().map(str::to_owned)).collect();
        let ours = !metadata["annotations"][ANNOTATION_UPDATE].is_null();
        Some(Self { name: text("name")?, uid: text("uid")?, owners, ours, namespaces })
    }
}

impl Situation {
    /// The situation in a cluster state; `None`: reports stay as they are.
    fn of(cluster: &ClusterState) -> Option<Self> {
        let operator = cluster.operators.get(keys::OPERATOR)?;
        if is_paused(operator) || operator.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let groups = Groups::new(cluster, operator).ok()?;
        // The nodes of such a pool are unknown, so none may lose its report.
        if groups.pools().any(|(_, pool)| pool.nodes.is_err()) {
            return None;
        }
        let is_in = |node: &Node| groups.pool_of(|key| node.label(key)).is_some();
        let nfd = operator.spec.updater_type == Some(UpdaterType::Nfd);
        let nodes = cluster.nodes.iter().filter(|(_, node)| !nfd && is_in(node));
        let nodes = nodes.map(|(name, _)| name.clone()).collect();
        let sets = || cluster.observed.iter().filter(|(key, _)| key.kind.kind == "DaemonSet");
        let rolled = sets().all(|(_, set)| matches!(ready::daemon_set(set), Readiness::Ready(_)));
        if nfd && !rolled {
            return None;
        }
        let ready = sets().filter_map(|(_, body)| body["status"]["numberReady"].as_i64()).sum();
        let former = rolled.then(|| cluster.environment.namespace.clone());
        Some(Self { owner: Owner::of(operator), former, nodes, ready })
    }
}

/// Keeps the reports until cancelled.
pub(super) async fn run(applier: Applier, cancel: &CancellationToken) {
    let work = async {
        let mut pace = Pace { done: None, due: Instant::now() };
        loop {
            let situation = applier.observer.shared.read(Situation::of);
            if let Some(situation) = situation.filter(|now| pace.is_due(now, Instant::now())) {
                settle(&applier, &situation).await;
                pace = Pace { done: Some(situation), due: Instant::now() + AGAIN };
                continue;
            }
            if applier.observer.shared.read(has_gone)
                && let Some(former) = pace.done.take()
            {
                sweep(&applier, &former.nodes).await;
                continue;
            }
            tokio::select! {
                () = applier.observer.shared.reconciled.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep_until(pace.due), if pace.done.is_some() => {}
            }
        }
    };
    cancel.run_until_cancelled(work).await;
}

/// Updates the reports of a situation until nothing is left to do, the situation changes, or all tries failed.
async fn settle(applier: &Applier, situation: &Situation) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    for _ in 0..TRIES {
        match look(applier, situation).await {
            Ok(true) | Err(CallError::Cancelled) => return,
            Ok(false) => {}
            Err(CallError::Failed(error)) => warn!(error = brief(&error), "cannot update reports"),
        }
        tokio::time::sleep(backoff.next_delay()).await;
        if applier.observer.shared.read(Situation::of).as_ref() != Some(situation) {
            return;
        }
    }
}

/// Whether there is no NUMAResourcesOperator.
fn has_gone(cluster: &ClusterState) -> bool {
    !cluster.operators.contains_key(keys::OPERATOR)
}

/// Deletes late reports of former nodes. The pauses together are longer than the time in which exporters end.
async fn sweep(applier: &Applier, nodes: &BTreeSet<String>) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    for _ in 0..TRIES {
        if !stays_gone(&applier.observer.shared, backoff.next_delay()).await {
            return;
        }
        match delete_late(applier, nodes).await {
            Ok(()) => {}
            Err(CallError::Cancelled) => return,
            Err(CallError::Failed(error)) => warn!(error = brief(&error), "cannot delete reports"),
        }
    }
}

/// Waits for a pause; false: there is a NUMAResourcesOperator again.
async fn stays_gone(shared: &Shared, pause: Duration) -> bool {
    let back = async {
        while shared.read(has_gone) {
            shared.reconciled.notified().await;
        }
    };
    tokio::time::timeout(pause, back).await.is_err()
}

async fn delete_late(applier: &Applier, nodes: &BTreeSet<String>) -> Result<(), CallError> {
    let (kind, reports) = list(applier).await?;
    for report in late(reports.unwrap_or_default(), nodes) {
        info!(report.name, "deleting a report without an exporter");
        match delete(applier, &kind, &report).await {
            Err(CallError::Failed(error)) if is_not_found(&error) || is_conflict(&error) => {}
            other => other?,
        }
    }
    Ok(())
}

/// The kind of reports, and all of them; `None`: the kind is not defined.
async fn list(applier: &Applier) -> Result<(ObjectKind, Option<Vec<Report>>), CallError> {
    let kind = ObjectKind::new(nrt::GROUP, nrt::VERSION, nrt::KIND, nrt::PLURAL);
    let list = applier.api_server.list_metadata(&kind, None).await?;
    Ok((kind, list.map(|list| list.iter().filter_map(Report::read).collect())))
}

/// Lists the reports and acts once. Returns whether nothing is left to do.
async fn look(applier: &Applier, situation: &Situation) -> Result<bool, CallError> {
    let (kind, Some(reports)) = list(applier).await? else {
        return Ok(situation.nodes.is_empty());
    };
    let ours = reports.iter().filter(|report| report.ours);
    let there: BTreeSet<&str> = ours.map(|report| report.name.as_str()).collect();
    // An exporter that cannot publish yet is not ready; this looks again when it is.
    let mut all = situation.nodes.iter().all(|node| there.contains(node.as_str()));
    let steps = decide(reports, &situation.nodes, (&situation.owner.uid, situation.former.as_deref()));
    if !steps.is_empty() {
        info!(reports = steps.len(), "setting owners of reports, or deleting reports");
    }
    for step in steps {
        let done = match &step {
            Step::Own(report) => own(applier, &kind, report, &situation.owner).await,
            Step::Delete(report) => {
                // The report that comes in its place gets an owner.
                all &= !situation.nodes.contains(&report.name);
                delete(applier, &kind, report).await
            }
        };
        match done {
            Ok(()) => {}
            Err(CallError::Failed(error)) if is_not_found(&error) || is_conflict(&error) => all = false,
            Err(stop) => return Err(stop),
        }
    }
    Ok(all)
}

/// Adds an owner reference. References are merged by UID, so those of others stay, and no resource version is needed.
async fn own(applier: &Applier, kind: &ObjectKind, report: &Report, owner: &Owner) -> Result<(), CallError> {
    let references = json!([owner.reference()]);
    let object = report.object(kind).with_metadata("uid", report.uid.as_str().into());
    let object = object.with_metadata("ownerReferences", references);
    applier.observer.count_write(kind, Verb::Apply);
    applier.api_server.apply(&object, Force::Yes).await.map(drop)
}

async fn delete(applier: &Applier, kind: &ObjectKind, report: &Report) -> Result<(), CallError> {
    applier.observer.count_write(kind, Verb::Delete);
    applier
        .api_server
        .delete(&report.object(kind), Some(&report.uid), PropagationPolicy::Background)
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of our exporter.
    fn report(name: &str, owners: &[&str]) -> Report {
        Report {
            name: name.to_owned(),
            uid: format!("uid of {name}"),
            owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
            ours: true,
            namespaces: BTreeSet::new(),
        }
    }

    #[test]
    fn reports_of_former_nodes_are_deleted() {
        let nfds = |name: &str, owners: &[&str]| Report { ours: false, ..report(name, owners) };
        let of_both = |name: &str, namespace: &str| Report {
            namespaces: [namespace.to_owned()].into(),
            ..report(name, &["us"])
        };
        let nodes: BTreeSet<String> = ["here".to_owned()].into();
        // a report -> what is done about it
        type Case = (Report, fn(Report) -> Option<Step>);
        let table: [Case; 12] = [
            (of_both("here", "ours"), |report| Some(Step::Delete(report))),
            (of_both("here", "theirs"), |_| None),
            (of_both("gone", "ours"), |report| Some(Step::Delete(report))),
            (nfds("here", &[]), |_| None),
            (nfds("gone", &[]), |_| None),
            (nfds("gone", &["us"]), |_| None),
            (report("here", &[]), |report| Some(Step::Own(report))),
            (report("here", &["before"]), |report| Some(Step::Own(report))),
            (report("here", &["us"]), |_| None),
            (report("here", &["before", "us"]), |_| None),
            (report("gone", &[]), |_| None),
            (report("gone", &["before"]), |report| Some(Step::Delete(report))),
        ];
        for (report, want) in table {
            let steps = decide(vec![report.clone()], &nodes, ("us", Some("ours")));
            assert_eq!(steps, Vec::from_iter(want(report)));
        }
    }

    #[test]
    fn late_reports_of_former_nodes_are_deleted() {
        let foreign = Report { ours: false, ..report("former", &[]) };
        let nfds = Report { namespaces: ["nfd".to_owned()].into(), ..report("former", &[]) };
        let nodes: BTreeSet<String> = ["former".to_owned()].into();
        for (report, is_late) in [
            (report("former", &[]), true),
            (report("former", &["us"]), false),
            (nfds, false),
            (foreign, false),
            (report("other", &[]), false),
        ] {
            assert_eq!(late(vec![report.clone()], &nodes).len(), usize::from(is_late), "{report:?}");
        }
    }

    /// A report that was deleted and published anew is owned again, although nothing that is watched changed.
    #[test]
    fn an_unchanged_situation_is_looked_at_again() {
        let owner = Owner::of(&api::numaresources::NumaResourcesOperator::default());
        let situation =
            |ready| Situation { owner: owner.clone(), former: None, nodes: BTreeSet::new(), ready };
        let now = Instant::now();
        let pace = Pace { done: Some(situation(1)), due: now + AGAIN };
        assert!(!pace.is_due(&situation(1), now));
        assert!(pace.is_due(&situation(2), now));
        assert!(pace.is_due(&situation(1), now + AGAIN));
        assert!(Pace { done: None, due: now + AGAIN }.is_due(&situation(1), now));
    }

    /// With NFD the exporters' reports go, once all of its pods have come; no report is ours then.
    #[test]
    fn with_nfd_no_node_has_a_report_of_ours() {
        let options = crate::compat::render::Options::default();
        let platform = deployer::platform::Platform::HyperShift;
        let mut cluster = crate::compat::render::sample_cluster(platform, None, &options);
        let labels = [(keys::LABEL_NODE_POOL.into(), "worker".into())].into();
        cluster.nodes.insert("node".to_owned(), Node { labels, ready: true, kubelet: None });
        let of = |cluster: &ClusterState| Situation::of(cluster).map(|one| one.nodes.len());
        assert_eq!(of(&cluster), Some(1));
        cluster.operators.get_mut(keys::OPERATOR).unwrap().spec.updater_type = Some(UpdaterType::Nfd);
        let key =
            ObjectKey::of::<k8s_openapi::api::apps::v1::DaemonSet>(Some(""), "numaresourcesoperator-worker");
        for (updated, wanted) in [(0, None), (1, Some(0))] {
            let set = json!({ "metadata": { "generation": 2 }, "status": {
                "observedGeneration": 2, "desiredNumberScheduled": 1, "updatedNumberScheduled": updated,
                "numberReady": 1, "numberAvailable": 1,
            } });
            cluster.observed.insert(key.clone(), set);
            assert_eq!(of(&cluster), wanted);
        }
    }

    #[test]
    fn only_references_to_our_kind_count() {
        let body = json!({ "metadata": { "name": "n", "uid": "u", "annotations": { ANNOTATION_UPDATE: "periodic" },
            "ownerReferences": [
            { "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "uid": "1" },
            { "apiVersion": "nodetopology.openshift.io/v1alpha1", "kind": "NUMAResourcesOperator", "uid": "2" },
            { "apiVersion": "example.com/v1", "kind": "NUMAResourcesOperator", "uid": "3" },
            { "apiVersion": "v1", "kind": "Node", "uid": "4" },
            { "apiVersion": "v1", "kind": "Namespace", "name": "ours", "uid": "5" },
        ] } });
        let read = Report::read(&body).unwrap();
        assert_eq!((read.owners, read.ours), (["1".to_owned(), "2".to_owned()].into(), true));
        assert_eq!(read.namespaces, ["ours".to_owned()].into());
        let nfds = json!({ "metadata": { "name": "n", "uid": "u", "annotations": { "a": "b" } } });
        assert!(!Report::read(&nfds).unwrap().ours);
        assert_eq!(Report::read(&json!({ "metadata": { "name": "n" } })), None);
    }
}
