//! resource-topology-exporter on every node, under the names that the Go `deployer` gives its objects.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a name that differs from a reference to it.
//! docs/compatibility-deployer.md has the differences from the Go deployer.

use std::collections::BTreeMap;

use api::nrt;
use api::rbac::rule;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Container, PodReadinessGate, PodSpec, ResourceRequirements, ServiceAccount, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

use super::access::{ServiceAccountRef, cluster_role, role};
use super::meta::PodSecurityLevel::Privileged;
use super::meta::{self, labels, within};
use super::network::{AllowedPorts, Servers, only_api_server, policy};
use super::{kubelet, openshift, pod};
use crate::options::{KubeletConfig, Options};
use objects::Object;

/// The default namespace.
pub const NAMESPACE: &str = "tas-topology-updater";
/// The default name of the DaemonSet, and the name of its container.
pub const NAME: &str = "resource-topology-exporter";
/// The default name of account, roles and bindings.
const ACCOUNT: &str = "rte";
const CONFIG_MAP: &str = "rte-config";
/// The second container does nothing. Its CPUs are the shared pool, which the Go exporter subtracts.
pub const SHARED_POOL: &str = "shared-pool-container";
/// The program in the image.
pub const COMMAND: &str = "/bin/resource-topology-exporter";

/// The service account; its namespace and name are those of most objects.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef::of_updater(options, NAMESPACE, ACCOUNT)
}

/// All objects, in the order of installation.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let namespace = account(options).namespace;
    let mut objects = vec![Object::new(&meta::namespace(namespace, Privileged, options.platform))];
    if let Some(text) = &options.updater.config {
        objects.push(Object::new(&pod::config_map(namespace, CONFIG_MAP, "config.yaml", text)));
    }
    if options.platform.is_openshift() {
        objects.push(openshift::rte_constraints(account(options), options));
    }
    if openshift::has_machine_config(options) {
        objects.push(openshift::machine_config(options));
    }
    objects.push(Object::new(&pod_role(options)));
    objects.push(Object::new(&pod_role_binding(options)));
    objects.push(Object::new(&object_role(options)));
    objects.push(Object::new(&object_role_binding(options)));
    objects.push(Object::new(&service_account(options)));
    if options.network_policies {
        for policy in network_policies(options) {
            objects.push(Object::new(&policy));
        }
    }
    objects.push(Object::new(&daemon_set(options)));
    objects
}

/// The service account.
#[must_use]
pub fn service_account(options: &Options) -> ServiceAccount {
    account(options).object()
}

/// The Role for pods in its namespace: RTE writes conditions of its own pod.
#[must_use]
pub fn pod_role(options: &Options) -> Role {
    let ServiceAccountRef { namespace, name } = account(options);
    role(namespace, name, vec![rule("", &["pods"], &["get"]), rule("", &["pods/status"], &["update"])])
}

/// Binds the role to the service account.
#[must_use]
pub fn pod_role_binding(options: &Options) -> RoleBinding {
    let account = account(options);
    account.with_role(account.namespace, account.name, account.name)
}

/// The ClusterRole.
#[must_use]
pub fn object_role(options: &Options) -> ClusterRole {
    let rules = vec![
        rule(nrt::GROUP, &[nrt::PLURAL], &["create", "update", "get", "list"]),
        rule("", &["nodes"], &["watch", "list"]),
    ];
    cluster_role(account(options).name, rules)
}

/// Binds the role to the service account.
#[must_use]
pub fn object_role_binding(options: &Options) -> ClusterRoleBinding {
    let account = account(options);
    account.with_cluster_role(account.name)
}

/// Three policies: deny all, egress to the API server, ingress to metrics.
#[must_use]
pub fn network_policies(options: &Options) -> [NetworkPolicy; 3] {
    let ServiceAccountRef { namespace, name } = account(options);
    let pods = pod_labels();
    let [nothing, server] = only_api_server(namespace, name, &pods, vec![Servers::api(options)]);
    let metrics = AllowedPorts { ingress: Some(vec![options.updater.metrics_port]), egress: None };
    [nothing, server, policy(namespace, &format!("ingress-to-{name}-metrics"), &pods, &metrics)]
}

fn daemon_set(options: &Options) -> DaemonSet {
    let updater = &options.updater;
    let hash = updater.config.as_deref().map(pod::config_hash);
    let constraints = openshift::required(openshift::rte_constraints_name(options));
    let constraints = options.platform.is_openshift().then_some(constraints);
    let annotations = hash.into_iter().chain(constraints).collect();
    let pods = pod::Pods { labels: pod_labels(), annotations, spec: pod_spec(options) };
    let name = updater.name.as_deref().unwrap_or(NAME);
    pods.daemon_set(within(account(options).namespace, name), None)
}

