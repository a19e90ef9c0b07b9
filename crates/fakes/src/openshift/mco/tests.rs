use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::super::{Instance, kubelet_config, pool, scheduler, tls_profile};
use super::machine::{CURRENT, DEGRADED, DONE, Machine, STATE};
use super::*;

const WORKERS: &str = "pools.operator.machineconfiguration.openshift.io/worker";
const GROUP: &str = "machineconfiguration.openshift.io/v1";

/// A cluster without an API server: steps are taken as they come, and machines do at once what they are told.
#[derive(Default)]
struct Play {
    world: World,
    memory: Memory,
    version: u64,
    /// Kubelets that do not start with this policy.
    breaks_with: Option<&'static str>,
    /// The most nodes that were at work at a time.
    busy: usize,
}

impl Play {
    /// A pool `worker` and so many nodes in it.
    fn with(nodes: usize) -> Self {
        let mut play = Self::default();
        play.make(Kind::Pool, pool("worker"));
        for number in 0..nodes {
            play.node(&format!("node-{number}"), &["worker"]);
        }
        play.settle();
        play
    }

    fn put(&mut self, kind: Kind, mut body: Value) {
        self.version += 1;
        body["metadata"]["resourceVersion"] = self.version.to_string().into();
        if body["metadata"]["uid"].is_null() {
            body["metadata"]["uid"] = self.version.to_string().into();
        }
        self.world.put(kind, serde_json::from_value(body).unwrap());
    }

    fn make(&mut self, kind: Kind, instance: Instance) {
        let old = self.object(kind, instance.body["metadata"]["name"].as_str().unwrap());
        let mut body = instance.body;
        body["metadata"]["uid"] = old["metadata"]["uid"].clone();
        if !old.is_null() {
            body["status"] = old["status"].clone();
        }
        body["metadata"]["generation"] = (self.version + 1).into();
        self.put(kind, body);
    }

    fn node(&mut self, name: &str, roles: &[&str]) {
        let labels: Map<String, Value> =
            roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), json!(""))).collect();
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        self.put(Kind::Node, json!({ "metadata": { "name": name, "labels": labels }, "status": status }));
    }

    fn object(&self, kind: Kind, name: &str) -> Value {
        let found = self.world.all(kind).find(|object| object.name_any() == name);
        found.map_or(Value::Null, |object| serde_json::to_value(object).unwrap())
    }

    fn merge(&mut self, kind: Kind, name: &str, patch: &Value) {
        let mut body = self.object(kind, name);
        merge(&mut body, patch);
        self.put(kind, body);
    }

    /// Takes steps until none is left; says how the status of the pool `worker` went.
    fn settle(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..60 {
            let steps = steps(&self.world, &mut self.memory, Timestamp::UNIX_EPOCH);
            if steps.is_empty() {
                return seen;
            }
            let mut machines = Vec::new();
            for step in steps {
                match step {
                    Step::Write(write) => {
                        self.merge(write.kind, &write.name, &write.patch);
                        if write.kind == Kind::Pool && write.is_status && write.name == "worker" {
                            seen.push(self.told());
                        }
                    }
                    // They take longer than anything else.
                    Step::Configure { node, config } => machines.push((node, config)),
                }
            }
            machines.iter().for_each(|(node, config)| self.configure(node, config));
        }
        panic!("it never ends: {seen:#?}");
    }

    fn configure(&mut self, node: &str, config: &Rendered) {
        let at_work = Machine::all("worker", &self.world).iter().filter(|one| one.is_unavailable()).count();
        self.busy = self.busy.max(at_work);
        let policy = config.kubelet.get("topologyManagerPolicy").and_then(Value::as_str);
        let annotations = if policy.is_some() && policy == self.breaks_with {
            self.memory.failed.insert(node.to_owned(), config.name.clone());
            json!({ STATE: DEGRADED })
        } else {
            self.memory.failed.remove(node);
            json!({ CURRENT: config.name, STATE: DONE })
        };
        self.merge(Kind::Node, node, &json!({ "metadata": { "annotations": annotations } }));
    }

    /// Of the pool `worker`: machines, updated, ready, unavailable, degraded; the conditions that hold.
    fn told(&self) -> String {
        let status = &self.object(Kind::Pool, "worker")["status"];
        let counts = ["machine", "updatedMachine", "readyMachine", "unavailableMachine", "degradedMachine"]
            .map(|field| status[format!("{field}Count")].to_string());
        let all = status["conditions"].as_array().unwrap();
        let hold = all.iter().filter(|one| one["status"] == "True" && one["type"] != "NodeDegraded");
        let hold: Vec<_> = hold.map(|one| one["type"].as_str().unwrap()).collect();
        format!("{} {}", counts.join("/"), hold.join(" "))
    }

    /// What the nodes of a pool have: the same for all.
    fn has(&self, pool: &str) -> Map<String, Value> {
        let target = self.world.all(Kind::Pool).find(|one| one.name_any() == pool).unwrap();
        let rendered = Rendered::of(target, &self.world, &self.memory.accepted).unwrap();
        let machines = Machine::all(pool, &self.world);
        assert!(machines.iter().all(|one| one.is_done_at(&rendered.name)), "{machines:#?}");
        rendered.kubelet
    }

    fn target(&self, pool: &str) -> String {
        self.object(Kind::Pool, pool)["spec"]["configuration"]["name"].as_str().unwrap().to_owned()
    }

    fn policy(&mut self, name: &str, policy: &str) {
        let config = json!({ "topologyManagerPolicy": policy });
        self.make(Kind::KubeletConfig, kubelet_config(name, WORKERS, &config));
    }

    /// The last condition of a KubeletConfig.
    fn verdict(&self, name: &str) -> String {
        let object = self.object(Kind::KubeletConfig, name);
        assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
        let last = object["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
        format!("{} {}", last["type"].as_str().unwrap(), last["message"].as_str().unwrap())
    }
}

