//! The operator's objects, NUMAResourcesOperator (NRO) and NUMAResourcesScheduler (NRS), and the stack they ask for.
//!
//! In: changes of these objects, which the end of the spec undoes. Out: conditions at the generation with the change;
//! exporters, schedulers and their pods. Never: a condition of an older generation, or a stack that is left half rolled
//! out.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, ListParams};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::facts::Singleton;
use crate::fixture::Fixture;
use crate::machines::Reach;
use crate::object::{self, generation, value};
use crate::observed::Observed;
use crate::placement::state_of;
use crate::spec::{Result, Skip};
use crate::undo::Target;

/// The labels of the operator's own Deployment and pods.
pub const OPERATOR_LABELS: &str = "app=numaresources-operator,control-plane=controller-manager";
/// A rollout replaces one pod after the other, so it may take longer than one condition.
pub(crate) const ROLLOUT: u32 = 3;
/// The node groups.
pub const GROUPS: &str = "/spec/nodeGroups";
/// The configuration of the only node group.
pub const GROUP_CONFIG: &str = "/spec/nodeGroups/0/config";

/// A condition of an object, as it is wanted; empty texts stand for any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// The type, as `Available`.
    pub kind: &'a str,
    /// `True` or `False`.
    pub status: &'a str,
    /// The reason.
    pub reason: &'a str,
    /// A part of the message.
    pub text: &'a str,
}

/// The answer to something that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The reason of condition `Degraded`; `None`: the API server has refused it at once.
    pub reason: Option<String>,
    /// The words.
    pub message: String,
    /// The fields that the API server names; none where the operator objects.
    pub fields: Vec<String>,
}

/// The parts of the stack that were whole at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    objects: Vec<Target>,
    /// With the number of pods.
    workloads: Vec<(Target, i64)>,
}

/// `Available`.
pub const AVAILABLE: Wanted<'static> = Wanted { kind: "Available", status: "True", reason: "", text: "" };
/// `Degraded`.
pub const DEGRADED: Wanted<'static> = Wanted { kind: "Degraded", status: "True", reason: "", text: "" };

impl Wanted<'_> {
    /// The message of the condition, once it is as wanted at the object's generation; else why not.
    ///
    /// # Errors
    /// What the object says instead.
    pub fn of(&self, object: &Value) -> std::result::Result<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(found) = conditions.iter().find(|condition| condition["type"] == self.kind) else {
            return Err(format!("it has no condition {}", self.kind));
        };
        let say = |condition: &Value| {
            format!(
                "{} {}: {}",
                text(&condition["status"]),
                text(&condition["reason"]),
                text(&condition["message"])
            )
        };
        let now = say(found);
        // The Go operator writes the generation into true conditions only.
        if found["observedGeneration"].as_i64().is_some_and(|seen| seen < generation(object)) {
            return Err(format!("{} of an older generation is {now}", self.kind));
        }
        let is_wanted = found["status"] == self.status
            && (self.reason.is_empty() || found["reason"] == self.reason)
            && text(&found["message"]).contains(self.text);
        if is_wanted {
            return Ok(text(&found["message"]));
        }
        // The condition that holds says why this one does not.
        let others =
            conditions.iter().filter(|other| other["status"] == "True" && other["type"] != self.kind);
        let others: Vec<String> =
            others.map(|other| format!(", {} is {}", text(&other["type"]), say(other))).collect();
        Err(format!("{} is {now}{}", self.kind, others.concat()))
    }
}

