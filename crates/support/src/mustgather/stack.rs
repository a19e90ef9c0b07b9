//! The pods of the stack. Pure.
//!
//! In: all pods of the cluster. Out: the pods of operator, exporters and schedulers, and their namespaces. Never: a
//! decision by a pod's name.

use std::collections::{BTreeMap, BTreeSet};

use deployer::validate::collect::role;
use deployer::validate::evidence::Role;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::container_tools::DUMP;

/// The role of a pod in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Exporter,
    Scheduler,
    /// The operator, and other pods in the namespaces of the stack.
    Other,
}

/// A pod of a namespace that is collected.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: String,
    pub(super) running: bool,
    pub(super) part: Part,
    pub(super) containers: Vec<ContainerState>,
}

/// A container of a [`Member`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerState {
    pub(super) name: String,
    /// Folder of its status files.
    pub(super) dump: Option<String>,
    /// Ports that may serve metrics.
    pub(super) ports: Vec<i32>,
    pub(super) started: bool,
    pub(super) restarted: bool,
}

/// The pods and namespaces of the stack.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    namespaces: BTreeSet<String>,
    pub(super) members: Vec<Member>,
}

impl Stack {
    /// Members are the pods of all namespaces with a part of the stack, and of the `wanted` namespaces.
    pub(super) fn new(pods: &[Pod], wanted: &[String]) -> Self {
        let mut namespaces: BTreeSet<String> = wanted.iter().cloned().collect();
        let parts: Vec<Option<Part>> = pods.iter().map(part).collect();
        for (pod, _) in pods.iter().zip(&parts).filter(|(_, part)| part.is_some()) {
            namespaces.extend(pod.metadata.namespace.clone());
        }
        let members = pods.iter().zip(parts).filter_map(|(pod, part)| {
            let namespace = pod.metadata.namespace.clone()?;
            namespaces.contains(&namespace).then(|| member(pod, namespace, part.unwrap_or(Part::Other)))
        });
        let members = members.collect();
        Self { namespaces, members }
    }

    pub(super) fn namespaces(&self) -> Vec<String> {
        self.namespaces.iter().cloned().collect()
    }

    pub(super) fn of(&self, part: Part) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.part == part)
    }
}

fn part(pod: &Pod) -> Option<Part> {
    let label =
        |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    if label("name") == Some("resource-topology") {
        return Some(Part::Exporter);
    }
    if label("app") == Some("secondary-scheduler") {
        return Some(Part::Scheduler);
    }
    let spec = pod.spec.as_ref()?;
    match role::of(spec) {
        Some(Role::Exporter) => Some(Part::Exporter),
        Some(Role::Scheduler { numa: true }) => Some(Part::Scheduler),
        // The cluster's own scheduler is not part of the stack.
        Some(Role::Scheduler { numa: false }) => None,
        Some(Role::Controller) => Some(Part::Other),
        None => None,
    }
}

fn member(pod: &Pod, namespace: String, part: Part) -> Member {
    let status = pod.status.as_ref();
    let restarts: BTreeMap<&str, (bool, bool)> = status
        .into_iter()
        .flat_map(|status| {
            status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
        })
        .map(|status| {
            let state = status.state.as_ref();
            let waits = state.is_some_and(|state| state.waiting.is_some()) || state.is_none();
            (status.name.as_str(), (!waits || status.restart_count > 0, status.restart_count > 0))
        })
        .collect();
    let spec = pod.spec.clone().unwrap_or_default();
    let inside = |container: &Container| {
        let (started, restarted) = restarts.get(container.name.as_str()).copied().unwrap_or_default();
        let ports = container.ports.iter().flatten().filter(|port| {
            let name = port.name.as_deref().unwrap_or_default();
            name.contains("metrics") || name == "http" || name == "https"
        });
        ContainerState {
            name: container.name.clone(),
            dump: container
                .env
                .iter()
                .flatten()
                .find(|env| env.name == DUMP)
                .and_then(|env| env.value.clone()),
            ports: ports.map(|port| port.container_port).collect(),
            started,
            restarted,
        }
    };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers).map(inside).collect();
    Member {
        namespace,
        name: pod.metadata.name.clone().unwrap_or_default(),
        node: spec.node_name.unwrap_or_default(),
        running: status.and_then(|status| status.phase.as_deref()) == Some("Running"),
        part,
        containers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(namespace: &str, name: &str, labels: serde_json::Value, container: serde_json::Value) -> Pod {
        let mut container = container;
        container["name"] = "c".into();
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": name, "labels": labels },
            "spec": { "nodeName": "node", "containers": [container] },
            "status": { "phase": "Running", "containerStatuses": [{
                "name": "c", "restartCount": 1, "ready": true, "image": "", "imageID": "", "state": { "running": {} },
            }] },
        }))
        .unwrap()
    }

    #[test]
    fn pods_are_known_by_what_they_run() {
        let none = json!({});
        let table = [
            (json!({ "name": "resource-topology" }), json!({ "image": "x" }), Some(Part::Exporter)),
            (json!({ "app": "secondary-scheduler" }), json!({ "image": "x" }), Some(Part::Scheduler)),
            (none.clone(), json!({ "image": "r/tholepin:1", "args": ["exporter"] }), Some(Part::Exporter)),
            (none.clone(), json!({ "image": "r/tholepin:1", "args": ["scheduler"] }), Some(Part::Scheduler)),
            (none.clone(), json!({ "image": "r/tholepin:1", "args": ["operator"] }), Some(Part::Other)),
            (
                none.clone(),
                json!({ "image": "x", "command": ["/bin/numaresources-operator"] }),
                Some(Part::Other),
            ),
            (none.clone(), json!({ "image": "quay.io/x/numaresources-operator:5.0" }), Some(Part::Other)),
            (none.clone(), json!({ "image": "k8s/kube-scheduler:v1", "command": ["kube-scheduler"] }), None),
            (none.clone(), json!({ "image": "x", "args": ["operator"] }), None),
            (none, json!({ "image": "nginx" }), None),
        ];
        for (labels, container, wanted) in table {
            let pod = pod("ns", "p", labels.clone(), container.clone());
            assert_eq!(part(&pod), wanted, "{labels} {container}");
        }
    }

    #[test]
    fn members_are_of_the_stacks_namespaces() {
        let exporter = json!({
            "image": "x", "env": [{ "name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus" }],
            "ports": [{ "name": "metrics-port", "containerPort": 2112 }, { "name": "other", "containerPort": 1 }],
        });
        let pods = [
            pod("a", "exporter", json!({ "name": "resource-topology" }), exporter),
            pod("a", "neighbour", json!({}), json!({ "image": "nginx" })),
            pod("b", "other", json!({}), json!({ "image": "nginx" })),
            pod("c", "wanted", json!({}), json!({ "image": "nginx" })),
        ];
        let stack = Stack::new(&pods, &["c".to_owned(), "d".to_owned()]);
        assert_eq!(stack.namespaces(), ["a", "c", "d"]);
        let names: Vec<_> = stack.members.iter().map(|member| (member.name.as_str(), member.part)).collect();
        assert_eq!(
            names,
            [("exporter", Part::Exporter), ("neighbour", Part::Other), ("wanted", Part::Other)]
        );
        let inside = ContainerState {
            name: "c".to_owned(),
            dump: Some("/run/pfpstatus".to_owned()),
            ports: vec![2112],
            started: true,
            restarted: true,
        };
        assert_eq!(stack.members[0].containers, [inside]);
        assert_eq!(stack.of(Part::Scheduler).count(), 0);
    }
}
