use objects::applier::refusal;
use objects::{Object, ObjectKind};
use serde_json::json;

use super::*;
use crate::desired::{MANAGED_BY, MANAGER, Owner, owned, shared};

fn kind_of(kind: &str) -> ObjectKind {
    match kind {
        "ConfigMap" => ObjectKind::new("", "v1", kind, "configmaps"),
        "ServiceAccount" => ObjectKind::new("", "v1", kind, "serviceaccounts"),
        "DaemonSet" => ObjectKind::new("apps", "v1", kind, "daemonsets"),
        "RoleBinding" => ObjectKind::new("rbac.authorization.k8s.io", "v1", kind, "rolebindings"),
        _ => ObjectKind::new("apiextensions.k8s.io", "v1", kind, "customresourcedefinitions"),
    }
}

fn user(kind: &str, name: &str, uid: &str) -> Owner {
    let api_version = "nodetopology.openshift.io/v1".to_owned();
    Owner { api_version, kind: kind.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
}

fn nro(uid: &str) -> Owner {
    user("NUMAResourcesOperator", "numaresourcesoperator", uid)
}

fn object(kind: &str, mut body: Value) -> Object {
    body["metadata"]["name"] = "x".into();
    Object::from_value(kind_of(kind), body).unwrap()
}

fn own(kind: &str, body: Value) -> DesiredObject {
    owned(object(kind, body), &nro("u"))
}

/// The field set of a value: each of its fields singly, and lists as a whole.
fn set(value: &Value) -> Value {
    let fields = value
        .as_object()
        .map(|fields| fields.iter().map(|(name, below)| (format!("f:{name}"), set(below))).collect());
    Value::Object(fields.unwrap_or_default())
}

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({ "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields })
}

/// As it is after it was applied.
fn applied(wanted: &DesiredObject) -> Value {
    let mut live = wanted.object.body().clone();
    let mut fields = set(&live);
    for field in ["f:apiVersion", "f:kind"] {
        fields.as_object_mut().unwrap().remove(field);
    }
    fields["f:metadata"].as_object_mut().unwrap().remove("f:name");
    live["metadata"]["uid"] = "live".into();
    live["metadata"]["resourceVersion"] = "7".into();
    live["metadata"]["managedFields"] = json!([entry(MANAGER, "Apply", &fields)]);
    live["status"] = json!({ "ready": 1 });
    live
}

fn with(mut live: Value, path: &str, value: Value) -> Value {
    let (parent, last) = path.rsplit_once('/').unwrap();
    let parent = live.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(list) => list.push(value),
        fields => fields[last] = value,
    }
    live
}

/// In a word.
fn name(planned: Option<&Planned>) -> &'static str {
    match planned.map(|planned| &planned.decision) {
        None | Some(Decision::Leave) => "nothing",
        Some(Decision::Create) => "create",
        Some(Decision::Change { claims: None, .. }) => "apply",
        Some(Decision::Change { claims: Some(_), .. }) => "claim",
        Some(Decision::Recreate { .. }) => "recreate",
        Some(Decision::Remove { .. }) => "delete",
        Some(Decision::Refuse { .. }) => "refuse",
        Some(Decision::Adopt) => "adopt",
        Some(Decision::Await) => "await",
    }
}

fn decide(wanted: &DesiredObject, live: Option<&Value>, last: &LastApplied) -> Option<Planned> {
    plan_object(wanted, live, RULES, last)
}

fn decided(wanted: &DesiredObject, live: Option<&Value>) -> &'static str {
    name(decide(wanted, live, &LastApplied::default()).as_ref())
}

