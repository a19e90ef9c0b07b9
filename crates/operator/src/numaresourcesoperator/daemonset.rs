//! The DaemonSet of a pool.
//!
//! In: a request, a pool of it. Out: its exporters. Never: a right, a mount or a flag that our exporter does not use.
//!
//! nfd-topology-updater has the same labels, node selection and account ([`nfd`] has the rest), so a change of the type
//! rolls the DaemonSet.
//!
//! Our exporter learns of changes from pods' cgroups, and from `/run/rte/notify`; if asked for, from the kubelet's
//! state files. The Go exporter has the file only. It gets the root directory on Kubernetes, as with the Go operator.

use std::collections::BTreeMap;

use api::numaresources::InfoRefreshMode;
use api::numaresources::keys::{CONFIG_HASH, LABEL_POOL};
use deployer::manifests::kubelet::{self, RTE_ROOT};
use deployer::manifests::{exporter, meta, nfd as manifests, openshift, pod, rte};
use deployer::options::{Kubelet, KubeletConfig};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, EnvVar, PodAffinityTerm, PodAntiAffinity, PodSpec, SecurityContext,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use objects::ObjectKey;

use super::args::{args, has_fingerprint};
use super::desired::{CERTIFICATE, PORT};
use super::{Request, nfd, set_name};
use crate::cluster_state::{Environment, TlsProfile};
use crate::desired::container;
use crate::group::choice::Choice;
use crate::group::{Group, Pool, selects};
use crate::kubeletconfig;

/// The directory of fingerprints' statuses, for debugging.
const STATUS: &str = "/run/pfpstatus";
/// The size limit of that directory.
const STATUS_SIZE: &str = "8Mi";

/// The exporters of one pool.
pub(super) struct Exporters<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) group: &'a Group<'a>,
    name: String,
    pub(super) own: bool,
    nfd: bool,
    pub(super) tls: Option<TlsProfile>,
}

/// The DaemonSet of a pool with these nodes.
pub(super) fn daemon_set(
    request: &Request<'_>,
    group: &Group<'_>,
    pool: &Pool<'_>,
    nodes: &Choice,
) -> DaemonSet {
    let environment = &request.cluster.environment;
    // Clusters with certificates have TLS, also without a profile.
    let (own, nfd) = (request.image().own, request.has_nfd());
    let tls = environment.platform.is_openshift() && !nfd;
    let tls = tls.then(|| request.cluster.tls.clone().unwrap_or_default());
    let exporters = Exporters { request, group, name: set_name(pool.name), own, nfd, tls };
    let labels = pod_labels(pool.name);
    let selector = selector(request, &labels, pool.name);
    let pods = pod::Pods {
        annotations: exporters.annotations(pool.name),
        spec: exporters.pod(&labels, nodes),
        labels: labels.clone(),
    };
    let max_unavailable = Some(IntOrString::String("25%".to_owned()));
    let strategy = DaemonSetUpdateStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDaemonSet { max_unavailable, max_surge: None }),
    };
    let mut metadata = meta::within(&environment.namespace, &exporters.name);
    metadata.labels = Some(labels);
    let mut set = pods.daemon_set(metadata, Some(strategy));
    if let Some(spec) = &mut set.spec {
        spec.selector = selector;
    }
    set
}

/// The key of a pool's DaemonSet.
pub(super) fn key(request: &Request<'_>, pool: &str) -> ObjectKey {
    ObjectKey::of::<DaemonSet>(Some(&request.cluster.environment.namespace), &set_name(pool))
}

fn pod_labels(pool: &str) -> BTreeMap<String, String> {
    let mut labels = rte::pod_labels();
    labels.insert(LABEL_POOL.to_owned(), pool.to_owned());
    labels
}

/// The selector, which cannot be changed. The Go operator's selects the pods of all pools.
fn selector(request: &Request<'_>, labels: &BTreeMap<String, String>, pool: &str) -> LabelSelector {
    let live = request.cluster.observed.get(&key(request, pool)).map(|live| live["spec"]["selector"].clone());
    let live: Option<LabelSelector> = live.and_then(|selector| serde_json::from_value(selector).ok());
    let usable = |selector: &LabelSelector| {
        *selector != LabelSelector::default()
            && selects(Some(selector), |key| labels.get(key).map(String::as_str))
    };
    live.filter(usable).unwrap_or_else(|| meta::selector(labels))
}

