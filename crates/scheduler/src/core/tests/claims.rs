use std::sync::Arc;

use k8s_openapi::api::resource::v1 as wire;

use super::*;
use crate::devices::Change;
use crate::devices::views::claim::ClaimView;
use crate::devices::views::{ClassView, SliceView};
use crate::volumes::reference::ClaimKey;

fn key(name: &str) -> ClaimKey {
    ClaimKey { namespace: "ns".into(), name: name.into() }
}

fn view(name: &str, version: u64, more: Value) -> ClaimView {
    let mut object = json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
        },
        "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
        ]}},
    });
    merge(&mut object, more);
    ClaimView::read(&serde_json::from_value::<wire::ResourceClaim>(object).unwrap())
}

pub(super) fn claim(name: &str, version: u64, more: Value) -> Event {
    Event::Devices(Change::Claim(Box::new(view(name, version, more))))
}

pub(super) fn class() -> Event {
    let object = json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd.example'"}}]},
    });
    Event::Devices(Change::Class(Box::new(ClassView::read(
        &serde_json::from_value::<wire::DeviceClass>(object).unwrap(),
    ))))
}

/// So many devices of a node, merged with `more`.
pub(super) fn slice(node: &str, devices: usize, more: Value) -> Event {
    let devices: Vec<Value> = (0..devices)
        .map(|at| {
            let mut device = json!({"name": format!("d{at}")});
            merge(&mut device, more.clone());
            device
        })
        .collect();
    let object = json!({
        "metadata": {"name": node},
        "spec": {
            "driver": "d.example", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    });
    Event::Devices(Change::Slice(Box::new(SliceView::read(
        &serde_json::from_value::<wire::ResourceSlice>(object).unwrap(),
    ))))
}

fn with_claim(name: &str, claim: &str) -> PodView {
    pod(name, 1, json!({"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": claim}]}}))
}

/// A core with these nodes, that says what PostFilter says of claims.
fn core(nodes: &[&str]) -> Core {
    let mut settings = settings();
    let plugins = Arc::new(Plugins { preemption: None, ..Plugins::default() });
    settings.profiles.iter_mut().for_each(|profile| profile.plugins = Arc::clone(&plugins));
    let mut core = Core::new(settings);
    nodes.iter().for_each(|name| core.handle(Event::Node(node(name)), LATER));
    core
}

fn all(core: &mut Core, events: impl IntoIterator<Item = Event>) {
    events.into_iter().for_each(|event| core.handle(event, LATER));
}

fn reserves(core: &mut Core) -> ReserveClaims {
    match core.next(LATER) {
        Some(Decision::ReserveClaims(reserve)) => reserve,
        other => panic!("{other:?}"),
    }
}

fn message(core: &mut Core, now_ms: u64) -> String {
    match core.next(now_ms) {
        Some(Decision::Refuse(refused)) => refused.message,
        other => panic!("{other:?}"),
    }
}

/// The claim as the API server has it after a write: with the device, and reserved for these pods.
fn written(reserve: &ReserveClaims, version: u64, more: Value) -> ClaimView {
    let it = &reserve.claims[0];
    let user =
        json!({"resource": "pods", "name": *reserve.binding.pod.name, "uid": *reserve.binding.pod.uid});
    let mut status = json!({"status": {
        "allocation": it.allocation.as_ref().map(|allocation| &allocation.wire), "reservedFor": [user],
    }});
    merge(&mut status, more);
    view(&it.key.name, version, status)
}

