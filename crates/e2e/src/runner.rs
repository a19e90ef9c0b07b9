//! A run: the specs one after the other, or beside each other where they do not meet.
//!
//! In: a cluster, specs. Out: how each ended, what is wrong as a whole. Never: an object left behind, also after an
//! interruption; the next run takes away what a killed one has left.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::Client;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::cluster::Settings;
use crate::diagnosis;
use crate::facts::{Facts, NodeFacts};
use crate::fixture::Fixture;
use crate::installation::either;
use crate::lanes::{Lanes, NodeRequest, Turn};
use crate::need::Need;
use crate::report::{Case, Ending};
use crate::setup::Session;
use crate::spec::{Body, Run, Skip, Spec};
use crate::verdict::Verdict;
use crate::waits::Wait;

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the suite behaves.
    pub settings: Settings,
    /// The scheduler under test; `None`: the one that the operator names, else ours.
    pub scheduler: Option<String>,
    /// The longest time of a spec, the clean-up not included.
    pub limit: Duration,
    /// How many specs run at a time, where they do not meet.
    pub parallel: usize,
    /// Whether specs go on after a failure.
    pub keep_going: bool,
    /// The suite's devices.
    pub devices: Devices,
    /// The root directory of the kubelets.
    pub kubelet_root: String,
}

/// What becomes of the suite's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// They are not deployed.
    Absent,
    /// They go at the end.
    Removed,
    /// They stay, and the suite's namespace with them.
    Kept,
}

/// What a run tells while it goes on.
pub trait Progress: Send + Sync {
    /// A step before or after the specs.
    fn step(&self, text: &str);
    /// A spec begins: its number among how many.
    fn begins(&self, spec: &Spec, number: usize, of: usize);
    /// Nothing has ended for a while: what is waited for.
    fn waits(&self, waits: &[Wait]);
    /// A spec has ended.
    fn ended(&self, case: &Case);
}

/// A run.
pub struct Runner {
    session: Session,
    plan: Plan,
    verdict: Verdict,
    token: CancellationToken,
}

/// The pause between two words on what is waited for.
const TICK: Duration = Duration::from_secs(10);
/// The reason of specs that an interruption ended or kept from beginning.
const INTERRUPTED: &str = "interrupted";

impl Runner {
    /// Prepares the cluster, with a client for watches and one for requests: takes away what an earlier run has left,
    /// looks at what the cluster can do, deploys devices if the plan wants them.
    ///
    /// # Errors
    /// When the cluster cannot be tested at all, in one line.
    pub async fn prepare(
        clients: (Client, Client),
        plan: Plan,
        token: CancellationToken,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        progress.step("looking at the cluster");
        let kinds = Facts::kinds(&clients.1).await?;
        Facts::require_reports(&kinds)?;
        let mut session = Session::open(clients, (&plan.settings, kinds), &token).await?;
        match session.prepare(&plan, progress).await {
            Ok(verdict) => Ok(Self { session, plan, verdict, token }),
            // Nothing is left of a run that did not begin.
            Err(error) => Err(either(error, session.close(progress).await)),
        }
    }

