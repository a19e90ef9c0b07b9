//! The core's [`Settings`] from a `KubeSchedulerConfiguration`.
//!
//! In: the parsed file. Out: profiles, or an error for settings that this scheduler does not support. Never: a setting
//! that is accepted and has no effect, but for disabled plugins that always run, which are named in a warning.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::schedulerconfig::{
    ExtensionPoint, NUMA_PLUGIN, PluginSet, PreemptionMode, Profile as WireProfile, SchedulerConfig,
    ScoringStrategyType,
};
use topology::resource::ResourceName;
use topology::score::{Strategy, Weights};

mod in_tree;

use crate::core::{Profile, Settings};
use crate::cycle::{Accounting, Numa};
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
    /// A plugin that this scheduler does not know.
    #[error(
        "profiles[{profile}].{field}: there is no plugin {name:?}; known are {NUMA_PLUGIN} and kube-scheduler's own, {}",
        in_tree::NAMES.join(", ")
    )]
    Plugin {
        /// Index of the profile.
        profile: usize,
        /// The list that names the plugin.
        field: String,
        /// The name.
        name: String,
    },
    /// An argument of one of kube-scheduler's plugins that has no effect here.
    #[error("profiles[{profile}].pluginConfig: {plugin}: {field}: {problem}")]
    Argument {
        /// Index of the profile.
        profile: usize,
        /// The plugin.
        plugin: String,
        /// The argument.
        field: String,
        /// The problem.
        problem: String,
    },
    /// An invalid resource name.
    #[error("profiles[{profile}].pluginConfig: scoringStrategy.resources: {reason}")]
    Resource {
        /// Index of the profile.
        profile: usize,
        /// The problem.
        reason: String,
    },
}

/// How long a pod waits before a node is held for it, unless a flag says otherwise.
pub const HOLD_AFTER_MS: u64 = 60_000;

/// Settings without a file: one profile with zones.
#[must_use]
pub fn default_settings(seed: u64) -> Settings {
    let (strategy, weights) = (Strategy::LeastAllocated, Weights::default());
    let numa = Numa { strategy, weights, filters: true, score_weight: 1, accounting: Accounting::Exact };
    Settings {
        profiles: vec![Profile {
            name: DEFAULT_SCHEDULER_NAME.into(),
            numa: Some(numa),
            plugins: Arc::default(),
            percentage: 0,
        }],
        backoff: BackoffLimits { initial_ms: 1_000, max_ms: 10_000 },
        seed,
        hold_after_ms: Some(HOLD_AFTER_MS),
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
            check_plugins(at, profile)?;
            Ok(Profile {
                name: profile.scheduler_name.as_str().into(),
                numa: numa(at, profile)?,
                plugins: Arc::default(),
                percentage: profile.percentage_of_nodes_to_score.map_or(global, usize::from),
            })
        })
        .collect::<Result<_, ConfigError>>()?;
    let backoff = BackoffLimits {
        initial_ms: config.pod_initial_backoff_seconds.saturating_mul(1_000),
        max_ms: config.pod_max_backoff_seconds.saturating_mul(1_000),
    };
    Ok(Settings { profiles, backoff, seed, hold_after_ms: Some(HOLD_AFTER_MS) })
}

/// Refuses unknown plugins, and arguments of known ones that would have no effect.
fn check_plugins(profile: usize, wire: &WireProfile) -> Result<(), ConfigError> {
    let is_known =
        |name: &str| [NUMA_PLUGIN, in_tree::KNI_DEBUG].contains(&name) || in_tree::NAMES.contains(&name);
    for (point, set) in &wire.plugins.0 {
        if let Some(plugin) = set.enabled.iter().find(|plugin| !is_known(&plugin.name)) {
            let field = format!("plugins.{}.enabled", point.as_str());
            return Err(ConfigError::Plugin { profile, field, name: plugin.name.clone() });
        }
    }
    for (plugin, args) in &wire.other_args {
        if !is_known(plugin) {
            let field = "pluginConfig".to_owned();
            return Err(ConfigError::Plugin { profile, field, name: plugin.clone() });
        }
        if plugin != in_tree::KNI_DEBUG
            && let Some((field, problem)) = in_tree::differing_argument(plugin, args)
        {
            return Err(ConfigError::Argument { profile, plugin: plugin.clone(), field, problem });
        }
    }
    Ok(())
}

