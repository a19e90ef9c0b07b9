//! The core's [`Settings`] from a `KubeSchedulerConfiguration`.
//!
//! In: a file, or what it says. Out: profiles, or an error for settings that this scheduler does not support. Never: a
//! setting that is accepted and has no effect, but for those that kube-scheduler accepts too, which are named in a
//! warning.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use api::schedulerconfig::{
    CacheAccounting, ExtensionPoint, NUMA_PLUGIN, NodesWithoutTopology, PreemptionMode,
    Profile as WireProfile, SchedulerConfig, ScoringStrategyType,
};
use topology::resource::ResourceName;
use topology::score::{Strategy, Weights};

mod in_tree;
mod plugins;

pub(crate) use plugins::enable_gangs;
pub use plugins::without_effect;

use runtime::yaml;

use crate::core::{Profile, Settings};
use crate::cycle::{Accounting, Numa};
use crate::queue::BackoffLimits;

/// Name of the profile without a configuration file, as the numaresources operator names its scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "topo-aware-scheduler";

/// A setting that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A plugin that this scheduler does not know.
    #[error(
        "profiles[{profile}].{field}: {of} {name:?} does not exist; known are {NUMA_PLUGIN} and kube-scheduler's own, \
         {}",
        in_tree::PLUGINS.map(|plugin| plugin.name).join(", ")
    )]
    Plugin {
        /// Index of the profile.
        profile: usize,
        /// The list that names the plugin.
        field: String,
        /// The kind of plugin that the list is of.
        of: &'static str,
        /// The name.
        name: String,
    },
    /// A list of plugins that cannot be.
    #[error("profiles[{profile}].{field}: {problem}")]
    Plugins {
        /// Index of the profile.
        profile: usize,
        /// The list.
        field: String,
        /// The problem, in kube-scheduler's words where it has some.
        problem: String,
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

/// How long a pod that fits no node waits before it is tried again in any case, unless a flag says otherwise
/// (kube-scheduler's default of `--pod-max-in-unschedulable-pods-duration`).
pub const MAX_WAIT_MS: u64 = 5 * 60 * 1_000;

/// Settings without a file: one profile with zones.
#[must_use]
pub fn default_settings(seed: u64) -> Settings {
    let (strategy, weights) = (Strategy::LeastAllocated, Weights::default());
    let numa = Numa {
        strategy,
        weights,
        filters: true,
        score_weight: 1,
        accounting: Accounting::Exact,
        unreported: NodesWithoutTopology::Accept,
    };
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
        max_wait_ms: MAX_WAIT_MS,
        deletes_rejected: false,
    }
}

/// Settings of the file at a path; without one the default ones.
///
/// # Errors
/// When the file cannot be read or is invalid; it is named.
pub fn read(path: Option<&Path>, seed: u64) -> anyhow::Result<Settings> {
    let Some(path) = path else { return Ok(default_settings(seed)) };
    let name = || path.display().to_string();
    let text = yaml::read_text(path, yaml::CONFIG_LIMIT_BYTES)?;
    let file = SchedulerConfig::parse(&text).with_context(name)?;
    settings(&file, seed).with_context(name)
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
            check_args(at, profile)?;
            Ok(Profile {
                name: profile.scheduler_name.as_str().into(),
                numa: numa(at, profile)?,
                plugins: Arc::new(plugins::read(at, profile)?),
                percentage: profile.percentage_of_nodes_to_score.map_or(global, usize::from),
            })
        })
        .collect::<Result<_, ConfigError>>()?;
    let backoff = BackoffLimits {
        initial_ms: config.pod_initial_backoff_seconds.saturating_mul(1_000),
        max_ms: config.pod_max_backoff_seconds.saturating_mul(1_000),
    };
    Ok(Settings {
        profiles,
        backoff,
        seed,
        hold_after_ms: Some(HOLD_AFTER_MS),
        max_wait_ms: MAX_WAIT_MS,
        deletes_rejected: false,
    })
}

/// Refuses arguments of unknown plugins, and those of known ones that would have no effect.
fn check_args(profile: usize, wire: &WireProfile) -> Result<(), ConfigError> {
    for (plugin, args) in wire.other_args.iter().filter(|(plugin, _)| *plugin != in_tree::KNI_DEBUG) {
        if in_tree::find(plugin).is_none() {
            let field = "pluginConfig".to_owned();
            return Err(ConfigError::Plugin { profile, field, of: "plugin", name: plugin.clone() });
        }
        // Those are read with the plugins.
        if !["DefaultPreemption", "VolumeBinding"].contains(&plugin.as_str())
            && let Some((field, problem)) = in_tree::differing_argument(plugin, args)
        {
            return Err(ConfigError::Argument { profile, plugin: plugin.clone(), field, problem });
        }
    }
    Ok(())
}

