//! DaemonSets and Deployments, with the stock controllers.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use testkit::cluster::Cluster;

use super::{PATIENCE, api, create, statuses};

pub(super) async fn a_daemon_set_sees_its_nodes(cluster: &Cluster) {
    let script = "cat /host-sys/devices/system/node/online; ls /host-kubelet/config.yaml; exec sleep 1000";
    let spec = json!({
        "containers": [{
            "name": "main", "image": "tools:1", "command": ["sh", "-c", script],
            "volumeMounts": [
                { "name": "sys", "mountPath": "/host-sys", "readOnly": true },
                { "name": "kubelet", "mountPath": "/host-kubelet" },
            ],
        }],
        "volumes": [
            { "name": "sys", "hostPath": { "path": "/sys", "type": "Directory" } },
            { "name": "kubelet", "hostPath": { "path": "/var/lib/kubelet", "type": "Directory" } },
        ],
    });
    daemon_set(cluster, "look", spec).await;
    for pod in pods(cluster, "look").await {
        let zones = if node(&pod) == "node-0" { "0-1" } else { "0-3" };
        let said = cluster.logs("default", &pod.name_any(), "").await.unwrap();
        assert_eq!(said, format!("{zones}\n/host-kubelet/config.yaml\n"), "{}", node(&pod));
    }
}

pub(super) async fn readiness_gates_a_rollout(cluster: &Cluster) {
    let template = |ready: &str| {
        let env = json!([{ "name": "PROGRAM", "value": "serve" }, { "name": "READY", "value": ready }]);
        let probe = json!({ "httpGet": { "path": "/ready", "port": 8080 }, "periodSeconds": 1 });
        let container = json!({ "name": "main", "image": "program:1", "env": env, "readinessProbe": probe });
        let spec = json!({ "terminationGracePeriodSeconds": 1, "containers": [container] });
        json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec })
    };
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    let spec = json!({
        "replicas": 2, "strategy": strategy, "selector": { "matchLabels": { "app": "web" } }, "template": template("1"),
    });
    create::<Deployment>(cluster, json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    deployment_until(cluster, |updated, available, all| (updated, available, all) == (2, 2, 2)).await;

    let deployments = api::<Deployment>(cluster).await;
    let change = async |ready: &str| {
        let patch = Patch::Merge(json!({ "spec": { "template": template(ready) } }));
        deployments.patch("web", &PatchParams::default(), &patch).await.unwrap();
    };
    change("no").await;
    deployment_until(cluster, |updated, available, all| (updated, available, all) == (1, 2, 3)).await;
    let says_no = |pod: &Pod| {
        let env = pod.spec.iter().flat_map(|spec| spec.containers[0].env.iter().flatten());
        env.into_iter().any(|env| env.value.as_deref() == Some("no"))
    };
    let unready = pods(cluster, "web").await.into_iter().find(says_no).unwrap().name_any();
    // It runs and is asked, and still does not count.
    let runs = |pod: &Pod| statuses(pod).iter().any(|c| c.started == Some(true) && !c.ready);
    super::pod_until(cluster, &unready, runs).await;
    change("3").await;
    deployment_until(cluster, |updated, available, all| (updated, available, all) == (2, 2, 2)).await;
}

pub(super) async fn the_hosts_network_is_the_nodes(cluster: &Cluster) {
    let container =
        json!({ "name": "main", "image": "program:1", "env": [{ "name": "PROGRAM", "value": "serve" }] });
    daemon_set(cluster, "server", json!({ "hostNetwork": true, "containers": [container] })).await;
    for one in cluster.nodes() {
        // Of both nodes, although it is the same port.
        let address = one.kubelet().host().address().unwrap();
        let connects = async || tokio::net::TcpStream::connect((address, 8080)).await.is_ok();
        one.kubelet().process().wait_until("serving", PATIENCE, connects).await.unwrap();
    }
}

/// Makes it and waits until it has a ready pod on each node.
async fn daemon_set(cluster: &Cluster, name: &str, mut spec: Value) {
    spec["terminationGracePeriodSeconds"] = json!(1);
    let template = json!({ "metadata": { "labels": { "app": name } }, "spec": spec });
    let spec = json!({ "selector": { "matchLabels": { "app": name } }, "template": template });
    create::<DaemonSet>(cluster, json!({ "metadata": { "name": name }, "spec": spec })).await;
    let began = std::time::Instant::now();
    let ready = await_condition(api::<DaemonSet>(cluster).await, name, |set: Option<&DaemonSet>| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.number_ready == 2)
    });
    tokio::time::timeout(PATIENCE, ready).await.unwrap().unwrap();
    println!("{name} ready in {:?}", began.elapsed());
}

/// Waits for numbers of replicas: of the newest template, available, all.
async fn deployment_until(cluster: &Cluster, is: impl Fn(i32, i32, i32) -> bool) {
    let deployments = api::<Deployment>(cluster).await;
    let reached = await_condition(deployments.clone(), "web", |deployment: Option<&Deployment>| {
        let Some(deployment) = deployment else { return false };
        let status = deployment.status.clone().unwrap_or_default();
        let number = |of: Option<i32>| of.unwrap_or(0);
        status.observed_generation == deployment.metadata.generation
            && is(number(status.updated_replicas), number(status.available_replicas), number(status.replicas))
    });
    if tokio::time::timeout(PATIENCE, reached).await.is_err() {
        panic!("{:#?}", deployments.get("web").await.map(|deployment| deployment.status));
    }
}

async fn pods(cluster: &Cluster, app: &str) -> Vec<Pod> {
    api::<Pod>(cluster).await.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}
