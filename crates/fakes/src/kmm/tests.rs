use serde_json::{Value, json};

use super::cluster_state::{ClusterState, Kind};
use super::decide::next;
use super::labels::{MODULE_FINALIZER, ModuleName};
use super::script::{Script, Stage};
use super::write::{Operation, Write};

const KERNEL: &str = "5.14.0-427.el9.x86_64";

/// An API server that takes every write.
struct Simulation {
    state: ClusterState,
    script: Script,
    revision: u64,
}

fn node(name: &str, kernel: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": name, "labels": { "has": "acc" } },
        "spec": {},
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": { "kernelVersion": kernel, "bootID": "1" },
        },
    })
}

fn module(version: Option<&str>) -> Value {
    let mut module = json!({
        "apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module",
        "metadata": { "namespace": "hw", "name": "acc", "uid": "acc" },
        "spec": {
            "selector": { "has": "acc" },
            "moduleLoader": {
                "container": {
                    "modprobe": { "moduleName": "acc", "dirName": "/opt" },
                    "kernelMappings": [{ "regexp": "el9", "containerImage": "r/acc:1-$KERNEL_VERSION" }],
                },
            },
            "devicePlugin": { "container": { "image": "r/plugin:1" } },
        },
    });
    if let Some(version) = version {
        module["spec"]["moduleLoader"]["container"]["version"] = version.into();
    }
    module
}

impl Simulation {
    fn new(objects: impl IntoIterator<Item = (Kind, Value)>) -> Self {
        let mut state = ClusterState::default();
        for (kind, object) in objects {
            state = state.with(kind, object);
        }
        Self { state, script: Script::default(), revision: 0 }
    }

    fn change(&mut self, kind: Kind, key: &str, patch: Value) {
        self.take(&Write::new(kind, key, Operation::Change(patch), ""));
    }

    fn take(&mut self, write: &Write) {
        let mut object = match &write.operation {
            Operation::Create(body) => body.clone(),
            Operation::Change(patch) | Operation::Status(patch) => {
                let mut object = self.state.get(write.kind, &write.key).expect(&write.what).clone();
                json_merge(&mut object, patch);
                object
            }
            Operation::Delete => return self.state.remove(write.kind, &write.key),
        };
        self.revision += 1;
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(prefix) = metadata.remove("generateName") {
            metadata
                .insert("name".to_owned(), format!("{}{}", prefix.as_str().unwrap(), self.revision).into());
        }
        metadata.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        metadata.entry("generation").or_insert(1.into());
        let is_done = object["metadata"]["deletionTimestamp"].is_string()
            && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        match is_done {
            true => self.state.remove(write.kind, &write.key),
            false => self.state = std::mem::take(&mut self.state).with(write.kind, object),
        }
    }

    /// Takes what is first until nothing is left.
    fn settle(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(write) = next(&self.state, &self.script).into_iter().next() {
            assert!(seen.len() < 200, "it never ends: {seen:#?}");
            self.take(&write);
            seen.push(write.to_string());
        }
        seen
    }

    /// Takes all that one look at the cluster decides, as the fake does that runs on its own.
    fn pass(&mut self) {
        for write in next(&self.state, &self.script) {
            self.take(&write);
        }
    }

    fn label(&self, node: &str, key: &str) -> Option<&str> {
        self.state.get(Kind::Node, node)?["metadata"]["labels"][key].as_str()
    }

    fn status(&self) -> &Value {
        &self.state.get(Kind::Module, "hw/acc").unwrap()["status"]
    }
}

fn json_merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(key)),
            value => json_merge(&mut object[key], value),
        }
    }
}

fn of() -> ModuleName {
    ModuleName::new("hw", "acc")
}

