//! Pods with claims that wait for them, before a real API server: the volume or the claim is written first, and the
//! binding follows once the claim is bound. The test is the PersistentVolume controller.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use crate::cluster::{Running, create, eventually, fake_node, node_of, pod, report, zone};

const HOST: &str = "kubernetes.io/hostname";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

async fn create_in<K: Clone + Debug + DeserializeOwned + Serialize>(api: Api<K>, object: Value) {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn merge<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A cluster of nodes `a` and `b`, with classes of static and of provisioned volumes.
async fn cluster(rig: &testkit::env::Rig) -> (ControlPlane, Client) {
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    for name in ["a", "b"] {
        fake_node(&client, name).await;
        let labels = json!({"metadata": {"labels": {HOST: name}}});
        merge(&Api::<Node>::all(client.clone()), name, labels).await;
        report(&client, name, json!([zone("node-0", "8"), zone("node-1", "8")])).await;
    }
    for (name, provisioner) in [("local", "kubernetes.io/no-provisioner"), ("made", "driver.example")] {
        let class = json!({
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        });
        create_in::<StorageClass>(Api::all(client.clone()), class).await;
    }
    (control, client)
}

/// A volume on a node, which is available.
async fn volume(client: &Client, name: &str, class: &str, size: &str, node: &str) {
    let expression = json!({"key": HOST, "operator": "In", "values": [node]});
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    create_in(volumes.clone(), volume).await;
    let status = Patch::Merge(json!({"status": {"phase": "Available"}}));
    volumes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

async fn claim(client: &Client, name: &str, class: &str) {
    let claim = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "2Gi"}},
        },
    });
    create_in::<PersistentVolumeClaim>(Api::default_namespaced(client.clone()), claim).await;
}

fn with_claim(name: &str, claim: &str) -> Pod {
    let mut pod = pod(name, 2);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    pod.spec.as_mut().unwrap().volumes = Some(serde_json::from_value(volumes).unwrap());
    pod
}

/// Binds a claim to a volume, as the controller does.
async fn bind(client: &Client, claim: &str, volume: &str) {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume},
    });
    merge(&claims, claim, bound).await;
}

/// The messages of events of the reason `FailedScheduling` about a pod.
async fn failures(client: &Client, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let list = events.list(&ListParams::default()).await.unwrap();
    let about = list.items.into_iter().filter(|event| {
        event.reason.as_deref() == Some("FailedScheduling")
            && event.regarding.as_ref().is_some_and(|pod| pod.name.as_deref() == Some(name))
    });
    about.filter_map(|event| event.note).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_where_its_volume_is_once_the_claim_is_bound() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (control, client) = cluster(&rig).await;
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false"]);
    volume(&client, "small", "local", "1Gi", "a").await;
    volume(&client, "large", "local", "5Gi", "b").await;
    create(&client, &with_claim("p", "c")).await;
    let missing = async || failures(&client, "p").await.into_iter().find(|note| note.contains("not found"));
    let note = eventually("the claim is missed", missing).await;
    assert!(note.starts_with("0/2 nodes are available: persistentvolumeclaim \"c\" not found."), "{note}");

    claim(&client, "c", "local").await;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let owner = async || volumes.get("large").await.ok()?.spec?.claim_ref;
    let owner = eventually("the volume names the claim", owner).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let uid = claims.get("c").await.unwrap().metadata.uid;
    assert_eq!((owner.name.as_deref(), &owner.uid), (Some("c"), &uid));
    let marks = volumes.get("large").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(marks["pv.kubernetes.io/bound-by-controller"], "yes");
    // Others of the node do not wait for it.
    let mut other = pod("other", 2);
    other.spec.as_mut().unwrap().node_selector = Some([(HOST.to_owned(), "b".to_owned())].into());
    create(&client, &other).await;
    assert_eq!(eventually("other", async || node_of(&client, "other").await).await, "b");
    assert_eq!(node_of(&client, "p").await, None, "the claim is not bound yet");

    bind(&client, "c", "large").await;
    assert_eq!(eventually("p", async || node_of(&client, "p").await).await, "b");
    assert_eq!(volumes.get("small").await.unwrap().spec.unwrap().claim_ref, None);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_cannot_be_provisioned_is_tried_again() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (control, client) = cluster(&rig).await;
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false"]);
    claim(&client, "c", "made").await;
    create(&client, &with_claim("p", "c")).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let selected =
        async || claims.get("c").await.ok()?.metadata.annotations?.get(SELECTED).map(ToOwned::to_owned);
    eventually("a node is selected", selected).await;
    assert_eq!(node_of(&client, "p").await, None, "the claim is not bound yet");
    // What a provisioner does that has no room there.
    merge(&claims, "c", json!({"metadata": {"annotations": {SELECTED: null}}})).await;
    let told = async || {
        let wanted =
            "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"c\"";
        failures(&client, "p").await.into_iter().find(|note| note == wanted)
    };
    eventually("the failure is told", told).await;
    let node = eventually("a node is selected again", selected).await;
    volume(&client, "v", "made", "2Gi", &node).await;
    bind(&client, "c", "v").await;
    assert_eq!(eventually("p", async || node_of(&client, "p").await).await, node);
    scheduler.stop().await;
}
