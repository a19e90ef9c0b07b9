//! What people do with DeviceConfigs, nodes and drivers in any order: no node is in two Modules at any moment, drivers
//! are not taken from under pods, and in the end all is as asked for and no client writes any more.
//!
//! `HISTORIES=200 SEED=7 cargo test -p operator --test it -- histories --nocapture` plays that many, each of `DEEDS`
//! deeds; three of 30 are the default. Every second one is gentle: pods use devices, and nothing is done that takes a
//! driver from them, which is what must not happen then: while a pod that uses devices is on a node, KMM is not made to
//! load the driver there in another way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fakes::kmm::labels::ModuleName;
use fakes::kmm::{self, Kmm, Script};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use runtime::random::Random;
use serde_json::{Value, json};
use testkit::account::Account;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::rig::{PATIENCE, number};
use super::case::{CLAIM, DEVICE, KERNEL, count, is, is_ready, plain, use_device};
use super::history::History;
use super::lab::{Lab, configs, objects, play};

/// How long it may take until all is as asked for, after the last deed.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);
/// So long a pod may be on its way to a node that was found open, a little less than the controller is told. A pod that
/// takes longer is not looked at.
const ON_THE_WAY: Duration = Duration::from_millis(200);
/// So long it is waited for a node that takes a pod.
const SOON: Duration = Duration::from_millis(500);
/// Names under which devices are offered.
const DEVICES: [&str; 2] = [DEVICE, "example.com/other"];

const SPACES: [&str; 2] = ["crowd-one", "crowd-two"];
const NAMES: [&str; 3] = ["a", "b", "a-name-so-long-that-it-is-cut"];
const NODES: usize = 5;

/// Something that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Ask,
    Delete,
    Select,
    Upgrade,
    Reload,
    Rename,
    Pause,
    Resume,
    Policy,
    Relabel,
    Join,
    Leave,
    Stick,
    Loosen,
    Lose,
    Find,
    Reboot,
    Cordon,
    Down,
    Up,
    Use,
    Free,
    Spoil,
    Unclaim,
}

impl Deed {
    const ALL: [Self; 24] = [
        Self::Ask,
        Self::Delete,
        Self::Select,
        Self::Upgrade,
        Self::Reload,
        Self::Rename,
        Self::Pause,
        Self::Resume,
        Self::Policy,
        Self::Relabel,
        Self::Join,
        Self::Leave,
        Self::Stick,
        Self::Loosen,
        Self::Lose,
        Self::Find,
        Self::Reboot,
        Self::Cordon,
        Self::Down,
        Self::Up,
        Self::Use,
        Self::Free,
        Self::Spoil,
        Self::Unclaim,
    ];

    /// Whether it asks that a driver goes, also while pods use it.
    fn is_rough(self) -> bool {
        matches!(self, Self::Leave | Self::Cordon | Self::Down | Self::Spoil | Self::Unclaim | Self::Reboot)
    }
}

/// The nodes and everybody who wants them.
struct Crowd<'l> {
    lab: &'l Lab,
    kmm: Kmm,
    random: Random,
    /// Pods that use a device, by node.
    users: BTreeMap<String, String>,
    /// Of them those that were too long on their way.
    late: BTreeSet<String>,
    /// Who ends pods that are deleted.
    kubelets: JoinHandle<()>,
    made: usize,
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        self.kubelets.abort();
    }
}

#[test]
fn a_node_is_never_in_two_modules() {
    let (histories, seed) = (number("HISTORIES", 3), number("SEED", 1));
    play("histories", async |lab: &mut Lab| {
        for space in SPACES {
            Account::create(&lab.control, space, "default").await.unwrap();
        }
        let mut slowest = Duration::ZERO;
        for seed in seed..seed + histories {
            slowest = slowest.max(one(lab, seed).await);
        }
        println!(
            "histories: {histories} from seed {seed}, the slowest settled {slowest:?} after its last deed"
        );
        // A goal for a machine with nothing else to do.
        if std::env::var_os("HISTORIES").is_some() {
            assert!(slowest < SETTLES_WITHIN, "{slowest:?}");
        }
    });
}

