//! The informer of pods that the Go plugin uses.
//!
//! In: a cluster, the request. Out: the informer. Never: another one than the requested one.
//!
//! Older kubelets list pods that have ended as if they held resources. With an informer of its own, the plugin sees
//! pods end in the same order as the exporter. With newer kubelets the scheduler's informer is enough, and cheaper.

use api::numaresources::scheduler::{SchedulerInformer, Spec};
use deployer::platform::Version;

use crate::cluster_state::Environment;

/// The first version whose kubelets list running pods only.
const FIXED: [u64; 3] = [4, 20, 0];

/// The informer.
pub(super) fn of(environment: &Environment, spec: &Spec) -> SchedulerInformer {
    let fixed = environment.platform.is_openshift() && environment.version.as_ref().is_some_and(is_fixed);
    let usual = if fixed { SchedulerInformer::Shared } else { SchedulerInformer::Dedicated };
    spec.scheduler_informer.unwrap_or(usual)
}

/// Whether kubelets of this OpenShift version list running pods only. Builds before the release got this at different
/// times.
fn is_fixed(version: &Version) -> bool {
    let numbers = [0, 1, 2].map(|at| version.number(at));
    let Some(build) = version.pre_release() else { return numbers >= FIXED };
    let text = version.to_string();
    let number = |prefix: &str| build.strip_prefix(prefix).and_then(|rest| rest.parse::<u64>().ok());
    let enough = if text.contains(".nightly-") {
        build >= "0.nightly-2025-08-04-154809"
    } else if text.contains(".ci-") {
        build >= "0.ci-2025-08-01-195417"
    } else if text.contains("-ec.") {
        number("ec.").is_some_and(|number| number >= 6)
    } else if text.contains("-rc.") {
        number("rc.").is_some()
    } else {
        return false;
    };
    numbers > FIXED || numbers == FIXED && enough
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U028
    #[test]
    fn builds_of_each_kind_are_fixed_from_some_point_on() {
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
        for (text, fixed) in table {
            assert_eq!(is_fixed(&text.parse().unwrap()), fixed, "{text}");
        }
    }
}
