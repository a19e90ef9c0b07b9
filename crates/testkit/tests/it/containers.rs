//! Containers as processes, workloads by the stock controllers, probes by the kubelet, rights by the API server. All on
//! one cluster, at the same time.

#[path = "containers/confined.rs"]
mod confined;
#[path = "containers/policies.rs"]
mod policies;
#[path = "containers/program.rs"]
mod program;
#[path = "containers/streams.rs"]
mod streams;
#[path = "containers/workloads.rs"]
mod workloads;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use testkit::{env, net};

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn containers_are_processes() {
    let Ok(rig) = env::rig() else { return };
    net::private(async |network| {
        let images = Images::new()
            .with("tools:1", Image::tools())
            .with("program:1", program::image())
            .with("registry:5000/pause:3", Image::pause());
        let machines = [2, 4].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        // Else volumes hear of changes after a minute.
        let config = Map::from_iter([("syncFrequency".to_owned(), json!("1s"))]);
        let kubelet = KubeletOptions { config, ..KubeletOptions::default() };
        let builder = Cluster::builder().machines(machines).kubelet(kubelet).network_policies(true);
        let builder = builder.installable(network, images);
        let began = Instant::now();
        let cluster = builder.start(&rig).await.unwrap();
        println!("cluster up in {:?}", began.elapsed());
        tokio::join!(
            workloads::a_daemon_set_sees_its_nodes(&cluster),
            workloads::readiness_gates_a_rollout(&cluster),
            workloads::the_hosts_network_is_the_nodes(&cluster),
            confined::nothing_but_what_was_asked_for(&cluster),
            confined::nothing_of_others(&cluster),
            probes_ask_and_restart(&cluster),
            a_crash_restarts(&cluster),
            rights_are_those_of_the_account(&cluster),
            an_end_is_graceful(&cluster),
            config_maps_are_updated(&cluster),
            unknown_images_are_not_pulled(&cluster),
            policies::connections_are_allowed_by_selector_and_block(&cluster),
            streams::commands_run_in_a_container(&cluster),
            streams::an_image_without_a_shell_runs_its_program(&cluster),
            streams::logs_are_read_as_a_client_asks(&cluster),
            streams::containers_without_a_process_refuse(&cluster),
        );
        containers_outlive_their_kubelet(&cluster).await;
        streams::nothing_is_left(cluster).await;
    })
    .unwrap();
}

#[tokio::test]
async fn a_cluster_in_the_network_of_another_is_refused() {
    let Ok(rig) = env::rig() else { return };
    let network = net::Network::new().unwrap();
    let error = Cluster::builder().installable(network, Images::new()).start(&rig).await.unwrap_err();
    assert!(error.to_string().contains("net::private"), "{error:#}");
}

async fn probes_ask_and_restart(cluster: &Cluster) {
    let waits = json!({
        "name": "waits", "image": "tools:1", "command": ["sh", "-c", "sleep 0.5; touch /work/ok; exec sleep 1000"],
        "readinessProbe": { "exec": { "command": ["test", "-f", "/work/ok"] }, "periodSeconds": 1 },
        "volumeMounts": [{ "name": "work", "mountPath": "/work" }],
    });
    let serves = json!({
        "name": "serves", "image": "program:1", "env": [{ "name": "PROGRAM", "value": "serve" }],
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    });
    let is_killed = json!({
        "name": "is-killed", "image": "tools:1", "command": ["sleep", "1000"],
        "livenessProbe": { "exec": { "command": ["false"] }, "periodSeconds": 1, "failureThreshold": 1 },
    });
    let volumes = json!([{ "name": "work", "emptyDir": {} }]);
    create_pod(cluster, "ready", json!({ "containers": [waits, serves], "volumes": volumes })).await;
    create_pod(cluster, "unhealthy", json!({ "containers": [is_killed] })).await;
    pod_until(cluster, "ready", |pod| statuses(pod).len() == 2 && statuses(pod).iter().all(|c| c.ready))
        .await;
    let restarted = |pod: &Pod| statuses(pod).iter().any(|c| c.restart_count > 0);
    let pod = pod_until(cluster, "unhealthy", restarted).await;
    assert_eq!(last_exit(&pod), Some(137), "asked, then killed");
}

