//! The exporters' reports (NodeResourceTopology objects): they go with the NUMAResourcesOperator, or with their node.
//!
//! In: which nodes are to have exporters, how many exporters are ready. Out: owner references on reports of those nodes; reports with such a
//! reference deleted where there is no such node any more. Never: a watch, since exporters write all the time; nor a change of a report
//! that is not ours.
//!
//! Reports are looked at, by their metadata alone, when exporters have become ready or nodes have changed. A reference does not say that the
//! owner is the controller of the report: the exporter is.

use std::collections::BTreeSet;
use std::time::Duration;

use api::nrt;
use api::numaresources::{GROUP, keys, operator};
use kube::core::params::PropagationPolicy;
use objects::client::{CallError, Force};
use objects::{Object, ObjectKind};
use runtime::backoff::Backoff;
use runtime::client::{brief, is_conflict, is_not_found};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use objects::applier::{Observer as _, Verb};

use super::Applier;
use super::rules::is_paused;
use crate::desired::Owner;
use crate::group::Groups;
use crate::world::{Node, World};

/// Exporters become ready one after the other.
const GATHER: Duration = Duration::from_secs(2);
/// Pauses before reports are looked for again that were not there yet, or could not be written.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// How often they are looked for, after which only a change makes us look again.
const TRIES: u32 = 6;

/// What a look at the reports depends on.
#[derive(Clone, Debug, PartialEq)]
struct Situation {
    owner: Owner,
    nodes: BTreeSet<String>,
    /// Ready exporters.
    ready: i64,
}

/// A report, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its name, which is its node's.
    pub name: String,
    /// Its unique id.
    pub uid: String,
    /// The unique ids of NUMAResourcesOperators it has references to.
    pub owners: BTreeSet<String>,
}

/// What to do about a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It gets a reference to the NUMAResourcesOperator.
    Own(Report),
    /// It goes: we own it, and its node is gone or nobody wants an exporter there any more.
    Delete(Report),
}

/// What to do, where there are to be exporters on `nodes`.
#[must_use]
pub fn decide(reports: Vec<Report>, nodes: &BTreeSet<String>, owner: &str) -> Vec<Step> {
    let steps = reports.into_iter().filter_map(|report| match nodes.contains(&report.name) {
        true => (!report.owners.contains(owner)).then_some(Step::Own(report)),
        false => (!report.owners.is_empty()).then_some(Step::Delete(report)),
    });
    steps.collect()
}

impl Report {
    /// Of an object's metadata.
    fn read(body: &Value) -> Option<Self> {
        let metadata = &body["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let references = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ours = references.iter().filter(|reference| {
            let group = reference["apiVersion"].as_str().unwrap_or_default().split('/').next();
            reference["kind"] == operator::KIND && group == Some(GROUP)
        });
        let owners = ours.filter_map(|reference| reference["uid"].as_str().map(str::to_owned)).collect();
        Some(Self { name: text("name")?, uid: text("uid")?, owners })
    }
}

impl Situation {
    /// Of a world; `None`: nothing is to be touched.
    fn of(world: &World) -> Option<Self> {
        let operator = world.operators.get(keys::OPERATOR)?;
        let metadata = &operator.metadata;
        if is_paused(metadata) || metadata.deletion_timestamp.is_some() {
            return None;
        }
        let groups = Groups::new(world, operator).ok()?;
        // Of a pool whose nodes cannot be told, none may lose its report.
        if groups.pools().any(|(_, pool)| pool.nodes.is_err()) {
            return None;
        }
        let is_in = |node: &Node| groups.pool_of(|key| node.labels.get(key).map(AsRef::as_ref)).is_some();
        let nodes =
            world.nodes.iter().filter(|(_, node)| is_in(node)).map(|(name, _)| name.clone()).collect();
        let owner = Owner {
            api_version: format!("{GROUP}/{}", api::numaresources::VERSION),
            kind: operator::KIND.to_owned(),
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
        };
        let sets = world.live.iter().filter(|(key, _)| key.kind.kind == "DaemonSet");
        let ready = sets.filter_map(|(_, body)| body["status"]["numberReady"].as_i64()).sum();
        Some(Self { owner, nodes, ready })
    }
}

/// Keeps the reports until it is stopped.
pub(super) async fn run(applier: Applier, cancel: &CancellationToken) {
    let work = async {
        let mut seen = None;
        loop {
            let now = applier.observer.shared.read(Situation::of);
            if let Some(now) = now.filter(|now| seen.as_ref() != Some(now)) {
                settle(&applier, &now).await;
                seen = Some(now);
                continue;
            }
            applier.observer.shared.reconciled().await;
            tokio::time::sleep(GATHER).await;
        }
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = work => {}
    }
}

