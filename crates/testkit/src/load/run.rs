//! Carries a list of arrivals out and writes down what a watch shows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use anyhow::Context as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep_until};

use super::{Arrival, Loss, Record};
use crate::cri::behaviour::STOP_DELAY;

/// The label all pods of a run carry; its value is the name of the run.
const LABEL: &str = "testkit/load";

/// Memory of every pod. Small, so that CPUs decide.
const MEMORY: &str = "64Mi";

/// How a list of arrivals is carried out.
#[derive(Clone, Debug)]
pub struct Run {
    /// Begins the names of the pods, and tells this run from others; a DNS label.
    pub name: String,
    /// Where the pods live.
    pub namespace: String,
    /// `schedulerName` of the pods, by turns; none: the default one.
    pub schedulers: Vec<String>,
    /// At most so many pods that neither run nor are lost; further ones arrive later.
    pub max_pending: Option<usize>,
    /// The run gives up when pods are pending and none has come, moved on or gone for so long.
    pub stalled_after: Duration,
    /// How long a container takes to end once it is asked to.
    pub stop_delay: Duration,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            name: "load".to_owned(),
            namespace: "default".to_owned(),
            schedulers: Vec::new(),
            max_pending: None,
            stalled_after: Duration::from_secs(60),
            stop_delay: Duration::ZERO,
        }
    }
}

impl Run {
    fn scheduler_of(&self, number: usize) -> &str {
        let turn = number.checked_rem(self.schedulers.len());
        turn.and_then(|turn| self.schedulers.get(turn)).map_or("default-scheduler", String::as_str)
    }
}

/// State of a run.
struct State<'a> {
    options: &'a Run,
    api: Api<Pod>,
    began: Instant,
    arrivals: &'a [Arrival],
    /// By number of the arrival; as many as have been created.
    records: Vec<Record>,
    numbers: BTreeMap<String, usize>,
    settled: usize,
    /// Pods to delete, the next one on top: (when, number).
    ends: BinaryHeap<Reverse<(Instant, usize)>>,
    /// When a pod last came, moved on or went.
    moved: Instant,
}

/// Creates the pods at their times, deletes each when its life is over, and ends when every one has run or is lost, or
/// the rest is stuck. All pods are deleted and gone afterwards.
///
/// # Errors
/// When the API server refuses a pod or its deletion, or pods do not go away.
pub async fn run(client: &Client, arrivals: &[Arrival], options: &Run) -> anyhow::Result<Vec<Record>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &options.namespace);
    let selector = format!("{LABEL}={}", options.name);
    let mut events =
        watcher(api.clone(), watcher::Config::default().labels(&selector)).default_backoff().boxed();
    let now = Instant::now();
    let mut state = State {
        options,
        api,
        began: now,
        arrivals,
        records: Vec::new(),
        numbers: BTreeMap::new(),
        settled: 0,
        ends: BinaryHeap::new(),
        moved: now,
    };
    let mut calls: FuturesUnordered<BoxFuture<'static, anyhow::Result<()>>> = FuturesUnordered::new();
    while state.settled < arrivals.len() {
        let arrival = state.next_arrival();
        let end = state.ends.peek().map(|Reverse((when, _))| *when);
        tokio::select! {
            // Dropping the watch between two polls loses nothing: it is kept across the loop.
            Some(event) = events.next() => state.see(event),
            () = sleep_until(arrival.unwrap_or(now)), if arrival.is_some() => calls.push(state.create()),
            () = sleep_until(end.unwrap_or(now)), if end.is_some() => calls.extend(state.end()),
            Some(done) = calls.next(), if !calls.is_empty() => done?,
            () = sleep_until(state.moved + options.stalled_after), if state.pending() > 0 => break,
        }
    }
    while let Some(done) = calls.next().await {
        done?;
    }
    delete_all(&state.api, &selector, options.stalled_after).await?;
    Ok(state.records)
}

