//! Every kind of object that any version of ours makes, so that what an earlier one made is found again.
//!
//! In: nothing. Out: kinds in the order in which they are made. Never: names; objects are found by their labels.

use objects::{Object, ObjectKind};

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
    ["admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"],
    [
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ],
    [
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ],
    ["admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"],
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
    ALL.into_iter().map(|[group, version, kind, plural]| ObjectKind::new(group, version, kind, plural))
}

/// The kinds an object can be that get a treatment of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Namespace,
    Definition,
    DaemonSet,
    Deployment,
    Other,
}

impl Role {
    /// Of an object.
    pub(super) fn of(object: &Object) -> Self {
        Self::of_kind(object.kind())
    }

    /// Of a kind.
    pub(super) fn of_kind(kind: &ObjectKind) -> Self {
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("", "Namespace") => Self::Namespace,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definition,
            ("apps", "DaemonSet") => Self::DaemonSet,
            ("apps", "Deployment") => Self::Deployment,
            _ => Self::Other,
        }
    }

    /// Whether it has pods.
    pub(super) fn is_workload(self) -> bool {
        matches!(self, Self::DaemonSet | Self::Deployment)
    }

    /// Whether others' are used as they are, and ours are never deleted to be made anew: what is in them would be lost.
    pub(super) fn is_ground(self) -> bool {
        matches!(self, Self::Namespace | Self::Definition)
    }
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
            assert_eq!(Role::of_kind(kind).is_ground(), place < 2, "{kind:?}");
            assert_eq!(kind.plural, kind.plural.to_lowercase());
        }
    }
}
