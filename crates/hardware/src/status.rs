//! What a DeviceConfig is told about itself.
//!
//! In: a [`Plan`] and what went wrong, the status as it is, a time. Out: the status as it has to be. Never: a clock, a new time where
//! nothing has turned, a list without an end.
//!
//! `Ready` and `Errored` and their reasons are those of the sample operator of the authoring guide; the others say more.

use std::collections::{BTreeMap, BTreeSet};

use api::hardware::{Conflict, ModuleRef, NodeCounts, Phase, Status, keys};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::claim;
use super::facts::{Facts, Spot, Standing};
use super::plan::{Plan, State};
use super::rollout::Wait;
use super::words::Reason;
use super::world::{Config, Kmm, World};
use awaited::Awaited;
use overdue::Overdue;

pub mod awaited;
pub mod events;
pub mod overdue;
mod problem;

/// The longest lists of a status.
const MOST: usize = 16;
/// The most nodes of one conflict.
const MOST_NODES: usize = 8;
/// The longest message that the API server takes is 32,768 bytes; nobody reads so much.
const LONGEST: usize = 2_048;

/// What is not in the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// What could not be written, one line each; the Module first.
    pub errors: Vec<Failure>,
    /// What has been waited for so long that somebody should look at it.
    pub late: BTreeSet<Awaited>,
    /// Pods that should have gone.
    pub overdue: Vec<Overdue>,
}

/// Something that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// It was the Module.
    pub module: bool,
    /// What it was and what the API server said.
    pub text: String,
}

/// One condition, before it has a time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    holds: bool,
    reason: Reason,
    message: String,
}

impl Said {
    fn yes(reason: Reason, message: impl Into<String>) -> Self {
        Self { holds: true, reason, message: message.into() }
    }

    fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }
}

/// How it is, in the words of the conditions.
struct Verdict {
    phase: Phase,
    /// Why it is not as asked for, or that it is.
    ready: Said,
    errored: Option<Said>,
    /// What it is on its way to.
    moving: Option<Said>,
    degraded: Option<Said>,
}

/// The status as it has to be.
#[must_use]
pub fn status(world: &World, config: &Config, plan: &Plan<'_>, heard: &Heard, now: Timestamp) -> Status {
    let known = &config.object.status;
    let counts = plan.facts.as_ref().map(|facts| counts(config, plan, facts)).unwrap_or_default();
    let conflicts = world.claims.conflicts(&config.id());
    let verdict = verdict(world, config, plan, heard, &counts, &conflicts);
    let generation = config.object.metadata.generation;
    let conditions = conditions(world, config, plan, &verdict, &conflicts);
    let spots = || plan.facts.iter().flat_map(|facts| &facts.nodes);
    let kernels: BTreeSet<String> = spots()
        .filter(|spot| spot.standing == Standing::Mine && !spot.is_supported())
        .map(|spot| spot.node.kernel.to_string())
        .collect();
    Status {
        observed_generation: generation,
        phase: Some(verdict.phase),
        module: plan.facts.as_ref().and_then(|facts| module_ref(world, facts)),
        driver_version: plan.facts.as_ref().and_then(common_version),
        upgrading_from: plan.facts.as_ref().and_then(|facts| upgrading_from(config, facts)),
        nodes: Some(counts),
        problems: problem::problems(plan, heard).into_iter().take(MOST).collect(),
        conflicts: conflicts.iter().take(MOST).map(told_conflict).collect(),
        kernels_without_mapping: kernels.into_iter().take(MOST).collect(),
        conditions: dated(conditions, &known.conditions, generation, now),
    }
}

