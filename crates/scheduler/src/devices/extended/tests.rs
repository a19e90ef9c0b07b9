use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as wire;
use serde_json::{Value, json};

use super::*;
use crate::devices::Change;
use crate::devices::views::SliceView;
use crate::pod::PodView;

fn class(name: &str, resource: Option<&str>, created: &str) -> Change {
    let object = json!({
        "metadata": { "name": name, "creationTimestamp": created },
        "spec": { "extendedResourceName": resource, "selectors": [{ "cel": { "expression": format!("device.driver == '{name}'") } }] },
    });
    Change::Class(Box::new(ClassView::read(&serde_json::from_value::<wire::DeviceClass>(object).unwrap())))
}

fn claim(name: &str, version: u64, more: Value) -> ClaimView {
    let mut object = json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("u-{name}"), "resourceVersion": version.to_string(),
            "annotations": { "resource.kubernetes.io/extended-resource-claim": "true" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": true }],
        },
        "spec": {},
    });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ClaimView::read(&serde_json::from_value(object).unwrap())
}

fn allocated() -> Value {
    let result = json!({ "request": "r", "driver": "d", "pool": "p", "device": "0" });
    json!({ "status": { "allocation": { "devices": { "results": [result] } } } })
}

/// The newest class that names a resource counts, and each class by its own name.
#[test]
fn classes_serve_the_resources_that_they_name() {
    const OLD: &str = "2026-01-01T00:00:00Z";
    const NEW: &str = "2026-01-02T00:00:00Z";
    let gone = |name: &str| Change::ClassGone(name.into());
    let gpu = "vendor.example/gpu";
    for (changes, resource, wanted) in [
        (vec![], gpu, None),
        (vec![class("a", Some(gpu), OLD)], gpu, Some("a")),
        (vec![class("a", Some("vendor.example/other"), OLD)], gpu, None),
        (vec![class("a", None, OLD)], "deviceclass.resource.kubernetes.io/a", Some("a")),
        (vec![class("a", None, OLD)], "deviceclass.resource.kubernetes.io/b", None),
        (vec![class("a", Some(gpu), NEW), class("b", Some(gpu), OLD)], gpu, Some("a")),
        (vec![class("a", Some(gpu), OLD), class("b", Some(gpu), NEW)], gpu, Some("b")),
        (vec![class("b", Some(gpu), OLD), class("a", Some(gpu), OLD)], gpu, Some("a")),
        (vec![class("a", Some(gpu), OLD), class("a", None, OLD)], gpu, None),
        (vec![class("a", Some(gpu), OLD), class("b", Some(gpu), NEW), gone("b")], gpu, Some("a")),
        (vec![class("a", Some("cpu"), OLD)], "cpu", None),
    ] {
        let mut devices = Devices::default();
        let shown = format!("{changes:?} {resource}");
        changes.into_iter().for_each(|change| drop(devices.apply(change)));
        let resource_name = ResourceName::new(resource).unwrap();
        let pod = json!({
            "metadata": { "name": "p" },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { resource: "1" } } }] },
        });
        let pod = PodView::read(&serde_json::from_value::<core::Pod>(pod).unwrap());
        let delegated = devices.delegated(&pod.spec.needs);
        let behind = delegated.first().and_then(|resource| devices.class_behind(*resource));
        assert_eq!(behind.map(|class| &*class.name), wanted, "{shown}");
        assert_eq!(delegated.first().copied(), wanted.map(|_| resource_name), "{shown}");
        let helps = wanted.is_some_and(|class| devices.may_help(&Helped::Class(class.into()), &pod.spec));
        assert_eq!(
            (helps, devices.may_help(&Helped::All, &pod.spec)),
            (wanted.is_some(), wanted.is_some()),
            "{shown}"
        );
    }
}

/// The devices of a claim that is made stay taken from the decision to its end, whichever comes first: the answer of
/// the API server or the watch.
#[test]
fn devices_of_made_claims_are_taken_throughout() {
    let id = super::super::views::DeviceId { driver: "d".into(), pool: "p".into(), device: "0".into() };
    let new = || claim("c", 1, json!({}));
    let done = || claim("c", 3, allocated());
    let shown = |claim: ClaimView| Some(Change::Claim(Box::new(claim)));
    for order in [
        vec![(None, Some(done())), (shown(new()), None), (shown(done()), None)],
        vec![(shown(new()), None), (None, Some(done())), (shown(done()), None)],
        vec![(shown(new()), None), (shown(done()), None), (None, Some(done()))],
    ] {
        let mut devices = Devices::default();
        let namespace: Arc<str> = "ns".into();
        devices.assume(&unwritten(&namespace, "u-p"), done().allocation.unwrap());
        for (change, written) in order {
            change.into_iter().for_each(|change| drop(devices.apply(change)));
            written.into_iter().for_each(|claim| drop(devices.written(claim)));
            assert!(devices.taken().is_exclusive(&id));
        }
        assert_eq!(devices.claim_made_for(&namespace, "u-p").map(|claim| &*claim.key.name), Some("c"));
        assert!(!devices.is_pending(&unwritten(&namespace, "u-p")));
        assert_eq!(devices.apply(Change::ClaimGone(done().key)), Helped::All);
        assert!(!devices.taken().has(&id) && devices.claim_made_for(&namespace, "u-p").is_none());
    }
    // The pod is not bound after all, before the watch has shown the claim.
    let mut devices = Devices::default();
    let namespace: Arc<str> = "ns".into();
    devices.assume(&unwritten(&namespace, "u-p"), done().allocation.unwrap());
    devices.written(done());
    let (helped, made) = devices.take_made(&namespace, "u-p");
    assert_eq!((helped, made), (Helped::All, Some((done().key, "u-c".into()))));
    assert!(!devices.taken().has(&id));
}

#[test]
fn totals_count_the_devices_of_a_class_on_a_node() {
    let slice = |name: &str, spec: Value| {
        let mut object = json!({ "metadata": { "name": name }, "spec": {
            "driver": "a", "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "0", "nodeName": "n" }, { "name": "1", "nodeName": "m" }],
        } });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        Change::Slice(Box::new(SliceView::read(
            &serde_json::from_value::<wire::ResourceSlice>(object).unwrap(),
        )))
    };
    let node = json!({ "metadata": { "name": "n" } });
    let view = NodeView::read(&serde_json::from_value::<core::Node>(node).unwrap());
    for (spec, selector, wanted) in [
        (json!({ "nodeName": "n" }), "true", (2, 1)),
        (json!({ "nodeName": "m" }), "true", (0, 0)),
        (json!({ "allNodes": true }), "true", (2, 1)),
        (json!({ "perDeviceNodeSelection": true }), "true", (1, 1)),
        (json!({ "nodeName": "n", "driver": "b" }), "device.driver == 'a'", (0, 0)),
        (json!({ "nodeName": "n" }), "device.attributes['a'].missing", (0, 0)),
    ] {
        let mut devices = Devices::default();
        devices.apply(slice("p", spec.clone()));
        let driver = spec["driver"].as_str().unwrap_or("a");
        let result = json!({ "request": "r", "driver": driver, "pool": "p", "device": "0" });
        let taken =
            claim("c", 1, json!({ "status": { "allocation": { "devices": { "results": [result] } } } }));
        devices.apply(Change::Claim(Box::new(taken)));
        let object = json!({ "metadata": { "name": "k" }, "spec": { "selectors": [{ "cel": { "expression": selector } }] } });
        let class = ClassView::read(&serde_json::from_value::<wire::DeviceClass>(object).unwrap());
        assert_eq!(devices.totals(&class, &view), wanted, "{spec} {selector}");
    }
}
