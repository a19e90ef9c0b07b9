//! Our exporter on every node.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a permission, mount or flag that it does not
//! need; [`exporter::rbac`] derives the permissions from the flags.
//!
//! The exporter runs as root, because the kubelet's directories belong to root. It has no capabilities, a read-only
//! root file system and no writable mount. Only its `hostPath` volumes make the namespace a privileged one.

use exporter::rbac::{Needs, Rules, rules};
use exporter::settings::{Mode, OwnerKind};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Namespace, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SecurityContext,
    ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

use super::access::{ServiceAccountRef, cluster_role};
use super::meta::{self, PodSecurityLevel, labels, selector, within};
use super::network::{self, AllowedPorts};
use super::{Error, openshift, pod};
use crate::options::{KubeletConfig, Options};
use objects::Object;

mod flags;

pub use flags::{flags, mounts};

/// The default namespace.
pub const NAMESPACE: &str = "tholepin";
/// The default name of all objects.
pub const NAME: &str = "tholepin-exporter";
/// The name of the container.
pub const CONTAINER: &str = "exporter";

/// The service account; its namespace and name are those of most objects.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef {
        namespace: options.updater.namespace.as_deref().unwrap_or(NAMESPACE),
        name: options.updater.name.as_deref().unwrap_or(NAME),
    }
}

/// All objects, in the order of installation.
///
/// # Errors
/// When options contradict each other.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let account = account(options);
    let mut objects = vec![Object::new(&namespace(options))?];
    if options.critical_quota {
        objects.push(Object::new(&meta::critical_quota(account.namespace))?);
    }
    objects.push(Object::new(&service_account(options))?);
    if options.platform.is_openshift() {
        objects.push(openshift::exporter_constraints(account, options)?);
    }
    objects.push(Object::new(&role(options))?);
    objects.push(Object::new(&role_binding(options))?);
    if options.updater.admission_policy && options.kubernetes_at_least(32) {
        let (policy, binding) = admission_policy(options);
        objects.push(Object::new(&policy)?);
        objects.push(Object::new(&binding)?);
    }
    if options.network_policies {
        objects.push(Object::new(&network_policy(options))?);
    }
    if let Some(map) = config_map(options) {
        objects.push(Object::new(&map)?);
    }
    objects.push(Object::new(&daemon_set(options)?)?);
    Ok(objects)
}

/// The namespace; privileged, because no other level allows `hostPath` volumes.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    meta::namespace(account(options).namespace, PodSecurityLevel::Privileged, options.platform)
}

/// The service account.
#[must_use]
pub fn service_account(options: &Options) -> ServiceAccount {
    account(options).object()
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

/// The ClusterRole.
#[must_use]
pub fn role(options: &Options) -> ClusterRole {
    let account = account(options);
    let Rules { cluster, .. } = rules(needs(options), account.namespace);
    cluster_role(account.name, cluster)
}

/// Binds the role to the service account.
#[must_use]
pub fn role_binding(options: &Options) -> ClusterRoleBinding {
    let account = account(options);
    account.with_cluster_role(account.name)
}

/// The admission policy that restricts each exporter to the object of its own node.
#[must_use]
pub fn admission_policy(options: &Options) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let account = account(options);
    exporter::policy::admission_policy(account.namespace, account.name)
}

/// Allows metrics and health checks from anywhere, and egress to API server and, if needed, kubelet.
#[must_use]
pub fn network_policy(options: &Options) -> NetworkPolicy {
    let account = account(options);
    let mut servers = options.api_server_ports.clone();
    if let KubeletConfig::Configz { port } = options.kubelet().config {
        servers.push(port);
    }
    let openings = AllowedPorts { ingress: Some(vec![options.updater.metrics_port]), egress: Some(servers) };
    network::policy(account.namespace, account.name, &pod_labels(options), &openings)
}

/// The ConfigMap with the configuration file, if there is one.
#[must_use]
pub fn config_map(options: &Options) -> Option<ConfigMap> {
    let account = account(options);
    let text = options.updater.config.as_deref()?;
    Some(pod::config_map(account.namespace, account.name, flags::CONFIG_KEY, text))
}

