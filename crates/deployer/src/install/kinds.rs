//! Every kind of object that any version of ours makes, so that what an earlier one made is found again.
//!
//! In: nothing. Out: kinds in the order in which they are made. Never: names; objects are found by their labels.

use objects::ObjectKind;

const ADMISSION: &str = "admissionregistration.k8s.io";

/// Group, version, kind, plural; in the order in which they are made. What is no longer made stays in this list.
const ALL: [[&str; 4]; 27] = [
    ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"],
    ["", "v1", "Namespace", "namespaces"],
    ["", "v1", "ResourceQuota", "resourcequotas"],
    ["scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"],
    ["security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints"],
    ["machineconfiguration.openshift.io", "v1", "MachineConfig", "machineconfigs"],
    ["", "v1", "ServiceAccount", "serviceaccounts"],
    ["rbac.authorization.k8s.io", "v1", "Role", "roles"],
    ["rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"],
    ["rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"],
    ["rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"],
    ["", "v1", "ConfigMap", "configmaps"],
    ["", "v1", "Secret", "secrets"],
    ["coordination.k8s.io", "v1", "Lease", "leases"],
    ["networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"],
    [ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"],
    [ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"],
    [ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"],
    [ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"],
    ["", "v1", "Service", "services"],
    ["policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"],
    ["apps", "v1", "DaemonSet", "daemonsets"],
    ["apps", "v1", "Deployment", "deployments"],
    ["monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"],
    ["monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"],
    ["monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"],
    ["apiregistration.k8s.io", "v1", "APIService", "apiservices"],
];

/// All of them, in the order in which they are made.
pub(super) fn all() -> impl Iterator<Item = ObjectKind> {
    ALL.into_iter().map(ObjectKind::from)
}

/// Group and kind of namespaces.
pub(super) const NAMESPACE: (&str, &str) = ("", "Namespace");
/// Group and kind of definitions.
pub(super) const DEFINITION: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

/// Whether objects of the kind hold other objects. Those of others are used as they are; ours are never recreated.
pub(super) fn is_ground(kind: &ObjectKind) -> bool {
    [NAMESPACE, DEFINITION].contains(&kind.group_kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::parts;
    use crate::options::{Options, Scheduler, Updater};
    use crate::part::Component;
    use crate::platform::Platform;

    #[test]
    fn whatever_is_installed_is_found_again() {
        let known: Vec<ObjectKind> = all().collect();
        for platform in Platform::ALL {
            for updater in [Updater::Tholepin, Updater::Rte, Updater::Nfd] {
                for scheduler in [Scheduler::Tholepin, Scheduler::Plugin] {
                    let version = platform.is_openshift().then(|| "4.20.1".parse().unwrap());
                    let mut options = Options { platform, version, ..Options::default() };
                    options.updater.kind = updater;
                    options.updater.config = Some("a: b".to_owned());
                    options.scheduler.kind = scheduler;
                    options.scheduler.replicas = 2;
                    for part in parts(&options, &Component::ALL).unwrap() {
                        for object in part.objects() {
                            assert!(known.contains(object.kind()), "{object}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn each_is_there_once_and_definitions_and_namespaces_come_first() {
        let kinds: Vec<ObjectKind> = all().collect();
        for (place, kind) in kinds.iter().enumerate() {
            assert!(!kinds[..place].contains(kind), "{kind:?} is there twice");
            assert_eq!(is_ground(kind), place < 2, "{kind:?}");
            assert_eq!(kind.plural, kind.plural.to_lowercase());
        }
    }
}