#[test]
fn a_pod_waits_for_what_its_claim_lacks_and_is_woken_by_that() {
    let mut core = core(&["a"]);
    let nothing = "no new claims to deallocate";
    core.handle(Event::Pod(with_claim("p", "c")), LATER);
    let missing = "0/1 nodes are available: could not find ResourceClaim \"ns/c\".";
    assert_eq!(message(&mut core, LATER), format!("{missing} {nothing}"));
    let unavailable = "1 cannot allocate all claims";
    let still = "still not schedulable";
    for (event, wanted) in [
        (claim("other", 1, json!({})), None),
        (claim("c", 1, json!({})), Some(("request r: device class gpu does not exist", nothing))),
        (class(), Some((unavailable, still))),
        (class(), None),
        (slice("b", 1, json!({})), Some((unavailable, still))),
        (slice("a", 0, json!({})), Some((unavailable, still))),
        (
            claim("c", 2, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            Some(("resourceclaim \"c\" is being deleted", nothing)),
        ),
        (claim("c", 3, json!({})), Some((unavailable, still))),
    ] {
        core.handle(event, LATER);
        match wanted {
            Some((reason, after)) => {
                let wanted = format!("0/1 nodes are available: {reason}. {after}");
                assert_eq!(message(&mut core, LATER), wanted);
            }
            None => assert!(core.next(LATER).is_none()),
        }
    }
    core.handle(slice("a", 1, json!({})), LATER);
    let reserve = reserves(&mut core);
    assert_eq!((&*reserve.binding.node, &reserve.claims[0].key), ("a", &key("c")));
    assert!(core.next(LATER).is_none(), "the binding waits for the claim");
}

/// Pod `p` with claim `c` has the only device, on node `a`; pod `q` with claim `d` wants one.
fn one_device_for_two_pods(nodes: &[&str]) -> (Core, ReserveClaims) {
    let mut core = core(nodes);
    all(&mut core, [class(), slice("a", 1, json!({})), claim("c", 1, json!({})), claim("d", 1, json!({}))]);
    all(&mut core, [Event::Pod(with_claim("p", "c")), Event::Pod(with_claim("q", "d"))]);
    let reserve = reserves(&mut core);
    (core, reserve)
}

#[test]
fn two_pods_never_get_one_device() {
    let (mut core, reserve) = one_device_for_two_pods(&["a", "b"]);
    assert!(message(&mut core, LATER).contains("2 cannot allocate all claims"));
    let claim = written(&reserve, 5, json!({}));
    let taken: Vec<String> =
        claim.allocation.iter().flat_map(|it| &it.exclusive).map(ToString::to_string).collect();
    assert_eq!(taken, ["d.example/a/d0"]);
    core.handle(Event::ClaimsWritten(reserve.binding.id, vec![claim]), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if it.id == reserve.binding.id));
    assert!(core.next(LATER).is_none());
    // The watch is behind the write, and then the claim lets go.
    core.handle(self::claim("c", 3, json!({})), LATER);
    assert!(core.next(LATER).is_none());
    core.handle(self::claim("c", 9, json!({})), LATER);
    assert_eq!(reserves(&mut core).claims[0].key, key("d"));
}

#[test]
fn what_is_not_written_is_free_for_others_and_what_is_is_given_back() {
    for is_written in [false, true] {
        let (mut core, reserve) = one_device_for_two_pods(&["a"]);
        message(&mut core, LATER);
        let id = reserve.binding.id;
        if is_written {
            core.handle(Event::ClaimsWritten(id, vec![written(&reserve, 5, json!({}))]), LATER);
            assert!(matches!(core.next(LATER), Some(Decision::Bind(_))));
            core.handle(Event::BindFailed(id), LATER);
            let Some(Decision::ReleaseClaims(release)) = core.next(LATER) else { panic!("not given back") };
            assert_eq!(release.claims, [(key("c"), "uid-c".into())]);
            assert!(core.next(LATER).is_none(), "the device stays the claim's");
            let released = written(&reserve, 9, json!({"status": {"reservedFor": []}}));
            core.handle(Event::Devices(Change::Claim(Box::new(released))), LATER);
            let Some(Decision::ReserveClaims(again)) = core.next(LATER + 1_000) else {
                panic!("not tried again")
            };
            assert_eq!((&again.claims[0].key, &again.claims[0].allocation), (&key("c"), &None));
        } else {
            core.handle(Event::ClaimsFailed(id, vec![], "conflict".to_owned()), LATER);
            let Some(Decision::FailVolumes(failed)) = core.next(LATER) else { panic!("not told") };
            assert_eq!(failed.message, "running PreBind plugin \"DynamicResources\": conflict");
            assert_eq!(reserves(&mut core).claims[0].key, key("d"));
        }
    }
}

/// Its write may be stored after all, and then the device is the claim's.
#[test]
fn the_device_of_an_open_write_is_nobodys_until_that_ends() {
    for is_written in [false, true] {
        let (mut core, reserve) = one_device_for_two_pods(&["a"]);
        message(&mut core, LATER);
        core.handle(Event::PodGone(with_claim("p", "c")), LATER);
        assert!(matches!(core.next(LATER), Some(Decision::FailVolumes(_))));
        assert!(core.next(LATER).is_none());
        let id = reserve.binding.id;
        if is_written {
            core.handle(Event::ClaimsWritten(id, vec![written(&reserve, 5, json!({}))]), LATER);
            assert!(core.next(LATER).is_none());
        } else {
            core.handle(Event::ClaimsFailed(id, vec![], "no answer".to_owned()), LATER);
            assert_eq!(reserves(&mut core).claims[0].key, key("d"));
        }
    }
}