impl State<'_> {
    /// When the next pod comes, unless there is none or too many are pending.
    fn next_arrival(&self) -> Option<Instant> {
        let arrival = self.arrivals.get(self.records.len())?;
        let may_come = self.options.max_pending.is_none_or(|max| self.pending() < max);
        may_come.then(|| self.began + Duration::from_secs_f64(arrival.at_s.max(0.0)))
    }

    fn pending(&self) -> usize {
        self.records.len() - self.settled
    }

    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn create(&mut self) -> BoxFuture<'static, anyhow::Result<()>> {
        let number = self.records.len();
        let cpus = self.arrivals[number].cpus;
        let name = format!("{}-{number}", self.options.name);
        let scheduler = self.options.scheduler_of(number);
        let mut pod = self.arrivals[number].pod(&name, scheduler, MEMORY);
        pod.labels_mut().insert(LABEL.to_owned(), self.options.name.clone());
        if !self.options.stop_delay.is_zero() {
            let stop_delay = format!("{}ms", self.options.stop_delay.as_millis());
            pod.annotations_mut().insert(STOP_DELAY.to_owned(), stop_delay);
        }
        self.moved = Instant::now();
        self.numbers.insert(name.clone(), number);
        self.records.push(Record {
            name: name.clone(),
            scheduler: scheduler.to_owned(),
            cpus,
            created_s: self.now_s(),
            scheduled_s: None,
            running_s: None,
            ended_s: None,
            node: None,
            lost: None,
        });
        let api = self.api.clone();
        async move {
            api.create(&PostParams::default(), &pod).await.with_context(|| format!("creating pod {name}"))?;
            Ok(())
        }
        .boxed()
    }

    /// Deletes the pod whose life is over.
    fn end(&mut self) -> Option<BoxFuture<'static, anyhow::Result<()>>> {
        let Reverse((_, number)) = self.ends.pop()?;
        self.moved = Instant::now();
        let (api, name) = (self.api.clone(), self.records[number].name.clone());
        let delete = async move {
            match api.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                done => done.map(drop).with_context(|| format!("deleting pod {name}")),
            }
        };
        Some(delete.boxed())
    }

    fn see(&mut self, event: watcher::Result<watcher::Event<Pod>>) {
        match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => self.see_pod(&pod, false),
            Ok(watcher::Event::Delete(pod)) => self.see_pod(&pod, true),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => tracing::warn!(%error, "watching pods; will try again"),
        }
    }

    fn see_pod(&mut self, pod: &Pod, deleted: bool) {
        let Some(&number) = self.numbers.get(pod.name_any().as_str()) else { return };
        let now_s = self.now_s();
        let record = &mut self.records[number];
        let before = (record.scheduled_s.is_some(), record.is_settled());
        if record.node.is_none() {
            record.node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            record.scheduled_s = record.node.is_some().then_some(now_s);
        }
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        if record.ended_s.is_none() && (deleted || matches!(phase, Some("Succeeded" | "Failed"))) {
            record.ended_s = Some(now_s);
        }
        if !record.is_settled() {
            match phase {
                Some("Running") => record.running_s = Some(now_s),
                Some("Failed") => {
                    let status = status.cloned().unwrap_or_default();
                    let reason = status.reason.unwrap_or_default();
                    record.lost = Some(Loss { reason, message: status.message.unwrap_or_default() });
                }
                _ if deleted => {
                    record.lost = Some(Loss { reason: "Deleted".to_owned(), message: String::new() });
                }
                _ => {}
            }
        }
        let after = (record.scheduled_s.is_some(), record.is_settled());
        if before != after {
            self.moved = Instant::now();
        }
        if before.1 != after.1 {
            self.settled += 1;
            if record.running_s.is_some() {
                let life = Duration::from_secs_f64(self.arrivals[number].life_s.max(0.0));
                self.ends.push(Reverse((Instant::now() + life, number)));
            }
        }
    }
}

/// Deletes what is left and waits until it is gone.
async fn delete_all(api: &Api<Pod>, selector: &str, within: Duration) -> anyhow::Result<()> {
    let list = ListParams::default().labels(selector);
    api.delete_collection(&DeleteParams::default(), &list).await.context("deleting all pods of the run")?;
    let began = Instant::now();
    loop {
        let left = api.list_metadata(&list).await.context("listing pods of the run")?.items.len();
        if left == 0 {
            return Ok(());
        }
        anyhow::ensure!(
            began.elapsed() < within,
            "{left} pods are still there {within:?} after their deletion"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