/// As an API server merges.
fn merge(body: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *body = patch.clone();
        return;
    };
    if !body.is_object() {
        *body = json!({});
    }
    for (name, value) in patch {
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(name)),
            value => merge(&mut body[name], value),
        }
    }
}

fn machine_config(name: &str, role: &str, os: &str) -> Instance {
    let body = json!({
        "apiVersion": GROUP, "kind": "MachineConfig", "spec": { "osImageURL": os },
        "metadata": { "name": name, "labels": { "machineconfiguration.openshift.io/role": role } },
    });
    Instance { plural: "machineconfigs", body }
}

#[test]
fn a_pool_gets_there_one_machine_at_a_time_and_back_to_the_same_name() {
    let mut play = Play::with(3);
    assert_eq!(play.told(), "3/3/3/0/0 Updated");
    assert_eq!(play.busy, 3, "new machines come up together");
    let before = play.target("worker");
    play.busy = 0;
    play.make(Kind::MachineConfig, machine_config("51-a", "worker", "a"));
    play.make(Kind::MachineConfig, machine_config("51-b", "master", "a"));
    let way = play.settle();
    assert_eq!(way[..2], ["3/0/0/0/0 Updating", "3/0/0/1/0 Updating"]);
    assert_eq!(way.last().unwrap(), "3/3/3/0/0 Updated");
    assert_eq!(play.busy, 1);
    assert_ne!(play.target("worker"), before);
    let source = &play.object(Kind::Pool, "worker")["status"]["configuration"]["source"];
    assert_eq!(source.as_array().unwrap().len(), 1, "{source}");
    // Its content counts.
    play.make(Kind::MachineConfig, machine_config("51-a", "other", "a"));
    play.settle();
    assert_eq!(play.target("worker"), before);
}

#[test]
fn as_many_machines_at_a_time_as_the_pool_allows() {
    let cases = [(json!(2), 2), (json!("50%"), 2), (json!("1%"), 1), (json!(9), 4), (Value::Null, 1)];
    for (stated, wanted) in cases {
        let mut play = Play::with(4);
        play.busy = 0;
        play.merge(Kind::Pool, "worker", &json!({ "spec": { "maxUnavailable": stated } }));
        play.policy("numa", "restricted");
        play.settle();
        assert_eq!(play.busy, wanted, "{stated}");
        assert_eq!(play.has("worker")["topologyManagerPolicy"], "restricted");
    }
}

