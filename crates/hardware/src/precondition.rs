//! The precondition of a change that unloads a driver.
//!
//! In: nodes with the time since when new pods are kept from them, names of their devices. Out: the time that is left
//! to wait. Never: a clock, a look at pods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

/// The condition that no pod uses the devices of these nodes, and none is on its way there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Precondition {
    /// The names of the devices. Empty: the condition holds.
    pub device_names: BTreeSet<String>,
    /// The nodes, with the time at which the cordon taint was first seen there.
    pub cordon_taints: BTreeMap<String, Option<Timestamp>>,
}

impl Precondition {
    /// Whether all nodes have the cordon taint.
    #[must_use]
    pub fn has_cordon_taints(&self) -> bool {
        self.cordon_taints.values().all(Option::is_some)
    }

    /// The time that is left until pods scheduled before the taint have arrived; scheduling takes `binding` at most.
    #[must_use]
    pub fn remaining(&self, now: Timestamp, binding: Duration) -> Option<Duration> {
        let last = *self.cordon_taints.values().flatten().max()?;
        let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        binding.checked_sub(passed).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduled_pods_have_time_to_arrive() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let remaining = |cordon_taints: &[Option<Timestamp>], after: i64| {
            let cordon_taints =
                cordon_taints.iter().enumerate().map(|(at, taint)| (at.to_string(), *taint)).collect();
            Precondition { device_names: BTreeSet::new(), cordon_taints }
                .remaining(since + jiff::SignedDuration::from_millis(after), Duration::from_secs(2))
        };
        assert_eq!(remaining(&[Some(since)], 0), Some(Duration::from_secs(2)));
        assert_eq!(
            remaining(&[Some(Timestamp::UNIX_EPOCH), Some(since)], 1900),
            Some(Duration::from_millis(100))
        );
        assert_eq!(remaining(&[Some(since)], 2000), None);
        assert_eq!(remaining(&[], 0), None);
    }
}
