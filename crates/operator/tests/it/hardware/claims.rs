//! Devices by resource claims (DRA): the stock scheduler gives them to pods, and to the controller such pods are users
//! like others.

use deployer::platform::Platform;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::process_group::Process;
use testkit::proxy::Fault;
use testkit::{env, net};

use super::super::rig::{control, tholepin, until};
use super::super::scenario::Scenario;
use super::case::{CLAIM, Case, DEVICE, count, is, problem, use_device};
use super::lab::{self, Lab, play};
use super::within_rights::{PLAYED, note_all};

/// Who gives the devices.
const DRIVER: &str = "acc.example.com";

/// A device plugin that gives devices by claims, and by nothing else.
fn with_driver() -> Value {
    json!({ "devicePlugin": { "image": "registry.example/acc-plugin:1", "driverNames": [DRIVER] } })
}

/// A DRA driver that KMM runs, instead of the device plugin.
fn by_dra() -> Value {
    let class = json!({
        "name": "acc.example.com",
        "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }],
    });
    let driver =
        json!({ "driverName": DRIVER, "image": "registry.example/acc-driver:1", "deviceClasses": [class] });
    json!({ "devicePlugin": null, "dra": driver })
}

/// A scheduler, and four devices on one node. The class and the slice have its name.
async fn offer(case: &Case<'_>, node: &str) -> Process {
    case.kmm.script(|script| script.devices.extend([DRIVER.to_owned()]));
    let class = json!({
        "metadata": { "name": node },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] },
    });
    Api::<DeviceClass>::all(case.client()).create(&PostParams::default(), &read(class)).await.unwrap();
    let devices = ["a", "b", "c", "d"].map(|name| json!({ "name": name }));
    let slice = json!({
        "metadata": { "name": node },
        "spec": {
            "driver": DRIVER, "nodeName": node, "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": devices,
        },
    });
    Api::<ResourceSlice>::all(case.client()).create(&PostParams::default(), &read(slice)).await.unwrap();
    let room =
        Patch::Merge(json!({ "status": { "allocatable": { "pods": "9" }, "capacity": { "pods": "9" } } }));
    let nodes: Api<Node> = Api::all(case.client());
    nodes.patch_status(node, &PatchParams::default(), &room).await.unwrap();
    case.lab.control.start_scheduler().await.unwrap()
}

/// The devices are no longer offered.
async fn withdraw(case: &Case<'_>, node: &str) {
    let params = DeleteParams::default();
    let _ = Api::<ResourceSlice>::all(case.client()).delete(node, &params).await.unwrap();
    let _ = Api::<DeviceClass>::all(case.client()).delete(node, &params).await.unwrap();
}

/// A pod that runs where the scheduler has given it a device by a claim of its own.
async fn hold(case: &Case<'_>, name: &str, node: &str) {
    let request = json!({ "name": "acc", "exactly": { "deviceClassName": node } });
    let claim = json!({ "metadata": { "name": name }, "spec": { "devices": { "requests": [request] } } });
    make::<ResourceClaim>(case, claim).await;
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "automountServiceAccountToken": false,
            "resourceClaims": [{ "name": "acc", "resourceClaimName": name }],
            "containers": [{ "name": "c", "image": "any", "resources": { "claims": [{ "name": "acc" }] } }],
        },
    });
    make::<Pod>(case, pod).await;
    let pods: Api<Pod> = Api::namespaced(case.client(), case.name);
    until("it is bound", async || {
        let pod = pods.get(name).await.unwrap();
        pod.spec.unwrap().node_name.as_deref() == Some(node)
    })
    .await;
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    pods.patch_status(name, &PatchParams::default(), &running).await.unwrap();
}

