//! What a NUMAResourcesScheduler asks for, with nothing left open.
//!
//! In: the object, the cluster. Out: a scheduler's image, number and configuration, or why it cannot be had. Never: an object.

use api::goduration::GoDuration;
use api::numaresources::scheduler::{
    CacheResyncDebug, CacheResyncDetection, KIND, ResourceSpecParams, SchedulerInformer,
    ScoringStrategyType as Scoring, Spec,
};
use api::numaresources::{GROUP, NumaResourcesScheduler, Switch, VERSION, keys};
use api::schedulerconfig::{
    ForeignPodsDetect, InformerMode, PreemptionMode, ResourceWeight, ResyncMethod, SchedulerConfig,
    ScoringStrategyType,
};
use deployer::manifests::schedulerconfig::{self, ConfigStyle, LeaderElection};
use deployer::options::{self, CacheOptions, SchedulerOptions};

use super::{image, informer, replicas};
use crate::condition::INTERNAL_ERROR;
use crate::desired::Owner;
use crate::world::{Image, World};

/// A reason: the image must not schedule.
const IMAGE: &str = "InvalidSchedulerImage";
/// A reason: the scheduler would not start with what is asked of it.
const CONFIGURATION: &str = "InvalidSchedulerConfiguration";

/// Why there is nothing to set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// As one word for programs.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

/// The scheduler that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    /// Who asks.
    pub(super) owner: Owner,
    /// What runs.
    pub(super) image: Image,
    /// Whether that is our scheduler.
    pub(super) own: bool,
    /// Pods with this `schedulerName` are its own.
    pub(super) profile: String,
    /// How many.
    pub(super) replicas: i32,
    /// Verbosity as in klog.
    pub(super) verbosity: i32,
    /// Time between resyncs of the Go plugin's cache, in whole seconds.
    pub(super) resync: GoDuration,
    /// Whether it writes down what it believes of nodes.
    pub(super) dumps: bool,
    /// Whether it has CPUs and memory of its own.
    pub(super) guaranteed: bool,
    /// The text of its configuration file.
    pub(super) config: String,
}

impl Setup {
    /// What this object asks for in this cluster.
    pub(super) fn of(world: &World, scheduler: &NumaResourcesScheduler) -> Result<Self, Refused> {
        let place = &world.place;
        let spec = Spec {
            scheduler_informer: Some(informer::of(place, &scheduler.spec)),
            ..scheduler.spec.normalized()
        };
        let image = image_of(world, &spec)?;
        let own = image.name == place.own.name;
        let replicas = replicas::of(place.platform, &world.nodes, spec.replicas)
            .map_err(|message| Refused { reason: INTERNAL_ERROR, message })?;
        let resync = whole_seconds(spec.cache_resync_period.unwrap_or_default());
        let profile = Some(spec.scheduler_name.clone()).filter(|name| !name.is_empty());
        let profile = profile.unwrap_or_else(|| scheduler::config::DEFAULT_SCHEDULER_NAME.to_owned());
        let election = LeaderElection {
            enabled: replicas > 1,
            namespace: place.namespace.clone(),
            name: keys::SCHEDULER_LEASE.to_owned(),
        };
        let config = config(&spec, resync, &profile, &election, own)
            .map_err(|message| Refused { reason: CONFIGURATION, message })?;
        let annotations = scheduler.metadata.annotations.as_ref();
        let quality = annotations.and_then(|annotations| annotations.get(keys::SCHEDULER_QOS));
        Ok(Self {
            owner: Owner {
                api_version: format!("{GROUP}/{VERSION}"),
                kind: KIND.to_owned(),
                name: scheduler.metadata.name.clone().unwrap_or_default(),
                uid: scheduler.metadata.uid.clone().unwrap_or_default(),
            },
            image,
            own,
            profile,
            replicas,
            verbosity: spec.log_level.verbosity(),
            resync,
            dumps: spec.cache_resync_debug != Some(CacheResyncDebug::Disabled),
            guaranteed: quality.is_some_and(|quality| quality == keys::GUARANTEED),
            config,
        })
    }
}

/// What runs: what is asked for, if it may schedule, else the operator's own image.
fn image_of(world: &World, spec: &Spec) -> Result<Image, Refused> {
    let place = &world.place;
    let refused = |message: String| Err(Refused { reason: IMAGE, message });
    let name = &spec.image_spec;
    if name.is_empty() && place.own.name.is_empty() {
        return refused("imageSpec: empty, and the operator does not know its own image".to_owned());
    }
    if name.is_empty() || *name == place.own.name {
        return Ok(place.own.clone());
    }
    match place.trusted_schedulers.as_ref().map_or(Ok(()), |trust| image::check(name, trust)) {
        Ok(()) => Ok(Image { name: name.clone(), pull_policy: String::new() }),
        Err(message) => refused(message),
    }
}

/// The nearest whole number of seconds; halves go away from zero.
fn whole_seconds(period: GoDuration) -> GoDuration {
    const SECOND: i128 = 1_000_000_000;
    let nanos = i128::from(period.0);
    let seconds = (nanos + nanos.signum() * SECOND / 2) / SECOND;
    GoDuration::from_secs(i64::try_from(seconds).unwrap_or_default())
}

/// The configuration file. What our scheduler would refuse to start with is refused here.
fn config(
    spec: &Spec,
    resync: GoDuration,
    profile: &str,
    election: &LeaderElection,
    own: bool,
) -> Result<String, String> {
    let text = schedulerconfig::text(&plugin(spec, resync), profile, election, ConfigStyle::Operator);
    let text = text.map_err(|error| error.to_string())?;
    if own {
        let file = SchedulerConfig::parse(&text).map_err(|error| error.to_string())?;
        scheduler::config::settings(&file, 0).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

/// The plugin's arguments, in the installer's words.
fn plugin(spec: &Spec, resync: GoDuration) -> SchedulerOptions {
    let scoring = spec.scoring_strategy.clone().unwrap_or_default();
    let kind = match scoring.kind {
        Scoring::LeastAllocated => ScoringStrategyType::LeastAllocated,
        Scoring::BalancedAllocation => ScoringStrategyType::BalancedAllocation,
        Scoring::MostAllocated => ScoringStrategyType::MostAllocated,
    };
    // Zero stands for the plugin's default.
    let weight = |ResourceSpecParams { name, weight }| ResourceWeight { name, weight: weight.unwrap_or(0) };
    let foreign = match spec.cache_resync_detection {
        Some(CacheResyncDetection::Aggressive) => ForeignPodsDetect::All,
        Some(CacheResyncDetection::Relaxed) | None => ForeignPodsDetect::OnlyExclusiveResources,
    };
    let informer = match spec.scheduler_informer {
        Some(SchedulerInformer::Shared) => InformerMode::Shared,
        Some(SchedulerInformer::Dedicated) | None => InformerMode::Dedicated,
    };
    SchedulerOptions {
        resync_seconds: resync.0 / 1_000_000_000,
        cache: CacheOptions {
            foreign_pods_detect: Some(foreign),
            resync_method: Some(ResyncMethod::Autodetect),
            informer_mode: Some(informer),
        },
        scoring: Some(options::Scoring {
            kind: Some(kind),
            resources: scoring.resources.into_iter().map(weight).collect(),
        }),
        preemption: (spec.preemption_mode == Some(Switch::Enabled)).then_some(PreemptionMode::Enabled),
        ..SchedulerOptions::default()
    }
}
