//! The plugins of a profile: which of kube-scheduler's own run, with which weights and arguments.
//!
//! In: the lists and arguments of a profile. Out: [`Plugins`], or the first error in kube-scheduler's words. Never: a
//! list that is accepted and has no effect; what has none is named by [`without_effect`]. Source: kube-scheduler 1.36
//! `mergePluginSet`, `expandMultiPointPlugins` and `NewFramework`.

use api::schedulerconfig::{
    ExtensionPoint as Point, FitStrategyType, InTreeArgs, NUMA_PLUGIN, Plugin, PluginSet,
    Profile as WireProfile, SchedulerConfig,
};
use topology::resource::ResourceName;

use super::{ConfigError, in_tree};
use crate::affinity::NodeAffinity;
use crate::plugins::{
    Filters, Plugins, PreFilters, Scores, balanced_allocation, default_preemption, dynamic_resources,
    inter_pod_affinity, node_resources_fit, pod_topology_spread, volume_binding,
};

/// The plugin that places gangs whole.
const GANGS: &str = "GangScheduling";

/// Enables GangScheduling in profiles that do not disable it (kube-scheduler 1.36 `applyGangScheduling`).
pub(crate) fn enable_gangs(config: &mut SchedulerConfig) {
    for profile in &mut config.profiles {
        let everywhere = profile.plugins.0.entry(Point::MultiPoint).or_default();
        let is_disabled = everywhere.disabled.iter().any(|name| name == GANGS || name == "*");
        let is_enabled = everywhere.enabled.iter().any(|plugin| plugin.name == GANGS);
        if !is_disabled && !is_enabled {
            everywhere.enabled.push(Plugin { name: GANGS.to_owned(), weight: None });
        }
    }
}

/// The plugins of the profile with this index.
pub(super) fn read(profile: usize, wire: &WireProfile) -> Result<Plugins, ConfigError> {
    check(profile, wire)?;
    let filters = |plugin| weight(wire, plugin, Point::Filter).is_some();
    let pre_filters = |plugin| weight(wire, plugin, Point::PreFilter).is_some();
    let score = |plugin| weight(wire, plugin, Point::Score).unwrap_or(0);
    Ok(Plugins {
        filters: Filters {
            node_unschedulable: filters("NodeUnschedulable"),
            taint_toleration: filters("TaintToleration"),
            node_affinity: filters("NodeAffinity"),
            node_names: weight(wire, "NodeAffinity", Point::PreFilter).is_some(),
            node_ports: filters("NodePorts"),
            node_declared_features: filters("NodeDeclaredFeatures") && pre_filters("NodeDeclaredFeatures"),
            node_resources_fit: filters("NodeResourcesFit"),
            volume_restrictions: filters("VolumeRestrictions"),
            node_volume_limits: filters("NodeVolumeLimits"),
            volume_binding: filters("VolumeBinding"),
            volume_zone: filters("VolumeZone"),
            pod_topology_spread: filters("PodTopologySpread"),
            inter_pod_affinity: filters("InterPodAffinity"),
            dynamic_resources: filters("DynamicResources") && pre_filters("DynamicResources"),
        },
        pre_filters: PreFilters {
            volume_restrictions: pre_filters("VolumeRestrictions"),
            volume_binding: pre_filters("VolumeBinding"),
            volume_zone: pre_filters("VolumeZone"),
        },
        scores: Scores {
            taint_toleration: score("TaintToleration"),
            node_affinity: score("NodeAffinity"),
            node_resources_fit: score("NodeResourcesFit"),
            balanced_allocation: score("NodeResourcesBalancedAllocation"),
            image_locality: score("ImageLocality"),
            pod_topology_spread: score("PodTopologySpread"),
            inter_pod_affinity: score("InterPodAffinity"),
            dynamic_resources: score("DynamicResources"),
        },
        added_affinity: wire
            .in_tree
            .affinity
            .added_affinity
            .as_ref()
            .map(NodeAffinity::of)
            .unwrap_or_default(),
        fit: fit(profile, &wire.in_tree)?,
        pod_affinity: inter_pod_affinity::Args {
            hard_pod_affinity_weight: wire.in_tree.pod_affinity.hard_pod_affinity_weight.into(),
            ignore_preferred_terms_of_existing_pods: wire
                .in_tree
                .pod_affinity
                .ignore_preferred_terms_of_existing_pods,
        },
        spread: spread(wire),
        balanced: balanced_allocation::Args {
            resources: names(profile, "NodeResourcesBalancedAllocation", &wire.in_tree.balanced.resources)?,
        },
        volume_binding: volume_binding(profile, wire)?,
        preemption: preemption(profile, wire)?,
        dynamic_resources: weight(wire, "DynamicResources", Point::PreBind)
            .map(|_| dynamic_resources::Args::default()),
        deallocates: weight(wire, "DynamicResources", Point::PostFilter).is_some(),
        gang_scheduling: weight(wire, GANGS, Point::Permit).is_some(),
    })
}

