use std::time::Duration;

use fakes::openshift::mco::{Mco, PoolBehaviour};
use fakes::openshift::{
    Flavour, Instance, install, kubelet_config, make, node_pool_config, pool, scheduler, tls_profile,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::rig;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn openshift_and_hypershift_are_what_their_objects_say_and_refuse_what_is_wrong() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    // A hosted cluster has less; so it comes first, and the rest is added.
    for (flavour, topology) in [(Flavour::HyperShift, "External"), (Flavour::OpenShift, "HighlyAvailable")] {
        install(&client, flavour, "4.18.7").await.unwrap();
        let infrastructure =
            get(&client, "config.openshift.io", "Infrastructure", "infrastructures", "cluster").await;
        assert_eq!(infrastructure["status"]["controlPlaneTopology"], topology);
        let operator =
            get(&client, "config.openshift.io", "ClusterOperator", "clusteroperators", "openshift-apiserver")
                .await;
        assert_eq!(operator["status"]["versions"][0]["version"], "4.18.7");
    }
    for (body, plural, wanted) in wrong() {
        let error = apply(&client, plural, &body).await.unwrap_err();
        assert!(error.contains(wanted), "{body}: {error}");
    }
    apply(&client, "machineconfigs", &machine_config(|_| ())).await.unwrap();
}

#[tokio::test]
async fn machine_configs_are_rolled_out_as_told() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    install(&client, Flavour::OpenShift, "4.18.7").await.unwrap();
    make(&client, &pool("infra")).await.unwrap();
    let mco = Mco::start(&client);
    mco.settled(PATIENCE).await.unwrap();
    let pools = api(&client, "machineconfiguration.openshift.io", "MachineConfigPool", "machineconfigpools");
    let is = async |name: &str, kind: &str| {
        let pool = pools.get(name).await.unwrap();
        pool.data["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    let sources = async |name: &str| {
        let pool = pools.get(name).await.unwrap();
        pool.data["status"]["configuration"]["source"].as_array().unwrap().len()
    };
    for (name, behaviour) in [("infra", PoolBehaviour::Hold), ("worker", PoolBehaviour::RollOut)] {
        mco.set_behaviour(name, behaviour);
    }
    apply(&client, "machineconfigs", &machine_config(|_| ())).await.unwrap();
    mco.settled(PATIENCE).await.unwrap();
    assert_eq!((sources("master").await, sources("worker").await, sources("infra").await), (0, 1, 0));
    assert!(is("infra", "Updating").await && !is("infra", "Updated").await);
    mco.set_behaviour("infra", PoolBehaviour::Degrade);
    mco.settled(PATIENCE).await.unwrap();
    assert!(is("infra", "Degraded").await && sources("infra").await == 0);
    mco.set_behaviour("infra", PoolBehaviour::RollOut);
    mco.settled(PATIENCE).await.unwrap();
    assert!(!is("infra", "Degraded").await && is("infra", "Updated").await && sources("infra").await == 1);
    assert_eq!(sources("worker").await, 1);
    kubelet_configs(&client, &mco).await;
    // Others of a cluster's objects, as its users make them.
    let configuration = json!({ "topologyManagerPolicy": "single-numa-node" });
    let key = "pools.operator.machineconfiguration.openshift.io/worker";
    for instance in [
        kubelet_config("numa", key, &configuration),
        kubelet_config("sizes", key, &Value::Null),
        node_pool_config("pool-a", &configuration),
        tls_profile(Some("Modern")),
        tls_profile(None),
        scheduler(true),
        subscription(),
    ] {
        make(&client, &instance).await.unwrap();
    }
}

/// An object of OLM.
fn subscription() -> Instance {
    let body = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "Subscription",
        "metadata": { "name": "numaresources-operator", "namespace": "default" },
        "spec": {
            "channel": "4.18",
            "config": { "env": [{ "name": "A", "value": "b" }] },
            "name": "numaresources-operator",
            "source": "redhat-operators",
            "sourceNamespace": "openshift-marketplace",
        },
    });
    Instance { plural: "subscriptions", body }
}

