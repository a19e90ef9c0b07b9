//! The core's [`Settings`] from a `KubeSchedulerConfiguration`.
//!
//! In: the parsed file. Out: profiles, or an error for zone features that this scheduler does not support. Never: an
//! effect of the lists and arguments of in-tree plugins, which are read and checked only (see docs/scheduler.md).

use api::schedulerconfig::{
    ExtensionPoint, NUMA_PLUGIN, PreemptionMode, Profile as WireProfile, SchedulerConfig, ScoringStrategyType,
};
use topology::resource::ResourceName;
use topology::score::{Strategy, Weights};

use crate::core::{Profile, Settings};
use crate::cycle::Numa;
use crate::queue::BackoffLimits;

/// Name of the profile without a configuration file, as the numaresources operator names its scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "topo-aware-scheduler";

/// A setting that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An unsupported scoring strategy.
    #[error(
        "profiles[{profile}].pluginConfig: scoringStrategy.type: {asked} is not supported yet; allowed values: \
         LeastAllocated, MostAllocated, BalancedAllocation"
    )]
    Strategy {
        /// Index of the profile.
        profile: usize,
        /// The strategy in the file.
        asked: &'static str,
    },
    /// NUMA-aware preemption, in the profile with this index.
    #[error(
        "profiles[{0}].pluginConfig: preemptionMode: Enabled is not supported yet; allowed value: Disabled"
    )]
    Preemption(usize),
    /// An invalid resource name.
    #[error("profiles[{profile}].pluginConfig: scoringStrategy.resources: {reason}")]
    Resource {
        /// Index of the profile.
        profile: usize,
        /// The problem.
        reason: String,
    },
}

/// Settings without a file: one profile with zones.
#[must_use]
pub fn default_settings(seed: u64) -> Settings {
    let numa = Numa { strategy: Strategy::LeastAllocated, weights: Weights::default(), score_weight: 1 };
    Settings {
        profiles: vec![Profile { name: DEFAULT_SCHEDULER_NAME.into(), numa: Some(numa), percentage: 0 }],
        backoff: BackoffLimits { initial_ms: 1_000, max_ms: 10_000 },
        seed,
    }
}

/// Settings of a file.
///
/// # Errors
/// The first [`ConfigError`].
pub fn settings(config: &SchedulerConfig, seed: u64) -> Result<Settings, ConfigError> {
    let global = usize::from(config.percentage_of_nodes_to_score.unwrap_or(0));
    let profiles = config
        .profiles
        .iter()
        .enumerate()
        .map(|(at, profile)| {
            Ok(Profile {
                name: profile.scheduler_name.as_str().into(),
                numa: numa(at, profile)?,
                percentage: profile.percentage_of_nodes_to_score.map_or(global, usize::from),
            })
        })
        .collect::<Result<_, ConfigError>>()?;
    let backoff = BackoffLimits {
        initial_ms: config.pod_initial_backoff_seconds.saturating_mul(1_000),
        max_ms: config.pod_max_backoff_seconds.saturating_mul(1_000),
    };
    Ok(Settings { profiles, backoff, seed })
}

fn numa(at: usize, profile: &WireProfile) -> Result<Option<Numa>, ConfigError> {
    if !profile.plugins.enables(NUMA_PLUGIN) {
        return Ok(None);
    }
    let args = &profile.numa;
    if args.preemption_mode == PreemptionMode::Enabled {
        return Err(ConfigError::Preemption(at));
    }
    let strategy = match args.scoring_strategy.kind {
        ScoringStrategyType::LeastAllocated => Strategy::LeastAllocated,
        ScoringStrategyType::MostAllocated => Strategy::MostAllocated,
        ScoringStrategyType::BalancedAllocation => Strategy::BalancedAllocation,
        ScoringStrategyType::LeastNUMANodes => {
            return Err(ConfigError::Strategy { profile: at, asked: "LeastNUMANodes" });
        }
    };
    let weights = args
        .scoring_strategy
        .resources
        .iter()
        .map(|resource| {
            let name = ResourceName::new(&resource.name)
                .map_err(|error| ConfigError::Resource { profile: at, reason: error.to_string() })?;
            Ok((name, resource.weight))
        })
        .collect::<Result<_, ConfigError>>()?;
    let weight = |point| {
        let enabled = profile.plugins.at(point)?.enabled.iter().find(|plugin| plugin.name == NUMA_PLUGIN)?;
        Some(i64::from(enabled.weight.unwrap_or(1).max(1)))
    };
    let score_weight =
        weight(ExtensionPoint::Score).or_else(|| weight(ExtensionPoint::MultiPoint)).unwrap_or(0);
    Ok(Some(Numa { strategy, weights: Weights(weights), score_weight }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(args: &str) -> SchedulerConfig {
        SchedulerConfig::parse(&format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
             - schedulerName: a\n- schedulerName: b\n  plugins:\n    multiPoint:\n      enabled:\n      \
             - name: NodeResourceTopologyMatch\n        weight: 7\n  pluginConfig:\n  - name: NodeResourceTopologyMatch\n    \
             args: {args}\n"
        ))
        .unwrap()
    }

    #[test]
    fn zones_count_where_the_plugin_is_enabled() {
        let settings = settings(&file("{scoringStrategy: {type: MostAllocated}}"), 1).unwrap();
        let numa: Vec<_> = settings.profiles.iter().map(|p| p.numa.as_ref()).collect();
        assert!(numa[0].is_none());
        let numa = numa[1].unwrap();
        assert_eq!((numa.strategy, numa.score_weight), (Strategy::MostAllocated, 7));
    }

    #[test]
    fn unsupported_settings_are_refused() {
        let error = settings(&file("{scoringStrategy: {type: LeastNUMANodes}}"), 1).unwrap_err();
        assert_eq!(error, ConfigError::Strategy { profile: 1, asked: "LeastNUMANodes" });
        let error = settings(&file("{preemptionMode: Enabled}"), 1).unwrap_err();
        assert_eq!(error, ConfigError::Preemption(1));
    }
}
