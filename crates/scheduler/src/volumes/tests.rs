//! The objects of storage by themselves: which changes help, and what is assumed.

use k8s_openapi::api::core::v1 as wire;
use serde_json::{Value, json};

use super::*;
use crate::pod::PodView;

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn claim(version: u64, class: &str, volume: Option<&str>) -> Change {
    Change::Claim(ClaimView::read(&read(json!({
        "metadata": { "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": version.to_string() },
        "spec": { "storageClassName": class, "volumeName": volume },
    }))))
}

fn volume(version: u64, class: &str, phase: &str) -> Change {
    Change::Volume(Box::new(VolumeView::read(&read(json!({
        "metadata": { "name": "v", "resourceVersion": version.to_string() },
        "spec": { "storageClassName": class }, "status": { "phase": phase },
    })))))
}

fn class(allowed: &str) -> Change {
    let labels = json!([{ "key": "zone", "values": [allowed] }]);
    Change::Class(ClassView::read(&read(json!({
        "metadata": { "name": "fast" }, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{ "matchLabelExpressions": labels }],
    }))))
}

fn csi_node(limit: Option<i32>) -> Change {
    let driver = json!({ "name": "d", "nodeID": "n", "allocatable": { "count": limit } });
    Change::CsiNode(CsiNodeView::read(&read(json!({
        "metadata": { "name": "n" }, "spec": { "drivers": [driver] },
    }))))
}

fn capacity(amount: &str) -> Change {
    Change::Capacity(CapacityView::read(&read(json!({
        "metadata": { "namespace": "ns", "name": "k" }, "storageClassName": "fast", "capacity": amount,
    }))))
}

fn driver(tracks: bool) -> Change {
    Change::Driver(DriverView::read(&read(json!({
        "metadata": { "name": "d" }, "spec": { "storageCapacity": tracks },
    }))))
}

fn attachment() -> Change {
    Change::Attachment(AttachmentView::read(&read(json!({
        "metadata": { "name": "a" },
        "spec": { "attacher": "d", "nodeName": "n", "source": { "persistentVolumeName": "v" } },
    }))))
}

fn key() -> ClaimKey {
    ClaimKey { namespace: "ns".into(), name: "c".into() }
}

#[test]
fn only_changes_that_matter_help() {
    let on = |class: &str| Helped::Volume("v".into(), class.into());
    let fast = || Helped::Class("fast".into());
    for (changes, wanted) in [
        (vec![claim(1, "fast", None)], Helped::Claim(key())),
        (vec![claim(1, "fast", None), claim(2, "fast", None)], Helped::NoPod),
        (vec![claim(1, "fast", None), claim(2, "fast", Some("v"))], Helped::Claim(key())),
        (vec![claim(1, "fast", None), Change::ClaimGone(key())], Helped::NoPod),
        (vec![volume(1, "fast", "Pending")], on("fast")),
        (vec![volume(1, "fast", "Pending"), volume(2, "fast", "Pending")], Helped::NoPod),
        (vec![volume(1, "fast", "Pending"), volume(2, "fast", "Available")], on("fast")),
        (vec![volume(1, "fast", "Pending"), volume(2, "slow", "Pending")], on("slow")),
        (vec![class("a")], fast()),
        (vec![class("a"), class("a")], Helped::NoPod),
        (vec![class("a"), class("b")], fast()),
        (vec![csi_node(Some(1))], Helped::All),
        (vec![csi_node(Some(2)), csi_node(Some(1))], Helped::NoPod),
        (vec![csi_node(Some(1)), csi_node(Some(2))], Helped::All),
        (vec![csi_node(Some(1)), csi_node(None)], Helped::All),
        (vec![capacity("1Gi")], fast()),
        (vec![capacity("2Gi"), capacity("1Gi")], Helped::NoPod),
        (vec![capacity("1Gi"), capacity("2Gi")], fast()),
        (vec![driver(false), driver(true)], Helped::NoPod),
        (vec![driver(true), driver(false)], Helped::Driver("d".into())),
        (vec![attachment()], Helped::NoPod),
        (vec![attachment(), Change::AttachmentGone("a".into())], Helped::All),
        (vec![Change::AttachmentGone("a".into())], Helped::NoPod),
    ] {
        let mut volumes = Volumes::default();
        let text = format!("{changes:?}");
        let helped = changes.into_iter().map(|change| volumes.apply(change)).last();
        assert_eq!(helped, Some(wanted), "{text}");
    }
}

