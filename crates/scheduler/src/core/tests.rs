//! The core as a whole: objects in as JSON, decisions out as text.

use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1 as wire;
use proptest::prelude::*;
use serde_json::{Value, json};
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::resource::ResourceName;
use topology::score::{Strategy as ZoneStrategy, Weights};
use topology::zone::{Zone, ZoneId, ZoneResource};

use super::*;
use crate::cycle::{Accounting, UNREPORTED_GRACE_MS};

mod anti_affinity;
mod charged;
mod claims;
mod cluster_zones;
mod contradiction;
mod default_spread;
mod departures;
mod equivalence_cache;
mod extended;
mod extender_verbs;
mod gang;
mod hold;
mod intent;
mod knowledge;
mod plugins;
mod preemption;
mod rejection_backoff;
mod spanning;
mod volumes;

const GI: i64 = 1 << 30;
/// Late enough that no node is young.
const LATER: u64 = 1_000_000;

fn settings() -> Settings {
    let (strategy, weights) = (ZoneStrategy::LeastAllocated, Weights::default());
    let (accounting, unreported) = (Accounting::Exact, api::schedulerconfig::NodesWithoutTopology::Accept);
    let numa = Numa { strategy, weights, filters: true, score_weight: 1, accounting, unreported };
    // Messages without what kube-scheduler says of claims, but for the test of that.
    let plugins = Arc::new(Plugins { deallocates: false, ..Plugins::default() });
    Settings {
        profiles: vec![
            Profile { name: "numa".into(), numa: Some(numa), plugins: Arc::clone(&plugins), percentage: 0 },
            Profile { name: "blind".into(), numa: None, plugins, percentage: 0 },
        ],
        backoff: BackoffLimits { initial_ms: 1_000, max_ms: 10_000 },
        seed: 7,
        hold_after_ms: Some(60_000),
        max_wait_ms: crate::config::MAX_WAIT_MS,
        deletes_rejected: false,
    }
}

/// A node with two zones of 8 CPUs.
fn node(name: &str) -> NodeView {
    NodeView::read(
        &serde_json::from_value::<wire::Node>(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"zone": name}},
            "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
        }))
        .unwrap(),
    )
}

/// A pod of one Guaranteed container, merged with `more`. Each is younger than those before.
fn pod(name: &str, cpus: i64, more: Value) -> PodView {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {
            "schedulerName": "numa",
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"qosClass": "Guaranteed"},
    });
    merge(&mut object, more);
    let created_s = CREATED.fetch_add(1, Ordering::Relaxed);
    PodView { created_s, ..PodView::read(&serde_json::from_value(object).unwrap()) }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