/// The weight of a plugin at a point: 1 without a stated one. `None` where it does not run. A point's own list counts
/// before `multiPoint`; `multiPoint` enables at all points of a plugin that do not disable it.
pub(super) fn weight(wire: &WireProfile, plugin: &str, point: Point) -> Option<i64> {
    let stated = |set: &PluginSet| {
        let mut enabled = set.enabled.iter();
        enabled.find(|enabled| enabled.name == plugin).map(|enabled| enabled.weight.unwrap_or(0))
    };
    let is_disabled = |point| {
        let set = wire.plugins.at(point);
        set.is_some_and(|set| set.disabled.iter().any(|name| name == plugin || name == "*"))
    };
    let known = in_tree::find(plugin);
    let everywhere = || {
        let default = known.and_then(|known| known.default).filter(|_| !is_disabled(Point::MultiPoint));
        wire.plugins.at(Point::MultiPoint).and_then(stated).or(default)
    };
    let acts = known.is_none_or(|known| known.acts_at(point));
    let weight = wire
        .plugins
        .at(point)
        .and_then(stated)
        .or_else(|| everywhere().filter(|_| acts && !is_disabled(point)))?;
    Some(i64::from(weight.max(1)))
}

/// Refuses what kube-scheduler refuses to start with, and weights below 0.
fn check(profile: usize, wire: &WireProfile) -> Result<(), ConfigError> {
    for (point, set) in &wire.plugins.0 {
        let at = point.as_str();
        let error = |problem| {
            let field = format!("plugins.{at}.enabled");
            Err(ConfigError::Plugins { profile, field, problem })
        };
        let of = interface(*point);
        for (i, plugin) in set.enabled.iter().enumerate() {
            let name = &plugin.name;
            let known = in_tree::find(name);
            if known.is_none() && ![NUMA_PLUGIN, in_tree::KNI_DEBUG].contains(&name.as_str()) {
                let field = format!("plugins.{at}.enabled");
                return Err(ConfigError::Plugin { profile, field, of, name: name.clone() });
            }
            if *point != Point::MultiPoint && known.is_some_and(|known| !known.acts_at(*point)) {
                return error(format!("plugin {name:?} does not extend {of} plugin"));
            }
            if set.enabled[..i].iter().any(|other| other.name == *name) {
                return error(format!("plugin {name:?} already registered as {of:?}"));
            }
            if let Some(weight) = plugin.weight.filter(|weight| *weight < 0) {
                return error(format!("plugin {name:?}: Invalid value: {weight}: must not be negative"));
            }
        }
    }
    let name = &wire.scheduler_name;
    let problem = if weight(wire, "PrioritySort", Point::QueueSort).is_none() {
        format!("only one queue sort plugin required for profile with scheduler name {name:?}, but got 0")
    } else if weight(wire, "DefaultBinder", Point::Bind).is_none() {
        format!("at least one bind plugin is needed for profile with scheduler name {name:?}")
    } else {
        return Ok(());
    };
    Err(ConfigError::Plugins { profile, field: "plugins".to_owned(), problem })
}

