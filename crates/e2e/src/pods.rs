//! Pods as specs describe them.
//!
//! In: containers with amounts, a scheduler, where the pod may go. Out: pods, and templates for controllers. Never: a
//! size of its own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    PodTemplateSpec, ResourceRequirements, SecurityContext, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::amounts::Amounts;

/// The label with which everything is found again: the run.
pub const RUN_LABEL: &str = "e2e.tholepin.dev/run";
/// The label of the spec that made an object.
pub const SPEC_LABEL: &str = "e2e.tholepin.dev/spec";
/// The label of pods that a kubelet is expected to reject.
pub const REJECTION_LABEL: &str = "e2e.tholepin.dev/rejected-on-purpose";
/// The label by which kubelets name their node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The programs of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Our own image.
    pub tholepin: String,
    /// An image whose entry point waits for ever; ours where there is none.
    pub pause: Option<String>,
    /// How nodes get images.
    pub pull_policy: String,
}

/// A pod as a spec describes it.
#[derive(Clone, Debug)]
pub struct PodPlan {
    name: String,
    images: Images,
    labels: BTreeMap<String, String>,
    spec: PodSpec,
}

/// What a container asks for.
#[derive(Clone, Copy, Debug)]
enum Share<'a> {
    /// Requests equal limits.
    Limits(&'a Amounts),
    /// Requests only; devices and huge pages are limits in any case.
    Requests(&'a Amounts),
}

/// How long a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Forever,
    /// One second.
    Short,
}

/// The first container of a pod, for commands in it; `None` without one.
#[must_use]
pub fn first_container(pod: &Pod) -> Option<runtime::client::Container<'_>> {
    let spec = pod.spec.as_ref()?;
    Some(runtime::client::Container {
        node: spec.node_name.as_deref().unwrap_or_default(),
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod: pod.metadata.name.as_deref().unwrap_or_default(),
        name: &spec.containers.first()?.name,
    })
}

impl PodPlan {
    /// A pod without containers.
    #[must_use]
    pub fn new(name: &str, scheduler: &str, images: &Images, labels: BTreeMap<String, String>) -> Self {
        let spec = PodSpec {
            automount_service_account_token: Some(false),
            scheduler_name: Some(scheduler.to_owned()),
            termination_grace_period_seconds: Some(1),
            ..PodSpec::default()
        };
        Self { name: name.to_owned(), images: images.clone(), labels, spec }
    }

    /// Adds a container that has these amounts for itself. The pod is Guaranteed if all are like this, with CPU and
    /// memory.
    #[must_use]
    pub fn guaranteed(self, amounts: &Amounts) -> Self {
        self.container(Share::Limits(amounts), Life::Forever)
    }

    /// Adds a container that requests these amounts, without limits.
    #[must_use]
    pub fn burstable(self, amounts: &Amounts) -> Self {
        self.container(Share::Requests(amounts), Life::Forever)
    }

    /// Adds a container that asks for nothing.
    #[must_use]
    pub fn best_effort(self) -> Self {
        self.container(Share::Requests(&Amounts::default()), Life::Forever)
    }

    /// Adds a container that has these amounts and ends after a second.
    #[must_use]
    pub fn short(self, amounts: &Amounts) -> Self {
        self.container(Share::Limits(amounts), Life::Short)
    }

    /// Adds an init container that has these amounts and ends after a second.
    #[must_use]
    pub fn init(mut self, amounts: &Amounts) -> Self {
        let number = self.spec.init_containers.iter().flatten().count();
        let container = self.make(&format!("init-{number}"), Share::Limits(amounts), Life::Short);
        self.spec.init_containers.get_or_insert_default().push(container);
        self
    }

    /// The pod is not started again when a container ends.
    #[must_use]
    pub fn restart(mut self, policy: &str) -> Self {
        self.spec.restart_policy = Some(policy.to_owned());
        self
    }