fn running(node: &str) -> Value {
    json!({"spec": {"nodeName": node}, "status": {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"}})
}

/// A report of two zones with so many CPUs available, describing `pods`.
fn report(available: [i64; 2], pods: &[&str]) -> Arc<NodeTopology> {
    let zones = available
        .iter()
        .zip(0_u32..)
        .map(|(cpus, id)| Zone {
            id: ZoneId(id),
            distances: vec![],
            resources: vec![
                ZoneResource {
                    name: ResourceName::CPU,
                    capacity: 8_000,
                    allocatable: 8_000,
                    available: cpus * 1_000,
                },
                ZoneResource {
                    name: ResourceName::MEMORY,
                    capacity: 16 * GI,
                    allocatable: 16 * GI,
                    available: 16 * GI - (8 - cpus).min(1) * GI,
                },
            ],
        })
        .collect();
    let mut hashes: Vec<_> = pods.iter().map(|name| PodHash::of("ns", name)).collect();
    Arc::new(NodeTopology {
        rules: Rules {
            policy: Policy::SingleNumaNode,
            scope: Scope::Container,
            cpu_manager: Manager::Static,
            memory_manager: Manager::Static,
        },
        zones,
        fingerprint: Some((Fingerprint::of(&mut hashes), Method::WithExclusiveResources)),
        ..NodeTopology::default()
    })
}

fn core(nodes: &[&str]) -> Core {
    let mut core = Core::new(settings());
    for name in nodes {
        core.handle(Event::Node(node(name)), LATER);
        core.handle(Event::Report((*name).into(), report([8, 8], &[])), LATER);
    }
    core
}

/// All decisions at a time, each as `pod -> node` or `pod: message`, without what preemption adds to the message.
fn decide(core: &mut Core, now: u64) -> Vec<String> {
    std::iter::from_fn(|| core.next(now))
        .map(|decision| match decision {
            Decision::Bind(binding) => format!("{} -> {}", binding.pod.name, binding.node),
            Decision::Refuse(refused) => {
                let message = refused.message.split(" preemption: ").next().unwrap_or_default();
                format!("{}: {message}", refused.pod.name)
            }
            other @ (Decision::BindVolumes(_)
            | Decision::ReserveClaims(_)
            | Decision::ReleaseClaims(_)
            | Decision::FailVolumes(_)) => panic!("{other:?}"),
            Decision::Preempt(it) => panic!("{} evicts pods on {}", it.refused.pod.name, it.node),
            Decision::NoteRejection(it) => format!("{} rejected, {}", it.pod.name, it.times),
            Decision::SetGroupCondition(it) => format!("{}: {}", it.group.name, it.scheduled.reason),
            Decision::Withdraw(pod) => format!("pod {} is withdrawn", pod.0),
        })
        .collect()
}

#[test]
fn pods_fill_zones_and_wait_where_only_the_node_has_room() {
    let mut core = core(&["n"]);
    for (name, cpus) in [("a", 6), ("b", 6), ("c", 4), ("d", 2), ("e", 2)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    let message = "c: 0/1 nodes are available: 1 cannot align container \"c\": cpu: requested 4, most in one zone 2 (zone 0).";
    assert_eq!(decide(&mut core, LATER), ["a -> n", "b -> n", message, "d -> n", "e -> n"]);
}

#[test]
fn a_blind_profile_sees_only_totals() {
    let mut core = core(&["n"]);
    for (name, cpus) in [("a", 6), ("b", 6), ("c", 4), ("d", 1)] {
        core.handle(Event::Pod(pod(name, cpus, json!({"spec": {"schedulerName": "blind"}}))), LATER);
    }
    assert_eq!(
        decide(&mut core, LATER),
        ["a -> n", "b -> n", "c -> n", "d: 0/1 nodes are available: 1 Insufficient cpu."]
    );
}

#[test]
fn waiting_pods_are_woken_at_once_and_in_order_by_a_release() {
    let mut core = core(&["n"]);
    for (name, cpus) in [("a", 8), ("b", 8), ("c", 6), ("d", 6), ("e", 2)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    let waits = |name: &str| format!("{name}: 0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(
        decide(&mut core, LATER),
        ["a -> n".into(), "b -> n".into(), waits("c"), waits("d"), waits("e")]
    );
    for name in ["a", "b"] {
        core.handle(Event::Pod(pod(name, 8, running("n"))), LATER);
    }
    core.handle(Event::PodGone(pod("a", 8, ended("n"))), LATER);
    assert_eq!(decide(&mut core, LATER), ["c -> n", "e -> n"]);
    assert_eq!(core.queue_lengths(), (0, 0, 1));
    core.handle(Event::PodGone(pod("b", 8, ended("n"))), LATER);
    assert_eq!(decide(&mut core, LATER), ["d -> n"]);
}

/// A pod that is tried and refused on a node says nothing about the pods that wait for it.
#[test]
fn each_freed_node_wakes_its_own_pod() {
    let mut core = core(&["s", "t"]);
    let selects = |node: &str| json!({"spec": {"nodeSelector": {"zone": node}}});
    for (name, cpus, node) in [("s1", 4, "s"), ("s2", 4, "s"), ("t1", 6, "t"), ("t2", 2, "t")] {
        core.handle(Event::Pod(pod(name, cpus, selects(node))), LATER);
        decide(&mut core, LATER);
    }
    for (name, cpus, node) in [("s3", 8, "s"), ("t3", 8, "t")] {
        core.handle(Event::Pod(pod(name, cpus, selects(node))), LATER);
    }
    assert_eq!(decide(&mut core, LATER), ["s3 -> s", "t3 -> t"]);
    core.handle(Event::Pod(pod("w1", 4, json!({}))), LATER);
    core.handle(Event::Pod(pod("w2", 2, json!({}))), LATER);
    assert_eq!(decide(&mut core, LATER).len(), 2, "both wait");
    for (name, cpus, node) in [("s1", 4, "s"), ("t2", 2, "t")] {
        core.handle(Event::Pod(pod(name, cpus, running(node))), LATER);
        core.handle(Event::PodGone(pod(name, cpus, ended(node))), LATER);
    }
    assert_eq!(decide(&mut core, LATER), ["w1 -> s", "w2 -> t"]);
}

/// A pod of a profile that aligns does not keep equal pods of another profile waiting.
#[test]
fn profiles_wait_apart() {
    let mut core = core(&["n"]);
    for (name, cpus) in [("a", 5), ("b", 5), ("c", 3), ("d", 3)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    assert_eq!(decide(&mut core, LATER).len(), 4);
    core.handle(Event::Pod(pod("aligned", 4, json!({}))), LATER);
    core.handle(Event::Pod(pod("blind", 4, json!({"spec": {"schedulerName": "blind"}}))), LATER);
    assert_eq!(decide(&mut core, LATER).len(), 2, "both wait");
    for name in ["c", "d"] {
        core.handle(Event::Pod(pod(name, 3, running("n"))), LATER);
        core.handle(Event::PodGone(pod(name, 3, ended("n"))), LATER);
    }
    assert_eq!(decide(&mut core, LATER), ["blind -> n"]);
}

/// The last state of a pod that was deleted in grace.
fn ended(node: &str) -> Value {
    json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": node},
        "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "phase": "Running",
            "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0}},
            }],
        },
    })
}

#[test]
fn a_forced_deletion_counts_when_reported_or_after_a_while() {
    for reported in [true, false] {
        let mut core = core(&["n"]);
        for name in ["a", "b"] {
            core.handle(Event::Pod(pod(name, 8, running("n"))), LATER);
        }
        core.handle(Event::Report("n".into(), report([0, 0], &["a", "b"])), LATER);
        core.handle(Event::Pod(pod("c", 8, json!({}))), LATER);
        assert_eq!(decide(&mut core, LATER), ["c: 0/1 nodes are available: 1 Insufficient cpu."]);
        core.handle(Event::PodGone(pod("a", 8, running("n"))), LATER);
        assert_eq!(decide(&mut core, LATER), [""; 0], "the kubelet may still hold its CPUs");
        if reported {
            core.handle(Event::Report("n".into(), report([8, 0], &["b"])), LATER);
            assert_eq!(decide(&mut core, LATER), ["c -> n"]);
        } else {
            assert_eq!(core.due(), Some(LATER + VANISHED_MS));
            assert_eq!(decide(&mut core, LATER + VANISHED_MS), ["c -> n"]);
        }
    }
}

#[test]
fn placements_known_from_binding_are_released_without_a_report() {
    let mut core = core(&["n"]);
    for name in ["a", "b", "c"] {
        core.handle(Event::Pod(pod(name, 8, json!({}))), LATER);
    }
    decide(&mut core, LATER);
    for name in ["a", "b"] {
        core.handle(Event::Pod(pod(name, 8, running("n"))), LATER);
    }
    core.handle(Event::PodGone(pod("b", 8, running("n"))), LATER);
    assert_eq!(decide(&mut core, LATER), [""; 0]);
    assert_eq!(decide(&mut core, LATER + VANISHED_MS), ["c -> n"]);
}

#[test]
fn unsupported_features_keep_a_pod_pending_with_the_reason() {
    let more = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]});
    let reason = "spec.containers[0].resources.requests[cpu]";
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 1, json!({"spec": more}))), LATER);
    let decisions = decide(&mut core, LATER);
    let expected = "a: 0/1 nodes are available: the scheduler does not yet support ";
    assert!(
        decisions.len() == 1 && decisions[0].starts_with(expected) && decisions[0].contains(reason),
        "{decisions:?} should say {reason}"
    );
}