/// kube-scheduler's name for the plugins of a point.
fn interface(point: Point) -> &'static str {
    match point {
        Point::MultiPoint => "MultiPoint",
        Point::PreEnqueue => "PreEnqueuePlugin",
        Point::QueueSort => "QueueSortPlugin",
        Point::PreFilter => "PreFilterPlugin",
        Point::Filter => "FilterPlugin",
        Point::PostFilter => "PostFilterPlugin",
        Point::PreScore => "PreScorePlugin",
        Point::Score => "ScorePlugin",
        Point::Reserve => "ReservePlugin",
        Point::Permit => "PermitPlugin",
        Point::PreBind => "PreBindPlugin",
        Point::Bind => "BindPlugin",
        Point::PostBind => "PostBindPlugin",
        Point::PlacementGenerate => "PlacementGeneratePlugin",
        Point::PlacementScore => "PlacementScorePlugin",
    }
}

fn fit(profile: usize, args: &InTreeArgs) -> Result<node_resources_fit::Args, ConfigError> {
    const PLUGIN: &str = "NodeResourcesFit";
    let args = &args.fit;
    let listed: Vec<String> = args.resources.iter().map(|resource| resource.name.clone()).collect();
    let weights = args.resources.iter().map(|resource| resource.weight);
    let points = args.shape.iter();
    // Scores of a shape are 0 to 10, those of nodes 0 to 100.
    let points = points.map(|point| (i64::from(point.utilization), 10 * i64::from(point.score)));
    Ok(node_resources_fit::Args {
        ignored: names(profile, PLUGIN, &args.ignored_resources)?,
        ignored_groups: args.ignored_resource_groups.clone(),
        strategy: match args.kind {
            FitStrategyType::LeastAllocated => node_resources_fit::Strategy::LeastAllocated,
            FitStrategyType::MostAllocated => node_resources_fit::Strategy::MostAllocated,
            FitStrategyType::RequestedToCapacityRatio => {
                node_resources_fit::Strategy::RequestedToCapacityRatio(points.collect())
            }
        },
        resources: names(profile, PLUGIN, &listed)?.into_iter().zip(weights).collect(),
    })
}

/// The arguments of PodTopologySpread where it acts. Where it does not, no constraint is looked up for a pod.
fn spread(wire: &WireProfile) -> pod_topology_spread::Args {
    let acts = |point| weight(wire, "PodTopologySpread", point).is_some();
    match &wire.in_tree.spread.default_constraints {
        _ if !acts(Point::Filter) && !acts(Point::Score) => pod_topology_spread::Args::list(&[]),
        Some(list) => pod_topology_spread::Args::list(list),
        None => pod_topology_spread::Args::default(),
    }
}

/// The arguments of VolumeBinding where it binds volumes. They are checked in any case.
fn volume_binding(profile: usize, wire: &WireProfile) -> Result<Option<volume_binding::Args>, ConfigError> {
    const PLUGIN: &str = "VolumeBinding";
    let args = in_tree::volume_binding_args(wire.other_args.get(PLUGIN));
    let args = args.map_err(|(field, problem)| ConfigError::Argument {
        profile,
        plugin: PLUGIN.to_owned(),
        field,
        problem,
    })?;
    Ok(weight(wire, PLUGIN, Point::PreBind).map(|_| args))
}

/// The arguments of DefaultPreemption where it acts. They are checked in any case.
fn preemption(profile: usize, wire: &WireProfile) -> Result<Option<default_preemption::Args>, ConfigError> {
    const PLUGIN: &str = "DefaultPreemption";
    let args = in_tree::preemption_args(wire.other_args.get(PLUGIN));
    let args = args.map_err(|(field, problem)| ConfigError::Argument {
        profile,
        plugin: PLUGIN.to_owned(),
        field,
        problem,
    })?;
    Ok(weight(wire, PLUGIN, Point::PostFilter).map(|_| args))
}

fn names(profile: usize, plugin: &str, list: &[String]) -> Result<Vec<ResourceName>, ConfigError> {
    let name = |name: &String| {
        ResourceName::new(name).map_err(|error| ConfigError::Argument {
            profile,
            plugin: plugin.to_owned(),
            field: "resources".to_owned(),
            problem: error.to_string(),
        })
    };
    list.iter().map(name).collect()
}