/// Plugins of a profile that the file disables and that run all the same, each once, sorted.
#[must_use]
pub fn disabled_without_effect(profile: &WireProfile) -> Vec<&str> {
    let disabled = profile.plugins.0.values().flat_map(|set| &set.disabled).map(String::as_str);
    disabled.filter(|name| in_tree::ALWAYS.contains(name)).collect::<BTreeSet<_>>().into_iter().collect()
}

fn numa(at: usize, profile: &WireProfile) -> Result<Option<Numa>, ConfigError> {
    let filters = weight(profile, ExtensionPoint::Filter).is_some();
    let score_weight = weight(profile, ExtensionPoint::Score).unwrap_or(0);
    if !filters && score_weight == 0 {
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
    Ok(Some(Numa {
        strategy,
        weights: Weights(weights),
        filters,
        score_weight,
        accounting: Accounting::Exact,
    }))
}

/// The weight of the NUMA plugin at an extension point; `None` if it is not enabled there. `multiPoint` enables it at
/// all points that do not disable it (kube-scheduler 1.36 `expandMultiPointPlugins`).
fn weight(profile: &WireProfile, point: ExtensionPoint) -> Option<i64> {
    let of = |point| profile.plugins.at(point)?.enabled.iter().find(|plugin| plugin.name == NUMA_PLUGIN);
    let disables = |set: &PluginSet| set.disabled.iter().any(|name| name == NUMA_PLUGIN || name == "*");
    let everywhere = || {
        let is_disabled = profile.plugins.at(point).is_some_and(disables);
        of(ExtensionPoint::MultiPoint).filter(|_| !is_disabled)
    };
    let plugin = of(point).or_else(everywhere)?;
    Some(i64::from(plugin.weight.unwrap_or(1).max(1)))
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

    /// Settings of one profile with these plugins and these arguments of NodeResourcesFit.
    fn profile(plugins: &str, fit: &str) -> Result<Option<Numa>, String> {
        let config = SchedulerConfig::parse(&format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
             - schedulerName: a\n  plugins: {plugins}\n  pluginConfig:\n  - {{name: NodeResourcesFit, args: {fit}}}\n"
        ));
        let settings = settings(&config.unwrap(), 1).map_err(|error| error.to_string())?;
        Ok(settings.profiles[0].numa.clone())
    }

    #[test]
    fn each_extension_point_counts_by_itself() {
        let numa = "{name: NodeResourceTopologyMatch, weight: 3}";
        for (plugins, wanted) in [
            (format!("{{filter: {{enabled: [{numa}]}}}}"), Some((true, 0))),
            (format!("{{score: {{enabled: [{numa}]}}}}"), Some((false, 3))),
            (format!("{{reserve: {{enabled: [{numa}]}}}}"), None),
            (format!("{{multiPoint: {{enabled: [{numa}]}}}}"), Some((true, 3))),
            (
                format!("{{multiPoint: {{enabled: [{numa}]}}, score: {{disabled: [{{name: '*'}}]}}}}"),
                Some((true, 0)),
            ),
        ] {
            let found = profile(&plugins, "{}").unwrap();
            assert_eq!(found.map(|numa| (numa.filters, numa.score_weight)), wanted, "{plugins}");
        }
    }

    #[test]
    fn nothing_is_dropped_silently() {
        let error = profile("{filter: {enabled: [{name: NodeResourceTopologyMach}]}}", "{}").unwrap_err();
        assert!(error.starts_with("profiles[0].plugins.filter.enabled: there is no plugin"), "{error}");
        for (args, wanted) in [
            (
                "{scoringStrategy: {type: MostAllocated}}",
                "scoringStrategy: {\"type\":\"MostAllocated\"} is not",
            ),
            ("{scoringStrategie: {}}", "scoringStrategie: unknown field"),
            ("{ignoredResources: [a/b]}", "ignoredResources: not supported yet; leave it out"),
        ] {
            let error = profile("{}", args).unwrap_err();
            assert!(error.contains(&format!("pluginConfig: NodeResourcesFit: {wanted}")), "{error}");
        }
        let same =
            "{kind: NodeResourcesFitArgs, ignoredResources: [], scoringStrategy: {type: LeastAllocated}}";
        assert!(profile("{}", same).unwrap().is_none());
    }
}