#[test]
fn node_properties_are_respected() {
    let with = |name: &str, more: Value| {
        let mut object = json!({
            "metadata": {"name": name, "uid": name},
            "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
        });
        merge(&mut object, more);
        NodeView::read(&serde_json::from_value::<wire::Node>(object).unwrap())
    };
    let mut core = Core::new(settings());
    for view in [
        with("cordoned", json!({"spec": {"unschedulable": true}})),
        with("tainted", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}})),
        with("full", json!({"status": {"allocatable": {"pods": "0"}}})),
        with("small", json!({"status": {"allocatable": {"memory": "1Mi"}}})),
        with("other", json!({"metadata": {"labels": {"disk": "hdd"}}})),
    ] {
        core.handle(Event::Node(view), LATER);
    }
    let selector = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    core.handle(Event::Pod(pod("a", 1, selector)), LATER);
    let labelled = json!({"metadata": {"labels": {"disk": "ssd"}}});
    for name in ["full", "small"] {
        let mut more = labelled.clone();
        merge(
            &mut more,
            json!({"status": {"allocatable": if name == "full" { json!({"pods": "0"}) } else { json!({"memory": "1Mi"}) }}}),
        );
        core.handle(Event::Node(with(name, more)), LATER);
    }
    assert_eq!(
        decide(&mut core, LATER),
        ["a: 0/5 nodes are available: 1 Insufficient memory, 1 Too many pods, \
          1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), \
          1 node(s) were unschedulable."]
    );
    core.handle(Event::Node(with("other", labelled)), LATER);
    assert_eq!(decide(&mut core, LATER), ["a -> other"]);
}

