//! Objects of kinds without a type of their own, read.
//!
//! In: whole objects. Out: what of them matters. Never: an error that stops a watch.

use std::collections::BTreeMap;

use api::numaresources::operator::PoolCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use runtime::watch::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::take::Named;
use crate::tls;
use crate::world::{KubeletConfig, MachineConfigPool, NodePoolConfig, TlsProfile, Unreadable};
use runtime::wire::Raw;

/// Metadata nobody reads, which may be longer than all the rest.
const LEFT_OUT: [&str; 2] = ["managedFields", "selfLink"];
/// An annotation that repeats the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reads every object of an event.
pub(super) fn each<T>(event: Event<Raw>, read: impl Fn(Value) -> T) -> Event<Named<T>> {
    let named = |raw: Raw| Named {
        name: raw.text("/metadata/name").unwrap_or_default().to_owned(),
        value: read(raw.body),
    };
    match event {
        Event::Reset { objects, vanished } => {
            Event::Reset { objects: objects.into_iter().map(named).collect(), vanished }
        }
        Event::Applied(raw) => Event::Applied(named(raw)),
        Event::Deleted(raw) => Event::Deleted(named(raw)),
        Event::Unreadable { key, reason } => Event::Unreadable { key, reason },
    }
}

/// What a user asks for.
///
/// # Errors
/// What in it makes no sense.
pub(super) fn asked<T: DeserializeOwned>(mut object: Value) -> Result<T, Unreadable> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    serde_json::from_value(object).map_err(|error| Unreadable { uid, reason: error.to_string() })
}

/// A MachineConfigPool. What is not as expected counts as not there.
pub(super) fn pool(object: Value) -> MachineConfigPool {
    let selector = |field: &str| LabelSelector::deserialize(&object["spec"][field]).ok();
    let sources = object["status"]["configuration"]["source"].as_array();
    let sources = sources.into_iter().flatten().filter_map(|one| one["name"].as_str());
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    MachineConfigPool {
        labels: texts(&object["metadata"]["labels"]),
        machine_config_selector: selector("machineConfigSelector"),
        node_selector: selector("nodeSelector"),
        paused: object["spec"]["paused"].as_bool().unwrap_or(false),
        sources: sources.map(str::to_owned).collect(),
        conditions: conditions.filter_map(|one| PoolCondition::deserialize(one).ok()).collect(),
    }
}

/// An OpenShift KubeletConfig.
pub(super) fn kubelet_config(object: Value) -> KubeletConfig {
    crate::kubeletconfig::payload::kubelet_config(&object)
}

/// A ConfigMap with HyperShift's KubeletConfig.
pub(super) fn node_pool_config(object: Value) -> NodePoolConfig {
    let labels = texts(&object["metadata"]["labels"]);
    let data = object["data"].is_object().then(|| texts(&object["data"]));
    crate::kubeletconfig::payload::node_pool_config(Some(&labels), data.as_ref())
}

/// The wish of the APIServer `cluster`; without that object, the usual.
pub(super) fn tls(known: &mut Option<TlsProfile>, event: Event<Raw>) -> bool {
    let server = match event {
        Event::Reset { objects, .. } => objects.into_iter().next().map(|raw| raw.body),
        Event::Applied(raw) => Some(raw.body),
        Event::Deleted(_) | Event::Unreadable { .. } => None,
    };
    let wish = match server.map_or_else(|| Ok(tls::intermediate()), |server| tls::wish(&server)) {
        Ok(wish) => wish,
        Err(error) if known.is_some() => {
            tracing::warn!(%error, "the TLS profile stays what it was");
            return false;
        }
        Err(error) => {
            tracing::warn!(%error, "the TLS profile is taken to be Intermediate");
            tls::intermediate()
        }
    };
    let changed = known.as_ref() != Some(&wish.profile);
    if changed {
        let tls::Wish { profile, unknown } = wish;
        tracing::info!(min_version = profile.min_version, ignored = ?unknown, "TLS profile of the cluster");
        *known = Some(profile);
    }
    changed
}

fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_users_ask_for_is_read_or_said_to_be_odd() {
        let object = json!({
            "metadata": {
                "name": "numaresourcesoperator",
                "managedFields": [{ "manager": "kubectl" }],
                "annotations": { LAST_APPLIED: "{}", "a": "b" },
            },
            "spec": { "nodeGroups": [{ "poolName": "worker" }] },
        });
        let read: NumaResourcesOperator = asked(object).unwrap();
        assert_eq!(read.spec.node_groups[0].pool_name.as_deref(), Some("worker"));
        assert_eq!(read.metadata.managed_fields, None);
        assert_eq!(read.metadata.annotations, Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])));
        let odd = json!({ "metadata": { "name": "x", "uid": "u" }, "spec": { "cacheResyncPeriod": "soon" } });
        let error = asked::<NumaResourcesScheduler>(odd).unwrap_err();
        assert!(error.reason.contains("soon") && error.uid == "u", "{error:?}");
    }

    #[test]
    fn of_a_pool_what_matters_is_kept() {
        let object = json!({
            "metadata": { "name": "worker", "labels": { "a": "1" } },
            "spec": { "paused": true, "nodeSelector": { "matchLabels": { "r": "" } } },
            "status": {
                "configuration": { "name": "rendered-1", "source": [{ "name": "51-x" }, { "name": "00-worker" }] },
                "conditions": [{ "type": "Updated", "status": "True", "lastTransitionTime": null, "reason": "", "message": "" }],
            },
        });
        let read = pool(object);
        assert!(read.paused && read.machine_config_selector.is_none());
        assert_eq!(read.labels, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        assert_eq!(read.node_selector.unwrap().match_labels.unwrap().len(), 1);
        assert_eq!(read.sources.iter().map(String::as_str).collect::<Vec<_>>(), ["00-worker", "51-x"]);
        assert_eq!(
            (read.conditions[0].kind.as_str(), read.conditions[0].status.as_str()),
            ("Updated", "True")
        );
        assert_eq!(pool(json!({})), MachineConfigPool::default());
    }

    #[test]
    fn the_tls_profile_follows_the_object() {
        let mut known = None;
        let server = |kind: &str| {
            Raw::deserialize(json!({
                "metadata": { "name": "cluster" },
                "spec": { "tlsSecurityProfile": { "type": kind } },
            }))
            .unwrap()
        };
        let mut check = |event: Event<Raw>, changed: bool, version: &str| {
            assert_eq!(tls(&mut known, event), changed);
            assert_eq!(known.as_ref().unwrap().min_version, version);
        };
        // Custom without more makes no sense.
        check(Event::Reset { objects: vec![server("Custom")], vanished: vec![] }, true, "VersionTLS12");
        check(Event::Applied(server("Modern")), true, "VersionTLS13");
        check(Event::Applied(server("Modern")), false, "VersionTLS13");
        check(Event::Applied(server("Custom")), false, "VersionTLS13");
        check(Event::Deleted(server("Modern")), true, "VersionTLS12");
    }
}
