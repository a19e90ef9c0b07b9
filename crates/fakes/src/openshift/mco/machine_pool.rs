//! A pool: what its machines shall have, how many have it, and whose turn it is.
//!
//! In: a MachineConfigPool, its machines, a behaviour. Out: [`Step`]s and a status. Never: more machines at work than
//! `maxUnavailable` allows, but for those that never had a configuration.

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::PoolBehaviour;
use super::machine::{DESIRED, Machine};
use super::plan::{Memory, Step, Write, written_status};
use super::rendered::Rendered;
use super::world::{Kind, World};

/// A pool, as it is now.
pub(super) struct MachinePool<'a> {
    object: &'a DynamicObject,
    target: Rendered,
    machines: Vec<Machine>,
    behaviour: PoolBehaviour,
}

impl<'a> MachinePool<'a> {
    /// `None`: the pool takes no configuration.
    pub(super) fn of(object: &'a DynamicObject, world: &World, memory: &Memory) -> Option<Self> {
        let target = Rendered::of(object, world, &memory.accepted)?;
        let name = object.name_any();
        let behaviour = memory.behaviour.get(&name).copied().unwrap_or_default();
        Some(Self { object, target, machines: Machine::all(&name, world), behaviour })
    }

    /// What is to be done for it. Its target comes first: all else is about that.
    pub(super) fn steps(&self, memory: &Memory, now: Timestamp) -> Vec<Step> {
        let target = self.target.configuration();
        if self.object.data["spec"]["configuration"] != target {
            let patch = json!({
                "metadata": { "resourceVersion": self.object.metadata.resource_version },
                "spec": { "configuration": target },
            });
            let name = self.object.name_any();
            return vec![Step::Write(Write { kind: Kind::Pool, name, patch, is_status: false })];
        }
        let mut steps = Vec::new();
        if self.behaviour == PoolBehaviour::RollOut {
            steps.extend(self.machines.iter().filter_map(|machine| self.configured(machine, memory)));
            steps.extend(self.chosen(memory).into_iter().map(|machine| self.desired(machine)));
        }
        let status = self.status(now);
        let old = &self.object.data["status"];
        if status.as_object().into_iter().flatten().any(|(field, value)| old[field] != *value) {
            steps.push(written_status(Kind::Pool, self.object, &status));
        }
        steps
    }

    /// A machine is told what to have.
    fn desired(&self, machine: &Machine) -> Step {
        let patch = json!({ "metadata": { "annotations": { DESIRED: self.target.name } } });
        Step::Write(Write { kind: Kind::Node, name: machine.name.clone(), patch, is_status: false })
    }

    /// A machine that was told gets it, also while the pool is paused; one that has failed does not try again.
    fn configured(&self, machine: &Machine, memory: &Memory) -> Option<Step> {
        let Machine { name, desired, .. } = machine;
        let is_told = *desired == self.target.name && !machine.is_done_at(desired);
        let is_left = memory.failed.get(name) == Some(desired) || memory.at_work.contains_key(name);
        let config = self.target.clone();
        (is_told && !is_left).then(|| Step::Configure { node: name.clone(), config })
    }

    /// The machines to tell now.
    fn chosen(&self, memory: &Memory) -> Vec<&Machine> {
        let others: Vec<&Machine> =
            self.machines.iter().filter(|machine| machine.desired != self.target.name).collect();
        // A new machine comes up with what its pool has. One that was told something older, and has not got it, is
        // unavailable anyway.
        let is_free = |machine: &&Machine| {
            machine.current != machine.desired && !memory.at_work.contains_key(&machine.name)
                || machine.current.is_empty()
        };
        let (free, waiting): (Vec<&Machine>, Vec<&Machine>) = others.into_iter().partition(is_free);
        let failing = |machine: &Machine| machine.is_degraded() && machine.desired == self.target.name;
        let taken =
            self.machines.iter().filter(|machine| machine.is_unavailable() || failing(machine)).count();
        let room = if self.is_paused() { 0 } else { self.max_unavailable().saturating_sub(taken) };
        free.into_iter().chain(waiting.into_iter().take(room)).collect()
    }

