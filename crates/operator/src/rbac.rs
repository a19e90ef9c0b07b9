//! The rights of the operator's service account.
//!
//! In: a platform. Out: the rules of a ClusterRole, and of Roles in its own namespace and in OpenShift's. Never: a right
//! that is not used.
//!
//! The API server lets only holders of a right grant it. So the rules of the operands' roles are included, from the
//! functions that make those roles ([`operand_rules`]); they are most of it.
//!
//! Names limit what they can: also `create`, because objects are applied, and such a request has the name; and `list` and
//! `watch` where the operator selects by name.

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

use crate::numaresourcesscheduler::access as scheduling;

const RBAC: &str = "rbac.authorization.k8s.io";
const CONFIG: &str = "config.openshift.io";
const MACHINE: &str = "machineconfiguration.openshift.io";
const LEASES: &str = "coordination.k8s.io";

/// HyperShift: the namespace of the ConfigMaps with the NodePools' KubeletConfigs.
pub const CONFIG_MANAGED: &str = "openshift-config-managed";

/// The verbs for kinds that are watched and changed whatever their names.
const WHOLE: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// The verbs for objects by their names.
const NAMED: [&str; 4] = ["get", "create", "patch", "delete"];
/// The verbs for all objects of a kind.
const SEEN: [&str; 2] = ["list", "watch"];

