//! Records of schedulers about their caches.
//!
//! In: the pods of the operator's scheduler, nodes. Out: for each node whether scheduler and exporter count the same
//! pods, according to the newest record. Never: an answer about a node without a record.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use runtime::client::{self, Container, brief};
use serde_json::Value;

/// The operator's label.
const SCHEDULERS: &str = "app=secondary-scheduler";
/// The environment variable with the directory of the records.
const DUMP: &str = "PFP_STATUS_DUMP";
const MAX_BYTES: usize = 16 << 20;

/// By node whether the caches are in sync. The second value has notes about unreadable records.
pub(super) async fn read(client: &Client, nodes: &[String]) -> (BTreeMap<String, bool>, Vec<String>) {
    let (mut known, mut notes) = (BTreeMap::new(), Vec::new());
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = match pods.list(&ListParams::default().labels(SCHEDULERS)).await {
        Ok(pods) => pods.items,
        Err(error) => {
            notes.push(format!("pods with {SCHEDULERS}: {}", brief(&error)));
            return (known, notes);
        }
    };
    for pod in &pods {
        let Some((container, folder)) = dump(pod) else { continue };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        for node in nodes {
            let file = format!("{}/{}", folder.trim_end_matches('/'), node.replace('.', "_"));
            let at = Container { node: &on, namespace: &namespace, pod: &name, name: container };
            match client::exec(client, at, &["cat", &file], MAX_BYTES).await {
                Ok(text) => match in_step(&text) {
                    // One scheduler out of sync is enough.
                    Ok(Some(clean)) => *known.entry(node.clone()).or_insert(true) &= clean,
                    Ok(None) => {}
                    Err(reason) => notes.push(format!("{file} of {namespace}/{name}: {reason}")),
                },
                // Replicas that do not lead have no cache.
                Err(error) if brief(&error).contains("No such file") => {}
                Err(error) => notes.push(format!("{file} of {namespace}/{name}: {}", brief(&error))),
            }
        }
    }
    (known, notes)
}

/// The container that writes records, and the directory.
fn dump(pod: &Pod) -> Option<(&str, &str)> {
    let running = pod.status.as_ref()?.phase.as_deref() == Some("Running");
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.find_map(|container| {
        let value = container.env.iter().flatten().find(|env| env.name == DUMP)?.value.as_deref()?;
        running.then_some((container.name.as_str(), value))
    })
}

/// Whether the fingerprints of the newest record are equal. A file has a list of records or a single one.
fn in_step(text: &str) -> Result<Option<bool>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let records = match value {
        Value::Array(records) => records,
        Value::Object(_) => vec![value],
        _ => return Err("not a list of fingerprint records".to_owned()),
    };
    let field =
        |record: &Value, name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let time = |record: &&Value| field(record, "recordTime").parse::<jiff::Timestamp>().ok();
    let newest = records.iter().max_by_key(time);
    Ok(newest.map(|record| field(record, "fingerprintExpected") == field(record, "fingerprintComputed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_record_counts() {
        // B-31.
        let record = |expected: &str, second: u32| {
            format!(
                r#"{{"fingerprintExpected":"{expected}","fingerprintComputed":"A","recordTime":"2025-01-01T00:00:{second:02}Z"}}"#
            )
        };
        let check = |text: &str, wanted: Result<Option<bool>, ()>| {
            assert_eq!(in_step(text).map_err(drop), wanted, "{text}");
        };
        check("[]", Ok(None));
        check(&record("A", 1), Ok(Some(true)));
        check(&record("B", 1), Ok(Some(false)));
        check(&format!("[{},{}]", record("B", 1), record("A", 2)), Ok(Some(true)));
        check(&format!("[{},{}]", record("B", 2), record("A", 1)), Ok(Some(false)));
        check("", Err(()));
        check("1", Err(()));
    }
}