impl Exporters<'_> {
    pub(super) fn environment(&self) -> &Environment {
        &self.request.cluster.environment
    }

    /// The kubelets that exporters read the configuration of. On OpenShift its objects state the settings.
    pub(super) fn kubelet(&self) -> Option<&Kubelet> {
        (!self.environment().platform.is_openshift()).then_some(&self.group.kubelet)
    }

    /// Whether exporters ask their kubelet.
    fn asks_kubelet(&self) -> bool {
        let config = self.kubelet().map(|kubelet| &kubelet.config);
        self.own && matches!(config, Some(KubeletConfig::Configz { .. }))
    }

    fn annotations(&self, pool: &str) -> BTreeMap<String, String> {
        let config = kubeletconfig::config(self.request.cluster, pool);
        let hash = config.map_or_else(String::new, |text| pod::config_hash(&text).1);
        let hash = Some((CONFIG_HASH.to_owned(), hash)).filter(|_| !self.nfd);
        let mut annotations: BTreeMap<_, _> = hash.into_iter().collect();
        if self.environment().platform.is_openshift() {
            let mut options = self.request.options();
            options.updater.scc = self.constraints();
            annotations.extend([openshift::required(openshift::rte_constraints_name(&options))]);
        }
        annotations
    }

    fn constraints(&self) -> deployer::options::SccVersion {
        use deployer::options::SccVersion;
        if self.group.has_custom_policy() { SccVersion::V1 } else { SccVersion::V2 }
    }

    fn events(&self) -> bool {
        self.group.config.info_refresh_mode != Some(InfoRefreshMode::Periodic)
    }

    fn pod(&self, labels: &BTreeMap<String, String>, nodes: &Choice) -> PodSpec {
        let mounts = if self.nfd { manifests::mounts(&nfd::options(self)) } else { self.mounts() };
        let (volume_mounts, volumes): (Vec<_>, Vec<_>) = mounts.into_iter().unzip();
        let mut containers = vec![self.container(volume_mounts)];
        if !self.own && !self.nfd {
            containers.push(self.shared_pool());
        }
        PodSpec {
            service_account_name: Some(rte::account(&self.request.options()).name.to_owned()),
            readiness_gates: (!self.nfd).then(rte::readiness_gates),
            priority_class_name: Some("system-node-critical".to_owned()),
            containers,
            volumes: Some(volumes),
            tolerations: Some(self.group.config.tolerations.clone()).filter(|all| !all.is_empty()),
            node_selector: Some(nodes.labels.clone()).filter(|labels| !labels.is_empty()),
            affinity: Some(Affinity {
                pod_anti_affinity: Some(apart(labels)),
                ..pod::only_on(nodes.terms())
            }),
            enable_service_links: Some(false),
            // The exporter ends within two seconds.
            termination_grace_period_seconds: self.own.then_some(10),
            ..PodSpec::default()
        }
    }

    fn container(&self, volume_mounts: Vec<VolumeMount>) -> Container {
        let shared = Container {
            volume_mounts: Some(volume_mounts),
            security_context: Some(self.security()),
            resources: if self.own { exporter::resources() } else { rte::resources() },
            ..container(rte::NAME, &self.request.image().image)
        };
        if self.nfd {
            return nfd::container(self, shared);
        }
        Container {
            command: Some(vec![rte::COMMAND.to_owned()]),
            args: Some(args(self)),
            env: Some(self.variables()),
            ports: Some(self.ports(self.request.options().updater.metrics_port)),
            liveness_probe: self.own.then(exporter::liveness_probe),
            ..shared
        }
    }

    fn ports(&self, metrics: u16) -> Vec<ContainerPort> {
        let health = self.own.then(pod::health_port);
        [pod::port(PORT, metrics)].into_iter().chain(health).collect()
    }

    fn variables(&self) -> Vec<EnvVar> {
        let port = self.request.options().updater.metrics_port;
        let mut variables = vec![
            pod::field("NODE_NAME", "spec.nodeName"),
            pod::field("REFERENCE_NAMESPACE", "metadata.namespace"),
            pod::field("REFERENCE_POD_NAME", "metadata.name"),
            pod::variable("METRICS_PORT", &port.to_string()),
        ];
        if !self.own {
            variables.push(pod::variable("REFERENCE_CONTAINER_NAME", rte::SHARED_POOL));
        }
        if self.asks_kubelet() {
            variables.push(pod::field("NODE_IP", "status.hostIP"));
        }
        if has_fingerprint(&self.group.config) {
            variables.push(pod::variable("PFP_STATUS_DUMP", STATUS));
        }
        variables
    }

    fn mounts(&self) -> Vec<(VolumeMount, Volume)> {
        let root = &self.group.kubelet.root;
        let read_only = |name: &str, path: &str| {
            let volume = pod::node_path(name, path, Some("Directory"));
            (pod::mount_read_only(name, &format!("/{name}")), volume)
        };
        let podresources = format!("{root}/pod-resources");
        let mut mounts = vec![
            read_only("host-sys", "/sys"),
            read_only("host-podresources", &podresources),
            (
                pod::mount_read_only("rte-config-volume", "/etc/resource-topology-exporter/"),
                pod::config_directory("rte-config-volume", &self.name, Some(true)),
            ),
        ];
        if self.events() {
            let volume = pod::node_path("host-run-rte", "/run/rte", Some("DirectoryOrCreate"));
            mounts.push((pod::mount("host-run-rte", "/run/rte"), volume));
        }
        if self.mounts_root() {
            let (mount, volume) = read_only(&RTE_ROOT[1..], root);
            // Pods' volumes are mounted in there. They must be unmounted here with the kubelet's.
            let mount_propagation = Some("HostToContainer".to_owned());
            mounts.push((VolumeMount { mount_propagation, ..mount }, volume));
        }
        if let Some(kubelet) = self.kubelet() {
            mounts.extend(kubelet::rte_file_mounts(kubelet, self.own, self.mounts_root()));
            mounts.extend(kubelet::authority_mount(kubelet).filter(|_| self.own));
        }
        if has_fingerprint(&self.group.config) {
            let volume = pod::memory_directory("run-pfpstatus", STATUS_SIZE);
            mounts.push((pod::mount("run-pfpstatus", STATUS), volume));
        }
        if self.tls.is_some() {
            // Our exporter takes the certificate when it comes; the Go exporter reads it once.
            let volume = pod::secret_directory(CERTIFICATE, CERTIFICATE, self.own.then_some(true));
            mounts.push((pod::mount_read_only(CERTIFICATE, "/etc/secrets/rte/"), volume));
        }
        mounts
    }

    /// Whether the kubelet's whole root directory is mounted, which has its key and the tokens of pods. The Go exporter
    /// finds the configuration there; ours does without, unless its state files are wanted as events.
    fn mounts_root(&self) -> bool {
        let wanted = self.has_file_below_root() || self.own && self.events();
        wanted && (!self.own || self.environment().kubelet_root_mount)
    }

    /// Whether the kubelet's configuration is a file in its root directory, or drop-ins there.
    fn has_file_below_root(&self) -> bool {
        let Some(kubelet) = self.kubelet() else { return false };
        let KubeletConfig::File { path, drop_ins } = &kubelet.config else { return false };
        let drop_ins = drop_ins.as_ref().filter(|_| self.own);
        std::iter::once(path).chain(drop_ins).any(|path| kubelet.below_root(path).is_some())
    }

    fn security(&self) -> SecurityContext {
        let selinux =
            if self.group.has_custom_policy() { openshift::RTE_PROCESS } else { openshift::DEVICE_PLUGIN };
        let selinux = self.environment().platform.is_openshift().then_some(selinux);
        let context = SecurityContext {
            run_as_group: Some(0),
            // Another image of the exporter may write to its root.
            read_only_root_filesystem: (self.own || self.nfd).then_some(true),
            ..pod::confined_root()
        };
        pod::with_selinux(context, selinux)
    }

    /// The Go exporter takes this container's CPUs for the shared pool. Its image has a shell.
    fn shared_pool(&self) -> Container {
        let sleep = ["/bin/sh", "-c", "--"].map(str::to_owned).to_vec();
        Container {
            command: Some(sleep),
            args: Some(vec!["while true; do sleep 30s; done".to_owned()]),
            security_context: Some(pod::restricted(self.environment().platform)),
            resources: pod::resources(&[("cpu", "1m"), ("memory", "4Mi")], &[]),
            ..container(rte::SHARED_POOL, &self.request.image().image)
        }
    }
}

/// At most one exporter of the pool on a node.
fn apart(labels: &BTreeMap<String, String>) -> PodAntiAffinity {
    let term = PodAffinityTerm {
        label_selector: Some(meta::selector(labels)),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(vec![term]),
        ..PodAntiAffinity::default()
    }
}