/// The number of a DaemonSet's or Deployment's pods, once all are ready and none is of an older revision; else why not.
///
/// # Errors
/// The numbers that are missing.
pub fn complete(object: &Value) -> std::result::Result<i64, String> {
    let status = |field: &str| object["status"][field].as_i64().unwrap_or_default();
    if object["status"]["observedGeneration"].as_i64() < object["metadata"]["generation"].as_i64() {
        return Err("its controller has not seen its newest generation".to_owned());
    }
    // Items of lists have no kind.
    let is_set = object["status"].get("desiredNumberScheduled").is_some();
    let (wanted, all, updated, ready) = if is_set {
        let desired = status("desiredNumberScheduled");
        let ready = status("numberReady").min(status("numberAvailable"));
        (desired, status("currentNumberScheduled"), status("updatedNumberScheduled"), ready)
    } else {
        let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
        (wanted, status("replicas"), status("updatedReplicas"), status("availableReplicas"))
    };
    if (all, updated, ready) == (wanted, wanted, wanted) {
        return Ok(wanted);
    }
    Err(format!("of {wanted} pods {all} are there, {updated} of the newest revision, {ready} ready"))
}

/// The DaemonSets that a NUMAResourcesOperator's status names.
pub(crate) fn sets(operator: &Value) -> Vec<Target> {
    let status = &operator["status"];
    let list = |field: &str| status[field].as_array().cloned().unwrap_or_default();
    // The first list has those that are not ready too; not every version of the operator writes it.
    let of_groups = list("nodeGroups").into_iter().map(|group| group["daemonsets"].clone());
    let names: BTreeSet<_> = of_groups.chain(list("daemonsets")).filter_map(|name| pair(&name)).collect();
    let resource = ApiResource::erase::<DaemonSet>(&());
    names.iter().map(|(namespace, name)| Target::of(&resource, namespace, name)).collect()
}

/// The Deployment that a NUMAResourcesScheduler's status names.
fn deployment(scheduler: &Value) -> Option<Target> {
    let (namespace, name) = pair(&scheduler["status"]["deployment"])?;
    Some(Target::of(&ApiResource::erase::<Deployment>(&()), &namespace, &name))
}

/// The workloads that the status of either object names.
pub(crate) fn workloads(object: &Value) -> impl Iterator<Item = Target> {
    sets(object).into_iter().chain(deployment(object))
}

/// Namespace and name.
fn pair(name: &Value) -> Option<(String, String)> {
    let text = |field: &str| name[field].as_str().map(str::to_owned);
    Some((text("namespace")?, text("name")?))
}

/// The object as its URL names it.
fn target(found: &Singleton) -> Target {
    Target::of(&found.resource, "", found.object.metadata.name.as_deref().unwrap_or_default())
}

/// The operator's own Deployment, if it is there and may be seen.
async fn manager(cluster: &Cluster) -> Result<Option<Target>> {
    let all = Api::<Deployment>::all(cluster.client.clone());
    let found = match all.list(&ListParams::default().labels(OPERATOR_LABELS)).await {
        Err(error) if runtime::client::is_forbidden(&error) => return Ok(None),
        found => found?.items.into_iter().next(),
    };
    let resource = ApiResource::erase::<Deployment>(&());
    Ok(found.map(|found| {
        let text = |text: Option<String>| text.unwrap_or_default();
        Target::of(&resource, &text(found.metadata.namespace), &text(found.metadata.name))
    }))
}

