//! The same pods on the same machines under different schedulers.
//!
//! In: machines, a workload, a seed. Out: one [`Outcome`] for each [`Contender`]. Never: a difference between
//! contenders beyond their descriptions.

use std::str::FromStr;

use serde::Serialize;
use topology::fingerprint::Method;

use crate::latency::{Faults, Latency};
use crate::machine::Machine;
use crate::record::{Summary, Timeline};
use crate::simulation::{Setup, Simulation};
use crate::workload::Workload;

/// A scheduler, and the cluster around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Decides by node totals and ignores zones, as kube-scheduler does. Waiting pods are woken as by tholepin, so this
    /// contender is a little quicker than kube-scheduler with its backoff.
    Blind,
    /// Tholepin's scheduler, fed by its exporters.
    Tholepin,
    /// Tholepin's scheduler with perfect knowledge and without latency. The waiting that remains is due to the pods and
    /// the machines.
    Ideal,
}

/// The delays and outages that all contenders but [`Contender::Ideal`] suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairments {
    /// Delays between the parts of the cluster.
    pub latency: Latency,
    /// Outages during the run.
    pub faults: Faults,
}

/// The result of one contender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Totals over the whole run.
    #[serde(flatten)]
    pub summary: Summary,
    /// Levels over time.
    pub timeline: Timeline,
}

impl Contender {
    /// All contenders, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Blind, Self::Tholepin, Self::Ideal];

    /// The name on the command line and in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blind => "blind",
            Self::Tholepin => "tholepin",
            Self::Ideal => "ideal",
        }
    }

    /// Runs the workload to its end. `progress` receives the number of settled pods from time to time.
    #[must_use]
    pub fn run(
        self,
        workload: &Workload,
        machines: &[Machine],
        impairments: Impairments,
        seed: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Outcome {
        let Impairments { latency, faults } = match self {
            Self::Ideal => Impairments::none(),
            Self::Blind | Self::Tholepin => impairments,
        };
        let setup = Setup {
            machines,
            workload,
            latency: &latency,
            faults,
            zones: self != Self::Blind,
            fingerprints: Some(Method::WithExclusiveResources),
            seed,
        };
        let record = Simulation::new(setup).run(progress);
        Outcome { summary: record.summary(self.as_str(), seed), timeline: record.timeline() }
    }
}

impl Impairments {
    /// No delay and no outage.
    #[must_use]
    pub fn none() -> Self {
        Self { latency: Latency::zero(), faults: Faults::default() }
    }

    /// The delays of a healthy cluster, without outages.
    #[must_use]
    pub fn healthy() -> Self {
        Self { latency: Latency::cluster(), faults: Faults::default() }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|contender| contender.as_str() == text);
        found.ok_or_else(|| "allowed are blind, tholepin, ideal".to_owned())
    }
}

/// Runs the workload with perfect knowledge and without latency: the reference for measurements of real clusters.
#[must_use]
pub fn ideal(workload: &Workload, machines: &[Machine], seed: u64) -> Summary {
    Contender::Ideal.run(workload, machines, Impairments::none(), seed, &mut |_| {}).summary
}
