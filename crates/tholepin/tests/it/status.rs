//! What a person types on a fresh cluster: how is it, install, how is it now, remove.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::env::rig;
use testkit::load::guaranteed_pod;
use testkit::machine::Machine;
use testkit::net;
use tokio::time::timeout;

use super::{Installed, monitoring, run_async};

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const NAME: &str = "tholepin-scheduler";

#[test]
fn one_command_says_how_it_is_and_what_comes_next() {
    let Ok(rig) = rig() else { return };
    net::private(async |network| {
        let machine = Machine::new().zones(2).cpus_per_zone(8);
        let program = Path::new(env!("CARGO_BIN_EXE_tholepin"));
        let images = Images::new().with("tholepin:test", Image::program(program));
        let cluster = Cluster::builder().machines([machine]).installable(network, images);
        let cluster = cluster.start(&rig).await.unwrap();
        let installed = Installed::under("tholepin");
        let kubeconfig = cluster.control().kubeconfig().display().to_string();
        let run =
            async |words: &str| run_async(&installed.program, words, &[("KUBECONFIG", &kubeconfig)]).await;
        let said = async |words: &str, code: i32, lines: &[&str]| {
            let (is, stdout, stderr) = run(words).await;
            assert_eq!(is, code, "{words}: {stdout}{stderr}");
            for line in lines {
                assert!(stdout.contains(line), "{words}: {line:?} is missing: {stdout}");
            }
        };

        let absent = "nothing is installed; next: tholepin deploy --wait\n";
        said("status", 1, &["Exporters     none\n", "Schedulers    none\n", absent]).await;
        let client = cluster.client().await.unwrap();
        let (code, _, stderr) = run("deploy --image tholepin:test --monitoring").await;
        let wanted = "error: --monitoring: the cluster does not serve PodMonitor and PrometheusRule of \
                      monitoring.coreos.com/v1: install the Prometheus operator, or leave the flag out\n";
        assert_eq!((code, &*stderr), (1, wanted));
        said("status", 1, &[absent]).await;
        let (code, _, stderr) = run("deploy --image tholepin:test --wait").await;
        assert_eq!(code, 0, "{stderr}");
        let ready = [
            "Exporters     1 of 1 ready, DaemonSet tholepin/tholepin-exporter\n",
            "Schedulers    1 of 1 ready, Deployment tholepin-scheduler/tholepin-scheduler, schedulerName: \
             topo-aware-scheduler, leader: tholepin-scheduler-",
            "Lost pods     none in 24 h\n",
            "ready; next: tholepin test\n",
        ];
        said("status --wait", 0, &ready).await;
        let (_, stdout, _) = run("status -o json").await;
        let status: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((&status["state"], &status["unknown"]), (&json!("ready"), &json!([])), "{status}");

        five_questions(&client, &run).await;
        monitoring::metrics_are_as_documented(&client).await;
        monitoring::install_definitions(&client).await;
        let (code, _, stderr) = run("deploy --image tholepin:test --monitoring").await;
        assert_eq!(code, 0, "{stderr}");
        let made = ["exporter", "scheduler"]
            .map(|name| ["PodMonitor", "PrometheusRule"].map(|kind| format!("{kind} tholepin-{name}")));
        let mut made: Vec<String> = made.concat();
        made.push("dashboard tholepin".to_owned());
        made.sort();
        assert_eq!(monitoring::objects(&client).await.into_iter().collect::<Vec<_>>(), made);
        // Without the flag they go again.
        let (code, _, stderr) = run("deploy --image tholepin:test").await;
        assert_eq!((code, monitoring::objects(&client).await.len()), (0, 0), "{stderr}");

        let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAME);
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        deployments.patch(NAME, &PatchParams::default(), &none).await.unwrap();
        said("status", 1, &["not ready; next: tholepin validate\n"]).await;

        let (code, _, stderr) = run("remove --wait").await;
        assert_eq!(code, 0, "{stderr}");
        // The definition goes with its objects.
        said("status", 1, &[absent]).await;
    })
    .unwrap();
}

/// What people ask of a cluster, and the one command that answers: its exit code, and words of the answer.
const QUESTIONS: [(&str, &str, i32, &[&str]); 6] = [
    (
        "Why does my pod wait?",
        "explain pod default/waits",
        1,
        &["cannot align container \"main\": cpu: requested 10, most in one zone 8", "instead of 10"],
    ),
    ("Where would it fit?", "capacity --shape cpu=4,memory=64Mi", 0, &["\n node-0  "]),
    (
        "Which node wastes most?",
        "capacity --shape cpu=5,memory=64Mi --sort left -o wide",
        0,
        &["LEFT OVER", "node-0"],
    ),
    ("Is the exporter fresh?", "status", 0, &["Reports       1 of 1 fresh\n", "Waiting pods  1"]),
    (
        "What happens with two more nodes?",
        "simulate --live --add 2x16=2 --pending --schedulers tholepin",
        0,
        &["1 pod on 3 nodes", "Tholepin ran all 1"],
    ),
    ("Would moves help?", "defrag", 1, &["No room for default/waits: no plan of 4 moves or fewer was found"]),
];

/// Asks them about a cluster of one node of 2 x 8 CPUs, with a pod that no zone has room for.
async fn five_questions(client: &kube::Client, run: &impl AsyncFn(&str) -> (i32, String, String)) {
    let mut pod = guaranteed_pod("waits", "topo-aware-scheduler", [("cpu", "10"), ("memory", "64Mi")]);
    pod.metadata.namespace = Some("default".to_owned());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let refused = |pod: Option<&Pod>| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.reason.as_deref() == Some("Unschedulable")))
    };
    timeout(PATIENCE, await_condition(pods.clone(), "waits", refused)).await.expect("in time").unwrap();
    for (question, command, code, words) in QUESTIONS {
        let (is, stdout, stderr) = run(command).await;
        assert_eq!(is, code, "{question} tholepin {command}: {stdout}{stderr}");
        for wanted in words {
            assert!(
                stdout.contains(wanted),
                "{question} tholepin {command}: {wanted:?} is missing: {stdout}"
            );
        }
    }
    pods.delete("waits", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(pods, "waits", |pod: Option<&Pod>| pod.is_none());
    timeout(PATIENCE, gone).await.expect("in time").unwrap();
}
