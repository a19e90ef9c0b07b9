//! The defaults of the operator's objects: what holds where a field is absent.
//!
//! In: parts of an object as the user wrote it. Out: the same with every default filled in. Never: a change of the
//! object.

use super::scheduler::{self, CacheResyncDebug, CacheResyncDetection, SchedulerInformer, ScoringStrategy};
use super::{InfoRefreshMode, NodeGroup, NodeGroupConfig, PodsFingerprinting, Switch, UpdaterType};
use crate::goduration::GoDuration;

/// Seconds between two rounds of an exporter's timer.
const INFO_REFRESH_PERIOD_SECONDS: i64 = 10;
/// Seconds between two comparisons of the scheduler's cache with the exporters' objects.
const CACHE_RESYNC_PERIOD_SECONDS: i64 = 5;

impl NodeGroup {
    /// The API's limit for the number of annotations of a group.
    pub const MAX_ANNOTATIONS: usize = 8;

    /// The group's exporter configuration with every default of this program. The deprecated
    /// `disablePodsFingerprinting` counts where `config.podsFingerprinting` is absent.
    #[must_use]
    pub fn normalized_config(&self, updater: UpdaterType) -> NodeGroupConfig {
        let mut config = self.config.clone().unwrap_or_default();
        let old =
            |disabled| if disabled { PodsFingerprinting::Disabled } else { PodsFingerprinting::Enabled };
        config.pods_fingerprinting = config.pods_fingerprinting.or(self.disable_pods_fingerprinting.map(old));
        if updater == UpdaterType::Nfd {
            // It has nothing else.
            config.pods_fingerprinting = config.pods_fingerprinting.or(Some(PodsFingerprinting::Enabled));
            config.info_refresh_mode = config.info_refresh_mode.or(Some(InfoRefreshMode::Periodic));
        }
        config.normalized()
    }
}

impl NodeGroupConfig {
    /// The configuration with every default: fingerprints of pods with exclusive resources, a scan on each change and
    /// every ten seconds, publishing not paused.
    #[must_use]
    pub fn normalized(self) -> Self {
        Self {
            pods_fingerprinting: self
                .pods_fingerprinting
                .or(Some(PodsFingerprinting::EnabledExclusiveResources)),
            info_refresh_mode: self.info_refresh_mode.or(Some(InfoRefreshMode::PeriodicAndEvents)),
            info_refresh_period: self
                .info_refresh_period
                .or(Some(GoDuration::from_secs(INFO_REFRESH_PERIOD_SECONDS))),
            info_refresh_pause: self.info_refresh_pause.or(Some(Switch::Disabled)),
            tolerations: self.tolerations,
        }
    }
}

impl scheduler::Spec {
    /// The spec with its defaults. An absent `preemptionMode` (off) and absent `replicas` (as many as the cluster has
    /// room for) stay absent.
    #[must_use]
    pub fn normalized(&self) -> Self {
        Self {
            cache_resync_period: self
                .cache_resync_period
                .or(Some(GoDuration::from_secs(CACHE_RESYNC_PERIOD_SECONDS))),
            cache_resync_debug: self.cache_resync_debug.or(Some(CacheResyncDebug::DumpJSONFile)),
            scheduler_informer: self.scheduler_informer.or(Some(SchedulerInformer::Dedicated)),
            cache_resync_detection: self.cache_resync_detection.or(Some(CacheResyncDetection::Relaxed)),
            scoring_strategy: self.scoring_strategy.clone().or_else(|| Some(ScoringStrategy::default())),
            ..self.clone()
        }
    }
}