/// One history; says how long it took to settle.
async fn one(lab: &Lab, seed: u64) -> Duration {
    let told = Script { devices: DEVICES.map(str::to_owned).into(), ..Script::default() };
    let kmm = Kmm::start_with(&lab.admin, told);
    let mut crowd = Crowd {
        lab,
        kmm,
        random: Random::seeded(seed),
        users: BTreeMap::new(),
        late: BTreeSet::new(),
        kubelets: tokio::spawn(end_pods(lab.admin.clone())),
        made: 0,
    };
    let gentle = seed.is_multiple_of(2);
    for _ in 0..NODES {
        crowd.join().await;
    }
    let history = History::begin(&lab.admin).await;
    let mut deeds = Vec::new();
    for _ in 0..number("DEEDS", 30) {
        let any = Deed::ALL[crowd.pick(Deed::ALL.len())];
        // Without anybody who asks nothing happens.
        let any = if deeds.is_empty() { Deed::Ask } else { any };
        let deed = if gentle && crowd.pick(3) == 0 { Deed::Use } else { any };
        if gentle && deed.is_rough() || !gentle && deed == Deed::Use {
            continue;
        }
        let what = crowd.act(deed).await;
        deeds.push(format!("{deed:?} {what}"));
        if crowd.pick(3) == 0 {
            tokio::time::sleep(Duration::from_millis(crowd.pick(120) as u64)).await;
        }
    }
    crowd.calm().await;
    let took = crowd.settle(seed, &deeds).await;
    let is_late = |pod: &str| crowd.late.iter().any(|late| pod.ends_with(&format!("/{late}")));
    let pulled: Vec<String> = crowd.kmm.unloaded_in_use().into_iter().filter(|line| !is_late(line)).collect();
    let writes = lab.quiet().await;
    let past = history.end().await;
    println!(
        "histories: seed {seed}: {} deeds, {} moments, {} pods, settled in {took:?}, {writes} writes so far",
        deeds.len(),
        past.len(),
        deeds.iter().filter(|deed| deed.contains(" uses ")).count()
    );
    assert_eq!(past.in_two_modules(), BTreeMap::new(), "nodes in two Modules, seed {seed}: {deeds:#?}");
    let twice = past.with_two_drivers();
    let stories: Vec<_> = twice.keys().map(|node| past.story(node)).collect();
    assert_eq!(twice, BTreeMap::new(), "nodes with two drivers, seed {seed}: {deeds:#?} {stories:#?}");
    let on =
        |line: &String| line.split_whitespace().skip_while(|word| *word != "on").nth(1).map(str::to_owned);
    let stories = || pulled.iter().filter_map(on).map(|node| past.story(&node)).collect::<Vec<_>>();
    assert!(!gentle || pulled.is_empty(), "seed {seed}: {pulled:#?} {deeds:#?} {:#?}", stories());
    let mut changed = past.changed_under_pods(&DEVICES);
    changed.retain(|_, pods| {
        pods.retain(|pod| !is_late(pod));
        !pods.is_empty()
    });
    assert!(!gentle || changed.is_empty(), "seed {seed}: {changed:#?} {deeds:#?}");
    crowd.leave().await;
    took
}

