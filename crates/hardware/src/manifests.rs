//! Manifests of the controller of DeviceConfigs, as functions of the options.
//!
//! In: the operator's [`Options`], with another namespace. Out: typed objects, in the order of installation. Never:
//! KMM, which has manifests of its own; a right that [`super::rbac`] does not list; other bytes for the same options.

use api::hardware::{account as account_policy, policy};
use deployer::manifests::access::{ServiceAccountRef, cluster_role, role};
use deployer::manifests::controller::{self, Options, Program, monitoring, namespace, network};
use deployer::manifests::meta::PodSecurityLevel;
use deployer::manifests::monitoring::Alert;
use objects::Object;

use super::rbac;

pub mod samples;
pub mod users;

/// The default namespace.
pub const NAMESPACE: &str = "tholepin-hardware";
/// The operator with this controller alone.
pub const CONTROLLER: Program = Program {
    name: "tholepin-hardware-controller",
    app: "tholepin-hardware",
    service: "tholepin-hardware-metrics",
    certificate: "tholepin-hardware-metrics-cert",
    args: &["operator", "--controllers=deviceconfig"],
};
/// The name of the group of alerts.
pub const GROUP: &str = "tholepin-hardware.rules";
/// The name of the roles and of their bindings.
pub const ROLE: &str = "tholepin-hardware-controller";

/// The default options.
#[must_use]
pub fn options() -> Options {
    Options::new(NAMESPACE)
}

/// The service account.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef { namespace: &options.namespace, name: CONTROLLER.name }
}

/// All objects, in the order of installation.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let mut objects = vec![
        Object::new(&api::crd::device_config_crd()),
        Object::new(&namespace::namespace(PodSecurityLevel::Restricted, options)),
    ];
    if options.common.critical_quota {
        objects.push(Object::new(&deployer::manifests::meta::critical_quota(&options.namespace)));
    }
    objects.extend(access(options));
    for role in users::roles() {
        objects.push(Object::new(&role));
    }
    let (names, everywhere) = policy::name_policy();
    objects.push(Object::new(&names));
    objects.push(Object::new(&everywhere));
    let ServiceAccountRef { namespace, name } = account(options);
    for (policy, everywhere) in account_policy::policies(namespace, name) {
        objects.push(Object::new(&policy));
        objects.push(Object::new(&everywhere));
    }
    if options.common.network_policies {
        for policy in network::policies(options, &CONTROLLER.pod_labels(), None) {
            objects.push(Object::new(&policy));
        }
    }
    objects.push(Object::new(&controller::service(options, &CONTROLLER)));
    objects.push(Object::new(&controller::deployment(options, &CONTROLLER)));
    if options.common.monitoring {
        objects.extend(monitoring::objects(options, &CONTROLLER, GROUP, &alerts()));
    }
    objects
}

/// The service account, its roles, and their bindings.
fn access(options: &Options) -> Vec<Object> {
    let account = account(options);
    let rules = rbac::rules(options.common.platform);
    let mut bound = account.with_cluster_role(ROLE);
    bound.metadata.name = Some(ROLE.to_owned());
    vec![
        Object::new(&account.object()),
        Object::new(&cluster_role(ROLE, rules.cluster)),
        Object::new(&bound),
        Object::new(&role(&options.namespace, ROLE, rules.namespaced)),
        Object::new(&account.with_role(&options.namespace, ROLE, ROLE)),
    ]
}

/// The alerts about DeviceConfigs and their controller.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let service = CONTROLLER.service;
    vec![
        Alert {
            name: "HardwareControllerDown",
            expr: format!("absent(up{{job=\"{service}\"}} == 1)"),
            lasting: "15m",
            summary: "The controller of DeviceConfigs does not run.",
            description: "No metrics of it have been seen for 15 minutes. Drivers that are loaded stay loaded; new nodes get none, and no upgrade goes on.",
            causes: &[
                "the container ends again and again: its log names the flag or permission",
                "the definitions of KMM are not installed, so the process is not ready",
                "a network policy of the cluster keeps Prometheus from the port of metrics",
            ],
            first: "kubectl get deployment,pods -n tholepin-hardware",
        },
        Alert {
            name: "DeviceConfigFailed",
            expr: "tholepin_deviceconfig_failed == 1".to_owned(),
            lasting: "15m",
            summary: "DeviceConfig {{ $labels.namespace }}/{{ $labels.name }} cannot be done.",
            description: "The condition Errored of the object says why, and its status lists the nodes.",
            causes: &[
                "a field contradicts another, or names what is not there",
                "another DeviceConfig claims the same nodes",
                "a permission of the controller's account was taken away",
            ],
            first: "kubectl describe deviceconfigs -A",
        },
        Alert {
            name: "DeviceConfigNotReady",
            expr: "tholepin_deviceconfig_ready == 0".to_owned(),
            lasting: "1h",
            summary: "DeviceConfig {{ $labels.namespace }}/{{ $labels.name }} has not been ready for an hour.",
            description: "Nodes that should have the driver do not have it, or an upgrade waits for pods that use the devices. The status says which.",
            causes: &[
                "pods use the devices of a node that an upgrade waits for",
                "the driver does not load: the log of KMM's worker pod has the kernel's answer",
                "no mapping fits the kernel of a node",
            ],
            first: "kubectl get deviceconfigs -A -o wide",
        },
    ]
}

#[cfg(test)]
mod tests;
