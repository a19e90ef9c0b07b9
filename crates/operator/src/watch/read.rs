//! Objects from watches, reduced to what controllers read.
//!
//! In: whole objects. Out: the values of the cluster state. Never: an error that stops a watch.

use api::numaresources::operator::PoolCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use runtime::watch::Event;
use runtime::wire::Raw;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster_state::{MachineConfigPool, TlsProfile, Unreadable};
use crate::kubeletconfig::payload::texts;
use crate::tls;

/// Metadata that is not read and may be longer than all the rest.
const LEFT_OUT: [&str; 2] = ["managedFields", "selfLink"];
/// An annotation that repeats the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A user's object, or why it cannot be read.
///
/// # Errors
/// Never: an unreadable object is known to exist.
#[expect(clippy::unnecessary_wraps, reason = "watches call it where others may fail")]
pub(super) fn request<T: DeserializeOwned>(raw: Raw) -> Result<(String, Result<T, Unreadable>), String> {
    let Raw { meta, body: mut object } = raw;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    let uid = meta.uid.unwrap_or_default();
    let read = serde_json::from_value(object).map_err(|error| Unreadable { uid, reason: error.to_string() });
    Ok((meta.name.unwrap_or_default(), read))
}

/// A MachineConfigPool. Fields of an unexpected type are left out.
pub(super) fn pool(object: &Value) -> MachineConfigPool {
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

/// Takes an event of the APIServer `cluster`; without that object the profile is Intermediate. Returns whether the
/// profile changed.
pub(super) fn tls(known: &mut Option<TlsProfile>, event: Event<Raw>) -> bool {
    let server = match event {
        Event::Reset { objects, .. } => objects.into_iter().next().map(|raw| raw.body),
        Event::Applied(raw) => Some(raw.body),
        Event::Deleted(_) | Event::Unreadable { .. } => None,
    };
    let requested = match server.map_or_else(|| Ok(tls::intermediate()), |server| tls::requested(&server)) {
        Ok(requested) => requested,
        Err(error) if known.is_some() => {
            tracing::warn!(%error, "the TLS profile is invalid; the former one stays in effect");
            return false;
        }
        Err(error) => {
            tracing::warn!(%error, "the TLS profile is invalid; Intermediate is used");
            tls::intermediate()
        }
    };
    let changed = known.as_ref() != Some(&requested.profile);
    if changed {
        let tls::Requested { profile, unknown } = requested;
        tracing::info!(min_version = profile.min_version, ignored = ?unknown, "the cluster's TLS profile changed");
        *known = Some(profile);
    }
    changed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler};
    use serde_json::json;

    use super::*;

    fn request<T: DeserializeOwned>(object: Value) -> Result<T, Unreadable> {
        super::request(Raw::deserialize(object).unwrap()).unwrap().1
    }

    #[test]
    fn requests_are_read_or_unreadable() {
        let object = json!({
            "metadata": {
                "name": "numaresourcesoperator",
                "managedFields": [{ "manager": "kubectl" }],
                "annotations": { LAST_APPLIED: "{}", "a": "b" },
            },
            "spec": { "nodeGroups": [{ "poolName": "worker" }] },
        });
        let read = request::<NumaResourcesOperator>(object).unwrap();
        assert_eq!(read.spec.node_groups[0].pool_name.as_deref(), Some("worker"));
        assert_eq!(read.metadata.managed_fields, None);
        assert_eq!(read.metadata.annotations, Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])));
        let odd = json!({ "metadata": { "name": "x", "uid": "u" }, "spec": { "cacheResyncPeriod": "soon" } });
        let error = request::<NumaResourcesScheduler>(odd).unwrap_err();
        assert!(error.reason.contains("soon") && error.uid == "u", "{error:?}");
    }

    #[test]
    fn the_read_fields_of_a_pool_are_kept() {
        let object = json!({
            "metadata": { "name": "worker", "labels": { "a": "1" } },
            "spec": { "paused": true, "nodeSelector": { "matchLabels": { "r": "" } } },
            "status": {
                "configuration": { "name": "rendered-1", "source": [{ "name": "51-x" }, { "name": "00-worker" }] },
                "conditions": [{ "type": "Updated", "status": "True", "lastTransitionTime": null, "reason": "", "message": "" }],
            },
        });
        let read = pool(&object);
        assert!(read.paused && read.machine_config_selector.is_none());
        assert_eq!(read.labels, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        assert_eq!(read.node_selector.unwrap().match_labels.unwrap().len(), 1);
        assert_eq!(read.sources.iter().map(String::as_str).collect::<Vec<_>>(), ["00-worker", "51-x"]);
        assert_eq!(
            (read.conditions[0].kind.as_str(), read.conditions[0].status.as_str()),
            ("Updated", "True")
        );
        assert_eq!(pool(&json!({})), MachineConfigPool::default());
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
        // Custom without a profile is invalid.
        check(
            Event::Reset { objects: vec![server("Custom")], vanished: vec![], served: true },
            true,
            "VersionTLS12",
        );
        check(Event::Applied(server("Modern")), true, "VersionTLS13");
        check(Event::Applied(server("Modern")), false, "VersionTLS13");
        check(Event::Applied(server("Custom")), false, "VersionTLS13");
        check(Event::Deleted(server("Modern")), true, "VersionTLS12");
    }
}