impl Stack {
    /// What is whole now, where a spec reaches it. Only a spec that is alone changes the stack; beside others the
    /// numbers of pods follow their taints.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn reached(cluster: &Cluster, reach: &Reach) -> Result<Self> {
        match reach {
            Reach::Cluster => Self::now(cluster).await,
            Reach::Nodes(_) => Ok(Self::default()),
        }
    }

    /// What is whole now: objects that are Available, and their workloads that are complete.
    ///
    /// # Errors
    /// When the API server does not answer.
    async fn now(cluster: &Cluster) -> Result<Self> {
        let client = &cluster.client;
        let read = async |target: Target| {
            let found = target.api(client).get_opt(&target.name).await?;
            Ok::<_, anyhow::Error>((target, found.as_ref().map(value)))
        };
        let singletons = cluster.facts.operator.iter().chain(&cluster.facts.scheduler_object);
        let objects = try_join_all(singletons.map(target).map(read));
        let (manager, objects) = tokio::try_join!(manager(cluster), objects)?;
        let mut stack = Self::default();
        let mut workloads: Vec<Target> = manager.into_iter().collect();
        for (target, now) in objects {
            let Some(now) = now else { continue };
            if AVAILABLE.of(&now).is_ok() {
                stack.objects.push(target);
            }
            workloads.extend(self::workloads(&now));
        }
        for (target, now) in try_join_all(workloads.into_iter().map(read)).await? {
            // The pods of a node whose taint has just gone are not counted yet.
            let counted = now.filter(|now| now["status"]["numberMisscheduled"].as_i64().unwrap_or(0) == 0);
            if let Some(pods) = counted.and_then(|now| complete(&now).ok()) {
                stack.workloads.push((target, pods));
            }
        }
        Ok(stack)
    }

    /// Waits until everything that was whole is so again, with as many pods.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn restored(&self, cluster: &Cluster) -> Result {
        // Many specs leave it alone, and a watch for each part takes longer than a look.
        if *self == Self::default() || Self::now(cluster).await? == *self {
            return Ok(());
        }
        let patience = cluster.settings.patience * ROLLOUT;
        for target in &self.objects {
            let what = format!("{} {} is Available again", target.kind, target.name);
            let test = |found: Option<&_>| AVAILABLE.of(&value(found.ok_or("it is not there")?));
            object::until(cluster, target, (&what, patience), test).await?;
        }
        for (target, pods) in &self.workloads {
            let what = format!("{} {} has its {pods} pods again", target.kind, target.name);
            let test = |found: Option<&_>| match complete(&value(found.ok_or("it is not there")?))? {
                now if now == *pods => Ok(()),
                now => Err(format!("it wants {now}")),
            };
            object::until(cluster, target, (&what, patience), test).await?;
        }
        Ok(())
    }
}

/// Waits until the operator's objects are Available and their workloads complete, as after an interrupted run. Parts
/// that do not become so may have been like this before.
pub async fn settle(cluster: &Cluster) {
    let limit = cluster.settings.patience * ROLLOUT;
    let there = |found: Option<&_>| found.map(value).ok_or_else(|| "it is not there".to_owned());
    for found in cluster.facts.operator.iter().chain(&cluster.facts.scheduler_object) {
        let target = target(found);
        let test = |found: Option<&_>| there(found).and_then(|now| AVAILABLE.of(&now).map(|_| now));
        let Ok(now) = object::until(cluster, &target, ("Available", limit), test).await else {
            continue;
        };
        for workload in workloads(&now) {
            let test = |found: Option<&_>| there(found).and_then(|now| complete(&now));
            _ = object::until(cluster, &workload, ("complete", limit), test).await;
        }
    }
}

impl Fixture {
    /// The NUMAResourcesOperator.
    ///
    /// # Errors
    /// When there is none.
    pub fn nro(&self) -> Result<Target> {
        let found = self.facts().operator.as_ref();
        found.map(target).context("there is no NUMAResourcesOperator: the spec needs Need::Operator")
    }

    /// The NUMAResourcesScheduler.
    ///
    /// # Errors
    /// When there is none.
    pub fn nrs(&self) -> Result<Target> {
        let found = self.facts().scheduler_object.as_ref();
        found.map(target).context("there is no NUMAResourcesScheduler: the spec needs Need::SchedulerObject")
    }

    /// The operator's own Deployment.
    ///
    /// # Errors
    /// [`Skip`], when there is none.
    pub async fn manager(&self) -> Result<Target> {
        let missing = || Skip(format!("the operator's Deployment (labels {OPERATOR_LABELS})"));
        Ok(manager(self.cluster()).await?.ok_or_else(missing)?)
    }

