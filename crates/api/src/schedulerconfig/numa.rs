//! `NodeResourceTopologyMatchArgs`: the NUMA plugin's arguments.
//!
//! In: the `args` mapping of the plugin. Out: all fields, with the Go plugin's defaults. Never: an unknown word in the
//! cache settings, which the Go plugin accepts.

use serde_json::Value;

use super::NUMA_PLUGIN;
use super::decode::{Errors, Fields};

/// The plugin's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeResourceTopologyMatchArgs {
    /// The scoring of zones.
    pub scoring_strategy: ScoringStrategy,
    /// Seconds between resyncs of the Go plugin's cache; zero or below selects its cache-less mode.
    pub cache_resync_period_seconds: i64,
    /// Selects the Go plugin's mode that skips nodes with reservations; overrides the period.
    pub discard_reserved_nodes: bool,
    /// Settings of the Go plugin's cache.
    pub cache: CacheArgs,
    /// Whether pods may be evicted to free a zone.
    pub preemption_mode: PreemptionMode,
    /// Nodes without a report, for pods that a kubelet could have to align. The Go plugin does not have this field.
    pub nodes_without_topology: NodesWithoutTopology,
}

/// The scoring of zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoringStrategy {
    /// The formula.
    pub kind: ScoringStrategyType,
    /// Weights for the formulas that have some; resources that are not listed weigh 1.
    pub resources: Vec<ResourceWeight>,
}

/// The weight of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWeight {
    /// Its name.
    pub name: String,
    /// 1 to 2147483647.
    pub weight: i64,
}

/// Formulas for scoring zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoringStrategyType {
    /// Prefer full zones.
    MostAllocated,
    /// Prefer zones whose resources are used evenly.
    BalancedAllocation,
    /// Prefer empty zones.
    #[default]
    LeastAllocated,
    /// Prefer few zones.
    LeastNUMANodes,
}

/// Settings of the Go plugin's cache, and the choice of the accounting. tholepin's ledger has no use for those of the
/// cache; they are read so that files stay valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheArgs {
    /// Which pods of other schedulers make a node's data stale.
    pub foreign_pods_detect: ForeignPodsDetect,
    /// Which pods enter the fingerprint.
    pub resync_method: ResyncMethod,
    /// Where pods are read from.
    pub informer_mode: InformerMode,
    /// What makes a node dirty.
    pub resync_scope: ResyncScope,
    /// How pods are charged to zones. The Go plugin does not have this field.
    pub accounting: CacheAccounting,
}

/// How pods are charged to zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheAccounting {
    /// As the kubelet places them.
    #[default]
    Exact,
    /// To every zone, until a report accounts for them, as the Go plugin does.
    OverReserve,
}

/// The pods of other schedulers that make a node's data stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignPodsDetect {
    /// None.
    None,
    /// All.
    #[default]
    All,
    /// Those with exclusive resources.
    OnlyExclusiveResources,
}

/// Which pods enter the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResyncMethod {
    /// As the object states.
    #[default]
    Autodetect,
    /// All.
    All,
    /// Those with exclusive resources.
    OnlyExclusiveResources,
}

/// Where the Go plugin reads pods from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InformerMode {
    /// The scheduler's own cache.
    Shared,
    /// A cache of the plugin's own.
    #[default]
    Dedicated,
}

/// What makes a node dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResyncScope {
    /// Changed resources and changed kubelet settings.
    #[default]
    All,
    /// Changed resources only.
    OnlyResources,
}

/// What becomes of nodes without a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodesWithoutTopology {
    /// They are like others, as for the Go plugin.
    #[default]
    Accept,
    /// They refuse pods that a kubelet could have to align.
    Reject,
    /// Such pods go there only where no node fits that aligns them.
    PreferAligned,
}

/// Whether pods may be evicted to free a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionMode {
    /// Preemption is off.
    #[default]
    Disabled,
    /// Preemption is on.
    Enabled,
}

/// A value that is one word in the file.
pub trait Word: Copy + PartialEq + 'static {
    /// Each word with its value.
    const WORDS: &'static [(&'static str, Self)];

    /// The word of the value.
    #[must_use]
    fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }

    /// The value of a word, in exactly this spelling.
    #[must_use]
    fn parse(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
    }
}

impl Word for ScoringStrategyType {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("MostAllocated", Self::MostAllocated),
        ("BalancedAllocation", Self::BalancedAllocation),
        ("LeastAllocated", Self::LeastAllocated),
        ("LeastNUMANodes", Self::LeastNUMANodes),
    ];
}

impl Word for ForeignPodsDetect {
    const WORDS: &'static [(&'static str, Self)] =
        &[("None", Self::None), ("All", Self::All), ("OnlyExclusiveResources", Self::OnlyExclusiveResources)];
}

impl Word for ResyncMethod {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("Autodetect", Self::Autodetect),
        ("All", Self::All),
        ("OnlyExclusiveResources", Self::OnlyExclusiveResources),
    ];
}

