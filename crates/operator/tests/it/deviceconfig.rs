//! The controller of DeviceConfigs as a process, on a real API server, with a double of KMM below it: the shortest way
//! from nothing to ready, to another version, to nothing. The scenarios are in `hardware`.

use fakes::kmm::{self, Kmm};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testkit::cluster::install_crds;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::process_group::{Process, Spec};
use testkit::{env, port};

use super::rig::{PATIENCE, tholepin, until};

const NAMESPACE: &str = "hw";
const KERNEL: &str = "5.14.0-427.13.1.el9_4.x86_64";

fn configs(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("hardware.tholepin.dev", "v1alpha1", "DeviceConfig");
    let kind = ApiResource::from_gvk_with_plural(&kind, "deviceconfigs");
    Api::namespaced_with(client.clone(), NAMESPACE, &kind)
}

async fn get(client: &Client, name: &str) -> Value {
    configs(client).get_opt(name).await.unwrap().map_or(Value::Null, |one| serde_json::to_value(one).unwrap())
}

/// Whether its condition Ready is true, and for what is asked for now.
fn is_ready(config: &Value) -> bool {
    let all = config["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = all.filter(|one| one["type"] == "Ready");
    ready.any(|one| one["status"] == "True" && one["observedGeneration"] == config["metadata"]["generation"])
}

async fn until_ready(client: &Client, operator: &Process, name: &str) -> Value {
    let what = format!("{name} ready");
    let ready = async || is_ready(&get(client, name).await);
    if operator.wait_until(&what, PATIENCE, ready).await.is_err() {
        panic!("{what}: {:#}\n{}", get(client, name).await["status"], operator.log_tail(30));
    }
    get(client, name).await
}

#[tokio::test]
async fn a_driver_comes_changes_and_goes() {
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    for name in [NAMESPACE, "tholepin-hardware"] {
        let space = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        let spaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        spaces.create(&PostParams::default(), &space).await.unwrap();
    }
    let definition = serde_json::to_string(&api::crd::device_config_crd()).unwrap();
    install_crds(&client, &definition).await.unwrap();
    for name in ["a", "b", "c"] {
        kmm::node(&client, name, KERNEL, &[("acc", "1")]).await.unwrap();
    }
    let [health, metrics] = [port::free().unwrap(), port::free().unwrap()];
    let spec = Spec::new("operator", program)
        .args(["operator", "--controllers=deviceconfig", "--namespace=tholepin-hardware", "-v=4"])
        .arg(format!("--kubeconfig={}", control.kubeconfig().display()))
        .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
        .arg(format!("--health-probe-bind-address=127.0.0.1:{health}"));
    let operator = control.process_group().spawn(spec).unwrap();

    // Before there is KMM.
    let object = json!({
        "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig",
        "metadata": { "name": "acc" },
        "spec": {
            "driverImage": "registry.example/drivers/acc", "driverVersion": "1.0", "nodeSelector": { "acc": "1" },
            "devicePlugin": { "image": "registry.example/plugin:1", "resourceNames": ["example.com/acc"] },
        },
    });
    configs(&client).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let errored = async || get(&client, "acc").await.to_string().contains("KMMNotInstalled");
    operator.wait_until("it says that there is no KMM", PATIENCE, errored).await.unwrap();

    kmm::install(&client).await.unwrap();
    let double = Kmm::start(&client);
    let ready = until_ready(&client, &operator, "acc").await;
    assert_eq!(ready["status"]["nodes"]["ready"], 3, "{ready:#}");

    let patch = Patch::Merge(json!({ "spec": { "driverVersion": "2.0" } }));
    configs(&client).patch("acc", &PatchParams::default(), &patch).await.unwrap();
    let ready = until_ready(&client, &operator, "acc").await;
    assert_eq!(ready["status"]["driverVersion"], "2.0", "{ready:#}");

    configs(&client).delete("acc", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || get(&client, "acc").await.is_null()).await;
    double.settled(PATIENCE).await.unwrap();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    for node in nodes.list(&Default::default()).await.unwrap() {
        let text = serde_json::to_string(&(&node.metadata.labels, &node.spec)).unwrap();
        assert!(!text.contains("tholepin") && !text.contains("kmm."), "{text}");
    }
    assert!(operator.terminate(PATIENCE).await.unwrap().success(), "{}", operator.log_tail(20));
}
