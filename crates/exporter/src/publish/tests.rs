//! The publisher against an API server that follows a script.

use api::convert::wire_zones;
use api::nrt::NodeResourceTopology;
use prometheus_client::registry::Registry;
use runtime::ready::Readiness;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use topology::resource::ResourceName;
use topology::zone::{Zone, ZoneId, ZoneResource};

use super::*;
use crate::script::{Answer, Requests, refusal, server};
use crate::settings::{Mode, OwnerKind};

mod permissions;

/// A publisher of `n1` that starts with this state of the server.
struct Rig {
    desired: watch::Sender<Option<Desired>>,
    known: Arc<watch::Sender<ServerState>>,
    reports: tokio::sync::mpsc::UnboundedReceiver<Result<(), String>>,
    requests: Requests,
    task: JoinHandle<Result<Infallible, RecvError>>,
}

/// As far as tests do not care.
const PATCHING: Publishing =
    Publishing { mode: Mode::Patch, resync: None, owner: OwnerKind::Leave, timing: false };

impl Rig {
    fn start(publishing: Publishing, known: ServerState, answers: impl IntoIterator<Item = Answer>) -> Self {
        let (client, requests) = server(answers);
        let known = Arc::new(watch::Sender::new(known));
        let metrics = Metrics::register(&mut Registry::default(), "n1");
        let target = Target {
            name: "n1".to_owned(),
            publishing,
            reread: Duration::from_millis(200),
            namespace: Some("numa".to_owned()),
        };
        let gate = Readiness::default().gate("published");
        let publisher = Publisher::new(target, client, Arc::clone(&known), metrics, gate);
        let (desired, receiver) = watch::channel(None);
        let (sender, reports) = tokio::sync::mpsc::unbounded_channel();
        let task = tokio::spawn(publisher.run(receiver, move |result| drop(sender.send(result))));
        Self { desired, known, reports, requests, task }
    }

    /// One whose watch works.
    fn watching(stored: StoredObject, answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::start(PATCHING, ServerState { stored, ..ServerState::default() }, answers)
    }

    fn want(&self, cpus: i64) {
        self.desired.send_replace(Some(desired(cpus)));
    }

    /// Checks the next request's method and path, and returns its body.
    async fn expect(&mut self, line: &str) -> Value {
        self.requests.expect(line).await
    }

