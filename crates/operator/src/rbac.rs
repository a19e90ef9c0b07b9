//! What the operator's service account must be allowed to do. Next to the code that needs it.
//!
//! In: a platform. Out: the rules of a ClusterRole, and of Roles in its own namespace and in OpenShift's. Never: more than is used.
//!
//! The API server lets nobody grant what he does not have himself. So whatever the operands' roles say is in here too, taken from
//! the functions those roles are made of (`granted`); that is most of it.
//!
//! Names limit what they can: also `create`, because what is made is applied, and a request to apply has the name in it; and `list` and
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

/// HyperShift: where the ConfigMaps with the NodePools' KubeletConfigs are.
pub const CONFIG_MANAGED: &str = "openshift-config-managed";

/// What is watched and changed whatever its name.
const WHOLE: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// What is done to objects by their names.
const NAMED: [&str; 4] = ["get", "create", "patch", "delete"];
/// What is done to all objects of a kind.
const SEEN: [&str; 2] = ["list", "watch"];

/// The rules on a platform.
#[must_use]
pub fn rules(platform: Platform) -> Rules {
    let granted = granted();
    let mut cluster =
        [asked_for(), definition(), access(), nodes(platform), reports(), granted.cluster].concat();
    cluster.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
    // Which platform it is; where it is none of OpenShift's the answer is that there is no such thing, but only to those who may ask.
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
    let namespaced = [operands(), own_lease(), granted.namespaced].concat();
    Rules { cluster: union(cluster), namespaced: union(namespaced), config_managed: union(config_managed) }
}

/// The rules for wherever OLM may run it. OLM makes no Role in another namespace, so what belongs into one is in the ClusterRole.
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

/// What users ask for, and the answers.
fn asked_for() -> Vec<PolicyRule> {
    let kinds = [operator::PLURAL, nrs::PLURAL];
    let statuses = kinds.map(|kind| format!("{kind}/status"));
    let finalizers = |kind: &str, name: &str| {
        // Objects that block the deletion of their owner need it, where the cluster enforces that (OpenShift).
        rule_for(numaresources::GROUP, &[&format!("{kind}/finalizers")], name, &["update"])
    };
    vec![
        rule(numaresources::GROUP, &kinds, &SEEN),
        rule(numaresources::GROUP, &statuses.each_ref().map(String::as_str), &["patch"]),
        finalizers(operator::PLURAL, OPERATOR),
        finalizers(nrs::PLURAL, SCHEDULER),
    ]
}

/// The NodeResourceTopology definition. It is shared with others, so it is never deleted; it is watched by its name.
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
    // What operators before 4.18 called it.
    rules.push(rule_for(RBAC, &["clusterrolebindings"], SCHEDULING, &["get", "delete"]));
    rules
}

/// Nodes: which pools they belong to, how many schedulers they have room for; and what their kubelets say, where nothing else does.
fn nodes(platform: Platform) -> Vec<PolicyRule> {
    let mut rules = vec![rule("", &["nodes"], &SEEN)];
    if platform == Platform::Kubernetes {
        rules.push(exporter::rbac::configz());
    }
    rules
}

/// The exporters' objects: they get an owner, and go when their node has gone. Whoever sets an owner has to be able to delete.
fn reports() -> Vec<PolicyRule> {
    vec![rule(nrt::GROUP, &[nrt::PLURAL], &["list", "patch", "delete"])]
}

/// OpenShift's and HyperShift's own: what the cluster is, which TLS it wants, what the exporters' pods may be.
fn openshift() -> Vec<PolicyRule> {
    const SECURITY: &str = "security.openshift.io";
    let constraints = ["securitycontextconstraints"];
    let mut rules = controller::openshift_rules();
    rules.push(rule(SECURITY, &constraints, &SEEN));
    rules.extend(CONSTRAINTS.map(|name| rule_for(SECURITY, &constraints, name, &NAMED)));
    rules
}

/// OpenShift: pools, what their kubelets are told, and the MachineConfigs of those that want a SELinux policy, named after their pools.
fn pools() -> Vec<PolicyRule> {
    vec![
        rule(MACHINE, &["machineconfigpools", "kubeletconfigs"], &SEEN),
        rule(MACHINE, &["machineconfigs"], &WHOLE),
    ]
}

/// The operands in the operator's namespace. DaemonSets and ConfigMaps are named after pools.
fn operands() -> Vec<PolicyRule> {
    let named = |group: &str, kinds: &[&str], names: &[&str]| {
        let of = |name: &&str| rule_for(group, kinds, name, &NAMED);
        let mut rules: Vec<PolicyRule> = names.iter().map(of).collect();
        rules.push(rule(group, kinds, &SEEN));
        rules
    };
    let mut rules = vec![
        rule("", &["configmaps"], &WHOLE),
        rule("apps", &["daemonsets"], &WHOLE),
        // Its own, for the image it runs.
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

/// What the operands may do, whichever exporter and scheduler they are.
fn granted() -> Rules {
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
