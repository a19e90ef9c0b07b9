//! The flags that choose what is installed and how.
//!
//! In: flags. Out: [`Options`] with checked values. Without a flag the default of the program holds that the flag
//! belongs to. Flags that the Go `deployer` has too have its names.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use api::schedulerconfig::{InformerMode, PreemptionMode};
use k8s_openapi::api::core::v1::Toleration;
use runtime::stderr;

use super::kubelet::KubeletLayoutFlags;
use super::values::{
    Period, Replicas, bool_word, cidr, from_file, image, label, lease, namespace, object_name, page, period,
    priority_class, registry, replicas, scheduler_name, toleration, word,
};
use crate::detect::PlatformSpec;
use crate::images::{self, Images, Pullspec, USE_SHA};
use crate::manifests::{self, pod};
use crate::options::{
    Kubelet, LeaseName, Options, PullPolicy, SccVersion, Scheduler, SchedulerOptions, Updater,
    UpdaterOptions, files,
};
use crate::part::{Component, Part};
use crate::platform::Platform;

/// The end of the scheduler's namespace, where one name is given for all.
const OF_SCHEDULER: &str = "-scheduler";

/// The flags of `deploy`, `render` and `setup`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct InstallFlags {
    /// Platform, or platform and version: kubernetes, openshift or hypershift [default: asked of the cluster; render:
    /// kubernetes]
    #[arg(short = 'P', long, value_name = "KIND[:VERSION]", help_heading = "Cluster")]
    pub platform: Option<PlatformSpec>,
    /// Namespace of the exporter; the scheduler's is NAME-scheduler [default: tholepin; peers: theirs]
    #[arg(short = 'n', long, value_name = "NAME", value_parser = namespace, help_heading = "Cluster")]
    pub namespace: Option<String>,
    /// Include objects for the Prometheus operator, and a dashboard for Grafana [default: off; of the operator and of
    /// hardware: on openshift and hypershift]
    #[arg(long, value_name = "BOOL", value_parser = bool_word, help_heading = "Cluster")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub monitoring: Option<bool>,
    /// Address at which docs/alerts.md can be read, for the runbook_url of alerts [default: docs/alerts.md]
    #[arg(long, value_name = "URL", value_parser = page, help_heading = "Cluster", hide_short_help = true)]
    pub runbook_url: Option<String>,
    #[command(flatten)]
    programs: ProgramFlags,
    #[command(flatten)]
    updater: UpdaterFlags,
    #[command(flatten)]
    kubelet: KubeletFlags,
    #[command(flatten)]
    scheduler: SchedulerFlags,
    #[command(flatten)]
    pods: PodFlags,
    #[command(flatten)]
    images: ImageFlags,
    #[command(flatten)]
    pull: PullFlags,
}

/// The flags that choose the programs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Programs")]
pub(super) struct ProgramFlags {
    /// Exporter: tholepin, rte or nfd
    #[arg(
        long,
        alias = "updater",
        value_name = "PROGRAM",
        default_value = "tholepin",
        ignore_case = true,
        hide_possible_values = true
    )]
    updater_type: Updater,
    /// Scheduler: tholepin or plugin (kube-scheduler with scheduler-plugins)
    #[arg(
        long,
        alias = "scheduler",
        value_name = "PROGRAM",
        default_value = "tholepin",
        ignore_case = true,
        hide_possible_values = true
    )]
    sched_type: Scheduler,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Exporter")]
