//! Durations in configuration files: `250ms`, `1h30m`.

use std::time::Duration;

use api::goduration::GoDuration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A little less than the kubelet allows for `PreStartContainer`.
const PRE_START: Duration = Duration::from_secs(25);

/// Reads a duration that is not negative.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let duration = GoDuration::deserialize(deserializer)?;
    duration.to_std().ok_or_else(|| D::Error::custom(format!("{duration}: allowed are 0s and more")))
}

/// The default of `preStart.timeout`.
pub(super) fn pre_start() -> Duration {
    PRE_START
}