/// Sees to the reports of a situation until nothing is left to do, or it changes, or they do not come.
async fn settle(applier: &Applier, situation: &Situation) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    for _ in 0..TRIES {
        match look(applier, situation).await {
            Ok(true) | Err(CallError::Cancelled) => return,
            Ok(false) => {}
            Err(CallError::Failed(error)) => warn!(error = brief(&error), "reports not seen to"),
        }
        tokio::time::sleep(backoff.next_delay()).await;
        if applier.observer.shared.read(Situation::of).as_ref() != Some(situation) {
            return;
        }
    }
}

/// Looks once; whether everything is done.
async fn look(applier: &Applier, situation: &Situation) -> Result<bool, CallError> {
    let kind = ObjectKind::new(nrt::GROUP, nrt::VERSION, nrt::KIND, nrt::PLURAL);
    // Without a definition there are none.
    let Some(list) = applier.api_server.list_metadata(&kind, None).await? else {
        return Ok(situation.nodes.is_empty());
    };
    let reports: Vec<Report> = list.iter().filter_map(Report::read).collect();
    let there: BTreeSet<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    // An exporter that cannot publish is not ready either, and will be.
    let mut all = situation.nodes.iter().all(|node| there.contains(node.as_str()));
    let steps = decide(reports, &situation.nodes, &situation.owner.uid);
    if !steps.is_empty() {
        info!(reports = steps.len(), "reports get an owner, or go");
    }
    for step in steps {
        let done = match &step {
            Step::Own(report) => own(applier, &kind, report, &situation.owner).await,
            Step::Delete(report) => delete(applier, &kind, report).await,
        };
        match done {
            Ok(()) => {}
            Err(CallError::Failed(error)) if is_not_found(&error) || is_conflict(&error) => all = false,
            Err(stop) => return Err(stop),
        }
    }
    Ok(all)
}

/// References are merged by unique id, so this leaves those of others, and needs no resource version.
async fn own(applier: &Applier, kind: &ObjectKind, report: &Report, owner: &Owner) -> Result<(), CallError> {
    let metadata = json!({ "name": report.name, "uid": report.uid, "ownerReferences": [owner.reference()] });
    let Ok(object) = Object::from_value(kind.clone(), json!({ "metadata": metadata })) else { return Ok(()) };
    applier.observer.count_write(kind, Verb::Apply);
    applier.api_server.apply(&object, Force::Yes).await.map(drop)
}

async fn delete(applier: &Applier, kind: &ObjectKind, report: &Report) -> Result<(), CallError> {
    let body = json!({ "metadata": { "name": report.name } });
    let Ok(object) = Object::from_value(kind.clone(), body) else { return Ok(()) };
    applier.observer.count_write(kind, Verb::Delete);
    applier.api_server.delete(&object, Some(&report.uid), PropagationPolicy::Background).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_go_with_their_owner_or_their_node() {
        let report = |name: &str, owners: &[&str]| Report {
            name: name.to_owned(),
            uid: format!("uid of {name}"),
            owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
        };
        let nodes: BTreeSet<String> = ["here".to_owned()].into();
        // a report -> what is done about it
        type Case = (Report, fn(Report) -> Option<Step>);
        let table: [Case; 6] = [
            (report("here", &[]), |report| Some(Step::Own(report))),
            (report("here", &["before"]), |report| Some(Step::Own(report))),
            (report("here", &["us"]), |_| None),
            (report("here", &["before", "us"]), |_| None),
            (report("gone", &[]), |_| None),
            (report("gone", &["before"]), |report| Some(Step::Delete(report))),
        ];
        for (report, want) in table {
            let steps = decide(vec![report.clone()], &nodes, "us");
            assert_eq!(steps, Vec::from_iter(want(report)));
        }
    }

    #[test]
    fn only_references_to_our_kind_count() {
        let body = json!({ "metadata": { "name": "n", "uid": "u", "ownerReferences": [
            { "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "uid": "1" },
            { "apiVersion": "nodetopology.openshift.io/v1alpha1", "kind": "NUMAResourcesOperator", "uid": "2" },
            { "apiVersion": "example.com/v1", "kind": "NUMAResourcesOperator", "uid": "3" },
            { "apiVersion": "v1", "kind": "Node", "uid": "4" },
        ] } });
        let owners = Report::read(&body).unwrap().owners;
        assert_eq!(owners, ["1".to_owned(), "2".to_owned()].into());
        assert_eq!(Report::read(&json!({ "metadata": { "name": "n" } })), None);
    }
}
