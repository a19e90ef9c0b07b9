//! The operator's own objects, as functions of the options.
//!
//! In: [`Options`]. Out: typed objects, one by one and all together in the order in which they are made. Never: an
//! object that the operator makes itself, a right that [`crate::rbac`] does not list, a cluster, a clock.
//!
//! Names are those of the Go operator, so that applied objects replace its own.

use deployer::manifests::access::ServiceAccountRef;
use deployer::manifests::controller::{self, Program};
use deployer::manifests::meta::PodSecurityLevel;
use deployer::options::{self, Distribution, Kubelet, KubeletCertificate};
use deployer::platform::Platform;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use objects::Object;

pub use deployer::manifests::controller::Options;

pub mod access;
pub mod machine_configs;
pub mod monitoring;
pub mod samples;
pub mod users;

/// The default namespace.
pub const NAMESPACE: &str = "numaresources";
/// The name of the operator's Deployment and of its service account.
pub const NAME: &str = "numaresources-controller-manager";

/// The port of kubelets.
const KUBELET: u16 = 10250;
/// The process with the controllers of NUMA resources.
pub const OPERATOR: Program = Program {
    name: NAME,
    app: "numaresources-operator",
    service: "numaresources-controller-manager-metrics-service",
    certificate: "metrics-service-cert",
    args: &["operator"],
};

/// The default options.
#[must_use]
pub fn options() -> Options {
    Options::new(NAMESPACE)
}

/// The operator's service account.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef { namespace: &options.namespace, name: NAME }
}

/// The namespace. Exporters mount directories of their nodes, which only the level `privileged` allows.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    controller::namespace::namespace(PodSecurityLevel::Privileged, options)
}

/// Policies that open the API server, kubelets where they are asked, and metrics.
#[must_use]
pub fn network_policies(options: &Options) -> [NetworkPolicy; 3] {
    let kubelets = (options.common.platform == Platform::Kubernetes).then_some(KUBELET);
    controller::network::policies(options, &OPERATOR.pod_labels(), kubelets)
}

/// The Deployment. The operator is told what holds for its operands too: ports and addresses of API servers, the
/// kubelets, and whether exporters mount the kubelet's root directory.
#[must_use]
pub fn deployment(options: &Options) -> Deployment {
    let ports = &options.common.api_server_ports;
    let usual = *ports == options::Options::default().api_server_ports;
    let ports = ports.iter().filter(|_| !usual).map(|port| format!("--api-server-port={port}"));
    let cidrs = options.common.api_server_cidrs.iter().map(|cidr| format!("--api-server-cidr={cidr}"));
    let root = options.common.updater.kubelet_root.then(|| "--kubelet-root-mount".to_owned());
    let kubelets = kubelet_flags(&options.common).into_iter().chain(root);
    let flags = ports.chain(cidrs).chain(kubelets).chain(options.flags.clone()).collect();
    controller::deployment(&Options { flags, ..options.clone() }, &OPERATOR)
}

/// The flags for kubelets that are not as the platform usually has them.
fn kubelet_flags(options: &options::Options) -> Vec<String> {
    let usual = Distribution::usual(options.platform).kubelet();
    let Kubelet { root, config, certificate } = options.kubelet();
    let mut flags = Vec::new();
    if root != usual.root {
        flags.push(format!("--kubelet-root={root}"));
    }
    if config != usual.config {
        flags.push(format!("--kubelet-config={config}"));
    }
    match certificate {
        KubeletCertificate::Cluster => {}
        KubeletCertificate::ConfigMap(name) => flags.push(format!("--kubelet-ca-config-map={name}")),
        KubeletCertificate::Unchecked => flags.push("--kubelet-insecure".to_owned()),
    }
    flags
}

/// All objects, in the order in which they are made.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let mut objects: Vec<Object> = definitions().iter().map(Object::new).collect();
    objects.push(Object::new(&namespace(options)));
    if options.common.critical_quota {
        objects.push(Object::new(&deployer::manifests::meta::critical_quota(&options.namespace)));
    }
    objects.extend(access::objects(options));
    objects.extend(users::roles().iter().map(Object::new));
    objects.extend(machine_configs::policy(options));
    if options.common.network_policies {
        objects.extend(network_policies(options).iter().map(Object::new));
    }
    objects.push(Object::new(&controller::service(options, &OPERATOR)));
    objects.push(Object::new(&deployment(options)));
    if options.common.monitoring {
        objects.extend(monitoring::objects(options));
    }
    objects
}

/// The definitions of users' objects. The operator makes that of NodeResourceTopology, which other programs share.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [api::crd::operator_crd(), api::crd::scheduler_crd()]
}

#[cfg(test)]
mod tests;