fn counts(config: &Config, plan: &Plan<'_>, facts: &Facts<'_>) -> NodeCounts {
    let wanted = config.object.spec.driver_version.as_str();
    let count = |holds: &dyn Fn(&&Spot<'_>) -> bool| whole(facts.nodes.iter().filter(holds).count());
    let mine = |spot: &&Spot<'_>| spot.standing == Standing::Mine;
    let on_pods = |wait: &Wait| matches!(wait, Wait::Pods(..) | Wait::Unknown);
    NodeCounts {
        matching: count(&|spot| !matches!(spot.standing, Standing::Ending | Standing::Leaving)),
        claimed: count(&|spot| spot.standing.is_ours()),
        desired: count(&|spot| spot.is_desired()),
        available: count(&|spot| spot.is_desired() && spot.works),
        ready: count(&|spot| spot.is_desired() && spot.ready && spot.version == Some(wanted)),
        updated: count(&|spot| mine(spot) && spot.version == Some(wanted)),
        unsupported: count(&|spot| mine(spot) && !spot.is_supported()),
        maintenance: count(&|spot| mine(spot) && spot.is_supported() && spot.taint.is_some()),
        waiting: whole(plan.round.waiting.iter().filter(|(_, wait)| on_pods(wait)).count()),
    }
}

fn whole(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn module_ref(world: &World, facts: &Facts<'_>) -> Option<ModuleRef> {
    let live = world.modules.get(&facts.called.module)?;
    let version = live.text("/spec/moduleLoader/container/version");
    let version = Some(version.to_owned()).filter(|version| !version.is_empty());
    Some(ModuleRef { name: facts.called.module.name.clone(), version })
}

/// The version that all nodes have that should have one.
fn common_version(facts: &Facts<'_>) -> Option<String> {
    let mut loaded = facts.nodes.iter().filter(|spot| spot.is_desired()).map(|spot| spot.loaded);
    let first = loaded.next()??;
    loaded.all(|version| version == Some(first)).then(|| first.to_owned())
}

/// The version that nodes come from. Once the last of them has unloaded it only the status knows, so it stays there until all have the one that
/// is asked for.
fn upgrading_from(config: &Config, facts: &Facts<'_>) -> Option<String> {
    let wanted = config.object.spec.driver_version.as_str();
    let mut mine = facts.nodes.iter().filter(|spot| spot.standing == Standing::Mine).peekable();
    if mine.peek().is_none() || common_version(facts).as_deref() == Some(wanted) {
        return None;
    }
    let known = &config.object.status;
    let known = [&known.upgrading_from, &known.driver_version].into_iter().flatten().map(String::as_str);
    let on_nodes =
        mine.filter(|spot| spot.is_desired()).flat_map(|spot| [spot.loaded, spot.version]).flatten();
    known.chain(on_nodes).find(|version| !version.is_empty() && *version != wanted).map(str::to_owned)
}

fn told_conflict(conflict: &claim::Conflict) -> Conflict {
    Conflict {
        namespace: conflict.other.namespace.clone(),
        name: conflict.other.name.clone(),
        nodes: conflict.nodes.iter().take(MOST_NODES).cloned().collect(),
        count: whole(conflict.nodes.len()),
        won: conflict.won,
    }
}

/// Images that were not found, of kernels that nodes of ours have, with what KMM says of them.
fn missing_images(world: &World, facts: &Facts<'_>) -> BTreeMap<String, String> {
    let needed: BTreeSet<&str> = facts
        .nodes
        .iter()
        .filter(|spot| spot.is_desired() && !spot.ready)
        .filter_map(|spot| match &spot.served {
            super::kernel::Served::By(source) => Some(source.image.as_str()),
            _ => None,
        })
        .collect();
    let images = world.images.get(&facts.called.module);
    let missing = images.into_iter().flat_map(|images| &images.missing);
    let missing = missing.filter(|(image, _)| needed.contains(image.as_str()));
    missing.map(|(image, state)| (image.clone(), state.clone())).collect()
}

fn verdict(
    world: &World,
    config: &Config,
    plan: &Plan<'_>,
    heard: &Heard,
    counts: &NodeCounts,
    conflicts: &[claim::Conflict],
) -> Verdict {
    let failed = |phase, reason: Reason, message: String| Verdict {
        phase,
        ready: Said::no(Reason::Errored, message.clone()),
        degraded: (phase == Phase::Degraded).then(|| Said::yes(reason, message.clone())),
        errored: Some(Said::yes(reason, message)),
        moving: None,
    };
    match &plan.state {
        State::Leaving(nodes) => return leaving(plan, nodes, heard),
        State::Gone => return leaving(plan, &[], heard),
        State::Invalid(reason, message) => return failed(Phase::Degraded, *reason, message.clone()),
        State::NoKmm => {
            let message = match &world.kmm {
                Some(Kmm::Going(_)) => {
                    "KMM is being taken away: the definition of Modules is being deleted, and they with it"
                }
                _ => "the cluster has no KMM: install Kernel Module Management (kmm.sigs.x-k8s.io)",
            };
            return failed(Phase::Pending, Reason::KMMNotInstalled, message.to_owned());
        }
        State::Foreign(whose) => {
            let name = plan.facts.as_ref().map(|facts| facts.called.module.to_string()).unwrap_or_default();
            let message =
                format!("Module {name} is there and not ours: {whose}; rename or delete one of the two");
            return failed(Phase::Degraded, Reason::ForeignModule, message);
        }
        State::Good | State::Former | State::Writing | State::Held(_) => {}
    }
    if let Some(failure) = heard.errors.iter().max_by_key(|failure| failure.module) {
        let reason = if failure.module { Reason::ModuleFailed } else { Reason::WriteFailed };
        return failed(Phase::Degraded, reason, failure.text.clone());
    }
    let lost: Vec<&claim::Conflict> = conflicts.iter().filter(|conflict| !conflict.won).collect();
    let coming = plan.facts.iter().flat_map(|facts| &facts.nodes);
    let coming = coming.filter(|spot| matches!(spot.standing, Standing::Open | Standing::Blocked(_))).count();
    if !lost.is_empty() && counts.claimed == 0 && coming == 0 {
        return Verdict {
            degraded: None,
            ..failed(Phase::Conflict, Reason::ConflictingNodeSelector, conflict_text(&lost))
        };
    }
    nodes_verdict(world, config, plan, heard, counts, coming)
}

fn leaving(plan: &Plan<'_>, nodes: &[String], heard: &Heard) -> Verdict {
    let used: Vec<String> = plan.facts.iter().flat_map(Facts::ours).filter_map(told_users).collect();
    let waits = !plan.round.waiting.is_empty();
    let message = match nodes {
        _ if waits => format!(
            "the Module is deleted when no pod uses the devices any more: {}; spec.upgradePolicy.podsUsingDevices says whether to wait",
            some(&used)
        ),
        [] => "the Module is gone or about to go; nodes are given back".to_owned(),
        nodes if used.is_empty() => {
            format!("waiting until KMM has unloaded the driver on {}", some(nodes))
        }
        nodes => format!(
            "waiting until KMM has unloaded the driver on {}; pods use the devices: {}",
            some(nodes),
            some(&used)
        ),
    };
    let failure = heard.errors.first();
    let message = failure.map_or(message, |failure| failure.text.clone());
    let stuck = !heard.late.is_empty() && !waits && !nodes.is_empty();
    Verdict {
        phase: Phase::Deleting,
        ready: Said::no(Reason::Deleting, message.clone()),
        errored: failure.map(|failure| Said::yes(Reason::WriteFailed, failure.text.clone())),
        degraded: match heard.overdue.as_slice() {
            [] => stuck.then(|| Said::yes(Reason::DeletionStuck, message.clone())),
            overdue => Some(Said::yes(Reason::EvictionTimeout, overdue_text(overdue))),
        },
        moving: Some(Said::yes(if waits { Reason::WaitingForPods } else { Reason::Deleting }, message)),
    }
}

/// A node whose devices are used, and who uses them.
fn told_users(spot: &Spot<'_>) -> Option<String> {
    Some(format!("{} by {}", spot.name, spot.users.text()?))
}

/// How it is when nothing but nodes has a say.
fn nodes_verdict(
    world: &World,
    config: &Config,
    plan: &Plan<'_>,
    heard: &Heard,
    counts: &NodeCounts,
    coming: usize,
) -> Verdict {
    let still = |phase, reason, message: String| Verdict {
        phase,
        ready: Said::no(reason, message.clone()),
        errored: None,
        moving: None,
        degraded: (phase == Phase::Degraded).then(|| Said::yes(reason, message)),
    };
    let Some(facts) = &plan.facts else { return still(Phase::Pending, Reason::Pending, String::new()) };
    let ending: Vec<&str> =
        facts.nodes.iter().filter(|spot| spot.standing == Standing::Ending).map(|spot| spot.name).collect();
    let plugin = missing_plugins(world, config, facts);
    let complete = counts.ready == counts.desired && coming == 0 && ending.is_empty() && plugin.is_empty();
    if complete && plan.state == State::Good {
        if counts.claimed == 0 {
            let message = "no node has the labels of spec.nodeSelector";
            return still(Phase::Pending, Reason::NoMatchingNodes, message.to_owned());
        }
        if counts.desired == 0 && counts.maintenance == 0 {
            let message = "no node's kernel is matched by spec.kernelMappings";
            return still(Phase::Degraded, Reason::UnsupportedKernel, message.to_owned());
        }
        if counts.desired == 0 {
            let message = "all nodes are cordoned, or have taints that spec.tolerations do not name";
            return still(Phase::Pending, Reason::Maintenance, message.to_owned());
        }
        let message =
            format!("All resources have been successfully reconciled; {} nodes are ready", counts.ready);
        let ready = Said::yes(Reason::Reconciled, message);
        return Verdict { phase: Phase::Ready, ready, errored: None, moving: None, degraded: None };
    }
    let missing = missing_images(world, facts);
    let wanted = config.object.spec.driver_version.as_str();
    let upgrading = facts.nodes.iter().filter(|spot| spot.standing == Standing::Mine).any(|spot| {
        spot.version.is_some_and(|version| version != wanted)
            || spot.loaded.is_some_and(|version| version != wanted)
    });
    let (reason, message) = moving(plan, facts, counts, &missing, &ending, &plugin, upgrading);
    let refused = missing.values().any(|state| state == api::kmm::image::DOES_NOT_EXIST);
    let waits = matches!(reason, Reason::WaitingForPods | Reason::Paused);
    let degraded = match heard.overdue.as_slice() {
        [] => (refused || !heard.late.is_empty() && !waits).then(|| Said::yes(reason, message.clone())),
        overdue => Some(Said::yes(Reason::EvictionTimeout, overdue_text(overdue))),
    };
    Verdict {
        phase: if degraded.is_some() { Phase::Degraded } else { Phase::Progressing },
        ready: Said::no(reason, message.clone()),
        errored: None,
        moving: Some(Said::yes(reason, message)),
        degraded,
    }
}

/// What it is on its way to, or waits for.
fn moving(
    plan: &Plan<'_>,
    facts: &Facts<'_>,
    counts: &NodeCounts,
    missing: &BTreeMap<String, String>,
    ending: &[&str],
    plugin: &[String],
    upgrading: bool,
) -> (Reason, String) {
    let waiting = |wanted: fn(&Wait) -> bool| -> Vec<String> {
        let all = plan.round.waiting.iter().filter(|(_, wait)| wanted(wait));
        all.map(|(node, _)| node.clone()).collect()
    };
    let behind: Vec<String> = facts
        .nodes
        .iter()
        .filter(|spot| spot.is_desired() && !spot.ready)
        .map(|spot| spot.name.to_owned())
        .collect();
    let pods = waiting(|wait| matches!(wait, Wait::Pods(..) | Wait::Unknown));
    if let State::Held(nodes) = &plan.state {
        let message = format!(
            "the driver is to be loaded in another way under the same version; that waits until no pod uses the devices of {}; \
             a new driverVersion goes node by node",
            some(nodes)
        );
        return (Reason::WaitingForPods, message);
    }
    if plan.state == State::Former {
        return (Reason::FormerModule, "waiting until the former Module of this name is gone".to_owned());
    }
    if let Some(image) = missing.keys().next() {
        let message = format!("KMM has not found image {image}; {} images are missing", missing.len());
        return (Reason::ImageNotAvailable, message);
    }
    let goes_on = !plan.round.steps.is_empty() || !waiting(|wait| *wait == Wait::Turn).is_empty();
    if !behind.is_empty() || upgrading && goes_on {
        let reason = if upgrading { Reason::Upgrading } else { Reason::Loading };
        let mut message = format!("{} of {} nodes are ready", counts.ready, counts.desired);
        if !behind.is_empty() {
            message += &format!("; not {}", some(&behind));
        }
        let turn = waiting(|wait| *wait == Wait::Turn);
        let missing = &plan.round.unavailable;
        if !turn.is_empty() && !missing.is_empty() {
            let missing = facts.nodes.iter().filter(|spot| missing.iter().any(|name| name == spot.name));
            let why: Vec<String> =
                missing.map(|spot| format!("{} ({})", spot.name, problem::unloaded(spot))).collect();
            message += &format!(
                "; {} nodes wait for their turn (spec.upgradePolicy.maxUnavailable) until there is a working driver on {}",
                turn.len(),
                some(&why)
            );
        }
        return (reason, message);
    }
    if !pods.is_empty() || !ending.is_empty() {
        let nodes =
            if pods.is_empty() { ending.iter().map(|name| (*name).to_owned()).collect() } else { pods };
        return (Reason::WaitingForPods, format!("pods use the devices of {}", some(&nodes)));
    }
    let paused = waiting(|wait| *wait == Wait::Paused);
    if !paused.is_empty() {
        let message = format!("spec.upgradePolicy.paused: {} keep their version", some(&paused));
        return (Reason::Paused, message);
    }
    if !plugin.is_empty() {
        return (Reason::DevicePluginNotReady, format!("the device plugin does not run on {}", some(plugin)));
    }
    (Reason::Progressing, format!("{} of {} nodes are ready", counts.ready, counts.desired))
}

/// Ready nodes without a device plugin that they should have. KMM says it by labels, and as a number of the Module.
fn missing_plugins(world: &World, config: &Config, facts: &Facts<'_>) -> Vec<String> {
    if config.object.spec.device_plugin.is_none() {
        return Vec::new();
    }
    let live = world.modules.get(&facts.called.module);
    let available = live.and_then(|live| live.body.pointer("/status/devicePlugin/availableNumber")?.as_u64());
    let desired = facts.nodes.iter().filter(|spot| spot.is_desired());
    if available.is_some_and(|count| count >= desired.clone().count() as u64) {
        return Vec::new();
    }
    desired.filter(|spot| !spot.plugin).map(|spot| spot.name.to_owned()).collect()
}

fn conflict_text(lost: &[&claim::Conflict]) -> String {
    let each = lost.iter().map(|conflict| format!("{} has {}", conflict.other, some(&conflict.nodes)));
    let all: Vec<String> = each.take(4).collect();
    format!(
        "Conflicting DeviceConfig NodeSelectors found: DeviceConfig {}; change spec.nodeSelector of one of them",
        all.join("; DeviceConfig ")
    )
}

fn overdue_text(overdue: &[Overdue]) -> String {
    let each = overdue.iter().take(MOST_NODES).map(|one| format!("{} on {}", some(&one.pods), one.node));
    let all: Vec<String> = each.collect();
    format!("pods were asked to go from {} nodes and are still there: {}", overdue.len(), all.join("; "))
}

/// A few of many.
pub(super) fn some(names: &[String]) -> String {
    let mut text = names.iter().take(MOST_NODES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NODES {
        text += &format!(" and {} more", names.len() - MOST_NODES);
    }
    text
}

/// The conditions, in their order.
fn conditions(
    world: &World,
    config: &Config,
    plan: &Plan<'_>,
    verdict: &Verdict,
    conflicts: &[claim::Conflict],
) -> Vec<(&'static str, Said)> {
    let lost: Vec<&claim::Conflict> = conflicts.iter().filter(|conflict| !conflict.won).collect();
    let may_meet: Vec<String> = world
        .claims
        .may_meet(&config.id())
        .filter(|other| !conflicts.iter().any(|conflict| conflict.other == **other))
        .map(ToString::to_string)
        .collect();
    let selector = match (lost.as_slice(), may_meet.as_slice()) {
        ([], []) => Said::yes(Reason::NoConflict, ""),
        ([], others) => Said::yes(
            Reason::NodeSelectorMayOverlap,
            format!(
                "a node can have the labels of spec.nodeSelector and those of DeviceConfig {}; the older of them would get it",
                some(others)
            ),
        ),
        (lost, _) => Said::no(Reason::ConflictingNodeSelector, conflict_text(lost)),
    };
    let ready = &verdict.ready;
    let spots = || plan.facts.iter().flat_map(|facts| &facts.nodes).filter(|spot| spot.is_desired());
    let plugin = if config.object.spec.device_plugin.is_none() {
        Said::yes(Reason::NotAskedFor, "no device plugin is asked for")
    } else if verdict.phase == Phase::Ready {
        Said::yes(Reason::Running, "")
    } else {
        let there = spots().filter(|spot| spot.plugin).count();
        let message = format!("it runs on {there} of {} nodes", spots().count());
        if there == spots().count() && there > 0 {
            Said::yes(Reason::Running, message)
        } else {
            Said::no(Reason::NotRunning, message)
        }
    };
    let paused = config.object.spec.upgrade_policy.as_ref().is_some_and(|policy| policy.paused);
    let upgradeable = match (ready.holds, paused) {
        (true, false) => Said::yes(Reason::Ready, ""),
        (_, true) => Said::no(Reason::Paused, "spec.upgradePolicy.paused"),
        (false, false) => Said::no(ready.reason, ready.message.clone()),
    };
    let none = |reason| Said::no(reason, "");
    let errored = verdict.errored.clone().unwrap_or_else(|| none(Reason::Ready));
    let progressing = verdict.moving.clone().unwrap_or_else(|| none(ready.reason));
    let degraded = verdict.degraded.clone().unwrap_or_else(|| none(Reason::AsExpected));
    vec![
        (keys::READY, ready.clone()),
        (keys::ERRORED, errored),
        (keys::PROGRESSING, progressing),
        (keys::DEGRADED, degraded),
        (keys::NODE_SELECTOR_VALID, selector),
        (keys::DEVICE_PLUGIN_READY, plugin),
        (keys::UPGRADEABLE, upgradeable),
    ]
}

/// Conditions with the times of those that have not turned, and those that others have put beside them.
fn dated(
    all: Vec<(&'static str, Said)>,
    known: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let others = known
        .iter()
        .filter(|one| !all.iter().any(|(name, _)| *name == one.type_))
        .cloned()
        .collect::<Vec<_>>();
    let ours = all.into_iter().map(|(name, said)| {
        let status = if said.holds { "True" } else { "False" };
        let before = known.iter().find(|one| one.type_ == name && one.status == status);
        let mut message = said.message;
        if message.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
        }
        Condition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: said.reason.word().to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: before.map_or_else(|| now.clone(), |one| one.last_transition_time.clone()),
        }
    });
    ours.chain(others).collect()
}

#[cfg(test)]
mod tests;
