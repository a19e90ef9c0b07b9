//! Monitoring of an installation: kinds of the Prometheus operator, and metrics of programs that really run.

use std::collections::BTreeSet;

use deployer::manifests::scheduler::alerts::REJECTIONS;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt as _};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use testkit::exposition::{assert_known, families};

const GROUP: &str = "monitoring.coreos.com";
/// The kinds that `deploy --monitoring` makes.
const KINDS: [(&str, &str); 2] = [("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")];

/// Definitions of the kinds, without their schemas.
pub(super) async fn install_definitions(client: &Client) {
    for (kind, plural) in KINDS {
        let definition = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.{GROUP}}}\n\
             spec:\n  group: {GROUP}\n  scope: Namespaced\n  names: {{kind: {kind}, plural: {plural}}}\n\
             \x20 versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
             x-kubernetes-preserve-unknown-fields: true}}}}}}]\n"
        );
        testkit::cluster::install_crds(client, &definition).await.unwrap();
    }
}

/// Namespaces and names of the objects of these kinds and of dashboards.
pub(super) async fn objects(client: &Client) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (kind, plural) in KINDS {
        let kind = GroupVersionKind::gvk(GROUP, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list(&ListParams::default()).await.unwrap() {
            all.insert(format!("{} {}", kind.kind, object.name_any()));
        }
    }
    let maps: Api<ConfigMap> = Api::all(client.clone());
    for map in maps.list(&ListParams::default().labels("grafana_dashboard=1")).await.unwrap() {
        let text = map.data.unwrap().into_values().next().unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        all.insert(format!("dashboard {}", dashboard["title"].as_str().unwrap()));
    }
    all
}

/// What pods serve is what docs/metrics.md lists; what expressions want of kubelets is there.
pub(super) async fn metrics_are_as_documented(client: &Client) {
    let served = scraped(client, "tholepin", 2112).await;
    assert_known(&served, &specimen(&exporter::metrics::specimen().unwrap()));
    let served = scraped(client, "tholepin-scheduler", 10251).await;
    assert_known(&served, &specimen(&scheduler::metrics::specimen()));

    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let node = nodes.list(&ListParams::default()).await.unwrap().items.remove(0);
    let of_kubelet = get(client, &format!("/api/v1/nodes/{}/proxy/metrics", node.name_any())).await;
    assert!(families(&of_kubelet).contains_key(REJECTIONS), "the kubelet does not serve {REJECTIONS}");
}

async fn scraped(client: &Client, namespace: &str, port: u16) -> String {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.name_any());
    get(client, &path).await
}

async fn get(client: &Client, path: &str) -> String {
    client.request_text(axum::http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

fn specimen(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}
