//! The objects that every cluster of a flavour has, as JSON, with what installers read of them.

use serde_json::{Value, json};

use super::Instance;

/// Any moment will do; nothing here looks at it.
const SINCE: &str = "2026-01-05T08:00:00Z";

/// The namespace of what the platform tells its users.
pub const MANAGED: &str = "openshift-config-managed";

/// Label of nodes and ConfigMaps that belong to a HyperShift NodePool.
pub const NODE_POOL: &str = "hypershift.openshift.io/nodePool";

/// What says what the cluster is.
pub(super) fn config(control_plane: &str, version: &str) -> Vec<Instance> {
    let image = "quay.io/openshift-release-dev/ocp-release@sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let cluster_version = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterVersion",
        "metadata": { "name": "version" },
        "spec": { "clusterID": "6c3b9d1e-0000-4000-8000-000000000001", "channel": "stable-4.18" },
        "status": {
            "availableUpdates": null,
            "conditions": [condition("Available", "True"), condition("Progressing", "False")],
            "desired": { "version": version, "image": image },
            "history": [{
                "state": "Completed",
                "version": version,
                "image": image,
                "startedTime": SINCE,
                "completionTime": SINCE,
                "verified": true,
            }],
            "observedGeneration": 1,
            "versionHash": "aaaaaaaaaaa=",
        },
    });
    let infrastructure = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Infrastructure",
        "metadata": { "name": "cluster" },
        "spec": { "platformSpec": { "type": "None" } },
        "status": {
            "infrastructureName": "testkit",
            "platform": "None",
            "platformStatus": { "type": "None" },
            "controlPlaneTopology": control_plane,
            "infrastructureTopology": "HighlyAvailable",
            "cpuPartitioning": "None",
        },
    });
    vec![
        Instance { plural: "clusterversions", body: cluster_version },
        Instance { plural: "infrastructures", body: infrastructure },
        operator("openshift-apiserver", &["operator", "openshift-apiserver"], version),
        operator("kube-apiserver", &["raw-internal", "operator", "kube-apiserver"], version),
        tls_profile(None),
        scheduler(false),
        managed(),
    ]
}

/// Two of the SecurityContextConstraints that are there from the start.
pub(super) fn security() -> Vec<Instance> {
    let constraint = |name: &str, privileged: bool| {
        let strategy = if privileged { "RunAsAny" } else { "MustRunAs" };
        let user = if privileged { "RunAsAny" } else { "MustRunAsRange" };
        let volumes =
            if privileged { json!(["*"]) } else { json!(["configMap", "emptyDir", "projected", "secret"]) };
        let groups = if privileged { json!(["system:cluster-admins"]) } else { json!([]) };
        let body = json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": { "name": name },
            "allowHostDirVolumePlugin": privileged,
            "allowHostIPC": privileged,
            "allowHostNetwork": privileged,
            "allowHostPID": privileged,
            "allowHostPorts": privileged,
            "allowPrivilegedContainer": privileged,
            "allowedCapabilities": null,
            "defaultAddCapabilities": null,
            "priority": null,
            "readOnlyRootFilesystem": false,
            "requiredDropCapabilities": if privileged { json!(null) } else { json!(["ALL"]) },
            "volumes": volumes,
            "groups": groups,
            "users": [],
            "fsGroup": { "type": strategy },
            "supplementalGroups": { "type": "RunAsAny" },
            "runAsUser": { "type": user },
            "seLinuxContext": { "type": strategy },
        });
        Instance { plural: "securitycontextconstraints", body }
    };
    vec![constraint("privileged", true), constraint("restricted-v2", false)]
}

/// The two pools of nodes, up to date.
pub(super) fn machine() -> Vec<Instance> {
    vec![pool("master"), pool("worker")]
}

