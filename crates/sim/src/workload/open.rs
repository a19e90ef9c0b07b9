//! Open arrivals: pods arrive at a fixed rate, independent of the fate of earlier pods.

use super::{Arrival, ContainerResources, MAX_ARRIVALS, MAX_TIME_MS, Workload, WorkloadError};
use runtime::random::Random;

/// Pod sizes of the benchmark, in CPUs: mostly small, some that fill most of a zone of 16.
pub const SIZES: [u32; 11] = [2, 2, 4, 4, 4, 6, 6, 8, 8, 10, 12];

/// The numbers from which a workload is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenArrivals {
    /// Number of pods.
    pub pods: usize,
    /// Pods per second.
    pub rate: f64,
    /// Average CPUs in use if no pod ever waited, as a share of [`OpenArrivals::cpus`]. Determines the lifetimes; above
    /// 1 pods pile up.
    pub load: f64,
    /// CPUs available to the pods, on all machines together.
    pub cpus: u32,
    /// See [`Workload::max_pending`].
    pub max_pending: Option<usize>,
    /// Resources of the pods, each as likely as the others.
    pub kinds: Vec<ContainerResources>,
    /// Seed of sizes and lifetimes; the same seed gives the same workload.
    pub seed: u64,
}

impl OpenArrivals {
    /// Generates the workload. Lifetimes are spread evenly from 2/3 to 4/3 of the mean that gives the load.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn workload(&self) -> Result<Workload, WorkloadError> {
        self.check()?;
        let mut random = Random::seeded(self.seed);
        let cpus = self.kinds.iter().map(|kind| f64::from(kind.cpus)).sum::<f64>();
        let mean_size = cpus / self.kinds.len() as f64;
        let mean_life_ms = 1000.0 * self.load * f64::from(self.cpus) / (self.rate * mean_size);
        let arrival = |number: usize| {
            let kind = random.below(self.kinds.len() as u64) as usize;
            let ContainerResources { cpus, memory_mib, devices } = self.kinds[kind].clone();
            let life_ms = mean_life_ms * (2.0 + 2.0 * random.fraction()) / 3.0;
            let at_ms = whole(number as f64 * 1000.0 / self.rate);
            Arrival { memory_mib, devices, ..Arrival::new(at_ms, cpus, whole(life_ms)) }
        };
        let arrivals = (0..self.pods).map(arrival).collect();
        let workload = Workload { max_pending: self.max_pending, arrivals };
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let range = |field: &str, value: String, allowed: &str| {
            Err(WorkloadError::Range { field: field.to_owned(), value, allowed: allowed.to_owned() })
        };
        if !(0.000_001..=1_000_000.0).contains(&self.rate) {
            return range("rate", self.rate.to_string(), "0.000001 to 1000000 pods per second");
        }
        if !(0.000_001..=1000.0).contains(&self.load) {
            return range("load", self.load.to_string(), "0.000001 to 1000, as a share of the CPUs");
        }
        if self.pods > MAX_ARRIVALS {
            return range("pods", self.pods.to_string(), &format!("0 to {MAX_ARRIVALS}"));
        }
        if self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.cpus == 0) {
            return range("kinds", format!("{:?}", self.kinds), "one or more kinds of at least 1 CPU");
        }
        if self.cpus == 0 {
            return range("cpus", "0".to_owned(), "1 and more: no CPU is free for the pods");
        }
        let last_ms = self.pods as f64 * 1000.0 / self.rate;
        if last_ms > MAX_TIME_MS as f64 {
            return range("pods / rate", format!("{:.0} s", last_ms / 1000.0), "up to ten years");
        }
        Ok(())
    }
}

impl Default for OpenArrivals {
    /// The benchmark's workload: 120 pods of [`SIZES`], 3 per second, for 65 % of 4 machines with 2 zones of 16 CPUs,
    /// one CPU of each machine reserved.
    fn default() -> Self {
        Self {
            pods: 120,
            rate: 3.0,
            load: 0.65,
            cpus: 4 * 31,
            max_pending: None,
            kinds: SIZES.map(ContainerResources::of_cpus).to_vec(),
            seed: 1,
        }
    }
}

/// Rounds a time; the caller keeps it within [`MAX_TIME_MS`] or checks it.
fn whole(ms: f64) -> u64 {
    debug_assert!(ms >= 0.0, "{ms}");
    ms.round() as u64
}
