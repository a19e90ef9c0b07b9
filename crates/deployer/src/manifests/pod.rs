//! Building blocks of pods that several programs share.
//!
//! In: names, paths, numbers. Out: typed fields. Never: a choice between them.

use std::collections::BTreeMap;

use api::goduration::GoDuration;
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, Deployment, DeploymentSpec, DeploymentStrategy,
};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource,
    EnvVar, EnvVarSource, HTTPGetAction, HostPathVolumeSource, LocalObjectReference, NodeAffinity,
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, PodSpec, PodTemplateSpec,
    PreferredSchedulingTerm, Probe, ResourceRequirements, SELinuxOptions, SeccompProfile, SecretVolumeSource,
    SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ring::digest::{SHA256, digest};

use super::meta::{selector, within};
use crate::options::Options;
use crate::platform::Platform;

/// The label of control plane nodes.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// The pod annotation with the hash of the configuration; a new hash restarts pods. The Go operator uses the same name.
const CONFIG_HASH: &str = "configmap.hash";

/// The pods of a DaemonSet or Deployment.
#[derive(Clone, Debug)]
pub struct Pods {
    /// Their labels, by which they are selected.
    pub labels: BTreeMap<String, String>,
    /// Their annotations; empty: none.
    pub annotations: BTreeMap<String, String>,
    /// What runs in each.
    pub spec: PodSpec,
}

impl Pods {
    /// One pod on each node; without a strategy the API server's default holds.
    #[must_use]
    pub fn daemon_set(self, metadata: ObjectMeta, strategy: Option<DaemonSetUpdateStrategy>) -> DaemonSet {
        let spec = DaemonSetSpec {
            selector: selector(&self.labels),
            template: self.template(),
            update_strategy: strategy,
            ..DaemonSetSpec::default()
        };
        DaemonSet { metadata, spec: Some(spec), status: None }
    }

    /// This many pods; without a strategy the API server's default holds.
    #[must_use]
    pub fn deployment(
        self,
        metadata: ObjectMeta,
        replicas: i32,
        strategy: Option<DeploymentStrategy>,
    ) -> Deployment {
        let spec = DeploymentSpec {
            replicas: Some(replicas),
            selector: selector(&self.labels),
            template: self.template(),
            strategy,
            ..DeploymentSpec::default()
        };
        Deployment { metadata, spec: Some(spec), status: None }
    }

    fn template(self) -> PodTemplateSpec {
        let metadata = ObjectMeta {
            labels: Some(self.labels),
            annotations: Some(self.annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        };
        PodTemplateSpec { metadata: Some(metadata), spec: Some(self.spec) }
    }
}

/// No capabilities, no privilege escalation, the runtime's seccomp profile.
pub(super) fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..SecurityContext::default()
    }
}

/// `confined`, as root, because the kubelet's files belong to root.
#[must_use]
pub fn confined_root() -> SecurityContext {
    SecurityContext { run_as_user: Some(0), ..confined() }
}

/// `confined`, without root, on a read-only root file system: stricter than the level `restricted` demands.
///
/// The user is unset on OpenShift, which assigns user ids to each namespace.
#[must_use]
pub fn restricted(platform: Platform) -> SecurityContext {
    SecurityContext {
        run_as_non_root: Some(true),
        run_as_user: (!platform.is_openshift()).then_some(65532),
        read_only_root_filesystem: Some(true),
        ..confined()
    }
}

/// The context with an SELinux type.
#[must_use]
pub fn with_selinux(context: SecurityContext, kind: Option<&str>) -> SecurityContext {
    let options = kind.map(|kind| SELinuxOptions {
        type_: Some(kind.to_owned()),
        level: Some("s0".to_owned()),
        ..SELinuxOptions::default()
    });
    SecurityContext { se_linux_options: options, ..context }
}

