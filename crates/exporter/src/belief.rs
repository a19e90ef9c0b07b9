//! Whether a list of pods can be believed yet. Pure: time goes in as a value.
//!
//! In: the pods listed, that pods were admitted, that the kubelet started. Out: yes, or not yet. Never: "not yet" for long.
//!
//! Two moments would make a true list tell a lie:
//! - **A pod is being admitted.** The kubelet lists it before it has all it will get: devices, CPUs and memory are handed
//!   out one after the other, each followed by a synced write, with a call of the device plugin between. A fingerprint that
//!   names the pod with only half of it charged would have a scheduler believe the rest is free. The kubelet
//!   admits one pod at a time and writes `allocated_pods_state` after each: so pods that are new in the list are
//!   believed once as many admissions have been seen.
//! - **The kubelet has just started.** It lists only the pods the API server has told it about again. Pods that were there
//!   before and are missing now are not believed to be gone for the first seconds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use topology::fingerprint::PodHash;

/// How long a started kubelet may take to know its pods again; about a second is usual.
const START: Duration = Duration::from_secs(5);
/// How long a pod may be in the list without an admission seen: a device plugin may take its time. After that the kubelet
/// is taken to have reasons of its own.
const ADMISSION: Duration = Duration::from_secs(2);
/// The same while other admissions are seen: in a storm some pod is always on its way, and the others should not wait.
const STORM: Duration = Duration::from_millis(250);
/// The same when admissions cannot be seen (kubelets before 1.33, no file events): long enough for a device plugin that
/// answers in its stride. A kubelet that has not admitted any pod yet has no such file either, so this holds only once there
/// are pods.
const BLIND: Duration = Duration::from_millis(250);

/// What has been believed so far, and what has been seen since.
#[derive(Clone, Debug, Default)]
pub struct Belief {
    known: Option<Listed>,
    admissions: u64,
    started: Option<Instant>,
    unsettled: Option<Instant>,
}

/// The pods in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// All of them.
    pub pods: BTreeSet<PodHash>,
    /// Those that hold something.
    pub holders: BTreeSet<PodHash>,
}

impl Belief {
    /// The kubelet admitted pods.
    pub fn admitted(&mut self, pods: u32) {
        self.admissions = self.admissions.saturating_add(pods.into());
    }

    /// The kubelet started.
    pub fn kubelet_started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// Whether this list, asked for after everything told so far, is believed; if so, it is what the next one is compared
    /// with. `sees_admissions` says whether admissions are told at all. The very first list is always believed.
    pub fn believes(&mut self, listed: &Listed, sees_admissions: bool, now: Instant) -> bool {
        let since = *self.unsettled.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        if let Some(known) = &self.known {
            let starting = self.started.is_some_and(|started| now.saturating_duration_since(started) < START);
            if starting && !known.holders.is_subset(&listed.holders) {
                return false;
            }
            let new = listed.pods.difference(&known.pods).count() as u64;
            let patience = match (sees_admissions || known.pods.is_empty(), self.admissions) {
                (false, _) => BLIND,
                (true, 0) => ADMISSION,
                (true, _) => STORM,
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
    fn listed(pods: &str) -> Listed {
        let hash = |c: char| PodHash(u64::from(u32::from(c.to_ascii_lowercase())));
        let holders = pods.chars().filter(char::is_ascii_uppercase).map(hash).collect();
        Listed { pods: pods.chars().map(hash).collect(), holders }
    }

    /// Steps such as `10 +2` (at 10 ms two pods were admitted), `20 start`, `30 aB yes` and `30 aB no` (this list is
    /// believed or not).
    fn check(sees_admissions: bool, steps: &[&str]) {
        let begin = Instant::now();
        let mut belief = Belief::default();
        for step in steps {
            let words: Vec<_> = step.split(' ').collect();
            let now = begin + Duration::from_millis(words[0].parse().unwrap());
            match words[1..] {
                ["start"] => belief.kubelet_started(now),
                [admitted] => belief.admitted(admitted.parse().unwrap()),
                [pods, wanted] => {
                    let pods = listed(pods.trim_matches('-'));
                    assert_eq!(
                        belief.believes(&pods, sees_admissions, now),
                        wanted == "yes",
                        "{step} of {steps:?}"
                    );
                }
                _ => panic!("{step}"),
            }
        }
    }

    #[test]
    fn a_pod_is_believed_once_its_admission_is_over() {
        check(true, &["0 - yes", "10 A no", "20 A no", "25 +1", "26 A yes", "30 - yes"]);
        check(true, &["0 - yes", "10 a no", "15 +1", "20 a yes"]);
        check(true, &["0 - yes", "5 +1", "10 A yes", "20 AB no", "30 +1", "31 AB yes"]);
    }

    /// The file that tells of admissions is made by the first of them.
    #[test]
    fn the_first_pod_of_a_node_is_waited_for_too() {
        check(false, &["0 - yes", "10 A no", "60 A no", "300 A no", "1500 +1", "1501 A yes"]);
        check(false, &["0 - yes", "10 A no", "2010 A yes"]);
    }

    #[test]
    fn one_admission_is_not_taken_for_two() {
        check(true, &["0 - yes", "5 +1", "10 AB no", "20 +1", "21 AB yes"]);
    }

    #[test]
    fn a_refused_pod_leaves_no_trace() {
        check(true, &["0 A yes", "10 AB no", "20 A yes", "30 A yes"]);
    }

    #[test]
    fn releases_need_no_admission() {
        check(true, &["0 AB yes", "10 A yes", "20 - yes"]);
    }

    #[test]
    fn the_first_list_is_believed() {
        check(true, &["0 ABc yes"]);
        check(true, &["0 start", "1 - yes"]);
    }

    #[test]
    fn nobody_waits_for_ever() {
        check(true, &["0 - yes", "10 A no", "2009 A no", "2010 A yes"]);
        check(false, &["0 B yes", "10 AB no", "259 AB no", "260 AB yes"]);
        check(true, &["0 - yes", "10 A no", "20 +1", "21 AB no", "100 +1", "101 ABC no", "260 ABCD yes"]);
    }

    #[test]
    fn a_kubelet_that_has_just_started_is_not_believed_to_have_lost_its_pods() {
        check(
            true,
            &["0 AB yes", "100 start", "101 - no", "900 A no", "1000 AB yes", "1001 - no", "5100 - yes"],
        );
        check(true, &["0 A yes", "100 start", "101 A yes", "102 +1", "103 AB yes"]);
    }
}
