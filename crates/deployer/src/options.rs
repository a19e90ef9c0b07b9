//! What to install, and how: every choice there is, as plain values.
//!
//! In: nothing; a command line or an operator fills it. Out: [`Options`], which the functions of [`crate::manifests`] read. Never: text
//! that has still to be parsed, a file, the environment.
//!
//! [`Options::default`] is our own exporter and scheduler on any Kubernetes; [`Options::peers`] is what the Go `deployer` does without
//! flags.

use std::collections::BTreeMap;
use std::time::Duration;

use api::schedulerconfig::{
    ForeignPodsDetect, InformerMode, PreemptionMode, ResourceWeight, ResyncMethod, ScoringStrategyType,
};
use k8s_openapi::api::core::v1::Toleration;

use crate::images::Images;
use crate::platform::{Platform, Version};

mod kubelet;

pub use kubelet::{Distribution, Kubelet, KubeletConfig};

/// Everything that can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The kind of cluster.
    pub platform: Platform,
    /// Its version: Kubernetes' own, or OpenShift's on OpenShift. `None`: taken for the newest we know.
    pub version: Option<Version>,
    /// What containers run.
    pub images: Images,
    /// When images are pulled.
    pub pull: Pull,
    /// Secrets with credentials for the images' registries, by name, in the namespaces of the pods.
    pub pull_secrets: Vec<String>,
    /// Whether pods may talk to nobody but the API server (and whoever reads metrics).
    pub network_policies: bool,
    /// The ports behind which API servers are; more than one where the port of the Service is another than the server's.
    pub api_server_ports: Vec<u16>,
    /// Processors our image is for, as in the label `kubernetes.io/arch`; empty: no matter.
    pub architectures: Vec<String>,
    /// A ResourceQuota in the namespaces of our programs that lets pods of critical priority in, for clusters that need one (GKE).
    pub critical_quota: bool,
    /// What publishes NodeResourceTopology objects.
    pub updater: UpdaterOptions,
    /// What schedules by them.
    pub scheduler: SchedulerOptions,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Whenever a container starts.
    Always,
    /// Once on each node.
    IfNotPresent,
}

/// Programs that publish NodeResourceTopology objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Updater {
    /// Our exporter.
    Tholepin,
    /// resource-topology-exporter.
    Rte,
    /// nfd-topology-updater.
    Nfd,
}

/// Programs that schedule by NodeResourceTopology objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// Our scheduler.
    Tholepin,
    /// kube-scheduler with the plugins of scheduler-plugins, and their controller.
    Plugin,
}

/// Which of RTE's SecurityContextConstraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scc {
    /// With a SELinux type of its own, which a MachineConfig installs.
    V1,
    /// With a SELinux type that the nodes have.
    V2,
}

/// Choices about what publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdaterOptions {
    /// Which program.
    pub kind: Updater,
    /// Where it runs; `None`: its usual namespace.
    pub namespace: Option<String>,
    /// What its objects are called; `None`: its usual names.
    pub name: Option<String>,
    /// Time between looks when nothing happens; `None`: no timer.
    pub sync_period: Option<Duration>,
    /// Verbosity as in klog.
    pub verbosity: i32,
    /// Publish the fingerprint of the pods.
    pub fingerprint: bool,
    /// Look when a file in `/run/rte` is touched (RTE; our exporter hears of changes without).
    pub notify: bool,
    /// Have the container runtime touch that file (RTE on OpenShift, with [`Self::custom_selinux_policy`]).
    pub cri_hooks: bool,
    /// Install a SELinux policy with a MachineConfig (RTE on OpenShift).
    pub custom_selinux_policy: bool,
    /// Which SecurityContextConstraints (RTE on OpenShift and HyperShift).
    pub scc: Scc,
    /// Labels that make a MachineConfigPool take the MachineConfig; empty: those of the workers.
    pub machine_config_labels: BTreeMap<String, String>,
    /// The text of the updater's configuration file (RTE and ours).
    pub config: Option<String>,
    /// Which nodes, by labels.
    pub node_selector: BTreeMap<String, String>,
    /// Taints to live with; `None`: the program's usual ones (ours: all, the peers': none).
    pub tolerations: Option<Vec<Toleration>>,
    /// `None`: the program's usual one (ours and RTE: `system-node-critical`, NFD: none).
    pub priority_class: Option<String>,
    /// Where metrics (and our health checks) are served.
    pub metrics_port: u16,
    /// Where the kubelet keeps its things; `None`: as the platform has it.
    pub kubelet: Option<Kubelet>,
    /// Mount the kubelet's root directory into our exporter, so that it hears of changes at once. It has the volumes of all pods of
    /// the node in it. Without, only the directory of the podresources socket is mounted.
    pub kubelet_root: bool,
    /// The SELinux type of the containers; `None`: none on Kubernetes, what the SecurityContextConstraints say elsewhere.
    pub selinux_type: Option<String>,
    /// Tie each of our exporters to its own node's object, where the cluster is new enough for it.
    pub admission_policy: bool,
}

