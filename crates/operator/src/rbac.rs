//! The rights of the operator's service account.
//!
//! In: a platform. Out: the rules of a ClusterRole, and of Roles in its own namespace and in OpenShift's. Never: a
//! right that is not used.
//!
//! The API server lets only holders of a right grant it. So the rules of the operands' roles are included, from the
//! functions that make those roles (`operand_rules`); they are most of it.
//!
//! Names limit what they can: also `create`, because objects are applied, and such a request has the name; and `list`
//! and `watch` where the operator selects by name.

use api::nrt;
use api::numaresources::keys::{OPERATOR, OPERATOR_LEASE, SCHEDULER};
use api::numaresources::{self, operator, scheduler as nrs};
use api::rbac::{Rules, rule, rule_for, union};
use deployer::manifests::{controller, rte};
use deployer::options::Options;
use deployer::platform::Platform;
use exporter::rbac::Needs;
use exporter::settings::{Mode, OwnerKind};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::numaresourcesoperator::nfd;
use crate::numaresourcesscheduler::{cluster_rules, lease_rules};

const RBAC: &str = "rbac.authorization.k8s.io";
pub(crate) const MACHINE: &str = "machineconfiguration.openshift.io";
const LEASES: &str = "coordination.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// HyperShift: the namespace of the ConfigMaps with the NodePools' KubeletConfigs.
pub const CONFIG_MANAGED: &str = "openshift-config-managed";

/// The verbs for kinds that are watched and changed whatever their names.
const WHOLE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// The verbs for objects by their names.
const NAMED: &[&str] = &["get", "create", "patch", "delete"];
/// The verbs for all objects of a kind.
const SEEN: &[&str] = &["list", "watch"];

/// A rule for each name: group, resources, names (none: all objects), verbs.
type Row = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// The cluster's rules on every platform but those of the operands.
const CLUSTER: &[Row] = &[
    // Users' objects and their status.
    (numaresources::GROUP, &[operator::PLURAL, nrs::PLURAL], &[], SEEN),
    (
        numaresources::GROUP,
        &["numaresourcesoperators/status", "numaresourcesschedulers/status"],
        &[],
        &["patch"],
    ),
    // OpenShift demands it of objects that block the deletion of their owner.
    (numaresources::GROUP, &["numaresourcesoperators/finalizers"], &[OPERATOR], &["update"]),
    (numaresources::GROUP, &["numaresourcesschedulers/finalizers"], &[SCHEDULER], &["update"]),
    // Other programs use the definition of NodeResourceTopology too, so it is never deleted.
    (
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["noderesourcetopologies.topology.node.k8s.io"],
        &["get", "list", "watch", "create", "patch"],
    ),
    // The operands' ClusterRoles and their bindings, and the name of a binding before 4.18.
    (RBAC, ACCESS, &[], SEEN),
    (RBAC, ACCESS, &[EXPORTER, CLUSTER_SCHEDULER], NAMED),
    (RBAC, &["clusterrolebindings"], &[SCHEDULING], &["get", "delete"]),
    // The policy that ties exporters to their nodes.
    (ADMISSION, ADMISSION_KINDS, &[], SEEN),
    (ADMISSION, ADMISSION_KINDS, &[OWN_NODE], NAMED),
    // What another operator made for the same users' objects in another namespace.
    ("apps", &["daemonsets", "deployments"], &[], &["list"]),
    // Nodes, for pools and replicas.
    ("", &["nodes"], &[], SEEN),
];

/// The exporters' objects: they get an owner, and are deleted with their node. Setting an owner needs the right to
/// delete.
const REPORTS: Row = (nrt::GROUP, &[nrt::PLURAL], &[], &["list", "patch", "delete"]);

/// The cluster's rules after those of the operands. The platform is detected by ClusterVersions: without this right the
/// API server answers 403, also where the kind does not exist.
const PROCESS: &[Row] = &[
    ("events.k8s.io", &["events"], &[], &["create", "patch"]),
    ("config.openshift.io", &["clusterversions"], &[], &["list"]),
];

/// OpenShift and HyperShift: the exporters' SecurityContextConstraints.
const CONSTRAINTS: &[Row] = &[
    ("security.openshift.io", &["securitycontextconstraints"], &[], SEEN),
    (
        "security.openshift.io",
        &["securitycontextconstraints"],
        &["resource-topology-exporter", "resource-topology-exporter-v2"],
        NAMED,
    ),
];

/// OpenShift: pools, KubeletConfigs, and the MachineConfigs with SELinux policies, named after their pools; a policy of
/// admission leaves of all MachineConfigs those ([`crate::manifests::machine_configs`]).
const POOLS: &[Row] = &[
    (MACHINE, &["machineconfigpools", "kubeletconfigs"], &[], SEEN),
    (MACHINE, &["machineconfigs"], &[], WHOLE),
];

