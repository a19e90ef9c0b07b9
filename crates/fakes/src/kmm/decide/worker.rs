//! S5: what is loaded on nodes, and unloaded.

use std::fmt;

use serde_json::{Value, json};

use super::super::cluster_state::Kind;
use super::super::labels::{ModuleName, WORKER_ACTION};
use super::super::script::{Plugins, Stage};
use super::super::write::{InUse, Operation, Write, is_over};
use super::{PlanInputs, boot_of, entries, entry, is_alive, named, tolerates};

/// What is to be done about a module on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerAction {
    Load,
    Unload,
    /// It is gone with the last boot.
    Forget,
}

impl fmt::Display for WorkerAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl PlanInputs<'_> {
    /// Loads and unloads, one module of a node at a time.
    pub(super) fn worker_actions(&self, writes: &mut Vec<Write>) {
        for (name, node) in self.state.of(Kind::Node) {
            let nmc = self.state.get(Kind::NodeModules, name);
            let todo: Vec<(ModuleName, WorkerAction)> = self
                .known(nmc)
                .into_iter()
                .filter_map(|of| Some((of.clone(), worker_action(node, nmc, &of)?)))
                .collect();
            if self.script.workers {
                self.pods(name, &todo, writes);
            }
            let can = |(of, work): &&(ModuleName, WorkerAction)| {
                *work == WorkerAction::Forget || self.can(name, node, nmc, of, *work)
            };
            if let Some((of, work)) = todo.iter().find(can) {
                writes.push(self.done(name, node, nmc, of, *work));
            }
        }
    }

    /// Whether a worker gets through with it.
    fn can(
        &self,
        name: &str,
        node: &Value,
        nmc: Option<&Value>,
        of: &ModuleName,
        work: WorkerAction,
    ) -> bool {
        let entry = entry(nmc, if work == WorkerAction::Load { "spec" } else { "status" }, of);
        let account = entry.and_then(|entry| entry["serviceAccountName"].as_str()).unwrap_or("default");
        // Whose account is gone, its pods cannot be made.
        let has_account =
            account == "default" || self.state.has(Kind::Account, &format!("{}/{account}", of.namespace));
        let is_open = work == WorkerAction::Unload
            && self.script.plugins == Plugins::Run
            && self.plugin_pods(of).any(|pod| pod["spec"]["nodeName"] == name);
        self.script.reaches(Stage::S5)
            && is_alive(node)
            && !self.script.stuck.contains(name)
            && has_account
            && !is_open
    }

    /// The status after it.
    fn done(
        &self,
        name: &str,
        node: &Value,
        nmc: Option<&Value>,
        of: &ModuleName,
        work: WorkerAction,
    ) -> Write {
        let mut all: Vec<Value> =
            entries(nmc, "status").iter().filter(|entry| named(entry) != *of).cloned().collect();
        if let (WorkerAction::Load, Some(entry)) = (work, entry(nmc, "spec", of)) {
            let mut entry = entry.clone();
            entry["bootId"] = boot_of(node).clone();
            all.push(entry);
            all.sort_by_key(named);
        }
        let patch = json!({ "status": { "modules": all } });
        let what = format!("S5 {work} {}", of.key());
        let write = Write::new(Kind::NodeModules, name, Operation::Status(patch), what);
        let unloaded_in_use = if work == WorkerAction::Unload { self.users(name, of) } else { Vec::new() };
        Write { unloaded_in_use, ..write }
    }

    /// Pods that use devices on a node.
    fn users(&self, node: &str, of: &ModuleName) -> Vec<InUse> {
        let uses = |pod: &Value| {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut limits = containers.filter_map(|container| container["resources"]["limits"].as_object());
            limits.any(|limits| limits.keys().any(|resource| self.script.devices.contains(resource)))
                || self.state.of(Kind::Claim).any(|(_, claim)| self.is_given(claim, pod))
        };
        let pods = self.state.of(Kind::Pod);
        let held = pods.filter(|(_, pod)| pod["spec"]["nodeName"] == node && !is_over(pod) && uses(pod));
        let what = format!("{} is unloaded on {node}", of.key());
        held.map(|(key, _)| InUse { pod: key.to_owned(), what: what.clone() }).collect()
    }

    /// Whether a pod has one of the devices by this resource claim.
    fn is_given(&self, claim: &Value, pod: &Value) -> bool {
        let list = |pointer: &str| claim.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let driver =
            |device: &Value| device["driver"].as_str().is_some_and(|name| self.script.devices.contains(name));
        list("/status/reservedFor").any(|user| user["uid"] == pod["metadata"]["uid"])
            && list("/status/allocation/devices/results").any(driver)
    }

    /// Worker pods: one for each thing to do, none for what is done. Those that are stuck fail again and again.
    fn pods(&self, node: &str, todo: &[(ModuleName, WorkerAction)], writes: &mut Vec<Write>) {
        let todo = todo.iter().filter(|(_, work)| *work != WorkerAction::Forget);
        let todo: Vec<(String, &ModuleName, WorkerAction)> = todo
            .map(|(of, work)| (format!("{}/kmm-worker-{node}-{}", of.namespace, of.name), of, *work))
            .collect();
        for (key, of, work) in &todo {
            match self.state.get(Kind::Pod, key) {
                None => {
                    let body = worker(node, of, *work);
                    writes.push(Write::new(
                        Kind::Pod,
                        key,
                        Operation::Create(body),
                        format!("S5 worker: {work}"),
                    ));
                }
                Some(pod) if pod["metadata"]["labels"][WORKER_ACTION] != work.to_string() => {
                    writes.push(Write::new(Kind::Pod, key, Operation::Delete, "S5 another worker is due"));
                }
                Some(pod)
                    if self.script.stuck.contains(node) && pod["status"]["containerStatuses"].is_null() =>
                {
                    let patch = json!({ "status": failing() });
                    writes.push(Write::new(Kind::Pod, key, Operation::Status(patch), "S5 the worker fails"));
                }
                Some(_) => {}
            }
        }
        for (key, pod) in self.state.of(Kind::Pod) {
            let is_worker =
                pod["metadata"]["labels"][WORKER_ACTION].is_string() && pod["spec"]["nodeName"] == node;
            if is_worker && !todo.iter().any(|(wanted, ..)| wanted == key) {
                writes.push(Write::new(Kind::Pod, key, Operation::Delete, "S5 the worker is done"));
            }
        }
    }
}

