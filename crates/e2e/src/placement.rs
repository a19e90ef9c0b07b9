//! Where pods are, and what they took.
//!
//! In: pods of a spec. Out: the node on which each runs, the scheduler that sent it there, what the kubelet took from
//! which zone. Never: a lower bound where the model gives the amount.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use topology::admit::{Scratch, admit};
use topology::resource::ResourceName;
use topology::zone::Free;

use crate::cluster::NAMESPACE;
use crate::facts::NodeFacts;
use crate::fixture::{Fixture, PodRef, difference};
use crate::observed::Observed;
use crate::pods::SPEC_LABEL;
use crate::settled;
use crate::spec::Result;

/// The kubelet's reason for a pod that it cannot align.
pub const TOPOLOGY_AFFINITY_ERROR: &str = "TopologyAffinityError";

/// What a scheduler says of a pod that no zones hold, before the scope: the words by which people look for it.
const CANNOT_ALIGN: &str = "cannot align ";

impl PodRef {
    /// The pod now.
    #[must_use]
    pub fn find<'s>(&self, state: &'s Observed) -> Option<&'s Arc<Pod>> {
        let pod = state.pods.get(&(NAMESPACE.to_owned(), self.name.clone()))?;
        (pod.metadata.uid.as_deref() == Some(&*self.uid)).then_some(pod)
    }

    /// Events about the pod with a reason.
    pub fn events<'s>(
        &self,
        state: &'s Observed,
        reason: &'s str,
    ) -> impl Iterator<Item = &'s Arc<Event>> + use<'s> {
        let uid = self.uid.clone();
        state.events.values().filter(move |event| {
            event.involved_object.uid.as_deref() == Some(&*uid) && event.reason.as_deref() == Some(reason)
        })
    }
}

/// Why a pod has ended, if it has: reason and message.
fn ended(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref().filter(|phase| matches!(*phase, "Failed" | "Succeeded"))?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{phase} {} {}", text(&status.reason), text(&status.message)))
}

/// Who sent an event.
fn sender(event: &Event) -> &str {
    let reporter = event.reporting_component.as_deref().filter(|name| !name.is_empty());
    reporter.or_else(|| event.source.as_ref()?.component.as_deref()).unwrap_or_default()
}

/// Whether a scheduler has found that a pod fits nowhere.
#[must_use]
pub fn is_unschedulable(pod: &Pod) -> bool {
    refusal(pod).is_some()
}

/// The words with which a scheduler has said so.
#[must_use]
pub fn refusal(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let mut said = conditions
        .iter()
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let condition = said.find(|condition| condition.reason.as_deref() == Some("Unschedulable"))?;
    Some(condition.message.as_deref().unwrap_or_default())
}

/// Whether words name a resource, as in `0/4 nodes are available: 4 Insufficient cpu`. The words around it are each
/// scheduler's own.
#[must_use]
pub fn names(said: &str, resource: ResourceName) -> bool {
    let is_apart = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '"' | '\'' | '(' | ')');
    let mut words = said.split(is_apart).map(|word| word.trim_end_matches('.'));
    words.any(|word| word == resource.as_str())
}

/// Whether all containers of a pod run.
#[must_use]
pub fn runs(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
}

impl Fixture {
    /// Waits until a pod runs.
    ///
    /// # Errors
    /// When it does not in time; at once when it ended: no pod comes back from that.
    pub async fn running(&self, pod: &PodRef) -> Result<Arc<Pod>> {
        let found = self
            .until(&format!("pod {} runs", pod.name), |state| match pod.find(state) {
                None => Err("it is not there".to_owned()),
                Some(found) => match (runs(found), ended(found)) {
                    (true, _) => Ok(Ok(Arc::clone(found))),
                    (_, Some(why)) => Ok(Err(why)),
                    _ => Err(state_of(found)),
                },
            })
            .await?;
        found.map_err(|why| anyhow!("pod {} ended: {why}", pod.name))
    }

    /// Waits until a pod has a node, and says which.
    ///
    /// # Errors
    /// When it has none in time.
    pub async fn node_of(&self, pod: &PodRef) -> Result<String> {
        self.until(&format!("pod {} has a node", pod.name), |state| {
            let found = pod.find(state).ok_or("it is not there")?;
            let node = found.spec.as_ref().and_then(|spec| spec.node_name.clone());
            node.ok_or_else(|| state_of(found))
        })
        .await
    }

    /// Waits until a pod runs on a node, sent there by the scheduler under test.
    ///
    /// # Errors
    /// When it does not, or is elsewhere.
    pub async fn runs_on(&self, pod: &PodRef, node: &str) -> Result {
        let found = self.running(pod).await?;
        let actual = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        ensure!(actual == node, "pod {} runs on node {actual}; only {node} has room for it", pod.name);
        self.scheduled(pod).await
    }