    fn is_paused(&self) -> bool {
        self.object.data["spec"]["paused"] == true
    }

    /// A number of machines or a share of them, 1 at least.
    fn max_unavailable(&self) -> usize {
        let stated = &self.object.data["spec"]["maxUnavailable"];
        let percent = stated.as_str().and_then(|text| text.strip_suffix('%')?.parse::<usize>().ok());
        let number = stated.as_u64().and_then(|number| usize::try_from(number).ok());
        let share = percent.map(|percent| self.machines.len() * percent / 100);
        number.or(share).unwrap_or(1).max(1)
    }

    fn status(&self, now: Timestamp) -> Value {
        let count =
            |is: &dyn Fn(&Machine) -> bool| self.machines.iter().filter(|machine| is(machine)).count();
        let all = self.machines.len();
        let is_updated = |machine: &Machine| machine.is_done_at(&self.target.name);
        let ready = count(&|machine| is_updated(machine) && machine.is_ready);
        let unavailable = count(&Machine::is_unavailable);
        let old = &self.object.data["status"];
        let target = self.target.configuration();
        let degrades = self.behaviour == PoolBehaviour::Degrade;
        let degraded = count(&Machine::is_degraded).max(usize::from(degrades));
        let goes_on = self.behaviour == PoolBehaviour::RollOut;
        let all_have_it = ready == all && unavailable == 0;
        let done = all_have_it && (goes_on || old["configuration"] == target);
        let holds = self.behaviour == PoolBehaviour::Hold;
        let conditions = [
            ("Updated", done && !holds),
            ("Updating", holds || (!done && !self.is_paused())),
            ("NodeDegraded", degraded > 0),
            ("Degraded", degraded > 0),
        ];
        json!({
            "configuration": if done { &target } else { &old["configuration"] },
            "conditions": conditions.map(|condition| self.condition(condition, done, now)),
            "machineCount": all,
            "updatedMachineCount": count(&is_updated),
            "readyMachineCount": ready,
            "unavailableMachineCount": unavailable,
            "degradedMachineCount": degraded,
            "observedGeneration": self.object.metadata.generation,
        })
    }

    /// A condition, with its time as it was unless it turns.
    fn condition(&self, (kind, holds): (&str, bool), done: bool, now: Timestamp) -> Value {
        let word = if holds { "True" } else { "False" };
        let all = self.object.data["status"]["conditions"].as_array().into_iter().flatten();
        let before = all.into_iter().find(|before| before["type"] == kind && before["status"] == word);
        let since = before.map(|before| before["lastTransitionTime"].clone());
        let (reason, message) = self.words(kind, holds, done);
        json!({
            "type": kind,
            "status": word,
            "lastTransitionTime": since.unwrap_or_else(|| format!("{now:.0}").into()),
            "reason": reason,
            "message": message,
        })
    }

    /// Reason and message of a condition.
    fn words(&self, kind: &str, holds: bool, done: bool) -> (String, String) {
        let target = &self.target.name;
        let failing = self.machines.iter().filter(|machine| machine.is_degraded());
        let mut told: Vec<String> = failing
            .map(|machine| format!("Node {} is reporting: \"{}\"", machine.name, machine.reason))
            .collect();
        if self.behaviour == PoolBehaviour::Degrade {
            told.push("Node node-0 is reporting: \"as the test wants it\"".to_owned());
        }
        let message = match (kind, holds) {
            ("Updated", true) => format!("All nodes are updated with MachineConfig {target}"),
            ("Updating", true) => format!("All nodes are updating to MachineConfig {target}"),
            ("Updating", false) if !done => {
                format!("Pool is paused; will not update to MachineConfig {target}")
            }
            ("NodeDegraded" | "Degraded", true) => told.join(", "),
            _ => String::new(),
        };
        let reason = match (kind, holds) {
            ("NodeDegraded", true) => format!("{} nodes are reporting degraded status on sync", told.len()),
            _ => String::new(),
        };
        (reason, message)
    }
}