#[test]
fn a_pod_shares_a_claim_only_once_that_has_devices() {
    let mut core = core(&["a", "b"]);
    all(&mut core, [class(), slice("a", 1, json!({})), claim("c", 1, json!({}))]);
    all(&mut core, [Event::Pod(with_claim("p", "c")), Event::Pod(with_claim("q", "c"))]);
    let reserve = reserves(&mut core);
    assert!(message(&mut core, LATER).contains("resource claim ns/c is in the process of being allocated"));
    core.handle(Event::ClaimsWritten(reserve.binding.id, vec![written(&reserve, 5, json!({}))]), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(_))));
    let second = reserves(&mut core);
    assert_eq!((&*second.binding.node, &second.claims[0].allocation), ("a", &None));
}

/// A claim whose device another node has: it lets go of the device if no other pod needs it.
#[test]
fn a_claim_that_is_of_no_use_lets_go_of_its_devices() {
    let on_b = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["b"]},
    ]}]});
    let result = json!({"request": "r", "driver": "d.example", "pool": "b", "device": "d0"});
    for (users, wanted) in [(json!([]), true), (json!(["uid-p"]), true), (json!(["other"]), false)] {
        let users: Vec<Value> = users
            .as_array()
            .unwrap()
            .iter()
            .map(|uid| json!({"resource": "pods", "name": "x", "uid": uid}))
            .collect();
        let status = json!({"status": {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": on_b}, "reservedFor": users,
        }});
        let mut core = core(&["a"]);
        all(&mut core, [class(), slice("a", 1, json!({})), claim("c", 7, status)]);
        core.handle(Event::Pod(with_claim("p", "c")), LATER);
        let Some(Decision::Refuse(refused)) = core.next(LATER) else { panic!("not refused") };
        let after = if wanted { "deallocation of ResourceClaim completed" } else { "still not schedulable" };
        let reason = "0/1 nodes are available: 1 resourceclaim not available on the node.";
        assert_eq!(refused.message, format!("{reason} {after}"));
        assert_eq!(refused.deallocation.map(|it| (it.key, it.version)), wanted.then(|| (key("c"), 7)));
    }
}

#[test]
fn a_binding_waits_for_conditions_of_devices() {
    let conditions = json!({"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]});
    let shown = |kind: &str| {
        let condition = json!({
            "type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        json!({"status": {"devices": [
            {"driver": "d.example", "pool": "a", "device": "d0", "conditions": [condition]},
        ]}})
    };
    for (event, after_ms, wanted) in [
        (Some("ready"), 0, None),
        (Some("failed"), 0, Some("device binding failed: claim=c, reason=R, message=\"m\"")),
        (None, 600_000, Some("device binding timeout: context deadline exceeded")),
    ] {
        let mut core = core(&["a"]);
        all(&mut core, [class(), slice("a", 1, conditions.clone()), claim("c", 1, json!({}))]);
        core.handle(Event::Pod(with_claim("p", "c")), LATER);
        let reserve = reserves(&mut core);
        let id = reserve.binding.id;
        core.handle(Event::ClaimsWritten(id, vec![written(&reserve, 5, json!({}))]), LATER);
        assert!(core.next(LATER + 599_999).is_none(), "it waits");
        if let Some(kind) = event {
            let claim = written(&reserve, 6, shown(kind));
            core.handle(Event::Devices(Change::Claim(Box::new(claim))), LATER);
        }
        match wanted {
            None => assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if it.id == id)),
            Some(reason) => {
                let release = core.next(LATER + after_ms);
                assert!(matches!(release, Some(Decision::ReleaseClaims(_))), "{release:?}");
                let Some(Decision::FailVolumes(failed)) = core.next(LATER + after_ms) else {
                    panic!("not told")
                };
                assert_eq!(failed.message, format!("running PreBind plugin \"DynamicResources\": {reason}"));
            }
        }
    }
}

#[test]
fn a_claim_in_error_ends_the_attempt() {
    let mut core = core(&["a", "b"]);
    let selector = json!([{"cel": {"expression": "device.attributes['d.example'].none == 1"}}]);
    let mut broken = json!({"spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
    ]}}});
    broken["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = selector;
    all(&mut core, [class(), slice("a", 1, json!({})), claim("c", 1, broken)]);
    core.handle(Event::Pod(with_claim("p", "c")), LATER);
    let wanted = "running \"DynamicResources\" filter plugin: claim ns/c: selector #0: CEL runtime error: \
                  no such key: none";
    assert_eq!(message(&mut core, LATER), wanted);
    assert!(core.next(LATER + 999).is_none());
    assert_eq!(message(&mut core, LATER + 1_000), wanted, "it is tried again after a while");
}