    /// Waits for the event with which the scheduler under test says that it has sent a pod.
    ///
    /// # Errors
    /// When another scheduler says so, or nothing comes in time.
    pub async fn scheduled(&self, pod: &PodRef) -> Result {
        self.scheduled_by(pod, self.scheduler()).await
    }

    /// Like [`Fixture::scheduled`], for any scheduler.
    ///
    /// # Errors
    /// When another scheduler says so, or nothing comes in time.
    pub async fn scheduled_by(&self, pod: &PodRef, scheduler: &str) -> Result {
        let by = self
            .until(&format!("event Scheduled of pod {}", pod.name), |state| {
                let event = pod.events(state, "Scheduled").next().ok_or("there is none")?;
                Ok(sender(event).to_owned())
            })
            .await?;
        ensure!(by == scheduler, "pod {} was scheduled by {by}, not {scheduler}", pod.name);
        Ok(())
    }

    /// Waits until the scheduler under test says that a pod fits nowhere, and returns its words. The pod has no node
    /// then.
    ///
    /// # Errors
    /// When it gets a node, or nothing is said in time.
    pub async fn unschedulable(&self, pod: &PodRef) -> Result<String> {
        self.refused(pod, |_| Ok(())).await
    }

    /// Like [`Fixture::unschedulable`], because nodes as a whole lack a resource.
    ///
    /// # Errors
    /// When the scheduler's last words name another reason.
    pub async fn lacks(&self, pod: &PodRef, resource: ResourceName) -> Result {
        let because = |said: &str| match said {
            said if !names(said, resource) => Err(format!("{said:?} does not name {resource}")),
            said if said.contains(CANNOT_ALIGN) => Err(format!("{said:?} is about zones")),
            _ => Ok(()),
        };
        self.refused(pod, because).await.map(drop)
    }

    /// Like [`Fixture::unschedulable`], because zones have no room: the words are those for the nodes' scope.
    ///
    /// # Errors
    /// When the scheduler's last words do not give this reason.
    pub async fn cannot_align(&self, pod: &PodRef) -> Result {
        let wanted = format!("{CANNOT_ALIGN}{}", self.scope().as_str());
        let because = |said: &str| match said.contains(&wanted) {
            true => Ok(()),
            false => Err(format!("{said:?} does not say {wanted:?}")),
        };
        self.refused(pod, because).await.map(drop)
    }

