//! Decisions about a lease, as pure functions of the lease last seen.
//!
//! In: the lease, the time of its last change by the local clock, and now. Out: an action and the object to write.
//! Never: I/O.

use super::Config;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::time::Duration;
use tokio::time::Instant;

/// The lease as last seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    /// The time of the first look at this version, by the local clock.
    pub(super) since: Instant,
}

impl Observed {
    pub(super) fn holder(&self) -> &str {
        let spec = self.lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }
}

/// The next step of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Create the lease, which does not exist.
    Create,
    /// Renew the lease, which this candidate holds.
    Renew,
    /// Take the lease over: it has no holder, or the holder's term is over.
    TakeOver,
    /// Wait: another candidate holds the lease at least until then.
    Wait(Instant),
}

/// The decision at `now`. `duration` stands in for a lease without a valid duration.
pub(super) fn decide(observed: Option<&Observed>, now: Instant, me: &str, duration: Duration) -> Action {
    let Some(observed) = observed else { return Action::Create };
    let holder = observed.holder();
    if holder == me {
        return Action::Renew;
    }
    let named =
        observed.lease.spec.as_ref().and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
    let expiry = observed.since + named.map_or(duration, Duration::from_secs);
    if holder.is_empty() || expiry <= now { Action::TakeOver } else { Action::Wait(expiry) }
}

/// The lease to write for `action`, based on the one seen.
pub(super) fn claim(observed: Option<&Observed>, action: Action, config: &Config, now: Timestamp) -> Lease {
    let mut lease = observed.map(|observed| observed.lease.clone()).unwrap_or_default();
    lease.metadata.name = Some(config.name.clone());
    lease.metadata.namespace = Some(config.namespace.clone());
    let old = lease.spec.take().unwrap_or_default();
    let transitions = old.lease_transitions.unwrap_or_default().max(0);
    let renews = action == Action::Renew;
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: Some(config.lease_duration.as_secs_f64().ceil() as i32),
        acquire_time: old.acquire_time.filter(|_| renews).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(match action {
            Action::TakeOver => transitions.saturating_add(1),
            _ => transitions,
        }),
        ..old
    });
    lease
}

/// The lease to write on release: without a holder, and expired at once for candidates that look at the time only.
pub(super) fn abdicate(observed: &Observed, now: Timestamp) -> Lease {
    let mut lease = observed.lease.clone();
    let old = lease.spec.take().unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..old
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "host_1";
    const DURATION: Duration = Duration::from_secs(15);

    fn config() -> Config {
        Config::new("kube-system", "tholepin", ME.to_owned())
    }

    fn observed(holder: Option<&str>, seconds: Option<i32>, since: Instant) -> Observed {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            lease_transitions: Some(4),
            acquire_time: Some(MicroTime(Timestamp::from_second(1000).unwrap())),
            strategy: Some("theirs".to_owned()),
            ..LeaseSpec::default()
        };
        let mut lease = Lease { spec: Some(spec), ..Lease::default() };
        lease.metadata.resource_version = Some("7".to_owned());
        Observed { lease, since }
    }

    #[test]
    fn decisions() {
        let seen = Instant::now();
        let at = |seconds: u64| seen + Duration::from_secs(seconds);
        // holder, its leaseDurationSeconds, seconds since it last changed -> action
        let table = [
            (Some(ME), Some(15), 0, Action::Renew),
            (Some(ME), Some(15), 3600, Action::Renew),
            (Some("other"), Some(15), 0, Action::Wait(at(15))),
            (Some("other"), Some(15), 14, Action::Wait(at(15))),
            (Some("other"), Some(15), 15, Action::TakeOver),
            (Some("other"), Some(60), 15, Action::Wait(at(60))),
            (Some(""), Some(15), 0, Action::TakeOver),
            (None, None, 0, Action::TakeOver),
            // Invalid durations: the candidate's own counts.
            (Some("other"), None, 14, Action::Wait(at(15))),
            (Some("other"), Some(-3), 14, Action::Wait(at(15))),
            (Some("other"), Some(i32::MAX), 3600, Action::Wait(at(i32::MAX as u64))),
        ];
        for (holder, seconds, age, want) in table {
            let got = decide(Some(&observed(holder, seconds, seen)), at(age), ME, DURATION);
            assert_eq!(got, want, "{holder:?} {seconds:?} {age}");
        }
        assert_eq!(decide(None, seen, ME, DURATION), Action::Create);
        let bare = Observed { lease: Lease::default(), since: seen };
        assert_eq!(decide(Some(&bare), seen, ME, DURATION), Action::TakeOver);
    }

    #[test]
    fn writes_keep_foreign_fields_and_count_transitions() {
        let now = Timestamp::from_second(2000).unwrap();
        let seen = observed(Some("other"), Some(15), Instant::now());
        // action -> transitions, acquired at
        for (action, transitions, acquired) in [(Action::TakeOver, 5, 2000), (Action::Renew, 4, 1000)] {
            let lease = claim(Some(&seen), action, &config(), now);
            assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"), "{action:?}");
            let spec = lease.spec.unwrap();
            assert_eq!(spec.holder_identity.as_deref(), Some(ME));
            assert_eq!(spec.lease_transitions, Some(transitions), "{action:?}");
            assert_eq!(spec.acquire_time.unwrap().0.as_second(), acquired, "{action:?}");
            assert_eq!(spec.renew_time.unwrap().0.as_second(), 2000);
            assert_eq!(spec.strategy.as_deref(), Some("theirs"));
        }
        let lease = claim(None, Action::Create, &config(), now);
        assert_eq!(lease.metadata.name.as_deref(), Some("tholepin"));
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(0));
        let released = abdicate(&seen, now).spec.unwrap();
        assert_eq!((released.holder_identity.as_deref(), released.lease_transitions), (Some(""), Some(4)));
        assert_eq!(released.lease_duration_seconds, Some(1));
    }

    #[test]
    fn broken_counters_do_not_overflow() {
        let mut seen = observed(None, None, Instant::now());
        for (old, new) in [(i32::MAX, i32::MAX), (-5, 1)] {
            seen.lease.spec.as_mut().unwrap().lease_transitions = Some(old);
            let lease = claim(Some(&seen), Action::TakeOver, &config(), Timestamp::UNIX_EPOCH);
            assert_eq!(lease.spec.unwrap().lease_transitions, Some(new));
        }
    }
}
