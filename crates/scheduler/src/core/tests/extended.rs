//! Pods with extended resources that devices serve.

use std::sync::Arc;

use k8s_openapi::api::resource::v1 as wire;

use super::*;
use crate::devices::Change;
use crate::devices::views::claim::ClaimView;
use crate::devices::views::{ClassView, SliceView};
use crate::volumes::reference::ClaimKey;

const GPU: &str = "vendor.example/gpu";

fn class(resource: Option<&str>) -> Event {
    let object = json!({ "metadata": { "name": "gpu" }, "spec": { "extendedResourceName": resource } });
    let object = serde_json::from_value::<wire::DeviceClass>(object).unwrap();
    Event::Devices(Change::Class(Box::new(ClassView::read(&object))))
}

fn slice(node: &str) -> Event {
    let object = json!({
        "metadata": { "name": node },
        "spec": {
            "driver": "d.example", "nodeName": node, "devices": [{ "name": "d0" }],
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        },
    });
    let object = serde_json::from_value::<wire::ResourceSlice>(object).unwrap();
    Event::Devices(Change::Slice(Box::new(SliceView::read(&object))))
}

/// A pod that asks for a device.
fn asking(name: &str) -> PodView {
    // A class makes it known, and other tests use up what pods may name.
    ResourceName::new(GPU).unwrap();
    let resources = json!({ "requests": { GPU: "1" }, "limits": { GPU: "1" } });
    pod(name, 1, json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } }))
}

/// The claim that is made for a pod, as the API server has it, with the device of a node.
fn made(pod: &PodView, node: &str) -> ClaimView {
    let result =
        json!({ "request": "container-0-request-0", "driver": "d.example", "pool": node, "device": "d0" });
    let owner =
        json!({ "apiVersion": "v1", "kind": "Pod", "name": *pod.name, "uid": *pod.uid, "controller": true });
    let object = json!({
        "metadata": {
            "namespace": "ns", "name": "made", "uid": "uid-made", "resourceVersion": "5", "ownerReferences": [owner],
            "annotations": { "resource.kubernetes.io/extended-resource-claim": "true" },
        },
        "spec": {}, "status": { "allocation": { "devices": { "results": [result] } } },
    });
    ClaimView::read(&serde_json::from_value::<wire::ResourceClaim>(object).unwrap())
}

fn core(nodes: &[&str]) -> Core {
    let mut core = Core::new(settings());
    nodes.iter().for_each(|name| core.handle(Event::Node(node(name)), LATER));
    core
}

fn reserves(core: &mut Core) -> ReserveClaims {
    match core.next(LATER) {
        Some(Decision::ReserveClaims(reserve)) => reserve,
        other => panic!("{other:?}"),
    }
}

