//! Random pods come and go on real kubelets, and after every step the object says what the kubelet says.
//!
//! `SEQUENCES` is how many (default 24), `SEED` the first seed (default 1), `SEQUENCE` the only one to run. A
//! sequence's seed and number decide all of it, the node too, so a failure's line runs it again.
//!
//! After each step: podresources is asked before and after the object is looked at and has to answer the same; the
//! object's fingerprint has to name its pods; then every zone's `available` has to be `allocatable` minus what
//! podresources says, worked out here and not by the exporter. With policy single-numa-node the kubelet has to have
//! taken or refused the pod as the model had said from the object before, and the object has to be what the model had
//! said it would be.

#[path = "sequences/fleet.rs"]
mod fleet;
#[path = "sequences/kinds.rs"]
mod kinds;
#[path = "sequences/plan.rs"]
mod plan;
#[path = "sequences/truth.rs"]
mod truth;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::DeleteParams;
use node::podresources::PodResources;
use runtime::random::Random;
use topology::request::PodNeeds;
use topology::resource::ResourceName;

use self::fleet::{Fleet, Post};
use self::kinds::KINDS;
use self::plan::{Shape, Step};
use self::truth::Verdict;
use super::*;

/// What was done, by word.
type Tally = Mutex<BTreeMap<String, usize>>;

/// A number from the environment.
fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

