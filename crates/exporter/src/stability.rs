//! Decides whether a list of pods is stable enough to publish. Pure: time goes in as a value.
//!
//! In: what the kubelet lists, admissions of pods, starts of the kubelet. Out: accepted, or not yet. Never: "not yet"
//! for long.
//!
//! At two moments the kubelet's list is misleading:
//! - **A pod is being admitted.** The kubelet lists the pod before it has all its resources. Devices, CPUs and memory
//!   are handed out one after the other, each followed by a synced write, with a call of the device plugin between. A
//!   fingerprint that names the pod with half of its resources charged would make a scheduler take the rest for free.
//!   The kubelet admits one pod at a time and writes `allocated_pods_state` after each. So pods that are new in the
//!   list are accepted once as many admissions have been seen.
//! - **The kubelet has just started.** It lists only the pods that the API server has sent again. So pods that are
//!   missing in the list are not taken for gone in the first seconds, and for longer while all are missing. It lists no
//!   CPUs and memory before its managers have started, for which it waits for the container runtime.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use topology::fingerprint::PodHash;

/// Time in which a started kubelet lists its pods again; about a second is usual.
const START_GRACE: Duration = Duration::from_secs(5);
/// The same as long as it lists none of those that hold something, or its managers have not started: it may not reach
/// the API server, or its container runtime.
const LOST_GRACE: Duration = Duration::from_secs(20);
/// How long a listed pod may wait for its admission to be seen; device plugins may be slow. After that the list is
/// accepted as it is.
const ADMISSION_WAIT: Duration = Duration::from_secs(2);
/// The same while other admissions are seen: in a burst some pod is always being admitted, and the others should not
/// wait.
const BURST_WAIT: Duration = Duration::from_millis(250);
/// The same when admissions cannot be seen (kubelets before 1.33, no file events): long enough for a device plugin of
/// usual speed. A kubelet that has not admitted any pod yet has no such file either, so this holds only once there are
/// pods.
const UNSEEN_WAIT: Duration = Duration::from_millis(250);

/// The last accepted list, and the events since.
#[derive(Clone, Debug, Default)]
pub struct Stability {
    known: Option<KubeletListing>,
    admissions: u64,
    started: Option<Instant>,
    unsettled: Option<Instant>,
}

/// What the kubelet lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletListing {
    /// All listed pods.
    pub pods: BTreeSet<PodHash>,
    /// The pods that hold exclusive resources.
    pub holders: BTreeSet<PodHash>,
    /// Whether each manager that hands out CPUs or memory lists some: none does before it has started.
    pub managers_started: bool,
}

impl Stability {
    /// Counts pods that the kubelet admitted.
    pub fn admitted(&mut self, pods: u32) {
        self.admissions = self.admissions.saturating_add(pods.into());
    }