struct UpdaterFlags {
    /// Namespace of the exporter
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = namespace)]
    updater_namespace: Option<String>,
    /// Name of its objects
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = object_name)]
    updater_name: Option<String>,
    /// Time between two scans of a node on which nothing happens, such as 30s; 0: no timer
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = period)]
    updater_sync_period: Option<Period>,
    /// Verbosity of its log, as in klog
    #[arg(long, hide_short_help = true, value_name = "LEVEL")]
    updater_verbose: Option<i32>,
    /// Publish the fingerprint of the pods
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    updater_pfp_enable: Option<bool>,
    /// File with its configuration
    #[arg(long, hide_short_help = true, alias = "rte-config-file", value_name = "FILE")]
    updater_config_file: Option<PathBuf>,
    /// Labels of the nodes it runs on (repeatable, or joined by commas)
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    updater_node_selector: Vec<(String, String)>,
    /// Taints it tolerates: KEY[=VALUE][:EFFECT], all or none (repeatable) [default: tholepin: all, others: none]
    #[arg(long, value_name = "TOLERATION", value_parser = toleration)]
    updater_toleration: Vec<Option<Toleration>>,
    /// Priority class of its pods [default: system-node-critical; nfd: none]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = priority_class)]
    updater_priority_class: Option<String>,
    /// Port for its metrics
    #[arg(long, hide_short_help = true, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    metrics_port: Option<u16>,
    /// Restrict each of our exporters to the object of its own node, by an admission policy
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    admission_policy: Option<bool>,
    /// Scan when a notification file is touched (rte)
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    updater_notif_enable: Option<bool>,
    /// Have the container runtime touch the notification file (rte on openshift)
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    updater_cri_hooks_enable: Option<bool>,
    /// Install an SELinux policy with a MachineConfig (rte on openshift)
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    updater_custom_selinux_policy: Option<bool>,
    /// SecurityContextConstraints: v1 (with an SELinux type of its own) or v2 (rte on openshift)
    #[arg(long, hide_short_help = true, value_name = "VERSION", hide_possible_values = true)]
    updater_scc: Option<SccVersion>,
    /// SELinux type of its containers
    #[arg(long, hide_short_help = true, value_name = "TYPE")]
    selinux_type: Option<String>,
    /// Labels of the MachineConfig, to select another pool than worker (repeatable)
    #[arg(long, hide_short_help = true, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    machine_config_label: Vec<(String, String)>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Kubelets")]