/// A container with its image.
#[must_use]
pub fn container(name: &str, image: &str, options: &Options) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        // The variants have the names of Kubernetes' policies.
        image_pull_policy: Some(options.pull.as_str().to_owned()),
        ..Container::default()
    }
}

/// Pods that run as a service account of their namespace, with credentials for the registry of their images.
pub(super) fn spec(
    account: &str,
    containers: Vec<Container>,
    volumes: Vec<Volume>,
    options: &Options,
) -> PodSpec {
    let secrets = options.pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
    PodSpec {
        service_account_name: Some(account.to_owned()),
        containers,
        volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
        image_pull_secrets: Some(secrets.collect()).filter(|secrets: &Vec<_>| !secrets.is_empty()),
        ..PodSpec::default()
    }
}

/// The priority class of pods: the given one, else the default; an empty name is none.
pub(super) fn priority_class(given: &Option<String>, default: &str) -> Option<String> {
    Some(given.as_deref().unwrap_or(default)).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The flag `--sleep-interval` of RTE and nfd-topology-updater; without it they have no timer.
pub(super) fn sleep_interval(options: &Options) -> Option<String> {
    let nanos = i64::try_from(options.updater.sync_period?.as_nanos()).unwrap_or(i64::MAX);
    (nanos > 0).then(|| format!("--sleep-interval={}", GoDuration(nanos)))
}

/// An environment variable with a fixed value.
#[must_use]
pub fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// An environment variable with the value of a pod field.
#[must_use]
pub fn field(name: &str, path: &str) -> EnvVar {
    let selector = ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
    let source = EnvVarSource { field_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// A `hostPath` volume; `kind` as in `hostPath.type`, such as `Directory` or `File`.
#[must_use]
pub fn node_path(name: &str, path: &str, kind: Option<&str>) -> Volume {
    let source = HostPathVolumeSource { path: path.to_owned(), type_: kind.map(str::to_owned) };
    Volume { name: name.to_owned(), host_path: Some(source), ..Volume::default() }
}

/// A ConfigMap volume.
#[must_use]
pub fn config_directory(name: &str, map: &str, optional: Option<bool>) -> Volume {
    let source = ConfigMapVolumeSource { name: map.to_owned(), optional, ..ConfigMapVolumeSource::default() };
    Volume { name: name.to_owned(), config_map: Some(source), ..Volume::default() }
}

/// A Secret volume.
#[must_use]
pub fn secret_directory(name: &str, secret: &str, optional: Option<bool>) -> Volume {
    let source = SecretVolumeSource {
        secret_name: Some(secret.to_owned()),
        optional,
        ..SecretVolumeSource::default()
    };
    Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() }
}

/// An `emptyDir` volume in memory of at most `size`.
#[must_use]
pub fn memory_directory(name: &str, size: &str) -> Volume {
    let size_limit = Some(Quantity(size.to_owned()));
    let source = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit };
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}

/// A mount of a volume.
#[must_use]
pub fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// A read-only mount of a volume.
#[must_use]
pub fn mount_read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}

/// A named container port.
#[must_use]
pub fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number.into(), ..ContainerPort::default() }
}

/// An HTTP probe of a port, by name or number.
#[must_use]
pub fn probe(path: &str, port: IntOrString, scheme: Option<&str>) -> Probe {
    let get = HTTPGetAction {
        path: Some(path.to_owned()),
        port,
        scheme: scheme.map(str::to_owned),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), ..Probe::default() }
}

/// The port of health alone, in plain HTTP. Readers of metrics cannot keep probes out there.
pub const HEALTH: u16 = 8081;
/// The name of that port.
const HEALTH_NAME: &str = "health";

/// The container port of health.
#[must_use]
pub fn health_port() -> ContainerPort {
    port(HEALTH_NAME, HEALTH)
}

/// An HTTP probe of the port of health.
#[must_use]
pub fn health_probe(path: &str) -> Probe {
    probe(path, IntOrString::String(HEALTH_NAME.to_owned()), None)
}