fn refused(core: &mut Core, now_ms: u64) -> Refused {
    match core.next(now_ms) {
        Some(Decision::Refuse(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_is_made_and_no_other_pod_gets_its_device() {
    let mut core = core(&["a"]);
    let (first, second) = (asking("p"), asking("q"));
    core.handle(slice("a"), LATER);
    core.handle(Event::Pod(first.clone()), LATER);
    assert!(refused(&mut core, LATER).message.contains("1 Insufficient vendor.example/gpu"));
    // A class that names another resource does not help.
    core.handle(class(None), LATER);
    assert!(core.next(LATER).is_none());
    core.handle(class(Some(GPU)), LATER);
    let reserve = reserves(&mut core);
    let [claim] = &reserve.claims[..] else { panic!("{:?}", reserve.claims) };
    let requests: Vec<_> =
        claim.made.iter().flat_map(|made| made.view.asks()).map(|ask| &*ask.name).collect();
    assert_eq!(requests, ["container-0-request-0"]);
    assert!(claim.allocation.is_some());

    core.handle(Event::Pod(second), LATER);
    assert!(refused(&mut core, LATER).message.contains("1 cannot allocate all claims"));
    let id = reserve.binding.id;
    core.handle(Event::ClaimsWritten(id, vec![made(&first, "a")]), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if it.id == id));
    assert!(core.next(LATER).is_none(), "the device is taken before the watch shows the claim");
    core.handle(Event::Devices(Change::Claim(Box::new(made(&first, "a")))), LATER);
    core.handle(Event::Bound(id), LATER);
    assert!(core.next(LATER).is_none());
    core.handle(Event::Devices(Change::ClaimGone(made(&first, "a").key)), LATER);
    assert_eq!(&*reserves(&mut core).binding.pod.name, "q");
}

#[test]
fn a_device_plugin_comes_before_devices() {
    let mut core = Core::new(settings());
    let mut with_plugin = node("a");
    let gpu = topology::resource::ResourceName::new(GPU).unwrap();
    with_plugin.allocatable.push(topology::request::Need { name: gpu, amount: 1 });
    with_plugin.allocatable.sort_unstable_by_key(|need| need.name);
    core.handle(Event::Node(with_plugin), LATER);
    core.handle(class(Some(GPU)), LATER);
    core.handle(slice("a"), LATER);
    core.handle(Event::Pod(asking("p")), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(_))));
    // The plugin has no more, and the devices of the node do not step in.
    core.handle(Event::Pod(asking("q")), LATER);
    assert!(refused(&mut core, LATER).message.contains("1 Insufficient vendor.example/gpu"));
}

/// Whether the watch has shown the claim when the binding fails, or not.
#[test]
fn a_claim_goes_with_a_binding_that_fails() {
    for is_shown in [false, true] {
        let mut core = core(&["a"]);
        let pod = asking("p");
        for event in [slice("a"), class(Some(GPU)), Event::Pod(pod.clone())] {
            core.handle(event, LATER);
        }
        let id = reserves(&mut core).binding.id;
        core.handle(Event::ClaimsWritten(id, vec![made(&pod, "a")]), LATER);
        assert!(matches!(core.next(LATER), Some(Decision::Bind(_))));
        if is_shown {
            core.handle(Event::Devices(Change::Claim(Box::new(made(&pod, "a")))), LATER);
        }
        core.handle(Event::BindFailed(id), LATER);
        let Some(Decision::ReleaseClaims(release)) = core.next(LATER) else { panic!("not given back") };
        let key = ClaimKey { namespace: "ns".into(), name: "made".into() };
        assert_eq!(release.made, Some((key.clone(), "uid-made".into())));
        core.handle(Event::Devices(Change::ClaimGone(key)), LATER);
        let again = core.next(LATER + 1_000);
        assert!(matches!(again, Some(Decision::ReserveClaims(_))), "{again:?}");
    }
}

/// A claim that an earlier process has left is deleted, and then the pod is tried again.
#[test]
fn a_claim_that_was_left_behind_has_to_go_first() {
    let mut settings = settings();
    let plugins = Arc::new(Plugins { preemption: None, ..Plugins::default() });
    settings.profiles.iter_mut().for_each(|profile| profile.plugins = Arc::clone(&plugins));
    let mut core = Core::new(settings);
    let pod = asking("p");
    for event in [
        Event::Node(node("a")),
        Event::Node(node("b")),
        slice("a"),
        slice("b"),
        class(Some(GPU)),
        Event::Devices(Change::Claim(Box::new(made(&pod, "b")))),
        Event::Pod(pod.clone()),
    ] {
        core.handle(event, LATER);
    }
    let refused = refused(&mut core, LATER);
    let after = "deletion of ResourceClaim completed";
    let wanted = format!("0/2 nodes are available: 2 cannot schedule extended resource claim. {after}");
    assert_eq!(refused.message, wanted);
    let stale = refused.deallocation.unwrap();
    assert!(stale.deletes && stale.key == made(&pod, "b").key);
    assert!(core.next(LATER).is_none());
    core.handle(Event::Devices(Change::ClaimGone(stale.key)), LATER);
    assert_eq!(reserves(&mut core).claims.len(), 1);
}
