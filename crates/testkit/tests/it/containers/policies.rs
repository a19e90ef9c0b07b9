//! NetworkPolicy objects, tried from within pods.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::cluster::Cluster;

use super::streams::{ready, run};
use super::{PATIENCE, api, create};

/// What a pod hears of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Heard {
    Taken,
    Refused,
    Prohibited,
}

pub(super) async fn connections_are_allowed_by_selector_and_block(cluster: &Cluster) {
    use Heard::{Prohibited, Refused, Taken};
    let serves = json!({
        "name": "main", "image": "program:1", "env": [{ "name": "PROGRAM", "value": "serve" }],
        "ports": [{ "name": "web", "containerPort": 8080 }],
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    });
    let waits = json!({ "name": "main", "image": "tools:1", "command": ["sleep", "1000"] });
    for (name, container) in [("server", &serves), ("friend", &waits), ("stranger", &waits)] {
        let metadata = json!({ "name": name, "labels": { "who": name } });
        let spec = json!({ "terminationGracePeriodSeconds": 1, "containers": [container] });
        create::<Pod>(cluster, json!({ "metadata": metadata, "spec": spec })).await;
    }
    for name in ["server", "friend", "stranger"] {
        ready(cluster, name).await;
    }
    let server = api::<Pod>(cluster).await.get("server").await.unwrap();
    let address = server.status.unwrap().pod_ip.unwrap();
    let served = (address.as_str(), 8080);
    hears(cluster, "friend", served, Taken).await;
    hears(cluster, "stranger", served, Taken).await;

    let who = |name: &str| json!({ "matchLabels": { "who": name } });
    let rule = json!({ "from": [{ "podSelector": who("friend") }], "ports": [{ "port": "web" }] });
    let spec = json!({ "podSelector": who("server"), "ingress": [rule] });
    create::<NetworkPolicy>(cluster, json!({ "metadata": { "name": "friends" }, "spec": spec })).await;
    hears(cluster, "stranger", served, Prohibited).await;
    // The filter is one: what holds for a stranger holds for all.
    assert_eq!(connect(cluster, "friend", served).await, Taken);
    assert_eq!(connect(cluster, "friend", (&address, 8081)).await, Prohibited);
    let on = server.spec.unwrap().node_name.unwrap();
    let host = cluster.nodes().iter().find(|node| node.name() == on).unwrap().kubelet().host();
    let of_its_node = host.namespaces().run(|| TcpStream::connect(served)).unwrap();
    assert!(of_its_node.is_ok(), "probes come from there: {of_its_node:?}");

    let rule = json!({ "to": [{ "ipBlock": { "cidr": "10.96.0.0/16" } }], "ports": [{ "port": 443 }] });
    let spec = json!({ "podSelector": who("friend"), "policyTypes": ["Egress"], "egress": [rule] });
    create::<NetworkPolicy>(cluster, json!({ "metadata": { "name": "api-only" }, "spec": spec })).await;
    hears(cluster, "friend", served, Prohibited).await;
    assert_eq!(connect(cluster, "friend", ("10.96.0.1", 443)).await, Taken);
    assert_eq!(connect(cluster, "friend", ("10.96.0.1", 444)).await, Prohibited);
    assert_eq!(connect(cluster, "stranger", ("10.96.0.1", 444)).await, Refused);

    let policies = api::<NetworkPolicy>(cluster).await;
    for name in ["api-only", "friends"] {
        policies.delete(name, &DeleteParams::default()).await.unwrap();
    }
    hears(cluster, "friend", served, Taken).await;
    hears(cluster, "stranger", served, Taken).await;
}

/// Waits until it hears that: policies hold soon, not at once.
async fn hears(cluster: &Cluster, pod: &str, to: (&str, u16), expected: Heard) {
    let began = Instant::now();
    loop {
        let heard = connect(cluster, pod, to).await;
        if heard == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{pod} hears {heard:?} of {to:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Connects from within a pod.
async fn connect(cluster: &Cluster, pod: &str, (address, port): (&str, u16)) -> Heard {
    let script = format!("exec 3<>/dev/tcp/{address}/{port}");
    let pods = api::<Pod>(cluster).await;
    match run(&pods, pod, &["bash", "-c", &script], "").await {
        (_, _, Ok(0)) => Heard::Taken,
        (_, error, Ok(_)) if error.contains("No route to host") => Heard::Prohibited,
        (_, error, Ok(_)) if error.contains("Connection refused") => Heard::Refused,
        other => panic!("{pod} to {address}:{port}: {other:?}"),
    }
}