#[test]
fn pods_are_helped_by_what_their_claims_need() {
    let pod = |volume: Value| {
        let object = json!({
            "metadata": { "namespace": "ns", "name": "p", "uid": "p" },
            "spec": { "containers": [], "volumes": [volume] },
        });
        PodView::read(&read::<wire::Pod>(object)).spec
    };
    let with_claim = pod(json!({ "name": "c", "persistentVolumeClaim": { "claimName": "c" } }));
    let without = pod(json!({ "name": "e", "emptyDir": {} }));
    let (fast, slow) = (Helped::Class("fast".into()), Helped::Class("slow".into()));
    let volume = |name: &str, class: &str| Helped::Volume(name.into(), class.into());
    let other = Helped::Claim(ClaimKey { namespace: "other".into(), name: "c".into() });
    for (bound, helped, wanted) in [
        (None, Helped::NoPod, false),
        (None, Helped::All, true),
        (None, Helped::Claim(key()), true),
        (None, other, false),
        (None, fast.clone(), true),
        (None, slow, false),
        (Some("v"), fast, false),
        (None, volume("v", "fast"), true),
        (None, volume("v", "slow"), false),
        (Some("v"), volume("v", "slow"), true),
        (Some("w"), volume("v", "fast"), false),
        (None, Helped::Driver("d".into()), true),
        (None, Helped::Driver("x".into()), false),
        (Some("v"), Helped::Driver("d".into()), false),
    ] {
        let mut volumes = Volumes::default();
        volumes.apply(class("a"));
        volumes.apply(claim(1, "fast", bound));
        assert_eq!(volumes.may_help(&helped, &with_claim), wanted, "{bound:?} {helped:?}");
        assert!(!volumes.may_help(&helped, &without), "{helped:?}");
    }
}

#[test]
fn what_is_assumed_lasts_until_a_newer_version() {
    let mut volumes = Volumes::default();
    volumes.apply(claim(5, "fast", None));
    volumes.apply(volume(7, "fast", "Available"));
    let reference = volumes.claim(&key()).unwrap().reference();
    let node: Arc<str> = "n".into();
    let chosen = |volumes: &Volumes| volumes.claim_of(volumes.volume("v").unwrap()).is_some();
    let selected = |volumes: &Volumes| volumes.selected_node(volumes.claim(&key()).unwrap()).is_some();

    volumes.choose(&"v".into(), reference.clone());
    volumes.select(&key(), &node);
    assert_eq!((chosen(&volumes), selected(&volumes)), (true, true));
    // The same version again, as after a broken watch.
    volumes.apply(claim(5, "fast", None));
    volumes.apply(volume(7, "fast", "Available"));
    assert_eq!((chosen(&volumes), selected(&volumes)), (true, true));
    // A write has made another version of it: that will arrive.
    assert_eq!(volumes.unchoose(&"v".into(), 8), Helped::NoPod);
    assert_eq!(volumes.unselect(&key(), 6), Helped::NoPod);
    assert_eq!((chosen(&volumes), selected(&volumes)), (true, true));
    volumes.apply(claim(6, "fast", None));
    volumes.apply(volume(8, "fast", "Available"));
    assert_eq!((chosen(&volumes), selected(&volumes)), (false, false));
    volumes.choose(&"v".into(), reference);
    volumes.select(&key(), &node);
    assert_eq!(volumes.unchoose(&"v".into(), 8), Helped::Volume("v".into(), "fast".into()));
    assert_eq!(volumes.unselect(&key(), 6), Helped::Claim(key()));
    assert_eq!((chosen(&volumes), selected(&volumes)), (false, false));
}
