//! The publisher with every role there is.

use super::*;

/// Requests with their answers.
type Script = [(&'static str, Answer)];

/// Runs until something is published; the bodies of the requests on the way.
async fn check(case: &str, publishing: Publishing, known: ServerState, script: &Script) -> Vec<Value> {
    let mut rig = Rig::start(publishing, known, script.iter().map(|(_, answer)| answer.clone()));
    rig.want(5);
    let mut bodies = Vec::new();
    for (line, _) in script {
        let line = line.replace("OBJECT", OBJECT).replace("OBJECTS", "v1alpha2/noderesourcetopologies");
        bodies.push(rig.expect(&line).await);
    }
    assert_eq!(rig.report().await, Ok(()), "{case}");
    bodies
}

fn no() -> Answer {
    refusal(403, "Forbidden")
}

fn unwatched() -> ServerState {
    ServerState { unwatched: true, ..ServerState::default() }
}

const CREATE: &str = "POST v1alpha2/noderesourcetopologies";

#[tokio::test]
async fn each_role_finds_its_way() {
    let absent = || refusal(404, "NotFound");
    let update = Publishing { mode: Mode::Update, ..PATCHING };
    let apply = Publishing { mode: Mode::Apply, ..PATCHING };
    let table: &[(&str, Publishing, &Script)] = &[
        ("no watch", PATCHING, &[("GET OBJECT", ok(6, 1)), ("PATCH OBJECT", ok(5, 2))]),
        ("no watch, no object", PATCHING, &[("GET OBJECT", absent()), (CREATE, ok(5, 2))]),
        (
            "no watch, no patch: the operator's",
            PATCHING,
            &[("GET OBJECT", ok(6, 1)), ("PATCH OBJECT", no()), ("PUT OBJECT", ok(5, 2))],
        ),
        ("no update", update, &[("GET OBJECT", ok(6, 1)), ("PUT OBJECT", no()), ("PATCH OBJECT", ok(5, 2))]),
        (
            "create and patch: NFD's",
            apply,
            &[("GET OBJECT", no()), ("PATCH OBJECT", ok(6, 1)), ("APPLY OBJECT", ok(5, 2))],
        ),
        (
            "create and patch, no object",
            apply,
            &[("GET OBJECT", no()), ("PATCH OBJECT", absent()), ("APPLY OBJECT", ok(5, 2))],
        ),
        (
            "create, get and update: the deployer's for NFD",
            apply,
            &[("GET OBJECT", ok(6, 1)), ("APPLY OBJECT", no()), ("PUT OBJECT", ok(5, 2))],
        ),
        ("create only", PATCHING, &[("GET OBJECT", no()), ("PATCH OBJECT", no()), (CREATE, ok(5, 1))]),
    ];
    for (case, publishing, script) in table {
        check(case, *publishing, unwatched(), script).await;
    }
}

#[tokio::test]
async fn an_empty_patch_reads_and_writes_nothing() {
    let script = [("GET OBJECT", no()), ("PATCH OBJECT", ok(6, 1)), ("PATCH OBJECT", ok(5, 2))];
    let bodies = check("NFD's role", PATCHING, unwatched(), &script).await;
    assert_eq!(bodies[1], json!({}));
    assert_eq!(version(&bodies[2]), "1", "and what it read is what is written onto");
}

#[tokio::test]
async fn without_any_way_it_says_which_and_tries_them_all_again() {
    let script = [no(), no(), ok(5, 2)];
    let mut rig = Rig::watching(StoredObject::present(stored(6, 1)), script);
    rig.want(5);
    rig.expect(&format!("PATCH {OBJECT}")).await;
    rig.expect(&format!("PUT {OBJECT}")).await;
    assert_eq!(rig.report().await, Err("update: 403 Forbidden: no".to_owned()));
    rig.expect(&format!("PATCH {OBJECT}")).await;
    assert_eq!(rig.report().await, Ok(()));
}

#[tokio::test]
async fn without_a_watch_a_lost_object_comes_back_at_the_next_reading() {
    let script = [ok(5, 1), refusal(404, "NotFound"), ok(5, 7)];
    let mut rig = Rig::start(PATCHING, unwatched(), script);
    rig.want(5);
    rig.expect(&format!("GET {OBJECT}")).await;
    assert_eq!(rig.report().await, Ok(()));
    rig.expect(&format!("GET {OBJECT}")).await;
    rig.expect(CREATE).await;
}

#[tokio::test]
async fn after_so_many_writes_it_reads_before_the_next() {
    let publishing = Publishing { resync: Some(2), ..PATCHING };
    let known = ServerState { stored: StoredObject::present(stored(6, 1)), ..ServerState::default() };
    let mut rig = Rig::start(publishing, known, [ok(5, 2), ok(4, 3), ok(4, 9), ok(3, 10)]);
    for (cpus, lines) in [(5, &["PATCH"][..]), (4, &["PATCH"]), (3, &["GET", "PATCH"])] {
        rig.want(cpus);
        for line in lines {
            let body = rig.expect(&format!("{line} {OBJECT}")).await;
            if cpus == 3 && *line == "PATCH" {
                assert_eq!(version(&body), "9");
            }
        }
    }
    assert!(rig.requests.are_none());
}

#[tokio::test]
async fn what_cannot_be_read_is_replaced_by_its_metadata() {
    let unreadable = json!({
        "metadata": { "name": "n1", "uid": "o", "resourceVersion": "4", "labels": { "theirs": "kept" } },
        "zones": "everywhere",
    });
    let publishing = Publishing { mode: Mode::Update, ..PATCHING };
    // As the watch tells of one.
    let known = ServerState { stored: StoredObject::Object(Arc::default()), ..ServerState::default() };
    let script = [
        ("GET OBJECT", (200, unreadable.clone())),
        ("GET OBJECT", (200, unreadable)),
        ("PUT OBJECT", ok(5, 5)),
    ];
    let bodies = check("unreadable", publishing, known, &script).await;
    assert_eq!(bodies[2]["metadata"]["resourceVersion"], "4");
    assert_eq!(bodies[2]["metadata"]["labels"]["theirs"], "kept");
}

#[tokio::test]
async fn the_owner_is_found_as_far_as_allowed() {
    let list = json!({ "metadata": {}, "items": [{ "metadata": { "name": "n1", "uid": "u1" } }] });
    let space = json!({ "metadata": { "name": "numa", "uid": "u9" } });
    let node = Publishing { owner: OwnerKind::Node, ..PATCHING };
    let namespace = Publishing { owner: OwnerKind::Namespace, ..PATCHING };
    let absent = || ServerState { stored: StoredObject::Absent, ..ServerState::default() };
    let owner = |body: &Value| body["metadata"]["ownerReferences"][0]["uid"].clone();

    let script = [("GET nodes/n1", no()), ("GET v1/nodes", (200, list)), (CREATE, ok(5, 1))];
    // What the script's server stores has no owner, and that is repaired; only the creation is looked at.
    let bodies = first(node, absent(), &script).await;
    assert_eq!(owner(&bodies[2]), "u1");
    let bodies =
        first(namespace, absent(), &[("GET namespaces/numa", (200, space)), (CREATE, ok(5, 1))]).await;
    assert_eq!(owner(&bodies[1]), "u9");
    let script = [("GET namespaces/numa", no()), (CREATE, ok(5, 1))];
    let bodies = check("no namespace", namespace, absent(), &script).await;
    assert_eq!(owner(&bodies[1]), Value::Null);
}

/// The bodies of these requests, whatever comes after.
async fn first(publishing: Publishing, known: ServerState, script: &Script) -> Vec<Value> {
    let mut rig = Rig::start(publishing, known, script.iter().map(|(_, answer)| answer.clone()));
    rig.want(5);
    let mut bodies = Vec::new();
    for (line, _) in script {
        bodies.push(rig.expect(line).await);
    }
    bodies
}

/// OpenShift lets only those change an owner who may delete the object.
#[tokio::test]
async fn an_owner_that_may_not_be_changed_is_left() {
    let (status, mut refused) = no();
    refused["message"] = json!("cannot set an ownerRef on a resource you can't delete");
    let space = json!({ "metadata": { "name": "numa", "uid": "u9" } });
    let namespace = Publishing { owner: OwnerKind::Namespace, ..PATCHING };
    let known = ServerState { stored: StoredObject::present(stored(6, 1)), ..ServerState::default() };
    let script = [
        ("GET namespaces/numa", (200, space)),
        ("PATCH OBJECT", (status, refused)),
        ("PATCH OBJECT", ok(5, 2)),
    ];
    let bodies = check("owner", namespace, known, &script).await;
    assert_eq!(bodies[1]["metadata"]["ownerReferences"][0]["uid"], "u9");
    assert_eq!(bodies[2]["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn a_busy_server_is_left_alone() {
    let wait = |code: u16, details: Value| {
        let status = json!({ "status": "Failure", "code": code, "details": details });
        server::retry_after(&kube::Error::Api(serde_json::from_value(status).unwrap()))
    };
    for (code, details, wanted) in [
        (429, json!({}), Some(1)),
        (429, json!({ "retryAfterSeconds": 7 }), Some(7)),
        (503, json!({ "retryAfterSeconds": 3000 }), Some(60)),
        (503, json!({}), None),
        (500, json!({}), None),
    ] {
        assert_eq!(wait(code, details), wanted.map(Duration::from_secs), "{code}");
    }
}
