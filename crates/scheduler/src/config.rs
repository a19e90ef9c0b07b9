//! From flags and a `KubeSchedulerConfiguration` to the core's [`Settings`].
//!
//! In: the parsed file. Out: profiles, or an error for what the file asks of zones and this scheduler cannot do. (Lists and
//! arguments of in-tree plugins are read and have no effect yet; docs/scheduler.md says so.)

use api::schedulerconfig::{
    ExtensionPoint, NUMA_PLUGIN, PreemptionMode, Profile as WireProfile, SchedulerConfig, ScoringStrategyType,
};
use topology::resource::ResourceName;
use topology::score::{Strategy, Weights};

use crate::core::{Profile, Settings};
use crate::cycle::Numa;
use crate::queue::Backoff;

/// The profile served without a configuration file; the name the numaresources operator gives its scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "topo-aware-scheduler";

/// A setting that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A zone score that does not exist here yet.
    #[error(
        "profiles[{profile}].pluginConfig: scoringStrategy.type: {asked} is not supported yet; allowed values: \
         LeastAllocated, MostAllocated, BalancedAllocation"
    )]
    Strategy {
        /// Index of the profile.
        profile: usize,
        /// What was asked for.
        asked: &'static str,
    },
    /// NUMA-aware preemption.
    #[error(
        "profiles[{0}].pluginConfig: preemptionMode: Enabled is not supported yet; allowed value: Disabled"
    )]
    Preemption(usize),
    /// A name that is no resource.
    #[error("profiles[{profile}].pluginConfig: scoringStrategy.resources: {reason}")]
    Resource {
        /// Index of the profile.
        profile: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Settings without a file: one profile that counts zones.
#[must_use]
pub fn default_settings(seed: u64) -> Settings {
    let numa = Numa { strategy: Strategy::LeastAllocated, weights: Weights::default(), score_weight: 1 };
    Settings {
        profiles: vec![Profile { name: DEFAULT_SCHEDULER_NAME.into(), numa: Some(numa), percentage: 0 }],
        backoff: Backoff { initial_ms: 1_000, max_ms: 10_000 },
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
    let backoff = Backoff {
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
    fn what_cannot_be_honoured_is_refused() {
        let error = settings(&file("{scoringStrategy: {type: LeastNUMANodes}}"), 1).unwrap_err();
        assert_eq!(error, ConfigError::Strategy { profile: 1, asked: "LeastNUMANodes" });
        let error = settings(&file("{preemptionMode: Enabled}"), 1).unwrap_err();
        assert_eq!(error, ConfigError::Preemption(1));
    }
}
