//! resource-topology-exporter on every node, under the names that the Go `deployer` gives its objects.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a name that is changed in one object and not in those that refer
//! to it. Where this differs from the Go deployer, docs/compatibility.md has the reason.

use std::collections::BTreeMap;

use api::goduration::GoDuration;
use api::nrt;
use api::rbac::rule;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Namespace, PodReadinessGate, PodSpec, PodTemplateSpec, ResourceRequirements,
    ServiceAccount, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::access::{Account, cluster_role, role};
use super::meta::{self, Level, labels, selector, within};
use super::network::{Openings, policy};
use super::{Error, openshift, pod};
use crate::options::{KubeletConfig, Options};
use objects::Object;

/// The usual namespace.
pub const NAMESPACE: &str = "tas-topology-updater";
/// The usual name of the DaemonSet and of its container.
pub const NAME: &str = "resource-topology-exporter";
/// The usual name of all that is about access.
const ACCOUNT: &str = "rte";
const CONFIG_MAP: &str = "rte-config";
/// The second container, which does nothing: its CPUs are the shared pool, by which the Go exporter tells them from pods' own.
pub const SHARED_POOL: &str = "shared-pool-container";
/// What RTE is started as.
pub const COMMAND: &str = "/bin/resource-topology-exporter";

/// Where its objects are.
#[must_use]
pub fn account(options: &Options) -> Account<'_> {
    Account {
        namespace: options.updater.namespace.as_deref().unwrap_or(NAMESPACE),
        name: options.updater.name.as_deref().unwrap_or(ACCOUNT),
    }
}

/// All of its objects, in the order in which they are made.
///
/// # Errors
/// Never in practice.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let mut objects = vec![Object::new(&namespace(options))?];
    if let Some(map) = config_map(options) {
        objects.push(Object::new(&map)?);
    }
    if options.platform.is_openshift() {
        objects.push(openshift::rte_constraints(options)?);
    }
    if openshift::has_machine_config(options) {
        objects.push(openshift::machine_config(options)?);
    }
    objects.push(Object::new(&pod_role(options))?);
    objects.push(Object::new(&pod_role_binding(options))?);
    objects.push(Object::new(&object_role(options))?);
    objects.push(Object::new(&object_role_binding(options))?);
    objects.push(Object::new(&service_account(options))?);
    if options.network_policies {
        for policy in network_policies(options) {
            objects.push(Object::new(&policy)?);
        }
    }
    objects.push(Object::new(&daemon_set(options))?);
    Ok(objects)
}

/// Its namespace. Privileged, because no other level allows a directory of the node.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    meta::namespace(account(options).namespace, Level::Privileged, options.platform)
}

/// Its configuration file, if there is one.
#[must_use]
pub fn config_map(options: &Options) -> Option<ConfigMap> {
    let text = options.updater.config.as_deref()?;
    Some(pod::config_map(account(options).namespace, CONFIG_MAP, "config.yaml", text))
}

/// Its service account.
#[must_use]
pub fn service_account(options: &Options) -> ServiceAccount {
    account(options).object()
}

/// What it may do to pods of its namespace: conditions on its own.
#[must_use]
pub fn pod_role(options: &Options) -> Role {
    let Account { namespace, name } = account(options);
    role(namespace, name, vec![rule("", &["pods"], &["get"]), rule("", &["pods/status"], &["update"])])
}

/// That it may do so.
#[must_use]
pub fn pod_role_binding(options: &Options) -> RoleBinding {
    let account = account(options);
    account.with_role(account.namespace, account.name, account.name)
}

/// What it may do in the cluster.
#[must_use]
pub fn object_role(options: &Options) -> ClusterRole {
    let rules = vec![
        rule(nrt::GROUP, &[nrt::PLURAL], &["create", "update", "get", "list"]),
        rule("", &["nodes"], &["watch", "list"]),
    ];
    cluster_role(account(options).name, rules)
}

/// That it may do so.
#[must_use]
pub fn object_role_binding(options: &Options) -> ClusterRoleBinding {
    let account = account(options);
    account.with_cluster_role(account.name)
}

/// Nothing; but the API server; and metrics to anybody.
#[must_use]
pub fn network_policies(options: &Options) -> [NetworkPolicy; 3] {
    let Account { namespace, name } = account(options);
    let pods = pod_labels();
    let nothing = Openings { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
    let server = Openings { ingress: None, egress: Some(options.api_server_ports.clone()) };
    let metrics = Openings { ingress: Some(vec![options.updater.metrics_port]), egress: None };
    [
        policy(namespace, &format!("{name}-default-deny-all"), &pods, &nothing),
        policy(namespace, &format!("{name}-egress-to-api-server"), &pods, &server),
        policy(namespace, &format!("ingress-to-{name}-metrics"), &pods, &metrics),
    ]
}

/// The exporter itself.
#[must_use]
pub fn daemon_set(options: &Options) -> DaemonSet {
    let updater = &options.updater;
    let hash = updater.config.as_deref().map(pod::config_hash);
    let constraints = openshift::required(openshift::rte_constraints_name(options));
    let constraints = options.platform.is_openshift().then_some(constraints);
    let annotations: BTreeMap<_, _> = hash.into_iter().chain(constraints).collect();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels()),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(options)),
    };
    DaemonSet {
        metadata: within(account(options).namespace, updater.name.as_deref().unwrap_or(NAME)),
        spec: Some(DaemonSetSpec { selector: selector(&pod_labels()), template, ..DaemonSetSpec::default() }),
        status: None,
    }
}

