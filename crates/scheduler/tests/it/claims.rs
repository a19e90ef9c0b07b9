//! Pods with claims for devices, before a real API server: the claim gets its device and its user first, and the
//! binding follows. The test is the driver.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use crate::cluster::{Running, create, eventually, fake_node, node_of, refusal, report, zone};

async fn create_in<K: Clone + Debug + DeserializeOwned + Serialize>(api: Api<K>, object: Value) {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Devices of a node, each with its index.
async fn slice(client: &Client, node: &str, devices: usize) {
    let devices: Vec<Value> = (0..devices)
        .map(|at| json!({"name": format!("gpu-{at}"), "attributes": {"index": {"int": at}}}))
        .collect();
    let slice = json!({
        "metadata": {"name": format!("{node}-gpus")},
        "spec": {
            "driver": "gpu.example", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    });
    create_in::<ResourceSlice>(Api::all(client.clone()), slice).await;
}

async fn claim(client: &Client, name: &str) {
    let selector = json!({"cel": {"expression": "device.attributes['gpu.example'].index < 2"}});
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [selector]}});
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
    create_in::<ResourceClaim>(Api::default_namespaced(client.clone()), claim).await;
}

fn with_claim(name: &str, claim: &str) -> Pod {
    let mut pod = testkit::load::guaranteed_pod(name, "topo-aware-scheduler", []);
    let claims = json!([{"name": "gpu", "resourceClaimName": claim}]);
    pod.spec.as_mut().unwrap().resource_claims = Some(serde_json::from_value(claims).unwrap());
    pod
}

/// The device of a claim and its users, once it has one.
async fn device_of(client: &Client, claim: &str) -> Option<((String, String), Vec<String>)> {
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let claim = claims.get(claim).await.unwrap();
    let status = claim.status?;
    let allocation = status.allocation?;
    let protected = claim.metadata.finalizers.unwrap_or_default();
    assert!(protected.contains(&"resource.kubernetes.io/delete-protection".to_owned()), "{protected:?}");
    assert!(allocation.allocation_timestamp.is_some());
    let results = allocation.devices.unwrap().results.unwrap();
    assert_eq!(results.len(), 1, "{results:?}");
    let result = &results[0];
    let mut users: Vec<String> =
        status.reserved_for.unwrap_or_default().into_iter().map(|user| user.name).collect();
    users.sort_unstable();
    Some(((result.pool.clone(), result.device.clone()), users))
}

/// Two nodes with three devices, of which four fit the claims. Five pods come, and a sixth shares the claim of the
/// first.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_claims_get_one_device_and_pods_follow_their_claims() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    for name in ["a", "b"] {
        fake_node(&client, name).await;
        slice(&client, name, 3).await;
    }
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false"]);
    for at in 0..5 {
        create(&client, &with_claim(&format!("p{at}"), &format!("c{at}"))).await;
    }
    let selector = json!({"cel": {"expression": "device.driver == 'gpu.example'"}});
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}});
    create_in::<DeviceClass>(Api::all(client.clone()), class).await;
    for at in 0..5 {
        claim(&client, &format!("c{at}")).await;
    }
    let placed = async || {
        let mut placed = Vec::new();
        for at in 0..5 {
            placed.extend(node_of(&client, &format!("p{at}")).await.map(|node| (at, node)));
        }
        (placed.len() == 4).then_some(placed)
    };
    let placed = eventually("four pods have nodes", placed).await;
    let mut devices = BTreeSet::new();
    for (at, node) in &placed {
        let (device, users) = device_of(&client, &format!("c{at}")).await.unwrap();
        assert_eq!((&device.0, users), (node, vec![format!("p{at}")]));
        assert!(devices.insert(device.clone()), "{device:?} twice");
    }
    let left = (0..5).find(|at| placed.iter().all(|(placed, _)| placed != at)).unwrap();
    assert_eq!(device_of(&client, &format!("c{left}")).await, None);

    let (first, node) = &placed[0];
    create(&client, &with_claim("shares", &format!("c{first}"))).await;
    assert_eq!(&eventually("shares", async || node_of(&client, "shares").await).await, node);
    let (_, users) = device_of(&client, &format!("c{first}")).await.unwrap();
    assert_eq!(users, [format!("p{first}"), "shares".to_owned()]);

    // The last one waits for more devices.
    slice(&client, "late", 1).await;
    fake_node(&client, "late").await;
    let last = format!("p{left}");
    assert_eq!(eventually("the last pod", async || node_of(&client, &last).await).await, "late");
    scheduler.stop().await;
}

/// A pod that asks for an extended resource which a class names gets a claim with devices, and its status names it.
/// What an earlier scheduler has left of such a claim is deleted first.
#[tokio::test(flavor = "multi_thread")]
async fn devices_serve_extended_resources_that_classes_name() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    fake_node(&client, "a").await;
    // A young node is given time for its first report.
    report(&client, "a", json!([zone("node-0", "8")])).await;
    slice(&client, "a", 3).await;
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "vendor.example/gpu"}});
    create_in::<DeviceClass>(Api::all(client.clone()), class).await;
    let asking =
        |name| testkit::load::guaranteed_pod(name, "topo-aware-scheduler", [("vendor.example/gpu", "2")]);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    create(&client, &asking("first")).await;
    let uid = pods.get("first").await.unwrap().metadata.uid.unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid, "controller": true});
    let request = json!({"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu", "count": 1}});
    let left = json!({
        "metadata": {
            "name": "left", "ownerReferences": [owner], "finalizers": ["resource.kubernetes.io/delete-protection"],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        },
        "spec": {"devices": {"requests": [request]}},
    });
    create_in::<ResourceClaim>(claims.clone(), left).await;
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false"]);
    let node = eventually("the first pod has a node", async || node_of(&client, "first").await).await;
    assert_eq!(node, "a");

    let status = pods.get("first").await.unwrap().status.unwrap().extended_resource_claim_status.unwrap();
    let [mapping] = &status.request_mappings[..] else { panic!("{status:?}") };
    let found = (&*mapping.container_name, &*mapping.resource_name, &*mapping.request_name);
    assert_eq!(found, ("main", "vendor.example/gpu", "container-0-request-0"));
    let all = claims.list(&ListParams::default()).await.unwrap().items;
    let [made] = &all[..] else { panic!("{all:?}") };
    assert_eq!(made.metadata.name.as_ref(), Some(&status.resource_claim_name));
    assert!(status.resource_claim_name.starts_with("first-extended-resources-"), "{status:?}");
    assert_eq!(made.metadata.owner_references.as_ref().unwrap()[0].uid, uid);
    let of_claim = made.status.clone().unwrap();
    assert_eq!(of_claim.reserved_for.unwrap()[0].uid, uid);
    let results = of_claim.allocation.unwrap().devices.unwrap().results.unwrap();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results.iter().all(|result| result.request == mapping.request_name));

    // One device is left, and the second pod needs two. The first pod and its claim go.
    create(&client, &asking("second")).await;
    let refused =
        async || refusal(&client, "second").await.filter(|text| text.contains("cannot allocate all claims"));
    eventually("the second pod is refused", refused).await;
    let free = json!({"metadata": {"finalizers": null}});
    claims.patch(&status.resource_claim_name, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    claims.delete(&status.resource_claim_name, &DeleteParams::default()).await.unwrap();
    pods.delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    eventually("the second pod has a node", async || node_of(&client, "second").await).await;
    scheduler.stop().await;
}
