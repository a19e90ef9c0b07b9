//! The options of an installation, as plain values.
//!
//! In: values of a command line or an operator. Out: [`Options`], which the functions of [`crate::manifests`] read.
//! Never: unparsed text, the environment.
//!
//! [`Options::default`] is our own exporter and scheduler on any Kubernetes; [`Options::peers`] is the default of the
//! Go `deployer`.

use std::collections::BTreeMap;
use std::time::Duration;

use api::schedulerconfig::{
    ForeignPodsDetect, InformerMode, PreemptionMode, ResourceWeight, ResyncMethod, ScoringStrategyType,
};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Toleration;

use crate::docs;
use crate::images::{self, Images};
use crate::platform::{Platform, Version};

pub mod files;
mod kubelet;

pub use kubelet::{Distribution, Kubelet, KubeletCertificate, KubeletConfig};

/// All options.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The platform.
    pub platform: Platform,
    /// The version of Kubernetes, or of OpenShift on OpenShift. `None`: treated as the newest known.
    pub version: Option<Version>,
    /// The container images.
    pub images: Images,
    /// When images are pulled.
    pub pull: PullPolicy,
    /// Names of Secrets with registry credentials, in the namespaces of the pods.
    pub pull_secrets: Vec<String>,
    /// Whether NetworkPolicies restrict the pods to the API server, their kubelet and readers of metrics.
    pub network_policies: bool,
    /// Ports of API servers; more than one if the port of the Service differs from the servers'.
    pub api_server_ports: Vec<u16>,
    /// Address ranges of API servers and of their Service, as in `192.0.2.1/32`, for network policies; empty: any
    /// address.
    pub api_server_cidrs: Vec<String>,
    /// Architectures of our image, as in the label `kubernetes.io/arch`; empty: any.
    pub architectures: Vec<String>,
    /// Create objects for the Prometheus operator, and the dashboard for Grafana.
    pub monitoring: bool,
    /// Address of the page with a part for each alert, in `runbook_url`.
    pub runbooks: String,
    /// Create a ResourceQuota for pods of critical priority in our namespaces, for clusters that demand one (GKE).
    pub critical_quota: bool,
    /// The program that publishes NodeResourceTopology objects.
    pub updater: UpdaterOptions,
    /// The scheduler that reads them.
    pub scheduler: SchedulerOptions,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PullPolicy {
    /// Once on each node.
    #[value(alias = "IfNotPresent")]
    IfNotPresent,
    /// Whenever a container starts.
    Always,
}

impl PullPolicy {
    /// The word of `imagePullPolicy`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
        }
    }
}

/// Programs that publish NodeResourceTopology objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Updater {
    /// Our exporter.
    Tholepin,
    /// resource-topology-exporter.
    Rte,
    /// nfd-topology-updater.
    Nfd,
}

/// Programs that schedule by NodeResourceTopology objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Scheduler {
    /// Our scheduler.
    Tholepin,
    /// kube-scheduler with the plugins of scheduler-plugins, and their controller.
    Plugin,
}

/// The version of RTE's SecurityContextConstraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SccVersion {
    /// An SELinux type of its own, which a MachineConfig installs.
    V1,
    /// An SELinux type that nodes have.
    V2,
}

