//! Turns of the loop, without an outbox: decisions are counted, and calls get their answers from here.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use prometheus_client::registry::Registry;
use serde_json::json;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::intake::{Intake, Source};
use super::*;
use crate::core::{Profile, Settings};
use crate::node::NodeView;
use crate::pod::PodView;
use crate::queue::BackoffLimits;

/// More than two turns decide.
const PODS: usize = 3 * BATCH;

fn settings() -> Settings {
    Settings {
        profiles: vec![Profile { name: "blind".into(), numa: None, plugins: Arc::default(), percentage: 0 }],
        backoff: BackoffLimits { initial_ms: 1, max_ms: 1 },
        seed: 7,
        hold_after_ms: None,
        deletes_rejected: false,
        max_wait_ms: crate::config::MAX_WAIT_MS,
    }
}

fn pod(number: usize) -> PodView {
    let object = json!({
        "metadata": { "namespace": "ns", "name": format!("p{number}"), "uid": format!("u{number}") },
        "spec": { "schedulerName": "blind", "containers": [{ "name": "c" }] },
    });
    PodView::read(&serde_json::from_value(object).unwrap())
}

fn node(pods: &str) -> NodeView {
    let object = json!({
        "metadata": { "name": "n", "uid": "n" },
        "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": pods } },
    });
    NodeView::read(&serde_json::from_value::<wire::Node>(object).unwrap())
}

/// A loop with these pods waiting, and a node with room for so many.
struct Turns {
    event_loop: EventLoop,
    outputs: UnboundedReceiver<Output>,
    registry: Registry,
}

fn turns(pods: usize, room: &str) -> Turns {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (sender, outputs) = unbounded_channel();
    let mut event_loop = EventLoop::new(Core::new(settings()), Intake::new(20), sender, metrics, None);
    let empty = [
        Source::Namespaces,
        Source::Services,
        Source::ReplicationControllers,
        Source::ReplicaSets,
        Source::StatefulSets,
        Source::Budgets,
        Source::PodGroups,
        Source::Reports,
    ];
    let changes = [
        (Source::Nodes, vec![Event::Node(node(room))]),
        (Source::Pods, (0..pods).map(|number| Event::Pod(pod(number))).collect()),
    ];
    let changes = changes.into_iter().chain(empty.map(|source| (source, vec![])));
    let volumes = ["1", "2", "3", "4", "5", "6", "7"].map(|kind| (Source::Volumes(kind), vec![]));
    let devices = ["1", "2", "3"].map(|kind| (Source::Devices(kind), vec![]));
    let changes = changes.chain(volumes).chain(devices);
    event_loop.take_all(changes.map(Input::Change));
    Turns { event_loop, outputs, registry }
}

/// The bindings among the outputs so far.
fn bindings(outputs: &mut UnboundedReceiver<Output>) -> Vec<Binding> {
    let all = std::iter::from_fn(|| outputs.try_recv().ok());
    let decision = |output| match output {
        Output::Decision(decision) => Some(*decision),
        Output::PodGone(_) | Output::Drifted(..) => None,
    };
    let binding = |decision| match decision {
        Decision::Bind(binding) => Some(binding),
        _ => None,
    };
    all.filter_map(decision).filter_map(binding).collect()
}

/// The values of a metric, by its labels.
fn values(registry: &Registry, name: &str) -> Vec<String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
}

#[test]
fn a_turn_decides_about_a_batch_whether_pods_fit_or_not() {
    for (room, result) in [("1000", None), ("0", Some("unschedulable"))] {
        let Turns { mut event_loop, mut outputs, registry } = turns(PODS, room);
        for turn in 1..=3 {
            assert!(event_loop.decide_within(Duration::MAX), "there may be more");
            let attempts = values(&registry, "scheduler_schedule_attempts_total");
            let counted = result
                .map(|result| vec![format!("{{result=\"{result}\",profile=\"blind\"}} {}", turn * BATCH)]);
            assert_eq!(attempts, counted.unwrap_or_default(), "bindings count when they have ended");
            assert_eq!(bindings(&mut outputs).len(), if result.is_some() { 0 } else { BATCH });
        }
        assert!(!event_loop.decide_within(Duration::MAX));
    }
}

