//! The record of a simulation, in numbers.
//!
//! In: pods that run or are rejected, and the levels between two moments. Out: [`Summary`] and [`Timeline`]. Never:
//! floating point before the very end, so that the same run gives the same bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kubelet::{Alignment, Rejection};

/// Values that hold between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    /// CPU requests of admitted pods, in thousandths.
    pub used_milli: i64,
    /// Free CPU, in thousandths, on nodes that have enough for the smallest waiting pod, but not in one zone.
    pub stranded_milli: i64,
    /// Pods without a node.
    pub waiting: usize,
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Record {
    pods: usize,
    allocatable_milli: i64,
    waits_ms: Vec<u64>,
    rejections: Rejections,
    aligned: usize,
    misaligned: usize,
    /// Pods that were not placed, by reason: their number and the first one.
    refusals: BTreeMap<String, (usize, String)>,
    now_ms: u64,
    sum: Sums,
    /// Time and sums when the last pod was settled; afterwards there is nothing left to place.
    until_ms: u64,
    until: Sums,
    width_ms: u64,
    buckets: Vec<Bucket>,
}

/// Pods that their kubelets rejected, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rejections {
    /// `TopologyAffinityError`.
    pub tae: usize,
    /// `SMTAlignmentError`.
    pub smt: usize,
    /// `UnexpectedAdmissionError`: a manager had too little.
    pub unexpected: usize,
    /// `OutOfcpu` and the like: the node as a whole had too little.
    pub out_of: usize,
}

/// Levels times milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    used: i128,
    stranded: i128,
    waiting: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    sums: Sums,
    lost: usize,
}

/// One scheduler's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The contender.
    pub scheduler: String,
    /// The seed of the run.
    pub seed: u64,
    /// Pods of the workload.
    pub pods: usize,
    /// Pods that got to run.
    pub running: usize,
    /// Pods that were admitted with resources from as few zones as on an empty machine.
    pub aligned: usize,
    /// Pods that were admitted with resources from more zones, which the policies `best-effort` and `none` allow.
    pub misaligned: usize,
    /// Pods that their kubelets rejected. They are not replaced.
    pub rejected: usize,
    /// The same by reason.
    #[serde(flatten)]
    pub rejections: Rejections,
    /// Pods that neither ran nor were rejected: no node can hold them.
    pub unplaced: usize,
    /// Median time from creation to Running of the pods that ran, seconds.
    pub p50_s: f64,
    /// 95th percentile of the time to Running, seconds.
    pub p95_s: f64,
    /// Longest time to Running, seconds.
    pub max_s: f64,
    /// Mean share of the allocatable CPUs that admitted pods requested, from the start until the last pod was settled:
    /// ran or was lost.
    pub allocated_share: f64,
    /// Mean number of free CPUs, over the same time, on nodes whose zones together have enough for the smallest pod
    /// that waits for a node while none alone has. Counts as 0 while no pod waits.
    pub stranded_cpus: f64,
    /// Time at which the last pod was settled, seconds.
    pub settled_s: f64,
}

/// Why pods were not placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The message of the last attempt, in kube-scheduler's words.
    pub reason: String,
    /// The number of pods.
    pub pods: usize,
    /// The first of them.
    pub first: String,
}

/// Levels over time, until the last pod was settled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Length of one step, seconds.
    pub step_s: f64,
    /// The steps, from the start on.
    pub steps: Vec<TimelineStep>,
}

/// One step of a [`Timeline`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimelineStep {
    /// Mean share of the allocatable CPUs that admitted pods requested.
    pub allocated_share: f64,
    /// Mean number of pods without a node.
    pub waiting: f64,
    /// Mean of [`Summary::stranded_cpus`].
    pub stranded_cpus: f64,
    /// Pods lost so far.
    pub lost: usize,
}

/// Most steps of a timeline; beyond, neighbours are merged.
const MAX_STEPS: usize = 256;
/// The first width of a step.
const FIRST_WIDTH_MS: u64 = 10;