/// Options of the topology updater.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdaterOptions {
    /// The program.
    pub kind: Updater,
    /// The namespace; `None`: the program's default.
    pub namespace: Option<String>,
    /// The name of its objects; `None`: the program's defaults.
    pub name: Option<String>,
    /// Time between two scans of an idle node; `None`: no timer.
    pub sync_period: Option<Duration>,
    /// Verbosity as in klog.
    pub verbosity: i32,
    /// Publish the fingerprint of the pods.
    pub fingerprint: bool,
    /// Scan when a file in `/run/rte` is touched (RTE; our exporter notices changes without it).
    pub notify: bool,
    /// Have the container runtime touch that file (RTE on OpenShift, with [`Self::custom_selinux_policy`]).
    pub cri_hooks: bool,
    /// Install an SELinux policy with a MachineConfig (RTE on OpenShift).
    pub custom_selinux_policy: bool,
    /// Which SecurityContextConstraints (RTE on OpenShift and HyperShift).
    pub scc: SccVersion,
    /// Labels of the MachineConfig, which select its MachineConfigPool; empty: the pool `worker`.
    pub machine_config_labels: BTreeMap<String, String>,
    /// The text of the updater's configuration file (RTE and ours).
    pub config: Option<String>,
    /// The node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations; `None`: the program's default (ours: all taints, the peers': none).
    pub tolerations: Option<Vec<Toleration>>,
    /// Priority class; `None`: the program's default (ours and RTE: `system-node-critical`, NFD: none).
    pub priority_class: Option<String>,
    /// The port of metrics.
    pub metrics_port: u16,
    /// The kubelet's paths; `None`: those of the platform.
    pub kubelet: Option<Kubelet>,
    /// Mount the kubelet's whole root directory into our exporter, which then notices changes by the kubelet's state
    /// files. The directory contains the kubelet's key and the volumes of the node's pods. Otherwise the directory of
    /// the podresources socket and the configuration file are mounted, and pods' cgroups show changes.
    pub kubelet_root: bool,
    /// SELinux type of the containers; `None`: unset on Kubernetes, else that of the SecurityContextConstraints.
    pub selinux_type: Option<String>,
    /// Restrict each of our exporters to the object of its own node, on Kubernetes 1.32 and later.
    pub admission_policy: bool,
}

/// Options of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerOptions {
    /// The program.
    pub kind: Scheduler,
    /// The namespace; `None`: the program's default.
    pub namespace: Option<String>,
    /// Number of replicas; above zero. Several elect a leader.
    pub replicas: i32,
    /// Run on control plane nodes only.
    pub control_plane_affinity: bool,
    /// Profile name: pods with this `schedulerName` are scheduled; `None`: the program's default.
    pub profile_name: Option<String>,
    /// Seconds between resyncs of the Go plugin's cache; below one: its cache-less mode.
    pub resync_seconds: i64,
    /// Settings of the Go plugin's cache.
    pub cache: CacheOptions,
    /// Scoring strategy; `None`: the program's default.
    pub scoring: Option<Scoring>,
    /// Preemption to free a zone; `None`: the program's default.
    pub preemption: Option<PreemptionMode>,
    /// Namespace and name of the lease.
    pub lease: LeaseName,
    /// Verbosity as in klog.
    pub verbosity: i32,
    /// The node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations besides those for the control plane.
    pub tolerations: Vec<Toleration>,
    /// Priority class; `None`: the program's default (ours: `system-cluster-critical`, the plugin: none).
    pub priority_class: Option<String>,
    /// Create a PodDisruptionBudget for several replicas.
    pub disruption_budget: bool,
    /// Delete pods that kubelets have rejected, if a controller makes others.
    pub delete_rejected_pods: bool,
}

/// Settings of the Go plugin's cache; `None` omits a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Pods of other schedulers that make a node's data stale.
    pub foreign_pods_detect: Option<ForeignPodsDetect>,
    /// Pods that the fingerprint includes.
    pub resync_method: Option<ResyncMethod>,
    /// The informer that provides pods.
    pub informer_mode: Option<InformerMode>,
}

/// A scoring strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scoring {
    /// The strategy; `None`: the program's default.
    pub kind: Option<ScoringStrategyType>,
    /// Weights; empty: the program's default.
    pub resources: Vec<ResourceWeight>,
}

/// Namespace and name of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseName {
    /// `None`: the scheduler's namespace.
    pub namespace: Option<String>,
    /// `None`: the program's default.
    pub name: Option<String>,
}

/// The image of a chosen program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedImage<'a> {
    /// The program's role: `topology_updater`, `scheduler_plugin` or `scheduler_controller`.
    pub role: &'static str,
    /// The environment variable that overrides the image.
    pub variable: &'static str,
    /// The image.
    pub image: &'a str,
}

impl Options {
    /// The defaults of the Go `deployer`: resource-topology-exporter and the scheduler plugin.
    #[must_use]
    pub fn peers() -> Self {
        let mut options = Self { pull: PullPolicy::Always, ..Self::default() };
        options.updater.kind = Updater::Rte;
        options.updater.sync_period = Some(Duration::from_secs(10));
        options.updater.verbosity = 1;
        options.scheduler.kind = Scheduler::Plugin;
        options.scheduler.verbosity = 4;
        options
    }

