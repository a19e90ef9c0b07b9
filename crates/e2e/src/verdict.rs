//! What must hold over a whole run.
//!
//! In: the cluster before and after. Out: what is wrong, a line each: pods that a kubelet rejected although the
//! scheduler under test had chosen the node, reports and objects that are not as before. Never: a rejection that a spec
//! has provoked.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DynamicObject;
use runtime::output::one_line;
use serde_json::Value;
use topology::zone::Free;

use crate::cluster::{Cluster, NAMESPACE};
use crate::devices;
use crate::facts::Singleton;
use crate::fixture::difference_of;
use crate::logs::{self, Severity};
use crate::observed::Observed;
use crate::settled;

/// The most lines of logs.
const MOST: usize = 20;

/// The cluster before the run.
#[derive(Debug)]
pub struct Verdict {
    free: BTreeMap<String, Free>,
    objects: Vec<(Singleton, Value)>,
    nodes: BTreeMap<String, Value>,
    began: Timestamp,
}

impl Verdict {
    /// Remembers the cluster as it is.
    ///
    /// # Errors
    /// When a report does not settle.
    pub async fn begin(cluster: &Cluster) -> anyhow::Result<Self> {
        let facts = &cluster.facts;
        let free = facts.nodes.iter().map(|node| (node.name.clone(), node.topology.available())).collect();
        let singletons = facts.operator.iter().chain(&facts.scheduler_object);
        let objects = singletons.map(|found| (found.clone(), found.object.data["spec"].clone())).collect();
        Ok(Self { free, objects, nodes: marks(&cluster.observer.now()), began: Timestamp::now() })
    }

    /// What is wrong now.
    pub async fn end(self, cluster: &Cluster) -> Vec<String> {
        let state = cluster.observer.now();
        let mut wrong: Vec<String> = state
            .rejected
            .values()
            .filter(|rejected| Some(&*rejected.scheduler) == cluster.facts.scheduler.as_deref())
            .map(|rejected| {
                format!("node {} rejected pod {}: {}", rejected.node, rejected.pod, rejected.message)
            })
            .collect();
        for (node, before) in &self.free {
            let what = format!("the report of node {node} is as before");
            let same = cluster.observer.until(&what, cluster.settings.patience, |state| {
                let now = settled::settled(state, node)?.available();
                // Those of an interrupted run may have been there.
                difference_of(before, &now, |name| !devices::is_ours(name.as_str())).map_or(Ok(()), Err)
            });
            wrong.extend(same.await.err().map(|timeout| timeout.to_string()));
        }
        for (found, before) in &self.objects {
            let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &found.resource);
            let name = found.object.metadata.name.as_deref().unwrap_or_default();
            let now = api.get_opt(name).await.ok().flatten().map(|object| object.data["spec"].clone());
            if now.as_ref() != Some(before) {
                wrong.push(format!("{} {name} is not as before", found.resource.kind));
            }
        }
        let now = marks(&state);
        let changed = self.nodes.iter().filter(|(node, before)| now.get(*node) != Some(before));
        wrong.extend(
            changed.map(|(node, _)| format!("labels, taints or cordon of node {node} are not as before")),
        );
        if let Some(pod) = state.pods.values().find(|pod| is_left(pod)) {
            wrong.push(format!("pod {} is left", pod.metadata.name.as_deref().unwrap_or_default()));
        }
        wrong.extend(said(logs::of_stack(cluster, self.began).await));
        wrong
    }
}

/// Whether a pod is of a spec. The devices' pods are there only where they are to stay.
fn is_left(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let is_of_devices = labels.and_then(|all| all.get("app")).is_some_and(|app| app == devices::NAME);
    pod.metadata.namespace.as_deref() == Some(NAMESPACE) && !is_of_devices
}

/// What the stack should not have logged: requests that were denied, and warnings of the scheduler that are not about
/// the suite's own objects. Equal lines but for numbers are one.
fn said(lines: Vec<logs::Line>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let is_wrong = |line: &logs::Line| {
        let is_warning = line.severity > Severity::Info && line.is_of_scheduler();
        line.is_denied() || (is_warning && !line.text.contains(NAMESPACE))
    };
    let wrong = lines.into_iter().filter(is_wrong);
    let wrong = wrong.filter(|line| {
        let words = line.text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        seen.insert(words.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    });
    wrong.take(MOST).map(|line| format!("pod {} logged: {}", line.pod, one_line(&line.text))).collect()
}

/// What specs may change of nodes.
pub(crate) fn marks(state: &Observed) -> BTreeMap<String, Value> {
    let marks = state.nodes.iter().map(|(name, node)| {
        let spec = node.spec.clone().unwrap_or_default();
        let mut taints = spec.taints.unwrap_or_default();
        // The node's own conditions come and go.
        taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/"));
        let value = serde_json::json!([node.metadata.labels, taints, spec.unschedulable.unwrap_or(false)]);
        (name.clone(), value)
    });
    marks.collect()
}
