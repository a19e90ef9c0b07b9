//! What a node shall have (S4), and what its labels say of it (S6, S8).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::cluster_state::Kind;
use super::super::kernel;
use super::super::labels::{
    BETA, CONFIGURED, DRA_READY, GROUP, IN_USE, ModuleName, PLUGIN_READY, PLUGIN_TARGET, PREFIX, READY,
    VERSION, VERSION_READY,
};
use super::super::script::Stage;
use super::super::write::{Operation, Write};
use super::{Module, PlanInputs, entries, entry, kernel_of, label, named, tolerates};

/// What becomes of a module's entry.
enum EntryChange {
    Put(Value),
    /// As it is, whether it is there or not.
    Leave,
    Drop,
}

impl PlanInputs<'_> {
    /// S4: spec entries of NodeModulesConfigs, and the labels that tell who is in them.
    pub(super) fn entries(&self, writes: &mut Vec<Write>) {
        for (name, node) in self.state.of(Kind::Node) {
            let there = self.state.get(Kind::NodeModules, name);
            let spec = self.spec(name, node, there);
            let labels = labels_of(there, &spec);
            match there {
                None if spec.is_empty() => {}
                None => {
                    let body = json!({
                        "apiVersion": format!("{GROUP}/{VERSION}"),
                        "kind": "NodeModulesConfig",
                        "metadata": { "name": name, "labels": labels, "ownerReferences": [{
                            "apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"],
                        }] },
                        "spec": { "modules": spec },
                    });
                    writes.push(Write::new(Kind::NodeModules, name, Operation::Create(body), "S4 entries"));
                }
                Some(there) => {
                    let is_same = entries(Some(there), "spec") == spec.as_slice();
                    let changed = changes(there, &labels, |key| {
                        ModuleName::between(key, BETA, CONFIGURED)
                            .or_else(|| ModuleName::between(key, BETA, IN_USE))
                            .is_some()
                    });
                    if !is_same || !changed.is_empty() {
                        let patch = json!({ "metadata": { "labels": changed }, "spec": { "modules": spec } });
                        writes.push(Write::guarded(Kind::NodeModules, name, there, patch, "S4 entries"));
                    }
                }
            }
        }
        // As the garbage collector does, which may not run.
        for (name, nmc) in self.state.of(Kind::NodeModules) {
            if !self.state.has(Kind::Node, name) && !nmc["metadata"]["deletionTimestamp"].is_string() {
                writes.push(Write::new(Kind::NodeModules, name, Operation::Delete, "its node is gone"));
            }
        }
    }

    /// The entries a node shall have, by namespace and name.
    fn spec(&self, name: &str, node: &Value, there: Option<&Value>) -> Vec<Value> {
        let mut all: BTreeMap<ModuleName, Value> =
            entries(there, "spec").iter().map(|entry| (named(entry), entry.clone())).collect();
        all.retain(|of, _| self.modules.contains_key(of));
        for module in self.modules.values() {
            match self.entry_change(module, name, node) {
                EntryChange::Put(entry) if self.script.reaches(Stage::S4) => {
                    drop(all.insert(module.of.clone(), entry))
                }
                EntryChange::Put(_) | EntryChange::Leave => {}
                EntryChange::Drop => drop(all.remove(&module.of)),
            }
        }
        all.into_values().collect()
    }

    fn entry_change(&self, module: &Module<'_>, name: &str, node: &Value) -> EntryChange {
        let Some(Some(image)) = module.targets.get(name) else { return EntryChange::Drop };
        let version =
            module.body["spec"]["moduleLoader"]["container"]["version"].as_str().unwrap_or_default();
        match label(node, &module.of.version_worker()) {
            _ if version.is_empty() => {}
            None => return EntryChange::Drop,
            Some(worker) if worker != version => return EntryChange::Leave,
            Some(_) => {}
        }
        if !self.exists(&module.of, image) {
            return EntryChange::Leave;
        }
        EntryChange::Put(made(module, image, kernel_of(node)))
    }

    /// S6, and of S8 what is on nodes.
    pub(super) fn labels(&self, writes: &mut Vec<Write>) {
        for (name, node) in self.state.of(Kind::Node) {
            let mut wanted: BTreeMap<String, String> = BTreeMap::new();
            let mut decides: Vec<&str> = Vec::new();
            if self.script.reaches(Stage::S6) {
                decides.extend([READY, VERSION_READY]);
                self.ready(name, node, &mut wanted);
            }
            if self.script.reaches(Stage::S8) {
                decides.extend([PLUGIN_READY, DRA_READY, PLUGIN_TARGET]);
                self.plugin_labels(name, &mut wanted);
            }
            let changed = changes(node, &wanted, |key| {
                decides.iter().any(|suffix| ModuleName::between(key, PREFIX, suffix).is_some())
            });
            if changed.is_empty() {
                continue;
            }
            let mut events = Vec::new();
            for (key, value) in &changed {
                let is_ready = key.ends_with(READY) && !key.ends_with(VERSION_READY);
                if let Some(of) = ModuleName::between(key, PREFIX, READY).filter(|_| is_ready) {
                    events.push((if value.is_null() { "ModuleUnloaded" } else { "ModuleLoaded" }, of));
                }
            }
            let what = format!("S6 S8 labels {}", Value::Object(changed.clone()));
            let patch = json!({ "metadata": { "labels": changed } });
            let write = Write::new(Kind::Node, name, Operation::Change(patch), what);
            writes.push(Write { events, ..write });
        }
    }

    /// Ready labels stay while a module is swapped in place, and go when it is gone, or the node is no place for it.
    fn ready(&self, name: &str, node: &Value, wanted: &mut BTreeMap<String, String>) {
        let nmc = self.state.get(Kind::NodeModules, name);
        for of in self.known(nmc) {
            let (spec, status) = (entry(nmc, "spec", &of), entry(nmc, "status", &of));
            if spec.is_some_and(|spec| !tolerates(&spec["tolerations"], node)) {
                continue;
            }
            let is_loaded = spec.zip(status).is_some_and(|(spec, status)| spec["config"] == status["config"]);
            if is_loaded {
                wanted.insert(of.ready(), String::new());
                if let Some(version) = status.and_then(|status| status["version"].as_str()) {
                    wanted.insert(of.version_ready(), version.to_owned());
                }
                continue;
            }
            for key in [of.ready(), of.version_ready()] {
                if let Some(value) = label(node, &key) {
                    wanted.insert(key, value.to_owned());
                }
            }
        }
    }
}

