//! Random sessions: machines, configurations and pods that meet every rule of the kubelet's managers often.
//!
//! In: a seed, and the kind of respondent. Out: the same sessions for the same seed. Never: a session that makes the
//! kubelet itself take seconds; its merge of hints is exponential in zones and resources, so large machines get pods
//! with few resources.

mod configuration;
mod machine;
mod workload;

use runtime::random::Random;
use topology::kubelet::profile::Minor;

use sim::admit::session::Session;

use crate::respondent::RespondentKind;

impl RespondentKind {
    /// Memory of a zone is a multiple of this, in GiB. A real kubelet sees the whole host's use of memory, and must not
    /// take it for pressure.
    fn memory_unit(self) -> u64 {
        match self {
            Self::Oracle => 1,
            Self::Kubelets => 32,
        }
    }

    /// The highest id of a zone. cAdvisor lists zones in the order of their folders' names.
    fn last_zone(self) -> u64 {
        match self {
            Self::Oracle => 63,
            Self::Kubelets => 9,
        }
    }
}

/// Chance, in the words that generators need.
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::seeded(seed))
    }

    /// Whether something of this probability, in percent, happens.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high.saturating_sub(low) + 1)
    }

    /// One of several values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.0.below(values.len() as u64)).unwrap_or(0)]
    }
}

/// The session of a seed and a number.
#[must_use]
pub fn session(respondent: RespondentKind, seed: u64, number: u64, minor: Minor) -> Session {
    let mut start = Random::seeded(seed);
    let mut dice = Dice::new(start.bits() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let machine = machine::machine(&mut dice, respondent);
    let kubelet = configuration::configuration(&mut dice, &machine, minor);
    let devices = machine::plugins(&mut dice, respondent, &machine);
    let steps = workload::steps(&mut dice, respondent, &machine, &kubelet, &devices);
    Session { machine, kubelet, devices, steps }
}
