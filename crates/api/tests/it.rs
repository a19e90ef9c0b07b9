//! The definitions and objects of all versions on a real API server; a configuration of a real scheduler.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking; the exemption for tests misses helpers"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::client::Body;
use kube::core::Request;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Resource as _, ResourceExt as _};

#[path = "it/generate.rs"]
mod generate;
#[path = "it/hardware.rs"]
mod hardware;
#[path = "it/nrt.rs"]
mod nrt;
#[path = "it/peer.rs"]
mod peer;
#[path = "it/roundtrip.rs"]
mod roundtrip;
#[path = "it/rules.rs"]
mod rules;
#[path = "it/upgrade.rs"]
mod upgrade;

/// Creates the definition and returns the warnings that the API server sent along.
async fn install(client: &Client, crd: &CustomResourceDefinition) -> Vec<String> {
    let request = Request::new(CustomResourceDefinition::url_path(&(), None));
    let request = request.create(&PostParams::default(), serde_json::to_vec(crd).unwrap()).unwrap();
    let response = client.send(request.map(Body::from)).await.unwrap();
    let (head, body) = response.into_parts();
    let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
    assert_eq!(head.status.as_u16(), 201, "{body}");
    let warnings = head.headers.get_all("warning");
    let warnings = warnings.iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    await_condition(crds, &crd.name_any(), conditions::is_crd_established()).await.unwrap();
    warnings
}

/// The table that `kubectl get` requests for a path.
async fn table(client: &kube::Client, path: &str) -> serde_json::Value {
    let mut request = kube::core::Request::new(path).list(&kube::api::ListParams::default()).unwrap();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap();
    request.headers_mut().insert("accept", accept);
    serde_json::from_str(&client.request_text(request).await.unwrap()).unwrap()
}