/// The operands in the operator's namespace, where DaemonSets and ConfigMaps are named after pools; and the lease.
const NAMESPACED: &[Row] = &[
    ("", &["configmaps"], &[], WHOLE),
    ("apps", &["daemonsets"], &[], WHOLE),
    // The operator's own pod, for its image.
    ("", &["pods"], &[], &["get"]),
    ("", &["serviceaccounts"], &[EXPORTER, SCHEDULING], NAMED),
    ("", &["serviceaccounts"], &[], SEEN),
    ("", &["services"], &[EXPORTER_SERVICE], NAMED),
    ("", &["services"], &[], SEEN),
    ("apps", &["deployments"], &[SCHEDULING], NAMED),
    ("apps", &["deployments"], &[], SEEN),
    (RBAC, &["roles", "rolebindings"], &[EXPORTER, SCHEDULER_ROLE], NAMED),
    (RBAC, &["roles", "rolebindings"], &[], SEEN),
    ("networking.k8s.io", &["networkpolicies"], POLICIES, NAMED),
    ("networking.k8s.io", &["networkpolicies"], &[], SEEN),
    (LEASES, &["leases"], &[], &["create"]),
    (LEASES, &["leases"], &[OPERATOR_LEASE], &["get", "update"]),
];

fn rows(rows: &[Row]) -> Vec<PolicyRule> {
    let of = |(group, resources, names, verbs): &Row| match names {
        [] => vec![rule(group, resources, verbs)],
        names => names.iter().map(|name| rule_for(group, resources, name, verbs)).collect(),
    };
    rows.iter().flat_map(of).collect()
}

/// The rules on a platform.
#[must_use]
pub fn rules(platform: Platform) -> Rules {
    let operands = operand_rules();
    let mut cluster = rows(CLUSTER);
    if platform == Platform::Kubernetes {
        cluster.push(exporter::rbac::configz());
    }
    cluster.extend([rows(&[REPORTS]), operands.cluster, rows(PROCESS)].concat());
    let mut config_managed = Vec::new();
    if platform.is_openshift() {
        cluster.extend([controller::openshift_rules(), rows(CONSTRAINTS)].concat());
    }
    match platform {
        Platform::Kubernetes => {}
        Platform::OpenShift => cluster.extend(rows(POOLS)),
        Platform::HyperShift => config_managed.push(rule("", &["configmaps"], SEEN)),
    }
    let namespaced = [rows(NAMESPACED), operands.namespaced].concat();
    Rules { cluster: union(cluster), namespaced: union(namespaced), config_managed: union(config_managed) }
}

/// The rules for all platforms, for OLM. OLM makes no Role in another namespace, so its rules are in the ClusterRole.
#[must_use]
pub fn everywhere() -> Rules {
    let mut all = Rules::default();
    for Rules { cluster, namespaced, config_managed } in Platform::ALL.map(rules) {
        all.cluster.extend(cluster);
        all.cluster.extend(config_managed);
        all.namespaced.extend(namespaced);
    }
    Rules { cluster: union(all.cluster), namespaced: union(all.namespaced), config_managed: Vec::new() }
}

/// The rights of a scheduler that is not the operator's own. The operator can grant them only where its account is
/// bound to a role with them.
#[must_use]
pub fn other_schedulers() -> Vec<PolicyRule> {
    union(cluster_rules(false))
}

/// The rights of the operands, whichever exporter they are, with the operator's own scheduler.
fn operand_rules() -> Rules {
    let options = Options::default();
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Leave, conditions: true, configz: false };
    let exporter = exporter::rbac::rules(needs, "");
    let nfd = nfd::rules(false, false, &options);
    let of_rte = [rte::object_role(&options).rules, rte::pod_role(&options).rules];
    let [of_objects, of_pods] = of_rte.map(Option::unwrap_or_default);
    let cluster = [exporter.cluster, of_objects, nfd.cluster, cluster_rules(true)];
    let namespaced = [exporter.namespaced, of_pods, nfd.namespaced, lease_rules()];
    Rules { cluster: cluster.concat(), namespaced: namespaced.concat(), config_managed: Vec::new() }
}

const ACCESS: &[&str] = &["clusterroles", "clusterrolebindings"];
const ADMISSION_KINDS: &[&str] = &["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
const EXPORTER: &str = "rte";
/// The admission policy that ties exporters to their nodes, and its binding.
pub(crate) const OWN_NODE: &str = "numaresources-exporter-own-node";
/// The Service with the metrics of the exporters.
pub const EXPORTER_SERVICE: &str = "numaresources-rte-metrics-service";
/// The scheduler's service account, and the ClusterRoleBinding that former operators made for it.
pub(crate) const SCHEDULING: &str = "secondary-scheduler";
/// The scheduler's ClusterRole.
pub(crate) const CLUSTER_SCHEDULER: &str = "topology-aware-scheduler";
/// The scheduler's Role.
pub(crate) const SCHEDULER_ROLE: &str = "topology-aware-scheduler-leader-elect";
const POLICIES: &[&str] = &[
    "rte-default-deny-all",
    "rte-egress-to-api-server",
    "ingress-to-rte-metrics",
    "scheduler-default-deny-all",
    "scheduler-egress-to-api-server",
];

#[cfg(test)]
mod tests;