/// A MachineConfigPool that is up to date and takes the MachineConfigs of its role; besides `master` and
/// `worker` they take the workers' too, as they should. Its nodes bear the label
/// `node-role.kubernetes.io/ROLE`.
#[must_use]
pub fn pool(role: &str) -> Instance {
    let configuration = json!({ "name": format!("rendered-{role}-0000000000000000000000000000000f") });
    let key = "machineconfiguration.openshift.io/role";
    let takes = match role {
        "master" | "worker" => json!({ "matchLabels": { key: role } }),
        _ => json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": ["worker", role] }] }),
    };
    let body = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {
            "name": role,
            "labels": { format!("pools.operator.machineconfiguration.openshift.io/{role}"): "" },
        },
        "spec": {
            "configuration": configuration,
            "machineConfigSelector": takes,
            "nodeSelector": { "matchLabels": { format!("node-role.kubernetes.io/{role}"): "" } },
            "paused": false,
        },
        "status": {
            "conditions": [
                condition("Updated", "True"),
                condition("Updating", "False"),
                condition("Degraded", "False"),
            ],
            "configuration": configuration,
            "degradedMachineCount": 0,
            "machineCount": 3,
            "observedGeneration": 1,
            "readyMachineCount": 3,
            "unavailableMachineCount": 0,
            "updatedMachineCount": 3,
        },
    });
    Instance { plural: "machineconfigpools", body }
}

/// An OpenShift KubeletConfig for the pools with this label (its value is empty), with this
/// KubeletConfiguration; `Null`: with none.
#[must_use]
pub fn kubelet_config(name: &str, pool_label: &str, configuration: &Value) -> Instance {
    let mut body = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "KubeletConfig",
        "metadata": { "name": name },
        "spec": { "machineConfigPoolSelector": { "matchLabels": { pool_label: "" } } },
    });
    match configuration {
        Value::Null => body["spec"]["autoSizingReserved"] = true.into(),
        configuration => body["spec"]["kubeletConfig"] = configuration.clone(),
    }
    Instance { plural: "kubeletconfigs", body }
}

/// A HyperShift ConfigMap with the KubeletConfig of a NodePool, as its operator mirrors it into the hosted cluster.
#[must_use]
pub fn node_pool_config(node_pool: &str, configuration: &Value) -> Instance {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "KubeletConfig",
        "metadata": { "name": format!("set-{node_pool}") },
        "spec": { "kubeletConfig": configuration },
    });
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("set-{node_pool}"),
            "namespace": MANAGED,
            "labels": {
                "hypershift.openshift.io/kubeletconfig-config": "true",
                NODE_POOL: node_pool,
            },
        },
        "data": { "config": config.to_string() },
    });
    Instance { plural: "configmaps", body }
}

/// The APIServer object, by which a cluster says what it wants of TLS servers: `Old`, `Intermediate` or
/// `Modern`, or nothing.
#[must_use]
pub fn tls_profile(profile: Option<&str>) -> Instance {
    let profile = profile.map_or(Value::Null, |name| json!({ "type": name, name.to_lowercase(): {} }));
    let body = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "APIServer",
        "metadata": { "name": "cluster" },
        "spec": { "audit": { "profile": "Default" }, "tlsSecurityProfile": profile },
    });
    Instance { plural: "apiservers", body }
}

/// The Scheduler object, by which a cluster says whether masters take all pods. The fake of the Machine Config Operator
/// does so.
#[must_use]
pub fn scheduler(masters_schedulable: bool) -> Instance {
    let body = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Scheduler",
        "metadata": { "name": "cluster" },
        "spec": { "mastersSchedulable": masters_schedulable, "policy": { "name": "" } },
    });
    Instance { plural: "schedulers", body }
}

/// [`MANAGED`] itself.
fn managed() -> Instance {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": MANAGED } });
    Instance { plural: "namespaces", body }
}

/// A ClusterOperator and the versions of what it runs; the first is what installers read.
fn operator(name: &str, operands: &[&str], version: &str) -> Instance {
    let versions: Vec<Value> =
        operands.iter().map(|operand| json!({ "name": operand, "version": version })).collect();
    let body = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterOperator",
        "metadata": { "name": name },
        "spec": {},
        "status": {
            "conditions": [condition("Available", "True"), condition("Degraded", "False")],
            "versions": versions,
        },
    });
    Instance { plural: "clusteroperators", body }
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "lastTransitionTime": SINCE, "reason": "AsExpected", "message": "" })
}
