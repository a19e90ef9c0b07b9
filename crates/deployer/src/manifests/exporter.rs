//! Our exporter on every node.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a permission, mount or flag that it does not
//! need; [`exporter::rbac`] derives the permissions from the flags.
//!
//! The exporter runs as root, because the kubelet's directories belong to root. It has no capabilities, a read-only
//! root file system and no writable mount. Only its `hostPath` volumes make the namespace a privileged one.

use exporter::rbac::{Needs, rules};
use exporter::settings::{Mode, OwnerKind};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe, ResourceRequirements, SecurityContext};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

use super::access::{ServiceAccountRef, cluster_role};
use super::meta::PodSecurityLevel::Privileged;
use super::meta::{self, labels, within};
use super::network::{self, AllowedPorts, Servers};
use super::{Error, monitoring, openshift, pod};
use crate::options::{KubeletConfig, Options, Updater};
use objects::Object;

pub mod alerts;
mod flags;

pub use flags::{flags, mounts};

/// The default namespace.
pub const NAMESPACE: &str = "tholepin";
/// The default name of all objects.
pub const NAME: &str = "tholepin-exporter";
/// The name of the container.
pub const CONTAINER: &str = "exporter";
/// The name of the port of metrics.
const METRICS: &str = "metrics";
/// The name of the group of alerts.
pub const GROUP: &str = "tholepin-exporter.rules";

/// The service account; its namespace and name are those of most objects.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef::of_updater(options, NAMESPACE, NAME)
}

/// All objects, in the order of installation.
///
/// # Errors
/// When options contradict each other.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let account = account(options);
    let ServiceAccountRef { namespace, name } = account;
    let own = meta::namespace(namespace, Privileged, options.platform);
    let mut objects = vec![Object::new(&monitoring::readable(own, options))];
    if options.critical_quota {
        objects.push(Object::new(&meta::critical_quota(namespace)));
    }
    objects.push(Object::new(&account.object()));
    if options.platform.is_openshift() {
        let volumes = ["configMap", "hostPath", "projected"];
        objects.push(openshift::read_only_constraints(account, options, &volumes));
    }
    objects.push(Object::new(&cluster_role(name, rules(needs(options), namespace).cluster)));
    objects.push(Object::new(&account.with_cluster_role(name)));
    if options.updater.admission_policy && has_own_node(options) {
        // Restricts each exporter to the object of its own node.
        let (policy, binding) = exporter::policy::admission_policy(namespace, name);
        objects.push(Object::new(&policy));
        objects.push(Object::new(&binding));
    }
    if options.network_policies {
        objects.push(Object::new(&network_policy(options)));
    }
    if let Some(text) = &options.updater.config {
        objects.push(Object::new(&pod::config_map(namespace, name, flags::CONFIG_KEY, text)));
    }
    let (pods, alerts) = (pod_labels(options), alerts::alerts(&monitoring::job(account)));
    objects.extend(monitoring::of_pods(options, account, (&pods, METRICS), (GROUP, &alerts)));
    objects.extend(monitoring::dashboard(namespace, options));
    objects.push(Object::new(&daemon_set(options)?));
    Ok(objects)
}

/// Whether the tokens of the cluster's pods name their node, which the admission policy needs.
fn has_own_node(options: &Options) -> bool {
    options.kubernetes_at_least(32)
}

/// Why the admission policy is left out although it was asked for.
#[must_use]
pub fn policy_left_out(options: &Options) -> Option<String> {
    let wanted = options.updater.kind == Updater::Tholepin && options.updater.admission_policy;
    let version = options.version.as_ref().filter(|_| wanted && !has_own_node(options))?;
    let platform = options.platform;
    Some(format!(
        "{platform} {version} is older than Kubernetes 1.32 (OpenShift 4.19): the admission policy that ties each exporter to \
         its own node is left out, so the token of one node's exporter can write the reports of all nodes"
    ))
}

/// The features that [`flags`] turn on, as far as permissions depend on them.
#[must_use]
pub fn needs(options: &Options) -> Needs {
    Needs {
        mode: Some(Mode::Patch),
        owner: OwnerKind::Node,
        conditions: false,
        configz: matches!(options.kubelet().config, KubeletConfig::Configz { .. }),
    }
}