    /// The pod may only go to these nodes.
    #[must_use]
    pub fn among(mut self, nodes: &[&str]) -> Self {
        let hostname = NodeSelectorRequirement {
            key: HOSTNAME.to_owned(),
            operator: "In".to_owned(),
            values: Some(nodes.iter().map(|node| (*node).to_owned()).collect()),
        };
        let term = NodeSelectorTerm { match_expressions: Some(vec![hostname]), match_fields: None };
        let selector = NodeSelector { node_selector_terms: vec![term] };
        let affinity = NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(selector),
            ..NodeAffinity::default()
        };
        self.spec.affinity = Some(Affinity { node_affinity: Some(affinity), ..Affinity::default() });
        self
    }

    /// The pod is on this node from the beginning; no scheduler sees it.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.spec.node_name = Some(node.to_owned());
        self.spec.affinity = None;
        self
    }

    /// The pod's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The containers so far keep their requests, and have no limits.
    #[must_use]
    pub fn without_limits(mut self) -> Self {
        let resources = self.spec.containers.iter_mut().filter_map(|container| container.resources.as_mut());
        resources.for_each(|resources| resources.limits = None);
        self
    }

    /// Another scheduler.
    #[must_use]
    pub fn scheduler(mut self, name: &str) -> Self {
        self.spec.scheduler_name = Some(name.to_owned());
        self
    }

    /// Another label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Tolerates taints of this key.
    #[must_use]
    pub fn tolerates(mut self, key: &str) -> Self {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        self.spec.tolerations.get_or_insert_default().push(toleration);
        self
    }

    /// Any other field of the pod.
    #[must_use]
    pub fn spec(mut self, change: impl FnOnce(&mut PodSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// The pod.
    #[must_use]
    pub fn pod(self) -> Pod {
        let metadata =
            ObjectMeta { name: Some(self.name), labels: Some(self.labels), ..ObjectMeta::default() };
        Pod { metadata, spec: Some(self.spec), status: None }
    }

    /// Name, and the template for a controller; `label` tells its pods from others.
    #[must_use]
    pub fn template(self, label: (&str, &str)) -> (String, PodTemplateSpec) {
        let plan = self.label(label.0, label.1);
        let metadata = ObjectMeta { labels: Some(plan.labels), ..ObjectMeta::default() };
        (plan.name, PodTemplateSpec { metadata: Some(metadata), spec: Some(plan.spec) })
    }

    fn container(mut self, share: Share<'_>, life: Life) -> Self {
        let name = format!("c-{}", self.spec.containers.len());
        let container = self.make(&name, share, life);
        self.spec.containers.push(container);
        self
    }

    fn make(&self, name: &str, share: Share<'_>, life: Life) -> Container {
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let (image, command) = match (&self.images.pause, life) {
            (Some(pause), Life::Forever) => (pause, None),
            (_, Life::Forever) => (&self.images.tholepin, words(&["/tholepin", "pause"])),
            (_, Life::Short) => (&self.images.tholepin, words(&["/tholepin", "pause", "--for", "1s"])),
        };
        Container {
            name: name.to_owned(),
            image: Some(image.clone()),
            image_pull_policy: Some(self.images.pull_policy.clone()),
            command,
            resources: Some(share.requirements()),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                ..SecurityContext::default()
            }),
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..Container::default()
        }
    }
}

impl Share<'_> {
    fn requirements(self) -> ResourceRequirements {
        let some = |amounts: BTreeMap<String, Quantity>| (!amounts.is_empty()).then_some(amounts);
        match self {
            Self::Limits(amounts) => ResourceRequirements {
                limits: some(amounts.quantities()),
                requests: some(amounts.quantities()),
                ..ResourceRequirements::default()
            },
            Self::Requests(amounts) => {
                // The API server accepts these as limits only, equal to the requests.
                let fixed =
                    amounts.clone().only(|name| name.as_str().contains(['/', '-']) && !is_storage(name));
                ResourceRequirements {
                    limits: some(fixed.quantities()),
                    requests: some(amounts.quantities()),
                    ..ResourceRequirements::default()
                }
            }
        }
    }
}

fn is_storage(name: topology::resource::ResourceName) -> bool {
    name == topology::resource::ResourceName::EPHEMERAL_STORAGE
}