#[test]
fn without_nodes_pods_wait_for_one() {
    let mut core = Core::new(settings());
    core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
    assert_eq!(decide(&mut core, LATER), ["a: no nodes available to schedule pods"]);
    core.handle(Event::Node(node("n")), LATER);
    assert_eq!(decide(&mut core, LATER), ["a -> n"]);
}

#[test]
fn a_young_node_is_given_time_to_report() {
    let mut core = Core::new(settings());
    let mut young = node("n");
    young.created_ms = LATER;
    core.handle(Event::Node(young), LATER);
    core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
    core.handle(
        Event::Pod(pod("b", 0, json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": null}}]}, "status": {"qosClass": "Burstable"}}))),
        LATER,
    );
    assert_eq!(
        decide(&mut core, LATER),
        ["a: 0/1 nodes are available: 1 invalid node topology data: the first report is awaited.", "b -> n"]
    );
    assert_eq!(core.due(), Some(LATER + UNREPORTED_GRACE_MS));
    assert_eq!(decide(&mut core, LATER + UNREPORTED_GRACE_MS), ["a -> n"]);
}

#[test]
fn a_lost_report_stops_pods_that_need_alignment_only() {
    let mut core = core(&["n"]);
    core.handle(Event::ReportGone("n".into()), LATER);
    core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
    assert_eq!(
        decide(&mut core, LATER),
        ["a: 0/1 nodes are available: 1 invalid node topology data: the report is gone or cannot be read."]
    );
    core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
    assert_eq!(decide(&mut core, LATER), ["a -> n"]);
}

#[test]
fn a_node_recreated_under_its_name_starts_from_its_own_report() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 8, running("n"))), LATER);
    core.handle(Event::NodeGone("n".into()), LATER);
    core.handle(Event::ReportGone("n".into()), LATER);
    core.handle(Event::PodVanished("uid-a".into()), LATER);
    let mut again = node("n");
    again.uid = "another".into();
    core.handle(Event::Node(again), LATER + VANISHED_MS);
    core.handle(Event::Pod(pod("b", 8, json!({}))), LATER + VANISHED_MS);
    assert_eq!(
        decide(&mut core, LATER + VANISHED_MS),
        ["b: 0/1 nodes are available: 1 invalid node topology data: the report is gone or cannot be read."]
    );
    core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER + VANISHED_MS);
    assert_eq!(decide(&mut core, LATER + VANISHED_MS), ["b -> n"]);
}

#[test]
fn a_failed_binding_frees_the_room_and_backs_off() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 8, json!({}))), LATER);
    let Some(Decision::Bind(binding)) = core.next(LATER) else { panic!("not bound") };
    core.handle(Event::BindFailed(binding.id), LATER);
    assert_eq!(decide(&mut core, LATER), [""; 0]);
    for name in ["b", "c"] {
        core.handle(Event::Pod(pod(name, 8, json!({}))), LATER);
    }
    assert_eq!(decide(&mut core, LATER), ["b -> n", "c -> n"]);
    assert_eq!(
        decide(&mut core, LATER + 1_000),
        ["a: 0/1 nodes are available: 1 Insufficient cpu."],
        "tried again after the initial backoff"
    );
}

