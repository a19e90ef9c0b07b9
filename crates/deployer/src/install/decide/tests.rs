use serde_json::json;

use super::*;
use crate::part::{Component, Part};
use objects::ObjectKind;

fn kind_of(kind: &str) -> ObjectKind {
    match kind {
        "Namespace" => ObjectKind::new("", "v1", "Namespace", "namespaces"),
        "ConfigMap" => ObjectKind::new("", "v1", "ConfigMap", "configmaps"),
        "DaemonSet" => ObjectKind::new("apps", "v1", "DaemonSet", "daemonsets"),
        "RoleBinding" => ObjectKind::new("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
        "PriorityClass" => ObjectKind::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
        _ => ObjectKind::new("apiextensions.k8s.io", "v1", kind, "customresourcedefinitions"),
    }
}

/// Of ours, with these fields.
fn ours(kind: &str, fields: Value) -> Object {
    let mut body = fields;
    body["metadata"]["name"] = "x".into();
    let object = Object::from_value(kind_of(kind), body).unwrap();
    Part::new(Component::Exporter, [object]).objects()[0].clone()
}

/// The same in a cluster.
fn live(object: &Object) -> Value {
    let mut live = object.body().clone();
    live["metadata"]["uid"] = "1".into();
    live
}

/// The same, made by another program.
fn foreign(object: &Object, owner: &str) -> Value {
    let mut live = live(object);
    live["metadata"]["labels"] = json!({ MANAGED_BY: owner });
    live
}

fn crd(versions: &[(&str, bool)]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|(name, served)| json!({ "name": name, "served": served })).collect();
    json!({ "spec": {
        "group": "g", "scope": "ApiServer", "names": { "kind": "K", "plural": "ks" }, "versions": versions,
    } })
}

fn changed() -> Decision {
    Decision::Change { uid: "1".to_owned(), claims: None }
}

fn check(object: &Object, live: Option<&Value>, adopt: bool, want: &Decision) {
    assert_eq!(&decide(object, live, adopt), want, "{object} over {live:?}");
}

#[test]
fn ours_are_made_and_kept_up_to_date() {
    let map = ours("ConfigMap", json!({ "data": { "a": "b" } }));
    check(&map, None, false, &Decision::Create);
    check(&map, None, true, &Decision::Create);
    let mut other = live(&map);
    other["data"]["a"] = "c".into();
    for live in [live(&map), other] {
        check(&map, Some(&live), false, &changed());
        let mut leaving = live;
        leaving["metadata"]["deletionTimestamp"] = "now".into();
        check(&map, Some(&leaving), false, &Decision::Await);
    }
}

#[test]
fn others_are_left_alone() {
    let map = ours("ConfigMap", json!({}));
    let refused = |owner: &str| {
        let error = refusal(&map, owner.to_owned(), None);
        assert_eq!(error, Error::Foreign { object: "ConfigMap x".to_owned(), owner: owner.to_owned() });
        Decision::Refuse { owner: owner.to_owned(), lacks: None }
    };
    check(&map, Some(&foreign(&map, "Helm")), false, &refused("Helm"));
    check(&map, Some(&foreign(&map, "Helm")), true, &Decision::Adopt);
    let mut nobodys = live(&map);
    nobodys["metadata"]["labels"] = json!({});
    check(&map, Some(&nobodys), false, &refused("nobody known"));
    nobodys["metadata"]["managedFields"] = json!([
        { "manager": "kubectl" }, { "manager": "kubelet", "subresource": "status" }, { "manager": "a" },
        { "manager": "kubectl" },
    ]);
    check(&map, Some(&nobodys), false, &refused("a, kubectl"));
    let mut leaving = foreign(&map, "Helm");
    leaving["metadata"]["deletionTimestamp"] = "now".into();
    check(&map, Some(&leaving), false, &Decision::Await);
}

#[test]
fn namespaces_of_others_are_used() {
    let namespace = ours("Namespace", json!({}));
    for adopt in [false, true] {
        let foreign = foreign(&namespace, "Helm");
        check(&namespace, Some(&foreign), adopt, &Decision::Leave);
        assert_eq!(lacks_labels(&namespace, &foreign), None);
    }
    let strict = ours(
        "Namespace",
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } }),
    );
    let lacks = "was not made by us and lacks pod-security.kubernetes.io/enforce=privileged; pods may be refused in it";
    let mut fit = foreign(&strict, "Helm");
    check(&strict, Some(&fit), false, &Decision::Leave);
    assert_eq!(lacks_labels(&strict, &fit).as_deref(), Some(lacks));
    fit["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged".into();
    check(&strict, Some(&fit), false, &Decision::Leave);
    assert_eq!(lacks_labels(&strict, &fit), None);
}