/// The DaemonSet.
///
/// # Errors
/// When the kubelet's configuration cannot be read in the chosen way.
pub fn daemon_set(options: &Options) -> Result<DaemonSet, Error> {
    let account = account(options);
    let pods = pod_labels(options);
    let hash = options.updater.config.as_deref().map(pod::config_hash);
    let constraints = options.platform.is_openshift().then(|| openshift::required(account.name));
    let annotations: BTreeMap<_, _> = hash.into_iter().chain(constraints).collect();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pods.clone()),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(options)?),
    };
    Ok(DaemonSet {
        metadata: within(account.namespace, account.name),
        spec: Some(DaemonSetSpec {
            selector: selector(&pods),
            template,
            // Without its exporter a node keeps its last report, and the scheduler continues with its own ledger.
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String("10%".to_owned())),
                    max_surge: None,
                }),
            }),
            ..DaemonSetSpec::default()
        }),
        status: None,
    })
}

fn pod_spec(options: &Options) -> Result<PodSpec, Error> {
    let updater = &options.updater;
    let (volume_mounts, volumes) = mounts(options).into_iter().unzip();
    let variables = [("NODE_NAME", "spec.nodeName"), ("NODE_IP", "status.hostIP")];
    // Only `/configz` needs the address.
    let used = if needs(options).configz { 2 } else { 1 };
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(options.images.tholepin.clone()),
        image_pull_policy: pod::pull_policy(options),
        args: Some(flags(options)?),
        env: Some(variables[..used].iter().map(|(name, path)| pod::field(name, path)).collect()),
        ports: Some(vec![pod::port("metrics", updater.metrics_port)]),
        volume_mounts: Some(volume_mounts),
        security_context: Some(security(options)),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..probe("/readyz") }),
        liveness_probe: Some(Probe { period_seconds: Some(20), timeout_seconds: Some(5), ..probe("/livez") }),
        resources: resources(),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    };
    let architectures = &options.architectures;
    let affinity = (!architectures.is_empty())
        .then(|| pod::only_on(vec![pod::nodes_with("kubernetes.io/arch", architectures)]));
    let mut node_selector = labels([("kubernetes.io/os", "linux")]);
    node_selector.extend(updater.node_selector.clone());
    Ok(PodSpec {
        service_account_name: Some(account(options).name.to_owned()),
        containers: vec![container],
        volumes: Some(volumes),
        image_pull_secrets: pod::pull_secrets(options),
        priority_class_name: Some(priority_class(options)).filter(|name| !name.is_empty()),
        tolerations: Some(updater.tolerations.clone().unwrap_or_else(|| vec![pod::tolerate_all()]))
            .filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(node_selector),
        affinity,
        enable_service_links: Some(false),
        // The exporter ends open requests within two seconds.
        termination_grace_period_seconds: Some(10),
        ..PodSpec::default()
    })
}

/// CPU and memory.
///
/// docs/exporter.md has the figures: 7 to 13 MiB with 110 pods, 0.03 % of a core. The maximum is a decoded kubelet
/// answer of 16 MiB. There is no CPU limit, because throttling delays reports.
#[must_use]
pub fn resources() -> Option<ResourceRequirements> {
    pod::resources(&[("cpu", "10m"), ("memory", "20Mi")], &[("memory", "100Mi")])
}

fn security(options: &Options) -> SecurityContext {
    let context = SecurityContext { read_only_root_filesystem: Some(true), ..pod::confined_root() };
    pod::with_selinux(context, openshift::selinux_type(options).as_deref())
}

fn probe(path: &str) -> Probe {
    pod::probe(path, IntOrString::String("metrics".to_owned()), None)
}

/// High, because an evicted exporter leaves the scheduler without reports of the node.
fn priority_class(options: &Options) -> String {
    options.updater.priority_class.clone().unwrap_or_else(|| "system-node-critical".to_owned())
}

fn pod_labels(options: &Options) -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", NAME), ("app.kubernetes.io/instance", account(options).name)])
}