impl Crowd<'_> {
    fn client(&self) -> Client {
        self.lab.admin.clone()
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.random.bits() % count.max(1) as u64).unwrap()
    }

    async fn nodes(&self) -> Vec<Value> {
        let nodes = objects(&self.lab.admin, "v1", "Node", None);
        let of_ours = ListParams::default().labels("crowd");
        nodes.list(&of_ours).await.unwrap().items.into_iter().map(plain).collect()
    }

    async fn configs(&self) -> Vec<Value> {
        configs(&self.lab.admin, None)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .map(plain)
            .collect()
    }

    async fn any_node(&mut self) -> Option<Value> {
        let mut nodes = self.nodes().await;
        let at = self.pick(nodes.len());
        (at < nodes.len()).then(|| nodes.swap_remove(at))
    }

    async fn any_config(&mut self) -> Option<(Api<DynamicObject>, String)> {
        let all = self.configs().await;
        let one = all.get(self.pick(all.len()))?;
        let (space, name) = (text(&one["metadata"]["namespace"]), text(&one["metadata"]["name"]));
        Some((configs(&self.lab.admin, Some(&space)), name))
    }

    fn selector(&mut self) -> Value {
        match self.pick(6) {
            0 => json!({ "allNodes": true, "nodeSelector": null }),
            1 => json!({ "allNodes": null, "nodeSelector": { "crowd": "yes", "x": "1" } }),
            n => {
                let (key, value) = (["x", "y"][n % 2], ["1", "2"][n / 2 % 2]);
                json!({ "allNodes": null, "nodeSelector": { key: value } })
            }
        }
    }

    async fn act(&mut self, deed: Deed) -> String {
        match deed {
            Deed::Ask => self.ask().await,
            Deed::Delete
            | Deed::Select
            | Deed::Upgrade
            | Deed::Reload
            | Deed::Rename
            | Deed::Pause
            | Deed::Resume
            | Deed::Policy => self.reconsider(deed).await,
            Deed::Join => self.join().await,
            Deed::Spoil => self.spoil().await,
            Deed::Use | Deed::Free => self.pods(deed).await,
            Deed::Stick | Deed::Loosen | Deed::Lose | Deed::Find => self.tell(deed).await,
            _ => self.node(deed).await,
        }
    }

    async fn ask(&mut self) -> String {
        let (space, name) = (SPACES[self.pick(2)], NAMES[self.pick(NAMES.len())]);
        let mut spec = json!({
            "driverImage": "registry.example/drivers/acc",
            "driverVersion": format!("{}.0", self.pick(3)),
            "devicePlugin": offering(DEVICE),
            "upgradePolicy": { "maxUnavailable": 1 + self.pick(3) },
        });
        for (field, value) in self.selector().as_object().unwrap() {
            if !value.is_null() {
                spec[field] = value.clone();
            }
        }
        let body = json!({
            "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig",
            "metadata": { "namespace": space, "name": name }, "spec": spec,
        });
        let all = configs(&self.lab.admin, Some(space));
        let made = all.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await;
        format!("{space}/{name} {} {}", spec["nodeSelector"], if made.is_ok() { "" } else { "(there)" })
    }

    async fn reconsider(&mut self, deed: Deed) -> String {
        let Some((all, name)) = self.any_config().await else { return "nobody".to_owned() };
        let spec = match deed {
            Deed::Select => self.selector(),
            Deed::Upgrade => json!({ "driverVersion": format!("{}.0", self.pick(3)) }),
            Deed::Reload => self.another_way(),
            Deed::Rename => self.another_name(),
            Deed::Pause => json!({ "upgradePolicy": { "paused": true } }),
            Deed::Resume => json!({ "upgradePolicy": { "paused": null } }),
            Deed::Policy => {
                let policy = ["Wait", "Evict"][self.pick(2)];
                json!({ "upgradePolicy": { "podsUsingDevices": policy } })
            }
            _ => {
                let _ = all.delete(&name, &DeleteParams::background()).await;
                return name;
            }
        };
        let patch = Patch::Merge(json!({ "spec": spec }));
        let done = all.patch(&name, &PatchParams::default(), &patch).await;
        format!("{name} {spec} {}", if done.is_ok() { "" } else { "(gone)" })
    }

    /// Another way to load the driver, said anew or no longer; sometimes with another version.
    fn another_way(&mut self) -> Value {
        let mut spec = match self.pick(5) {
            0 => json!({ "modprobe": { "parameters": [format!("x={}", self.pick(3))] } }),
            1 => json!({ "modprobe": null }),
            2 => json!({ "inTreeModulesToRemove": ["old"], "registryTLS": { "insecure": true } }),
            3 => json!({ "inTreeModulesToRemove": null, "registryTLS": null }),
            _ => json!({ "imagePullPolicy": (self.pick(2) == 0).then_some("Always") }),
        };
        if self.pick(3) == 0 {
            spec["driverVersion"] = format!("{}.0", self.pick(3)).into();
        }
        spec
    }

    /// Devices under another name, or no more; sometimes with another version.
    fn another_name(&mut self) -> Value {
        let plugin = if self.pick(4) == 0 { Value::Null } else { offering(DEVICES[self.pick(2)]) };
        let mut spec = json!({ "devicePlugin": plugin });
        if self.pick(2) == 0 {
            spec["driverVersion"] = format!("{}.0", self.pick(3)).into();
        }
        spec
    }

    async fn join(&mut self) -> String {
        if self.nodes().await.len() >= 2 * NODES {
            return "enough".to_owned();
        }
        let (x, y) = (["1", "2"][self.pick(2)], ["1", "2"][self.pick(2)]);
        self.made += 1;
        let name = format!("crowd-{}", self.made);
        let labels = [("crowd", "yes"), ("x", x), ("y", y)];
        kmm::node(&self.lab.admin, &name, KERNEL, &labels).await.unwrap();
        format!("{name} x={x} y={y}")
    }

    /// Something with a node.
    async fn node(&mut self, deed: Deed) -> String {
        let Some(node) = self.any_node().await else { return "none".to_owned() };
        let name = text(&node["metadata"]["name"]);
        let nodes = objects(&self.lab.admin, "v1", "Node", None);
        match deed {
            Deed::Relabel => {
                let (key, value) = (["x", "y"][self.pick(2)], ["1", "2"][self.pick(2)]);
                let patch = Patch::Merge(json!({ "metadata": { "labels": { key: value } } }));
                nodes.patch(&name, &PatchParams::default(), &patch).await.unwrap();
                return format!("{name} {key}={value}");
            }
            Deed::Unclaim => {
                let patch = Patch::Merge(json!({ "metadata": { "labels": { CLAIM: null } } }));
                nodes.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
            Deed::Leave if !self.users.contains_key(&name) => {
                let _ = nodes.delete(&name, &DeleteParams::default()).await.unwrap();
            }
            Deed::Reboot => {
                let boot = self.random.bits().to_string();
                kmm::reboot(&self.lab.admin, &name, &boot).await.unwrap();
            }
            Deed::Cordon => {
                kmm::cordon(&self.lab.admin, &name, self.random.bits().is_multiple_of(2)).await.unwrap()
            }
            Deed::Down => kmm::ready(&self.lab.admin, &name, false).await.unwrap(),
            Deed::Up => kmm::ready(&self.lab.admin, &name, true).await.unwrap(),
            _ => {}
        }
        name
    }

    async fn tell(&mut self, deed: Deed) -> String {
        let node = self.any_node().await.map(|node| text(&node["metadata"]["name"])).unwrap_or_default();
        let image = format!("acc:{}.0", self.pick(3));
        self.kmm.script(|script| match deed {
            Deed::Stick => drop(script.stuck.replace(node.clone())),
            Deed::Loosen => script.stuck.clear(),
            Deed::Lose => drop(script.missing.replace(image.clone())),
            _ => script.missing.clear(),
        });
        format!("{node} {image}")
    }

    /// Another client changes or deletes a Module.
    async fn spoil(&mut self) -> String {
        let all = kmm::api(&self.lab.admin, "Module", None).list(&ListParams::default()).await.unwrap().items;
        let Some(one) = all.get(self.pick(all.len())) else { return "none".to_owned() };
        let (space, name) = (one.metadata.namespace.clone().unwrap(), one.metadata.name.clone().unwrap());
        let modules = kmm::api(&self.lab.admin, "Module", Some(&space));
        if self.pick(3) == 0 {
            let _ = modules.delete(&name, &DeleteParams::background()).await;
            return format!("{space}/{name} deleted");
        }
        // Narrower: a wider one would break the rule by itself.
        let patch = Patch::Merge(json!({ "spec": { "selector": { "x": "1" }, "tolerations": null } }));
        let done = modules.patch(&name, &PatchParams::default(), &patch).await;
        format!("{space}/{name} {}", done.is_ok())
    }

    /// Pods that use devices come where a driver works and no taint keeps them away, a moment after that was seen; and
    /// go.
    async fn pods(&mut self, deed: Deed) -> String {
        if deed == Deed::Free {
            let Some((node, pod)) = self.users.pop_first() else { return "nobody".to_owned() };
            end_pod(&self.lab.admin, &pod).await;
            return node;
        }
        let there = pods(&self.lab.admin).list(&ListParams::default()).await.unwrap();
        let there: BTreeSet<String> = there.into_iter().filter_map(|pod| pod.metadata.name).collect();
        self.users.retain(|_, pod| there.contains(pod));
        let Some(name) = self.place().await else { return "no node takes it".to_owned() };
        let nodes = objects(&self.lab.admin, "v1", "Node", None);
        let node = nodes.get_opt(&name).await.unwrap().map(plain).unwrap_or_default();
        let claim = text(&node["metadata"]["labels"][CLAIM]);
        let Some((space, module)) = claim.split_once('.') else { return format!("{name} has no driver") };
        let modules = kmm::api(&self.lab.admin, "Module", Some(space));
        let live = modules.get_opt(module).await.unwrap().map(plain).unwrap_or_default();
        let Some(device) = live["spec"]["devicePlugin"]["container"]["args"][0].as_str() else {
            return format!("{name} has no device plugin");
        };
        let found = Instant::now();
        let node = nodes.get_opt(&name).await.unwrap().map(plain).unwrap_or_default();
        if node["metadata"]["labels"][CLAIM] != claim || !takes_pods(&node) {
            return format!("{name} does not take it");
        }
        self.made += 1;
        let pod = format!("user-{}", self.made);
        use_device(&self.client(), SPACES[0], &pod, &name, device).await;
        if found.elapsed() > ON_THE_WAY {
            self.late.insert(pod.clone());
        }
        self.users.insert(name.clone(), pod.clone());
        format!("{pod} on {name} uses {device}")
    }

    /// A node that takes a pod and has none, if one comes to be so soon.
    async fn place(&mut self) -> Option<String> {
        let began = Instant::now();
        while began.elapsed() < SOON {
            let nodes = self.nodes().await;
            let names =
                nodes.iter().filter(|node| takes_pods(node)).map(|node| text(&node["metadata"]["name"]));
            let open: Vec<String> = names.filter(|name| !self.users.contains_key(name)).collect();
            if !open.is_empty() {
                return Some(open[self.pick(open.len())].clone());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// All that keeps drivers from nodes is taken back.
    async fn calm(&mut self) {
        while !self.users.is_empty() {
            self.pods(Deed::Free).await;
        }
        for config in self.configs().await {
            let all = configs(&self.lab.admin, config["metadata"]["namespace"].as_str());
            let patch = Patch::Merge(json!({ "spec": { "upgradePolicy": { "paused": null } } }));
            // It may be about to go.
            let _ = all.patch(&text(&config["metadata"]["name"]), &PatchParams::default(), &patch).await;
        }
        for node in self.nodes().await {
            let name = text(&node["metadata"]["name"]);
            kmm::cordon(&self.lab.admin, &name, false).await.unwrap();
            kmm::ready(&self.lab.admin, &name, true).await.unwrap();
        }
        self.kmm.script(|script| *script = Script { devices: script.devices.clone(), ..Script::default() });
    }

    /// Waits until all is as asked for; says how long it took.
    async fn settle(&self, seed: u64, deeds: &[String]) -> Duration {
        let began = Instant::now();
        loop {
            let wrong = self.wrong().await;
            if wrong.is_empty() {
                return began.elapsed();
            }
            assert!(
                began.elapsed() < PATIENCE,
                "seed {seed}: {wrong:#?}\n{deeds:#?}\n{:#?}\n{}",
                self.lab.last_writes(),
                self.lab.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is not as asked for.
    async fn wrong(&self) -> Vec<String> {
        let (nodes, configs) = (self.nodes().await, self.configs().await);
        let mut wrong: Vec<String> =
            configs.iter().filter_map(|config| wrong_config(config, &nodes)).collect();
        wrong.extend(nodes.iter().flat_map(|node| wrong_node(node, &configs)));
        let all = kmm::api(&self.lab.admin, "Module", None).list(&ListParams::default()).await.unwrap();
        let there: BTreeSet<(String, String)> = all
            .into_iter()
            .map(|module| (module.metadata.namespace.unwrap(), module.metadata.name.unwrap()))
            .collect();
        let wanted: BTreeSet<(String, String)> = configs.iter().map(module_of).collect();
        if there != wanted {
            wrong.push(format!("Modules are {there:?} instead of {wanted:?}"));
        }
        wrong
    }

    /// Everybody leaves.
    async fn leave(self) {
        for space in SPACES {
            let all = configs(&self.lab.admin, Some(space));
            for one in all.list(&ListParams::default()).await.unwrap() {
                let _ = all.delete(&one.metadata.name.unwrap(), &DeleteParams::background()).await;
            }
        }
        super::super::rig::until("all are gone", async || self.configs().await.is_empty()).await;
        for node in self.nodes().await {
            let keys = node["metadata"]["labels"].as_object().unwrap().keys();
            let ours = keys.filter(|key| key.contains("tholepin")).cloned().collect::<Vec<_>>();
            assert_eq!(ours, [""; 0], "{}", node["metadata"]["name"]);
            let nodes = objects(&self.lab.admin, "v1", "Node", None);
            let _ = nodes.delete(&text(&node["metadata"]["name"]), &DeleteParams::default()).await.unwrap();
        }
        self.kmm.settled(PATIENCE).await.unwrap();
    }
}

/// Whether a driver works on a node, and no taint keeps pods away.
fn takes_pods(node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let claim = text(&labels[CLAIM]);
    let Some((space, module)) = claim.split_once('.') else { return false };
    let of = ModuleName::new(space, module);
    labels[of.version_ready()].is_string()
        && labels[of.version_ready()] == labels[of.version_module()]
        && !node["spec"]["taints"].to_string().contains("tholepin")
}

/// A device plugin that offers devices under this name.
fn offering(device: &str) -> Value {
    json!({ "image": "registry.example/plugin:1", "resourceNames": [device], "args": [device] })
}

/// Pods that use devices.
fn pods(client: &Client) -> Api<DynamicObject> {
    objects(client, "v1", "Pod", Some(SPACES[0]))
}

/// It is gone at once, if it was there.
async fn end_pod(client: &Client, name: &str) {
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let _ = pods(client).delete(name, &params).await;
}

/// Kubelets, as far as it matters: a pod that is deleted ends a moment later.
async fn end_pods(client: Client) {
    loop {
        let all = pods(&client).list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for pod in all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            end_pod(&client, &pod.metadata.name.unwrap_or_default()).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn selects(config: &Value, node: &Value) -> bool {
    match config["spec"]["nodeSelector"].as_object() {
        Some(wanted) => wanted.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value),
        None => config["spec"]["allNodes"] == true,
    }
}

/// Namespace and name of a DeviceConfig's Module.
fn module_of(config: &Value) -> (String, String) {
    let (space, name) = (text(&config["metadata"]["namespace"]), text(&config["metadata"]["name"]));
    let module = api::hardware::module_name(&space, &name).unwrap();
    (space, module)
}

fn claim_of(config: &Value) -> String {
    let (space, module) = module_of(config);
    api::hardware::claim(&space, &module)
}

/// What is not as a DeviceConfig asks, or says.
fn wrong_config(config: &Value, nodes: &[Value]) -> Option<String> {
    let claim = claim_of(config);
    let (space, module) = module_of(config);
    let of = ModuleName::new(&space, &module);
    let matching: Vec<&Value> = nodes.iter().filter(|node| selects(config, node)).collect();
    let ours: Vec<&Value> = nodes.iter().filter(|node| node["metadata"]["labels"][CLAIM] == claim).collect();
    let version = &config["spec"]["driverVersion"];
    let has_all = ours.iter().all(|node| {
        let labels = &node["metadata"]["labels"];
        labels[of.version_ready()] == *version && labels[of.version_module()] == *version
    });
    let counts = ["matching", "claimed", "ready"].map(|counter| count(config, counter));
    let wanted = [matching.len(), ours.len(), ours.len()].map(|count| i64::try_from(count).unwrap());
    let lost = matching.len() > ours.len();
    let told = if ours.is_empty() { is(config, "Ready", "False", "") } else { is_ready(config) };
    let valid = is(config, "NodeSelectorValid", if lost { "False" } else { "True" }, "");
    let right = has_all && counts == wanted && told && valid;
    (!right).then(|| {
        format!("{claim}: nodes have it: {has_all}, {counts:?} instead of {wanted:?}, {}", config["status"])
    })
}

/// What is not as it should be about a node.
fn wrong_node(node: &Value, configs: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let (name, labels) = (text(&node["metadata"]["name"]), &node["metadata"]["labels"]);
    let can: Vec<String> = configs.iter().filter(|config| selects(config, node)).map(claim_of).collect();
    let claim = labels[CLAIM].as_str().map(str::to_owned);
    if claim.as_ref().map_or(!can.is_empty(), |claim| !can.contains(claim)) {
        wrong.push(format!("{name} has {claim:?}, may have {can:?}"));
    }
    let keys = labels.as_object().unwrap().keys();
    let versions = keys.filter(|key| key.starts_with("kmm.node.kubernetes.io/version-module.")).count();
    if versions != usize::from(!can.is_empty()) {
        wrong.push(format!("{name} has {versions} versions: {labels}"));
    }
    if node["spec"]["taints"].is_array() {
        wrong.push(format!("{name} has taints: {}", node["spec"]["taints"]));
    }
    wrong
}
