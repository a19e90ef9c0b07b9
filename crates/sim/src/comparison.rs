//! The same pods on the same machines under different schedulers.
//!
//! In: machines, a plan, a seed. Out: one [`Entry`] per [`Contender`]. Never: anything that differs between contenders but what
//! their descriptions say.

use std::str::FromStr;

use serde::Serialize;
use topology::fingerprint::Method;

use crate::latency::{Faults, Latency};
use crate::machine::Machine;
use crate::record::{Summary, Timeline};
use crate::workload::Plan;
use crate::world::{Setup, World};

/// A scheduler and the world it lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Does not look at zones, as kube-scheduler. (It wakes waiting pods as tholepin does, so it is a little quicker
    /// than kube-scheduler with its backoff.)
    Blind,
    /// Tholepin's scheduler and exporters.
    Tholepin,
    /// Tholepin's scheduler where everybody knows everything at once and nothing takes time: what is left of the waiting is
    /// due to the pods and the machines.
    Ideal,
}

/// What the contenders live with, except the ideal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// How long things take.
    pub latency: Latency,
    /// What breaks down.
    pub faults: Faults,
}

/// What a contender made of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The result.
    #[serde(flatten)]
    pub summary: Summary,
    /// Levels over time.
    pub timeline: Timeline,
}

impl Contender {
    /// All, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Blind, Self::Tholepin, Self::Ideal];

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blind => "blind",
            Self::Tholepin => "tholepin",
            Self::Ideal => "ideal",
        }
    }

    /// Runs the plan. `progress` is told now and then how many pods are settled.
    #[must_use]
    pub fn run(
        self,
        plan: &Plan,
        machines: &[Machine],
        world: Conditions,
        seed: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Entry {
        let Conditions { latency, faults } = match self {
            Self::Ideal => Conditions::ideal(),
            Self::Blind | Self::Tholepin => world,
        };
        let setup = Setup {
            machines,
            plan,
            latency: &latency,
            faults,
            zones: self != Self::Blind,
            fingerprints: Some(Method::WithExclusiveResources),
            seed,
        };
        let record = World::new(setup).run(progress);
        Entry { summary: record.summary(self.as_str(), seed), timeline: record.timeline() }
    }
}

impl Conditions {
    /// Nothing takes time and nothing breaks down.
    #[must_use]
    pub fn ideal() -> Self {
        Self { latency: Latency::zero(), faults: Faults::default() }
    }

    /// A healthy cluster.
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

/// The plan under perfect knowledge and without latency: the mark a real cluster is measured against.
#[must_use]
pub fn ideal(plan: &Plan, machines: &[Machine], seed: u64) -> Summary {
    Contender::Ideal.run(plan, machines, Conditions::ideal(), seed, &mut |_| {}).summary
}