#[tokio::test]
async fn what_is_published_is_what_the_kubelet_holds() {
    let seed = number("SEED").unwrap_or(1);
    let numbers: Vec<usize> = match number("SEQUENCE") {
        Some(only) => vec![only],
        None => (0..number("SEQUENCES").unwrap_or(24)).collect(),
    };
    let kinds: Vec<usize> =
        (0..KINDS.len()).filter(|kind| numbers.iter().any(|n| n % KINDS.len() == *kind)).collect();
    let Some(fleet) = Fleet::start(&kinds).await else { return };
    let (tally, done) = (Tally::default(), AtomicUsize::new(0));
    let began = Instant::now();
    let workers = kinds.into_iter().enumerate().map(async |(place, kind)| {
        let post = fleet.post(place);
        for number in numbers.iter().copied().filter(|n| n % KINDS.len() == kind) {
            Run::new(&post, &tally, seed, number).all().await?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<_, String>(())
    });
    let results = futures::future::join_all(workers).await;
    let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    let (took, done) = (began.elapsed(), done.load(Ordering::Relaxed));
    println!("sequences: {done} in {took:.1?}, {:.1} a minute", done as f64 * 60.0 / took.as_secs_f64());
    println!("{:#?}", tally.lock().unwrap());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// A sequence while it happens.
struct Run<'a> {
    post: &'a Post<'a>,
    tally: &'a Tally,
    seed: usize,
    number: usize,
    /// What the pods of this sequence ask for, by name.
    needs: BTreeMap<String, PodNeeds>,
    story: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(post: &'a Post<'a>, tally: &'a Tally, seed: usize, number: usize) -> Self {
        Self { post, tally, seed, number, needs: BTreeMap::new(), story: Vec::new() }
    }

    fn count(&self, what: impl Into<String>) {
        *self.tally.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    async fn all(mut self) -> Result<(), String> {
        let mut random = Random::seeded(((self.seed as u64) << 32) + self.number as u64);
        let steps = plan::steps(&mut random, &self.post.kind.menu);
        let mut names: Vec<String> = Vec::new();
        for step in steps.into_iter().map(Some).chain([None]) {
            self.story.push(step.as_ref().map_or("end".to_owned(), Step::to_string));
            let result = match &step {
                Some(Step::Create(shape)) => {
                    names.push(format!("s{}-{}", self.number, names.len()));
                    self.create(&names[names.len() - 1], shape).await
                }
                Some(Step::Delete { pod, force }) => self.delete(&[names[*pod].clone()], *force).await,
                Some(Step::Health { device }) => self.health(*device).await,
                None => self.end(&names).await,
            };
            self.count("steps");
            result.map_err(|error| {
                format!(
                    "SEED={} SEQUENCE={} on {}: {error}\n  after {}",
                    self.seed,
                    self.number,
                    self.post.kind.name,
                    self.story.join(", ")
                )
            })?;
        }
        Ok(())
    }

    /// A pod comes: first what will happen, then what does.
    async fn create(&mut self, name: &str, shape: &Shape) -> Result<(), String> {
        let (before, listed) = self.post.settled(|_| true).await?;
        let pod = self.post.create(&shape.pod(name, &self.post.name)).await?;
        let needs = api::convert::pod_request(&pod).map_err(|error| error.to_string())?.needs();
        let verdict = truth::predict(&before, &needs, &self.left(&listed));
        self.needs.insert(name.to_owned(), needs);
        let reason = self.post.admitted(name, !matches!(verdict, Verdict::Refused(_))).await?;
        self.count(reason.as_deref().unwrap_or("taken"));
        let (after, listed) = self.post.settled(|pods| reason.is_none() || !is_listed(pods, name)).await?;
        let wrong = match (&verdict, reason.as_deref()) {
            (Verdict::Taken(_), Some(reason)) => Some(format!("refused with {reason}")),
            (Verdict::Refused(_), None) => Some("taken".to_owned()),
            (Verdict::Refused(reasons), Some(reason)) if !reasons.contains(&reason) => {
                Some(format!("refused with {reason}"))
            }
            (Verdict::NotForZones, Some(reason @ "TopologyAffinityError")) => Some(reason.to_owned()),
            // Nothing but this pod has happened, unless it has ended already.
            (Verdict::Taken(free), None) if is_listed(&listed, name) => {
                let has = self::available(&after);
                (has != *free).then(|| format!("leaves {has:?}"))
            }
            (Verdict::Refused(_), Some(_)) if show_all(&before) != show_all(&after) => {
                Some(format!("refused, but leaves {}", show_all(&after)))
            }
            _ => None,
        };
        if matches!(verdict, Verdict::Taken(_) | Verdict::Refused(_)) {
            self.count("predicted");
        }
        if let Some(wrong) = wrong {
            return Err(format!("{name} {wrong}, predicted was {verdict:?} from {}", show_all(&before)));
        }
        if shape.ends && reason.is_none() {
            self.post.settled(|pods| !is_listed(pods, name)).await?;
            self.count("ended");
        }
        Ok(())
    }

    /// CPUs, memory and hugepages of the whole node that the listed pods leave.
    fn left(&self, listed: &[PodResources]) -> BTreeMap<ResourceName, i64> {
        let mut left = self.post.totals.clone();
        for need in listed.iter().filter_map(|pod| self.needs.get(&pod.name)).flat_map(|needs| &needs.totals)
        {
            if let Some(left) = left.get_mut(&need.name) {
                *left -= need.amount;
            }
        }
        left
    }

    async fn delete(&self, names: &[String], force: bool) -> Result<(), String> {
        let grace = force.then_some(0);
        let params = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
        for name in names {
            match self.post.pods.delete(name, &params).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                result => drop(result.map_err(|error| error.to_string())?),
            }
        }
        self.post.settled(|pods| !names.iter().any(|name| is_listed(pods, name))).await?;
        self.count(if force { "deleted by force" } else { "deleted" });
        Ok(())
    }

    async fn health(&self, device: u64) -> Result<(), String> {
        self.post.toggle(device);
        self.post.devices_told().await?;
        self.count("health");
        Ok(())
    }

    /// Everything goes, and everything is free.
    async fn end(&self, names: &[String]) -> Result<(), String> {
        self.delete(names, true).await?;
        self.post.heal();
        self.post.devices_told().await?;
        let (nrt, pods) = self.post.settled(<[_]>::is_empty).await?;
        let full = api::convert::node_topology(&nrt).unwrap().0.allocatable();
        if available(&nrt) != full || !pods.is_empty() {
            return Err(format!("not all is free: {}", show_all(&nrt)));
        }
        Ok(())
    }
}

fn is_listed(pods: &[PodResources], name: &str) -> bool {
    pods.iter().any(|pod| pod.name == name)
}

fn available(nrt: &NodeResourceTopology) -> topology::zone::Free {
    api::convert::node_topology(nrt).unwrap().0.available()
}

/// All zones' available and allocatable amounts, in one line.
fn show_all(nrt: &NodeResourceTopology) -> String {
    let zone = |zone: &api::nrt::Zone| {
        let all = zone.resources.iter().map(|r| format!(" {}={}/{}", r.name, r.available.0, r.allocatable.0));
        format!("{}:{}", zone.name, all.collect::<String>())
    };
    nrt.zones.iter().map(zone).collect::<Vec<_>>().join("; ")
}
