//! A session as the model of the kubelet sees it.
//!
//! In: a [`Session`]. Out: answers in the same form as the oracle's. Never: an admission rule; those are
//! `topology::kubelet`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod as WirePod;
use node::kubelet::profile::profile;
use topology::kubelet::device_manager::{
    Choice, Device, DeviceIds, Lowest, Preference, Registration, Resource,
};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::memory_manager::Block;
use topology::kubelet::pod::{Pod, PodUid};
use topology::kubelet::profile::{KubeletProfile, Minor, Refusal};
use topology::kubelet::resize::{PendingReason, ResizeQueue, resize};
use topology::kubelet::{Allocation, Kubelet, NodeState, admit};
use topology::resource::ResourceName;

use crate::machine::Machine;

use super::session::{Plugin, Preferred, Session};
use super::verdict::{
    ContainerVerdict, DevicesVerdict, MemoryVerdict, PodVerdict, RejectedPod, Resized, Restarted, Started,
    Verdict,
};

/// A kubelet that is the model.
pub struct Model {
    kubelet: Kubelet,
    state: NodeState,
    /// Admitted pods, in the order of admission.
    pods: Vec<Admitted>,
    /// Pods that wait for a resize.
    resizes: ResizeQueue,
}

/// An admitted pod.
struct Admitted {
    /// As the kubelet allocated it.
    allocated: Pod,
    /// As it shall be.
    desired: Pod,
    /// Why it is not as it shall be.
    pending: Option<PendingReason>,
}

/// Devices that another kubelet has chosen.
#[derive(Default)]
pub struct Chosen(BTreeMap<(String, ResourceName), DeviceIds>);

impl Chosen {
    /// The devices of a verdict.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        let chosen = verdict.devices().into_iter().filter_map(|((container, resource), ids)| {
            let ids = ids.iter().map(|id| Arc::from(id.as_str())).collect();
            Some(((container.to_owned(), ResourceName::new(resource).ok()?), ids))
        });
        Self(chosen.collect())
    }
}

impl Choice for Chosen {
    fn devices(&self, container: &str, resource: ResourceName) -> Option<&DeviceIds> {
        self.0.get(&(container.to_owned(), resource))
    }
}

impl Model {
    /// Starts the kubelet of a session.
    ///
    /// # Errors
    /// When machine or devices cannot be read. A kubelet that refuses to start is no error: it is `Err` within, with
    /// its words.
    pub fn start(session: &Session, minor: Minor) -> anyhow::Result<Result<Self, Started>> {
        let machine = Arc::new(session.machine.machine().context("machine")?);
        let text = session.kubelet.to_string();
        let configuration = match node::kubelet::Configuration::parse(&text, Path::new("kubelet")) {
            Ok(configuration) => configuration,
            Err(error) => return Ok(Err(Started { ok: false, error: error.to_string() })),
        };
        let profile = profile(&configuration, minor, &machine);
        match profile.and_then(|profile| Kubelet::new(machine, profile)) {
            Ok(kubelet) => Ok(Ok(Self::new(kubelet, &session.devices)?)),
            Err(refusal) => Ok(Err(Started { ok: false, error: refusal.to_string() })),
        }
    }

    /// A kubelet that has handed out nothing yet.
    ///
    /// # Errors
    /// When the name of a device's resource is none.
    pub fn new(kubelet: Kubelet, devices: &[Plugin]) -> anyhow::Result<Self> {
        let mut state = kubelet.empty_state();
        for plugin in devices {
            state.devices.resources.insert(ResourceName::new(&plugin.resource)?, resource(plugin));
        }
        Ok(Self { kubelet, state, pods: Vec::new(), resizes: ResizeQueue::default() })
    }