struct KubeletFlags {
    #[command(flatten)]
    layout: KubeletLayoutFlags,
    /// Mount the whole root directory into our exporter, with the kubelet's key and the volumes of all pods, so that
    /// the kubelet's state files show it changes [default: the podresources directory and the configuration file]
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kubelet_root_mount: Option<bool>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scheduler")]
struct SchedulerFlags {
    /// Namespace of the scheduler
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = namespace)]
    sched_namespace: Option<String>,
    /// Number of replicas, one of which leads; auto: one for each control plane node
    #[arg(short = 'R', long, value_name = "N", default_value = "1", value_parser = replicas, allow_hyphen_values = true)]
    replicas: Replicas,
    /// Name of its profile: pods with this schedulerName are scheduled by it
    #[arg(long, value_name = "NAME", value_parser = scheduler_name)]
    sched_profile_name: Option<String>,
    /// Run on control plane nodes only
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sched_ctrlplane_affinity: Option<bool>,
    /// Lease for leader election: NAME, /NAME, NAMESPACE/ or NAMESPACE/NAME
    #[arg(long, hide_short_help = true, value_name = "LEASE", value_parser = lease)]
    sched_leader_elect_resource: Option<LeaseName>,
    /// Verbosity of its log, as in klog
    #[arg(long, hide_short_help = true, value_name = "LEVEL")]
    sched_verbose: Option<i32>,
    /// Labels of the nodes it runs on (repeatable, or joined by commas)
    #[arg(long, hide_short_help = true, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    sched_node_selector: Vec<(String, String)>,
    /// Taints it tolerates besides those of the control plane: KEY[=VALUE][:EFFECT] or all (repeatable)
    #[arg(long, hide_short_help = true, value_name = "TOLERATION", value_parser = toleration)]
    sched_toleration: Vec<Option<Toleration>>,
    /// Priority class of its pods [default: system-cluster-critical; plugin: none]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = priority_class)]
    sched_priority_class: Option<String>,
    /// Create a PodDisruptionBudget for several replicas
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    disruption_budget: Option<bool>,
    /// Delete pods that kubelets have rejected, also those of other schedulers, if a controller makes others
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sched_delete_rejected_pods: Option<bool>,
    /// Preemption to free a zone: Enabled or Disabled
    #[arg(long, hide_short_help = true, value_name = "MODE", value_parser = word::<PreemptionMode>)]
    sched_preemption_mode: Option<PreemptionMode>,
    /// Resync period of the plugin's cache; below 1s: no cache
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = period)]
    sched_resync_period: Option<Period>,
    /// Pod informer of the plugin: Shared or Dedicated
    #[arg(long, hide_short_help = true, value_name = "MODE", value_parser = word::<InformerMode>)]
    sched_informer_mode: Option<InformerMode>,
    /// File with resyncMethod, foreignPodsDetect, informerMode (plugin)
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    sched_cache_params_config_file: Option<PathBuf>,
    /// File with the scoring strategy: type, and resources with weights
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    sched_scoring_strat_config_file: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Network and nodes")]
struct PodFlags {
    /// Restrict the pods' network traffic to API server, kubelet and metrics
    #[arg(long, hide_short_help = true, value_name = "BOOL", value_parser = bool_word)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    network_policies: Option<bool>,
    /// Ports of API servers (repeatable, or joined by commas) [default: 6443,443]
    #[arg(long, hide_short_help = true, value_name = "PORT", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    api_server_port: Vec<u16>,
    /// Address ranges of API servers and of their Service, so that pods may connect to no other (repeatable, or joined
    /// by commas) [default: any address]
    #[arg(long, hide_short_help = true, value_name = "CIDR", value_delimiter = ',', value_parser = cidr)]
    api_server_cidr: Vec<String>,
    /// Create ResourceQuotas that admit pods of critical priority, for clusters that demand them (GKE)
    #[arg(long, hide_short_help = true)]
    critical_quota: bool,
    /// CPU architectures of our image; all: any node (repeatable, or joined by commas) [default: amd64,arm64]
    #[arg(long, hide_short_help = true, value_name = "ARCH", value_delimiter = ',')]
    #[arg(hide_possible_values = true, value_parser = ["amd64", "arm64", "arm", "386", "ppc64le", "s390x", "riscv64", "all"])]
    arch: Vec<String>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Images")]
pub(super) struct ImageFlags {
    /// Our image, for exporter and scheduler [env: THOLEPIN_IMAGE]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: Option<String>,
    /// Image of resource-topology-exporter [env: TAS_RESOURCE_EXPORTER_IMAGE]
    #[arg(long, hide_short_help = true, value_name = "IMAGE", value_parser = image)]
    rte_image: Option<String>,
    /// Image of nfd-topology-updater [env: TAS_NODE_FEATURE_DISCOVERY_IMAGE]
    #[arg(long, hide_short_help = true, value_name = "IMAGE", value_parser = image)]
    nfd_image: Option<String>,
    /// Image of the scheduler plugin [env: TAS_SCHEDULER_PLUGIN_IMAGE]
    #[arg(long, hide_short_help = true, value_name = "IMAGE", value_parser = image)]
    sched_image: Option<String>,
    /// Image of the scheduler plugin's controller [env: TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE]
    #[arg(long, hide_short_help = true, value_name = "IMAGE", value_parser = image)]
    controller_image: Option<String>,
    /// Image of rte's second container, which does nothing [env: THOLEPIN_PAUSE_IMAGE]
    #[arg(long, hide_short_help = true, value_name = "IMAGE", value_parser = image)]
    pause_image: Option<String>,
    /// Pull all images from this registry and path
    #[arg(long, value_name = "HOST[/PATH]", value_parser = registry)]
    registry: Option<String>,
    /// Name the peers' images by digest [env: TAS_IMAGES_USE_SHA]
    #[arg(long)]
    use_sha: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Images")]
struct PullFlags {
    /// Pull policy: always or if-not-present
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "if-not-present",
        ignore_case = true,
        hide_possible_values = true
    )]
    pull_policy: PullPolicy,
    /// Alias of --pull-policy=if-not-present
    #[arg(long, hide = true, conflicts_with = "pull_policy")]
    pull_if_not_present: bool,
    /// Secret with registry credentials in the namespaces of the pods (repeatable)
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pull_secret: Vec<String>,
}

impl InstallFlags {
    /// Whether the number of replicas depends on the cluster.
    pub(super) fn needs_cluster(&self) -> bool {
        self.scheduler.replicas == Replicas::ControlPlane
    }

    /// Whether our image was chosen, so that it can be taken as given.
    pub(super) fn states_image(&self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        let images = &self.images;
        images.image.is_some() || images.registry.is_some() || variable(images::THOLEPIN).is_some()
    }