async fn a_crash_restarts(cluster: &Cluster) {
    let script = "echo out; echo err >&2; exit 3";
    let container = json!({ "name": "main", "image": "tools:1", "command": ["sh", "-c", script] });
    create_pod(cluster, "crash", json!({ "containers": [container] })).await;
    let pod = pod_until(cluster, "crash", |pod| statuses(pod).iter().any(|c| c.restart_count > 0)).await;
    assert_eq!(last_exit(&pod), Some(3));
    let mut said: Vec<_> =
        cluster.logs("default", "crash", "").await.unwrap().lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, ["err", "out"]);
}

async fn rights_are_those_of_the_account(cluster: &Cluster) {
    let container =
        json!({ "name": "main", "image": "program:1", "env": [{ "name": "PROGRAM", "value": "ask" }] });
    create::<k8s_openapi::api::core::v1::ServiceAccount>(cluster, json!({ "metadata": { "name": "asker" } }))
        .await;
    create_pod(cluster, "ask", json!({ "serviceAccountName": "asker", "containers": [container] })).await;
    says(cluster, "ask", "forbidden").await;
    let denied = cluster.denied().unwrap();
    let user = "system:serviceaccount:default:asker";
    let own: Vec<_> = denied.iter().filter(|request| request.user.username == user).collect();
    assert!(own.iter().any(|r| r.verb == "list" && r.object_ref.resource == "configmaps"), "{own:?}");
    let strangers: Vec<_> = denied.iter().filter(|request| request.user.username != user).collect();
    assert!(strangers.is_empty(), "{strangers:#?}");
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }]);
    create::<Role>(cluster, json!({ "metadata": { "name": "maps" }, "rules": rules })).await;
    let binding = json!({
        "metadata": { "name": "maps" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps" },
        "subjects": [{ "kind": "ServiceAccount", "name": "asker", "namespace": "default" }],
    });
    create::<RoleBinding>(cluster, binding).await;
    says(cluster, "ask", "allowed").await;
}

async fn an_end_is_graceful(cluster: &Cluster) {
    let env = json!([{ "name": "PROGRAM", "value": "serve" }, { "name": "BYE", "value": "/bye/said" }]);
    // The program hears of its end once it serves.
    let container = json!({
        "name": "main", "image": "program:1", "env": env,
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
        "volumeMounts": [{ "name": "bye", "mountPath": "/bye" }],
    });
    let volume = json!({ "name": "bye", "hostPath": { "path": "/run/bye", "type": "DirectoryOrCreate" } });
    let spec = json!({
        "terminationGracePeriodSeconds": 60, "nodeName": "node-1", "containers": [container], "volumes": [volume],
    });
    create_pod(cluster, "polite", spec).await;
    pod_until(cluster, "polite", |pod| statuses(pod).iter().any(|c| c.ready)).await;
    let asked = Instant::now();
    let pods = api::<Pod>(cluster).await;
    pods.delete("polite", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(pods.clone(), "polite", |pod: Option<&Pod>| pod.is_none());
    tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(50), "it was killed after {:?}", asked.elapsed());
    let host = cluster.nodes()[1].kubelet().host();
    assert_eq!(host.namespaces().run(|| std::fs::read_to_string("/run/bye/said")).unwrap().unwrap(), "bye");
    assert!(!std::path::Path::new("/run/bye").exists(), "the machine's own folder");
}

async fn config_maps_are_updated(cluster: &Cluster) {
    let map = |value: &str| json!({ "metadata": { "name": "settings" }, "data": { "key": value } });
    create::<ConfigMap>(cluster, map("first")).await;
    let script = "while :; do cat /settings/key; echo; sleep 0.2; done";
    let container = json!({
        "name": "main", "image": "tools:1", "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "settings", "mountPath": "/settings" }],
    });
    let volume = json!({ "name": "settings", "configMap": { "name": "settings" } });
    create_pod(cluster, "reader", json!({ "containers": [container], "volumes": [volume] })).await;
    says(cluster, "reader", "first").await;
    let maps = api::<ConfigMap>(cluster).await;
    maps.patch("settings", &PatchParams::default(), &Patch::Merge(map("second"))).await.unwrap();
    says(cluster, "reader", "second").await;
}

