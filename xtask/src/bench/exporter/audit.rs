//! Every write of an NRT object that reached the API server, refused ones too, from its audit log: nothing sits between exporter and server, so
//! that TLS and latency are the real ones.
//!
//! In: the log. Out: who wrote when and how many bytes the request's body had. Never: reads, or writes of other kinds.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use anyhow::Context;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The audit log of an API server.
#[derive(Debug)]
pub(super) struct Audit {
    dir: TempDir,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    /// The object.
    pub(super) name: String,
    /// When the server had received it.
    pub(super) at: Timestamp,
    /// Size of the body as compact JSON.
    pub(super) bytes: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    request_received_timestamp: Timestamp,
    object_ref: ObjectRef,
    request_object: Option<Value>,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    name: String,
}

impl Audit {
    /// A place for the log; [`Audit::flags`] make an API server write it.
    pub(super) fn new() -> anyhow::Result<Self> {
        let audit = Self { dir: TempDir::new()? };
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                {
                    "level": "Request",
                    "verbs": ["create", "update", "patch"],
                    "resources": [{ "group": "topology.node.k8s.io", "resources": ["noderesourcetopologies"] }],
                },
                { "level": "None" },
            ],
        });
        fs::write(audit.path("policy.json"), policy.to_string())?;
        Ok(audit)
    }

    /// Flags of kube-apiserver.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.path("policy.json").display()),
            format!("--audit-log-path={}", self.path("log").display()),
        ]
    }

    /// All writes of the object `name` so far.
    pub(super) fn writes(&self, name: &str) -> anyhow::Result<Vec<Write>> {
        let path = self.path("log");
        // Nothing was written yet.
        let Ok(file) = File::open(&path) else { return Ok(Vec::new()) };
        let mut writes = Vec::new();
        for line in BufReader::new(file).lines() {
            let write = parse(&line?).with_context(|| format!("audit log {}", path.display()))?;
            writes.extend((write.name == name).then_some(write));
        }
        Ok(writes)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn parse(line: &str) -> anyhow::Result<Write> {
    let entry: Entry = serde_json::from_str(line)?;
    let body = entry.request_object.unwrap_or_default();
    // A create names its object in the body only.
    let named = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let name = if entry.object_ref.name.is_empty() { named } else { entry.object_ref.name };
    Ok(Write { name, at: entry.request_received_timestamp, bytes: body.to_string().len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_write() {
        let line = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "verb": "patch", "user": {},
            "objectRef": { "resource": "noderesourcetopologies", "name": "node-0" },
            "responseStatus": { "metadata": {}, "code": 200 },
            "requestObject": { "zones": [1] },
            "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z",
        });
        let write = parse(&line.to_string()).unwrap();
        let at = "2026-01-02T03:04:05.000006Z".parse().unwrap();
        assert_eq!(write, Write { name: "node-0".to_owned(), at, bytes: r#"{"zones":[1]}"#.len() });
    }

    #[test]
    fn a_create_is_named_by_its_body_and_a_conflict_counts() {
        let line = json!({
            "objectRef": { "resource": "noderesourcetopologies" },
            "responseStatus": { "code": 409 },
            "requestObject": { "metadata": { "name": "node-1" } },
            "requestReceivedTimestamp": "2026-01-02T03:04:05Z",
        });
        assert_eq!(parse(&line.to_string()).unwrap().name, "node-1");
    }
}
