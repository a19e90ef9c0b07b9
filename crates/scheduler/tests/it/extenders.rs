//! Extenders: asked by us as by kube-scheduler, with the same words, and with the same effect.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::Uri;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use tokio::net::TcpListener;

use crate::cluster::{Running, create, delete, eventually, fake_node, node_of, pods};

const OURS: &str = "topo-aware-scheduler";
const STOCK: &str = "default-scheduler";
const IMPORTANT: &str = "important";

/// A program that refuses nodes by their names, prefers one, and binds.
#[derive(Clone)]
struct Program {
    client: Client,
    /// What it was asked: path, pod, nodes or victims, in short.
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Program {
    /// Serves on a port of its own, which it returns.
    async fn serve(client: &Client) -> (Self, u16) {
        let program = Self { client: client.clone(), asked: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().fallback(answer).with_state(program.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (program, port)
    }

    async fn bind(&self, question: &Value) -> Value {
        let text = |name: &str| Some(question[name].as_str().unwrap().to_owned());
        let metadata = ObjectMeta { name: text("PodName"), uid: text("PodUID"), ..ObjectMeta::default() };
        let target = ObjectReference { name: text("Node"), ..ObjectReference::default() };
        let body = Binding { metadata, target };
        let (pods, params, name) =
            (pods(&self.client), PostParams::default(), question["PodName"].as_str().unwrap());
        match pods.create_subresource::<_, Value>("binding", name, &params, &body).await {
            Ok(_) => json!({ "Error": "" }),
            Err(error) => json!({ "Error": error.to_string() }),
        }
    }
}

async fn answer(State(program): State<Program>, uri: Uri, Json(question): Json<Value>) -> Json<Value> {
    let pod = question["Pod"]["metadata"]["name"].as_str().or(question["PodName"].as_str()).unwrap();
    let names = names(&question);
    let victims = question["NodeNameToMetaVictims"].as_object().map(|map| map.keys().collect::<Vec<_>>());
    let short = format!("{} {pod} {names:?} {victims:?} {}", uri.path(), question["Node"]);
    program.asked.lock().unwrap().insert(short);
    Json(match uri.path().rsplit('/').next().unwrap() {
        "filter" if pod.contains("broken") => json!({ "Error": "the extender is in a bad mood" }),
        // Lower case, as many extenders have it.
        "filter" => {
            let is = |name: &String, what: &str| name.ends_with(what);
            let reasons = |what: &str, text: &str| -> Value {
                names.iter().filter(|name| is(name, what)).map(|name| (name.clone(), json!(text))).collect()
            };
            let fits: Vec<_> = names.iter().filter(|name| !is(name, "-bad") && !is(name, "-never")).collect();
            json!({
                "nodenames": fits,
                "failedNodes": reasons("-bad", "the extender says no"),
                "failedAndUnresolvableNodes": reasons("-never", "never there"),
            })
        }
        // An extender that is sent whole nodes sends them back.
        "whole" => {
            let items = question["Nodes"]["items"].as_array().unwrap();
            assert!(items.iter().all(|node| node["status"]["allocatable"]["cpu"] == "16"), "{question}");
            assert_eq!(question["NodeNames"], Value::Null);
            json!({ "Nodes": question["Nodes"] })
        }
        "score" => names
            .iter()
            .map(|name| json!({ "Host": name, "Score": u8::from(name.ends_with("-best")) * 10 }))
            .collect(),
        "preempt" => {
            let good = |node: &String| node.ends_with("-good");
            let kept = question["NodeNameToMetaVictims"].as_object().unwrap().iter();
            let kept: Value =
                kept.filter(|(node, _)| good(node)).map(|(k, v)| (k.clone(), v.clone())).collect();
            json!({ "NodeNameToMetaVictims": kept })
        }
        "bind" => program.bind(&question).await,
        other => json!({ "Error": format!("there is no {other}") }),
    })
}

/// The nodes of a question, in order.
fn names(question: &Value) -> Vec<String> {
    let named = question["NodeNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let items = question["Nodes"]["items"].as_array().into_iter().flatten();
    let whole = items.filter_map(|node| node["metadata"]["name"].as_str());
    named.chain(whole).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

/// A configuration for a scheduler, whose name is in the URLs. The last extender is not there.
fn config(scheduler: &str, kubeconfig: &Path, port: u16) -> String {
    let url = format!("http://127.0.0.1:{port}/{scheduler}");
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig },
        "leaderElection": { "leaderElect": false },
        "profiles": [{ "schedulerName": scheduler }],
        "extenders": [
            {
                "urlPrefix": format!("{url}/"), "filterVerb": "filter", "prioritizeVerb": "score", "preemptVerb": "preempt",
                "bindVerb": "bind", "weight": 100, "nodeCacheCapable": true,
            },
            { "urlPrefix": url, "filterVerb": "whole", "httpTimeout": "10s" },
            { "urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "prioritizeVerb": "score", "weight": 1, "ignorable": true },
            {
                "urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter",
                "managedResources": [{ "name": "vendor.example/other" }],
            },
        ],
    })
    .to_string()
}

/// A pod for the nodes of a scheduler with these names; none: all.
fn pod(scheduler: &str, name: &str, cpus: u32, nodes: &[&str]) -> Pod {
    let cpus = cpus.to_string();
    let name = format!("{scheduler}-{name}");
    let mut pod = testkit::load::guaranteed_pod(&name, scheduler, [("cpu", &*cpus), ("memory", "64Mi")]);
    let spec = pod.spec.as_mut().unwrap();
    spec.node_selector = Some([("of".to_owned(), scheduler.to_owned())].into());
    if !nodes.is_empty() {
        let values: Vec<String> = nodes.iter().map(|node| format!("{scheduler}-{node}")).collect();
        let matches = json!([{ "key": "called", "operator": "In", "values": values }]);
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": matches }] });
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
        spec.affinity = serde_json::from_value(affinity).unwrap();
    }
    pod
}

/// The condition PodScheduled: reason and message.
async fn condition(client: &Client, name: &str) -> Option<String> {
    let conditions = pods(client).get(name).await.unwrap().status?.conditions?;
    let condition = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
    Some(format!(
        "{} {} {}",
        condition.status,
        condition.reason.unwrap_or_default(),
        condition.message.unwrap_or_default()
    ))
}

/// The same pods for a scheduler with four nodes of 16 CPUs. Returns what was seen of them.
async fn story(client: &Client, scheduler: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let named = |name: &str| format!("{scheduler}-{name}");
    for (name, cpus, nodes) in
        [("scored", 1, &[][..]), ("nominated", 16, &["good"]), ("filling", 15, &["best"])]
    {
        create(client, &pod(scheduler, name, cpus, nodes)).await;
        let name = named(name);
        seen.push(eventually(&name, async || node_of(client, &name).await).await);
    }
    for (name, cpus, nodes) in
        [("refused", 1, &["bad", "never"][..]), ("never", 1, &["never"]), ("broken", 1, &["bad", "never"])]
    {
        create(client, &pod(scheduler, name, cpus, nodes)).await;
        let name = named(name);
        seen.push(eventually(&name, async || condition(client, &name).await).await);
        delete(client, &name).await;
    }
    // Both full nodes are candidates; the extender wants only one.
    let mut important = pod(scheduler, "important", 14, &["best", "good"]);
    important.spec.as_mut().unwrap().priority_class_name = Some(IMPORTANT.to_owned());
    create(client, &important).await;
    let nominated = async || pods(client).get(&named("important")).await.unwrap().status?.nominated_node_name;
    seen.push(eventually("a nomination", nominated).await);
    let is_leaving = async || {
        let victim = pods(client).get(&named("nominated")).await.unwrap();
        victim.metadata.deletion_timestamp.map(|_| ())
    };
    eventually("the victim leaves", is_leaving).await;
    let stays = pods(client).get(&named("filling")).await.unwrap();
    assert_eq!(stays.metadata.deletion_timestamp, None);
    seen.iter().map(|text| text.replace(scheduler, "S")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn extenders_are_asked_as_by_kube_scheduler_and_have_the_same_say() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    for scheduler in [OURS, STOCK] {
        for node in ["bad", "never", "best", "good"] {
            let name = format!("{scheduler}-{node}");
            fake_node(&client, &name).await;
            let labels = json!({ "metadata": { "labels": { "of": scheduler, "called": name } } });
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
        }
    }
    let class = json!({ "metadata": { "name": IMPORTANT }, "value": 1000 });
    let classes: Api<PriorityClass> = Api::all(client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let (program, port) = Program::serve(&client).await;
    let dir = tempfile::tempdir().unwrap();
    let file = |scheduler: &str| {
        let file = dir.path().join(format!("{scheduler}.yaml"));
        std::fs::write(&file, config(scheduler, control.kubeconfig(), port)).unwrap();
        format!("--config={}", file.display())
    };
    let scheduler = Running::start(control.kubeconfig(), &[&file(OURS)]);
    let _stock = control.start_scheduler_with(&[file(STOCK)]).await.unwrap();

    let (ours, stock) = tokio::join!(story(&client, OURS), story(&client, STOCK));
    assert_eq!(ours, stock);
    assert_eq!(ours[..3], ["S-best", "S-good", "S-best"]);
    assert!(
        ours[3].contains("1 never there, 1 the extender says no") || ours[3].contains("the extender says no"),
        "{ours:?}"
    );
    assert!(ours[5].starts_with("False SchedulerError the extender is in a bad mood"), "{ours:?}");
    assert_eq!(ours[6], "S-good");
    let asked = program.asked.lock().unwrap().clone();
    let of = |scheduler: &str| -> BTreeSet<String> {
        let of = asked.iter().filter(|text| text.starts_with(&format!("/{scheduler}/")));
        of.map(|text| text.replace(scheduler, "S")).collect()
    };
    assert_eq!(of(OURS), of(STOCK));
    for verb in ["filter", "whole", "score", "preempt", "bind"] {
        assert!(of(OURS).iter().any(|text| text.starts_with(&format!("/S/{verb} "))), "{verb}: {asked:#?}");
    }
    scheduler.stop().await;
}