    /// Waits until an object has a condition at its generation, and returns the condition's message.
    ///
    /// # Errors
    /// When it does not in time: what it says instead.
    pub async fn condition(&self, target: &Target, wanted: Wanted<'_>) -> Result<String> {
        let Wanted { kind, status, reason, text } = wanted;
        let words = [reason, text].join(" ");
        let what = format!("{} {} has {kind}={status} {}", target.kind, target.name, words.trim());
        self.rolled(target, &what, |object| wanted.of(object)).await
    }

    /// Waits until `test` finds what it looks for in an object, for as long as a rollout may take.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn rolled<T>(
        &self,
        target: &Target,
        what: &str,
        mut test: impl FnMut(&Value) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let cluster = self.cluster();
        let limit = cluster.settings.patience * ROLLOUT;
        let test = |found: Option<&_>| test(&value(found.ok_or("it is not there")?));
        Ok(object::until(cluster, target, (what, limit), test).await?)
    }

    /// Asks an object for something that cannot be had, and returns the objection.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn objection(&self, target: &Target, pointer: &str, asked: Value) -> Result<Objection> {
        match self.changes().set(target, pointer, Some(asked)).await {
            Ok(()) => {}
            Err(error) => {
                let Some(kube::Error::Api(status)) = error.downcast_ref() else { return Err(error) };
                if status.code != 422 {
                    return Err(error);
                }
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let fields = causes.map(|cause| cause.field.clone()).collect();
                return Ok(Objection { reason: None, message: status.message.clone(), fields });
            }
        }
        let what = format!("{} {} is Degraded", target.kind, target.name);
        self.until_object(target, &what, |found| {
            let object = value(found.ok_or("it is not there")?);
            let message = DEGRADED.of(&object)?;
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let mut degraded = conditions.filter(|condition| condition["type"] == DEGRADED.kind);
            let reason =
                degraded.next().and_then(|condition| condition["reason"].as_str().map(str::to_owned));
            Ok(Objection { reason: Some(reason.unwrap_or_default()), message, fields: Vec::new() })
        })
        .await
    }

    /// The exporters' DaemonSets.
    ///
    /// # Errors
    /// When the NUMAResourcesOperator names none.
    pub async fn exporter_sets(&self) -> Result<Vec<Target>> {
        let sets = sets(&self.read(&self.nro()?).await?);
        if sets.is_empty() { Err(anyhow!("the NUMAResourcesOperator names no DaemonSet")) } else { Ok(sets) }
    }

    /// The DaemonSet of the only node group.
    ///
    /// # Errors
    /// [`Skip`], when there are several groups.
    pub async fn only_set(&self) -> Result<Target> {
        let object = self.read(&self.nro()?).await?;
        let groups = object["spec"]["nodeGroups"].as_array().map_or(0, Vec::len);
        let mut sets = self.exporter_sets().await?;
        match (groups, sets.pop(), sets.is_empty()) {
            (1, Some(set), true) => Ok(set),
            _ => Err(Skip("a NUMAResourcesOperator with one node group and one pool".to_owned()).into()),
        }
    }

    /// Changes the configuration of the only node group.
    ///
    /// # Errors
    /// When the object cannot be read or changed.
    pub async fn configure(&self, change: impl FnOnce(&mut Value)) -> Result {
        let nro = self.nro()?;
        let object = self.read(&nro).await?;
        let mut config = object.pointer(GROUP_CONFIG).cloned().unwrap_or_else(|| serde_json::json!({}));
        change(&mut config);
        self.set(&nro, GROUP_CONFIG, Some(config)).await
    }

    /// The scheduler's Deployment.
    ///
    /// # Errors
    /// When the NUMAResourcesScheduler names none.
    pub async fn scheduler_deployment(&self) -> Result<Target> {
        let found = deployment(&self.read(&self.nrs()?).await?);
        found.context("the NUMAResourcesScheduler names no Deployment")
    }

    /// Waits until all pods of a DaemonSet or Deployment are ready and of its newest revision; returns their number.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn complete(&self, workload: &Target) -> Result<i64> {
        let what = format!("{} {} is complete", workload.kind, workload.name);
        self.rolled(workload, &what, complete).await
    }

    /// Waits until a DaemonSet has ready pods on these nodes and no pods elsewhere, all of which are as `is_right`
    /// demands; returns them.
    ///
    /// # Errors
    /// When it does not in time: the first node that differs.
    pub async fn on_nodes(
        &self,
        set: &Target,
        nodes: &BTreeSet<String>,
        is_right: impl Fn(&Pod) -> bool,
    ) -> Result<Vec<Arc<Pod>>> {
        let what = format!("DaemonSet {} has ready pods on {} nodes", set.name, nodes.len());
        let limit = self.cluster().settings.patience * ROLLOUT;
        let pods = self.cluster().observer.until(&what, limit, |state| {
            let pods = of_set(state, set);
            if let Some(pod) = pods.iter().find(|pod| !nodes.contains(node_of(pod))) {
                return Err(format!("a pod is on node {}", node_of(pod)));
            }
            let missing = nodes.iter().find(|node| pods.iter().all(|pod| node_of(pod) != **node));
            if let Some(node) = missing {
                return Err(format!("there is none on node {node}"));
            }
            if let Some(pod) = pods.iter().find(|pod| !is_right(pod)) {
                return Err(format!("the pod on node {} is the old one", node_of(pod)));
            }
            match pods.iter().find(|pod| !is_ready(pod)) {
                Some(pod) => Err(format!("the pod on node {} is {}", node_of(pod), state_of(pod))),
                None => Ok(pods),
            }
        });
        Ok(pods.await?)
    }

    /// The nodes that have pods of a DaemonSet now.
    #[must_use]
    pub fn nodes_of(&self, set: &Target) -> BTreeSet<String> {
        let state = self.cluster().observer.now();
        of_set(&state, set).iter().map(|pod| node_of(pod).to_owned()).collect()
    }

    /// The pods of a complete Deployment.
    ///
    /// # Errors
    /// When it is not complete in time, or its pods are not seen.
    pub async fn pods_of(&self, deployment: &Target) -> Result<Vec<Arc<Pod>>> {
        let count = usize::try_from(self.complete(deployment).await?).unwrap_or_default();
        let object = self.read(deployment).await?;
        let what = format!("the {count} pods of Deployment {} are ready", deployment.name);
        self.until(&what, |state| {
            let mut pods = selected(state, &deployment.namespace, &object);
            pods.retain(|pod| stays(pod));
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if (ready, pods.len()) == (count, count) { Ok(pods) } else { Err(format!("{ready} are")) }
        })
        .await
    }
}

