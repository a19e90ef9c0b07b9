//! nfd-topology-updater on every node, under the names that the Go `deployer` gives its objects.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: the rest of node-feature-discovery.

use api::nrt;
use api::rbac::rule;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, SecurityContext, Volume, VolumeMount};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::access::{ServiceAccountRef, cluster_role};
use super::meta::PodSecurityLevel::Privileged;
use super::meta::{self, labels, within};
use super::{Error, openshift, pod};
use crate::options::{KubeletConfig, Options};
use objects::Object;

/// The default namespace.
pub const NAMESPACE: &str = "node-feature-discovery";
/// The default name of all objects.
pub const NAME: &str = "nfd-topology-updater";
/// The kubelets' configuration file on OpenShift.
const OPENSHIFT_CONFIG: &str = "/etc/kubernetes/kubelet.conf";

/// The service account; its namespace and name are those of most objects.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef::of_updater(options, NAMESPACE, NAME)
}

/// All objects, in the order of installation.
///
/// # Errors
/// When the kubelet's configuration is stated: the program has no flags for it.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let account = account(options);
    let mut objects = vec![
        Object::new(&meta::namespace(account.namespace, Privileged, options.platform)),
        Object::new(&account.object()),
    ];
    if options.platform.is_openshift() {
        objects.push(openshift::read_only_constraints(account, options, &["hostPath", "projected"]));
    }
    objects.push(Object::new(&cluster_role(account.name, rules(options))));
    objects.push(Object::new(&account.with_cluster_role(account.name)));
    objects.push(Object::new(&daemon_set(options)?));
    Ok(objects)
}

/// The rules of its ClusterRole.
#[must_use]
pub fn rules(options: &Options) -> Vec<PolicyRule> {
    let mut rules = vec![
        rule("", &["nodes"], &["get", "list"]),
        rule("", &["pods"], &["get"]),
        rule(nrt::GROUP, &[nrt::PLURAL], &["create", "get", "update"]),
    ];
    if matches!(config(options), KubeletConfig::Configz { .. }) {
        rules.push(exporter::rbac::configz());
    }
    rules
}

fn daemon_set(options: &Options) -> Result<DaemonSet, Error> {
    let ServiceAccountRef { namespace, name } = account(options);
    let annotations = options.platform.is_openshift().then(|| openshift::required(name));
    let pods = pod::Pods {
        labels: labels([("app", NAME)]),
        annotations: annotations.into_iter().collect(),
        spec: pod_spec(options)?,
    };
    let metadata = ObjectMeta { labels: Some(labels([("app", "nfd")])), ..within(namespace, name) };
    Ok(pods.daemon_set(metadata, None))
}

fn pod_spec(options: &Options) -> Result<PodSpec, Error> {
    let updater = &options.updater;
    let (volume_mounts, volumes) = mounts(options).into_iter().unzip();
    let security = SecurityContext { read_only_root_filesystem: Some(true), ..pod::confined_root() };
    let container = Container {
        command: Some(vec![NAME.to_owned()]),
        args: Some(flags(options)?),
        env: Some(variables(options)),
        volume_mounts: Some(volume_mounts),
        security_context: Some(pod::with_selinux(security, openshift::selinux_type(options).as_deref())),
        resources: pod::resources(&[("cpu", "10m"), ("memory", "64Mi")], &[]),
        ..pod::container(NAME, &options.images.nfd, options)
    };
    Ok(PodSpec {
        dns_policy: Some("ClusterFirstWithHostNet".to_owned()),
        priority_class_name: pod::priority_class(&updater.priority_class, ""),
        tolerations: updater.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(updater.node_selector.clone()).filter(|labels| !labels.is_empty()),
        ..pod::spec(account(options).name, vec![container], volumes, options)
    })
}

/// The variables of its container.
#[must_use]
pub fn variables(options: &Options) -> Vec<EnvVar> {
    let mut variables = vec![pod::field("NODE_NAME", "spec.nodeName")];
    if matches!(config(options), KubeletConfig::Configz { .. }) {
        variables.push(pod::field("NODE_ADDRESS", "status.hostIP"));
    }
    variables
}

/// Its arguments.
///
/// # Errors
/// When the kubelet's configuration is stated: the program has no flags for it.
pub fn flags(options: &Options) -> Result<Vec<String>, Error> {
    let config = match config(options) {
        KubeletConfig::File { .. } => "file:///host-var/lib/kubelet/config.yaml".to_owned(),
        KubeletConfig::Configz { port } => format!("https://$(NODE_ADDRESS):{port}/configz"),
        KubeletConfig::Stated { .. } => {
            return Err(Error::Option {
                option: "kubelet configuration",
                value: "stated".to_owned(),
                allowed: "a file or configz with nfd-topology-updater",
            });
        }
    };
    let mut flags = vec![
        format!("--kubelet-config-uri={config}"),
        "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock".to_owned(),
    ];
    flags.extend(pod::sleep_interval(options));
    flags.push(format!("-v={}", options.updater.verbosity));
    flags.push(format!("--pods-fingerprint={}", options.updater.fingerprint));
    // The kubelet's directory is not mounted, so it is not watched.
    flags.push("--kubelet-state-dir=".to_owned());
    Ok(flags)
}

/// Mounts with their volumes.
#[must_use]
pub fn mounts(options: &Options) -> Vec<(VolumeMount, Volume)> {
    let kubelet = options.kubelet();
    let mount =
        |name: &str, path: &str, at: &str| (pod::mount_read_only(name, at), pod::node_path(name, path, None));
    let mut mounts = Vec::new();
    if let KubeletConfig::File { path, .. } = config(options) {
        mounts.push(mount("kubelet-podresources-conf", &path, "/host-var/lib/kubelet/config.yaml"));
    }
    let podresources = format!("{}/pod-resources", kubelet.root);
    mounts.push(mount("kubelet-podresources", &podresources, "/host-var/lib/kubelet/pod-resources"));
    mounts.push(mount("host-sys", "/sys", "/host-sys"));
    mounts
}

/// The source of the kubelets' configuration. The Go deployer mounts a file that does not exist on OpenShift.
fn config(options: &Options) -> KubeletConfig {
    if options.platform.is_openshift() && options.updater.kubelet.is_none() {
        return KubeletConfig::File { path: OPENSHIFT_CONFIG.to_owned(), drop_ins: None };
    }
    options.kubelet().config
}