/// The parts of a profile that change nothing, each as a phrase. For a warning: kube-scheduler accepts them.
#[must_use]
pub fn without_effect(wire: &WireProfile) -> Vec<String> {
    let mut notes = Vec::new();
    for (point, set) in &wire.plugins.0 {
        let at = point.as_str();
        for name in set.disabled.iter().filter(|name| runs_all_the_same(wire, name, *point)) {
            notes.push(format!("{name} disabled at {at}"));
        }
        let weighs = [Point::MultiPoint, Point::Score].contains(point);
        for plugin in set.enabled.iter().filter(|plugin| !weighs && plugin.weight.is_some_and(|w| w > 0)) {
            notes.push(format!("the weight of {} at {at}", plugin.name));
        }
    }
    let default = InTreeArgs::default();
    let args = &wire.in_tree;
    let preemption = in_tree::preemption_args(wire.other_args.get("DefaultPreemption")).unwrap_or_default();
    let volumes = in_tree::volume_binding_args(wire.other_args.get("VolumeBinding")).unwrap_or_default();
    let runs = |plugin, points: &[Point]| points.iter().any(|point| weight(wire, plugin, *point).is_some());
    for (plugin, has_args, points) in [
        ("NodeAffinity", args.affinity != default.affinity, &[Point::Filter, Point::Score][..]),
        ("NodeResourcesFit", args.fit != default.fit, &[Point::Filter, Point::Score]),
        ("NodeResourcesBalancedAllocation", args.balanced != default.balanced, &[Point::Score]),
        ("InterPodAffinity", args.pod_affinity != default.pod_affinity, &[Point::Score]),
        ("PodTopologySpread", args.spread != default.spread, &[Point::Filter, Point::Score]),
        ("VolumeBinding", volumes != volume_binding::Args::default(), &[Point::PreBind]),
        ("DefaultPreemption", preemption != default_preemption::Args::default(), &[Point::PostFilter]),
    ] {
        if has_args && !runs(plugin, points) {
            notes.push(format!("the arguments of {plugin}, which is disabled"));
        }
    }
    if weight(wire, "SchedulingGates", Point::PreEnqueue).is_none() {
        notes.push("SchedulingGates disabled".to_owned());
    }
    if weight(wire, GANGS, Point::PreEnqueue).is_some() != weight(wire, GANGS, Point::Permit).is_some() {
        notes.push(format!("{GANGS} at preEnqueue: it acts there if it does at permit"));
    }
    if !are_in_order(wire) {
        notes.push("the order of filters".to_owned());
    }
    notes
}

/// Whether a plugin does its work although this point disables it: here a plugin prepares itself where it filters or
/// scores, and the ledger counts whatever is placed.
fn runs_all_the_same(wire: &WireProfile, plugin: &str, point: Point) -> bool {
    let works_at = match point {
        // It leaves out nodes by name there.
        Point::PreFilter if plugin == "NodeAffinity" => return false,
        Point::PreFilter => Point::Filter,
        Point::Reserve if plugin == "VolumeBinding" => Point::PreBind,
        Point::PreScore => Point::Score,
        Point::Reserve if plugin == NUMA_PLUGIN => Point::Filter,
        _ => return false,
    };
    let is_here = |name: &str| FILTERS.contains(&name) || SCORES.contains(&name) || name == NUMA_PLUGIN;
    plugin == "*" || (is_here(plugin) && weight(wire, plugin, works_at).is_some())
}

/// The scores here that are no filters.
const SCORES: [&str; 2] = ["NodeResourcesBalancedAllocation", "ImageLocality"];

/// The filters here, in the order in which they run; then come the zones.
const FILTERS: [&str; 12] = [
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
];

/// Whether the filters that a file lists stand in the order in which they run. The zones may stand anywhere: the files
/// of the Go operator have them before filters of pods.
fn are_in_order(wire: &WireProfile) -> bool {
    let listed = wire.plugins.at(Point::Filter).into_iter().flat_map(|set| &set.enabled);
    listed.filter_map(|plugin| FILTERS.iter().position(|name| *name == plugin.name)).is_sorted()
}

#[cfg(test)]
mod tests {
    use api::schedulerconfig::SchedulerConfig;

    use super::*;