    async fn report(&mut self) -> Result<(), String> {
        let report = tokio::time::timeout(Duration::from_secs(10), self.reports.recv()).await;
        report.expect("a report within 10 s").unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn desired(cpus: i64) -> Desired {
    let cpu =
        ZoneResource { name: ResourceName::CPU, capacity: 8_000, allocatable: 8_000, available: cpus * 1000 };
    let zone = Zone { id: ZoneId(0), resources: vec![cpu], distances: vec![] };
    let content = Arc::new(Content { zones: wire_zones(&[zone]), ..Content::default() });
    Desired {
        content,
        trigger: "reactive",
        timing: Timing::default(),
        noticed_at: Instant::now(),
        kubelet_starts: 0,
    }
}

/// The object as stored, at this resource version.
fn stored(cpus: i64, version: u64) -> NodeResourceTopology {
    let context = WriteContext::new("n1", "reactive");
    let mut object = desired(cpus).content.object(&context);
    object.metadata.uid = Some("o".to_owned());
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn ok(cpus: i64, version: u64) -> (u16, Value) {
    (200, json!(stored(cpus, version)))
}

/// What a body says at this path, whichever notation it has.
fn said<'a>(body: &'a Value, path: &str) -> &'a Value {
    let of_edit = |edit: &'a Vec<Value>| edit.iter().find(|operation| operation["path"] == path);
    let found = match body.as_array() {
        Some(edit) => of_edit(edit).map(|operation| &operation["value"]),
        None => body.pointer(path),
    };
    found.unwrap_or(&Value::Null)
}

fn available(body: &Value) -> &Value {
    said(body, "/zones/0/resources/0/available")
}

fn version(body: &Value) -> &Value {
    said(body, "/metadata/resourceVersion")
}

fn owner(body: &Value) -> &Value {
    said(body, "/metadata/ownerReferences/0/uid")
}

const OBJECT: &str = "noderesourcetopologies/n1";

#[tokio::test]
async fn nothing_is_written_before_the_watch_has_told_or_when_nothing_differs() {
    let mut rig = Rig::watching(StoredObject::Unknown, []);
    rig.want(5);
    rig.known.send_modify(|known| known.stored = StoredObject::present(stored(5, 1)));
    assert_eq!(rig.report().await, Ok(()));
    assert!(rig.requests.are_none());
}

#[tokio::test]
async fn a_conflict_is_solved_by_looking_again() {
    let answers = [refusal(409, "Conflict"), ok(7, 2), ok(5, 3)];
    let mut rig = Rig::watching(StoredObject::present(stored(6, 1)), answers);
    rig.want(5);
    assert_eq!(version(&rig.expect(&format!("PATCH {OBJECT}")).await), "1");
    rig.expect(&format!("GET {OBJECT}")).await;
    let body = rig.expect(&format!("PATCH {OBJECT}")).await;
    assert_eq!((available(&body), version(&body)), (&json!("5"), &json!("2")));
    assert_eq!(rig.report().await, Ok(()));
}

#[tokio::test]
async fn an_object_that_went_is_created_and_one_that_came_is_patched() {
    let mut rig = Rig::watching(StoredObject::present(stored(6, 1)), [refusal(404, "NotFound"), ok(5, 3)]);
    rig.want(5);
    rig.expect(&format!("PATCH {OBJECT}")).await;
    let body = rig.expect("POST v1alpha2/noderesourcetopologies").await;
    assert_eq!(available(&body), "5");
    assert_eq!(rig.report().await, Ok(()));

    let mut rig = Rig::watching(StoredObject::Absent, [refusal(409, "AlreadyExists"), ok(6, 4), ok(5, 5)]);
    rig.want(5);
    rig.expect("POST v1alpha2/noderesourcetopologies").await;
    rig.expect(&format!("GET {OBJECT}")).await;
    assert_eq!(version(&rig.expect(&format!("PATCH {OBJECT}")).await), "4");
    assert_eq!(rig.report().await, Ok(()));
}

/// Places of a JSON patch may be gone, and a server may not know it at all.
#[tokio::test]
async fn what_cannot_be_edited_is_merged() {
    for code in [400, 415, 422] {
        let answers = [refusal(code, "Invalid"), ok(6, 4), ok(5, 5), ok(4, 6)];
        let mut rig = Rig::watching(StoredObject::present(stored(6, 1)), answers);
        rig.want(5);
        let edit = rig.expect(&format!("PATCH {OBJECT}")).await;
        assert!(edit.is_array() && version(&edit) == "1", "{edit}");
        rig.expect(&format!("GET {OBJECT}")).await;
        let merge = rig.expect(&format!("PATCH {OBJECT}")).await;
        assert_eq!((merge.is_object(), available(&merge), version(&merge)), (true, &json!("5"), &json!("4")));
        assert_eq!(rig.report().await, Ok(()));
        rig.want(4);
        assert!(rig.expect(&format!("PATCH {OBJECT}")).await.is_array(), "that was for once");
    }
}

#[tokio::test]
async fn refusals_are_tried_again_with_the_newest_content_only() {
    let answers = [refusal(500, "InternalError"), refusal(429, "TooManyRequests"), ok(3, 2)];
    let mut rig = Rig::watching(StoredObject::present(stored(6, 1)), answers);
    rig.want(5);
    assert_eq!(available(&rig.expect(&format!("PATCH {OBJECT}")).await), "5");
    assert_eq!(rig.report().await, Err("patch: 500 InternalError: no".to_owned()));
    rig.want(4);
    rig.want(3);
    assert_eq!(available(&rig.expect(&format!("PATCH {OBJECT}")).await), "3");
    assert_eq!(rig.report().await, Err("patch: 429 TooManyRequests: no".to_owned()));
    assert_eq!(available(&rig.expect(&format!("PATCH {OBJECT}")).await), "3");
    assert_eq!(rig.report().await, Ok(()));
}

#[tokio::test]
async fn without_its_node_there_is_no_object() {
    let node = |uid: &str| (200, json!({ "metadata": { "name": "n1", "uid": uid } }));
    let owned = |cpus, version, uid: &str| {
        let owner = &Owner::Node { uid: uid.to_owned() };
        let context = WriteContext { owner, ..WriteContext::new("n1", "reactive") };
        let mut object = stored(cpus, version);
        object.metadata.owner_references = desired(cpus).content.object(&context).metadata.owner_references;
        (200, json!(object))
    };
    let away = refusal(500, "InternalError");
    let [first, second, third, fourth] =
        [owned(5, 1, "u1"), owned(4, 2, "u2"), owned(3, 3, "u2"), owned(2, 4, "u2")];
    let answers = [refusal(404, "NotFound"), node("u1"), first, node("u2"), second, away, third, fourth];
    let owned = Publishing { owner: OwnerKind::Node, ..PATCHING };
    let mut rig =
        Rig::start(owned, ServerState { stored: StoredObject::Absent, ..ServerState::default() }, answers);
    rig.want(5);
    rig.expect("GET nodes/n1").await;
    let reason =
        "there is no Node \"n1\" to own the object (yet); --add-nrt-owner=false publishes without one";
    assert_eq!(rig.report().await, Err(reason.to_owned()));
    rig.expect("GET nodes/n1").await;
    let body = rig.expect("POST v1alpha2/noderesourcetopologies").await;
    assert_eq!(owner(&body), "u1");
    assert_eq!(rig.report().await, Ok(()));

    // The kubelet started again: the node may be another one.
    rig.desired.send_replace(Some(Desired { kubelet_starts: 1, ..desired(4) }));
    rig.expect("GET nodes/n1").await;
    let body = rig.expect(&format!("PATCH {OBJECT}")).await;
    assert_eq!(owner(&body), "u2");
    assert_eq!(rig.report().await, Ok(()));

    // The Node cannot be read: the zones are published all the same, under the known owner, and reads do not repeat.
    rig.desired.send_replace(Some(Desired { kubelet_starts: 2, ..desired(3) }));
    rig.expect("GET nodes/n1").await;
    let body = rig.expect(&format!("PATCH {OBJECT}")).await;
    assert_eq!((available(&body), owner(&body)), (&json!("3"), &Value::Null));
    assert_eq!(rig.report().await, Ok(()));
    rig.desired.send_replace(Some(Desired { kubelet_starts: 2, ..desired(2) }));
    assert_eq!(available(&rig.expect(&format!("PATCH {OBJECT}")).await), "2");
}

#[tokio::test]
async fn a_deleted_object_is_written_at_once() {
    let mut rig = Rig::watching(StoredObject::present(stored(5, 1)), [ok(5, 7)]);
    rig.want(5);
    assert_eq!(rig.report().await, Ok(()));
    assert!(rig.known.send_if_modified(|known| known.take(runtime::watch::Event::Deleted(stored(5, 6)))));
    rig.expect("POST v1alpha2/noderesourcetopologies").await;
}

#[tokio::test]
async fn a_missing_kind_is_told_by_the_name_of_its_definition() {
    let crd = "is the CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io installed?";
    for (mode, verb, request) in [
        (Mode::Patch, "create", "POST v1alpha2/noderesourcetopologies".to_owned()),
        (Mode::Apply, "patch", format!("APPLY {OBJECT}")),
    ] {
        let known = ServerState { stored: StoredObject::Absent, ..ServerState::default() };
        let answers = [refusal(404, "NotFound"), refusal(500, "InternalError"), ok(5, 1)];
        let mut rig = Rig::start(Publishing { mode, ..PATCHING }, known, answers);
        rig.want(5);
        for wanted in [
            Err(format!("{verb}: 404 NotFound: no; {crd}")),
            Err(format!("{verb}: 500 InternalError: no")),
            Ok(()),
        ] {
            rig.expect(&request).await;
            assert_eq!(rig.report().await, wanted);
        }
    }
}