/// Choices about what schedules.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerOptions {
    /// Which program.
    pub kind: Scheduler,
    /// Where it runs; `None`: its usual namespace.
    pub namespace: Option<String>,
    /// How many; above zero. With more than one they choose a leader.
    pub replicas: i32,
    /// Run on control plane nodes only.
    pub control_plane_affinity: bool,
    /// Pods with this `schedulerName` are its own; `None`: the program's usual name.
    pub profile_name: Option<String>,
    /// Seconds between resyncs of the Go plugin's cache; below one: its cache-less mode.
    pub resync_seconds: i64,
    /// Settings of the Go plugin's cache.
    pub cache: CacheOptions,
    /// How zones are scored; `None`: the program's default.
    pub scoring: Option<Scoring>,
    /// Whether pods may be evicted to free a zone; `None`: the program's default.
    pub preemption: Option<PreemptionMode>,
    /// Where the lease is; each part may be left to the default.
    pub lease: LeaseName,
    /// Verbosity as in klog.
    pub verbosity: i32,
    /// Which nodes, by labels.
    pub node_selector: BTreeMap<String, String>,
    /// Taints to live with, besides those of the control plane.
    pub tolerations: Vec<Toleration>,
    /// `None`: the program's usual one (ours: `system-cluster-critical`, the plugin: none).
    pub priority_class: Option<String>,
    /// Keep one of several from being drained before another runs.
    pub disruption_budget: bool,
}

/// Settings of the Go plugin's cache; `None` leaves one out of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Which pods of other schedulers make a node's data stale.
    pub foreign_pods_detect: Option<ForeignPodsDetect>,
    /// Which pods enter the fingerprint.
    pub resync_method: Option<ResyncMethod>,
    /// Where pods are read from.
    pub informer_mode: Option<InformerMode>,
}

/// How zones are scored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scoring {
    /// The formula; `None`: the program's default.
    pub kind: Option<ScoringStrategyType>,
    /// Weights; empty: the program's default.
    pub resources: Vec<ResourceWeight>,
}

/// Namespace and name of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseName {
    /// `None`: the scheduler's namespace.
    pub namespace: Option<String>,
    /// `None`: the program's usual name.
    pub name: Option<String>,
}

impl Options {
    /// What the Go `deployer` installs without flags: resource-topology-exporter and the scheduler plugin.
    #[must_use]
    pub fn peers() -> Self {
        let mut options = Self { pull: Pull::Always, ..Self::default() };
        options.updater.kind = Updater::Rte;
        options.updater.sync_period = Some(Duration::from_secs(10));
        options.updater.verbosity = 1;
        options.scheduler.kind = Scheduler::Plugin;
        options.scheduler.verbosity = 4;
        options
    }

    /// Whether the cluster is of Kubernetes 1.`minor` or later. A cluster of unknown version is.
    ///
    /// OpenShift 4.N is Kubernetes 1.(N + 13).
    #[must_use]
    pub fn kubernetes_at_least(&self, minor: u64) -> bool {
        let Some(version) = &self.version else { return true };
        if self.platform.is_openshift() && version.number(0) > 1 {
            return version.at_least(&[4, minor.saturating_sub(13)]);
        }
        version.at_least(&[1, minor])
    }

    /// Where the kubelets keep their things.
    #[must_use]
    pub fn kubelet(&self) -> Kubelet {
        let usual =
            if self.platform.is_openshift() { Distribution::OpenShift } else { Distribution::Kubeadm };
        self.updater.kubelet.clone().unwrap_or_else(|| usual.kubelet())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            platform: Platform::Kubernetes,
            version: None,
            images: Images::default(),
            pull: Pull::IfNotPresent,
            pull_secrets: Vec::new(),
            network_policies: true,
            // The servers themselves (kubeadm, OpenShift), the Service and most load balancers.
            api_server_ports: vec![6443, 443],
            architectures: ["amd64", "arm64"].map(str::to_owned).to_vec(),
            critical_quota: false,
            updater: UpdaterOptions::default(),
            scheduler: SchedulerOptions::default(),
        }
    }
}

impl Default for UpdaterOptions {
    fn default() -> Self {
        Self {
            kind: Updater::Tholepin,
            namespace: None,
            name: None,
            sync_period: Some(Duration::from_secs(60)),
            verbosity: 2,
            fingerprint: true,
            notify: false,
            cri_hooks: false,
            custom_selinux_policy: true,
            scc: Scc::V2,
            machine_config_labels: BTreeMap::new(),
            config: None,
            node_selector: BTreeMap::new(),
            tolerations: None,
            priority_class: None,
            metrics_port: 2112,
            kubelet: None,
            kubelet_root: true,
            selinux_type: None,
            admission_policy: true,
        }
    }
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            kind: Scheduler::Tholepin,
            namespace: None,
            replicas: 1,
            control_plane_affinity: true,
            profile_name: None,
            resync_seconds: 5,
            cache: CacheOptions::default(),
            scoring: None,
            preemption: None,
            lease: LeaseName::default(),
            verbosity: 2,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class: None,
            disruption_budget: true,
        }
    }
}

impl Default for CacheOptions {
    /// As the Go deployer has them.
    fn default() -> Self {
        Self {
            foreign_pods_detect: Some(ForeignPodsDetect::OnlyExclusiveResources),
            resync_method: Some(ResyncMethod::Autodetect),
            informer_mode: None,
        }
    }
}