#[test]
fn definitions_of_others_are_used_if_they_have_what_is_needed() {
    let kind = "CustomResourceDefinition";
    let needed = ours(kind, crd(&[("v1", true), ("v1alpha1", false)]));
    let table = [
        (crd(&[("v1", true)]), None),
        (crd(&[("v2", true), ("v1", true)]), None),
        (crd(&[("v1", false), ("v2", true)]), Some("does not serve v1 (it serves v2)")),
        (
            {
                let mut namespaced = crd(&[("v1", true)]);
                namespaced["spec"]["scope"] = "Namespaced".into();
                namespaced
            },
            Some("has scope Namespaced where ApiServer is needed"),
        ),
    ];
    for (there, lacks) in table {
        let live = foreign(&ours(kind, there), "helm");
        let want = match lacks {
            None => Decision::Leave,
            Some(lacks) => {
                let (object, owner, lacks) = (needed.to_string(), "helm".to_owned(), Some(lacks.to_owned()));
                let error = refusal(&needed, owner.clone(), lacks.clone());
                let message = Error::Unfit { object, owner: owner.clone(), lacks: lacks.clone().unwrap() };
                assert_eq!(error, message);
                Decision::Refuse { owner, lacks }
            }
        };
        check(&needed, Some(&live), false, &want);
        check(&needed, Some(&live), true, &want);
    }
}

#[test]
fn what_cannot_be_changed_is_made_anew() {
    // kind, as it is, as it should be, the field
    let table = [
        (
            "DaemonSet",
            json!({ "spec": { "selector": { "a": "b" } } }),
            json!({ "spec": { "selector": {} } }),
            Some("spec.selector"),
        ),
        ("DaemonSet", json!({ "spec": { "x": 1 } }), json!({ "spec": { "x": 2 } }), None),
        (
            "RoleBinding",
            json!({ "roleRef": { "name": "a" } }),
            json!({ "roleRef": { "name": "b" } }),
            Some("roleRef"),
        ),
        ("PriorityClass", json!({ "value": 1 }), json!({ "value": 2 }), Some("value")),
        (
            "ConfigMap",
            json!({ "immutable": true, "data": {} }),
            json!({ "data": { "a": "b" } }),
            Some("data"),
        ),
        ("ConfigMap", json!({ "data": {} }), json!({ "data": { "a": "b" } }), None),
    ];
    for (kind, before, after, field) in table {
        let object = ours(kind, after);
        let want = match field {
            Some(field) => Decision::Recreate { uid: "1".to_owned(), field },
            None => changed(),
        };
        check(&object, Some(&live(&ours(kind, before))), false, &want);
    }
}

#[test]
fn namespaces_are_shared_between_components() {
    let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
    let mut there =
        live(&ours("Namespace", labels(json!({ "level": "privileged", "mine": "1", "theirs": "1" }))));
    let stated =
        json!({ "f:level": {}, "f:mine": {}, format!("f:{COMPONENT}"): {}, format!("f:{MANAGED_BY}"): {} });
    there["metadata"]["managedFields"] = json!([
        { "manager": MANAGER, "fieldsV1": { "f:metadata": { "f:labels": stated } } },
        { "manager": "kubectl", "fieldsV1": { "f:metadata": { "f:labels": { "f:theirs": {} } } } },
    ]);
    let applied = |wanted: &Object| {
        check(wanted, Some(&there), false, &changed());
        merged(wanted, Some(&there))
    };
    // The component that made it says what counts; what another one stated besides stays.
    let first = applied(&ours("Namespace", labels(json!({ "level": "baseline" }))));
    assert_eq!((first.label("level"), first.label("mine")), (Some("baseline"), Some("1")));
    assert_eq!(first.label("theirs"), None, "it is not ours to state");
    // Another one adds to it and changes nothing.
    let object = ours("Namespace", labels(json!({ "level": "baseline", "more": "1" })));
    let second = applied(&object.labelled(COMPONENT, "scheduler"));
    let got = [COMPONENT, "level", "mine", "more", "theirs"].map(|key| second.label(key));
    assert_eq!(got, [Some("exporter"), Some("privileged"), Some("1"), Some("1"), None]);
}