    fn profile(plugins: &str, config: &str) -> Result<(Plugins, Vec<String>), String> {
        let config = SchedulerConfig::parse(&format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
             - schedulerName: a\n  plugins: {plugins}\n  pluginConfig: {config}\n"
        ))
        .map_err(|error| error.to_string())?;
        let profile = &config.profiles[0];
        Ok((read(0, profile).map_err(|error| error.to_string())?, without_effect(profile)))
    }

    #[test]
    fn weights_follow_the_lists() {
        for (plugins, wanted) in [
            ("{}", [3, 2, 1, 1, 1, 2, 2, 2]),
            ("{score: {disabled: [{name: '*'}]}}", [0; 8]),
            (
                "{preScore: {disabled: [{name: ImageLocality}]}, score: {disabled: [{name: ImageLocality}]}}",
                [3, 2, 1, 1, 0, 2, 2, 2],
            ),
            ("{multiPoint: {disabled: [{name: ImageLocality}]}}", [3, 2, 1, 1, 0, 2, 2, 2]),
            // At a point of its own a plugin without a weight has 1, and not its default.
            ("{score: {enabled: [{name: TaintToleration}]}}", [1, 2, 1, 1, 1, 2, 2, 2]),
            ("{multiPoint: {enabled: [{name: TaintToleration}]}}", [1, 2, 1, 1, 1, 2, 2, 2]),
            (
                "{score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 7}]}}",
                [0, 7, 0, 0, 0, 0, 0, 0],
            ),
            // The point's own list wins over multiPoint.
            (
                "{multiPoint: {enabled: [{name: NodeAffinity, weight: 5}]}, \
                  score: {enabled: [{name: NodeAffinity, weight: 9}], disabled: [{name: NodeAffinity}]}}",
                [3, 9, 1, 1, 1, 2, 2, 2],
            ),
            (
                "{multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}, \
                  {name: SchedulingGates}, {name: NodeResourcesFit, weight: 4}]}}",
                [0, 0, 4, 0, 0, 0, 0, 0],
            ),
        ] {
            let (read, notes) = profile(plugins, "[]").unwrap();
            assert_eq!((read.scores.all(), notes), (wanted, vec![]), "{plugins}");
        }
        assert_eq!(profile("{}", "[]").unwrap().0, Plugins::default());
    }

    #[test]
    fn filters_follow_the_lists() {
        let all = Filters::default();
        for (plugins, wanted) in [
            ("{filter: {disabled: [{name: NodePorts}]}}", Filters { node_ports: false, ..all }),
            (
                "{multiPoint: {disabled: [{name: InterPodAffinity}]}}",
                Filters { inter_pod_affinity: false, ..all },
            ),
            ("{score: {disabled: [{name: '*'}]}}", all),
            ("{preFilter: {disabled: [{name: NodeAffinity}]}}", Filters { node_names: false, ..all }),
            (
                "{filter: {disabled: [{name: '*'}], enabled: [{name: NodeUnschedulable}, {name: NodeAffinity}]}}",
                Filters {
                    node_unschedulable: true,
                    node_affinity: true,
                    node_names: true,
                    taint_toleration: false,
                    node_ports: false,
                    node_declared_features: false,
                    node_resources_fit: false,
                    volume_restrictions: false,
                    node_volume_limits: false,
                    volume_binding: false,
                    volume_zone: false,
                    pod_topology_spread: false,
                    inter_pod_affinity: false,
                    dynamic_resources: false,
                },
            ),
        ] {
            assert_eq!(profile(plugins, "[]").unwrap().0.filters, wanted, "{plugins}");
        }
    }

    #[test]
    fn lists_that_kube_scheduler_refuses_are_refused() {
        for (plugins, wanted) in [
            (
                "{filter: {enabled: [{name: ImageLocality}]}}",
                "profiles[0].plugins.filter.enabled: plugin \"ImageLocality\" does not extend FilterPlugin plugin",
            ),
            (
                "{score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}",
                "profiles[0].plugins.score.enabled: plugin \"NodeAffinity\" already registered as \"ScorePlugin\"",
            ),
            (
                "{multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}]}}",
                "profiles[0].plugins: at least one bind plugin is needed for profile with scheduler name \"a\"",
            ),
            (
                "{queueSort: {disabled: [{name: PrioritySort}]}}",
                "profiles[0].plugins: only one queue sort plugin required for profile with scheduler name \"a\", but \
                 got 0",
            ),
            (
                "{score: {enabled: [{name: NodeAffinity, weight: -2}]}}",
                "profiles[0].plugins.score.enabled: plugin \"NodeAffinity\": Invalid value: -2: must not be negative",
            ),
        ] {
            assert_eq!(profile(plugins, "[]").unwrap_err(), wanted, "{plugins}");
        }
    }

    #[test]
    fn parts_without_effect_are_named() {
        for (plugins, config, wanted) in [
            ("{preFilter: {disabled: [{name: NodePorts}]}}", "[]", "NodePorts disabled at preFilter"),
            ("{preEnqueue: {disabled: [{name: SchedulingGates}]}}", "[]", "SchedulingGates disabled"),
            (
                "{multiPoint: {enabled: [{name: NodeResourceTopologyMatch}]}, \
                  reserve: {disabled: [{name: NodeResourceTopologyMatch}]}}",
                "[]",
                "NodeResourceTopologyMatch disabled at reserve",
            ),
            (
                "{filter: {enabled: [{name: NodePorts, weight: 5}]}}",
                "[]",
                "the weight of NodePorts at filter",
            ),
            (
                "{filter: {enabled: [{name: NodePorts}, {name: TaintToleration}]}}",
                "[]",
                "the order of filters",
            ),
            (
                "{postFilter: {disabled: [{name: '*'}]}}",
                "[{name: DefaultPreemption, args: {minCandidateNodesAbsolute: 7}}]",
                "the arguments of DefaultPreemption, which is disabled",
            ),
            (
                "{score: {disabled: [{name: InterPodAffinity}]}}",
                "[{name: InterPodAffinity, args: {hardPodAffinityWeight: 0}}]",
                "the arguments of InterPodAffinity, which is disabled",
            ),
            (
                "{multiPoint: {disabled: [{name: PodTopologySpread}]}}",
                "[{name: PodTopologySpread, args: {defaultingType: List}}]",
                "the arguments of PodTopologySpread, which is disabled",
            ),
            (
                "{multiPoint: {disabled: [{name: NodeResourcesFit}]}}",
                "[{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]",
                "the arguments of NodeResourcesFit, which is disabled",
            ),
        ] {
            assert_eq!(profile(plugins, config).unwrap().1, [wanted], "{plugins}");
        }
    }

    #[test]
    fn preemption_follows_lists_and_arguments() {
        let config = |args: &str| format!("[{{name: DefaultPreemption, args: {args}}}]");
        for (plugins, args, wanted) in [
            ("{}", "{}", Some((10, 100))),
            ("{}", "{kind: DefaultPreemptionArgs, minCandidateNodesPercentage: 3}", Some((3, 100))),
            ("{}", "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 1}", Some((0, 1))),
            ("{postFilter: {disabled: [{name: DefaultPreemption}]}}", "{}", None),
            ("{postFilter: {disabled: [{name: '*'}]}}", "{}", None),
            ("{multiPoint: {disabled: [{name: DefaultPreemption}]}}", "{}", None),
            (
                "{multiPoint: {disabled: [{name: DefaultPreemption}]}, \
                  postFilter: {enabled: [{name: DefaultPreemption}]}}",
                "{}",
                Some((10, 100)),
            ),
        ] {
            let read = profile(plugins, &config(args)).unwrap().0.preemption;
            let numbers = |args: default_preemption::Args| {
                (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)
            };
            assert_eq!(read.map(numbers), wanted, "{plugins} {args}");
        }
        for (args, wanted) in [
            (
                "{minCandidateNodesPercentage: 101}",
                "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
            ),
            (
                "{minCandidateNodesAbsolute: -1}",
                "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ),
            (
                "{minCandidateNodesAbsolute: many}",
                "minCandidateNodesAbsolute: \"many\" is no whole number in the range [0, inf)",
            ),
            (
                "{minCandidateNodesAbsolute: 0, minCandidateNodesPercentage: 0}",
                "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as \
                 minCandidateNodesAbsolute",
            ),
            (
                "{minNodes: 1}",
                "minNodes: unknown field; allowed are apiVersion, kind, minCandidateNodesPercentage, \
                 minCandidateNodesAbsolute",
            ),
        ] {
            let wanted = format!("profiles[0].pluginConfig: DefaultPreemption: {wanted}");
            assert_eq!(profile("{}", &config(args)).unwrap_err(), wanted, "{args}");
        }
    }

    #[test]
    fn the_binding_of_volumes_follows_lists_and_arguments() {
        let config = |args: &str| format!("[{{name: VolumeBinding, args: {args}}}]");
        for (plugins, args, binds, refuses) in [
            ("{}", "{}", Some(600), (true, true)),
            ("{}", "{kind: VolumeBindingArgs, bindTimeoutSeconds: 30, shape: null}", Some(30), (true, true)),
            ("{preBind: {disabled: [{name: VolumeBinding}]}}", "{}", None, (true, true)),
            ("{filter: {disabled: [{name: VolumeBinding}]}}", "{}", Some(600), (true, false)),
            ("{multiPoint: {disabled: [{name: VolumeBinding}]}}", "{}", None, (false, false)),
        ] {
            let (read, notes) = profile(plugins, &config(args)).unwrap();
            assert_eq!(read.volume_binding.map(|args| args.bind_timeout_s), binds, "{plugins} {args}");
            assert_eq!((read.pre_filters.volume_binding, read.filters.volume_binding), refuses, "{plugins}");
            assert_eq!(notes, [""; 0], "{plugins} {args}");
        }
        for (args, wanted) in [
            (
                "{bindTimeoutSeconds: -1}",
                "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
            ),
            ("{bindTimeoutSeconds: soon}", "bindTimeoutSeconds: \"soon\" is no whole number"),
            (
                "{shape: []}",
                "shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate \
                 StorageCapacityScoring",
            ),
            (
                "{timeout: 1}",
                "timeout: unknown field; allowed are apiVersion, kind, bindTimeoutSeconds, shape",
            ),
        ] {
            let wanted = format!("profiles[0].pluginConfig: VolumeBinding: {wanted}");
            assert_eq!(profile("{}", &config(args)).unwrap_err(), wanted, "{args}");
        }
    }

    #[test]
    fn arguments_reach_the_plugins() {
        let config = "[{name: NodeResourcesFit, args: {ignoredResources: [a.io/x], ignoredResourceGroups: [b.io], \
            scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: a.io/y, weight: 3}, {name: cpu}], \
            requestedToCapacityRatio: {shape: [{utilization: 0, score: 2}, {utilization: 90, score: 10}]}}}}, \
            {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu}, {name: a.io/y, weight: 1}]}}, \
            {name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
            {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: Exists}]}]}}}}, \
            {name: InterPodAffinity, args: {hardPodAffinityWeight: 7, ignorePreferredTermsOfExistingPods: true}}, \
            {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: \
            [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}}]";
        let (read, notes) = profile("{}", config).unwrap();
        let name = |text| ResourceName::new(text).unwrap();
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            read.fit,
            node_resources_fit::Args {
                ignored: vec![name("a.io/x")],
                ignored_groups: vec!["b.io".to_owned()],
                strategy: node_resources_fit::Strategy::RequestedToCapacityRatio(vec![(0, 20), (90, 100)]),
                resources: vec![(name("a.io/y"), 3), (name("cpu"), 1)],
            }
        );
        assert_eq!(read.balanced.resources, [name("cpu"), name("a.io/y")]);
        let affinity = inter_pod_affinity::Args {
            hard_pod_affinity_weight: 7,
            ignore_preferred_terms_of_existing_pods: true,
        };
        assert_eq!(read.pod_affinity, affinity);
        assert!(read.spread.are_required());
        assert_eq!(profile("{}", "[]").unwrap().0.spread, pod_topology_spread::Args::default());
        let off = "{multiPoint: {disabled: [{name: PodTopologySpread}]}}";
        assert_eq!(profile(off, "[]").unwrap().0.spread, pod_topology_spread::Args::list(&[]));
        let labels = |key: &str| [(key.to_owned(), String::new())].into();
        assert!(read.added_affinity.allows("n", &labels("pool")));
        assert!(!read.added_affinity.allows("n", &labels("other")));
    }
}