/// The labels that entries give a NodeModulesConfig.
fn labels_of(there: Option<&Value>, spec: &[Value]) -> BTreeMap<String, String> {
    let configured = spec.iter().map(|entry| named(entry).configured());
    let in_use = spec.iter().chain(entries(there, "status")).map(|entry| named(entry).in_use());
    configured.chain(in_use).map(|key| (key, String::new())).collect()
}

/// What is to change about the labels that this decides.
fn changes(
    object: &Value,
    wanted: &BTreeMap<String, String>,
    decides: impl Fn(&str) -> bool,
) -> Map<String, Value> {
    let mut changes = Map::new();
    for (key, value) in wanted {
        if label(object, key) != Some(value) {
            changes.insert(key.clone(), value.as_str().into());
        }
    }
    for key in object["metadata"]["labels"].as_object().into_iter().flat_map(Map::keys) {
        if decides(key) && !wanted.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    changes
}

/// A module's entry for a node, with the values that the definition would fill in.
fn made(module: &Module<'_>, image: &str, kernel: &str) -> Value {
    let spec = &module.body["spec"];
    let (loader, container) = (&spec["moduleLoader"], &spec["moduleLoader"]["container"]);
    let mapping = kernel::mapping(container, kernel).unwrap_or(&Value::Null);
    let is_loose = |tls: &Value| tls["insecure"] == true || tls["insecureSkipTLSVerify"] == true;
    let tls =
        if mapping["registryTLS"].is_object() { &mapping["registryTLS"] } else { &container["registryTLS"] };
    let mut config = json!({
        "kernelVersion": kernel::version(kernel),
        "containerImage": image,
        "imagePullPolicy": container["imagePullPolicy"].as_str().unwrap_or("IfNotPresent"),
        "insecurePull": is_loose(tls),
        "modprobe": container["modprobe"],
    });
    let lists = [&mapping["inTreeModulesToRemove"], &container["inTreeModulesToRemove"]];
    if let Some(list) = lists.into_iter().find(|list| list.is_array()) {
        config["inTreeModulesToRemove"] = list.clone();
    }
    let account = loader["serviceAccountName"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
    let mut entry = json!({
        "namespace": module.of.namespace,
        "name": module.of.name,
        "serviceAccountName": account,
        "config": config,
    });
    for (field, value) in [
        ("imageRepoSecret", &spec["imageRepoSecret"]),
        ("tolerations", &spec["tolerations"]),
        ("version", &container["version"]),
    ] {
        if !value.is_null() {
            entry[field] = value.clone();
        }
    }
    entry
}
