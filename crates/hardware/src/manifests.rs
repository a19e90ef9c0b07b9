//! Manifests of the controller of DeviceConfigs, as functions of the options.
//!
//! In: the operator's [`Options`], with another namespace. Out: typed objects, in the order of installation. Never:
//! KMM, which has manifests of its own; a right that [`super::rbac`] does not list; other bytes for the same options.

use api::hardware::{account as account_policy, policy};
use deployer::manifests::access::{ServiceAccountRef, cluster_role, role};
use deployer::manifests::controller::{self, Options, Program, monitoring, namespace, network};
use deployer::manifests::meta::PodSecurityLevel;
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
    if options.monitoring {
        objects.extend(monitoring::objects(options, &CONTROLLER, "tholepin-hardware.rules", alerts()));
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

fn alerts() -> Vec<monitoring::Alert> {
    let service = CONTROLLER.service;
    vec![
        monitoring::alert(
            "HardwareControllerDown",
            format!("absent(up{{job=\"{service}\"}} == 1)"),
            "15m",
            "The controller of DeviceConfigs does not run.",
            "No metrics of it have been seen for 15 minutes. Drivers that are loaded stay loaded; new nodes get none, and no upgrade goes on.",
        ),
        monitoring::alert(
            "DeviceConfigFailed",
            "tholepin_deviceconfig_failed == 1".to_owned(),
            "15m",
            "DeviceConfig {{ $labels.namespace }}/{{ $labels.name }} cannot be done.",
            "The condition Errored of the object says why, and its status lists the nodes.",
        ),
        monitoring::alert(
            "DeviceConfigNotReady",
            "tholepin_deviceconfig_ready == 0".to_owned(),
            "1h",
            "DeviceConfig {{ $labels.namespace }}/{{ $labels.name }} has not been ready for an hour.",
            "Nodes that should have the driver do not have it, or an upgrade waits for pods that use the devices. The status says which.",
        ),
    ]
}

#[cfg(test)]
mod tests;