#[test]
fn objects_as_desired_stay() {
    // U011, U012, U013.
    let map = own("ConfigMap", json!({ "data": { "a": "1" } }));
    let live = applied(&map);
    let others =
        |fields: &Value| with(live.clone(), "/metadata/managedFields/-", entry("eve", "Update", fields));
    let gone = |path: &str, field: &str| {
        let mut live = live.clone();
        live.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(field);
        live
    };
    let reference = json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n" });
    let mut controller = reference.clone();
    controller["controller"] = true.into();
    let mut status = entry("controller", "Update", &json!({ "f:spec": { "f:x": {} } }));
    status["subresource"] = "status".into();
    let table = [
        (live.clone(), "nothing"),
        (with(live.clone(), "/data/a", "2".into()), "apply"),
        (gone("/metadata/labels", MANAGED_BY), "apply"),
        (gone("/metadata", "managedFields"), "apply"),
        (gone("/metadata", "ownerReferences"), "apply"),
        (gone("", "kind"), "nothing"),
        // What others add to its metadata, or observe, is theirs.
        (with(live.clone(), "/metadata/labels/more", "x".into()), "nothing"),
        (with(live.clone(), "/metadata/ownerReferences/-", reference), "nothing"),
        (
            others(&json!({ "f:metadata": { "f:annotations": { "f:x": {} } }, "f:status": { "f:x": {} } })),
            "nothing",
        ),
        (with(live.clone(), "/metadata/managedFields/-", status), "nothing"),
        // And nothing else.
        (others(&json!({ "f:data": { "f:a": {} } })), "nothing"),
        (others(&json!({ "f:data": { "f:b": {} } })), "claim"),
        (others(&json!({ "f:data": {} })), "claim"),
        (others(&json!({ "f:binaryData": { "f:b": {} } })), "claim"),
        (with(live.clone(), "/metadata/ownerReferences/-", controller), "claim"),
        // What we stated and no longer do.
        (
            with(live.clone(), "/metadata/managedFields/0", json!({}))
                .pointer("/metadata/managedFields/0")
                .map(|entry| {
                    with(
                        live.clone(),
                        "/metadata/managedFields",
                        json!([with(entry.clone(), "/fieldsV1/f:more", json!({}))]),
                    )
                })
                .unwrap(),
            "apply",
        ),
        (with(live.clone(), "/metadata/deletionTimestamp", "now".into()), "await"),
    ];
    for (live, want) in table {
        assert_eq!(decided(&map, Some(&live)), want, "{live}");
    }
    assert_eq!(decided(&map, None), "create");
    let held = map.held(true);
    assert_eq!(decided(&held, None), "nothing");
    assert_eq!(decided(&held, Some(&with(live, "/data/a", "2".into()))), "nothing");
}

#[test]
fn some_fields_of_others_are_tolerated() {
    let account = own("ServiceAccount", json!({}));
    let fields = json!({ "f:secrets": { "k:{\"name\":\"x\"}": {} }, "f:imagePullSecrets": {} });
    let live = with(applied(&account), "/metadata/managedFields/-", entry("openshift", "Update", &fields));
    assert_eq!(decided(&account, Some(&live)), "nothing");
    let set = own(
        "DaemonSet",
        json!({ "spec": { "template": { "metadata": { "annotations": { "hash": "1" } } } } }),
    );
    let restarted = |annotation: &str| {
        let fields = json!({ "f:spec": { "f:template": { "f:metadata": { "f:annotations": { ".": {}, annotation: {} } } } } });
        with(applied(&set), "/metadata/managedFields/-", entry("kubectl", "Update", &fields))
    };
    assert_eq!(decided(&set, Some(&restarted("f:kubectl.kubernetes.io/restartedAt"))), "nothing");
    assert_eq!(decided(&set, Some(&restarted("f:other"))), "claim");
}

#[test]
fn claims_of_others_become_ours() {
    let map = own("ConfigMap", json!({ "data": { "a": "1" } }));
    let fields = json!({ "f:data": { "f:b": {} }, "f:metadata": { "f:labels": { "f:x": {} } } });
    let live = with(applied(&map), "/metadata/managedFields/-", entry("eve", "Update", &fields));
    let live =
        with(live, "/metadata/managedFields/-", entry("bob", "Update", &json!({ "f:data": { "f:c": {} } })));
    let planned = decide(&map, Some(&live), &LastApplied::default()).map(|planned| planned.decision);
    let Some(Decision::Change { claims: Some(patch), uid }) = planned else { panic!("nothing is claimed") };
    assert_eq!(uid, "live");
    let mut patched = live.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    let entries = patched["metadata"]["managedFields"].as_array().unwrap();
    let managers: Vec<&str> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, ["eve", MANAGER]);
    assert_eq!(entries[0]["fieldsV1"], json!({ "f:metadata": { "f:labels": { "f:x": {} } } }));
    assert_eq!(entries[1]["fieldsV1"]["f:data"], json!({ "f:a": {}, "f:b": {}, "f:c": {} }));
    assert_eq!(entries[1]["operation"], "Apply");
    // Another client wrote it in between.
    let mut newer = live;
    newer["metadata"]["resourceVersion"] = "8".into();
    assert!(json_patch::patch(&mut newer, &patch).is_err());
}