    /// What the cluster can do.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.session.cluster.facts
    }

    /// Why a spec would be skipped, as far as can be told before it is tried.
    fn skips(&self, spec: &Spec) -> Option<String> {
        match spec.run {
            Run::Absent(reason) => Some(reason.to_owned()),
            Run::Test(_) => self.groups(spec).err(),
        }
    }

    /// How a spec would end, as far as can be told before it is tried.
    #[must_use]
    pub fn foreseen(&self, spec: &Spec) -> Case {
        let not_tried = Ending::NotTried { reason: "dry run".to_owned() };
        let ending = self.skips(spec).map_or(not_tried, |reason| Ending::Skipped { reason });
        case(spec, ending, Duration::ZERO)
    }

    /// Runs specs, then takes everything away. Returns how each ended, and what is wrong as a whole.
    ///
    /// # Errors
    /// When the clean-up fails.
    pub async fn run(
        self,
        specs: &[Spec],
        progress: &dyn Progress,
    ) -> anyhow::Result<(Vec<Case>, Vec<String>)> {
        let mut lanes = Lanes::new(self.plan.parallel, specs.iter().map(|spec| self.node_request(spec)));
        let mut endings: Vec<Option<(Ending, Duration)>> = vec![None; specs.len()];
        let mut under_way = FuturesUnordered::new();
        let (mut begun, mut has_failed) = (0, false);
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let goes_on = !self.is_over() && (self.plan.keep_going || !has_failed);
            while goes_on && let Some(turn) = lanes.begin() {
                let Some(spec) = specs.get(turn.spec) else { continue };
                begun += 1;
                progress.begins(spec, begun, specs.len());
                under_way.push(self.one(spec, turn));
            }
            tokio::select! {
                ended = under_way.next() => {
                    let Some((turn, ending, took)) = ended else { break };
                    lanes.ended(&turn);
                    has_failed |= matches!(ending, Ending::Failed { .. });
                    if let (Some(spec), Some(place)) = (specs.get(turn.spec), endings.get_mut(turn.spec)) {
                        progress.ended(&case(spec, ending.clone(), took));
                        *place = Some((ending, took));
                    }
                }
                _ = ticks.tick() => progress.waits(&self.session.cluster.observer.waits().now()),
            }
        }
        drop(under_way);
        let reason = if self.token.is_cancelled() { INTERRUPTED } else { "another spec has failed" };
        let cases = specs.iter().zip(endings).map(|(spec, ending)| {
            let not_tried = || (Ending::NotTried { reason: reason.to_owned() }, Duration::ZERO);
            let (ending, took) = ending.unwrap_or_else(not_tried);
            case(spec, ending, took)
        });
        let cases = cases.collect();
        let verdicts = self.finish(progress).await?;
        Ok((cases, verdicts))
    }

    /// Whether nothing more may begin: the run is interrupted, or another one may be under way.
    fn is_over(&self) -> bool {
        self.token.is_cancelled() || self.session.lock.is_lost()
    }

    /// The groups of nodes with which a spec can be tried; else the need that is not met.
    fn groups(&self, spec: &Spec) -> Result<Vec<Vec<&NodeFacts>>, String> {
        Need::groups(&spec.needs, spec.node.as_deref(), self.facts())
    }

    /// What a spec asks of the nodes; nothing where it will be skipped.
    fn node_request(&self, spec: &Spec) -> NodeRequest {
        let Ok(groups) = self.groups(spec) else { return NodeRequest::default() };
        let preferred = self.session.cluster.settings.target_node.as_deref();
        let names = |mut group: Vec<&NodeFacts>| {
            group.sort_by_key(|node| Some(&*node.name) != preferred);
            group.into_iter().map(|node| node.name.clone()).collect()
        };
        NodeRequest {
            alone: spec.is_alone(),
            least: spec.least_nodes(),
            groups: groups.into_iter().map(names).collect(),
        }
    }

    /// Takes everything away, and says what is wrong as a whole.
    async fn finish(self, progress: &dyn Progress) -> anyhow::Result<Vec<String>> {
        let is_lost = self.session.lock.is_lost();
        let cluster = Arc::clone(&self.session.cluster);
        if self.plan.devices == Devices::Kept {
            self.session.leave().await;
        } else {
            progress.step("taking everything away");
            self.session.close(progress).await?;
        }
        let mut wrong = self.verdict.end(&cluster, self.plan.devices).await;
        if is_lost {
            wrong.push("the run lost its lease: another run may have been under way".to_owned());
        }
        Ok(wrong)
    }

    async fn one(&self, spec: &Spec, turn: Turn) -> (Turn, Ending, Duration) {
        let began = Instant::now();
        let ending = match (&spec.run, self.skips(spec)) {
            (Run::Test(body), None) => self.attempt(spec, body, &turn.nodes).await,
            (_, reason) => Ending::Skipped { reason: reason.unwrap_or_default() },
        };
        (turn, ending, began.elapsed())
    }

    async fn attempt(&self, spec: &Spec, body: &Body, nodes: &[String]) -> Ending {
        let facts = &self.session.cluster.facts;
        let nodes = nodes.iter().filter_map(|name| facts.nodes.iter().find(|node| node.name == *name));
        let fixture = match Fixture::begin(&self.session.cluster, spec, nodes.cloned().collect()).await {
            Ok(fixture) => fixture,
            Err(error) => return failed(format!("before the spec: {error:#}"), String::new()),
        };
        // There and back.
        let rollouts = if spec.needs.iter().any(|need| need.reboots()) { 2 } else { 0 };
        let limit = self.plan.limit + self.session.cluster.settings.rollout * rollouts;
        let result = tokio::select! {
            biased;
            () = self.token.cancelled() => None,
            result = tokio::time::timeout(limit, body(fixture.clone())) => {
                let late = |_| bail!("longer than {} s", limit.as_secs());
                Some(result.unwrap_or_else(late))
            }
        };
        // Before the objects are gone.
        let diagnosis = match &result {
            Some(Err(error)) if !error.is::<Skip>() => diagnosis::of(&fixture).await,
            _ => String::new(),
        };
        match (result, fixture.end().await) {
            (Some(Ok(())), Ok(())) => Ending::Passed,
            (None, Ok(())) => Ending::NotTried { reason: INTERRUPTED.to_owned() },
            (Some(Err(error)), Ok(())) => match error.downcast::<Skip>() {
                Ok(Skip(reason)) => Ending::Skipped { reason },
                Err(error) => failed(format!("{error:#}"), diagnosis),
            },
            (Some(Ok(())) | None, Err(error)) => failed(format!("after the spec: {error:#}"), diagnosis),
            (Some(Err(error)), Err(end)) => failed(format!("{error:#}; after the spec: {end:#}"), diagnosis),
        }
    }
}

fn failed(reason: String, diagnosis: String) -> Ending {
    Ending::Failed { reason, diagnosis }
}

fn case(spec: &Spec, ending: Ending, took: Duration) -> Case {
    Case { id: spec.id.clone(), title: spec.title.clone(), feature: spec.feature.to_owned(), ending, took }
}