async fn unknown_images_are_not_pulled(cluster: &Cluster) {
    let container = |image: &str| json!({ "name": "main", "image": image });
    create_pod(cluster, "unknown", json!({ "containers": [container("nobody/knows:1")] })).await;
    create_pod(cluster, "pause", json!({ "containers": [container("registry:5000/pause:3")] })).await;
    let reason = |pod: &Pod| statuses(pod).first()?.state.clone()?.waiting?.reason;
    pod_until(cluster, "unknown", |pod| {
        matches!(reason(pod).as_deref(), Some("ErrImagePull" | "ImagePullBackOff"))
    })
    .await;
    pod_until(cluster, "pause", |pod| statuses(pod).iter().any(|c| c.ready)).await;
    // An image without a program has the commands of the fake.
    let short = json!({ "name": "main", "image": "registry:5000/pause:3", "command": ["sleep", "1s"] });
    create_pod(cluster, "short", json!({ "restartPolicy": "Never", "containers": [short] })).await;
    let phase = |pod: &Pod| pod.status.clone()?.phase;
    pod_until(cluster, "short", |pod| phase(pod).as_deref() == Some("Succeeded")).await;
}

/// The node is the same when its kubelet starts again, and so are processes and volumes; not so when it reboots.
async fn containers_outlive_their_kubelet(cluster: &Cluster) {
    let reader = api::<Pod>(cluster).await.get("reader").await.unwrap();
    let on = reader.spec.unwrap().node_name.unwrap();
    let node = cluster.nodes().iter().find(|node| node.name() == on).unwrap();
    let pid = || node.cri().snapshot().pod("default", "reader").unwrap().container("main").unwrap().pid;
    let before = pid();
    assert!(before.is_some());
    node.kubelet().restart().await.unwrap();
    let maps = api::<ConfigMap>(cluster).await;
    let third = json!({ "data": { "key": "third" } });
    maps.patch("settings", &PatchParams::default(), &Patch::Merge(third)).await.unwrap();
    says(cluster, "reader", "third").await;
    assert_eq!(pid(), before);
    node.reboot(&Map::from_iter([("topologyManagerScope".to_owned(), json!("pod"))])).await.unwrap();
    let again = |pod: &Pod| statuses(pod).iter().any(|c| c.restart_count == 1 && c.ready);
    pod_until(cluster, "reader", again).await;
    assert!(pid().is_some() && pid() != before);
    let config = std::fs::read_to_string(node.kubelet().config_file()).unwrap();
    assert!(config.contains("\"topologyManagerScope\": \"pod\""), "{config}");
}

async fn api<K>(cluster: &Cluster) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::default_namespaced(cluster.client().await.unwrap())
}

async fn create<K>(cluster: &Cluster, object: Value) -> K
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api::<K>(cluster).await.create(&PostParams::default(), &object).await.unwrap()
}

/// A pod that ends within a second when it is asked to, unless its spec says otherwise.
async fn create_pod(cluster: &Cluster, name: &str, mut spec: Value) {
    spec.as_object_mut().unwrap().entry("terminationGracePeriodSeconds").or_insert(json!(1));
    create::<Pod>(cluster, json!({ "metadata": { "name": name }, "spec": spec })).await;
}

async fn pod_until(cluster: &Cluster, name: &str, is: impl Fn(&Pod) -> bool) -> Pod {
    let pods = api::<Pod>(cluster).await;
    let reached = await_condition(pods.clone(), name, |pod: Option<&Pod>| pod.is_some_and(&is));
    match tokio::time::timeout(PATIENCE, reached).await {
        Ok(pod) => pod.unwrap().unwrap(),
        Err(_) => panic!("{name} never: {:#?}", pods.get(name).await.map(|pod| pod.status)),
    }
}

/// Waits until a pod's only container has written this line.
async fn says(cluster: &Cluster, pod: &str, line: &str) {
    let began = Instant::now();
    loop {
        let said = cluster.logs("default", pod, "").await;
        if said.as_ref().is_ok_and(|said| said.lines().any(|one| one == line)) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{pod} never says {line:?} but {said:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    status.unwrap_or_default()
}

fn last_exit(pod: &Pod) -> Option<i32> {
    Some(statuses(pod).first()?.last_state.as_ref()?.terminated.as_ref()?.exit_code)
}