    /// Notes a start of the kubelet.
    pub fn kubelet_started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// Whether this list is accepted, which must have been requested after all events noted so far. An accepted list is
    /// what the next one is compared with. `sees_admissions` says whether admissions are reported at all. The first
    /// list is accepted once the kubelet's managers have started.
    pub fn accepts(&mut self, listed: &KubeletListing, sees_admissions: bool, now: Instant) -> bool {
        let since = *self.unsettled.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        let had_started = self.known.as_ref().is_none_or(|known| known.managers_started);
        if had_started && !listed.managers_started && waited < LOST_GRACE {
            return false;
        }
        if let Some(known) = &self.known {
            let grace = if known.holders.is_disjoint(&listed.holders) { LOST_GRACE } else { START_GRACE };
            let starting = self.started.is_some_and(|started| now.saturating_duration_since(started) < grace);
            if starting && !known.holders.is_subset(&listed.holders) {
                return false;
            }
            let new = listed.pods.difference(&known.pods).count() as u64;
            let patience = match (sees_admissions || known.pods.is_empty(), self.admissions) {
                (false, _) => UNSEEN_WAIT,
                (true, 0) => ADMISSION_WAIT,
                (true, _) => BURST_WAIT,
            };
            if new > self.admissions && waited < patience {
                return false;
            }
        }
        *self = Self { known: Some(listed.clone()), started: self.started, ..Self::default() };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lower-case letters are pods that hold nothing, upper-case ones hold something.
    fn listed(pods: &str) -> KubeletListing {
        let hash = |c: char| PodHash(u64::from(u32::from(c.to_ascii_lowercase())));
        let holders = pods.chars().filter(char::is_ascii_uppercase).map(hash).collect();
        KubeletListing { pods: pods.chars().map(hash).collect(), holders, managers_started: true }
    }

    /// Steps such as `10 +2` (at 10 ms two pods were admitted), `20 start`, `30 aB yes` and `30 aB no` (this list is
    /// accepted or not).
    fn check(sees_admissions: bool, steps: &[&str]) {
        let begin = Instant::now();
        let mut stability = Stability::default();
        for step in steps {
            let words: Vec<_> = step.split(' ').collect();
            let now = begin + Duration::from_millis(words[0].parse().unwrap());
            match words[1..] {
                ["start"] => stability.kubelet_started(now),
                [admitted] => stability.admitted(admitted.parse().unwrap()),
                [pods, wanted] => {
                    let pods = listed(pods.trim_matches('-'));
                    assert_eq!(
                        stability.accepts(&pods, sees_admissions, now),
                        wanted == "yes",
                        "{step} of {steps:?}"
                    );
                }
                _ => panic!("{step}"),
            }
        }
    }

    #[test]
    fn a_pod_is_accepted_once_its_admission_is_over() {
        check(true, &["0 - yes", "10 A no", "20 A no", "25 +1", "26 A yes", "30 - yes"]);
        check(true, &["0 - yes", "10 a no", "15 +1", "20 a yes"]);
        check(true, &["0 - yes", "5 +1", "10 A yes", "20 AB no", "30 +1", "31 AB yes"]);
    }

    /// The file that shows admissions is created by the first of them.
    #[test]
    fn the_first_pod_of_a_node_is_awaited_too() {
        check(false, &["0 - yes", "10 A no", "60 A no", "300 A no", "1500 +1", "1501 A yes"]);
        check(false, &["0 - yes", "10 A no", "2010 A yes"]);
    }

    #[test]
    fn one_admission_is_not_taken_for_two() {
        check(true, &["0 - yes", "5 +1", "10 AB no", "20 +1", "21 AB yes"]);
    }

    #[test]
    fn a_refused_pod_is_forgotten() {
        check(true, &["0 A yes", "10 AB no", "20 A yes", "30 A yes"]);
    }

    #[test]
    fn releases_need_no_admission() {
        check(true, &["0 AB yes", "10 A yes", "20 - yes"]);
    }

    #[test]
    fn the_first_list_is_accepted() {
        check(true, &["0 ABc yes"]);
        check(true, &["0 start", "1 - yes"]);
    }

    #[test]
    fn waiting_ends() {
        check(true, &["0 - yes", "10 A no", "2009 A no", "2010 A yes"]);
        check(false, &["0 B yes", "10 AB no", "259 AB no", "260 AB yes"]);
        check(true, &["0 - yes", "10 A no", "20 +1", "21 AB no", "100 +1", "101 ABC no", "260 ABCD yes"]);
    }

    #[test]
    fn a_kubelet_that_has_just_started_has_not_lost_its_pods() {
        check(
            true,
            &["0 AB yes", "100 start", "101 - no", "900 A no", "1000 AB yes", "1001 - no", "5100 A yes"],
        );
        // The API server is away.
        check(true, &["0 AB yes", "100 start", "5100 - no", "20099 - no", "20100 - yes"]);
        check(true, &["0 a yes", "100 start", "101 - yes"]);
        check(true, &["0 A yes", "100 start", "101 A yes", "102 +1", "103 AB yes"]);
    }

    #[test]
    fn what_managers_hand_out_is_awaited_until_they_have_started() {
        let begin = Instant::now();
        let listed = |managers_started| KubeletListing { managers_started, ..KubeletListing::default() };
        let at = |seconds| begin + Duration::from_secs(seconds);
        // After a restart, and at the start of the exporter.
        for is_first in [false, true] {
            let mut stability = Stability::default();
            if !is_first {
                assert!(stability.accepts(&listed(true), true, begin));
                stability.kubelet_started(begin);
            }
            assert!(!stability.accepts(&listed(false), true, at(1)));
            assert!(stability.accepts(&listed(true), true, at(2)));
            assert!(!stability.accepts(&listed(false), true, at(3)));
            assert!(!stability.accepts(&listed(false), true, at(22)));
            // The wait ends, and does not begin again.
            assert!(stability.accepts(&listed(false), true, at(23)));
            assert!(stability.accepts(&listed(false), true, at(24)));
        }
    }
}
