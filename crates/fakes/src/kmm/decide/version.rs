//! Ordered upgrades: the labels of a node by which a module's version goes there, and away, in steps.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::cluster_state::Kind;
use super::super::labels::ModuleName;
use super::super::script::{Plugins, Stage};
use super::super::write::{Operation, Write};
use super::{PlanInputs, label};

/// What a node's three labels ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionStep {
    /// The device plugin goes.
    DropSchedule,
    /// The worker's label goes, when no device plugin is left.
    DropWorker,
    /// The worker's label comes, when nothing is loaded any more.
    AddWorker,
    /// The device plugin may come.
    AddSchedule,
}

/// KMM's table: the administrator's label, the worker's, the device plugin's.
pub(super) fn version_step(
    module: Option<&str>,
    worker: Option<&str>,
    schedule: Option<&str>,
) -> Option<VersionStep> {
    match (module, worker, schedule) {
        (None, Some(_), Some(_)) => Some(VersionStep::DropSchedule),
        (None, Some(_), None) => Some(VersionStep::DropWorker),
        (Some(_), None, None) => Some(VersionStep::AddWorker),
        (Some(module), Some(worker), None) if worker == module => Some(VersionStep::AddSchedule),
        (Some(module), Some(worker), Some(schedule)) if worker != module && schedule != module => {
            Some(VersionStep::DropSchedule)
        }
        (Some(module), Some(worker), None) if worker != module => Some(VersionStep::DropWorker),
        _ => None,
    }
}

impl PlanInputs<'_> {
    /// One turn of each module on each node.
    pub(super) fn versions(&self, writes: &mut Vec<Write>) {
        for (name, node) in self.state.of(Kind::Node) {
            let keys = node["metadata"]["labels"].as_object().into_iter().flat_map(Map::keys);
            let all: BTreeSet<ModuleName> = keys.filter_map(|key| ModuleName::versioned(key)).collect();
            for of in all {
                let at = |key: String| label(node, &key);
                let wanted = at(of.version_module());
                let step = version_step(wanted, at(of.version_worker()), at(of.version_schedule()));
                let Some(step) = step.filter(|step| self.may(name, node, &of, *step)) else { continue };
                let (key, value) = match step {
                    VersionStep::DropSchedule => (of.version_schedule(), Value::Null),
                    VersionStep::DropWorker => (of.version_worker(), Value::Null),
                    VersionStep::AddWorker => (of.version_worker(), wanted.into()),
                    VersionStep::AddSchedule => (of.version_schedule(), wanted.into()),
                };
                let patch = json!({ "metadata": { "labels": { key: value } } });
                let what = format!("K8 {step:?} {}", of.key());
                writes.push(Write::new(Kind::Node, name, Operation::Change(patch), what));
            }
        }
    }

    fn may(&self, name: &str, node: &Value, of: &ModuleName, step: VersionStep) -> bool {
        match step {
            VersionStep::AddSchedule | VersionStep::DropSchedule => self.script.reaches(Stage::S8),
            VersionStep::AddWorker => self.script.reaches(Stage::S4) && label(node, &of.ready()).is_none(),
            VersionStep::DropWorker => {
                let is_there = |pod: &Value| pod["spec"]["nodeName"] == name;
                let none = self.script.plugins == Plugins::Simulated || !self.plugin_pods(of).any(is_there);
                self.script.reaches(Stage::S4) && none
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_kmms() {
        for (module, worker, schedule, wanted) in [
            (None, None, None, None),
            (None, Some("1"), Some("1"), Some(VersionStep::DropSchedule)),
            (None, Some("1"), None, Some(VersionStep::DropWorker)),
            (Some("2"), None, None, Some(VersionStep::AddWorker)),
            (Some("2"), Some("2"), None, Some(VersionStep::AddSchedule)),
            (Some("2"), Some("2"), Some("2"), None),
            (Some("2"), Some("1"), Some("1"), Some(VersionStep::DropSchedule)),
            (Some("2"), Some("1"), None, Some(VersionStep::DropWorker)),
            // Anything else is left.
            (None, None, Some("1"), None),
            (Some("2"), Some("2"), Some("1"), None),
        ] {
            assert_eq!(version_step(module, worker, schedule), wanted, "{module:?} {worker:?} {schedule:?}");
        }
    }
}