#[test]
fn ownership_follows_marks_and_owners() {
    let map = own("ConfigMap", json!({ "data": { "a": "1" } }));
    let owned = |owner: &Owner, controller: bool| {
        let reference = json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": controller,
        });
        json!({ "metadata": { "name": "x", "uid": "live", "ownerReferences": [reference] }, "data": { "a": "2" } })
    };
    let labelled = |key: &str, value: &str| json!({ "metadata": { "name": "x", "uid": "live", "labels": { key: value } } });
    let other_group = Owner { api_version: "example.com/v1".to_owned(), ..nro("u") };
    let table = [
        (json!({ "metadata": { "name": "x", "uid": "live" } }), "refuse"),
        (labelled(MANAGED_BY, "Helm"), "refuse"),
        (labelled(MANAGED_BY, MANAGER), "apply"),
        (labelled("numaresourcesoperator.nodetopology.openshift.io/name", "numaresourcesoperator"), "apply"),
        (labelled("numaresourcesoperator.nodetopology.openshift.io/name", "other"), "refuse"),
        (owned(&nro("u"), true), "apply"),
        (owned(&nro("before"), true), "claim"),
        (owned(&nro("u"), false), "refuse"),
        (owned(&user("NUMAResourcesOperator", "other", "u"), true), "refuse"),
        (owned(&user("DaemonSet", "numaresourcesoperator", "u"), true), "refuse"),
        (owned(&other_group, true), "refuse"),
    ];
    for (live, want) in table {
        assert_eq!(decided(&map, Some(&live)), want, "{live}");
    }
    let planned = decide(&map, Some(&labelled(MANAGED_BY, "Helm")), &LastApplied::default()).unwrap();
    let Decision::Refuse { owner, lacks: None } = planned.decision else { panic!("it is not refused") };
    assert_eq!(
        refusal(&planned.key, &owner, MANAGER),
        "ConfigMap x belongs to Helm and is left alone; labelled app.kubernetes.io/managed-by=tholepin-operator it is handed over"
    );
}

#[test]
fn a_suitable_definition_of_another_program_is_shared() {
    let crd = |versions: &[&str]| {
        let versions: Vec<Value> =
            versions.iter().map(|name| json!({ "name": name, "served": true })).collect();
        object("CustomResourceDefinition", json!({ "spec": { "group": "g", "versions": versions } }))
    };
    let wanted = shared(crd(&["v1", "v2"]));
    for (versions, want) in [(&["v1", "v2", "v3"][..], "nothing"), (&["v1"], "apply")] {
        assert_eq!(decided(&wanted, Some(crd(versions).body())), want, "{versions:?}");
    }
}

#[test]
fn a_selector_that_selects_our_pods_stays() {
    let labels = json!({ "name": "x", "pool": "a" });
    let template = json!({ "metadata": { "labels": labels } });
    let set =
        own("DaemonSet", json!({ "spec": { "selector": { "matchLabels": labels }, "template": template } }));
    // a selector that is there -> what is done, and whether it stays
    let table = [
        (json!({ "matchLabels": labels }), "nothing", true),
        (json!({ "matchLabels": { "name": "x" } }), "apply", true),
        (
            json!({ "matchExpressions": [{ "key": "pool", "operator": "In", "values": ["a", "b"] }] }),
            "apply",
            true,
        ),
        (json!({ "matchLabels": { "name": "y" } }), "recreate", false),
        (json!({ "matchExpressions": [{ "key": "pool", "operator": "DoesNotExist" }] }), "recreate", false),
        (json!({}), "recreate", false),
        (Value::Null, "recreate", false),
    ];
    for (selector, want, stays) in table {
        let live = with(applied(&set), "/spec/selector", selector.clone());
        // Its fields were stated as they are there, but for the first.
        let planned = decide(&set, Some(&live), &LastApplied::default());
        let is_first = selector == json!({ "matchLabels": labels });
        if is_first || !stays {
            assert_eq!(name(planned.as_ref()), want, "{selector}");
        }
        if let Some(Planned { desired: Some(desired), decision: Decision::Change { .. }, .. }) = planned {
            assert_eq!(desired.object.body()["spec"]["selector"], selector);
            assert!(stays);
        }
    }
    let binding = own("RoleBinding", json!({ "roleRef": { "kind": "Role", "name": "x" } }));
    let live = with(applied(&binding), "/roleRef", json!({ "kind": "Role", "name": "y" }));
    assert_eq!(decided(&binding, Some(&live)), "recreate");
}

