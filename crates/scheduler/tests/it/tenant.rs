//! A tenant's pod with thousands of resources: each other pod gets its node at its first attempt, and between two of
//! them there is at most one attempt for such a pod. What remains is the time to read it.
//!
//! `-- tenant --nocapture` shows how long pods waited without it, with it, and while it arrives; with `STOCK=1` also
//! how long they wait under the stock scheduler.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use kube::api::{PostParams, WatchEvent, WatchParams};
use serde_json::json;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use tokio::time::{Instant, timeout};

use crate::cluster::{
    PATIENCE, Running, create, eventually, fake_node, metrics, node_of, pod, pods, refusal, report, zone,
};

/// As many as a pod of 1.5 MiB holds; the limit of an object is the API server's.
const RESOURCES: usize = 16_400;
const NODES: usize = 4;
const BURST: usize = 12;

/// A pending pod that asks for all these.
fn greedy(name: &str, scheduler: &str) -> Pod {
    let mut pod = pod(name, 1);
    let spec = pod.spec.as_mut().unwrap();
    spec.scheduler_name = Some(scheduler.to_owned());
    let resources = spec.containers[0].resources.as_mut().unwrap();
    let names = (0..RESOURCES).map(|n| (format!("{name}.example/{n}"), Quantity("1".to_owned())));
    resources.limits.get_or_insert_default().extend(names.clone());
    resources.requests.get_or_insert_default().extend(names);
    pod
}

/// Creates pods one after the other, and says how long each waited for its node once it was there. `midway` is done
/// after half of them.
async fn burst(client: &Client, scheduler: &str, prefix: &str, midway: impl AsyncFn()) -> Waits {
    let api = pods(client);
    let version = api.list_metadata(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    // Only these pods: reading the large ones would delay the test's own look at the others.
    let chosen = WatchParams::default().labels(&format!("burst={prefix}"));
    let mut events = api.watch(&chosen, &version).await.unwrap().boxed();
    // The times in the objects would be of seconds.
    let bound = tokio::spawn(async move {
        let mut bound: BTreeMap<String, Instant> = BTreeMap::new();
        while bound.len() < BURST {
            if let WatchEvent::Modified(pod) = events.try_next().await.unwrap().unwrap()
                && pod.spec.is_some_and(|spec| spec.node_name.is_some())
            {
                bound.entry(pod.metadata.name.unwrap()).or_insert_with(Instant::now);
            }
        }
        bound
    });
    let mut created: BTreeMap<String, Instant> = BTreeMap::new();
    let mut slowest_create = Duration::ZERO;
    for number in 0..BURST {
        if number == BURST / 2 {
            midway().await;
        }
        let name = format!("{prefix}-{number}");
        let mut pod = pod(&name, 1);
        pod.metadata.labels.get_or_insert_default().insert("burst".to_owned(), prefix.to_owned());
        pod.spec.as_mut().unwrap().scheduler_name = Some(scheduler.to_owned());
        let began = Instant::now();
        create(client, &pod).await;
        slowest_create = slowest_create.max(began.elapsed());
        created.insert(name, Instant::now());
    }
    let bound = timeout(PATIENCE, bound).await.expect("all are bound").unwrap();
    assert_eq!(bound.len(), created.len());
    let waits = bound.iter().map(|(name, at)| at.saturating_duration_since(created[name]));
    Waits { longest: waits.max().unwrap_or_default(), slowest_create }
}

/// What a burst took.
#[derive(Debug)]
struct Waits {
    /// From a pod's creation to its node, at most.
    longest: Duration,
    /// The API server's own part: a pod's creation, at most.
    slowest_create: Duration,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_millis();
        write!(f, "{} ms (creating one: {} ms)", ms(self.longest), ms(self.slowest_create))
    }
}

