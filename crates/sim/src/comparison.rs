//! The same pods on the same machines under different schedulers.
//!
//! In: machines, a workload, a seed. Out: one [`Outcome`] for each [`Contender`]. Never: a difference between
//! contenders beyond their descriptions.

use std::str::FromStr;

use scheduler::cycle::Accounting;
use serde::Serialize;
use topology::fingerprint::Method;
use topology::placement::holdings::HashKey;
use topology::score::Strategy;

use crate::latency::{Faults, Latency, PluginPeriods};
use crate::machine::Machine;
use crate::record::{Refusal, Summary, Timeline};
use crate::simulation::{Setup, Simulation};
use crate::workload::Workload;

/// A scheduler, and the cluster around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Decides by node totals and ignores zones, as kube-scheduler does. Waiting pods are woken as by tholepin, so this
    /// contender is a little quicker than kube-scheduler with its backoff.
    Blind,
    /// The rules of upstream's NodeResourceTopologyMatch plugin with its cache `OverReserve`, fed by exporters that
    /// look periodically. Waiting pods are woken as by tholepin, without a backoff, and foreign pods stop nothing, so
    /// this contender too is a little quicker than the original.
    Nrtmatch,
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
    /// The periods of [`Contender::Nrtmatch`].
    pub plugin: PluginPeriods,
}

/// The result of one contender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Totals over the whole run.
    #[serde(flatten)]
    pub summary: Summary,
    /// The reasons why pods were not placed, the most frequent first.
    pub refusals: Vec<Refusal>,
    /// Levels over time.
    pub timeline: Timeline,
}

impl Contender {
    /// All contenders, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Blind, Self::Nrtmatch, Self::Tholepin, Self::Ideal];

    /// The name on the command line and in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blind => "blind",
            Self::Nrtmatch => "nrtmatch",
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
        let Impairments { latency, faults, plugin } = match self {
            Self::Ideal => Impairments::none(),
            Self::Blind | Self::Nrtmatch | Self::Tholepin => impairments,
        };
        let setup = Setup {
            machines,
            workload,
            latency: &latency,
            faults,
            accounting: match self {
                Self::Blind => None,
                Self::Nrtmatch => Some(Accounting::over_reserve(plugin.resync_ms)),
                Self::Tholepin | Self::Ideal => Some(Accounting::Exact),
            },
            strategy: Strategy::default(),
            scan_period_ms: (self == Self::Nrtmatch).then_some(plugin.exporter_ms),
            fingerprints: Some(Method::WithExclusiveResources),
            // Its exporter as installed: without the kubelet's checkpoints.
            ids: matches!(self, Self::Tholepin | Self::Ideal).then_some(HashKey::Name),
            seed,
        };
        let record = Simulation::new(setup).run(progress);
        let refusals = record.refusals();
        Outcome { summary: record.summary(self.as_str(), seed), refusals, timeline: record.timeline() }
    }
}

impl Impairments {
    /// No delay and no outage.
    #[must_use]
    pub fn none() -> Self {
        Self { latency: Latency::zero(), faults: Faults::default(), plugin: PluginPeriods::default() }
    }

    /// The delays of a healthy cluster, without outages.
    #[must_use]
    pub fn healthy() -> Self {
        Self { latency: Latency::cluster(), faults: Faults::default(), plugin: PluginPeriods::default() }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|contender| contender.as_str() == text);
        found.ok_or_else(|| "allowed are blind, nrtmatch, tholepin, ideal".to_owned())
    }
}

/// Runs the workload with perfect knowledge and without latency: the reference for measurements of real clusters.
#[must_use]
pub fn ideal(workload: &Workload, machines: &[Machine], seed: u64) -> Summary {
    Contender::Ideal.run(workload, machines, Impairments::none(), seed, &mut |_| {}).summary
}
