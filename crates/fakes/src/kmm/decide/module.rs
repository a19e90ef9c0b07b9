//! What Modules themselves bear: finalizer, counters, and the label of their namespace.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::cluster_state::Kind;
use super::super::labels::{CONTAINS_MODULES, MODULE_FINALIZER, ModuleName};
use super::super::script::Stage;
use super::super::write::{Operation, Write};
use super::plugin::Role;
use super::{Module, PlanInputs, entries, entry, has_finalizer, label, named, without_finalizer};

/// Which counters are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counters {
    /// How many nodes match, which is known first.
    Matching,
    All,
}

const MATCHING: &str = "nodesMatchingSelectorNumber";

impl PlanInputs<'_> {
    /// S1: finalizers, and labels of namespaces.
    pub(super) fn finalizers_and_labels(&self, writes: &mut Vec<Write>) {
        for module in self.modules.values().filter(|module| !module.is_leaving) {
            if !has_finalizer(module.body, MODULE_FINALIZER) {
                let mut all = without_finalizer(module.body, MODULE_FINALIZER);
                all.push(MODULE_FINALIZER.into());
                let patch = json!({ "metadata": { "finalizers": all } });
                writes.push(Write::guarded(
                    Kind::Module,
                    &module.of.key(),
                    module.body,
                    patch,
                    "S1 finalizer",
                ));
            }
        }
        let with: BTreeSet<&str> =
            self.modules.values().filter(|m| !m.is_leaving).map(|m| m.of.namespace.as_str()).collect();
        for (name, namespace) in self.state.of(Kind::Namespace) {
            let (is, wanted) = (label(namespace, CONTAINS_MODULES).is_some(), with.contains(name));
            if is != wanted {
                let value = if wanted { json!("") } else { Value::Null };
                let patch = json!({ "metadata": { "labels": { CONTAINS_MODULES: value } } });
                writes.push(Write::new(Kind::Namespace, name, Operation::Change(patch), "S1 label"));
            }
        }
    }

    /// S2, S4, S7 and S8: the counters of those that stay.
    pub(super) fn counters(&self, which: Counters, writes: &mut Vec<Write>) {
        for module in self.modules.values().filter(|module| !module.is_leaving) {
            let now = &module.body["status"];
            let wanted = [
                ("moduleLoader", self.loaded(module)),
                ("devicePlugin", self.served(module, Role::DevicePlugin)),
                ("dra", self.served(module, Role::Dra)),
            ];
            let mut next = json!({});
            for (part, counts) in wanted {
                let differs = |name: &&str, count: i64| {
                    (which == Counters::All || *name == MATCHING)
                        && now[part][*name].as_i64().unwrap_or_default() != count
                };
                let names = [MATCHING, "desiredNumber", "availableNumber"];
                match counts {
                    None if !now[part].is_null() => next[part] = Value::Null,
                    None => {}
                    Some(counts) => {
                        for (name, count) in
                            names.iter().zip(counts).filter(|(name, count)| differs(name, *count))
                        {
                            // Left out when there are none.
                            next[part][*name] = if count == 0 { Value::Null } else { count.into() };
                        }
                    }
                }
            }
            if next.as_object().is_some_and(|next| !next.is_empty()) {
                let what = format!("S2 S7 counters {next}");
                let patch = json!({ "status": next });
                writes.push(Write::new(Kind::Module, module.of.key(), Operation::Status(patch), what));
            }
        }
    }

    /// Matching, desired and available nodes; available ones become more or fewer one at a time.
    fn loaded(&self, module: &Module<'_>) -> Option<[i64; 3]> {
        module.body["spec"]["moduleLoader"].as_object()?;
        let now = |name: &str| module.body["status"]["moduleLoader"][name].as_i64().unwrap_or_default();
        let configs: Vec<&Value> = self.state.of(Kind::NodeModules).map(|(_, nmc)| nmc).collect();
        let desired = configs.iter().filter(|nmc| entry(Some(nmc), "spec", &module.of).is_some());
        let available = configs.iter().filter(|nmc| {
            let config = |part: &str| entry(Some(nmc), part, &module.of).map(|entry| &entry["config"]);
            config("spec").is_some() && config("spec") == config("status")
        });
        let at = |stage: Stage, count: usize, name: &str| {
            if self.script.reaches(stage) { i64::try_from(count).unwrap_or(i64::MAX) } else { now(name) }
        };
        let goal = at(Stage::S7, available.count(), "availableNumber");
        Some([
            at(Stage::S2, module.targets.len(), MATCHING),
            at(Stage::S4, desired.count(), "desiredNumber"),
            toward(now("availableNumber"), goal),
        ])
    }

    /// Those of modules that leave: when nothing has them any more, the finalizer goes; ModuleImagesConfigs go
    /// with them.
    pub(super) fn remove_finalizers(&self, writes: &mut Vec<Write>) {
        for module in self.modules.values().filter(|module| module.is_leaving) {
            let is_left = |(_, nmc): (&str, &Value)| label(nmc, &module.of.in_use()).is_some();
            let in_use = self.state.of(Kind::NodeModules).any(is_left);
            if !in_use && !self.has_plugin(&module.of) && has_finalizer(module.body, MODULE_FINALIZER) {
                let left = without_finalizer(module.body, MODULE_FINALIZER);
                let patch = json!({ "metadata": { "finalizers": left } });
                let key = module.of.key();
                writes.push(Write::guarded(Kind::Module, &key, module.body, patch, "K9 finalizer"));
            }
        }
        // As the garbage collector does, which may not run.
        for (key, images) in self.state.of(Kind::Images) {
            let is_leaving = images["metadata"]["deletionTimestamp"].is_string();
            if !self.state.has(Kind::Module, key) && !is_leaving {
                writes.push(Write::new(Kind::Images, key, Operation::Delete, "its Module is gone"));
            }
        }
    }

    /// The modules in the spec or status of any node, whether the Modules exist or not.
    pub(super) fn known(&self, nmc: Option<&Value>) -> BTreeSet<ModuleName> {
        entries(nmc, "spec").iter().chain(entries(nmc, "status")).map(named).collect()
    }
}

/// The next count on the way.
pub(super) fn toward(now: i64, goal: i64) -> i64 {
    now + (goal - now).signum()
}