/// Three bursts under a scheduler: without the large pods, while they arrive, and with them.
async fn bursts(client: &Client, scheduler: &str) {
    let attack = async |name: &str| {
        for (of, name) in [("others", format!("{name}-others")), (scheduler, format!("{name}-ours"))] {
            pods(client).create(&PostParams::default(), &greedy(&name, of)).await.unwrap();
        }
    };
    let without = burst(client, scheduler, "without", async || ()).await;
    let during = burst(client, scheduler, "during", async || attack("first").await).await;
    let after = burst(client, scheduler, "after", async || ()).await;
    let again = burst(client, scheduler, "again", async || attack("second").await).await;
    println!(
        "tenant: {BURST} pods each by {scheduler}, {RESOURCES} resources a pod; the longest wait without it {without}, while \
         it arrives {during}, with it {after}, while another arrives {again}"
    );
}

/// The scheduler's metrics of attempts, by what follows `scheduler_` in their names.
async fn attempts(port: u16) -> BTreeMap<String, f64> {
    let text = metrics(port).await;
    let lines = text.lines().filter_map(|line| line.strip_prefix("scheduler_")?.rsplit_once(' '));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Deterministic, unlike times: how many decisions there were. Pods of the tenant took one attempt each, and delayed no
/// other pod by another one of its own.
async fn no_attempt_was_in_vain(port: u16, bursts: usize, greedy: usize) {
    let pods = (bursts * BURST) as f64;
    let sum = "pod_scheduling_attempts_sum";
    // The answers to the last bindings may be on their way.
    let all = async || Some(attempts(port).await).filter(|found| found.get(sum) >= Some(&pods));
    let attempts = eventually("all are counted", all).await;
    let of = |name: &str| attempts.get(name).copied().unwrap_or_default();
    let by_result = |result: &str| {
        of(&format!("schedule_attempts_total{{result=\"{result}\",profile=\"topo-aware-scheduler\"}}"))
    };
    assert_eq!((by_result("scheduled"), of(sum)), (pods, pods), "{attempts:?}");
    assert_eq!((by_result("unschedulable"), by_result("error")), (greedy as f64, 0.0), "{attempts:?}");
}

async fn cluster(rig: &testkit::env::Rig) -> (ControlPlane, Client) {
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    for number in 0..NODES {
        let name = format!("n{number}");
        fake_node(&client, &name).await;
        report(&client, &name, json!([zone("node-0", "8"), zone("node-1", "8")])).await;
    }
    (control, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_thousands_of_resources_delays_no_other() {
    let Ok(rig) = testkit::env::rig() else { return };
    if std::env::var_os("STOCK").is_some() {
        let (control, client) = cluster(&rig).await;
        let _scheduler = control.start_scheduler().await.unwrap();
        bursts(&client, "default-scheduler").await;
    }
    let (control, client) = cluster(&rig).await;
    let port = testkit::port::free().unwrap();
    let serving = format!("--http-bind-address=127.0.0.1:{port}");
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false", &serving]);
    bursts(&client, "topo-aware-scheduler").await;
    let reason = async |name| eventually("a reason", async || refusal(&client, name).await).await;
    let message = reason("first-ours").await;
    reason("second-ours").await;
    no_attempt_was_in_vain(port, 4, 2).await;
    assert!(message.len() < 1024, "{} bytes: {}", message.len(), &message[..200]);
    // A resource that no node had before.
    let mut zones = [zone("node-0", "8"), zone("node-1", "8")];
    let new = json!({ "name": "example.com/new", "capacity": "1", "allocatable": "1", "available": "1" });
    zones[1]["resources"].as_array_mut().unwrap().push(new);
    fake_node(&client, "new").await;
    let amounts = json!({ "status": { "allocatable": { "example.com/new": "1" }, "capacity": { "example.com/new": "1" } } });
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
    nodes.patch_status("new", &Default::default(), &kube::api::Patch::Merge(amounts)).await.unwrap();
    report(&client, "new", json!(zones)).await;
    let mut wants = pod("wants-new", 1);
    let resources = wants.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap();
    for amounts in [&mut resources.limits, &mut resources.requests] {
        amounts.get_or_insert_default().insert("example.com/new".to_owned(), Quantity("1".to_owned()));
    }
    create(&client, &wants).await;
    assert_eq!(eventually("wants-new", async || node_of(&client, "wants-new").await).await, "new");
    scheduler.stop().await;
}
