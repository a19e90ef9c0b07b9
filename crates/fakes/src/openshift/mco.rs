//! A fake of the Machine Config Operator, which rolls out when and as far as a test wants.
//!
//! In: the MachineConfigs and MachineConfigPools of an API server, and a behaviour for each pool. Out: pools whose
//! `spec.configuration` names what their selector takes, and whose status gets there one machine at a time.
//! Never: a wait: the next step comes as soon as the last one is seen, unless the pool is held.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, Selector, SelectorExt as _};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Who writes.
const MANAGER: &str = "machine-config-controller";

/// The scripted operator; dropping it ends it, and pools stay as they are.
pub struct Mco {
    client: Client,
    behaviour: watch::Sender<BTreeMap<String, PoolBehaviour>>,
    task: JoinHandle<()>,
}

/// How the fake treats a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolBehaviour {
    /// What its selector takes is rolled out, unless it is paused.
    #[default]
    RollOut,
    /// It is updating, and stays so.
    Hold,
    /// One of its machines fails; nothing goes on.
    Degrade,
}

/// A MachineConfig, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Config {
    labels: BTreeMap<String, String>,
    /// Changes with its content.
    generation: (String, i64),
}

/// What to write next.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `spec.configuration`: what it is to have.
    Target(Value),
    /// Some fields of its status.
    Status(Value),
}

impl Mco {
    /// Starts it; every pool is rolled out until its behaviour is changed.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        let behaviour = watch::Sender::new(BTreeMap::new());
        let task = tokio::spawn(run(client.clone(), behaviour.subscribe()));
        Self { client: client.clone(), behaviour, task }
    }

    /// Sets the behaviour of a pool from now on.
    pub fn set_behaviour(&self, pool: &str, behaviour: PoolBehaviour) {
        self.behaviour.send_modify(|all| {
            all.insert(pool.to_owned(), behaviour);
        });
    }

    /// Waits until nothing is left to do for the behaviours that are set.
    ///
    /// # Errors
    /// When `within` has passed without, or the API server does not answer.
    pub async fn settled(&self, within: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let configs = api(&self.client, "MachineConfig").list(&ListParams::default()).await?;
            let configs = configs.iter().map(|config| (config.name_any(), Config::of(config))).collect();
            let pools = api(&self.client, "MachineConfigPool").list(&ListParams::default()).await?;
            let behaviour = self.behaviour.borrow().clone();
            let at_work = pools.iter().find(|pool| {
                let behaviour = behaviour.get(&pool.name_any()).copied().unwrap_or_default();
                next(pool, &configs, behaviour, Timestamp::now()).is_some()
            });
            let Some(at_work) = at_work else { return Ok(()) };
            anyhow::ensure!(
                began.elapsed() < within,
                "pool {} is still not settled: {}",
                at_work.name_any(),
                at_work.data
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl fmt::Debug for Mco {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mco").field("behaviour", &*self.behaviour.borrow()).finish_non_exhaustive()
    }
}

impl Drop for Mco {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Config {
    fn of(object: &DynamicObject) -> Self {
        let generation = (object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or_default());
        Self { labels: object.labels().clone(), generation }
    }
}

/// Of a kind of `machineconfiguration.openshift.io`.
fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase());
    let kind = GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, &plural))
}

async fn run(client: Client, mut behaviour: watch::Receiver<BTreeMap<String, PoolBehaviour>>) {
    let of = |kind: &'static str| {
        watcher(api(&client, kind), watcher::Config::default()).map(move |event| (kind, event)).boxed()
    };
    let mut events = stream::select(of("MachineConfig"), of("MachineConfigPool"));
    let (mut configs, mut pools) = (BTreeMap::new(), BTreeMap::new());
    loop {
        let is_whole = tokio::select! {
            event = events.next() => match event {
                Some((kind, Ok(event))) => note(kind, event, &mut configs, &mut pools),
                Some((kind, Err(error))) => {
                    tracing::warn!(kind, %error, "the scripted MCO cannot watch");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    false
                }
                None => return,
            },
            changed = behaviour.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
        };
        if !is_whole {
            continue;
        }
        let behaviour = behaviour.borrow_and_update().clone();
        for (name, pool) in &pools {
            let behaviour = behaviour.get(name).copied().unwrap_or_default();
            if let Some(step) = next(pool, &configs, behaviour, Timestamp::now()) {
                write(&client, pool, step).await;
            }
        }
    }
}

