//! The request of a NUMAResourcesScheduler, with defaults filled in.
//!
//! In: the object, the cluster state. Out: a scheduler's image, number and configuration, or why they are refused.
//! Never: an object.

use api::goduration::GoDuration;
use api::numaresources::scheduler::{
    CacheResyncDebug, CacheResyncDetection, ResourceSpecParams, SchedulerInformer,
    ScoringStrategyType as Scoring, Spec,
};
use api::numaresources::{NumaResourcesScheduler, Switch, keys};
use api::schedulerconfig::{
    ForeignPodsDetect, InformerMode, PreemptionMode, ResourceWeight, ResyncMethod, SchedulerConfig,
    ScoringStrategyType,
};
use deployer::manifests::schedulerconfig::{self, ConfigStyle, LeaderElection};
use deployer::options::{self, CacheOptions, SchedulerOptions};
use k8s_openapi::api::apps::v1::Deployment;
use objects::ObjectKey;

use super::desired::DEPLOYMENT;
use super::{image, informer, replicas};
use crate::cluster_state::{ClusterState, Image};
use crate::condition::{INTERNAL_ERROR, State};
use crate::desired::{Controller, Owner};
use crate::manifests::NAME;
use crate::manifests::access::OTHER_SCHEDULERS;
use crate::ownership::{Responsible, responsible};

/// A reason: the image is not trusted.
const IMAGE: &str = "InvalidSchedulerImage";
/// A reason: the scheduler would not start with this configuration.
const CONFIGURATION: &str = "InvalidSchedulerConfiguration";

/// The requested scheduler.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    /// The NUMAResourcesScheduler.
    pub(super) owner: Owner,
    /// The image.
    pub(super) image: Image,
    /// Whether the image contains our scheduler.
    pub(super) own: bool,
    /// The `schedulerName` of its pods.
    pub(super) profile: String,
    /// The number of replicas.
    pub(super) replicas: i32,
    /// Verbosity as in klog.
    pub(super) verbosity: i32,
    /// Time between resyncs of the Go plugin's cache, in whole seconds.
    pub(super) resync: GoDuration,
    /// Whether it dumps its view of nodes.
    pub(super) dumps: bool,
    /// Whether its pods have the QoS class Guaranteed.
    pub(super) guaranteed: bool,
    /// The text of its configuration file.
    pub(super) config: String,
}

impl Setup {
    /// The setup that this object requests in this cluster; `Err`: why it is refused.
    pub(super) fn of(cluster: &ClusterState, scheduler: &NumaResourcesScheduler) -> Result<Self, State> {
        let environment = &cluster.environment;
        let spec = Spec {
            scheduler_informer: Some(informer::of(environment, &scheduler.spec)),
            ..scheduler.spec.normalized()
        };
        let image = image_of(cluster, &spec)?;
        let own = image.name == environment.own.name;
        let replicas = replicas::of(environment.platform, &cluster.nodes, spec.replicas)
            .map_err(|message| State::degraded(INTERNAL_ERROR, message))?;
        let resync = whole_seconds(spec.cache_resync_period.unwrap_or_default());
        let profile = Some(spec.scheduler_name.clone()).filter(|name| !name.is_empty());
        let profile = profile.unwrap_or_else(|| scheduler::config::DEFAULT_SCHEDULER_NAME.to_owned());
        let election = LeaderElection {
            enabled: replicas > 1,
            namespace: environment.namespace.clone(),
            name: keys::SCHEDULER_LEASE.to_owned(),
        };
        let config = config(&spec, resync, &profile, &election, own)
            .map_err(|message| State::degraded(CONFIGURATION, message))?;
        let annotations = scheduler.metadata.annotations.as_ref();
        let quality = annotations.and_then(|annotations| annotations.get(keys::SCHEDULER_QOS));
        Ok(Self {
            owner: Owner::of(scheduler),
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

/// The requested image, if it is trusted or runs already; by default the operator's own.
fn image_of(cluster: &ClusterState, spec: &Spec) -> Result<Image, State> {
    let environment = &cluster.environment;
    let name = &spec.image_spec;
    if name.is_empty() && environment.own.name.is_empty() {
        let message = "imageSpec: empty, and the operator does not know its own image";
        return Err(State::degraded(IMAGE, message));
    }
    if name.is_empty() || *name == environment.own.name {
        return Ok(environment.own.clone());
    }
    let running = running(cluster).is_some_and(|running| running == name);
    if let Some(trust) = environment.trusted_schedulers.as_ref().filter(|_| !running) {
        image::check(name, trust).map_err(|message| State::degraded(IMAGE, message))?;
    }
    if environment.only_own_scheduler && !running {
        let message = format!(
            "the operator may not grant what {name:?} needs: bind the ClusterRole {OTHER_SCHEDULERS} to its account {}/{NAME}, \
             and restart it",
            environment.namespace
        );
        return Err(State::degraded(IMAGE, message));
    }
    Ok(Image { name: name.clone(), pull_policy: String::new() })
}

/// The image of the scheduler that runs, as at the take-over from the Go operator.
///
/// Trust in it gives nothing away: an account that may change that Deployment may run any image with the scheduler's
/// rights.
fn running(cluster: &ClusterState) -> Option<&str> {
    let key = ObjectKey::of::<Deployment>(Some(&cluster.environment.namespace), DEPLOYMENT);
    let live = cluster.observed.get(&key)?;
    let ours = responsible(&key, live) == Responsible::Controller(Controller::NumaResourcesScheduler);
    let image = live["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
    image.filter(|_| ours)
}

/// The nearest whole number of seconds; halves go away from zero.
fn whole_seconds(period: GoDuration) -> GoDuration {
    const SECOND: i128 = 1_000_000_000;
    let nanos = i128::from(period.0);
    let seconds = (nanos + nanos.signum() * SECOND / 2) / SECOND;
    GoDuration::from_secs(i64::try_from(seconds).unwrap_or_default())
}

/// The configuration file. A configuration that our scheduler would not start with is refused.
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

/// The plugin's arguments, as options of the deployer.
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
