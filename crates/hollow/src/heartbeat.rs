//! Which nodes have a heartbeat due, spread evenly over a period.
//!
//! In: a period, a number of nodes, the time since the start. Out: the nodes whose turn has come. Never: a clock, or
//! more than one heartbeat of a node at a time, however long the last call is ago.

use std::time::Duration;

/// The turns of some nodes.
#[derive(Clone, Debug)]
pub struct Turns {
    period: Duration,
    nodes: u64,
    /// Turns so far: turn `k` is that of node `k` modulo the number of nodes.
    taken: u64,
}

impl Turns {
    /// Each of `nodes` has its turn once in each `period`.
    #[must_use]
    pub fn new(period: Duration, nodes: usize) -> Self {
        Self { period: period.max(Duration::from_millis(1)), nodes: (nodes as u64).max(1), taken: 0 }
    }

    /// The nodes whose turn has come. Turns that were missed by more than a period are left out.
    pub fn due(&mut self, elapsed: Duration) -> impl Iterator<Item = usize> + use<> {
        let (nodes, period) = (u128::from(self.nodes), self.period.as_nanos());
        let reached = elapsed.as_nanos().saturating_mul(nodes) / period;
        let reached = u64::try_from(reached).unwrap_or(u64::MAX);
        let first = self.taken.max(reached.saturating_sub(self.nodes));
        self.taken = self.taken.max(reached);
        let nodes = self.nodes;
        (first..self.taken).map(move |turn| usize::try_from(turn % nodes).unwrap_or_default())
    }

    /// The time between two turns.
    #[must_use]
    pub fn spacing(&self) -> Duration {
        Duration::from_nanos(
            u64::try_from(self.period.as_nanos() / u128::from(self.nodes)).unwrap_or(u64::MAX),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_turn_in_each_period() {
        let mut turns = Turns::new(Duration::from_secs(40), 4);
        assert_eq!(turns.spacing(), Duration::from_secs(10));
        for (seconds, nodes) in [
            (0, vec![]),
            (9, vec![]),
            (10, vec![0]),
            (10, vec![]),
            (35, vec![1, 2]),
            (60, vec![3, 0, 1]),
            (400, vec![0, 1, 2, 3]),
            (399, vec![]),
            (410, vec![0]),
        ] {
            let due: Vec<usize> = turns.due(Duration::from_secs(seconds)).collect();
            assert_eq!(due, nodes, "after {seconds} s");
        }
    }

    #[test]
    fn many_nodes_take_equal_turns() {
        let mut turns = Turns::new(Duration::from_secs(40), 5000);
        let mut beats = vec![0; 5000];
        for tick in 0..=1600 {
            turns.due(Duration::from_millis(100 * tick)).for_each(|node| beats[node] += 1);
        }
        assert!(beats.iter().all(|count| *count == 4), "{beats:?}");
    }
}
