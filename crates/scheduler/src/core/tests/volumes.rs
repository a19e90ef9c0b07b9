//! Volumes in the core: pods wait for their claims, and for their volumes to be bound.

use super::*;
use crate::volumes::Change;
use crate::volumes::reference::ClaimKey;
use crate::volumes::views::{ClaimView, ClassView, VolumeView};

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn key(name: &str) -> ClaimKey {
    ClaimKey { namespace: "ns".into(), name: name.into() }
}

/// A claim without a volume yet, of a class that waits for a pod.
fn claim(name: &str, version: u64, more: Value) -> Event {
    let mut object = json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
        },
        "spec": {
            "storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    merge(&mut object, more);
    Event::Volumes(Change::Claim(ClaimView::read(&read(object))))
}

fn bound(volume: &str) -> Value {
    let annotations =
        json!({"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "a"});
    json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}})
}

/// A volume that only this node reaches.
fn volume(name: &str, version: u64, node: &str, claim: Option<&str>) -> Event {
    let expression = json!({"key": "zone", "operator": "In", "values": [node]});
    let mut object = json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "spec": {
            "storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Available"},
    });
    if let Some(claim) = claim {
        object["spec"]["claimRef"] = json!({"namespace": "ns", "name": claim, "uid": format!("uid-{claim}")});
    }
    Event::Volumes(Change::Volume(Box::new(VolumeView::read(&read(object)))))
}

fn class(provisioner: &str) -> Event {
    Event::Volumes(Change::Class(ClassView::read(&read(json!({
        "metadata": {"name": "local"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    })))))
}

fn with_claim(name: &str, cpus: i64, claim: &str) -> Event {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    Event::Pod(pod(name, cpus, json!({"spec": {"volumes": volumes}})))
}

fn static_class() -> Event {
    class("kubernetes.io/no-provisioner")
}

fn message(core: &mut Core, now_ms: u64) -> String {
    match core.next(now_ms) {
        Some(Decision::Refuse(refused)) => refused.message,
        other => panic!("{other:?}"),
    }
}

fn binds_volumes(core: &mut Core) -> BindVolumes {
    match core.next(LATER) {
        Some(Decision::BindVolumes(bind)) => bind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_waits_for_what_its_claim_lacks_and_is_woken_by_nothing_else() {
    let mut core = core(&["a", "b"]);
    core.handle(with_claim("p", 1, "c"), LATER);
    let not_helpful = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    let about = |reason: &str| format!("0/2 nodes are available: {reason}. {not_helpful}");
    assert_eq!(message(&mut core, LATER), about("persistentvolumeclaim \"c\" not found"));
    for (event, wanted) in [
        (claim("other", 1, json!({})), None),
        (claim("c", 1, json!({})), Some("pod has unbound immediate PersistentVolumeClaims")),
        (claim("c", 2, json!({})), None),
        (static_class(), Some("2 node(s) didn't find available persistent volumes to bind")),
        (volume("x", 1, "c", None), Some("2 node(s) didn't find available persistent volumes to bind")),
        (volume("x", 2, "c", None), None),
    ] {
        core.handle(event, LATER);
        match wanted {
            Some(reason) => assert_eq!(message(&mut core, LATER), about(reason)),
            None => assert!(core.next(LATER).is_none()),
        }
    }
    core.handle(volume("v", 1, "b", None), LATER);
    let bind = binds_volumes(&mut core);
    assert_eq!((&*bind.binding.node, &*bind.volumes.chosen[0].volume), ("b", "v"));
    assert!(core.next(LATER).is_none(), "the binding waits for the volume");
}

#[test]
fn the_binding_follows_the_events_that_show_the_claim_bound() {
    let mut core = core(&["a"]);
    [static_class(), claim("c", 1, json!({})), volume("v", 1, "a", None), with_claim("p", 1, "c")]
        .into_iter()
        .for_each(|event| core.handle(event, LATER));
    let BindVolumes { binding, mut volumes } = binds_volumes(&mut core);
    volumes.chosen[0].version = 2;
    core.handle(Event::VolumesWritten(binding.id, volumes), LATER);
    assert!(core.next(LATER).is_none());
    // The claim is bound, but the volume is still the one before the write.
    core.handle(claim("c", 2, bound("v")), LATER);
    assert!(core.next(LATER).is_none());
    core.handle(volume("v", 2, "a", Some("c")), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if it.id == binding.id));
}

#[test]
fn a_volume_is_chosen_once_and_free_again_after_a_failure() {
    let mut core = core(&["a"]);
    let events =
        [static_class(), claim("c", 1, json!({})), claim("d", 1, json!({})), volume("v", 1, "a", None)];
    events.into_iter().for_each(|event| core.handle(event, LATER));
    core.handle(with_claim("p", 1, "c"), LATER);
    core.handle(with_claim("q", 1, "d"), LATER);
    let BindVolumes { binding, volumes } = binds_volumes(&mut core);
    assert!(message(&mut core, LATER).contains("didn't find available persistent volumes to bind"));
    core.handle(Event::VolumesFailed(binding.id, volumes, "conflict".to_owned()), LATER);
    let Some(Decision::FailVolumes(failed)) = core.next(LATER) else { panic!("not told") };
    assert_eq!(failed.message, "running PreBind plugin \"VolumeBinding\": conflict");
    let next = binds_volumes(&mut core);
    assert_eq!((&*next.binding.pod.name, &*next.volumes.chosen[0].claim.key.name), ("q", "d"));
}

#[test]
fn a_wait_ends_with_its_time_its_node_its_claim_or_its_pod() {
    let failed = |core: &mut Core, now_ms: u64| match core.next(now_ms) {
        Some(Decision::FailVolumes(failed)) => failed.message,
        other => panic!("{other:?}"),
    };
    let gone = Event::Volumes(Change::ClaimGone(key("c")));
    let reset = || claim("c", 3, json!({}));
    for (event, after_ms, reason) in [
        (None, 600_000, "context deadline exceeded"),
        (Some(Event::NodeGone("a".into())), 0, "failed to get node \"a\": node \"a\" not found"),
        (Some(gone), 0, "failed to check provisioning pvc: persistentvolumeclaims \"ns/c\" not found"),
        (Some(reset()), 0, "provisioning failed for PVC \"c\""),
        (Some(Event::PodGone(pod("p", 1, json!({})))), 0, "pod does not exist any more: pod \"p\" not found"),
    ] {
        let mut core = core(&["a"]);
        [class("d"), claim("c", 1, json!({})), with_claim("p", 1, "c")]
            .into_iter()
            .for_each(|event| core.handle(event, LATER));
        let BindVolumes { binding, mut volumes } = binds_volumes(&mut core);
        assert_eq!(volumes.provisioned[0].claim, key("c"));
        volumes.provisioned[0].version = 2;
        core.handle(Event::VolumesWritten(binding.id, volumes), LATER);
        let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "a"}}});
        core.handle(claim("c", 2, selected), LATER);
        assert!(core.next(LATER + 599_999).is_none(), "{reason}");
        event.into_iter().for_each(|event| core.handle(event, LATER));
        let message = failed(&mut core, LATER + after_ms);
        assert_eq!(message, format!("running PreBind plugin \"VolumeBinding\": binding volumes: {reason}"));
        assert_eq!(core.nodes().map(|node| node.pods).sum::<i64>(), 0, "{reason}: the pod is off its node");
    }
}

