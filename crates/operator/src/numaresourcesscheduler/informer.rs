//! Where the Go plugin reads pods from.
//!
//! In: a cluster, what is asked for. Out: which it is. Never: a choice against the user's.
//!
//! Kubelets listed pods that had ended as if they held something still; a watch of its own lets the plugin see them go in the same
//! order as the exporter. Where kubelets are mended the scheduler's watch is enough, and cheaper.

use std::cmp::Ordering;

use api::numaresources::scheduler::{SchedulerInformer, Spec};
use deployer::platform::Version;

use crate::world::Place;

/// The first version whose kubelets list what runs, and no more.
const MENDED: [u64; 3] = [4, 20, 0];

/// Which it is.
pub(super) fn of(place: &Place, spec: &Spec) -> SchedulerInformer {
    let mended = place.platform.is_openshift() && place.version.as_ref().is_some_and(is_mended);
    let usual = if mended { SchedulerInformer::Shared } else { SchedulerInformer::Dedicated };
    spec.scheduler_informer.unwrap_or(usual)
}

/// Whether kubelets of this version of OpenShift list what runs, and no more. Builds before the release got it at different times.
fn is_mended(version: &Version) -> bool {
    let numbers = [0, 1, 2].map(|place| version.number(place));
    let Some(build) = version.pre_release() else { return numbers >= MENDED };
    let text = version.to_string();
    let at_least = |enough: bool| match numbers.cmp(&MENDED) {
        Ordering::Less => false,
        Ordering::Equal => enough,
        Ordering::Greater => true,
    };
    let number = |prefix: &str| build.strip_prefix(prefix).and_then(|rest| rest.parse::<u64>().ok());
    if text.contains(".nightly-") {
        at_least(build >= "0.nightly-2025-08-04-154809")
    } else if text.contains(".ci-") {
        at_least(build >= "0.ci-2025-08-01-195417")
    } else if text.contains("-ec.") {
        at_least(number("ec.").is_some_and(|number| number >= 6))
    } else if text.contains("-rc.") {
        at_least(number("rc.").is_some())
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U028
    #[test]
    fn builds_of_each_kind_are_mended_from_some_point_on() {
        let table = [
            ("4.20.0", true),
            ("4.20.1", true),
            ("4.21.0", true),
            ("5.0.0", true),
            ("4.19.9", false),
            ("4.20.0-0.nightly-2025-08-04-154809", true),
            ("4.20.0-0.nightly-2025-08-05-000000", true),
            ("4.20.0-0.nightly-2025-08-04-154808", false),
            ("4.21.0-0.nightly-2025-01-01-000000", true),
            ("4.19.0-0.nightly-2026-01-01-000000", false),
            ("4.20.0-0.ci-2025-08-01-195417", true),
            ("4.20.0-0.ci-2025-08-01-195416", false),
            ("4.20.0-ec.6", true),
            ("4.20.0-ec.10", true),
            ("4.20.0-ec.5", false),
            ("4.20.0-rc.0", true),
            ("4.20.0-rc.12", true),
            ("4.19.0-rc.3", false),
            ("4.21.0-rc.0", true),
            ("4.20.0-0.konflux-2026-01-01", false),
            ("4.20.0-ec.x", false),
        ];
        for (text, mended) in table {
            assert_eq!(is_mended(&text.parse().unwrap()), mended, "{text}");
        }
    }
}
