use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as wire;
use serde_json::{Value, json};

use super::*;
use crate::devices::Change;
use crate::devices::views::ClassView;
use crate::pod::PodView;

const GPU: &str = "vendor.example/gpu";
const NIC: &str = "vendor.example/nic";

fn devices() -> Devices {
    let mut devices = Devices::default();
    for (name, resource) in [("gpu", Some(GPU)), ("nic", None)] {
        let class = json!({ "metadata": { "name": name }, "spec": { "extendedResourceName": resource } });
        let class = serde_json::from_value::<wire::DeviceClass>(class).unwrap();
        devices.apply(Change::Class(Box::new(ClassView::read(&class))));
    }
    devices
}

fn container(name: &str, requests: Value) -> Value {
    // Nodes and classes make them known, and other tests use up what pods may name.
    for name in [GPU, NIC, "deviceclass.resource.kubernetes.io/nic"] {
        ResourceName::new(name).unwrap();
    }
    json!({ "name": name, "resources": { "requests": requests } })
}

/// Requests as `name class count`, and mappings as `container resource request`.
fn shown(made: Option<ExtendedClaim>) -> (Vec<String>, Vec<String>) {
    let Some(made) = made else { return (Vec::new(), Vec::new()) };
    let requests = made.view.asks().map(|ask| match ask.mode {
        Mode::Exact(count) => format!("{} {} {count}", ask.name, ask.class),
        _ => panic!("{ask:?}"),
    });
    let mappings = made.mappings.iter().map(|it| format!("{} {} {}", it.container, it.resource, it.request));
    (requests.collect(), mappings.collect())
}

/// The examples follow kube-scheduler 1.36 `createRequestsAndMappings`.
#[test]
fn requests_and_mappings_are_kube_schedulers() {
    let sidecar = |mut container: Value| {
        container["restartPolicy"] = "Always".into();
        container
    };
    let by_class = "deviceclass.resource.kubernetes.io/nic";
    for (inits, containers, allocatable, requests, mappings) in [
        // The number of a resource is that among all of the container, by name.
        (
            vec![],
            vec![
                container("a", json!({ "cpu": "1", "memory": "1Gi", GPU: "2" })),
                container("b", json!({ GPU: "1" })),
            ],
            json!({}),
            vec!["container-0-request-2 gpu 2", "container-1-request-0 gpu 1"],
            vec!["a vendor.example/gpu container-0-request-2", "b vendor.example/gpu container-1-request-0"],
        ),
        // The device plugin serves the resource, or it has none of it.
        (vec![], vec![container("a", json!({ GPU: "2" }))], json!({ GPU: "1" }), vec![], vec![]),
        (
            vec![],
            vec![container("a", json!({ GPU: "2" }))],
            json!({ GPU: "0" }),
            vec!["container-0-request-0 gpu 2"],
            vec!["a vendor.example/gpu container-0-request-0"],
        ),
        // One resource is the plugin's, the other that of a class by its name.
        (
            vec![],
            vec![container("a", json!({ GPU: "2", by_class: "3" }))],
            json!({ GPU: "1" }),
            vec!["container-0-request-0 nic 3"],
            vec!["a deviceclass.resource.kubernetes.io/nic container-0-request-0"],
        ),
        // Init containers use what later ones have, and share one request for the rest.
        (
            vec![
                container("i", json!({ GPU: "3" })),
                sidecar(container("s", json!({ GPU: "1" }))),
                container("j", json!({ GPU: "1" })),
                container("k", json!({ GPU: "5" })),
            ],
            vec![container("a", json!({ GPU: "1" })), container("b", json!({ "cpu": "1" }))],
            json!({}),
            vec!["container-1-request-0 gpu 1", "container-3-request-0 gpu 4", "container-4-request-0 gpu 1"],
            vec![
                "s vendor.example/gpu container-1-request-0",
                "a vendor.example/gpu container-4-request-0",
                "i vendor.example/gpu container-1-request-0",
                "i vendor.example/gpu container-4-request-0",
                "i vendor.example/gpu container-3-request-0",
                "j vendor.example/gpu container-4-request-0",
                "k vendor.example/gpu container-4-request-0",
                "k vendor.example/gpu container-3-request-0",
            ],
        ),
    ] {
        let pod = json!({
            "metadata": { "namespace": "ns", "name": "p" },
            "spec": { "initContainers": inits, "containers": containers },
        });
        let pod = PodView::read(&serde_json::from_value::<core::Pod>(pod).unwrap());
        let node = json!({ "metadata": { "name": "n" }, "status": { "allocatable": allocatable } });
        let view = NodeView::read(&serde_json::from_value::<core::Node>(node).unwrap());
        let made = claim_on((&pod.spec.needs, &pod.namespace), &devices(), &view).unwrap();
        let wanted = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(shown(made), (wanted(requests), wanted(mappings)), "{:?}", pod.spec.needs.containers);
    }
}

#[test]
fn what_nothing_serves_keeps_the_pod_away() {
    for (allocatable, is_refused) in
        [(json!({}), true), (json!({ NIC: "0" }), false), (json!({ NIC: "1" }), false)]
    {
        let pod = json!({
            "metadata": { "namespace": "ns", "name": "p" },
            "spec": { "containers": [container("a", json!({ GPU: "1", NIC: "1" }))] },
        });
        let pod = PodView::read(&serde_json::from_value::<core::Pod>(pod).unwrap());
        let node = json!({ "metadata": { "name": "n" }, "status": { "allocatable": allocatable } });
        let view = NodeView::read(&serde_json::from_value::<core::Node>(node).unwrap());
        let found = claim_on((&pod.spec.needs, &pod.namespace), &devices(), &view);
        assert_eq!(found.is_err_and(|reason| reason == Reason::NotServed), is_refused, "{allocatable}");
    }
}
