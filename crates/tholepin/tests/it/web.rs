//! `tholepin web` in a cluster: what is rendered runs there, and is read by those who may.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, GetParams, ListParams};
use kube::client::Body;
use kube::core::Request;
use kube::{Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::controlplane::ControlPlane;

use super::lifecycle::{api_of, create, until};
use super::{Installed, run_async};

const NAME: &str = "tholepin-web";

/// Installs it, reads it as a stranger and as a reader, and takes it away.
pub(super) async fn installed(control: &ControlPlane, client: &Client) {
    let tholepin = Installed::under("tholepin");
    let words = format!("render web --image {}", super::readme::IMAGE);
    let (code, text, errors) = run_async(&tholepin.program, &words, &[]).await;
    assert_eq!((code, errors.as_str()), (0, ""));
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "readers" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tholepin-web-reader" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": NAME, "name": "reader" }],
    }));
    for name in ["reader", "stranger"] {
        let metadata = json!({ "namespace": NAME, "name": name });
        objects.push(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }));
    }
    for object in &objects {
        create(client, object).await;
    }

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAME);
    let available = async || {
        let status = deployments.get(NAME).await.unwrap().status.unwrap_or_default();
        status.available_replicas.unwrap_or_default()
    };
    until(available, |available| *available == 1).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAME);
    let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    let address = pod.status.unwrap().pod_ip.unwrap();
    for (who, path, status) in [
        (None, "/", 200),
        (None, "/view/v1/cluster", 403),
        (Some("stranger"), "/view/v1/cluster", 403),
        (Some("reader"), "/view/v1/cluster", 200),
    ] {
        let token = match who {
            None => None,
            Some(name) => Some(Account::of(control, NAME, name).await.unwrap().token(None).await.unwrap()),
        };
        let (is, body) = read(&address, path, token).await;
        assert_eq!(is, status, "{who:?} {path}: {body}");
        let shows_nodes = ["node-0", "node-1"].iter().all(|name| body.contains(name));
        assert_eq!(shows_nodes, who == Some("reader"), "{who:?} {path}: {body}");
    }
    for object in objects.into_iter().rev() {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api_of(client, &object).await.delete(&object.name_any(), &DeleteParams::default()).await.unwrap();
    }
}

/// Status and body of an answer. The server has no certificate of a known authority.
async fn read(address: &str, path: &str, token: Option<String>) -> (u16, String) {
    let mut config = Config::new(format!("https://{address}:8443").parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(Into::into);
    let mut request = Request::new("").get("path", &GetParams::default()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let answer = Client::try_from(config).unwrap().send(request.map(Body::from)).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}