/// The rules on a platform.
#[must_use]
pub fn rules(platform: Platform) -> Rules {
    let operands = operand_rules();
    let mut cluster =
        [requests(), definition(), access(), nodes(platform), reports(), operands.cluster].concat();
    cluster.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
    // Detects the platform. Without this right the API server answers 403, also where the kind does not exist.
    cluster.push(rule(CONFIG, &["clusterversions"], &["list"]));
    let mut config_managed = Vec::new();
    if platform.is_openshift() {
        cluster.extend(openshift());
    }
    match platform {
        Platform::Kubernetes => {}
        Platform::OpenShift => cluster.extend(pools()),
        Platform::HyperShift => config_managed.push(rule("", &["configmaps"], &SEEN)),
    }
    let namespaced = [operand_objects(), own_lease(), operands.namespaced].concat();
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

/// Users' objects and their status.
fn requests() -> Vec<PolicyRule> {
    let kinds = [operator::PLURAL, nrs::PLURAL];
    let statuses = kinds.map(|kind| format!("{kind}/status"));
    let finalizers = |kind: &str, name: &str| {
        // OpenShift demands it of objects that block the deletion of their owner.
        rule_for(numaresources::GROUP, &[&format!("{kind}/finalizers")], name, &["update"])
    };
    vec![
        rule(numaresources::GROUP, &kinds, &SEEN),
        rule(numaresources::GROUP, &statuses.each_ref().map(String::as_str), &["patch"]),
        finalizers(operator::PLURAL, OPERATOR),
        finalizers(nrs::PLURAL, SCHEDULER),
    ]
}

/// The NodeResourceTopology definition. Other programs use it too, so it is never deleted.
fn definition() -> Vec<PolicyRule> {
    const GROUP: &str = "apiextensions.k8s.io";
    let name = format!("{}.{}", nrt::PLURAL, nrt::GROUP);
    let verbs = ["get", "list", "watch", "create", "patch"];
    vec![rule_for(GROUP, &["customresourcedefinitions"], &name, &verbs)]
}

/// The operands' ClusterRoles and their bindings.
fn access() -> Vec<PolicyRule> {
    let kinds = ["clusterroles", "clusterrolebindings"];
    let mut rules = vec![rule(RBAC, &kinds, &SEEN)];
    rules.extend([EXPORTER, CLUSTER_SCHEDULER].map(|name| rule_for(RBAC, &kinds, name, &NAMED)));
    // The name before 4.18.
    rules.push(rule_for(RBAC, &["clusterrolebindings"], SCHEDULING, &["get", "delete"]));
    rules
}

/// Nodes, for pools and replicas; on Kubernetes also the configuration of their kubelets.
fn nodes(platform: Platform) -> Vec<PolicyRule> {
    let mut rules = vec![rule("", &["nodes"], &SEEN)];
    if platform == Platform::Kubernetes {
        rules.push(exporter::rbac::configz());
    }
    rules
}

/// The exporters' objects: they get an owner, and are deleted with their node. Setting an owner needs the right to delete.
fn reports() -> Vec<PolicyRule> {
    vec![rule(nrt::GROUP, &[nrt::PLURAL], &["list", "patch", "delete"])]
}

/// OpenShift and HyperShift: the cluster's version, its TLS profile, the exporters' SecurityContextConstraints.
fn openshift() -> Vec<PolicyRule> {
    const SECURITY: &str = "security.openshift.io";
    let constraints = ["securitycontextconstraints"];
    let mut rules = controller::openshift_rules();
    rules.push(rule(SECURITY, &constraints, &SEEN));
    rules.extend(CONSTRAINTS.map(|name| rule_for(SECURITY, &constraints, name, &NAMED)));
    rules
}

/// OpenShift: pools, KubeletConfigs, and the MachineConfigs with SELinux policies, named after their pools.
fn pools() -> Vec<PolicyRule> {
    vec![
        rule(MACHINE, &["machineconfigpools", "kubeletconfigs"], &SEEN),
        rule(MACHINE, &["machineconfigs"], &WHOLE),
    ]
}

/// The operands in the operator's namespace. DaemonSets and ConfigMaps are named after pools.
fn operand_objects() -> Vec<PolicyRule> {
    let named = |group: &str, kinds: &[&str], names: &[&str]| {
        let of = |name: &&str| rule_for(group, kinds, name, &NAMED);
        let mut rules: Vec<PolicyRule> = names.iter().map(of).collect();
        rules.push(rule(group, kinds, &SEEN));
        rules
    };
    let mut rules = vec![
        rule("", &["configmaps"], &WHOLE),
        rule("apps", &["daemonsets"], &WHOLE),
        // The operator's own pod, for its image.
        rule("", &["pods"], &["get"]),
    ];
    rules.extend(named("", &["serviceaccounts"], &[EXPORTER, SCHEDULING]));
    rules.extend(named("", &["services"], &[EXPORTER_SERVICE]));
    rules.extend(named("apps", &["deployments"], &[SCHEDULING]));
    rules.extend(named(RBAC, &["roles", "rolebindings"], &[EXPORTER, SCHEDULER_ROLE]));
    rules.extend(named("networking.k8s.io", &["networkpolicies"], &POLICIES));
    rules
}

fn own_lease() -> Vec<PolicyRule> {
    vec![
        rule(LEASES, &["leases"], &["create"]),
        rule_for(LEASES, &["leases"], OPERATOR_LEASE, &["get", "update"]),
    ]
}

/// The rights of the operands, whichever exporter and scheduler they are.
fn operand_rules() -> Rules {
    let options = Options::default();
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Leave, conditions: true, configz: false };
    let exporter = exporter::rbac::rules(needs, "");
    let cluster = [
        exporter.cluster,
        rte::object_role(&options).rules.unwrap_or_default(),
        scheduling::cluster(true),
        scheduling::cluster(false),
    ];
    let namespaced =
        [exporter.namespaced, rte::pod_role(&options).rules.unwrap_or_default(), scheduling::lease()];
    Rules { cluster: cluster.concat(), namespaced: namespaced.concat(), config_managed: Vec::new() }
}

const EXPORTER: &str = "rte";
/// The Service with the metrics of the exporters.
pub const EXPORTER_SERVICE: &str = "numaresources-rte-metrics-service";
const CONSTRAINTS: [&str; 2] = ["resource-topology-exporter", "resource-topology-exporter-v2"];
const SCHEDULING: &str = "secondary-scheduler";
const CLUSTER_SCHEDULER: &str = "topology-aware-scheduler";
const SCHEDULER_ROLE: &str = "topology-aware-scheduler-leader-elect";
const POLICIES: [&str; 5] = [
    "rte-default-deny-all",
    "rte-egress-to-api-server",
    "ingress-to-rte-metrics",
    "scheduler-default-deny-all",
    "scheduler-egress-to-api-server",
];

#[cfg(test)]
mod tests;