/// Notes an event; says whether all is known of this kind.
fn note(
    kind: &str,
    event: Event<DynamicObject>,
    configs: &mut BTreeMap<String, Config>,
    pools: &mut BTreeMap<String, DynamicObject>,
) -> bool {
    let is_whole = !matches!(event, Event::Init | Event::InitApply(_));
    match (kind, event) {
        (_, Event::InitDone) => {}
        ("MachineConfig", Event::Init) => configs.clear(),
        ("MachineConfig", Event::Delete(object)) => drop(configs.remove(&object.name_any())),
        ("MachineConfig", Event::Apply(object) | Event::InitApply(object)) => {
            configs.insert(object.name_any(), Config::of(&object));
        }
        (_, Event::Init) => pools.clear(),
        (_, Event::Delete(object)) => drop(pools.remove(&object.name_any())),
        (_, Event::Apply(object) | Event::InitApply(object)) => {
            pools.insert(object.name_any(), object);
        }
    }
    is_whole
}

async fn write(client: &Client, pool: &DynamicObject, step: Step) {
    let api = api(client, "MachineConfigPool");
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let name = pool.name_any();
    // A pool that has changed meanwhile is looked at again.
    let metadata = json!({ "resourceVersion": pool.metadata.resource_version });
    let written = match step {
        Step::Target(configuration) => {
            let patch = json!({ "metadata": metadata, "spec": { "configuration": configuration } });
            api.patch(&name, &params, &Patch::Merge(patch)).await
        }
        Step::Status(status) => {
            let patch = json!({ "metadata": metadata, "status": status });
            api.patch_status(&name, &params, &Patch::Merge(patch)).await
        }
    };
    match written.context("writing a pool") {
        Ok(_) => {}
        Err(error) => tracing::debug!(name, %error, "the scripted MCO could not write"),
    }
}

/// The next step on a pool's way to what it shall have; `None` when it is there, or may not go on.
fn next(
    pool: &DynamicObject,
    configs: &BTreeMap<String, Config>,
    behaviour: PoolBehaviour,
    now: Timestamp,
) -> Option<Step> {
    let wanted = rendered(pool, configs)?;
    let (spec, status) = (&pool.data["spec"], &pool.data["status"]);
    if spec["configuration"] != wanted {
        return Some(Step::Target(wanted));
    }
    let machines = status["machineCount"].as_i64().unwrap_or(3);
    let updated = status["updatedMachineCount"].as_i64().unwrap_or_default();
    let is_there = status["configuration"] == wanted;
    let is_updating = condition(status, "Updating") == Some("True");
    let paused = spec["paused"] == true;
    let goes_on = behaviour == PoolBehaviour::RollOut && !paused && !is_there && is_updating;
    let count = match (is_there, is_updating, goes_on) {
        (true, ..) => machines,
        // It begins.
        (_, false, _) => 0,
        (.., true) => updated + 1,
        (.., false) => updated.min(machines - 1),
    };
    let done = is_there || (goes_on && count >= machines);
    let conditions = [
        ("Updated", done && behaviour != PoolBehaviour::Hold),
        ("Updating", behaviour == PoolBehaviour::Hold || (!done && !paused)),
        ("Degraded", behaviour == PoolBehaviour::Degrade),
    ];
    let conditions: Vec<Value> =
        conditions.into_iter().map(|(kind, holds)| stated(status, kind, holds, now)).collect();
    let next = json!({
        "configuration": if done { &wanted } else { &status["configuration"] },
        "conditions": conditions,
        "machineCount": machines,
        "updatedMachineCount": count,
        "readyMachineCount": count,
        "unavailableMachineCount": i64::from(!done && !paused),
        "degradedMachineCount": i64::from(behaviour == PoolBehaviour::Degrade),
        "observedGeneration": pool.metadata.generation,
    });
    let differs = next.as_object()?.iter().any(|(field, value)| status[field] != *value);
    differs.then_some(Step::Status(next))
}

