//! `/metrics/resources`: what each pod requests, and its limits.
//!
//! In: a request, the pods of the core. Out: the metrics `kube_pod_resource_request` and `kube_pod_resource_limit`, as
//! text that is made while it is sent. Never: more than four answers at a time, or memory for pods between requests.
//!
//! Source: kube-scheduler 1.36 `metrics/resources`. Amounts are those that the scheduler counts: thousandths of CPUs
//! and whole bytes, rounded up. Limits are those of CPU, memory, huge pages and devices; of a pod with resources as a
//! whole those of devices. Cost: the core's thread copies some pointers for each pod, 100 bytes, which are gone with
//! the answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, mpsc};

use runtime::http;
use tokio::sync::{Semaphore, oneshot};
use topology::kubelet::pod::Container;
use topology::request::{ContainerKind, PodNeeds};
use topology::resource::{ResourceKind, ResourceName};

use super::event_loop::Input;
use crate::core::Core;
use crate::node::amount;
use crate::pod::PodView;

/// The pods of one part of the text.
const PART: usize = 256;
/// Most requests that are answered at a time; others are told to come again.
const MAX_ANSWERS: usize = 4;
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A pod and its resources.
#[derive(Clone, Debug)]
pub(super) struct Row {
    namespace: Arc<str>,
    name: Arc<str>,
    node: Option<Arc<str>>,
    scheduler: Arc<str>,
    priority: i32,
    needs: Arc<PodNeeds>,
}

/// A question to the thread of the core.
pub(super) type Query = oneshot::Sender<Vec<Row>>;

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Limit,
    Request,
}

/// The pods that are not over.
pub(super) fn rows(core: &Core) -> Vec<Row> {
    core.pods().map(Row::of).collect()
}

/// The route.
pub(super) fn router(inputs: mpsc::Sender<Input>) -> http::Router {
    let free = Arc::new(Semaphore::new(MAX_ANSWERS));
    let parts = move || {
        let (free, inputs) = (Arc::clone(&free), inputs.clone());
        async move {
            let place = free.try_acquire_owned().ok()?;
            let (answer, rows) = oneshot::channel();
            inputs.send(Input::Pods(answer)).ok()?;
            let rows = rows.await.ok()?;
            // The place is taken until the text has ended.
            Some(text(rows).zip(std::iter::repeat(Arc::new(place))).map(|(part, _)| part))
        }
    };
    http::stream("/metrics/resources", CONTENT_TYPE, parts)
}

/// The text in parts.
fn text(rows: Vec<Row>) -> impl Iterator<Item = String> + Send {
    let parts = rows.len().div_ceil(PART);
    let both = [Metric::Limit, Metric::Request].into_iter();
    both.flat_map(move |metric| (0..=parts).map(move |part| (metric, part))).map(move |(metric, part)| {
        match part.checked_sub(1) {
            None => metric.head(),
            Some(part) => rows.iter().skip(part * PART).take(PART).fold(String::new(), |mut text, row| {
                metric.write(row, &mut text);
                text
            }),
        }
    })
}

impl Row {
    fn of(pod: &PodView) -> Self {
        Self {
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
            node: pod.node.clone(),
            scheduler: Arc::clone(&pod.scheduler),
            priority: pod.priority,
            needs: Arc::clone(&pod.spec.needs),
        }
    }
}

impl Metric {
    fn name(self) -> &'static str {
        match self {
            Self::Limit => "kube_pod_resource_limit",
            Self::Request => "kube_pod_resource_request",
        }
    }

    fn head(self) -> String {
        let (name, what) = match self {
            Self::Limit => (self.name(), "The limit of a pod for a resource"),
            Self::Request => (self.name(), "What a pod requests of a resource"),
        };
        format!(
            "# HELP {name} [STABLE] {what}, with the unit of the resource if it has one.\n# TYPE {name} gauge\n"
        )
    }

    /// Writes the series of one pod. Names of objects and resources need no escapes.
    fn write(self, row: &Row, text: &mut String) {
        let Row { namespace, name, node, scheduler, priority, needs } = row;
        let node = node.as_deref().unwrap_or_default();
        let amounts = match self {
            Self::Limit => limits(needs),
            Self::Request => needs.totals.iter().map(|need| (need.name, need.amount)).collect(),
        };
        for (resource, amount) in amounts.into_iter().filter(|(_, amount)| *amount != 0) {
            let value = amount as f64 / resource.base_units() as f64;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}{{namespace=\"{namespace}\",pod=\"{name}\",node=\"{node}\",scheduler=\"{scheduler}\",\
                 priority=\"{priority}\",resource=\"{resource}\",unit=\"{}\"}} {value}",
                self.name(),
                unit(resource),
            );
        }
    }
}