    /// The images that the chosen programs run: the updater's, the scheduler's, and that of the scheduler plugin's
    /// controller.
    #[must_use]
    pub fn used_images(&self) -> Vec<UsedImage<'_>> {
        let images = &self.images;
        let of = |role, variable, image| UsedImage { role, variable, image };
        let updater = match self.updater.kind {
            Updater::Tholepin => of("topology_updater", images::THOLEPIN, &images.tholepin),
            Updater::Rte => of("topology_updater", images::RTE, &images.rte),
            Updater::Nfd => of("topology_updater", images::NFD, &images.nfd),
        };
        match self.scheduler.kind {
            Scheduler::Tholepin => vec![updater, of("scheduler_plugin", images::THOLEPIN, &images.tholepin)],
            Scheduler::Plugin => vec![
                updater,
                of("scheduler_plugin", images::SCHEDULER, &images.scheduler_plugin),
                of("scheduler_controller", images::CONTROLLER, &images.scheduler_controller),
            ],
        }
    }

    /// Whether the cluster has Kubernetes 1.`minor` or later; an unknown version counts as yes.
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

    /// The paths of the kubelets.
    #[must_use]
    pub fn kubelet(&self) -> Kubelet {
        self.updater.kubelet.clone().unwrap_or_else(|| Distribution::usual(self.platform).kubelet())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            platform: Platform::Kubernetes,
            version: None,
            images: Images::default(),
            pull: PullPolicy::IfNotPresent,
            pull_secrets: Vec::new(),
            network_policies: true,
            // 6443: the servers of kubeadm and OpenShift; 443: the Service and most load balancers.
            api_server_ports: vec![6443, 443],
            api_server_cidrs: Vec::new(),
            architectures: ["amd64", "arm64"].map(str::to_owned).to_vec(),
            monitoring: false,
            runbooks: docs::ALERTS.to_owned(),
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
            scc: SccVersion::V2,
            machine_config_labels: BTreeMap::new(),
            config: None,
            node_selector: BTreeMap::new(),
            tolerations: None,
            priority_class: None,
            metrics_port: 2112,
            kubelet: None,
            kubelet_root: false,
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
            delete_rejected_pods: false,
        }
    }
}

impl Default for CacheOptions {
    /// The defaults of the Go deployer.
    fn default() -> Self {
        Self {
            foreign_pods_detect: Some(ForeignPodsDetect::OnlyExclusiveResources),
            resync_method: Some(ResyncMethod::Autodetect),
            informer_mode: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_uses_its_own_image() {
        let used = |updater, scheduler| -> Vec<String> {
            let mut options = Options::default();
            options.updater.kind = updater;
            options.scheduler.kind = scheduler;
            let images = &options.images;
            let known = [&images.tholepin, &images.rte, &images.nfd, &images.scheduler_plugin];
            for UsedImage { image, .. } in options.used_images() {
                assert!(known.into_iter().chain([&images.scheduler_controller]).any(|one| one == image));
            }
            let used = options.used_images();
            used.iter().map(|used| format!("{}={}", used.role, used.variable)).collect()
        };
        let ours = used(Updater::Tholepin, Scheduler::Tholepin);
        assert_eq!(ours, ["topology_updater=THOLEPIN_IMAGE", "scheduler_plugin=THOLEPIN_IMAGE"]);
        let plugin = [
            "scheduler_plugin=TAS_SCHEDULER_PLUGIN_IMAGE",
            "scheduler_controller=TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE",
        ];
        let peers = used(Updater::Nfd, Scheduler::Plugin);
        assert_eq!(
            (peers[0].as_str(), &peers[1..]),
            ("topology_updater=TAS_NODE_FEATURE_DISCOVERY_IMAGE", &plugin.map(str::to_owned)[..])
        );
        let peers = used(Updater::Rte, Scheduler::Plugin);
        assert_eq!(peers[0], "topology_updater=TAS_RESOURCE_EXPORTER_IMAGE");
    }
}
