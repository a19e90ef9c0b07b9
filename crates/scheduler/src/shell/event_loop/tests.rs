//! Turns of the loop, without a server: calls are started and get their answers from here.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use prometheus_client::registry::Registry;
use runtime::events;
use serde_json::json;

use super::super::intake::Source;
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

/// The loop with these pods waiting, and a node with room for so many; and its metrics.
fn event_loop(pods: usize, room: &str) -> (EventLoop, Registry) {
    let mut registry = Registry::default();
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let (recorder, _) = events::channel(client.clone(), "scheduler", &mut registry);
    let metrics = Metrics::register(&mut registry);
    let mut event_loop = EventLoop::new(Core::new(settings()), Outbox::new(client, recorder), metrics, None);
    event_loop.take((Source::Nodes, vec![Event::Node(node(room))]));
    event_loop.take((Source::Pods, (0..pods).map(|number| Event::Pod(pod(number))).collect()));
    event_loop.take((Source::Budgets, vec![]));
    event_loop.take((Source::Reports, vec![]));
    for kind in ["1", "2", "3", "4", "5", "6", "7"] {
        event_loop.take((Source::Volumes(kind), vec![]));
    }
    (event_loop, registry)
}

/// The values of a metric, by its labels.
fn values(registry: &Registry, name: &str) -> Vec<String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_turn_decides_about_a_batch_whether_pods_fit_or_not() {
    for (room, result) in [("1000", None), ("0", Some("unschedulable"))] {
        let (mut event_loop, registry) = event_loop(PODS, room);
        for turn in 1..=3 {
            assert!(event_loop.decide(), "there may be more");
            let attempts = values(&registry, "scheduler_schedule_attempts_total");
            let counted = result
                .map(|result| vec![format!("{{result=\"{result}\",profile=\"blind\"}} {}", turn * BATCH)]);
            assert_eq!(attempts, counted.unwrap_or_default(), "bindings count when they have ended");
            assert_eq!(event_loop.decided.len(), if result.is_some() { 0 } else { turn * BATCH });
        }
        assert!(!event_loop.decide());
    }
}

#[tokio::test]
async fn a_shutdown_is_seen_after_one_turn() {
    let (mut event_loop, _registry) = event_loop(PODS, "1000");
    let token = CancellationToken::new();
    token.cancel();
    let (_sender, changes) = mpsc::unbounded_channel();
    let gate = ready::Readiness::default().gate("watches");
    // Bindings in flight are waited for; nothing answers them.
    assert!(futures::poll!(Box::pin(event_loop.run(changes, None, gate, token))).is_pending());
    assert_eq!(event_loop.decided.len(), BATCH);
}

#[tokio::test]
async fn a_failed_binding_counts_once_and_not_as_scheduled() {
    let (mut event_loop, registry) = event_loop(1, "1");
    let decide = |event_loop: &mut EventLoop| loop {
        let now = event_loop.now_ms() + 1_000;
        if let Some(Decision::Bind(binding)) = event_loop.core.next(now) {
            return Box::new(binding);
        }
    };
    let attempts = |result: &str| format!("{{result=\"{result}\",profile=\"blind\"}} 1");
    let first = decide(&mut event_loop);
    event_loop.complete(CallResult::BindFailed(first));
    assert_eq!(values(&registry, "scheduler_schedule_attempts_total"), [attempts("error")]);
    let scheduled = || values(&registry, "scheduler_pod_scheduling_attempts_count");
    assert_eq!(scheduled(), [" 0"]);
    // It waits for its node again, and counts as scheduled when it is there.
    let second = decide(&mut event_loop);
    assert_eq!(second.attempts, 2);
    event_loop.complete(CallResult::Bound(second));
    let mut all = values(&registry, "scheduler_schedule_attempts_total");
    all.sort();
    assert_eq!(all, [attempts("error"), attempts("scheduled")]);
    assert_eq!(scheduled(), [" 1"]);
    assert_eq!(values(&registry, "scheduler_pod_scheduling_attempts_sum"), [" 2.0"]);
}