    /// Waits until the scheduler's words about a pod are as they should be: the first may be about pods that leave.
    async fn refused(
        &self,
        pod: &PodRef,
        because: impl Fn(&str) -> std::result::Result<(), String>,
    ) -> Result<String> {
        let said = self
            .until(&format!("pod {} is found unschedulable", pod.name), |state| {
                let found = pod.find(state).ok_or("it is not there")?;
                if let Some(node) = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                    return Ok(Err(format!("pod {} was sent to node {node}", pod.name)));
                }
                let said = refusal(found).ok_or_else(|| state_of(found))?;
                because(said)?;
                Ok(Ok(said.to_owned()))
            })
            .await?;
        said.map_err(anyhow::Error::msg)
    }

    /// Waits until a kubelet has rejected a pod because it cannot be aligned.
    ///
    /// # Errors
    /// When it runs or ends otherwise.
    pub async fn rejected(&self, pod: &PodRef) -> Result {
        let found = self
            .until(&format!("pod {} is rejected by its kubelet", pod.name), |state| {
                let found = pod.find(state).ok_or("it is not there")?;
                match (ended(found), runs(found)) {
                    (Some(why), _) => Ok(why),
                    (None, true) => Ok("it runs".to_owned()),
                    (None, false) => Err(state_of(found)),
                }
            })
            .await?;
        ensure!(found.contains(TOPOLOGY_AFFINITY_ERROR), "pod {}: {found}", pod.name);
        Ok(())
    }

    /// Waits until the report of a node shows what its kubelet must have taken for these pods, zone by zone, and
    /// nothing else. `before` is what was free without them; pods come in the order of their admission.
    ///
    /// # Errors
    /// The zone and resource that differ.
    pub async fn accounted(&self, node: &str, before: &Free, pods: &[PodRef]) -> Result {
        let state = self.cluster().observer.now();
        let rules = settled::topology(&state, node).map_err(anyhow::Error::msg)?.rules;
        let mut expected = before.clone();
        for pod in pods {
            let found = pod.find(&state).with_context(|| format!("pod {} is not there", pod.name))?;
            let request = api::convert::pod_request(found).with_context(|| format!("pod {}", pod.name))?;
            let placement = match admit(rules, &expected, &request.needs(), &mut Scratch::default()) {
                Ok(placement) => placement,
                Err(misfit) => {
                    let name = &pod.name;
                    bail!(
                        "pod {name} runs on node {node}, where the model has no room: {}",
                        misfit.constraint
                    )
                }
            };
            for grant in &placement.grants {
                expected.add(grant.cell as usize, -grant.visible);
            }
        }
        self.until(&format!("the report of node {node} shows its {} pods", pods.len()), |state| {
            let now = settled::settled(state, node)?.available();
            difference(&expected, &now).map_or(Ok(()), Err)
        })
        .await
    }

    /// Waits until the reports of all nodes of the spec are as at its beginning.
    ///
    /// # Errors
    /// The zone and resource that differ.
    pub async fn untouched(&self) -> Result {
        self.untouched_but(&[]).await
    }

    /// Waits until the reports of the spec's nodes, without these, are as at its beginning.
    ///
    /// # Errors
    /// The zone and resource that differ.
    pub async fn untouched_but(&self, others: &[NodeFacts]) -> Result {
        for node in self.nodes().iter().filter(|node| others.iter().all(|other| other.name != node.name)) {
            self.restored(&node.name, self.before(&node.name)?).await?;
        }
        Ok(())
    }

    /// The pods of the spec with a label that are not on their way out, by name.
    #[must_use]
    pub fn labelled(&self, key: &str, value: &str) -> Vec<PodRef> {
        self.own(&self.cluster().observer.now(), key, value)
    }

    /// The same in a state. Another spec may give its pods the same label.
    fn own(&self, state: &Observed, key: &str, value: &str) -> Vec<PodRef> {
        let is_own = |pod: &PodRef| {
            let labels = pod.find(state).and_then(|found| found.metadata.labels.as_ref());
            labels.and_then(|labels| labels.get(SPEC_LABEL)).is_some_and(|spec| spec == self.name())
        };
        labelled(state, key, value).into_iter().filter(is_own).collect()
    }

    /// Waits until as many pods with a label run, and no others are there.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn all_running(&self, key: &str, value: &str, count: usize) -> Result<Vec<PodRef>> {
        self.until(&format!("{count} pods {key}={value} run"), |state| {
            let pods = self.own(state, key, value);
            let running = pods.iter().filter(|pod| pod.find(state).is_some_and(|pod| runs(pod))).count();
            if (running, pods.len()) == (count, count) {
                return Ok(pods);
            }
            let waiting = pods.iter().find_map(|pod| pod.find(state).filter(|pod| !runs(pod)));
            let why = waiting.map(|pod| state_of(pod)).unwrap_or_default();
            Err(format!("{running} of {} run; {why}", pods.len()))
        })
        .await
    }

    /// Waits until so many of the pods with a label run, and the others have been found unschedulable.
    ///
    /// # Errors
    /// When others run, or it takes too long.
    pub(crate) async fn fitting(&self, key: &str, value: &str, wanted: usize, all: usize) -> Result {
        self.until(&format!("{wanted} of {all} pods of {value} run"), |state| {
            let pods = self.own(state, key, value);
            let found = || pods.iter().filter_map(|pod| pod.find(state));
            let running = found().filter(|pod| runs(pod)).count();
            let refused = found().filter(|pod| is_unschedulable(pod)).count();
            if (running, refused, pods.len()) == (wanted, all - wanted, all) {
                return Ok(());
            }
            Err(format!("{running} run, {refused} of {} are found unschedulable", pods.len()))
        })
        .await
    }
}

/// The pods of the suite's namespace with a label that are not on their way out, by name.
#[must_use]
pub fn labelled(state: &Observed, key: &str, value: &str) -> Vec<PodRef> {
    let is_chosen = |pod: &Pod| pod.metadata.labels.iter().flatten().any(|(k, v)| k == key && v == value);
    let pods = state.pods.iter().filter(|((namespace, _), _)| namespace == NAMESPACE).map(|(_, pod)| pod);
    pods.filter(|pod| is_chosen(pod) && pod.metadata.deletion_timestamp.is_none())
        .map(|pod| PodRef {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
        })
        .collect()
}

/// How far a pod is, in a few words.
#[must_use]
pub fn state_of(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Unknown");
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let said = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    let said = said.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let waiting = containers.iter().find_map(|container| container.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let ended = containers.iter().find_map(|container| container.last_state.as_ref()?.terminated.as_ref());
    let ended = ended.and_then(|ended| ended.message.as_deref()).unwrap_or_default();
    let parts = [phase, node.unwrap_or("without a node"), said, waiting, ended];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
