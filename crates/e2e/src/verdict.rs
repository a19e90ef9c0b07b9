//! What must hold over a whole run.
//!
//! In: the cluster before and after. Out: what is wrong, a line each: pods that a kubelet rejected although the
//! scheduler under test had chosen the node, reports and objects that are not as before. Never: a rejection that a spec
//! has provoked.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::{Api, ResourceExt as _};
use runtime::output::one_line;
use serde_json::Value;
use topology::zone::Free;

use crate::cluster::{Cluster, NAMESPACE};
use crate::devices;
use crate::facts::Singleton;
use crate::fixture::difference_of;
use crate::logs::{self, Severity};
use crate::observed::Observed;
use crate::runner::Devices;
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

    /// What is wrong now; `kept` says what became of the suite's devices.
    pub async fn end(self, cluster: &Cluster, kept: Devices) -> Vec<String> {
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
        wrong.extend(left(&state, kept).map(|name| format!("pod {name} is left")));
        wrong.extend(said(logs::of_stack(cluster, self.began).await));
        wrong
    }
}

/// A pod in the suite's namespace that should not be there.
fn left(state: &Observed, kept: Devices) -> Option<&str> {
    let is_kept =
        |pod: &Pod| kept == Devices::Kept && pod.labels().get("app").is_some_and(|app| app == devices::NAME);
    let mut left = state.pods.iter().filter(|((namespace, _), pod)| namespace == NAMESPACE && !is_kept(pod));
    left.next().map(|((_, name), _)| &**name)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn of_the_suites_pods_only_devices_that_are_kept_may_be_left() {
        let mut state = Observed::default();
        let mut add = |namespace: &str, name: &str, app: &str| {
            let mut pod = Pod::default();
            pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
            state.pods.insert((namespace.to_owned(), name.to_owned()), Arc::new(pod));
        };
        add("other", "a", "a");
        add(NAMESPACE, "b", devices::NAME);
        let of = |kept| left(&state, kept).map(str::to_owned);
        assert_eq!(of(Devices::Removed).as_deref(), Some("b"));
        assert_eq!(of(Devices::Kept), None);
        state.pods.insert((NAMESPACE.to_owned(), "c".to_owned()), Arc::default());
        assert_eq!(left(&state, Devices::Kept), Some("c"));
    }
}