/// A node gets what its pool has, as far as it is valid.
async fn kubelet_configs(client: &Client, mco: &Mco) {
    let nodes = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "node-0", "labels": { "node-role.kubernetes.io/worker": "" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    make(client, &Instance { plural: "nodes", body: node }).await.unwrap();
    let key = "pools.operator.machineconfiguration.openshift.io/worker";
    let name = "machineconfiguration.openshift.io/currentConfig";
    let current = async || nodes.get("node-0").await.unwrap().annotations().get(name).cloned();
    let mut seen = vec![current().await];
    for (config, wanted) in [
        (json!({ "topologyManagerScope": "pod" }), "Success"),
        (json!({ "topologyManagerScope": "pod", "clusterDomain": "a" }), "Failure"),
        (json!({ "topologyManagerScope": "container" }), "Success"),
    ] {
        make(client, &kubelet_config("numa", key, &config)).await.unwrap();
        mco.settled(PATIENCE).await.unwrap();
        let group = "machineconfiguration.openshift.io";
        let status = get(client, group, "KubeletConfig", "kubeletconfigs", "numa").await["status"].clone();
        let last = status["conditions"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["type"], wanted, "{config}: {status}");
        seen.push(current().await);
        let pool = get(client, group, "MachineConfigPool", "machineconfigpools", "worker").await;
        assert_eq!(pool["status"]["updatedMachineCount"], 1, "{pool}");
        assert_eq!(pool["status"]["configuration"]["name"].as_str(), seen.last().unwrap().as_deref());
    }
    let (first, valid, invalid, other) = (&seen[0], &seen[1], &seen[2], &seen[3]);
    assert!(first.is_none() && valid.is_some() && valid == invalid && invalid != other, "{seen:?}");
}

/// Objects with one mistake each, and what the API server says of it.
fn wrong() -> Vec<(Value, &'static str, &'static str)> {
    let scc = |spoil: fn(&mut Value)| {
        let mut body = json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": { "name": "x" },
            "allowHostDirVolumePlugin": true,
            "allowHostIPC": false,
            "allowHostNetwork": false,
            "allowHostPID": false,
            "allowHostPorts": false,
            "allowPrivilegedContainer": false,
            "allowedCapabilities": null,
            "defaultAddCapabilities": null,
            "priority": null,
            "readOnlyRootFilesystem": false,
            "requiredDropCapabilities": null,
            "volumes": ["hostPath"],
        });
        spoil(&mut body);
        body
    };
    let sccs = "securitycontextconstraints";
    vec![
        (scc(|b| b["spec"] = json!({})), sccs, "spec"),
        (
            json!({
                "apiVersion": "config.openshift.io/v1", "kind": "Scheduler", "metadata": { "name": "cluster" },
                "spec": { "profile": "Fast" },
            }),
            "schedulers",
            "Unsupported value",
        ),
        (scc(|b| b["allowHostPorts"] = json!("no")), sccs, "allowHostPorts"),
        (scc(|b| b["volumes"] = json!(["hostpath"])), sccs, "Unsupported value"),
        (scc(|b| drop(b.as_object_mut().unwrap().remove("allowHostPID"))), sccs, "allowHostPID: Required"),
        (
            machine_config(|b| b["spec"]["config"]["systemd"]["units"][0]["enable"] = json!(true)),
            "machineconfigs",
            "enable",
        ),
        (
            machine_config(|b| b["spec"]["config"]["storage"]["files"][0]["path"] = json!("etc")),
            "machineconfigs",
            "path",
        ),
        (
            machine_config(|b| drop(b["spec"]["config"].as_object_mut().unwrap().remove("ignition"))),
            "machineconfigs",
            "ignition: Required",
        ),
    ]
}

fn machine_config(spoil: fn(&mut Value)) -> Value {
    let mut body = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": "50-x", "labels": { "machineconfiguration.openshift.io/role": "worker" } },
        "spec": { "config": {
            "ignition": { "version": "3.2.0" },
            "storage": { "files": [{ "path": "/etc/x", "mode": 420, "contents": { "source": "data:,x" } }] },
            "systemd": { "units": [{ "name": "x.service", "enabled": true, "contents": "[Unit]\n" }] },
        } },
    });
    spoil(&mut body);
    body
}

async fn apply(client: &Client, plural: &str, body: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (group, kind) = (text(&body["apiVersion"]), text(&body["kind"]));
    let api = api(client, group.strip_suffix("/v1").unwrap(), &kind, plural);
    let params =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("x") };
    let name = text(&body["metadata"]["name"]);
    let applied = api.patch(&name, &params, &Patch::Apply(body)).await;
    applied.map(|_| ()).map_err(|error| error.to_string())
}

async fn get(client: &Client, group: &str, kind: &str, plural: &str, name: &str) -> Value {
    api(client, group, kind, plural).get(name).await.unwrap().data
}

fn api(client: &Client, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}
