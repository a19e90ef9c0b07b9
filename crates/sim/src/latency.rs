//! How long things take between the API server, the scheduler, the kubelets and the exporters, and what breaks down when.
//!
//! In: nothing. Out: plain numbers, in milliseconds of virtual time. The simulation draws each delay evenly from its
//! [`Span`]; what travels one way between two parties arrives in the order it was sent.

use crate::random::Random;

/// A delay: anything from `min_ms` to `max_ms`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The shortest.
    pub min_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

/// The delays of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// A change in the API server until the scheduler sees it.
    pub watch: Span,
    /// The scheduler's decision until the API server has stored the binding. A node gets one binding at a time, so this also
    /// spaces the bindings to one node.
    pub bind: Span,
    /// A change in the API server until the node's kubelet acts on it.
    pub kubelet: Span,
    /// A change in the kubelet until the pod's status says so in the API server.
    pub status: Span,
    /// Admission until the containers run.
    pub start: Span,
    /// The kubelet hears of a deletion, or the containers exit, until it has given the pod's resources back.
    pub stop: Span,
    /// Resources given back until the pod object is gone.
    pub cleanup: Span,
    /// The kubelet has handed resources out until the exporter scans.
    pub scan_taken: Span,
    /// The kubelet has taken resources back until the exporter scans (the kubelet writes nothing then, so it has to look).
    pub scan_released: Span,
    /// A scan until the API server has stored the report.
    pub publish: Span,
}

/// What breaks down, and when (virtual time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// No exporter scans from the first time until the second.
    pub exporters_down_ms: Option<(u64, u64)>,
    /// The scheduler is killed at the first time and another one starts with nothing but what the API server has at the
    /// second.
    pub scheduler_down_ms: Option<(u64, u64)>,
}

impl Span {
    /// Always the same delay.
    #[must_use]
    pub const fn fixed(ms: u64) -> Self {
        Self { min_ms: ms, max_ms: ms }
    }

    /// From `min_ms` to `max_ms`; a maximum below the minimum counts as the minimum.
    #[must_use]
    pub const fn of(min_ms: u64, max_ms: u64) -> Self {
        Self { min_ms, max_ms }
    }

    /// A delay.
    pub fn draw(self, random: &mut Random) -> u64 {
        let width = self.max_ms.saturating_sub(self.min_ms);
        if width == 0 { self.min_ms } else { self.min_ms + random.below(width.saturating_add(1)) }
    }
}

impl Latency {
    /// Like a small healthy cluster: kubelets of Kubernetes 1.36 with containers that start and stop at once, so nearly
    /// all of the time to Running and of the time from deletion to disappearance is the kubelet's own.
    #[must_use]
    pub const fn cluster() -> Self {
        Self {
            watch: Span::of(1, 5),
            bind: Span::of(2, 10),
            kubelet: Span::of(1, 10),
            status: Span::of(5, 50),
            start: Span::of(20, 90),
            stop: Span::of(20, 600),
            cleanup: Span::of(20, 600),
            scan_taken: Span::of(10, 60),
            scan_released: Span::of(10, 60),
            publish: Span::of(3, 15),
        }
    }

    /// Everybody knows everything at once, and nothing takes time.
    #[must_use]
    pub const fn zero() -> Self {
        let none = Span::fixed(0);
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
        let mut random = Random::new(1);
        for (span, low, high) in
            [(Span::fixed(7), 7, 7), (Span::of(3, 5), 3, 5), (Span::of(9, 2), 9, 9), (Span::of(0, 0), 0, 0)]
        {
            let drawn: Vec<u64> = (0..200).map(|_| span.draw(&mut random)).collect();
            assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&low), Some(&high)), "{span:?}");
        }
    }
}