#[test]
fn a_pool_stops_where_it_is_told() {
    let mut play = Play::with(2);
    play.merge(Kind::Pool, "worker", &json!({ "spec": { "paused": true } }));
    play.policy("numa", "restricted");
    assert_eq!(play.settle().last().unwrap(), "2/0/0/0/0 ");
    play.merge(Kind::Pool, "worker", &json!({ "spec": { "paused": false } }));
    for (behaviour, wanted) in [
        (PoolBehaviour::Hold, "2/0/0/0/0 Updating"),
        (PoolBehaviour::Degrade, "2/0/0/0/1 Updating Degraded"),
        (PoolBehaviour::RollOut, "2/2/2/0/0 Updated"),
        // A pool that has nothing to do may be held or fail too.
        (PoolBehaviour::Hold, "2/2/2/0/0 Updating"),
        (PoolBehaviour::Degrade, "2/2/2/0/1 Updated Degraded"),
    ] {
        play.memory.behaviour.insert("worker".to_owned(), behaviour);
        assert_eq!(play.settle().last().unwrap(), wanted, "{behaviour:?}");
    }
    // Without machines it is done at once, unless it is held.
    let mut empty = Play::with(0);
    empty.memory.behaviour.insert("worker".to_owned(), PoolBehaviour::Hold);
    let before = empty.target("worker");
    empty.policy("numa", "restricted");
    empty.settle();
    let name = |play: &Play| play.object(Kind::Pool, "worker")["status"]["configuration"]["name"].clone();
    assert_eq!((empty.told().as_str(), name(&empty)), ("0/0/0/0/0 Updating", json!(before)));
    empty.memory.behaviour.clear();
    empty.settle();
    assert_eq!((empty.told().as_str(), name(&empty)), ("0/0/0/0/0 Updated", json!(empty.target("worker"))));
}

#[test]
fn a_machine_that_fails_stops_its_pool_until_there_is_something_else() {
    let mut play = Play::with(3);
    play.breaks_with = Some("nonsense");
    play.policy("numa", "nonsense");
    assert_eq!(play.settle().last().unwrap(), "3/0/0/0/1 Updating Degraded");
    play.policy("numa", "restricted");
    assert_eq!(play.settle().last().unwrap(), "3/3/3/0/0 Updated");
    // A cordoned node is unavailable, and takes the place of others.
    play.merge(Kind::Node, "node-2", &json!({ "spec": { "unschedulable": true } }));
    play.policy("numa", "none");
    assert_eq!(play.settle().last().unwrap(), "3/0/0/1/0 Updating");
    play.merge(Kind::Node, "node-2", &json!({ "spec": { "unschedulable": false } }));
    assert_eq!(play.settle().last().unwrap(), "3/3/3/0/0 Updated");
}

#[test]
fn nodes_are_in_one_pool() {
    let mut play = Play::with(0);
    for role in ["master", "infra", "rt"] {
        play.make(Kind::Pool, pool(role));
    }
    let cases: [(&[&str], &str); 7] = [
        (&["worker"], "worker"),
        (&["master"], "master"),
        (&["infra", "worker"], "infra"),
        (&["infra"], "infra"),
        (&["infra", "master"], "master"),
        (&["infra", "rt", "worker"], ""),
        (&["control-plane"], ""),
    ];
    for (number, (roles, wanted)) in cases.into_iter().enumerate() {
        let name = format!("node-{number}");
        play.node(&name, roles);
        let is_in = |pool: &&str| Machine::all(pool, &play.world).iter().any(|one| one.name == name);
        let found: Vec<_> = ["master", "worker", "infra", "rt"].into_iter().filter(is_in).collect();
        assert_eq!(found.join(" "), wanted, "{roles:?}");
    }
    // One that moves gets what its new pool has; custom pools have what workers have, unless they have their own.
    play.policy("numa", "restricted");
    let infra = "pools.operator.machineconfiguration.openshift.io/infra";
    let config = json!({ "topologyManagerPolicy": "best-effort" });
    play.make(Kind::KubeletConfig, kubelet_config("infra", infra, &config));
    play.settle();
    let move_to_rt = json!({ "metadata": { "labels": {
        "node-role.kubernetes.io/infra": null, "node-role.kubernetes.io/rt": "",
    } } });
    play.merge(Kind::Node, "node-2", &move_to_rt);
    play.settle();
    for (pool, wanted) in [("worker", "restricted"), ("rt", "restricted"), ("infra", "best-effort")] {
        assert_eq!(play.has(pool)["topologyManagerPolicy"], wanted, "{pool}");
    }
    assert_eq!(play.has("master").get("topologyManagerPolicy"), None);
    assert_eq!(play.object(Kind::Node, "node-2")["metadata"]["annotations"][CURRENT], play.target("rt"));
}

