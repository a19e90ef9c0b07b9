//! What the API server refuses of NUMAResourcesOperator and NUMAResourcesScheduler objects, and what it lets pass.

use api::crd::{OPERATOR_CRD_YAML, SCHEDULER_CRD_YAML, operator_crd, scheduler_crd};
use api::numaresources::{GROUP, OLD_VERSION, VERSION, operator, scheduler};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use crate::install;

/// Objects of a kind in a version, whatever is in them.
pub(crate) fn objects(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let plural = if kind == operator::KIND { operator::PLURAL } else { scheduler::PLURAL };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, kind), plural);
    Api::all_with(client.clone(), &resource)
}

/// An object of a kind as it goes over the wire.
pub(crate) fn object(version: &str, kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// What the API server says to making an object, without making it.
async fn verdict(client: &Client, version: &str, kind: &str, name: &str, spec: &Value) -> Result<(), String> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match objects(client, version, kind).create(&dry, &object(version, kind, name, spec)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 422 => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_api_server_takes_what_makes_sense_only() {
    let Ok(rig) = testkit::env::rig() else { return };
    let plane = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    for (crd, yaml) in [(operator_crd(), OPERATOR_CRD_YAML), (scheduler_crd(), SCHEDULER_CRD_YAML)] {
        assert_eq!(install(&client, &crd).await, Vec::<String>::new());
        the_committed_yaml_changes_nothing(&client, &crd.name_any(), yaml).await;
    }
}

/// Applying the YAML over the installed definition is a no-op: same generation afterwards.
async fn the_committed_yaml_changes_nothing(client: &Client, name: &str, yaml: &str) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let before = crds.get(name).await.unwrap();
    let yaml: Value = serde_saphyr::from_str(yaml).unwrap();
    let after = crds.patch(name, &PatchParams::apply("it").force(), &Patch::Apply(&yaml)).await.unwrap();
    assert_eq!(before.metadata.generation, after.metadata.generation, "{name}");
    assert_eq!(before.spec, after.spec, "{name}");
}