    /// The options that the flags state; platform and version are still open. `variable` reads the environment.
    ///
    /// # Errors
    /// When a file cannot be read or has wrong content; the error names flag and file.
    pub(super) fn options(&self, variable: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Options> {
        let mut options = Options { pull: self.pull.pull_policy, ..Options::default() };
        options.images = self.images.images(variable);
        options.pull_secrets.clone_from(&self.pull.pull_secret);
        options.updater = self.updater.options(self.programs.updater_type, &self.kubelet)?;
        options.updater.kubelet = self.kubelet();
        options.scheduler = self.scheduler.options(self.programs.sched_type)?;
        if let Some(name) = &self.namespace {
            options.updater.namespace.get_or_insert_with(|| name.clone());
            let of_scheduler = || namespace(&format!("{name}{OF_SCHEDULER}"));
            let of_scheduler = of_scheduler().map_err(|reason| anyhow::anyhow!("--namespace: {reason}"))?;
            options.scheduler.namespace.get_or_insert(of_scheduler);
        }
        set(&mut options.network_policies, self.pods.network_policies);
        set(&mut options.monitoring, self.monitoring);
        set(&mut options.runbooks, self.runbook_url.clone());
        options.critical_quota = self.pods.critical_quota;
        if !self.pods.api_server_port.is_empty() {
            options.api_server_ports.clone_from(&self.pods.api_server_port);
        }
        options.api_server_cidrs.clone_from(&self.pods.api_server_cidr);
        if !self.pods.arch.is_empty() {
            let all = self.pods.arch.iter().any(|arch| arch == "all");
            options.architectures = if all { Vec::new() } else { self.pods.arch.clone() };
        }
        Ok(options)
    }

    /// A warning about the check of kubelets' certificates.
    pub(super) fn certificate_note(&self, options: &Options) -> Option<String> {
        manifests::kubelet::certificate_note(options, self.kubelet.layout.kubelet_profile)
    }

    /// The manifests of components, in a namespace that is there already or in one for each component; what they leave
    /// unchecked is told on standard error.
    ///
    /// # Errors
    /// When an option has no manifest; an error about the kubelets' configuration names the flag.
    pub(super) fn parts(
        &self,
        options: &Options,
        namespace: Option<&str>,
        components: &[Component],
    ) -> anyhow::Result<Vec<Part>> {
        let hint = match (&options.updater.kubelet, options.platform.is_openshift()) {
            (None, true) => " (on OpenShift before 4.20: --kubelet-config /etc/kubernetes/kubelet.conf)",
            _ => "",
        };
        refuse_peers(options, components)?;
        let parts = match namespace {
            Some(namespace) => manifests::parts_within(options, namespace, components),
            None => manifests::parts(options, components),
        };
        let parts = parts.map_err(|error| match error {
            manifests::Error::Option { option, .. } if option.starts_with("kubelet") => {
                anyhow::anyhow!("--kubelet-config: {error}{hint}")
            }
            error => error.into(),
        })?;
        self.warnings(options, components)
            .iter()
            .for_each(|note| stderr::line(format_args!("warning: {note}")));
        Ok(parts)
    }

    /// A line for each check that the manifests leave out.
    fn warnings(&self, options: &Options, components: &[Component]) -> Vec<String> {
        if !components.contains(&Component::Exporter) {
            return Vec::new();
        }
        let policy = manifests::exporter::policy_left_out(options);
        policy.into_iter().chain(self.certificate_note(options)).collect()
    }

    /// The kubelets of the flags; `None` if there is no such flag.
    fn kubelet(&self) -> Option<Kubelet> {
        let platform = self.platform.as_ref().and_then(|stated| stated.platform);
        self.kubelet.layout.kubelet(platform.unwrap_or(Platform::Kubernetes))
    }
}

impl ProgramFlags {
    /// Default options of the programs, with these images.
    pub(super) fn with_images(&self, images: Images) -> Options {
        let mut options = Options { images, ..Options::default() };
        options.updater.kind = self.updater_type;
        options.scheduler.kind = self.sched_type;
        options
    }
}

impl UpdaterFlags {
    fn options(&self, kind: Updater, kubelet: &KubeletFlags) -> anyhow::Result<UpdaterOptions> {
        let peers = kind != Updater::Tholepin;
        let mut options = if peers { Options::peers().updater } else { UpdaterOptions::default() };
        options.kind = kind;
        options.namespace.clone_from(&self.updater_namespace);
        options.name.clone_from(&self.updater_name);
        set(&mut options.sync_period, self.updater_sync_period.map(|Period(period)| period));
        set(&mut options.verbosity, self.updater_verbose);
        set(&mut options.fingerprint, self.updater_pfp_enable);
        options.config =
            from_file("updater-config-file", &self.updater_config_file, files::verbatim)?.flatten();
        options.node_selector.extend(self.updater_node_selector.iter().cloned());
        if !self.updater_toleration.is_empty() {
            options.tolerations = Some(self.updater_toleration.iter().flatten().cloned().collect());
        }
        options.priority_class.clone_from(&self.updater_priority_class);
        set(&mut options.metrics_port, self.metrics_port);
        if options.kind == Updater::Tholepin && options.metrics_port == pod::HEALTH {
            let port = options.metrics_port;
            anyhow::bail!(
                "--metrics-port {port} is the exporter's --health-probe-bind-address; give another port"
            );
        }
        set(&mut options.admission_policy, self.admission_policy);
        set(&mut options.notify, self.updater_notif_enable);
        set(&mut options.cri_hooks, self.updater_cri_hooks_enable);
        set(&mut options.custom_selinux_policy, self.updater_custom_selinux_policy);
        set(&mut options.scc, self.updater_scc);
        options.selinux_type.clone_from(&self.selinux_type);
        options.machine_config_labels.extend(self.machine_config_label.iter().cloned());
        set(&mut options.kubelet_root, kubelet.kubelet_root_mount);
        Ok(options)
    }
}

impl SchedulerFlags {
    fn options(&self, kind: Scheduler) -> anyhow::Result<SchedulerOptions> {
        let peers = kind == Scheduler::Plugin;
        let mut options = if peers { Options::peers().scheduler } else { SchedulerOptions::default() };
        options.kind = kind;
        options.namespace.clone_from(&self.sched_namespace);
        if let Replicas::Fixed(replicas) = self.replicas {
            options.replicas = replicas;
        }
        options.profile_name.clone_from(&self.sched_profile_name);
        set(&mut options.control_plane_affinity, self.sched_ctrlplane_affinity);
        set(&mut options.lease, self.sched_leader_elect_resource.clone());
        set(&mut options.verbosity, self.sched_verbose);
        options.node_selector.extend(self.sched_node_selector.iter().cloned());
        options.tolerations.extend(self.sched_toleration.iter().flatten().cloned());
        options.priority_class.clone_from(&self.sched_priority_class);
        set(&mut options.disruption_budget, self.disruption_budget);
        set(&mut options.delete_rejected_pods, self.sched_delete_rejected_pods);
        options.preemption = self.sched_preemption_mode;
        if let Some(Period(period)) = self.sched_resync_period {
            options.resync_seconds =
                period.map_or(0, |period| i64::try_from(period.as_secs()).unwrap_or(i64::MAX));
        }
        from_file("sched-cache-params-config-file", &self.sched_cache_params_config_file, |path| {
            files::cache(path, &mut options.cache)
        })?;
        options.cache.informer_mode = self.sched_informer_mode.or(options.cache.informer_mode);
        let scoring = &self.sched_scoring_strat_config_file;
        options.scoring = from_file("sched-scoring-strat-config-file", scoring, files::scoring)?;
        Ok(options)
    }
}

impl ImageFlags {
    /// A flag overrides its variable; the registry replaces that of every image without a flag.
    pub(super) fn images(&self, variable: &dyn Fn(&str) -> Option<String>) -> Images {
        let sha = self.use_sha || variable(USE_SHA).is_some();
        let mut images = Images::new(if sha { Pullspec::Digest } else { Pullspec::Tag }, variable);
        if let Some(registry) = &self.registry {
            images = images.mirrored(registry);
        }
        for (image, flag) in [
            (&mut images.tholepin, &self.image),
            (&mut images.rte, &self.rte_image),
            (&mut images.nfd, &self.nfd_image),
            (&mut images.scheduler_plugin, &self.sched_image),
            (&mut images.scheduler_controller, &self.controller_image),
            (&mut images.pause, &self.pause_image),
        ] {
            set(image, flag.clone());
        }
        images
    }
}

/// Refuses monitoring of programs that are not ours: their metrics have other names, and alerts would never fire.
fn refuse_peers(options: &Options, components: &[Component]) -> anyhow::Result<()> {
    let (updater, scheduler) = (options.updater.kind, options.scheduler.kind);
    let exporter = components.contains(&Component::Exporter) && updater != Updater::Tholepin;
    let scheduler = components.contains(&Component::Scheduler) && scheduler != Scheduler::Tholepin;
    if options.monitoring && (exporter || scheduler) {
        anyhow::bail!(
            "--monitoring is for our exporter and scheduler; there are no alerts for --updater-type rte and nfd, nor \
             for --sched-type plugin"
        );
    }
    Ok(())
}

fn set<T>(option: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *option = value;
    }
}