fn numa(at: usize, profile: &WireProfile) -> Result<Option<Numa>, ConfigError> {
    let weight = |point| plugins::weight(profile, NUMA_PLUGIN, point);
    let filters = weight(ExtensionPoint::Filter).is_some();
    let score_weight = weight(ExtensionPoint::Score).unwrap_or(0);
    if !filters && score_weight == 0 {
        return Ok(None);
    }
    let args = &profile.numa;
    let strategy = match args.scoring_strategy.kind {
        ScoringStrategyType::LeastAllocated => Strategy::LeastAllocated,
        ScoringStrategyType::MostAllocated => Strategy::MostAllocated,
        ScoringStrategyType::BalancedAllocation => Strategy::BalancedAllocation,
        ScoringStrategyType::LeastNUMANodes => Strategy::LeastNumaNodes,
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
    let seconds = u64::try_from(args.cache_resync_period_seconds).unwrap_or(0);
    let accounting = match args.cache.accounting {
        CacheAccounting::Exact => Accounting::Exact,
        CacheAccounting::OverReserve => Accounting::OverReserve {
            resync_ms: seconds.saturating_mul(1_000),
            method: args.cache.resync_method,
            preempts: args.preemption_mode == PreemptionMode::Enabled,
        },
    };
    Ok(Some(Numa {
        strategy,
        weights: Weights(weights),
        filters,
        score_weight,
        accounting,
        unreported: args.nodes_without_topology,
    }))
}

#[cfg(test)]
mod tests {
    use api::schedulerconfig::ResyncMethod;

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
        let most = settings(&file("{scoringStrategy: {type: MostAllocated}}"), 1).unwrap();
        let numa: Vec<_> = most.profiles.iter().map(|p| p.numa.as_ref()).collect();
        assert!(numa[0].is_none());
        let numa = numa[1].unwrap();
        assert_eq!((numa.strategy, numa.score_weight), (Strategy::MostAllocated, 7));
        let settings = settings(&file("{scoringStrategy: {type: LeastNUMANodes}}"), 1).unwrap();
        assert_eq!(settings.profiles[1].numa.as_ref().unwrap().strategy, Strategy::LeastNumaNodes);
        let accounting = |args| {
            crate::config::settings(&file(args), 1).unwrap().profiles[1].zone_filter().unwrap().accounting
        };
        let args = "{cacheResyncPeriodSeconds: 5, cache: {accounting: OverReserve}}";
        assert_eq!(accounting(args), Accounting::over_reserve(5_000));
        let args = "{cacheResyncPeriodSeconds: 5, cache: {accounting: OverReserve, resyncMethod: All}, preemptionMode: Enabled}";
        let wanted = Accounting::OverReserve { resync_ms: 5_000, method: ResyncMethod::All, preempts: true };
        assert_eq!(accounting(args), wanted);
        assert_eq!(accounting("{preemptionMode: Enabled}"), Accounting::Exact);
    }

    /// Settings of one profile with these plugins and these arguments of NodeResourcesFit.
    fn profile(plugins: &str, fit: &str) -> Result<Option<Numa>, String> {
        let config = SchedulerConfig::parse(&format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
             - schedulerName: a\n  plugins: {plugins}\n  pluginConfig:\n  - {{name: NodeResourcesFit, args: {fit}}}\n"
        ));
        let config = config.map_err(|error| error.to_string())?;
        let settings = settings(&config, 1).map_err(|error| error.to_string())?;
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
    fn gates_enable_gangs_where_the_file_does_not_disable_them() {
        let gangs = "[{name: GangScheduling}]";
        let none = "disabled: [{name: '*'}]";
        for (plugins, are_open, wanted) in [
            ("{}".to_owned(), false, false),
            ("{}".to_owned(), true, true),
            (format!("{{multiPoint: {{disabled: {gangs}}}}}"), true, false),
            (
                format!(
                    "{{multiPoint: {{{none}, enabled: [{{name: PrioritySort}}, {{name: DefaultBinder}}]}}}}"
                ),
                true,
                false,
            ),
            (format!("{{permit: {{{none}}}}}"), true, false),
            (format!("{{preEnqueue: {{{none}}}}}"), true, true),
            (format!("{{multiPoint: {{enabled: {gangs}}}}}"), false, true),
            (format!("{{multiPoint: {{enabled: {gangs}}}}}"), true, true),
            (format!("{{permit: {{enabled: {gangs}}}}}"), false, true),
            (format!("{{preEnqueue: {{enabled: {gangs}}}}}"), false, false),
        ] {
            let mut config = SchedulerConfig::parse(&format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
                 - schedulerName: a\n  plugins: {plugins}\n"
            ))
            .unwrap();
            if are_open {
                enable_gangs(&mut config);
            }
            assert_eq!(settings(&config, 1).unwrap().places_gangs(), wanted, "{plugins} {are_open}");
        }
    }

    #[test]
    fn nothing_is_dropped_silently() {
        let error = profile("{filter: {enabled: [{name: NodeResourceTopologyMach}]}}", "{}").unwrap_err();
        let wanted =
            "profiles[0].plugins.filter.enabled: FilterPlugin \"NodeResourceTopologyMach\" does not exist";
        assert!(error.starts_with(wanted), "{error}");
        let error = profile("{}", "{scoringStrategie: {}}").unwrap_err();
        let wanted = "unknown field \"scoringStrategie\"; allowed are apiVersion, kind, ignoredResources, \
                      ignoredResourceGroups, scoringStrategy";
        assert!(error.ends_with(wanted), "{error}");
        let same =
            "{kind: NodeResourcesFitArgs, ignoredResources: [], scoringStrategy: {type: LeastAllocated}}";
        assert!(profile("{}", same).unwrap().is_none());
    }
}
