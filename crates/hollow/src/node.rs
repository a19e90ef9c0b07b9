//! One hollow node: it admits pods, holds what they got, and says what the exporter would publish.
//!
//! In: pods in the order in which its kubelet sees them. Out: allocations and rejections. Never: a decision of its own:
//! admission is `topology::kubelet`, id by id.

use std::sync::Arc;

use exporter::object::Content;
use topology::kubelet::device_manager::{Lowest, Registration};
use topology::kubelet::pod::{Pod, PodUid};
use topology::kubelet::rejection::Rejection;
use topology::kubelet::{self as model, Allocation, NodeState};
use tracing::warn;

use crate::checkpoint;
use crate::machine::{ListedPod, Machine};
use crate::pod::PodView;

/// A node.
#[derive(Clone, Debug)]
pub struct HollowNode {
    /// The name.
    pub name: Arc<str>,
    machine: Arc<Machine>,
    state: NodeState,
    /// Admitted pods that have not ended.
    pub pods: Vec<PodUid>,
}

impl HollowNode {
    /// A node without pods.
    #[must_use]
    pub fn new(name: Arc<str>, machine: Arc<Machine>) -> Self {
        Self { name, state: machine.vacant(), machine, pods: Vec::new() }
    }

    /// Admits a pod. Cost: that of [`topology::kubelet::admit`].
    ///
    /// # Errors
    /// The kubelet's reason.
    pub fn admit(&mut self, view: &PodView) -> Result<Allocation, Rejection> {
        let pod = self.model_pod(view);
        let admitted = model::admit(&self.machine.kubelet, &mut self.state, &pod, &Lowest);
        if let Err(rejection) = admitted {
            self.state.sweep();
            return Err(rejection);
        }
        self.pods.push(Arc::clone(&view.uid));
        Ok(self.state.allocation(&pod))
    }

    /// Takes over pods that ran before this process started, as a kubelet that starts again: its managers know what
    /// their containers hold, and it admits them again in the order of their creation. Returns those that it rejects.
    pub fn adopt(&mut self, mut views: Vec<&PodView>) -> Vec<(PodUid, Rejection)> {
        views.sort_unstable_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        for view in &views {
            let held = view.held.as_deref().map(checkpoint::read);
            if held == Some(None) {
                warn!(pod = %view.name, "the annotation {} makes no sense: it is left out", checkpoint::KEY);
            }
            held.flatten().into_iter().flatten().for_each(|held| self.state.hold(&view.uid, held));
        }
        let pods: Vec<Pod> = views.iter().map(|view| self.model_pod(view)).collect();
        let registration = Registration::BeforePods;
        let rejected = match self.state.restart(&self.machine.kubelet, &pods, registration, &Lowest) {
            Ok(rejected) => rejected,
            Err(refusal) => {
                // Another machine than before. An administrator removes the checkpoints then.
                warn!(node = %self.name, "the kubelet does not start with what its pods hold: {refusal}");
                self.state = self.machine.vacant();
                let admit = |pod: &Pod| {
                    let admitted = model::admit(&self.machine.kubelet, &mut self.state, pod, &Lowest);
                    admitted.err().map(|rejection| (Arc::clone(&pod.uid), rejection))
                };
                pods.iter().filter_map(admit).collect()
            }
        };
        self.state.sweep();
        let stays = |view: &&&PodView| rejected.iter().all(|(uid, _)| *uid != view.uid);
        self.pods.extend(views.iter().filter(stays).map(|view| Arc::clone(&view.uid)));
        rejected
    }

    /// The same node after its kubelet was configured otherwise: what runs stays where it is.
    #[must_use]
    pub fn with_machine(mut self, machine: Arc<Machine>) -> Self {
        self.machine = machine;
        self
    }

    /// A pod has ended: its resources are free again. Unknown pods change nothing.
    pub fn release(&mut self, uid: &PodUid) {
        let before = self.pods.len();
        self.pods.retain(|pod| pod != uid);
        if self.pods.len() < before {
            self.state.remove(uid);
            self.state.sweep();
        }
    }

    /// What the exporter would publish now, with the pods of [`HollowNode::pods`] listed.
    ///
    /// # Errors
    /// As [`Machine::report`].
    pub fn report(&self, pods: &[ListedPod<'_>]) -> anyhow::Result<Content> {
        self.machine.report(&self.state, pods)
    }

    fn model_pod(&self, view: &PodView) -> Pod {
        Pod::new(self.machine.kubelet.profile(), Arc::clone(&view.uid), &view.request)
    }
}