async fn make<K>(case: &Case<'_>, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: Serialize + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(case.client(), case.name);
    api.create(&PostParams::default(), &read(object)).await.unwrap();
}

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_pod_with_a_claimed_device_keeps_the_driver() {
    play("claims-kept", async |lab: &mut Lab| {
        let case = Case::begin(lab, "claims-kept", 3).await;
        let (of, used) = (case.of("acc"), case.node(1));
        let _scheduler = offer(&case, &used).await;
        case.ask("acc", &with_driver()).await;
        case.until_ready("acc", 3).await;
        // KMM offers them by a DRA driver of its own from now on.
        case.change("acc", &by_dra()).await;
        let is_served = async || {
            case.label(&used, &of.dra_ready()).await.is_some()
                && case.label(&used, &of.plugin_ready()).await.is_none()
        };
        until("a driver instead of the plugin", is_served).await;
        case.until_ready("acc", 3).await;
        let module = case.module("acc").await.unwrap();
        assert_eq!(module["spec"]["dra"]["deviceClasses"][0]["name"], DRIVER, "{module:#}");
        assert!(module["spec"]["devicePlugin"].is_null(), "{module:#}");
        let loaded = async || case.label(&used, &of.version_ready()).await;
        // The node keeps its version.
        hold(&case, "waited-for", &used).await;
        case.change("acc", &json!({ "driverVersion": "2.0" })).await;
        let one_waits = |config: &Value| count(config, "ready") == 2 && count(config, "waiting") == 1;
        let now = case.until("acc", "all but one", one_waits).await;
        assert_eq!(problem(&now, &used), Some("PodsUseDevices"), "{now:#}");
        case.lab.quiet().await;
        assert_eq!(loaded().await.as_deref(), Some("1.0"));
        // Nor is it given back.
        case.set_label(&used, "set", "other".into()).await;
        let ends = |config: &Value| count(config, "matching") == 2 && count(config, "waiting") == 1;
        case.until("acc", "it waits", ends).await;
        case.lab.quiet().await;
        assert!(case.label(&used, CLAIM).await.is_some() && loaded().await.is_some());
        case.leave_device("waited-for").await;
        until("given back", async || case.label(&used, CLAIM).await.is_none()).await;
        case.set_label(&used, "set", case.name.into()).await;
        case.until_ready("acc", 3).await;
        // Those who have to go are asked to.
        hold(&case, "evicted", &used).await;
        let policy = json!({ "podsUsingDevices": "Evict" });
        case.change("acc", &json!({ "driverVersion": "1.0", "upgradePolicy": policy })).await;
        let pods: Api<Pod> = Api::namespaced(case.client(), case.name);
        let is_asked = async || pods.get("evicted").await.unwrap().metadata.deletion_timestamp.is_some();
        until("asked to go", is_asked).await;
        case.lab.quiet().await;
        assert_eq!(loaded().await.as_deref(), Some("2.0"));
        case.leave_device("evicted").await;
        case.until_ready("acc", 3).await;
        // And all of it goes after the last.
        case.change("acc", &json!({ "upgradePolicy": { "podsUsingDevices": "Wait" } })).await;
        hold(&case, "last", &used).await;
        case.until_ready("acc", 3).await;
        case.delete("acc").await;
        case.until("acc", "it waits", |config| is(config, "Progressing", "True", "WaitingForPods")).await;
        case.lab.quiet().await;
        assert!(case.module("acc").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
        case.leave_device("last").await;
        case.until_gone("acc").await;
        withdraw(&case, &used).await;
        case.end().await;
    });
}

/// The last look before a driver is touched is one at the API server, and what it finds is known from then on.
#[test]
fn a_claim_counts_before_any_watch_reports_it() {
    play("claims-unseen", async |lab: &mut Lab| {
        let case = Case::begin(lab, "claims-unseen", 1).await;
        let (of, used) = (case.of("acc"), case.node(0));
        let _scheduler = offer(&case, &used).await;
        case.ask("acc", &with_driver()).await;
        case.until_ready("acc", 1).await;
        let watches = case.lab.proxy.count("WATCH", "/resourceclaims");
        case.lab.proxy.fail("WATCH", "/resourceclaims", u32::MAX, Fault::Late);
        case.lab.proxy.drop_watches();
        let is_late = async || case.lab.proxy.count("WATCH", "/resourceclaims") > watches;
        until("it asks again", is_late).await;
        hold(&case, "user", &used).await;
        let listed = case.lab.proxy.count("GET", "/resourceclaims");
        case.change("acc", &json!({ "driverVersion": "2.0" })).await;
        let now =
            case.until("acc", "it waits", |config| problem(config, &used) == Some("PodsUseDevices")).await;
        assert_eq!(count(&now, "waiting"), 1, "{now:#}");
        assert!(case.lab.proxy.count("GET", "/resourceclaims") > listed, "it was looked");
        assert_eq!(case.label(&used, &of.version_ready()).await.as_deref(), Some("1.0"));
        case.lab.proxy.heal();
        case.leave_device("user").await;
        case.until_ready("acc", 1).await;
        withdraw(&case, &used).await;
        case.end().await;
    });
}

#[test]
fn without_resource_claims_no_device_is_in_use() {
    let scenario = Scenario::begin(&PLAYED);
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let mut options = control(&network, true);
        // The last version that had them not, or only as a beta that is off.
        options.api_server_flags.push("--emulated-version=1.33".to_owned());
        let mut lab = lab::start(&rig, &options, program, Platform::Kubernetes).await;
        let case = Case::begin(&mut lab, "none", 2).await;
        let claims: Api<ResourceClaim> = Api::all(case.client());
        let error = claims.list(&Default::default()).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
        case.ask("acc", &with_driver()).await;
        case.until_ready("acc", 2).await;
        // Other users are found as before, and for pods with other devices their claims are read.
        let plugin = json!({ "resourceNames": [DEVICE] });
        case.change("acc", &json!({ "devicePlugin": plugin })).await;
        let (used, other) = (case.node(0), case.node(1));
        case.use_device("user", &used).await;
        use_device(&case.client(), case.name, "other", &other, "example.com/other").await;
        case.change("acc", &json!({ "driverVersion": "2.0" })).await;
        let one_waits = |config: &Value| count(config, "ready") == 1 && count(config, "waiting") == 1;
        let now = case.until("acc", "one waits", one_waits).await;
        assert_eq!(problem(&now, &used), Some("PodsUseDevices"), "{now:#}");
        case.leave_device("user").await;
        case.until_ready("acc", 2).await;
        assert!(case.lab.proxy.count("GET", "/resourceclaims") > 0, "it was asked");
        case.end().await;
        lab.stop().await;
        note_all(scenario, &lab.control).await;
    })
    .unwrap();
}