impl Word for InformerMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("Shared", Self::Shared), ("Dedicated", Self::Dedicated)];
}

impl Word for ResyncScope {
    const WORDS: &'static [(&'static str, Self)] =
        &[("All", Self::All), ("OnlyResources", Self::OnlyResources)];
}

impl Word for CacheAccounting {
    const WORDS: &'static [(&'static str, Self)] =
        &[("Exact", Self::Exact), ("OverReserve", Self::OverReserve)];
}

impl Word for NodesWithoutTopology {
    const WORDS: &'static [(&'static str, Self)] =
        &[("Accept", Self::Accept), ("Reject", Self::Reject), ("PreferAligned", Self::PreferAligned)];
}

impl Word for PreemptionMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("Disabled", Self::Disabled), ("Enabled", Self::Enabled)];
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        let weight = |name: &str| ResourceWeight { name: name.to_owned(), weight: 1 };
        Self { kind: ScoringStrategyType::default(), resources: vec![weight("cpu"), weight("memory")] }
    }
}

/// Reads the arguments; errors carry `context`, because the Go plugin decodes them as a document of their own.
pub(super) fn args(value: Value, context: String, errors: &mut Errors) -> NodeResourceTopologyMatchArgs {
    let mut fields = Fields::of_args(value, NUMA_PLUGIN, context, errors);
    let args = NodeResourceTopologyMatchArgs {
        scoring_strategy: scoring_strategy(&mut fields, errors),
        cache_resync_period_seconds: fields.integer("cacheResyncPeriodSeconds", errors).unwrap_or(0),
        discard_reserved_nodes: fields.boolean("discardReservedNodes", errors).unwrap_or(false),
        cache: cache(fields.object("cache", errors), errors),
        preemption_mode: fields
            .choice("preemptionMode", "PreemptionMode", PreemptionMode::WORDS, errors)
            .unwrap_or_default(),
        nodes_without_topology: fields
            .choice("nodesWithoutTopology", "NodesWithoutTopology", NodesWithoutTopology::WORDS, errors)
            .unwrap_or_default(),
    };
    let seconds = args.cache_resync_period_seconds;
    if args.cache.accounting == CacheAccounting::OverReserve && seconds <= 0 {
        let problem = format!("Invalid value: {seconds}: must be above 0 with accounting OverReserve");
        errors.invalid(&fields.at.field("cacheResyncPeriodSeconds"), problem);
    }
    fields.finish(errors);
    args
}

fn scoring_strategy(args: &mut Fields, errors: &mut Errors) -> ScoringStrategy {
    let default = ScoringStrategy::default();
    let Some(value) = args.raw("scoringStrategy") else { return default };
    let mut fields = Fields::of(value, args.at.field("scoringStrategy"), errors);
    // The Go plugin gives the object a default but not its type, and then refuses the object.
    fields.empty_if_absent("type");
    let kind = fields
        .choice("type", "ScoringStrategyType", ScoringStrategyType::WORDS, errors)
        .unwrap_or(default.kind);
    let mut resources: Vec<ResourceWeight> = Vec::new();
    for mut entry in fields.objects("resources", errors) {
        let name = entry.string("name", errors).unwrap_or_default();
        let weight = entry.integer("weight", errors).unwrap_or(0);
        if name.is_empty() {
            errors.invalid(&entry.at.field("name"), "Required value");
        }
        if resources.iter().any(|known| known.name == name) {
            errors.invalid(&entry.at.field("name"), format!("Duplicate value: {name:?}"));
        }
        if !(0..=i64::from(i32::MAX)).contains(&weight) {
            let problem =
                format!("Invalid value: {weight}: must be 1 to {}, or 0 for the default of 1", i32::MAX);
            errors.invalid(&entry.at.field("weight"), problem);
        }
        entry.finish(errors);
        resources.push(ResourceWeight { name, weight: weight.max(1) });
    }
    fields.finish(errors);
    ScoringStrategy { kind, resources: if resources.is_empty() { default.resources } else { resources } }
}

fn cache(mut fields: Fields, errors: &mut Errors) -> CacheArgs {
    let args = CacheArgs {
        foreign_pods_detect: fields
            .choice("foreignPodsDetect", "ForeignPodsDetectMode", ForeignPodsDetect::WORDS, errors)
            .unwrap_or_default(),
        resync_method: fields
            .choice("resyncMethod", "CacheResyncMethod", ResyncMethod::WORDS, errors)
            .unwrap_or_default(),
        informer_mode: fields
            .choice("informerMode", "CacheInformerMode", InformerMode::WORDS, errors)
            .unwrap_or_default(),
        resync_scope: fields
            .choice("resyncScope", "CacheResyncScope", ResyncScope::WORDS, errors)
            .unwrap_or_default(),
        accounting: fields
            .choice("accounting", "CacheAccounting", CacheAccounting::WORDS, errors)
            .unwrap_or_default(),
    };
    fields.finish(errors);
    args
}