impl Record {
    /// An empty record for a workload of `pods` pods on nodes with `allocatable_milli` thousandths of CPUs.
    #[must_use]
    pub fn new(pods: usize, allocatable_milli: i64) -> Self {
        Self {
            pods,
            allocatable_milli,
            waits_ms: Vec::with_capacity(pods),
            rejections: Rejections::default(),
            aligned: 0,
            misaligned: 0,
            refusals: BTreeMap::new(),
            now_ms: 0,
            sum: Sums::default(),
            until_ms: 0,
            until: Sums::default(),
            width_ms: FIRST_WIDTH_MS,
            buckets: Vec::new(),
        }
    }

    /// Advances time to `to_ms`; `levels` held until then.
    pub fn advance(&mut self, to_ms: u64, levels: Levels) {
        while self.now_ms < to_ms {
            let at = self.bucket();
            let end_ms = ((at as u64 + 1) * self.width_ms).min(to_ms);
            let span_ms = i128::from(end_ms - self.now_ms);
            self.buckets[at].sums.add(levels, span_ms);
            self.sum.add(levels, span_ms);
            self.now_ms = end_ms;
        }
    }

    /// Counts a pod that runs `waited_ms` after its creation.
    pub fn running(&mut self, waited_ms: u64) {
        self.waits_ms.push(waited_ms);
        self.settle();
    }

    /// Counts a pod that its kubelet has rejected.
    pub fn rejected(&mut self, rejection: Rejection) {
        let rejections = &mut self.rejections;
        *match rejection {
            Rejection::Topology => &mut rejections.tae,
            Rejection::Smt => &mut rejections.smt,
            Rejection::Unexpected => &mut rejections.unexpected,
            Rejection::OutOf(_) => &mut rejections.out_of,
        } += 1;
        let at = self.bucket();
        self.buckets[at].lost += 1;
        self.settle();
    }

    /// Counts an admitted pod.
    pub fn admitted(&mut self, alignment: Alignment) {
        *match alignment {
            Alignment::Aligned => &mut self.aligned,
            Alignment::Misaligned => &mut self.misaligned,
        } += 1;
    }

    /// Counts a pod that was never placed.
    pub fn refused(&mut self, pod: &str, reason: &str) {
        let (pods, _) = self.refusals.entry(reason.to_owned()).or_insert_with(|| (0, pod.to_owned()));
        *pods += 1;
    }

    /// The reasons why pods were not placed, the most frequent first.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        let refusal = |(reason, (pods, first)): (&String, &(usize, String))| Refusal {
            reason: reason.clone(),
            pods: *pods,
            first: first.clone(),
        };
        let mut refusals: Vec<Refusal> = self.refusals.iter().map(refusal).collect();
        refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.pods));
        refusals
    }

    /// Number of pods that ran or were rejected.
    #[must_use]
    pub fn settled(&self) -> usize {
        self.waits_ms.len() + self.rejections.all()
    }

    /// The totals of the run, for the contender `scheduler`.
    #[must_use]
    pub fn summary(&self, scheduler: &str, seed: u64) -> Summary {
        let mut waits = self.waits_ms.clone();
        waits.sort_unstable();
        let mean = |sum: i128, whole: i64| ratio(sum, i128::from(self.until_ms) * i128::from(whole));
        Summary {
            scheduler: scheduler.to_owned(),
            seed,
            pods: self.pods,
            running: waits.len(),
            aligned: self.aligned,
            misaligned: self.misaligned,
            rejected: self.rejections.all(),
            rejections: self.rejections,
            unplaced: self.pods - self.settled(),
            p50_s: seconds(percentile(&waits, 50)),
            p95_s: seconds(percentile(&waits, 95)),
            max_s: seconds(percentile(&waits, 100)),
            allocated_share: mean(self.until.used, self.allocatable_milli),
            stranded_cpus: mean(self.until.stranded, 1000),
            settled_s: seconds(self.until_ms),
        }
    }

    /// The levels over time, in at most 256 steps.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        let count = self.until_ms.div_ceil(self.width_ms.max(1));
        let mut lost = 0;
        let steps = (0..count).zip(&self.buckets).map(|(at, bucket)| {
            // The last step ends with the record.
            let span_ms = self.width_ms.min(self.now_ms.max(self.until_ms) - at * self.width_ms);
            let mean = |sum: i128, whole: i64| ratio(sum, i128::from(span_ms) * i128::from(whole));
            lost += bucket.lost;
            TimelineStep {
                allocated_share: mean(bucket.sums.used, self.allocatable_milli),
                waiting: mean(bucket.sums.waiting, 1),
                stranded_cpus: mean(bucket.sums.stranded, 1000),
                lost,
            }
        });
        Timeline { step_s: seconds(self.width_ms), steps: steps.collect() }
    }

    fn settle(&mut self) {
        self.until_ms = self.now_ms;
        self.until = self.sum;
    }

    /// The bucket of the current moment; merges buckets when there would be too many.
    fn bucket(&mut self) -> usize {
        while self.now_ms / self.width_ms >= MAX_STEPS as u64 {
            self.width_ms *= 2;
            self.buckets = self
                .buckets
                .chunks(2)
                .map(|pair| pair.iter().copied().fold(Bucket::default(), Bucket::merge))
                .collect();
        }
        let at = usize::try_from(self.now_ms / self.width_ms).unwrap_or(MAX_STEPS);
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, Bucket::default());
        }
        at
    }
}

