//! Every write of an NRT object that reached the API server, refused ones too, from its audit log: nothing sits
//! between exporter and server, so that TLS and latency are the real ones.
//!
//! In: the log. Out: who wrote when and how many bytes the request's body had. Never: reads, or writes of other kinds.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;
use testkit::audit;

/// The audit log of an API server.
#[derive(Debug)]
pub(super) struct Audit {
    log: audit::Audit,
    _dir: TempDir,
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

impl Audit {
    /// A place for the log; [`Audit::flags`] make an API server write it.
    pub(super) fn new() -> anyhow::Result<Self> {
        let dir = TempDir::new()?;
        let rules = json!([
            {
                "level": "Request",
                "verbs": ["create", "update", "patch"],
                "resources": [{ "group": "topology.node.k8s.io", "resources": ["noderesourcetopologies"] }],
            },
            { "level": "None" },
        ]);
        Ok(Self { log: audit::Audit::new(dir.path(), &rules)?, _dir: dir })
    }

    /// Flags of kube-apiserver.
    pub(super) fn flags(&self) -> Vec<String> {
        self.log.flags().to_vec()
    }

    /// All writes of the object `name` so far.
    pub(super) fn writes(&self, name: &str) -> anyhow::Result<Vec<Write>> {
        let mut requests = self.log.requests()?;
        requests.retain(|request| request.name() == name);
        Ok(requests.iter().map(Write::of).collect())
    }
}

impl Write {
    fn of(request: &audit::Request) -> Self {
        let bytes = request.request_object.to_string().len();
        Self { name: request.name().to_owned(), at: request.received, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_as_long_as_its_body() {
        let line = json!({
            "verb": "patch", "objectRef": { "resource": "noderesourcetopologies", "name": "node-0" },
            "requestObject": { "zones": [1] }, "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z",
        });
        let write = Write::of(&serde_json::from_value(line).unwrap());
        let at = "2026-01-02T03:04:05.000006Z".parse().unwrap();
        assert_eq!(write, Write { name: "node-0".to_owned(), at, bytes: r#"{"zones":[1]}"#.len() });
    }
}