/// What a pool's selector takes, by a name that changes with it.
fn rendered(pool: &DynamicObject, configs: &BTreeMap<String, Config>) -> Option<Value> {
    let selector = pool.data["spec"].get("machineConfigSelector")?;
    let selector: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
    let selector = Selector::try_from(selector).ok()?;
    let taken: Vec<_> = configs.iter().filter(|(_, config)| selector.matches(&config.labels)).collect();
    let mut hasher = DefaultHasher::new();
    for (name, config) in &taken {
        (name, &config.generation).hash(&mut hasher);
    }
    let source: Vec<Value> = taken
        .iter()
        .map(|(name, _)| {
            json!({
                "apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineConfig",
                "name": name,
            })
        })
        .collect();
    let name = format!("rendered-{}-{:032x}", pool.name_any(), hasher.finish());
    Some(json!({ "name": name, "source": source }))
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    let all = status["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// A condition, with its time as it was unless it turns.
fn stated(status: &Value, kind: &str, holds: bool, now: Timestamp) -> Value {
    let word = if holds { "True" } else { "False" };
    let before = status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind);
    let since = before.filter(|before| before["status"] == word).map(|before| &before["lastTransitionTime"]);
    let (reason, message) = match (kind, holds) {
        ("Degraded", true) => {
            ("1 nodes are reporting degraded status on sync", "node-0: as the test wants it")
        }
        _ => ("", ""),
    };
    json!({
        "type": kind,
        "status": word,
        "lastTransitionTime": since.cloned().unwrap_or_else(|| format!("{now:.0}").into()),
        "reason": reason,
        "message": message,
    })
}

#[cfg(test)]
mod tests {
    use super::super::pool;
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn config(role: &str, generation: i64) -> Config {
        let labels = [("machineconfiguration.openshift.io/role".to_owned(), role.to_owned())];
        Config { labels: labels.into(), generation: ("uid".to_owned(), generation) }
    }

    /// Plays a pool until nothing is left to do; says how its status went.
    fn play(
        pool: &mut DynamicObject,
        configs: &BTreeMap<String, Config>,
        behaviour: PoolBehaviour,
    ) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(step) = next(pool, configs, behaviour, NOW) {
            assert!(seen.len() < 20, "it never ends: {seen:?}");
            match step {
                Step::Target(configuration) => pool.data["spec"]["configuration"] = configuration,
                Step::Status(status) => {
                    let of = |kind: &str| condition(&status, kind) == Some("True");
                    let sources = status["configuration"]["source"].as_array().map_or(0, Vec::len);
                    seen.push(format!(
                        "{} updated {} updating {} degraded {} sources {sources}",
                        status["updatedMachineCount"],
                        of("Updated"),
                        of("Updating"),
                        of("Degraded")
                    ));
                    pool.data["status"] = status;
                }
            }
        }
        seen
    }

    #[test]
    fn a_pool_gets_there_one_machine_at_a_time() {
        let mut worker: DynamicObject = serde_json::from_value(pool("worker").body).unwrap();
        let mut configs = BTreeMap::from([("00-master".to_owned(), config("master", 1))]);
        play(&mut worker, &configs, PoolBehaviour::RollOut);
        assert_eq!(play(&mut worker, &configs, PoolBehaviour::RollOut), [""; 0]);
        configs.insert("51-a".to_owned(), config("worker", 1));
        let way = [
            "0 updated false updating true degraded false sources 0",
            "1 updated false updating true degraded false sources 0",
            "2 updated false updating true degraded false sources 0",
            "3 updated true updating false degraded false sources 1",
        ];
        assert_eq!(play(&mut worker, &configs, PoolBehaviour::RollOut), way);
        // Its content counts, and that it goes.
        configs.insert("51-a".to_owned(), config("worker", 2));
        assert_eq!(play(&mut worker, &configs, PoolBehaviour::RollOut).len(), 4);
        configs.remove("51-a");
        assert_eq!(
            play(&mut worker, &configs, PoolBehaviour::RollOut).last().unwrap(),
            "3 updated true updating false degraded false sources 0"
        );
    }

    #[test]
    fn a_pool_stops_where_it_is_told() {
        let configs = BTreeMap::from([("51-a".to_owned(), config("worker", 1))]);
        let start: DynamicObject = serde_json::from_value(pool("worker").body).unwrap();
        let mut paused = start.clone();
        paused.data["spec"]["paused"] = true.into();
        let stopped = ["0 updated false updating false degraded false sources 0"];
        assert_eq!(play(&mut paused, &configs, PoolBehaviour::RollOut), stopped);
        let mut held = start.clone();
        let stopped = ["0 updated false updating true degraded false sources 0"];
        assert_eq!(play(&mut held, &configs, PoolBehaviour::Hold), stopped);
        let mut degraded = start;
        let stopped = ["0 updated false updating true degraded true sources 0"];
        assert_eq!(play(&mut degraded, &configs, PoolBehaviour::Degrade), stopped);
        for mut pool in [paused, held, degraded] {
            pool.data["spec"]["paused"] = false.into();
            let way = play(&mut pool, &configs, PoolBehaviour::RollOut);
            assert_eq!(way.last().unwrap(), "3 updated true updating false degraded false sources 1");
            // A pool that has nothing to do may be held or fail too.
            for behaviour in [PoolBehaviour::Hold, PoolBehaviour::Degrade] {
                assert_eq!(play(&mut pool.clone(), &configs, behaviour).len(), 1, "{behaviour:?}");
            }
        }
    }
}