impl Rejections {
    /// Pods that were rejected, whatever the reason.
    #[must_use]
    pub fn all(self) -> usize {
        self.tae + self.smt + self.unexpected + self.out_of
    }
}

impl Sums {
    fn add(&mut self, levels: Levels, span_ms: i128) {
        self.used += i128::from(levels.used_milli) * span_ms;
        self.stranded += i128::from(levels.stranded_milli) * span_ms;
        self.waiting += levels.waiting as i128 * span_ms;
    }
}

impl Bucket {
    fn merge(self, other: Self) -> Self {
        Self {
            sums: Sums {
                used: self.sums.used + other.sums.used,
                stranded: self.sums.stranded + other.sums.stranded,
                waiting: self.sums.waiting + other.sums.waiting,
            },
            lost: self.lost + other.lost,
        }
    }
}

/// The nearest-rank percentile of ascending values; 0 when there are none.
#[must_use]
pub fn percentile(ascending: &[u64], percent: usize) -> u64 {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).or(ascending.last()).copied().unwrap_or(0)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// A quotient with four decimals; 0 if `whole` is 0.
fn ratio(sum: i128, whole: i128) -> f64 {
    if whole == 0 { 0.0 } else { (sum as f64 / whole as f64 * 10_000.0).round() / 10_000.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let ten: Vec<u64> = (1..=10).collect();
        for (values, percent, expected) in [
            (&ten[..0], 50, 0),
            (&ten[..1], 50, 1),
            (&ten[..], 50, 5),
            (&ten[..], 95, 10),
            (&ten[..], 90, 9),
            (&ten[..], 0, 1),
            (&ten[..], 100, 10),
        ] {
            assert_eq!(percentile(values, percent), expected, "{percent} % of {values:?}");
        }
    }

    #[test]
    fn means_are_over_the_time_until_the_last_pod_is_settled() {
        let mut record = Record::new(4, 2_000);
        let level = |used_milli, stranded_milli, waiting| Levels { used_milli, stranded_milli, waiting };
        record.advance(1_000, level(2_000, 0, 0));
        record.running(300);
        record.advance(3_000, level(0, 1_500, 3));
        record.rejected(Rejection::Topology);
        record.advance(60_000, level(2_000, 9_000, 9));
        let summary = record.summary("x", 7);
        assert_eq!((summary.pods, summary.running, summary.rejections.tae, summary.unplaced), (4, 1, 1, 2));
        assert_eq!((summary.allocated_share, summary.stranded_cpus), (0.3333, 1.0));
        assert_eq!((summary.p50_s, summary.settled_s), (0.3, 3.0));
        let timeline = record.timeline();
        assert_eq!((timeline.step_s, timeline.steps.len()), (0.32, 10));
        assert_eq!((timeline.steps[0].allocated_share, timeline.steps[4].waiting), (1.0, 3.0));
        assert_eq!(timeline.steps.iter().map(|step| step.lost).collect::<Vec<_>>()[7..], [0, 0, 1]);
    }

    #[test]
    fn an_empty_record_is_all_zero() {
        let record = Record::new(0, 0);
        assert_eq!(record.summary("x", 0).allocated_share, 0.0);
        assert_eq!(record.timeline().steps, []);
    }
}