#[test]
fn undesired_objects_are_removed() {
    let nrs = user("NUMAResourcesScheduler", "numaresourcesscheduler", "s");
    let mut live = ObservedObjects::default();
    let mut add = |name: &str, kind: &str, owner: Option<&Owner>, orphan: bool| {
        let wanted = match owner {
            Some(owner) => owned(object(kind, json!({})), owner),
            None => shared(object(kind, json!({}))),
        };
        let key = ObjectKey { name: name.to_owned(), ..wanted.key() };
        let mut body = applied(&wanted);
        if orphan {
            body["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        }
        live.insert(key, body);
    };
    add("set", "DaemonSet", Some(&nro("u")), false);
    add("dead", "DaemonSet", Some(&nro("before")), false);
    add("map", "ConfigMap", Some(&nro("u")), false);
    add("scheduler", "DaemonSet", Some(&nrs), false);
    add("orphan", "DaemonSet", Some(&nro("u")), true);
    add("shared", "CustomResourceDefinition", None, false);
    live.insert(
        ObjectKey { name: "foreign".to_owned(), ..own("ConfigMap", json!({})).key() },
        json!({ "metadata": { "name": "foreign", "uid": "f" } }),
    );
    let owners: BTreeSet<String> = ["u".to_owned(), "s".to_owned()].into();
    let deleted = |controller, desired: &Desired, orphans: bool| -> Vec<String> {
        let last = LastApplied::default();
        let others_desire = |_: &ObjectKey| !orphans;
        let inputs =
            PlanInputs { observed: &live, owners: &owners, others_desire: &others_desire, last: &last };
        plan(controller, desired, inputs).into_iter().map(|planned| planned.key.name).collect()
    };
    let none = Desired::Objects(Vec::new());
    use Controller::{KubeletConfig, NumaResourcesOperator, NumaResourcesScheduler};
    let table = [
        (NumaResourcesOperator, &none, false, vec!["dead", "set"]),
        (NumaResourcesOperator, &none, true, vec!["dead", "orphan", "set"]),
        (NumaResourcesOperator, &Desired::Keep, true, vec![]),
        // What belongs to an object that is still there, the garbage collector takes.
        (NumaResourcesOperator, &Desired::Nothing, false, vec!["dead"]),
        (NumaResourcesScheduler, &none, false, vec!["scheduler"]),
        (NumaResourcesScheduler, &Desired::Nothing, true, vec!["orphan"]),
        (KubeletConfig, &none, false, vec!["map"]),
        (KubeletConfig, &Desired::Nothing, false, vec![]),
    ];
    for (controller, desired, orphans, want) in table {
        let mut names = deleted(controller, desired, orphans);
        names.sort();
        assert_eq!(names, want, "{controller:?} {desired:?} {orphans}");
    }
}

#[test]
fn a_settled_object_is_left_alone() {
    let map = own("ConfigMap", json!({ "data": { "a": "1" } }));
    let live = with(applied(&map), "/data/a", "2".into());
    let mut last = LastApplied::default();
    assert_eq!(name(decide(&map, Some(&live), &last).as_ref()), "apply");
    last.settle(&map.object, &live);
    assert_eq!(name(decide(&map, Some(&live), &last).as_ref()), "nothing");
    let other = with(live, "/data/a", "3".into());
    assert_eq!(name(decide(&map, Some(&other), &last).as_ref()), "apply");
}