#[test]
fn decisions_pause_while_too_many_bindings_are_open() {
    let Turns { mut event_loop, mut outputs, .. } = turns(MAX_OPEN + 2, "1000");
    while event_loop.decide() {}
    let mut open = bindings(&mut outputs);
    assert_eq!(open.len(), MAX_OPEN);
    for _ in 0..2 {
        event_loop.take_all(
            open.pop()
                .map(|binding| Input::Result(CallResult::Bound(Box::new(binding), Duration::ZERO)))
                .into_iter(),
        );
        while event_loop.decide() {}
        assert_eq!(bindings(&mut outputs).len(), 1, "one has ended, one is decided");
    }
}

#[test]
fn a_shutdown_is_seen_before_the_next_turn() {
    let Turns { event_loop, mut outputs, .. } = turns(PODS, "1000");
    let (_inputs, receiver) = mpsc::channel();
    let token = CancellationToken::new();
    token.cancel();
    event_loop.run(&receiver, &None, &ready::Readiness::default().gate("watches"), &token);
    assert!(bindings(&mut outputs).is_empty());
}

/// The thread decides by itself, and ends with the process.
#[test]
fn the_thread_takes_inputs_and_ends() {
    let Turns { event_loop, mut outputs, .. } = turns(1, "2");
    let (inputs, receiver) = mpsc::channel();
    let token = CancellationToken::new();
    let (gate, is_over) = (ready::Readiness::default().gate("watches"), token.clone());
    let thread = std::thread::spawn(move || event_loop.run(&receiver, &None, &gate, &is_over));
    inputs.send(Input::Change((Source::Pods, vec![Event::Pod(pod(7))]))).unwrap();
    inputs.send(Input::Change((Source::Pods, vec![Event::PodGone(pod(9))]))).unwrap();
    let (mut bound, mut gone) = (0, 0);
    while (bound, gone) != (2, 1) {
        match outputs.blocking_recv().unwrap() {
            Output::Decision(decision) => bound += usize::from(matches!(*decision, Decision::Bind(_))),
            Output::PodGone(uid) => gone += usize::from(*uid == *"u9"),
            Output::Drifted(..) => panic!("there are no reports"),
        }
    }
    token.cancel();
    inputs.send(Input::Wake).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_failed_binding_counts_once_and_not_as_scheduled() {
    let Turns { mut event_loop, registry, .. } = turns(1, "1");
    let decide = |event_loop: &mut EventLoop| {
        let now = event_loop.now_ms() + 1_000;
        let Some(Decision::Bind(binding)) = event_loop.core.next(now) else { panic!("no binding") };
        Box::new(binding)
    };
    let attempts = |result: &str| format!("{{result=\"{result}\",profile=\"blind\"}} 1");
    let first = decide(&mut event_loop);
    event_loop.complete(CallResult::BindFailed(first, Duration::ZERO));
    assert_eq!(values(&registry, "scheduler_schedule_attempts_total"), [attempts("error")]);
    let scheduled = || values(&registry, "scheduler_pod_scheduling_attempts_count");
    assert_eq!(scheduled(), [" 0"]);
    // It waits for its node again, and counts as scheduled when it is there.
    let second = decide(&mut event_loop);
    assert_eq!(second.attempts, 2);
    event_loop.complete(CallResult::Bound(second, Duration::ZERO));
    let mut all = values(&registry, "scheduler_schedule_attempts_total");
    all.sort();
    assert_eq!(all, [attempts("error"), attempts("scheduled")]);
    assert_eq!(scheduled(), [" 1"]);
    assert_eq!(values(&registry, "scheduler_pod_scheduling_attempts_sum"), [" 2.0"]);
}

/// A process that does not lead decides nothing, and pods without an object end there all the same.
#[test]
fn a_standby_lets_pods_end() {
    let Turns { mut event_loop, .. } = turns(0, "2");
    let bound = || PodView { node: Some("n".into()), ..pod(0) };
    for event in [Event::Pod(bound()), Event::PodGone(bound())] {
        event_loop.take_all(std::iter::once(Input::Change((Source::Pods, vec![event]))));
    }
    assert!(event_loop.core.due().is_some(), "the kubelet may have it yet");
    event_loop.started_ms += 60_000;
    event_loop.observe(false);
    assert_eq!(event_loop.core.due(), None);
}
