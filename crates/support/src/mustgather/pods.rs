//! Data from pods: logs, metrics, records of fingerprints.
//!
//! In: the stack's pods. Out: `namespaces/NAMESPACE/pods/POD/CONTAINER/CONTAINER/logs/{current,previous}.log`,
//! `.../CONTAINER/metrics.prom`, `namespaces/NAMESPACE/pfpstatus/...`. Never: more of a log than the limit; the end is
//! kept.

use std::collections::BTreeSet;

use axum::body::Body;
use futures::StreamExt as _;
use kube::core::Status;
use runtime::client::{self, Container, RawRequest, brief, percent_encode};

use super::stack::{ContainerState, Member, Part, Stack};
use super::{Gatherer, MAX_CONCURRENT};
use crate::pfpsyncchk;

/// Largest status file of a node.
const MAX_RECORD_BYTES: usize = 16 << 20;
/// Largest page of metrics.
const MAX_METRICS_BYTES: usize = 64 << 20;

/// Writes the logs of all containers and of their previous instances.
pub(super) async fn logs(gatherer: &Gatherer, stack: &Stack) {
    let mut wanted = Vec::new();
    for member in &stack.members {
        for inside in member.containers.iter().filter(|inside| inside.started) {
            wanted.push((member, inside, "current"));
            if inside.restarted {
                wanted.push((member, inside, "previous"));
            }
        }
    }
    gatherer.folder.progress(&format!("logs: {}", wanted.len()));
    let fetch = |(member, inside, which): (&Member, &ContainerState, &str)| {
        let (namespace, pod, container) =
            (member.namespace.clone(), member.name.clone(), inside.name.clone());
        let which = which.to_owned();
        async move {
            let path = format!(
                "/api/v1/namespaces/{}/pods/{}/log?container={}&timestamps=true&previous={}",
                percent_encode(&namespace),
                percent_encode(&pod),
                percent_encode(&container),
                which == "previous"
            );
            let file = format!("namespaces/{namespace}/pods/{pod}/{container}/{container}/logs/{which}.log");
            match tail(gatherer, &path, gatherer.log_limit).await {
                Ok(text) => gatherer.folder.write(&file, &text),
                // The runtime may have removed the dead container.
                Err(error) if which == "previous" => {
                    gatherer.folder.progress(&format!("{file}: {}", brief(&error)))
                }
                Err(error) => gatherer.folder.report_missing(&format!("{file}: {}", brief(&error))),
            }
        }
    };
    let fetches: Vec<_> = wanted.into_iter().map(fetch).collect();
    futures::stream::iter(fetches).buffer_unordered(MAX_CONCURRENT).collect::<Vec<()>>().await;
}

/// Fetches the last `limit` bytes of an answer.
pub(super) async fn tail(gatherer: &Gatherer, path: &str, limit: usize) -> Result<Vec<u8>, kube::Error> {
    let broken = |error: &dyn std::error::Error| kube::Error::Service(client::chain(error).into());
    let request = RawRequest::new(Vec::new());
    let (mut parts, _) = request.into_parts();
    parts.uri = path.parse().map_err(|error| broken(&error))?;
    let request = axum::http::Request::from_parts(parts, kube::client::Body::empty());
    let answer = gatherer.client.send(request).await?;
    let status = answer.status();
    let mut stream = Body::new(answer.into_body()).into_data_stream();
    let mut end = Tail::new(limit);
    while let Some(part) = stream.next().await {
        end.push(&part.map_err(|error| broken(&error))?);
    }
    let text = end.finish();
    if !status.is_success() {
        let text: String = String::from_utf8_lossy(&text).chars().take(200).collect();
        return Err(kube::Error::Api(Status::failure(&text, "").with_code(status.as_u16()).boxed()));
    }
    Ok(text)
}

/// The end of a long text.
struct Tail {
    limit: usize,
    bytes: Vec<u8>,
    left_out: u64,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), left_out: 0 }
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
        // Only once the buffer is twice too long, so that each kept byte is copied few times.
        if self.bytes.len() > self.limit.saturating_mul(2) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let more = self.bytes.len().saturating_sub(self.limit);
        self.bytes.drain(..more);
        self.left_out += more as u64;
    }

    /// The kept text, from the start of a line on.
    fn finish(mut self) -> Vec<u8> {
        self.drop_first();
        if self.left_out == 0 {
            return self.bytes;
        }
        let line = self.bytes.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.left_out += line as u64;
        let mut text = format!("[{} bytes before this were left out]\n", self.left_out).into_bytes();
        text.extend_from_slice(&self.bytes[line..]);
        text
    }
}

