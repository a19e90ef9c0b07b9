//! What the programs under test have logged.
//!
//! In: the pods in the namespaces of the stack. Out: their lines since a time, with severities. Never: more than the
//! last lines of a pod, or a failure because a log cannot be read.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;

use crate::cluster::Cluster;

/// Where exporters and schedulers are unless an object of the operator says otherwise: ours, and those of the Go
/// deployer.
const NAMESPACES: [&str; 4] = ["tholepin", "tholepin-scheduler", "tas-topology-updater", "tas-scheduler"];
/// The most bytes and lines of one container's log.
const MOST_BYTES: i64 = 4 << 20;
const MOST_LINES: i64 = 20_000;

/// How bad a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Anything else.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The pod.
    pub pod: String,
    /// How bad it is.
    pub severity: Severity,
    /// The line.
    pub text: String,
}

impl Line {
    fn new(pod: &str, text: &str) -> Self {
        Self { pod: pod.to_owned(), severity: severity(text), text: text.to_owned() }
    }

    /// Whether the API server has refused something.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.text.contains("is forbidden: User")
    }

    /// Whether the pod is a scheduler.
    #[must_use]
    pub fn is_of_scheduler(&self) -> bool {
        self.pod.contains("sched")
    }
}

/// The lines of the stack's pods since a time, pod by pod. A log that cannot be read has no lines.
pub async fn of_stack(cluster: &Cluster, since: Timestamp) -> Vec<Line> {
    let namespaces = namespaces(cluster);
    let state = cluster.observer.now();
    let pods = state.pods.values().filter(|pod| {
        pod.metadata.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace))
    });
    let logs = pods.map(|pod| of_pod(cluster, pod, since));
    join_all(logs).await.into_iter().flatten().collect()
}

async fn of_pod(cluster: &Cluster, pod: &Pod, since: Timestamp) -> Vec<Line> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let mut lines = Vec::new();
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let parameters = LogParams {
            container: Some(container.name.clone()),
            limit_bytes: Some(MOST_BYTES),
            since_time: Some(since),
            tail_lines: Some(MOST_LINES),
            ..LogParams::default()
        };
        let text = api.logs(&name, &parameters).await.unwrap_or_default();
        lines.extend(text.lines().map(|line| Line::new(&name, line)));
    }
    lines
}

/// The namespaces of the stack: those that its objects name, and the usual ones.
fn namespaces(cluster: &Cluster) -> BTreeSet<String> {
    let found = cluster.facts.operator.iter().chain(&cluster.facts.scheduler_object);
    let related = found.flat_map(|found| found.object.data["status"]["relatedObjects"].as_array());
    let named = related.flatten().filter(|object| object["resource"] == "namespaces");
    let named = named.filter_map(|object| object["name"].as_str());
    named.chain(NAMESPACES).map(str::to_owned).collect()
}

/// The severity of a line of klog, of a JSON logger, or of a text logger that writes the level as a word.
fn severity(line: &str) -> Severity {
    let of_word = |word: &str| match word.to_ascii_lowercase().as_str() {
        "warn" | "warning" | "w" => Severity::Warning,
        "error" | "fatal" | "panic" | "dpanic" | "e" | "f" => Severity::Error,
        _ => Severity::Info,
    };
    if line.starts_with('{') {
        let fields: Value = serde_json::from_str(line).unwrap_or_default();
        return fields["level"].as_str().map_or(Severity::Info, of_word);
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    if first.len() == 5 && first.get(1..).is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit())) {
        return first.get(..1).map_or(Severity::Info, of_word);
    }
    // A time, then the level.
    line.split_whitespace().take(2).map(of_word).max().unwrap_or(Severity::Info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_those_of_each_logger() {
        for (line, expected) in [
            ("W1123 10:00:00.000000       1 eventhandlers.go:1] words", Severity::Warning),
            ("E1123 10:00:00.000000       1 leaderelection.go:1] words", Severity::Error),
            ("I1123 10:00:00.000000       1 server.go:1] an error is only a word", Severity::Info),
            ("{\"level\":\"WARN\",\"message\":\"words\"}", Severity::Warning),
            ("{\"level\":\"error\",\"msg\":\"words\"}", Severity::Error),
            ("{\"level\":\"info\",\"msg\":\"error\"}", Severity::Info),
            ("2026-01-01T00:00:00.000000Z  WARN scheduler::core: words", Severity::Warning),
            ("2026-01-01T00:00:00.000000Z ERROR scheduler::core: words", Severity::Error),
            ("2026-01-01T00:00:00.000000Z  INFO scheduler::core: error", Severity::Info),
            ("", Severity::Info),
            ("{", Severity::Info),
        ] {
            assert_eq!(severity(line), expected, "{line}");
        }
    }

    #[test]
    fn a_refusal_of_the_api_server_is_told_apart() {
        let denied =
            "pods \"a\" is forbidden: User \"system:serviceaccount:n:s\" cannot get resource \"pods\"";
        assert!(Line::new("p", denied).is_denied());
        assert!(!Line::new("p", "a pod is forbidden: its namespace ends").is_denied());
    }
}
