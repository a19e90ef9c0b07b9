//! Delays between the API server, the scheduler, the kubelets and the exporters, and outages.
//!
//! In: nothing. Out: plain numbers, in milliseconds of virtual time. Never: reordering; the simulation draws each delay
//! evenly from its [`DelayRange`], and messages from one part to another arrive in the order in which they were sent.

use runtime::random::Random;

/// The range of a delay, from `min_ms` to `max_ms`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayRange {
    /// The shortest delay.
    pub min_ms: u64,
    /// The longest delay.
    pub max_ms: u64,
}

/// The delays of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// From a change in the API server until the scheduler sees it.
    pub watch: DelayRange,
    /// From the scheduler's decision until the API server has stored the binding. Bindings to one node go one at a
    /// time, so this also spaces them.
    pub bind: DelayRange,
    /// From a change in the API server until the node's kubelet acts on it.
    pub kubelet: DelayRange,
    /// From a change in the kubelet until the API server has stored the pod's status.
    pub status: DelayRange,
    /// From admission until the containers run.
    pub start: DelayRange,
    /// From the deletion's arrival at the kubelet, or the containers' exit, until the pod's resources are released.
    pub stop: DelayRange,
    /// From the release of the resources until the pod object is gone.
    pub cleanup: DelayRange,
    /// From the kubelet's allocation until the exporter scans.
    pub scan_taken: DelayRange,
    /// From the kubelet's release until the exporter scans. The kubelet writes no file then, so the exporter polls.
    pub scan_released: DelayRange,
    /// From a scan until the API server has stored the report.
    pub publish: DelayRange,
}

/// Outages, in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// No exporter scans from the first moment until the second.
    pub exporters_down_ms: Option<(u64, u64)>,
    /// The scheduler is killed at the first moment. Another one starts at the second and knows only what the API server
    /// has.
    pub scheduler_down_ms: Option<(u64, u64)>,
}

/// The periods on which upstream's plugin depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginPeriods {
    /// Time between two looks of an exporter.
    pub exporter_ms: u64,
    /// Time between two resyncs of the plugin's cache.
    pub resync_ms: u64,
}

impl Default for PluginPeriods {
    /// The periods that the Go operator sets: 10 s and 5 s.
    fn default() -> Self {
        Self { exporter_ms: 10_000, resync_ms: 5_000 }
    }
}

impl DelayRange {
    /// A delay that is always the same.
    #[must_use]
    pub const fn fixed(ms: u64) -> Self {
        Self { min_ms: ms, max_ms: ms }
    }

    /// Delays from `min_ms` to `max_ms`; a maximum below the minimum counts as the minimum.
    #[must_use]
    pub const fn new(min_ms: u64, max_ms: u64) -> Self {
        Self { min_ms, max_ms }
    }

    /// Draws a delay, each as likely as the others.
    pub fn draw(self, random: &mut Random) -> u64 {
        let width = self.max_ms.saturating_sub(self.min_ms);
        if width == 0 { self.min_ms } else { self.min_ms + random.below(width.saturating_add(1)) }
    }
}

impl Latency {
    /// The delays of a small healthy cluster: kubelets of Kubernetes 1.36, and containers that start and stop at once.
    /// Nearly all of the time to Running, and from deletion to disappearance, is then the kubelet's own.
    #[must_use]
    pub const fn cluster() -> Self {
        Self {
            watch: DelayRange::new(1, 5),
            bind: DelayRange::new(2, 10),
            kubelet: DelayRange::new(1, 10),
            status: DelayRange::new(5, 50),
            start: DelayRange::new(20, 90),
            stop: DelayRange::new(20, 600),
            cleanup: DelayRange::new(20, 600),
            scan_taken: DelayRange::new(10, 60),
            scan_released: DelayRange::new(10, 60),
            publish: DelayRange::new(3, 15),
        }
    }

    /// No delay anywhere: every part knows everything at once.
    #[must_use]
    pub const fn zero() -> Self {
        let none = DelayRange::fixed(0);
        Self {
            watch: none,
            bind: none,
            kubelet: none,
            status: none,
            start: none,
            stop: none,
            cleanup: none,
            scan_taken: none,
            scan_released: none,
            publish: none,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_the_span_and_reach_its_ends() {
        let mut random = Random::seeded(1);
        for (span, low, high) in [
            (DelayRange::fixed(7), 7, 7),
            (DelayRange::new(3, 5), 3, 5),
            (DelayRange::new(9, 2), 9, 9),
            (DelayRange::new(0, 0), 0, 0),
        ] {
            let drawn: Vec<u64> = (0..200).map(|_| span.draw(&mut random)).collect();
            assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&low), Some(&high)), "{span:?}");
        }
    }
}