fn pod_spec(options: &Options) -> PodSpec {
    let updater = &options.updater;
    let (volume_mounts, volumes) = mounts(options).into_iter().unzip();
    let security = pod::with_selinux(pod::confined_root(), openshift::selinux_type(options).as_deref());
    let exporter = Container {
        command: Some(vec![COMMAND.to_owned()]),
        args: Some(flags(options)),
        env: Some(vec![
            pod::field("NODE_NAME", "spec.nodeName"),
            pod::field("REFERENCE_NAMESPACE", "metadata.namespace"),
            pod::field("REFERENCE_POD_NAME", "metadata.name"),
            pod::variable("REFERENCE_CONTAINER_NAME", SHARED_POOL),
            pod::variable("METRICS_PORT", &updater.metrics_port.to_string()),
        ]),
        ports: Some(vec![pod::port("metrics-port", updater.metrics_port)]),
        volume_mounts: Some(volume_mounts),
        security_context: Some(security),
        resources: resources(),
        ..pod::container(NAME, &options.images.rte, options)
    };
    let shared_pool = Container {
        name: SHARED_POOL.to_owned(),
        image: Some(options.images.pause.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        security_context: Some(pod::restricted(options.platform)),
        resources: pod::resources(&[("cpu", "1m"), ("memory", "4Mi")], &[]),
        ..Container::default()
    };
    PodSpec {
        readiness_gates: Some(readiness_gates()),
        priority_class_name: pod::priority_class(&updater.priority_class, "system-node-critical"),
        tolerations: updater.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(updater.node_selector.clone()).filter(|labels| !labels.is_empty()),
        ..pod::spec(account(options).name, vec![exporter, shared_pool], volumes, options)
    }
}

fn flags(options: &Options) -> Vec<String> {
    let updater = &options.updater;
    let mut flags: Vec<String> = pod::sleep_interval(options).into_iter().collect();
    flags.push("--sysfs=/host-sys".to_owned());
    flags.push("--podresources-socket=unix:///host-podresources/kubelet.sock".to_owned());
    flags.push(format!("-v={}", updater.verbosity));
    if updater.notify {
        flags.push("--notify-file=/host-run-rte/notify".to_owned());
    }
    flags.push(format!("--pods-fingerprint={}", updater.fingerprint));
    let kubelet = options.kubelet();
    flags.extend(kubelet::rte_file_flags(&kubelet, false));
    // RTE cannot ask the kubelet; then its own configuration file has to state the policy.
    if let KubeletConfig::Stated { policy, scope } = &kubelet.config {
        flags.push(format!("--topology-manager-policy={}", policy.as_str()));
        flags.push(format!("--topology-manager-scope={}", scope.as_str()));
    }
    flags
}

fn mounts(options: &Options) -> Vec<(VolumeMount, Volume)> {
    let updater = &options.updater;
    let kubelet = options.kubelet();
    let read_only = |name: &str, path: &str| {
        let volume = pod::node_path(name, path, Some("Directory"));
        (pod::mount_read_only(name, &format!("/{name}")), volume)
    };
    let podresources = format!("{}/pod-resources", kubelet.root);
    let mut mounts = vec![read_only("host-sys", "/sys"), read_only("host-podresources", &podresources)];
    if updater.config.is_some() {
        let volume = pod::config_directory("rte-config-volume", CONFIG_MAP, Some(true));
        mounts.push((pod::mount("rte-config-volume", "/etc/resource-topology-exporter/"), volume));
    }
    if updater.notify {
        let volume = pod::node_path("host-run-rte", "/run/rte", Some("DirectoryOrCreate"));
        mounts.push((pod::mount("host-run-rte", "/host-run-rte"), volume));
    }
    if let KubeletConfig::File { path, .. } = &kubelet.config {
        let below = kubelet.below_root(path).is_some();
        mounts.extend(below.then(|| read_only(&kubelet::RTE_ROOT[1..], &kubelet.root)));
    }
    mounts.extend(kubelet::rte_file_mounts(&kubelet, false, true));
    mounts
}

/// CPU and memory; RTE uses 42 MB.
#[must_use]
pub fn resources() -> Option<ResourceRequirements> {
    pod::resources(&[("cpu", "10m"), ("memory", "64Mi")], &[])
}

/// The conditions that RTE sets on its own pod; the pod is not ready without them.
#[must_use]
pub fn readiness_gates() -> Vec<PodReadinessGate> {
    let gate = |name: &str| PodReadinessGate { condition_type: name.to_owned() };
    ["PodresourcesFetched", "NodeTopologyUpdated"].map(gate).to_vec()
}

/// The labels of the pods.
#[must_use]
pub fn pod_labels() -> BTreeMap<String, String> {
    labels([("name", "resource-topology")])
}
