//! Ordered upgrades: the labels of a node by which a module's version goes there, and away, in steps.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::labels::Of;
use super::super::told::{Plugins, Stage};
use super::super::world::Kind;
use super::super::write::{Deed, Write};
use super::{Scene, label};

/// What a node's three labels ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
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
pub(super) fn turn(module: Option<&str>, worker: Option<&str>, schedule: Option<&str>) -> Option<Turn> {
    match (module, worker, schedule) {
        (None, Some(_), Some(_)) => Some(Turn::DropSchedule),
        (None, Some(_), None) => Some(Turn::DropWorker),
        (Some(_), None, None) => Some(Turn::AddWorker),
        (Some(module), Some(worker), None) if worker == module => Some(Turn::AddSchedule),
        (Some(module), Some(worker), Some(schedule)) if worker != module && schedule != module => {
            Some(Turn::DropSchedule)
        }
        (Some(module), Some(worker), None) if worker != module => Some(Turn::DropWorker),
        _ => None,
    }
}

impl Scene<'_> {
    /// One turn of each module on each node.
    pub(super) fn versions(&self, writes: &mut Vec<Write>) {
        for (name, node) in self.world.of(Kind::Node) {
            let keys = node["metadata"]["labels"].as_object().into_iter().flat_map(Map::keys);
            let all: BTreeSet<Of> = keys.filter_map(|key| Of::versioned(key)).collect();
            for of in all {
                let at = |key: String| label(node, &key);
                let wanted = at(of.version_module());
                let turn = turn(wanted, at(of.version_worker()), at(of.version_schedule()));
                let Some(turn) = turn.filter(|turn| self.may(name, node, &of, *turn)) else { continue };
                let (key, value) = match turn {
                    Turn::DropSchedule => (of.version_schedule(), Value::Null),
                    Turn::DropWorker => (of.version_worker(), Value::Null),
                    Turn::AddWorker => (of.version_worker(), wanted.into()),
                    Turn::AddSchedule => (of.version_schedule(), wanted.into()),
                };
                let patch = json!({ "metadata": { "labels": { key: value } } });
                let what = format!("K8 {turn:?} {}", of.key());
                writes.push(Write::new(Kind::Node, name, Deed::Change(patch), what));
            }
        }
    }

    fn may(&self, name: &str, node: &Value, of: &Of, turn: Turn) -> bool {
        match turn {
            Turn::AddSchedule | Turn::DropSchedule => self.told.plays(Stage::S8),
            Turn::AddWorker => self.told.plays(Stage::S4) && label(node, &of.ready()).is_none(),
            Turn::DropWorker => {
                let is_there = |pod: &Value| pod["spec"]["nodeName"] == name;
                let none = self.told.plugins == Plugins::Played || !self.plugin_pods(of).any(is_there);
                self.told.plays(Stage::S4) && none
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
            (None, Some("1"), Some("1"), Some(Turn::DropSchedule)),
            (None, Some("1"), None, Some(Turn::DropWorker)),
            (Some("2"), None, None, Some(Turn::AddWorker)),
            (Some("2"), Some("2"), None, Some(Turn::AddSchedule)),
            (Some("2"), Some("2"), Some("2"), None),
            (Some("2"), Some("1"), Some("1"), Some(Turn::DropSchedule)),
            (Some("2"), Some("1"), None, Some(Turn::DropWorker)),
            // Anything else is left.
            (None, None, Some("1"), None),
            (Some("2"), Some("2"), Some("1"), None),
        ] {
            assert_eq!(turn(module, worker, schedule), wanted, "{module:?} {worker:?} {schedule:?}");
        }
    }
}