#[test]
fn gates_deletion_and_priority_are_respected() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("gated", 1, json!({"spec": {"schedulingGates": [{"name": "g"}]}}))), LATER);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    core.handle(Event::Pod(pod("deleted", 1, deleted)), LATER);
    core.handle(Event::Pod(pod("low", 1, json!({}))), LATER);
    core.handle(Event::Pod(pod("high", 1, json!({"spec": {"priority": 10}}))), LATER);
    core.handle(Event::Pod(pod("foreign", 1, json!({"spec": {"schedulerName": "other"}}))), LATER);
    assert_eq!(decide(&mut core, LATER), ["high -> n", "low -> n"]);
    core.handle(Event::Pod(pod("gated", 1, json!({}))), LATER);
    assert_eq!(decide(&mut core, LATER), ["gated -> n"]);
}

#[test]
fn fifty_containers_and_huge_numbers_do_no_harm() {
    let mut core = core(&["n"]);
    let many: Vec<_> = (0..50)
        .map(|at| json!({"name": format!("c{at}"), "resources": {"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}}}))
        .collect();
    core.handle(Event::Pod(pod("many", 1, json!({"spec": {"containers": many}}))), LATER);
    let huge = json!({"cpu": "9223372036854775807", "memory": "100000000000E"});
    let containers = json!([{"name": "c", "resources": {"requests": huge, "limits": huge}}]);
    core.handle(Event::Pod(pod("huge", 1, json!({"spec": {"containers": containers}}))), LATER);
    let none = json!([{"name": "c"}]);
    core.handle(
        Event::Pod(pod(
            "none",
            1,
            json!({"spec": {"containers": none}, "status": {"qosClass": "BestEffort"}}),
        )),
        LATER,
    );
    assert_eq!(
        decide(&mut core, LATER),
        [
            "many: 0/1 nodes are available: 1 Insufficient cpu.",
            "huge: 0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
            "none -> n",
        ]
    );
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, i64),
    Decide,
    Confirm(usize),
    Run(usize),
    Finish(usize),
    End(usize),
    Vanish(usize),
    Node(usize),
    NodeGone(usize),
    Report(usize, [i64; 2]),
    ReportGone(usize),
    FailBind(usize),
    Resize(usize, i64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pods = 0..12_usize;
    let nodes = 0..3_usize;
    prop_oneof![
        6 => (pods.clone(), 1..=8_i64).prop_map(|(pod, cpus)| Step::Create(pod, cpus)),
        6 => Just(Step::Decide),
        3 => pods.clone().prop_map(Step::Confirm),
        3 => pods.clone().prop_map(Step::Run),
        2 => pods.clone().prop_map(Step::Finish),
        2 => pods.clone().prop_map(Step::End),
        2 => pods.clone().prop_map(Step::Vanish),
        2 => nodes.clone().prop_map(Step::Node),
        1 => nodes.clone().prop_map(Step::NodeGone),
        3 => (nodes.clone(), [0..=8_i64, 0..=8_i64]).prop_map(|(node, free)| Step::Report(node, free)),
        1 => nodes.prop_map(Step::ReportGone),
        1 => pods.clone().prop_map(Step::FailBind),
        2 => (pods, 1..=8_i64).prop_map(|(pod, cpus)| Step::Resize(pod, cpus)),
        1 => (0..5_000_u64).prop_map(Step::Wait),
    ]
}

/// Pods as the API server has them, and what the core decided.
#[derive(Default)]
struct World {
    pods: BTreeMap<usize, (i64, Option<String>)>,
    bindings: BTreeMap<usize, PodId>,
    now: u64,
}

impl World {
    fn view(&self, at: usize, more: impl Fn(&str) -> Value) -> Option<PodView> {
        let (cpus, node) = self.pods.get(&at)?;
        Some(pod(&format!("p{at}"), *cpus, more(node.as_deref()?)))
    }

    /// Events may come in any order; whatever a step concerns may not exist.
    fn apply(&mut self, core: &mut Core, step: &Step) {
        let now = LATER + self.now;
        match step {
            Step::Create(at, cpus) if !self.pods.contains_key(at) => {
                self.pods.insert(*at, (*cpus, None));
                core.handle(Event::Pod(pod(&format!("p{at}"), *cpus, json!({}))), now);
            }
            Step::Decide => {
                while let Some(decision) = core.next(now) {
                    let Decision::Bind(binding) = decision else { continue };
                    let at: usize = binding.pod.name[1..].parse().unwrap();
                    self.pods.entry(at).and_modify(|(_, node)| *node = Some(binding.node.to_string()));
                    self.bindings.insert(at, binding.id);
                }
            }
            Step::Confirm(at) => self.tell(core, *at, on),
            Step::Run(at) => self.tell(core, *at, running),
            Step::Finish(at) => self.tell(
                core,
                *at,
                |node| json!({"spec": {"nodeName": node}, "status": {"phase": "Succeeded"}}),
            ),
            Step::End(at) => self.end(core, *at, ended),
            Step::Vanish(at) => self.end(core, *at, running),
            Step::Node(at) => core.handle(Event::Node(node(&format!("n{at}"))), now),
            Step::NodeGone(at) => core.handle(Event::NodeGone(format!("n{at}").into()), now),
            Step::Report(at, free) => {
                core.handle(Event::Report(format!("n{at}").into(), report(*free, &[])), now)
            }
            Step::ReportGone(at) => core.handle(Event::ReportGone(format!("n{at}").into()), now),
            Step::FailBind(at) => {
                if let Some(id) = self.bindings.remove(at) {
                    self.pods.entry(*at).and_modify(|(_, node)| *node = None);
                    core.handle(Event::BindFailed(id), now);
                }
            }
            Step::Resize(at, cpus) => {
                self.pods.entry(*at).and_modify(|(known, _)| *known = *cpus);
                self.tell(core, *at, running);
            }
            Step::Wait(ms) => self.now += ms,
            Step::Create(..) => {}
        }
    }

    fn tell(&mut self, core: &mut Core, at: usize, more: impl Fn(&str) -> Value) {
        if let Some(view) = self.view(at, more) {
            self.bindings.remove(&at);
            core.handle(Event::Pod(view), LATER + self.now);
        }
    }

    fn end(&mut self, core: &mut Core, at: usize, more: impl Fn(&str) -> Value) {
        if let Some(view) = self.view(at, more) {
            self.pods.remove(&at);
            self.bindings.remove(&at);
            core.handle(Event::PodGone(view), LATER + self.now);
        }
    }
}

/// Each node's totals are the sum over the pods charged to it, each once, and no pod is queued and placed at once.
fn recount(core: &Core) {
    for (slot, node) in core.nodes.iter().enumerate() {
        let mine = core
            .pods
            .values()
            .filter(|entry| entry.lifecycle.slot() == Some(slot))
            .filter(|entry| !matches!(entry.lifecycle, Lifecycle::Ended { .. }));
        let (mut pods, mut cpu) = (0, 0);
        for entry in mine {
            pods += 1;
            cpu += crate::node::amount(&entry.view.charged.totals, ResourceName::CPU);
        }
        let used = crate::node::amount(&node.used, ResourceName::CPU);
        assert_eq!((node.pods, used), (pods, cpu), "{}", node.name);
    }
    assert_eq!(core.ids.len(), core.pods.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn totals_survive_any_interleaving(steps in prop::collection::vec(step(), 1..80)) {
        let (mut core, mut world) = (core(&["n0", "n1"]), World::default());
        for step in &steps {
            world.apply(&mut core, step);
            recount(&core);
        }
    }

    #[test]
    fn the_same_events_give_the_same_decisions(steps in prop::collection::vec(step(), 1..60)) {
        let run = || {
            let mut core = core(&["n0", "n1", "n2"]);
            let mut world = World::default();
            steps.iter().for_each(|step| world.apply(&mut core, step));
            (world.pods, decide(&mut core, LATER + world.now))
        };
        prop_assert_eq!(run(), run());
    }
}