#[test]
fn a_module_goes_its_way_stage_by_stage_and_away_again() {
    let mut simulation = Simulation::new([
        (Kind::Node, node("a", KERNEL)),
        (Kind::Node, node("b", KERNEL)),
        (Kind::Node, node("odd", "6.8.0-31-generic")),
        (Kind::Module, module(None)),
        (Kind::Namespace, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hw" } })),
    ]);
    let stages = [
        (Stage::S0, 0, json!(null)),
        (Stage::S1, 2, json!(null)),
        (Stage::S2, 1, json!({ "nodesMatchingSelectorNumber": 3 })),
        (Stage::S3, 2, json!({ "nodesMatchingSelectorNumber": 3 })),
        (Stage::S4, 3, json!({ "nodesMatchingSelectorNumber": 3, "desiredNumber": 2 })),
        (Stage::S5, 2, json!({ "nodesMatchingSelectorNumber": 3, "desiredNumber": 2 })),
        (Stage::S6, 2, json!({ "nodesMatchingSelectorNumber": 3, "desiredNumber": 2 })),
        (Stage::S7, 2, json!({ "nodesMatchingSelectorNumber": 3, "desiredNumber": 2, "availableNumber": 2 })),
    ];
    for (stage, writes, loaded) in stages {
        simulation.script.up_to = stage;
        let seen = simulation.settle();
        assert_eq!(seen.len(), writes, "{stage:?} {seen:#?}");
        assert_eq!(simulation.status()["moduleLoader"], loaded, "{stage:?}");
    }
    simulation.script.up_to = Stage::S8;
    simulation.settle();
    assert_eq!(
        simulation.status()["devicePlugin"],
        json!({
            "nodesMatchingSelectorNumber": 3, "desiredNumber": 3, "availableNumber": 2,
        })
    );
    assert_eq!(
        [simulation.label("a", &of().ready()), simulation.label("odd", &of().ready())],
        [Some(""), None]
    );
    assert_eq!(simulation.label("b", &of().plugin_ready()), Some(""));
    // A DRA driver takes the place of the device plugin.
    let driver = json!({ "driverName": "acc.example", "container": { "image": "r/driver:1" } });
    simulation.change(Kind::Module, "hw/acc", json!({ "spec": { "devicePlugin": null, "dra": driver } }));
    simulation.settle();
    let status = simulation.status();
    assert_eq!(status["dra"]["availableNumber"], 2, "{status}");
    assert!(status["devicePlugin"].is_null(), "{status}");
    assert_eq!(
        [of().dra_ready(), of().plugin_ready()].map(|key| simulation.label("b", &key)),
        [Some(""), None]
    );
    let sets: Vec<&Value> = simulation.state.of(Kind::DaemonSet).map(|(_, set)| set).collect();
    assert_eq!(sets.len(), 1, "{sets:?}");
    assert_eq!(sets[0]["spec"]["template"]["spec"]["hostNetwork"], true);
    simulation.change(
        Kind::Module,
        "hw/acc",
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    );
    simulation.script.stuck.insert("b".to_owned());
    simulation.settle();
    assert!(simulation.state.has(Kind::Module, "hw/acc"), "b still has it");
    let nmc = simulation.state.get(Kind::NodeModules, "b").unwrap();
    assert_eq!(nmc["metadata"]["labels"], json!({ of().in_use(): "" }));
    simulation.script.stuck.clear();
    simulation.settle();
    for kind in [Kind::Module, Kind::Images, Kind::DaemonSet] {
        assert_eq!(simulation.state.of(kind).count(), 0, "{kind:?}");
    }
    for (name, node) in simulation.state.of(Kind::Node) {
        assert_eq!(node["metadata"]["labels"], json!({ "has": "acc" }), "{name}");
    }
    assert_eq!(simulation.state.get(Kind::Namespace, "hw").unwrap()["metadata"]["labels"], json!({}));
}

#[test]
fn a_version_goes_to_a_node_in_the_order_of_the_table() {
    let mut simulation =
        Simulation::new([(Kind::Node, node("a", KERNEL)), (Kind::Module, module(Some("1")))]);
    simulation.settle();
    assert_eq!(
        simulation.status()["moduleLoader"],
        json!({ "nodesMatchingSelectorNumber": 1 }),
        "it has no label"
    );
    simulation.change(Kind::Node, "a", json!({ "metadata": { "labels": { of().version_module(): "1" } } }));
    simulation.settle();
    assert_eq!(simulation.label("a", &of().version_ready()), Some("1"));
    // Image and version together; nothing happens to nodes until they are labelled.
    simulation.change(
        Kind::Module,
        "hw/acc",
        json!({ "spec": { "moduleLoader": { "container": {
        "version": "2", "kernelMappings": [{ "regexp": "el9", "containerImage": "r/acc:2-$KERNEL_VERSION" }],
    } } } }),
    );
    simulation.settle();
    assert_eq!(simulation.label("a", &of().version_ready()), Some("1"));
    simulation.change(Kind::Node, "a", json!({ "metadata": { "labels": { of().version_module(): "2" } } }));
    let seen = simulation.settle();
    let order =
        ["K8 DropSchedule", "K8 DropWorker", "S5 Unload", "K8 AddWorker", "S5 Load", "K8 AddSchedule"];
    let at = |word: &str| {
        seen.iter().position(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {seen:#?}"))
    };
    for pair in order.windows(2) {
        // What the schedule label allows may be allowed while the worker still loads.
        assert!(at(pair[0]) < at(pair[1]) || pair[1] == "K8 AddSchedule", "{pair:?} {seen:#?}");
    }
    assert_eq!(simulation.label("a", &of().version_ready()), Some("2"));
    assert_eq!(simulation.state.of(Kind::DaemonSet).count(), 1, "that of the old version is collected");
    // Without the label the module goes, the device plugin first.
    simulation.change(Kind::Node, "a", json!({ "metadata": { "labels": { of().version_module(): null } } }));
    simulation.settle();
    assert_eq!(
        simulation.state.get(Kind::Node, "a").unwrap()["metadata"]["labels"],
        json!({
            "has": "acc", of().plugin_target(): "",
        })
    );
}

#[test]
fn what_is_loaded_follows_image_boot_and_taints() {
    let mut simulation = Simulation::new([(Kind::Node, node("a", KERNEL)), (Kind::Module, module(None))]);
    simulation.script.missing.insert("r/acc:1-".to_owned());
    simulation.settle();
    assert_eq!(
        simulation.status()["moduleLoader"],
        json!({ "nodesMatchingSelectorNumber": 1 }),
        "no image, no word of it"
    );
    simulation.script.missing.clear();
    simulation.settle();
    let boot = |simulation: &Simulation| {
        simulation.state.get(Kind::NodeModules, "a").unwrap()["status"]["modules"][0]["bootId"].clone()
    };
    assert_eq!(boot(&simulation), "1");
    // Booted, too fast for any taint: counters and labels stay, and it is loaded again.
    simulation.script.stuck.insert("a".to_owned());
    simulation.change(Kind::Node, "a", json!({ "status": { "nodeInfo": { "bootID": "2" } } }));
    assert_eq!(simulation.settle(), [""; 0]);
    assert_eq!((simulation.label("a", &of().ready()), boot(&simulation)), (Some(""), json!("1")));
    simulation.script.stuck.clear();
    simulation.settle();
    assert_eq!(boot(&simulation), "2");
    // Another image, without a version: unloaded and loaded in place.
    let mapping = json!([{ "regexp": "el9", "containerImage": "r/acc:2-$KERNEL_VERSION" }]);
    simulation.change(
        Kind::Module,
        "hw/acc",
        json!({ "spec": { "moduleLoader": { "container": { "kernelMappings": mapping } } } }),
    );
    let seen = simulation.settle();
    let worker_actions: Vec<_> = seen.iter().filter_map(|line| line.split("S5 ").nth(1)).collect();
    assert_eq!(worker_actions, ["Unload hw/acc", "Load hw/acc"]);
    // Cordoned: it goes; pressure alone is tolerated; unreachable, nothing can be unloaded until it has booted.
    let taint = |key: &str| json!({ "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } });
    for (key, is_loaded) in
        [("node.kubernetes.io/memory-pressure", true), ("node.kubernetes.io/unschedulable", false)]
    {
        simulation.change(Kind::Node, "a", taint(key));
        simulation.settle();
        assert_eq!(simulation.label("a", &of().ready()).is_some(), is_loaded, "{key}");
    }
    simulation.change(Kind::Node, "a", json!({ "spec": { "taints": null } }));
    simulation.settle();
    assert_eq!(simulation.label("a", &of().ready()), Some(""));
    simulation.change(Kind::Node, "a", taint("node.kubernetes.io/unreachable"));
    simulation.change(
        Kind::Node,
        "a",
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
    );
    simulation.settle();
    assert_eq!(boot(&simulation), "2", "no worker is there to unload it");
    simulation.change(
        Kind::Node,
        "a",
        json!({ "spec": { "taints": null }, "status": {
        "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "bootID": "3" },
    } }),
    );
    simulation.settle();
    assert_eq!(boot(&simulation), "3");
    assert!(
        simulation.state.get(Kind::Module, "hw/acc").unwrap()["metadata"]["finalizers"]
            .to_string()
            .contains(MODULE_FINALIZER)
    );
}

#[test]
fn drivers_are_not_unloaded_unseen_nor_without_their_account() {
    let mut module = module(None);
    module["spec"]["moduleLoader"]["serviceAccountName"] = "loader".into();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "namespace": "hw", "name": "loader" } });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "x", "name": "user" },
        "spec": { "nodeName": "a", "containers": [{ "resources": { "limits": { "example.com/acc": "1" } } }] },
        "status": { "phase": "Running" },
    });
    let holder = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "x", "name": "holder", "uid": "u" },
        "spec": { "nodeName": "a" }, "status": { "phase": "Running" },
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "namespace": "x", "name": "c" },
        "status": {
            "allocation": { "devices": { "results": [{ "driver": "acc.example.com" }] } },
            "reservedFor": [{ "resource": "pods", "name": "holder", "uid": "u" }],
        },
    });
    let pods = [(Kind::Pod, pod), (Kind::Pod, holder), (Kind::Claim, claim)];
    let mut simulation =
        Simulation::new([(Kind::Node, node("a", KERNEL)), (Kind::Module, module)].into_iter().chain(pods));
    simulation.script.devices = ["example.com/acc", "acc.example.com"].map(str::to_owned).into();
    simulation.script.workers = true;
    simulation.settle();
    assert_eq!(simulation.label("a", &of().ready()), None, "its pods would not be made");
    assert!(simulation.state.has(Kind::Pod, "hw/kmm-worker-a-acc"));
    simulation.state = std::mem::take(&mut simulation.state).with(Kind::Account, account);
    simulation.settle();
    assert_eq!(simulation.label("a", &of().ready()), Some(""));
    assert!(!simulation.state.has(Kind::Pod, "hw/kmm-worker-a-acc"));
    simulation.change(Kind::Node, "a", json!({ "metadata": { "labels": { "has": null } } }));
    let unload = loop {
        let write = next(&simulation.state, &simulation.script).into_iter().next().unwrap();
        if write.what.starts_with("S5 Unload") {
            break write;
        }
        simulation.take(&write);
    };
    let under = |pod: &str| format!("hw/acc is unloaded on a under pod x/{pod}");
    let lines: Vec<_> = unload.unloaded_in_use.iter().map(ToString::to_string).collect();
    assert_eq!(lines, [under("holder"), under("user")]);
}

/// KMM does not wait for a worker pod that is loading: a Module that is deleted then goes before its driver.
#[test]
fn a_load_under_way_is_reported_after_its_module_was_deleted() {
    let mut simulation = Simulation::new([(Kind::Node, node("n", KERNEL)), (Kind::Module, module(None))]);
    simulation.script.up_to = Stage::S4;
    simulation.settle();
    simulation.script.up_to = Stage::S8;
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    simulation.change(Kind::Module, "hw/acc", going);
    simulation.pass();
    let down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    simulation.change(Kind::Node, "n", down);
    simulation.pass();
    assert!(!simulation.state.has(Kind::Module, "hw/acc"));
    let nmc = simulation.state.get(Kind::NodeModules, "n").unwrap();
    assert_eq!((&nmc["spec"]["modules"], &nmc["status"]["modules"][0]["name"]), (&json!([]), &json!("acc")));
}