/// Allows metrics from anywhere, and egress to API server and, if needed, kubelet. Probes come from the node, which no
/// policy keeps out.
fn network_policy(options: &Options) -> NetworkPolicy {
    let ServiceAccountRef { namespace, name } = account(options);
    let mut servers = vec![Servers::api(options)];
    if let KubeletConfig::Configz { port } = options.kubelet().config {
        servers.push(Servers::kubelets(port));
    }
    let openings = AllowedPorts { ingress: Some(vec![options.updater.metrics_port]), egress: Some(servers) };
    network::policy(namespace, name, &pod_labels(options), &openings)
}

fn daemon_set(options: &Options) -> Result<DaemonSet, Error> {
    let ServiceAccountRef { namespace, name } = account(options);
    let hash = options.updater.config.as_deref().map(pod::config_hash);
    let constraints = options.platform.is_openshift().then(|| openshift::required(name));
    let annotations = hash.into_iter().chain(constraints).collect();
    let pods = pod::Pods { labels: pod_labels(options), annotations, spec: pod_spec(options)? };
    // Without its exporter a node keeps its last report, and the scheduler continues with its own ledger.
    let max_unavailable = Some(IntOrString::String("10%".to_owned()));
    let strategy = DaemonSetUpdateStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDaemonSet { max_unavailable, max_surge: None }),
    };
    Ok(pods.daemon_set(within(namespace, name), Some(strategy)))
}

fn pod_spec(options: &Options) -> Result<PodSpec, Error> {
    let updater = &options.updater;
    let (volume_mounts, volumes) = mounts(options).into_iter().unzip();
    let variables = [("NODE_NAME", "spec.nodeName"), ("NODE_IP", "status.hostIP")];
    // Only `/configz` needs the address.
    let used = if needs(options).configz { 2 } else { 1 };
    let security = SecurityContext { read_only_root_filesystem: Some(true), ..pod::confined_root() };
    let container = Container {
        args: Some(flags(options)?),
        env: Some(variables[..used].iter().map(|(name, path)| pod::field(name, path)).collect()),
        ports: Some(vec![pod::port(METRICS, updater.metrics_port), pod::health_port()]),
        volume_mounts: Some(volume_mounts),
        security_context: Some(pod::with_selinux(security, openshift::selinux_type(options).as_deref())),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..pod::health_probe("/readyz") }),
        liveness_probe: Some(liveness_probe()),
        resources: resources(),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..pod::container(CONTAINER, &options.images.tholepin, options)
    };
    let mut node_selector = labels([("kubernetes.io/os", "linux")]);
    node_selector.extend(updater.node_selector.clone());
    Ok(PodSpec {
        // High, because an evicted exporter leaves the scheduler without reports of the node.
        priority_class_name: pod::priority_class(&updater.priority_class, "system-node-critical"),
        tolerations: Some(updater.tolerations.clone().unwrap_or_else(|| vec![pod::tolerate_all()]))
            .filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(node_selector),
        affinity: pod::affinity(&options.architectures, false),
        enable_service_links: Some(false),
        // The exporter ends open requests within two seconds.
        termination_grace_period_seconds: Some(10),
        ..pod::spec(account(options).name, vec![container], volumes, options)
    })
}

/// The probe on which the kubelet restarts an exporter.
#[must_use]
pub fn liveness_probe() -> Probe {
    Probe { period_seconds: Some(20), timeout_seconds: Some(5), ..pod::health_probe("/livez") }
}

/// CPU and memory.
///
/// docs/exporter.md has the figures: 7 to 13 MiB with 110 pods, 0.03 % of a core. The maximum is a decoded kubelet
/// answer of 32 MiB. There is no CPU limit, because throttling delays reports.
#[must_use]
pub fn resources() -> Option<ResourceRequirements> {
    pod::resources(&[("cpu", "10m"), ("memory", "20Mi")], &[("memory", "100Mi")])
}

fn pod_labels(options: &Options) -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", NAME), ("app.kubernetes.io/instance", account(options).name)])
}
