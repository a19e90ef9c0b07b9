//! What the plan takes away: everything of a DeviceConfig that is deleted, or gone.
//!
//! In: the [`ClusterState`]. Out: [`Action`]s in the order: pods, Module, nodes, what the Module stood on, finalizer.
//! Never: a driver unloaded under a pod, unless pods are to be ignored.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::hardware;

use super::module::is_ours;
use super::nodes::{release, unused};
use super::{Action, Plan, State, has_finalizer, served};
use crate::cluster_state::{ClusterState, Config, ObservedObject};
use crate::module;
use crate::node_states::{NodeState, NodeStates, ObjectNames};
use crate::precondition::Precondition;
use crate::rollout;

/// What there is to do for a claim whose DeviceConfig is gone: its Module goes, then its labels, then what the Module
/// stood on.
#[must_use]
pub fn orphan(world: &ClusterState, claim: &str) -> Vec<Action> {
    let called = ObjectNames::of_claim(claim);
    let mut doing = Vec::new();
    if let (Some(live), Some(version)) = (world.modules.get(&called.module), served(world)) {
        let name = live.text("/metadata/labels/hardware.tholepin.dev~1deviceconfig").to_owned();
        if !name.is_empty() && live.is_marked(&name) {
            if !live.is_leaving() {
                doing.push(delete(&called, version, live, Precondition::default()));
            }
            return doing;
        }
    }
    let nodes: BTreeSet<&Arc<str>> = world.claims.holding(claim).chain(world.fenced(claim)).collect();
    doing.extend(nodes.into_iter().filter_map(|name| release(world, name, &called, false)));
    if doing.is_empty() {
        let all = module::may_be_there(&called, &world.place);
        doing.extend(all.into_iter().map(|(kind, id)| Action::Remove(kind, id)));
    }
    doing
}

/// A DeviceConfig that is being deleted: first, unless they are to be ignored, the pods that use the devices, then the
/// Module, then the nodes, then what the Module stood on, then the finalizer.
pub(super) fn leave<'a>(world: &'a ClusterState, config: &Config) -> Plan<'a> {
    if !has_finalizer(config) {
        return Plan::stopped(State::Gone);
    }
    let Some(called) = ObjectNames::of(config) else {
        let mut plan = Plan::stopped(State::Leaving(Vec::new()));
        plan.doing.push(Action::Finalizer(false));
        return plan;
    };
    let facts = NodeStates::of(world, config, called.clone());
    let stuck = facts.nodes.iter().filter(|state| state.in_use).map(|state| state.name.to_owned()).collect();
    let mut plan = Plan { state: State::Leaving(stuck), facts: Some(facts), ..Plan::default() };
    if let (Some(live), Some(version)) = (world.modules.get(&called.module), served(world))
        && is_ours(live, config)
    {
        if !live.is_leaving() {
            plan.unload(config, version, live);
        }
        return plan;
    }
    let doing = world.nodes.keys().filter_map(|name| release(world, name, &called, false));
    plan.doing.extend(doing);
    if plan.doing.is_empty() {
        let all = module::may_be_there(&called, &world.place);
        plan.doing.extend(all.into_iter().map(|(kind, id)| Action::Remove(kind, id)));
        plan.doing.push(Action::Finalizer(false));
    }
    plan
}

fn delete(called: &ObjectNames, version: &str, live: &ObservedObject, unused: Precondition) -> Action {
    Action::DeleteModule {
        kind: module::object_kind(version),
        module: called.module.clone(),
        uid: live.uid().to_owned(),
        unused,
    }
}

impl Plan<'_> {
    /// Deletes the Module once no pod uses the devices and none is on its way; at once if pods are to be ignored.
    fn unload(&mut self, config: &Config, version: &str, live: &ObservedObject) {
        let Some(facts) = self.facts.take() else { return };
        let pods = config.object.spec.pods_using_devices();
        let looks = pods != hardware::PodsUsingDevices::Ignore && !facts.names.is_empty();
        let loaded: Vec<&NodeState<'_>> = facts.ours().filter(|state| looks && state.in_use).collect();
        let states: Vec<rollout::RolloutNode<'_>> = loaded.iter().map(|state| state.in_rollout()).collect();
        self.follow(rollout::clear(pods, &states), &facts, "");
        if self.round.steps.is_empty() && self.round.waiting.is_empty() {
            self.doing.push(delete(&facts.called, version, live, unused(&facts, &loaded)));
        }
        self.facts = Some(facts);
    }
}