/// The flag of our programs for that port; it is the operator's default.
#[must_use]
pub fn health_flag() -> String {
    format!("--health-probe-bind-address=:{HEALTH}")
}

/// Requests and limits of a container.
#[must_use]
pub fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Option<ResourceRequirements> {
    let amounts = |pairs: &[(&str, &str)]| {
        let pairs: BTreeMap<_, _> =
            pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
        (!pairs.is_empty()).then_some(pairs)
    };
    let (requests, limits) = (amounts(requests), amounts(limits));
    Some(ResourceRequirements { requests, limits, ..ResourceRequirements::default() })
}

/// Tolerates every taint.
#[must_use]
pub fn tolerate_all() -> Toleration {
    Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }
}

/// `given`, and tolerations for the taints of control plane nodes.
#[must_use]
pub fn tolerate_control_plane(given: &[Toleration]) -> Vec<Toleration> {
    let mut tolerations = given.to_vec();
    for key in [CONTROL_PLANE, "node-role.kubernetes.io/master"] {
        if !tolerations.iter().any(|toleration| toleration.key.as_deref() == Some(key)) {
            let (key, effect) = (Some(key.to_owned()), Some("NoSchedule".to_owned()));
            tolerations.push(Toleration { key, effect, ..Toleration::default() });
        }
    }
    tolerations
}

/// `given`, with tolerations for the control plane if pods may run there; `None` if there are none.
pub(super) fn tolerations(control_plane: bool, given: &[Toleration]) -> Option<Vec<Toleration>> {
    let all = if control_plane { tolerate_control_plane(given) } else { given.to_vec() };
    Some(all).filter(|all| !all.is_empty())
}

/// Nodes with a label; if `values` are given, with one of them.
#[must_use]
pub fn nodes_with(label: &str, values: &[String]) -> NodeSelectorTerm {
    let operator = if values.is_empty() { "Exists" } else { "In" };
    let requirement = NodeSelectorRequirement {
        key: label.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then(|| values.to_vec()),
    };
    NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None }
}

/// Requires nodes that match one of the terms.
#[must_use]
pub fn only_on(terms: Vec<NodeSelectorTerm>) -> Affinity {
    let required = NodeSelector { node_selector_terms: terms };
    let affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(required),
        ..NodeAffinity::default()
    };
    Affinity { node_affinity: Some(affinity), ..Affinity::default() }
}

/// Requires one of these architectures, if any, and prefers control plane nodes, if asked to; `None` without both.
pub(super) fn affinity(architectures: &[String], prefers_control_plane: bool) -> Option<Affinity> {
    let required = (!architectures.is_empty())
        .then(|| only_on(vec![nodes_with("kubernetes.io/arch", architectures)]).node_affinity)
        .flatten();
    let preferred = prefers_control_plane
        .then(|| vec![PreferredSchedulingTerm { preference: nodes_with(CONTROL_PLANE, &[]), weight: 100 }]);
    (required.is_some() || preferred.is_some()).then(|| Affinity {
        node_affinity: Some(NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: preferred,
            ..required.unwrap_or_default()
        }),
        ..Affinity::default()
    })
}

/// A ConfigMap with one key.
#[must_use]
pub fn config_map(namespace: &str, name: &str, key: &str, text: &str) -> ConfigMap {
    let data = BTreeMap::from([(key.to_owned(), text.to_owned())]);
    ConfigMap { metadata: within(namespace, name), data: Some(data), ..ConfigMap::default() }
}

/// The annotation with the hash of a configuration text, which restarts pods when the text changes: the beginning of
/// its SHA-256, which templates of Helm can compute too.
#[must_use]
pub fn config_hash(text: &str) -> (String, String) {
    let hash = digest(&SHA256, text.as_bytes());
    let short = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    (CONFIG_HASH.to_owned(), short)
}
