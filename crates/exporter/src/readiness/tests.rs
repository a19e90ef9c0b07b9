use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinHandle;

use super::*;
use crate::script::{Answer, Requests, refusal, server};

const POD: &str = "GET pods/us";
const PATCH: &str = "PATCH us/status";
const PUT: &str = "PUT us/status";
const EARLIER: &str = "2026-01-02T03:04:05Z";

struct Rig {
    progress: watch::Sender<Progress>,
    requests: Requests,
    task: JoinHandle<Result<Infallible, RecvError>>,
}

impl Rig {
    fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let (client, requests) = server(answers);
        let pod = PodName { namespace: "numa".to_owned(), name: "us".to_owned() };
        let (progress, receiver) = watch::channel(Progress::default());
        let task = tokio::spawn(Conditions::new(pod, client).run(receiver));
        Self { progress, requests, task }
    }

    fn goes(&self, fetched: Option<bool>, updated: Option<bool>) {
        self.progress.send_replace(Progress { fetched, updated });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Our pod with these conditions.
fn pod(conditions: Value) -> Answer {
    (
        200,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "us", "namespace": "numa", "resourceVersion": "7" },
            "spec": { "containers": [{ "name": "c", "unheardOf": [1] }] },
            "status": { "phase": "Running", "conditions": conditions },
        }),
    )
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "lastTransitionTime": EARLIER })
}

#[test]
fn words_are_the_peers() {
    let text = |fetched, updated| {
        let progress = Progress { fetched, updated };
        let one = |kind: Kind| kind.of(progress);
        let show = |c: Condition| [c.kind, c.status, c.reason, c.message].join("|");
        Kind::ALL.into_iter().filter_map(one).map(show).collect::<Vec<_>>()
    };
    assert_eq!(text(None, None), Vec::<String>::new());
    assert_eq!(text(Some(true), Some(true)), ["PodresourcesFetched|True||", "NodeTopologyUpdated|True||"]);
    assert_eq!(
        text(Some(false), Some(false)),
        [
            "PodresourcesFetched|False|ScanFailed|failed to scan pod resources",
            "NodeTopologyUpdated|False|UpdateFailed|failed to update noderesourcetopology object",
        ]
    );
}

/// Equality sees type, status, reason and message, and not times; a time changes when the status does.
#[test]
fn only_a_flip_is_a_transition() {
    let progress = |went| Progress { fetched: Some(went), updated: None };
    let (good, bad) = (Kind::Fetched.of(progress(true)).unwrap(), Kind::Fetched.of(progress(false)).unwrap());
    let now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
    let since = |entry: Value| entry["lastTransitionTime"].clone();
    let there = condition("PodresourcesFetched", "True");
    assert!(good.is(&there) && !bad.is(&there));
    assert_eq!(since(good.entry(Some(&there), now)), EARLIER);
    assert_eq!(since(bad.entry(Some(&there), now)), "2026-03-01T00:00:00Z");
    assert_eq!(since(good.entry(None, now)), "2026-03-01T00:00:00Z");
    let mut odd = there.clone();
    odd["reason"] = json!("Odd");
    assert!(!good.is(&odd));
    assert_eq!(since(good.entry(Some(&odd), now)), EARLIER);
}

#[tokio::test]
async fn a_change_is_one_patch_and_no_change_is_nothing() {
    let there = json!([condition("Ready", "False"), condition("PodresourcesFetched", "True")]);
    let answers =
        [pod(there.clone()), pod(there.clone()), pod(json!([])), pod(there.clone()), pod(json!([]))];
    let mut rig = Rig::start(answers);
    // It is there already: a restart writes nothing.
    rig.goes(Some(true), None);
    rig.requests.expect(POD).await;
    rig.goes(Some(true), Some(true));
    rig.requests.expect(POD).await;
    let body = rig.requests.expect(PATCH).await;
    let entry = &body["status"]["conditions"][0];
    assert_eq!((&entry["type"], &entry["status"]), (&json!("NodeTopologyUpdated"), &json!("True")));
    assert_eq!(entry.as_object().unwrap()["reason"], Value::Null, "removed if there was one");
    rig.goes(Some(true), Some(true));
    rig.goes(Some(false), Some(true));
    rig.requests.expect(POD).await;
    let body = rig.requests.expect(PATCH).await;
    assert_eq!(body["status"]["conditions"][0]["reason"], "ScanFailed");
    assert_eq!(body["status"]["conditions"].as_array().unwrap().len(), 1);
    assert!(rig.requests.are_none());
}

#[tokio::test]
async fn without_patch_the_pod_is_put_back_whole() {
    let there = json!([condition("Ready", "False"), condition("PodresourcesFetched", "False")]);
    let no = || refusal(403, "Forbidden");
    let answers =
        [pod(there.clone()), no(), pod(there.clone()), refusal(409, "Conflict"), pod(there.clone())];
    let mut rig = Rig::start(answers.into_iter().chain([pod(json!([])), pod(json!([])), pod(json!([]))]));
    rig.goes(Some(true), None);
    for line in [POD, PATCH, POD, PUT, POD] {
        rig.requests.expect(line).await;
    }
    let body = rig.requests.expect(PUT).await;
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert_eq!(body["spec"]["containers"][0]["unheardOf"], json!([1]), "what we do not know is kept");
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!((conditions.len(), &conditions[0]), (2, &there[0]));
    assert_eq!(conditions[1]["status"], "True");
    assert_eq!(conditions[1].get("reason"), None);
    // It knows now.
    rig.goes(Some(true), Some(false));
    rig.requests.expect(POD).await;
    let body = rig.requests.expect(PUT).await;
    assert_eq!(body["status"]["conditions"][0]["reason"], "UpdateFailed");
}

#[tokio::test]
async fn a_failure_is_tried_again_with_the_newest() {
    let answers = [refusal(500, "InternalError"), pod(json!([])), refusal(500, "InternalError")];
    let answers = answers.into_iter().chain([pod(json!([])), pod(json!([]))]);
    let mut rig = Rig::start(answers);
    rig.goes(Some(false), None);
    rig.requests.expect(POD).await;
    rig.goes(Some(true), None);
    rig.requests.expect(POD).await;
    rig.requests.expect(PATCH).await;
    rig.requests.expect(POD).await;
    let body = rig.requests.expect(PATCH).await;
    assert_eq!(body["status"]["conditions"][0]["status"], "True");
}