/// The pods of a DaemonSet that are not on their way out.
#[must_use]
pub fn of_set(state: &Observed, set: &Target) -> Vec<Arc<Pod>> {
    let is_of = |pod: &Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        pod.metadata.namespace.as_deref() == Some(&*set.namespace)
            && pod.metadata.deletion_timestamp.is_none()
            && owners.into_iter().any(|owner| owner.kind == set.kind && owner.name == set.name)
    };
    state.pods.values().filter(|pod| is_of(pod)).cloned().collect()
}

/// The pods that a Deployment selects in its namespace, also those on their way out.
#[must_use]
pub fn selected(state: &Observed, namespace: &str, deployment: &Value) -> Vec<Arc<Pod>> {
    let labels = &deployment["spec"]["selector"]["matchLabels"];
    let is_chosen = |pod: &Pod| {
        let of_pod = pod.metadata.labels.clone().unwrap_or_default();
        let mut wanted = labels.as_object().into_iter().flatten();
        pod.metadata.namespace.as_deref() == Some(namespace)
            && wanted.all(|(key, value)| of_pod.get(key).map(String::as_str) == value.as_str())
    };
    state.pods.values().filter(|pod| is_chosen(pod)).cloned().collect()
}

/// The UIDs of pods: which of them are others than before.
#[must_use]
pub fn uids(pods: &[Arc<Pod>]) -> BTreeSet<Option<String>> {
    pods.iter().map(|pod| pod.metadata.uid.clone()).collect()
}