/// What a node's configuration and state ask for.
fn worker_action(node: &Value, nmc: Option<&Value>, of: &ModuleName) -> Option<WorkerAction> {
    let rebooted = |status: &Value| is_alive(node) && *boot_of(node) != status["bootId"];
    match (entry(nmc, "spec", of), entry(nmc, "status", of)) {
        (Some(spec), _) if !tolerates(&spec["tolerations"], node) => None,
        (Some(_), None) => Some(WorkerAction::Load),
        (Some(spec), Some(status)) if spec["config"] != status["config"] => {
            let is_same_kernel = spec["config"]["kernelVersion"] == status["config"]["kernelVersion"];
            Some(if is_same_kernel && !rebooted(status) { WorkerAction::Unload } else { WorkerAction::Load })
        }
        (Some(_), Some(status)) => rebooted(status).then_some(WorkerAction::Load),
        (None, Some(status)) => {
            Some(if rebooted(status) { WorkerAction::Forget } else { WorkerAction::Unload })
        }
        (None, None) => None,
    }
}

fn worker(node: &str, of: &ModuleName, work: WorkerAction) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": of.namespace,
            "name": format!("kmm-worker-{node}-{}", of.name),
            "labels": {
                "app.kubernetes.io/name": "kmm",
                "app.kubernetes.io/component": "worker",
                "app.kubernetes.io/part-of": "kmm",
                "kmm.node.kubernetes.io/module.name": of.name,
                WORKER_ACTION: work.to_string(),
            },
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "worker", "image": "worker" }],
        },
    })
}

fn failing() -> Value {
    json!({
        "phase": "Running",
        "containerStatuses": [{
            "name": "worker",
            "image": "worker",
            "imageID": "",
            "ready": false,
            "restartCount": 3,
            "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "modprobe: FATAL: the test wants it" } },
        }],
    })
}