/// The unit of a resource.
fn unit(resource: ResourceName) -> &'static str {
    match resource.as_str() {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        name if name.starts_with("hugepages-") => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

/// The limits of a pod in base units: the larger of init phase and running phase, plus overhead (component-helpers
/// 1.36 `PodLimits`). Huge pages are requested as they are limited.
fn limits(needs: &PodNeeds) -> BTreeMap<ResourceName, i64> {
    let (mut running, mut peak) = (BTreeMap::new(), BTreeMap::<ResourceName, i64>::new());
    let mut sidecars = BTreeMap::new();
    let add = |to: &mut BTreeMap<ResourceName, i64>, container: &Container| {
        for (resource, amount) in limits_of(container) {
            let sum = to.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    };
    for container in &needs.pod.containers {
        let mut phase = sidecars.clone();
        add(&mut phase, container);
        match container.kind {
            ContainerKind::App => add(&mut running, container),
            ContainerKind::Sidecar => {
                add(&mut running, container);
                sidecars = phase;
            }
            ContainerKind::Init => {
                for (resource, amount) in phase {
                    let most = peak.entry(resource).or_default();
                    *most = (*most).max(amount);
                }
            }
        }
    }
    for (resource, amount) in peak {
        let most = running.entry(resource).or_default();
        *most = (*most).max(amount);
    }
    if needs.pod.pod_level {
        running.retain(|resource, _| resource.kind() == ResourceKind::Device);
    }
    for (resource, limit) in running.iter_mut().filter(|(_, limit)| **limit != 0) {
        *limit = limit.saturating_add(amount(&needs.overhead, *resource));
    }
    running
}

fn limits_of(container: &Container) -> impl Iterator<Item = (ResourceName, i64)> + '_ {
    let [cpu, memory] = &container.limits;
    let huge_pages = container.memory.iter().flatten().filter(|(name, _)| *name != ResourceName::MEMORY);
    let whole = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    [(ResourceName::CPU, cpu.milli_value()), (ResourceName::MEMORY, memory.value())]
        .into_iter()
        .chain(huge_pages.map(move |(name, amount)| (*name, whole(*amount))))
        .chain(container.devices.iter().map(move |(name, count)| (*name, whole(*count as u64))))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    /// The series of a pod, without the labels that are the same for all.
    fn series(spec: Value) -> Vec<String> {
        let mut object = json!({
            "metadata": { "namespace": "ns", "name": "p", "uid": "u" },
            "spec": { "nodeName": "n", "schedulerName": "s", "priority": 7 },
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let view = PodView::read(&serde_json::from_value::<Pod>(object).unwrap());
        let text: String = text(vec![Row::of(&view)]).collect();
        let common = "namespace=\"ns\",pod=\"p\",node=\"n\",scheduler=\"s\",priority=\"7\",";
        let (heads, series): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('#'));
        assert_eq!(heads.iter().filter(|line| line.ends_with(" gauge")).count(), 2, "{heads:?}");
        let short = |line: &str| {
            assert!(line.contains(common), "{line}");
            line.replace(common, "").replace("kube_pod_resource_", "").replace('"', "")
        };
        series.into_iter().map(short).collect()
    }

    /// The examples follow `podRequestsAndLimitsByLifecycle`.
    #[test]
    fn series_are_kube_schedulers() {
        // A node makes it known, and other tests use up what pods may name.
        ResourceName::new("v.example/nic").unwrap();
        let container = |requests: Value, limits: Value| json!({ "name": "c", "resources": { "requests": requests, "limits": limits } });
        let sidecar = |mut container: Value| {
            container["restartPolicy"] = "Always".into();
            container
        };
        let same = |amounts: Value| container(amounts.clone(), amounts);
        for (spec, wanted) in [
            (json!({ "containers": [container(json!({}), json!({}))] }), vec![]),
            (
                json!({ "containers": [
                    container(json!({ "cpu": "250m", "memory": "1Gi" }), json!({ "cpu": "1500m", "memory": "2Gi" })),
                    same(json!({ "v.example/nic": "2", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi" })),
                ] }),
                vec![
                    "limit{resource=cpu,unit=cores} 1.5",
                    "limit{resource=memory,unit=bytes} 2147483648",
                    "limit{resource=hugepages-2Mi,unit=bytes} 4194304",
                    "limit{resource=v.example/nic,unit=} 2",
                    "request{resource=cpu,unit=cores} 0.25",
                    "request{resource=memory,unit=bytes} 1073741824",
                    "request{resource=hugepages-2Mi,unit=bytes} 4194304",
                    "request{resource=ephemeral-storage,unit=bytes} 1073741824",
                    "request{resource=v.example/nic,unit=} 2",
                ],
            ),
            // The init phase: the sidecar's 1 with 4 afterwards, but not with the 2 before. Overhead comes to what is
            // limited.
            (
                json!({
                    "initContainers": [
                        same(json!({ "cpu": "2" })), sidecar(same(json!({ "cpu": "1" }))), same(json!({ "cpu": "4" })),
                    ],
                    "containers": [same(json!({ "cpu": "1" }))],
                    "overhead": { "cpu": "100m", "memory": "1Mi" },
                }),
                vec![
                    "limit{resource=cpu,unit=cores} 5.1",
                    "request{resource=cpu,unit=cores} 5.1",
                    "request{resource=memory,unit=bytes} 1048576",
                ],
            ),
            // Of resources of the pod as a whole the limits are not kept.
            (
                json!({
                    "containers": [same(json!({ "cpu": "1", "v.example/nic": "1" }))],
                    "resources": { "requests": { "cpu": "3" }, "limits": { "cpu": "3" } },
                }),
                vec![
                    "limit{resource=v.example/nic,unit=} 1",
                    "request{resource=cpu,unit=cores} 3",
                    "request{resource=v.example/nic,unit=} 1",
                ],
            ),
        ] {
            assert_eq!(series(spec.clone()), wanted, "{spec}");
        }
    }

    #[test]
    fn long_texts_come_in_parts_and_name_each_metric_once() {
        let needs = Arc::new(topology::request::PodRequest::default().needs());
        let name: Arc<str> = "x".into();
        let row = Row {
            namespace: Arc::clone(&name),
            name: Arc::clone(&name),
            node: None,
            scheduler: name,
            priority: 0,
            needs,
        };
        let parts: Vec<String> = text(vec![row; PART + 1]).collect();
        assert_eq!(parts.len(), 2 * 3);
        assert_eq!(parts.concat().matches("# TYPE").count(), 2);
    }
}