/// Whether a pod has neither ended nor been told to.
fn stays(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The node of a pod; a DaemonSet's pod is meant for one before a scheduler has sent it.
#[must_use]
pub fn node_of(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    let meant = || {
        let affinity = spec?.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let mut fields = terms.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
        fields.find_map(|field| field.values.as_ref()?.first().map(String::as_str))
    };
    spec.and_then(|spec| spec.node_name.as_deref()).or_else(meant).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_count_at_the_generation_that_was_asked_for() {
        let of = |status: &str, seen: Option<i64>| {
            json!({ "metadata": { "generation": 2 }, "status": { "conditions": [
                { "type": "Degraded", "status": status, "reason": "Bad", "message": "a toleration",
                  "observedGeneration": seen },
            ] } })
        };
        let table = [
            (of("True", Some(2)), DEGRADED, true),
            (of("True", Some(3)), DEGRADED, true),
            (of("True", Some(1)), DEGRADED, false),
            (of("True", None), DEGRADED, true),
            (of("False", Some(2)), DEGRADED, false),
            (of("True", Some(2)), Wanted { reason: "Bad", text: "toler", ..DEGRADED }, true),
            (of("True", Some(2)), Wanted { reason: "Good", ..DEGRADED }, false),
            (of("True", Some(2)), Wanted { text: "taint", ..DEGRADED }, false),
            (of("True", Some(2)), AVAILABLE, false),
            (json!({}), AVAILABLE, false),
        ];
        for (object, wanted, holds) in table {
            assert_eq!(wanted.of(&object).is_ok(), holds, "{wanted:?} {object}");
        }
    }

    #[test]
    fn workloads_are_complete_when_only_the_newest_revision_runs() {
        // generation, seen, wanted, there, updated, ready
        let table = [
            ([2, 2, 3, 3, 3, 3], Ok(3)),
            ([2, 1, 3, 3, 3, 3], Err(())),
            ([2, 2, 3, 2, 3, 3], Err(())),
            ([2, 2, 3, 4, 3, 3], Err(())),
            ([2, 2, 3, 3, 2, 3], Err(())),
            ([2, 2, 3, 3, 3, 2], Err(())),
            ([1, 1, 0, 0, 0, 0], Ok(0)),
        ];
        for (numbers, wanted) in table {
            let [generation, seen, count, there, updated, ready] = numbers;
            let metadata = json!({ "generation": generation });
            let set = json!({ "metadata": metadata, "status": {
                "observedGeneration": seen, "desiredNumberScheduled": count, "currentNumberScheduled": there,
                "updatedNumberScheduled": updated, "numberReady": ready, "numberAvailable": ready,
            } });
            let deployment = json!({ "metadata": metadata, "spec": { "replicas": count },
                "status": { "observedGeneration": seen, "replicas": there, "updatedReplicas": updated,
                    "availableReplicas": ready } });
            for object in [set, deployment] {
                assert_eq!(complete(&object).map_err(|_| ()), wanted, "{object}");
            }
        }
        assert!(complete(&json!({ "metadata": { "generation": 1 } })).is_err());
    }

    #[test]
    fn the_status_names_each_set_once() {
        let name = |name: &str| json!({ "namespace": "ns", "name": name });
        let status = json!({ "status": {
            "nodeGroups": [{ "daemonsets": name("a") }, { "daemonsets": name("b") }],
            "daemonsets": [name("a"), {}],
        } });
        let names: Vec<String> = sets(&status).into_iter().map(|target| target.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(sets(&json!({})).len(), 0);
    }
}
