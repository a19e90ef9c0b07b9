//! Pieces of pods that several programs have.
//!
//! In: names, paths, numbers. Out: typed pieces. Never: a choice between them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMap, ConfigMapVolumeSource, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, HTTPGetAction, HostPathVolumeSource, LocalObjectReference, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, Probe, ResourceRequirements,
    SELinuxOptions, SeccompProfile, SecretVolumeSource, SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use xxhash_rust::xxh64::xxh64;

use super::meta::within;
use crate::options::{Options, Pull};
use crate::platform::Platform;

/// The label of nodes that run the control plane.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// The annotation of pods that changes with their configuration, so that they are made anew; the name the operator gives it.
const CONFIG_HASH: &str = "configmap.hash";

/// A container that gives up all it can: no capabilities, no way to more rights, the runtime's system calls only.
#[must_use]
pub fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..SecurityContext::default()
    }
}

/// [`confined`], as root: what belongs to the kubelet is root's.
#[must_use]
pub fn confined_root() -> SecurityContext {
    SecurityContext { run_as_user: Some(0), ..confined() }
}

/// [`confined`], as nobody in particular, on a root directory it cannot write: what the level `restricted` asks for, and more.
///
/// OpenShift gives each namespace user ids of its own and refuses others.
#[must_use]
pub fn restricted(platform: Platform) -> SecurityContext {
    SecurityContext {
        run_as_non_root: Some(true),
        run_as_user: (!platform.is_openshift()).then_some(65532),
        read_only_root_filesystem: Some(true),
        ..confined()
    }
}

/// With a SELinux type.
#[must_use]
pub fn with_selinux(context: SecurityContext, kind: Option<&str>) -> SecurityContext {
    let options = kind.map(|kind| SELinuxOptions {
        type_: Some(kind.to_owned()),
        level: Some("s0".to_owned()),
        ..SELinuxOptions::default()
    });
    SecurityContext { se_linux_options: options, ..context }
}

/// When the image of a container is pulled.
#[must_use]
pub fn pull_policy(options: &Options) -> Option<String> {
    let word = match options.pull {
        Pull::Always => "Always",
        Pull::IfNotPresent => "IfNotPresent",
    };
    Some(word.to_owned())
}

/// The secrets with the registries' credentials.
#[must_use]
pub fn pull_secrets(options: &Options) -> Option<Vec<LocalObjectReference>> {
    let secret = |name: &String| LocalObjectReference { name: name.clone() };
    let secrets: Vec<_> = options.pull_secrets.iter().map(secret).collect();
    (!secrets.is_empty()).then_some(secrets)
}

/// A variable with a fixed value.
#[must_use]
pub fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// A variable with a field of the pod.
#[must_use]
pub fn field(name: &str, path: &str) -> EnvVar {
    let selector = ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
    let source = EnvVarSource { field_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// A directory of the node; `kind` as in `hostPath.type`.
#[must_use]
pub fn node_directory(name: &str, path: &str, kind: Option<&str>) -> Volume {
    let source = HostPathVolumeSource { path: path.to_owned(), type_: kind.map(str::to_owned) };
    Volume { name: name.to_owned(), host_path: Some(source), ..Volume::default() }
}

/// A ConfigMap as a directory.
#[must_use]
pub fn config_directory(name: &str, map: &str, optional: Option<bool>) -> Volume {
    let source = ConfigMapVolumeSource { name: map.to_owned(), optional, ..ConfigMapVolumeSource::default() };
    Volume { name: name.to_owned(), config_map: Some(source), ..Volume::default() }
}

/// A Secret as a directory.
#[must_use]
pub fn secret_directory(name: &str, secret: &str, optional: Option<bool>) -> Volume {
    let source = SecretVolumeSource {
        secret_name: Some(secret.to_owned()),
        optional,
        ..SecretVolumeSource::default()
    };
    Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() }
}

/// A directory in the node's memory, for one pod; `size` at most.
#[must_use]
pub fn memory_directory(name: &str, size: &str) -> Volume {
    let size_limit = Some(Quantity(size.to_owned()));
    let source = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit };
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}

/// Where a volume is mounted.
#[must_use]
pub fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// The same, not to be written to.
#[must_use]
pub fn mount_read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}

/// A port with a name.
#[must_use]
pub fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number.into(), ..ContainerPort::default() }
}

/// A question over HTTP to a port, by its name or number.
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

/// What a container asks for, and the most it may have.
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

/// Lives with every taint there is.
#[must_use]
pub fn tolerate_all() -> Toleration {
    Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }
}

/// Those given, and the ones for the taints of control plane nodes.
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

/// Nodes with a label, one of these values if there are some.
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

/// No other nodes than those.
#[must_use]
pub fn only_on(terms: Vec<NodeSelectorTerm>) -> Affinity {
    let required = NodeSelector { node_selector_terms: terms };
    let affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(required),
        ..NodeAffinity::default()
    };
    Affinity { node_affinity: Some(affinity), ..Affinity::default() }
}

/// A ConfigMap of one text.
#[must_use]
pub fn config_map(namespace: &str, name: &str, key: &str, text: &str) -> ConfigMap {
    let data = BTreeMap::from([(key.to_owned(), text.to_owned())]);
    ConfigMap { metadata: within(namespace, name), data: Some(data), ..ConfigMap::default() }
}

/// The annotation that makes pods anew when their configuration changes.
#[must_use]
pub fn config_hash(text: &str) -> (String, String) {
    (CONFIG_HASH.to_owned(), format!("{:016x}", xxh64(text.as_bytes(), 0)))
}