    /// The kubelet of a node in a dump, whose pods hold what its report says. Their totals are taken from the node's.
    ///
    /// # Errors
    /// [`Refusal`] if the kubelet does not start.
    pub fn of(machine: &Machine) -> Result<Self, Refusal> {
        let kubelet = &machine.start.kubelet;
        let mut left: BTreeMap<ResourceName, i64> =
            machine.view.allocatable.iter().map(|need| (need.name, need.amount)).collect();
        let mut take = |name, amount| {
            if let Some(left) = left.get_mut(&name) {
                *left = left.saturating_sub(amount);
            }
        };
        for pod in &machine.residents {
            take(ResourceName::PODS, 1);
            pod.spec.needs.totals.iter().for_each(|need| take(need.name, need.amount));
        }
        let allocatable = Some(left.into_iter().map(|(name, amount)| (name, amount.max(0))).collect());
        let profile = KubeletProfile { allocatable, ..kubelet.profile().clone() };
        let kubelet = Kubelet::new(Arc::new(kubelet.machine().clone()), profile)?;
        Ok(Self { kubelet, state: machine.start.state(), pods: Vec::new(), resizes: ResizeQueue::default() })
    }

    /// Admits a pod.
    ///
    /// # Errors
    /// When the pod cannot be read.
    pub fn admit(&mut self, pod: &serde_json::Value, choice: &dyn Choice) -> anyhow::Result<Verdict> {
        let pod = read_pod(&self.kubelet, pod)?;
        Ok(match admit(&self.kubelet, &mut self.state, &pod, choice) {
            Ok(allocation) => {
                self.pods.push(Admitted { allocated: pod.clone(), desired: pod, pending: None });
                verdict(&allocation)
            }
            Err(rejection) => {
                Verdict { reason: rejection.reason(), message: rejection.to_string(), ..Verdict::default() }
            }
        })
    }

    /// A pod has ended. Resizes that wait are tried again.
    pub fn remove(&mut self, uid: &str) {
        self.state.remove(uid);
        self.pods.retain(|pod| &*pod.allocated.uid != uid);
        self.retry_resizes();
    }

    /// A pod is changed in place.
    ///
    /// # Errors
    /// When the pod cannot be read, or was not admitted.
    pub fn resize(&mut self, pod: &serde_json::Value) -> anyhow::Result<Resized> {
        let desired = read_pod(&self.kubelet, pod)?;
        let uid = desired.uid.clone();
        let admitted = self.pods.iter_mut().find(|pod| pod.allocated.uid == uid);
        let admitted = admitted.with_context(|| format!("resize of pod {uid}, which was not admitted"))?;
        admitted.desired = desired;
        if admitted.desired == admitted.allocated {
            admitted.pending = None;
        } else {
            self.queue_resize(&uid);
            self.retry_resizes();
        }
        let pod = self.pods.iter().find(|pod| pod.allocated.uid == uid).context("the pod is gone")?;
        let pending = pod.pending.as_ref();
        Ok(Resized {
            resized: pod.allocated == pod.desired,
            reason: pending.map(|pending| pending.reason().to_owned()).unwrap_or_default(),
            message: pending.map(ToString::to_string).unwrap_or_default(),
            containers: verdict(&self.state.allocation(&pod.allocated)).containers,
        })
    }

    fn queue_resize(&mut self, uid: &PodUid) {
        let pods = &self.pods;
        self.resizes.push(uid, |uid| {
            let pod = pods.iter().find(|pod| pod.allocated.uid == *uid)?;
            Some((&pod.allocated, &pod.desired))
        });
    }

    /// kubelet `retryPendingResizes`.
    fn retry_resizes(&mut self) {
        for uid in self.resizes.take() {
            let Some(pod) = self.pods.iter_mut().find(|pod| pod.allocated.uid == uid) else { continue };
            pod.pending = if pod.desired == pod.allocated {
                None
            } else {
                resize(&self.kubelet, &mut self.state, &pod.allocated, &pod.desired, &Lowest).err()
            };
            match &pod.pending {
                None => pod.allocated = pod.desired.clone(),
                Some(pending) if pending.is_deferred() => self.resizes.keep(uid),
                Some(_) => {}
            }
        }
    }

