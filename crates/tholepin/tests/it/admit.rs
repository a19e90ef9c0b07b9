//! A real kubelet does with a pod what `tholepin admit` says from its node's report, CPU by CPU.

use std::path::Path;
use std::time::{Duration, Instant};

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::env::rig;
use testkit::kubelet::KubeletOptions;
use testkit::load;
use testkit::machine::Machine;
use topology::policy::Policy;

use super::{Installed, exporter_flags, run_async};

/// Far above what a kubelet takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

/// CPUs of a pod, and of its init container, if it has one.
const PODS: [(&str, Option<&str>); 8] = [
    ("2", None),
    ("4", Some("6")),
    ("3", None),
    ("2", Some("2")),
    ("8", None),
    ("4", None),
    ("6", None),
    ("2", None),
];

#[tokio::test]
async fn kubelets_do_what_their_reports_say() {
    let Ok(rig) = rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(12).smt(true);
    let options = KubeletOptions {
        policy: Policy::Restricted,
        static_memory: false,
        reserved_cpus: "0,12".to_owned(),
        config: json!({"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}).as_object().unwrap().clone(),
        ..KubeletOptions::default()
    };
    let cluster = Cluster::builder().node(machine, options).start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let node = &cluster.nodes()[0];
    let kubelet = node.kubelet();
    let installed = Installed::under("tholepin");
    let folder = installed.program.parent().unwrap();
    let flags = exporter_flags(node);
    let (mut admitted, mut rejected) = (0, 0);
    for (at, (cpus, init)) in PODS.into_iter().enumerate() {
        let name = format!("p{at}");
        // The report of this moment, with the Node and its pods: a dump.
        let command = format!("exporter --oneshot --dry-run {flags}");
        let (code, report, stderr) = run_async(&installed.program, &command, &[]).await;
        assert_eq!(code, 0, "{stderr}");
        let report: NodeResourceTopology = serde_saphyr::from_str(&report).unwrap();
        let mut items = vec![json!(report)];
        items.push(object("Node", json!(Api::<Node>::all(client.clone()).get(node.name()).await.unwrap())));
        let there = pods.list(&Default::default()).await.unwrap();
        items.extend(there.items.into_iter().map(|pod| object("Pod", json!(pod))));
        let pod = pod(&name, node.name(), cpus, init);
        write(&folder.join("dump.yaml"), &json!({"apiVersion": "v1", "kind": "List", "items": items}));
        write(&folder.join("pod.yaml"), &object("Pod", json!(pod)));
        let command = format!(
            "admit --from {}/dump.yaml --node {} --pods {}/pod.yaml -o json",
            folder.display(),
            node.name(),
            folder.display()
        );
        let (_, told, stderr) = run_async(&installed.program, &command, &[]).await;
        let told: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{stderr}"));
        let told = &told["pods"][0];

        let uid = pods.create(&PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap();
        let reason = decided(&pods, &name).await;
        assert_eq!(told["reason"], json!(reason), "{name}: {told}");
        let state = std::fs::read_to_string(kubelet.root_dir().join("cpu_manager_state")).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        for container in told["containers"].as_array().into_iter().flatten() {
            let held = &state["entries"][&uid][container["name"].as_str().unwrap()];
            assert_eq!(&container["cpus"], held, "{name}: {told}");
        }
        *(if reason.is_empty() { &mut admitted } else { &mut rejected }) += 1;
    }
    assert!(admitted > 3 && rejected > 0, "{admitted} admitted, {rejected} rejected");
}

/// Objects of a list lack their kind.
fn object(kind: &str, mut value: Value) -> Value {
    value["apiVersion"] = "v1".into();
    value["kind"] = kind.into();
    value
}

fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).unwrap();
}

fn pod(name: &str, node: &str, cpus: &str, init: Option<&str>) -> Pod {
    let of = |cpus| load::guaranteed_pod(name, "nobody", [("cpu", cpus), ("memory", "64Mi")]);
    let mut pod = of(cpus);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.init_containers = init.map(|cpus| {
        let container = of(cpus).spec.unwrap_or_default().containers.remove(0);
        vec![Container { name: "init".to_owned(), ..container }]
    });
    pod
}

/// The reason for which the kubelet rejected the pod; empty if it did not.
async fn decided(pods: &Api<Pod>, name: &str) -> String {
    let began = Instant::now();
    loop {
        let status = pods.get(name).await.unwrap().status.unwrap_or_default();
        match status.phase.as_deref() {
            Some("Failed") => return status.reason.unwrap_or_default(),
            // The kubelet has made its sandbox, or is about to.
            _ if status
                .conditions
                .iter()
                .flatten()
                .any(|c| c.type_ == "PodReadyToStartContainers" && c.status == "True") =>
            {
                return String::new();
            }
            _ => {}
        }
        assert!(began.elapsed() < PATIENCE, "{name} was not decided about: {status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