fn pod_spec(options: &Options) -> PodSpec {
    let updater = &options.updater;
    let (volume_mounts, volumes) = mounts(options).into_iter().unzip();
    let security = pod::with_selinux(pod::confined_root(), openshift::selinux_type(options).as_deref());
    let exporter = Container {
        name: NAME.to_owned(),
        image: Some(options.images.rte.clone()),
        image_pull_policy: pod::pull_policy(options),
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
        ..Container::default()
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
        service_account_name: Some(account(options).name.to_owned()),
        priority_class_name: Some(
            updater.priority_class.clone().unwrap_or_else(|| "system-node-critical".to_owned()),
        )
        .filter(|name| !name.is_empty()),
        containers: vec![exporter, shared_pool],
        volumes: Some(volumes),
        image_pull_secrets: pod::pull_secrets(options),
        tolerations: updater.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(updater.node_selector.clone()).filter(|labels| !labels.is_empty()),
        ..PodSpec::default()
    }
}

/// Its arguments.
#[must_use]
pub fn flags(options: &Options) -> Vec<String> {
    let updater = &options.updater;
    let mut flags: Vec<String> = sleep_interval(options).into_iter().collect();
    flags.push("--sysfs=/host-sys".to_owned());
    flags.push("--podresources-socket=unix:///host-podresources/kubelet.sock".to_owned());
    flags.push(format!("-v={}", updater.verbosity));
    if updater.notify {
        flags.push("--notify-file=/host-run-rte/notify".to_owned());
    }
    flags.push(format!("--pods-fingerprint={}", updater.fingerprint));
    let kubelet = options.kubelet();
    match &kubelet.config {
        KubeletConfig::File { path, .. } => {
            let (dir, name) = match kubelet.below_root(path) {
                Some(below) => ("/host-var-lib-kubelet", below),
                None => ("/host-kubelet-config", path.rsplit('/').next().unwrap_or_default()),
            };
            flags.push(format!("--kubelet-config-file={dir}/{name}"));
        }
        // It cannot ask the kubelet; its own configuration file has to say it.
        KubeletConfig::Configz { .. } => {}
        KubeletConfig::Stated { policy, scope } => {
            flags.push(format!("--topology-manager-policy={}", policy.as_str()));
            flags.push(format!("--topology-manager-scope={}", scope.as_str()));
        }
    }
    flags
}

/// `--sleep-interval`, as the peers' programs have it: without it they have no timer.
pub(super) fn sleep_interval(options: &Options) -> Option<String> {
    let nanos = i64::try_from(options.updater.sync_period?.as_nanos()).unwrap_or(i64::MAX);
    (nanos > 0).then(|| format!("--sleep-interval={}", GoDuration(nanos)))
}

fn mounts(options: &Options) -> Vec<(VolumeMount, Volume)> {
    let updater = &options.updater;
    let kubelet = options.kubelet();
    let read_only = |name: &str, path: &str| {
        let volume = pod::node_directory(name, path, Some("Directory"));
        (pod::mount_read_only(name, &format!("/{name}")), volume)
    };
    let podresources = format!("{}/pod-resources", kubelet.root);
    let mut mounts = vec![read_only("host-sys", "/sys"), read_only("host-podresources", &podresources)];
    if updater.config.is_some() {
        let volume = pod::config_directory("rte-config-volume", CONFIG_MAP, Some(true));
        mounts.push((pod::mount("rte-config-volume", "/etc/resource-topology-exporter/"), volume));
    }
    if updater.notify {
        let volume = pod::node_directory("host-run-rte", "/run/rte", Some("DirectoryOrCreate"));
        mounts.push((pod::mount("host-run-rte", "/host-run-rte"), volume));
    }
    if let KubeletConfig::File { path, .. } = &kubelet.config {
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
        mounts.push(match kubelet.below_root(path) {
            Some(_) => read_only("host-var-lib-kubelet", &kubelet.root),
            None => read_only("host-kubelet-config", parent),
        });
    }
    mounts
}

/// What it takes. It works with 42 MB.
#[must_use]
pub fn resources() -> Option<ResourceRequirements> {
    pod::resources(&[("cpu", "10m"), ("memory", "64Mi")], &[])
}

/// The conditions that it keeps on its own pod: without them the pod is not ready.
#[must_use]
pub fn readiness_gates() -> Vec<PodReadinessGate> {
    let gate = |name: &str| PodReadinessGate { condition_type: name.to_owned() };
    ["PodresourcesFetched", "NodeTopologyUpdated"].map(gate).to_vec()
}

/// The labels of its pods.
#[must_use]
pub fn pod_labels() -> BTreeMap<String, String> {
    labels([("name", "resource-topology")])
}