    /// The kubelet restarts.
    pub fn restart(&mut self, plugins: Registration, choice: &dyn Choice) -> Restarted {
        let pods = self.pods.iter().map(|pod| &pod.allocated);
        let rejected = match self.state.restart(&self.kubelet, pods, plugins, choice) {
            Ok(rejected) => rejected,
            Err(refusal) => return Restarted { error: refusal.to_string(), ..Restarted::default() },
        };
        self.pods.retain(|pod| rejected.iter().all(|(uid, _)| *uid != pod.allocated.uid));
        self.resizes = ResizeQueue::default();
        self.pods.iter_mut().for_each(|pod| pod.pending = None);
        let waiting = self.pods.iter().filter(|pod| pod.allocated != pod.desired);
        for uid in waiting.map(|pod| pod.allocated.uid.clone()).collect::<Vec<_>>() {
            self.queue_resize(&uid);
        }
        // They are tried at the next occasion: kubelet `retryPendingResizes` does nothing before sources are ready.
        let rejected = rejected.into_iter().map(|(uid, rejection)| RejectedPod {
            uid: uid.to_string(),
            reason: rejection.reason(),
            message: rejection.to_string(),
        });
        Restarted { ok: true, error: String::new(), rejected: rejected.collect() }
    }

    /// Whether what the kubelet does from now on depends on chance.
    #[must_use]
    pub fn is_by_chance(&self) -> bool {
        self.state.memory.is_by_chance()
    }

    /// What its managers hold.
    #[must_use]
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// The UIDs of admitted pods that have not ended.
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        self.pods.iter().map(|pod| &*pod.allocated.uid)
    }

    /// Managers give back what ended pods held.
    pub fn sweep(&mut self) {
        self.state.sweep();
    }

    /// The kubelet.
    #[must_use]
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }
}

/// When plugins register with a kubelet that restarts, from a step of a session.
#[must_use]
pub fn registration(before_pods: bool) -> Registration {
    if before_pods { Registration::BeforePods } else { Registration::AfterPods }
}

fn read_pod(kubelet: &Kubelet, pod: &serde_json::Value) -> anyhow::Result<Pod> {
    let wire: WirePod = serde::Deserialize::deserialize(pod).context("pod")?;
    let request = api::convert::whole_pod_request(&wire)?;
    let uid = wire.metadata.uid.context("pod without metadata.uid")?;
    Ok(Pod::new(kubelet.profile(), uid.into(), &request))
}

fn resource(plugin: &Plugin) -> Resource {
    let device = |nodes: &[u32], healthy| Device {
        zones: (!nodes.is_empty()).then(|| nodes.iter().copied().collect::<ZoneMask>()),
        healthy,
    };
    Resource {
        devices: plugin
            .devices
            .iter()
            .map(|d| (Arc::from(d.id.as_str()), device(&d.nodes, d.healthy)))
            .collect(),
        preference: match plugin.preferred {
            None => Preference::None,
            Some(Preferred::First) => Preference::First,
            Some(Preferred::Last) => Preference::Last,
            Some(Preferred::Own) => Preference::Own,
        },
    }
}

fn verdict(allocation: &Allocation) -> Verdict {
    let containers = allocation.containers.iter().map(|container| ContainerVerdict {
        name: container.name.to_string(),
        cpus: container.cpus.to_string(),
        memory: memory(&container.memory),
        devices: container
            .devices
            .iter()
            .map(|(name, ids)| DevicesVerdict {
                resource: name.to_string(),
                ids: ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().collect(),
            })
            .collect(),
    });
    let whole = !allocation.cpus.is_empty() || !allocation.memory.is_empty();
    Verdict {
        admitted: true,
        containers: containers.collect(),
        pod: whole
            .then(|| PodVerdict { cpus: allocation.cpus.to_string(), memory: memory(&allocation.memory) }),
        ..Verdict::default()
    }
}

fn memory(blocks: &[Block]) -> Vec<MemoryVerdict> {
    let mut verdicts: Vec<_> = blocks
        .iter()
        .map(|block| MemoryVerdict {
            name: block.name.to_string(),
            zones: block.zones.iter().collect(),
            bytes: block.bytes,
        })
        .collect();
    verdicts.sort();
    verdicts
}
