//! KubeletConfigs: which are valid, which of them a pool has.
//!
//! In: KubeletConfigs and pools. Out: the status of each, and the newest valid one of a pool. Never: an invalid one in
//! place of what was valid before.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};

use super::world::{Kind, World};

/// How many conditions are kept; the last one is the current one.
const CONDITIONS: usize = 3;

/// Fields that a KubeletConfig may not have.
const FORBIDDEN: [&str; 7] = [
    "cgroupDriver",
    "clusterDNS",
    "clusterDomain",
    "failSwapOn",
    "featureGates",
    "memorySwap",
    "staticPodPath",
];

/// Fields that are words.
const WORDS: [&str; 5] = [
    "cpuManagerPolicy",
    "memoryManagerPolicy",
    "reservedSystemCPUs",
    "topologyManagerPolicy",
    "topologyManagerScope",
];

/// The last valid content of each KubeletConfig, which counts until there is another.
#[derive(Clone, Debug, Default)]
pub(super) struct Accepted(BTreeMap<String, Content>);

#[derive(Clone, Debug)]
struct Content {
    /// The place among all that were ever accepted.
    number: usize,
    name: String,
    spec: Value,
}

impl Accepted {
    /// Takes over what is valid, and forgets what is gone.
    pub(super) fn update(&mut self, world: &World) {
        let mut all: Vec<&DynamicObject> = world.all(Kind::KubeletConfig).collect();
        all.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
        let known = |uid: &String| all.iter().any(|object| object.uid().as_ref() == Some(uid));
        self.0.retain(|uid, _| known(uid));
        for object in all.iter().filter(|object| verdict(object, world).is_ok()) {
            let next = self.0.values().map(|content| content.number + 1).max().unwrap_or_default();
            let uid = object.uid().unwrap_or_default();
            let number = self.0.get(&uid).map_or(next, |content| content.number);
            let (name, spec) = (object.name_any(), object.data["spec"].clone());
            self.0.insert(uid, Content { number, name, spec });
        }
    }

    /// The name and content of the KubeletConfig that a pool has: the newest, alone.
    pub(super) fn of(&self, pool: &DynamicObject) -> Option<(&str, &Value)> {
        let own = self.0.values().filter(|content| selects(&content.spec, pool));
        let newest = own.max_by_key(|content| content.number)?;
        Some((&newest.name, &newest.spec))
    }
}

/// What is wrong with it.
fn verdict(object: &DynamicObject, world: &World) -> Result<(), String> {
    let spec = &object.data["spec"];
    if let Some(level) = spec["logLevel"].as_i64().filter(|level| !(1..=10).contains(level)) {
        return Err(format!("KubeletConfig's LogLevel is not valid [1,10]: {level}"));
    }
    let kubelet = &spec["kubeletConfig"];
    if let Some(field) =
        WORDS.into_iter().find(|field| !kubelet[field].is_null() && !kubelet[field].is_string())
    {
        let value = &kubelet[field];
        return Err(format!("KubeletConfig could not be unmarshalled, err: {field} is no string: {value}"));
    }
    if let Some(field) = FORBIDDEN.into_iter().find(|field| !kubelet[field].is_null()) {
        let value = &kubelet[field];
        return Err(format!("KubeletConfiguration: {field} is not allowed to be set, but contains: {value}"));
    }
    if spec["autoSizingReserved"] == true && kubelet["systemReserved"].is_object() {
        return Err(
            "KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together".to_owned()
        );
    }
    if !world.all(Kind::Pool).any(|pool| selects(spec, pool)) {
        return Err(format!("KubeletConfig {} does not match any MachineConfigPools", object.name_any()));
    }
    Ok(())
}

/// The status of a KubeletConfig, if it is another than the one that is there.
pub(super) fn status(object: &DynamicObject, world: &World, now: Timestamp) -> Option<Value> {
    let (kind, holds, message) = match verdict(object, world) {
        Ok(()) => ("Success", "True", "Success".to_owned()),
        Err(error) => ("Failure", "False", format!("Error: {error}")),
    };
    let status = &object.data["status"];
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_said = conditions.last().is_some_and(|last| last["message"] == message);
    if is_said && status["observedGeneration"].as_i64() == object.metadata.generation {
        return None;
    }
    if is_said {
        conditions.pop();
    }
    conditions.push(json!({
        "type": kind,
        "status": holds,
        "message": message,
        "lastTransitionTime": format!("{now:.0}"),
    }));
    let extra = conditions.len().saturating_sub(CONDITIONS);
    conditions.drain(..extra);
    Some(json!({ "conditions": conditions, "observedGeneration": object.metadata.generation }))
}

/// Whether a KubeletConfig asks for this pool. An empty selector asks for none.
fn selects(spec: &Value, pool: &DynamicObject) -> bool {
    selector(&spec["machineConfigPoolSelector"]).is_some_and(|selector| selector.matches(pool.labels()))
}

/// A label selector of an object; `None`: it selects nothing.
pub(super) fn selector(stated: &Value) -> Option<Selector> {
    let stated: LabelSelector = serde_json::from_value(stated.clone()).ok()?;
    Selector::try_from(stated).ok().filter(|selector| !selector.selects_all())
}