/// Two zones of 8 CPUs. The pod with the claim needs 6 and waits. Others come before it: 3 and 4 take the first zone,
/// and another 3 would take the second.
#[test]
fn pods_that_come_first_leave_a_waiting_one_its_zone() {
    let mut core = core(&["a"]);
    [static_class(), claim("c", 1, json!({})), volume("v", 1, "a", None), with_claim("p", 6, "c")]
        .into_iter()
        .for_each(|event| core.handle(event, LATER));
    let BindVolumes { binding, mut volumes } = binds_volumes(&mut core);
    core.handle(Event::Pod(pod("q", 3, json!({}))), LATER);
    core.handle(Event::Pod(pod("r", 4, json!({}))), LATER);
    core.handle(Event::Pod(pod("s", 3, json!({}))), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if &*it.pod.name == "q"));
    assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if &*it.pod.name == "r"));
    assert!(message(&mut core, LATER).contains("cannot align container"));
    volumes.chosen[0].version = 2;
    core.handle(Event::VolumesWritten(binding.id, volumes), LATER);
    core.handle(volume("v", 2, "a", Some("c")), LATER);
    core.handle(claim("c", 2, bound("v")), LATER);
    assert!(matches!(core.next(LATER), Some(Decision::Bind(it)) if it.id == binding.id));
}

#[test]
fn a_claim_for_one_pod_is_free_when_that_pod_ends() {
    let mut core = core(&["a", "b"]);
    let one = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    let mut held = bound("v");
    merge(&mut held, one);
    core.handle(volume("v", 1, "a", Some("c")), LATER);
    core.handle(claim("c", 1, held), LATER);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    let first = pod("first", 1, json!({"spec": {"volumes": volumes, "nodeName": "a"}}));
    core.handle(Event::Pod(first.clone()), LATER);
    core.handle(with_claim("p", 1, "c"), LATER);
    assert!(message(&mut core, LATER).contains("with ReadWriteOncePod access mode already in-use"));
    core.handle(Event::PodGone(first), LATER);
    let Some(Decision::Bind(binding)) = core.next(LATER) else { panic!("not bound") };
    assert_eq!((&*binding.pod.name, &*binding.node), ("p", "a"));
}

/// With five CPUs left in the first zone, four of them for the pod that waited, the other one goes to the second zone.
#[test]
fn a_waiting_pod_that_another_process_binds_may_come_before_one_that_is_assumed() {
    let mut core = Core::new(settings());
    core.handle(Event::Node(node("a")), LATER);
    core.handle(Event::Pod(pod("resident", 3, running("a"))), LATER);
    core.handle(Event::Report("a".into(), report([5, 8], &["resident"])), LATER);
    let older = pod("older", 5, json!({}));
    [static_class(), claim("c", 1, json!({})), volume("v", 1, "a", None), with_claim("p", 4, "c")]
        .into_iter()
        .for_each(|event| core.handle(event, LATER));
    binds_volumes(&mut core);
    core.handle(Event::Pod(older), LATER);
    assert_eq!(decide(&mut core, LATER), ["older -> a"]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    let bound = json!({"spec": {"volumes": volumes, "nodeName": "a"}});
    core.handle(Event::Pod(pod("p", 4, bound)), LATER);
    core.handle(Event::Pod(pod("next", 4, json!({}))), LATER);
    assert!(message(&mut core, LATER).contains("cannot align"), "four CPUs may be left in no zone");
}