/// Writes the metrics of exporters, schedulers and the operator.
pub(super) async fn metrics(gatherer: &Gatherer, stack: &Stack) {
    let ports = stack.members.iter().filter(|member| member.running).flat_map(|member| {
        member
            .containers
            .iter()
            .flat_map(move |inside| inside.ports.iter().map(move |port| (member, inside, *port)))
    });
    let fetch = |(member, inside, port): (&Member, &ContainerState, i32)| {
        let (namespace, pod, container) =
            (member.namespace.clone(), member.name.clone(), inside.name.clone());
        async move {
            let title = format!("metrics of {namespace}/{pod} {container}:{port}");
            let mut reasons = Vec::new();
            for scheme in ["http", "https"] {
                let path = format!(
                    "/api/v1/namespaces/{}/pods/{scheme}:{}:{port}/proxy/metrics",
                    percent_encode(&namespace),
                    percent_encode(&pod)
                );
                match client::get_text(&gatherer.client, &path, MAX_METRICS_BYTES).await {
                    Ok(text) => {
                        let file =
                            format!("namespaces/{namespace}/pods/{pod}/{container}/metrics-{port}.prom");
                        return gatherer.folder.write(&file, text.as_bytes());
                    }
                    Err(error) => reasons.push(format!("{scheme}: {}", brief(&error))),
                }
            }
            gatherer.folder.report_missing(&format!("{title}: {}", reasons.join("; ")));
        }
    };
    let fetches: Vec<_> = ports.map(fetch).collect();
    gatherer.folder.progress(&format!("metrics: {}", fetches.len()));
    futures::stream::iter(fetches).buffer_unordered(MAX_CONCURRENT).collect::<Vec<()>>().await;
}

/// A status file to fetch from a container.
struct StatusFile<'a> {
    member: &'a Member,
    container: &'a str,
    dump: &'a str,
    node: String,
    to: String,
}

/// Writes the status files of exporters and schedulers. Those of the leading scheduler are where readers look for them.
pub(super) async fn fingerprints(gatherer: &Gatherer, stack: &Stack, leaders: &BTreeSet<String>) {
    let nodes: BTreeSet<&str> = stack.of(Part::Exporter).map(|member| member.node.as_str()).collect();
    let running = |part| stack.of(part).filter(|member| member.running).filter_map(dump);
    let mut wanted = Vec::new();
    for (member, container, folder) in running(Part::Exporter) {
        wanted.push(record(member, container, folder, &member.node, "resource-topology-exporters"));
    }
    let schedulers: Vec<_> = running(Part::Scheduler).collect();
    let first = schedulers.iter().position(|(member, ..)| leaders.contains(&member.name)).unwrap_or(0);
    for (at, (member, container, folder)) in schedulers.iter().enumerate() {
        let to =
            if at == first { "scheduler".to_owned() } else { format!("scheduler-replicas/{}", member.name) };
        wanted.extend(nodes.iter().map(|node| record(member, container, folder, node, &to)));
    }
    gatherer.folder.progress(&format!("records of fingerprints: {}", wanted.len()));
    if wanted.is_empty() {
        gatherer
            .folder
            .progress("no pod writes status files; set PFP_STATUS_DUMP=FOLDER on exporters and schedulers");
    }
    let read = |wanted: StatusFile<'_>| {
        let (namespace, pod) = (wanted.member.namespace.clone(), wanted.member.name.clone());
        let (node, container) = (wanted.member.node.clone(), wanted.container.to_owned());
        let path = format!("{}/{}", wanted.dump.trim_end_matches('/'), wanted.node);
        let to = wanted.to;
        async move {
            let container = Container { node: &node, namespace: &namespace, pod: &pod, name: &container };
            let answer = client::exec(&gatherer.client, container, &["cat", &path], MAX_RECORD_BYTES).await;
            let title = format!("{path} of {namespace}/{pod}");
            match answer {
                Ok(text) => match pfpsyncchk::parse(&text) {
                    Ok(_) => gatherer.folder.write(&to, text.as_bytes()),
                    Err(reason) => gatherer.folder.report_missing(&format!("{title}: {reason}")),
                },
                // The file has not been written yet.
                Err(error) if brief(&error).contains("No such file") => {
                    gatherer.folder.progress(&format!("{title}: none"))
                }
                Err(error) => gatherer.folder.report_missing(&format!("{title}: {}", brief(&error))),
            }
        }
    };
    let reads: Vec<_> = wanted.into_iter().map(read).collect();
    futures::stream::iter(reads).buffer_unordered(MAX_CONCURRENT).collect::<Vec<()>>().await;
}

/// The container that writes status files, and its folder.
fn dump(member: &Member) -> Option<(&Member, &str, &str)> {
    let inside = member.containers.iter().find(|inside| inside.dump.is_some())?;
    Some((member, &inside.name, inside.dump.as_deref()?))
}

fn record<'a>(member: &'a Member, container: &'a str, dump: &'a str, node: &str, to: &str) -> StatusFile<'a> {
    let node = node.replace('.', "_");
    let to = format!("namespaces/{}/pfpstatus/{to}/{node}", member.namespace);
    StatusFile { member, container, dump, node, to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let check = |limit: usize, parts: &[&str], wanted: &str| {
            let mut end = Tail::new(limit);
            parts.iter().for_each(|part| end.push(part.as_bytes()));
            assert_eq!(String::from_utf8(end.finish()).unwrap(), wanted, "{limit} {parts:?}");
        };
        check(10, &[], "");
        check(10, &["one\n", "two\n"], "one\ntwo\n");
        check(8, &["one\n", "two\n"], "one\ntwo\n");
        check(7, &["one\n", "two\n"], "[4 bytes before this were left out]\ntwo\n");
        check(6, &["one\n", "two\n", "three\n", "four\n"], "[14 bytes before this were left out]\nfour\n");
        check(3, &["no line at all"], "[11 bytes before this were left out]\nall");
    }
}
