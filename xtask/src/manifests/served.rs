//! What an API server says of the committed files.

use deployer::platform::Platform;
use fakes::openshift::{self, Flavour};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::Value;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use super::{FOLDER, HARDWARE, word};
use crate::tree::root;

/// Kinds of the Prometheus operator are not defined in the test's clusters.
const ELSEWHERE: &str = "monitoring.coreos.com/v1";

/// The documents of a file of a folder.
fn documents(folder: &str, path: &str) -> Vec<Value> {
    let path = root().join(folder).join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    runtime::yaml::read_many(&path.display().to_string(), &text, 100).unwrap()
}

/// Applies with every field checked: what is not known, or said twice, is refused.
async fn apply(client: &Client, body: &Value, dry_run: bool) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&body["apiVersion"]), text(&body["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let plural = match kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &plural);
    let api: Api<DynamicObject> = match body["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut params = PatchParams::apply("packaged").validation_strict();
    params.dry_run = dry_run;
    let name = text(&body["metadata"]["name"]);
    let done = api.patch(&name, &params, &Patch::Apply(body)).await;
    done.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    if kind == "CustomResourceDefinition" && !dry_run {
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        await_condition(definitions, &name, conditions::is_crd_established()).await.unwrap();
    }
}

#[tokio::test]
async fn an_api_server_takes_every_field_of_what_is_shipped() {
    let Ok(rig) = testkit::env::rig() else { return };
    let image = super::image();
    for (platform, flavour) in [
        (Platform::Kubernetes, None),
        (Platform::OpenShift, Some(Flavour::OpenShift)),
        (Platform::HyperShift, Some(Flavour::HyperShift)),
    ] {
        let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
        let client = control.client().await.unwrap();
        if let Some(flavour) = flavour {
            openshift::install(&client, flavour, "4.20.1").await.unwrap();
        }
        for (folder, tree, monitoring) in
            [(FOLDER, super::tree(&image).unwrap(), 4), (HARDWARE, super::hardware_tree(&image).unwrap(), 2)]
        {
            let paths = super::files(&tree, platform);
            let objects: Vec<Value> = paths.iter().flat_map(|path| documents(folder, path)).collect();
            let (elsewhere, here): (Vec<_>, Vec<_>) =
                objects.iter().partition(|object| object["apiVersion"] == ELSEWHERE);
            let wanted = if platform.is_openshift() { monitoring } else { 0 };
            assert_eq!(elsewhere.len(), wanted, "{folder} {platform}");
            for object in here {
                apply(&client, object, false).await;
            }
        }
        for sample in documents(HARDWARE, "samples/deviceconfig.yaml") {
            apply(&client, &sample, sample["kind"] != "Namespace").await;
        }
        for policy in documents(HARDWARE, "samples/node-policy.yaml") {
            apply(&client, &policy, true).await;
        }
        if platform == Platform::OpenShift {
            let bundled = crate::bundle::tests::installed();
            let (elsewhere, here): (Vec<_>, Vec<_>) =
                bundled.iter().partition(|object| object["apiVersion"] == ELSEWHERE);
            assert_eq!(elsewhere.len(), 5);
            for object in here {
                apply(&client, object, true).await;
            }
        }
        for sample in documents(FOLDER, &format!("samples/{}.yaml", word(platform))) {
            for version in [api::numaresources::VERSION, api::numaresources::OLD_VERSION] {
                let mut sample = sample.clone();
                sample["apiVersion"] = format!("{}/{version}", api::numaresources::GROUP).into();
                apply(&client, &sample, true).await;
            }
        }
    }
}