#[test]
fn the_newest_valid_kubelet_config_counts() {
    let mut play = Play::with(1);
    let policy = |play: &Play| {
        play.has("worker")
            .get("topologyManagerPolicy")
            .map_or("base", |value| value.as_str().unwrap())
            .to_owned()
    };
    let base = play.target("worker");
    for (name, stated) in [("b", "restricted"), ("a", "best-effort")] {
        play.policy(name, stated);
        play.settle();
        assert_eq!((policy(&play).as_str(), play.verdict(name).as_str()), (stated, "Success Success"));
    }
    // The older one may change as it likes, and an invalid change leaves what was.
    play.policy("b", "none");
    let bad = json!({ "topologyManagerPolicy": "restricted", "cgroupDriver": "cgroupfs" });
    play.make(Kind::KubeletConfig, kubelet_config("a", WORKERS, &bad));
    play.settle();
    assert_eq!(policy(&play), "best-effort");
    let told = r#"Failure Error: KubeletConfiguration: cgroupDriver is not allowed to be set, but contains: "cgroupfs""#;
    assert_eq!(play.verdict("a"), told);
    for (name, wanted) in [("a", "none"), ("b", "base")] {
        let gone = play.world.all(Kind::KubeletConfig).find(|one| one.name_any() == name).unwrap().clone();
        play.world.note(Kind::KubeletConfig, Event::Delete(gone));
        play.settle();
        assert_eq!(policy(&play), wanted);
    }
    assert_eq!(play.target("worker"), base);
}

#[test]
fn what_is_wrong_with_a_kubelet_config_is_told() {
    let mut play = Play::with(0);
    let spec = |spec: Value| {
        let mut instance = kubelet_config("numa", WORKERS, &json!({}));
        merge(&mut instance.body["spec"], &spec);
        instance
    };
    for (stated, wanted) in [
        (json!({ "logLevel": 11 }), "KubeletConfig's LogLevel is not valid [1,10]: 11"),
        (
            json!({ "kubeletConfig": { "topologyManagerScope": 1 } }),
            "could not be unmarshalled, err: topologyManager",
        ),
        (
            json!({ "kubeletConfig": { "featureGates": { "A": true } } }),
            "featureGates is not allowed to be set",
        ),
        (
            json!({ "autoSizingReserved": true, "kubeletConfig": { "systemReserved": { "cpu": "1" } } }),
            "autoSizingReserved and systemdReserved cannot be set together",
        ),
        (
            json!({ "machineConfigPoolSelector": null }),
            "KubeletConfig numa does not match any MachineConfigPools",
        ),
        (json!({ "kubeletConfig": { "topologyManagerScope": "pod" } }), "Success"),
    ] {
        play.make(Kind::KubeletConfig, spec(stated.clone()));
        play.settle();
        let told = play.verdict("numa");
        assert!(told.contains(wanted), "{stated}: {told}");
    }
    let kept = play.object(Kind::KubeletConfig, "numa")["status"]["conditions"].as_array().unwrap().len();
    assert_eq!(kept, 3);
}

#[test]
fn tls_profiles_reach_machines() {
    let mut play = Play::with(1);
    let version = |play: &Play| play.has("worker")["tlsMinVersion"].as_str().unwrap().to_owned();
    assert_eq!(version(&play), "VersionTLS12");
    let before = play.target("worker");
    play.make(Kind::ApiServer, tls_profile(Some("Intermediate")));
    play.settle();
    assert_eq!(play.target("worker"), before, "nothing changes");
    play.make(Kind::ApiServer, tls_profile(Some("Modern")));
    play.settle();
    assert_eq!(version(&play), "VersionTLS13");
    // A KubeletConfig may have one of its own.
    let mut config = kubelet_config("numa", WORKERS, &json!({}));
    config.body["spec"]["tlsSecurityProfile"] = json!({ "type": "Old", "old": {} });
    play.make(Kind::KubeletConfig, config);
    play.settle();
    assert_eq!(version(&play), "VersionTLS10");
}

#[test]
fn masters_take_other_pods_only_if_told() {
    let mut play = Play::with(1);
    play.node("master-0", &["master"]);
    let other = json!({ "key": "other", "effect": "NoExecute" });
    play.merge(Kind::Node, "master-0", &json!({ "spec": { "taints": [other] } }));
    let is = |play: &Play, name: &str| {
        let node = play.object(Kind::Node, name);
        let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
        (node["metadata"]["labels"]["node-role.kubernetes.io/worker"] == "", taints)
    };
    for (schedulable, wanted) in [(false, (false, 2)), (true, (true, 1)), (false, (false, 2))] {
        play.make(Kind::Scheduler, scheduler(schedulable));
        play.settle();
        assert_eq!(is(&play, "master-0"), wanted, "schedulable: {schedulable}");
        assert_eq!(is(&play, "node-0"), (true, 0));
    }
}
