//! The precondition of a change that touches a loaded driver.
//!
//! In: nodes, the names of their devices, since when new pods are kept from them. Out: how long it is still to be
//! waited. Never: a clock, a look at pods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

/// Condition of a change: no pod uses the devices of these nodes, and none is on its way there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Precondition {
    /// Who has a device under one of these uses them. None: nothing has to hold.
    pub names: BTreeSet<String>,
    /// The nodes, and since when it has been seen that new pods are kept from them, if they are.
    pub fences: BTreeMap<String, Option<Timestamp>>,
}

impl Precondition {
    /// All of them have a fence.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fences.values().all(Option::is_some)
    }

    /// How long it is still to be waited for those who are on the way, if they may be for so long.
    #[must_use]
    pub fn rest(&self, now: Timestamp, on_the_way: Duration) -> Option<Duration> {
        let last = *self.fences.values().flatten().max()?;
        let seen = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        on_the_way.checked_sub(seen).filter(|rest| !rest.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_on_the_way_has_time_to_come() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let rest = |fences: &[Option<Timestamp>], after: i64| {
            let fences = fences.iter().enumerate().map(|(at, fence)| (at.to_string(), *fence)).collect();
            Precondition { names: BTreeSet::new(), fences }
                .rest(since + jiff::SignedDuration::from_millis(after), Duration::from_secs(2))
        };
        assert_eq!(rest(&[Some(since)], 0), Some(Duration::from_secs(2)));
        assert_eq!(rest(&[Some(Timestamp::UNIX_EPOCH), Some(since)], 1900), Some(Duration::from_millis(100)));
        assert_eq!(rest(&[Some(since)], 2000), None);
        assert_eq!(rest(&[], 0), None);
    }
}
