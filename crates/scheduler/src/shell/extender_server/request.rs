//! Requests of another scheduler, as JSON.
//!
//! In: the body of a call. Out: the pod, the nodes, candidates for a preemption. Never: a field by its case.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::PodView;
use crate::extender::MetaVictims;
pub(super) use crate::shell::extenders::field;
use crate::shell::extenders::uids;

/// The nodes of a request.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) names: Vec<Arc<str>>,
    /// The objects by name, if the other scheduler sends and expects them (not `nodeCacheCapable`).
    objects: Option<BTreeMap<Arc<str>, Value>>,
}

impl Nodes {
    /// A list of these nodes, if the request has one.
    pub(super) fn whole(mut self, names: &[Arc<str>]) -> Option<Value> {
        let objects = self.objects.as_mut()?;
        let items: Vec<Value> = names.iter().filter_map(|name| objects.remove(name)).collect();
        Some(json!({ "metadata": {}, "items": items }))
    }
}

/// The pod of a request.
pub(super) fn pod(request: &Value) -> Result<PodView, String> {
    let object = field(request, "Pod");
    let pod: Pod = serde_path_to_error::deserialize(object).map_err(|error| format!("Pod: {error}"))?;
    Ok(PodView::read(&pod))
}

/// The nodes of a request, whole or by name.
pub(super) fn nodes(request: &Value) -> Result<Nodes, String> {
    if let Some(names) = field(request, "NodeNames").as_array() {
        return Ok(Nodes {
            names: names.iter().filter_map(Value::as_str).map(Arc::from).collect(),
            objects: None,
        });
    }
    let items = field(field(request, "Nodes"), "items").as_array();
    let items = items.ok_or("neither NodeNames nor Nodes is given")?;
    let named =
        items.iter().filter_map(|node| Some((Arc::from(node["metadata"]["name"].as_str()?), node.clone())));
    let objects: BTreeMap<Arc<str>, Value> = named.collect();
    let names = items.iter().filter_map(|node| node["metadata"]["name"].as_str()).map(Arc::from).collect();
    Ok(Nodes { names, objects: Some(objects) })
}

/// The candidates of a preemption, with the uids of their victims.
pub(super) fn candidates(request: &Value) -> BTreeMap<Arc<str>, MetaVictims> {
    let by_uid = field(request, "NodeNameToMetaVictims").as_object().into_iter().flatten();
    let found: BTreeMap<Arc<str>, MetaVictims> =
        by_uid.map(|(node, victims)| (Arc::from(&**node), uids(victims))).collect();
    if !found.is_empty() {
        return found;
    }
    let whole = field(request, "NodeNameToVictims").as_object().into_iter().flatten();
    let victims = |victims: &Value| {
        let pods = field(victims, "Pods").as_array().into_iter().flatten();
        MetaVictims {
            pods: pods.filter_map(|pod| pod["metadata"]["uid"].as_str()).map(Arc::from).collect(),
            violations: uids(victims).violations,
        }
    };
    whole.map(|(node, listed)| (Arc::from(&**node), victims(listed))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_by_name_or_whole() {
        let names = |request: Value| nodes(&request).map(|nodes| nodes.names.join(" "));
        assert_eq!(names(json!({ "NodeNames": ["a", "b"], "Nodes": null })), Ok("a b".to_owned()));
        let whole = json!({ "nodes": { "items": [{ "metadata": { "name": "a" } }, { "metadata": { "name": "b" } }] } });
        assert_eq!(names(whole.clone()), Ok("a b".to_owned()));
        let kept = nodes(&whole).unwrap().whole(&["b".into()]).unwrap();
        assert_eq!(kept["items"], json!([{ "metadata": { "name": "b" } }]));
        assert!(nodes(&json!({})).is_err());
    }

    #[test]
    fn victims_come_by_uid_or_whole() {
        let wanted = MetaVictims { pods: vec!["u".into()], violations: 1 };
        let whole = json!({ "n": { "Pods": [{ "metadata": { "uid": "u" } }], "NumPDBViolations": 1 } });
        let by_uid = json!({ "n": { "Pods": [{ "UID": "u" }], "NumPDBViolations": 1 } });
        for request in [
            json!({ "NodeNameToVictims": whole }),
            json!({ "NodeNameToMetaVictims": by_uid, "NodeNameToVictims": {} }),
        ] {
            assert_eq!(candidates(&request), [("n".into(), wanted.clone())].into(), "{request}");
        }
    }
}
