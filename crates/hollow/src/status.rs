//! The statuses that a kubelet writes, as patches.
//!
//! In: a pod and what became of it; a node. Out: strategic merge patches of the status, which leave conditions of
//! others alone; the Node object. Never: a decision.
//!
//! Source: kubelet 1.36 `kubelet_pods.go` `generateAPIPodStatus`, `kubelet.go` `rejectPod`, `status/status_manager.go`
//! (a patch names the UID, so that it is refused for another pod of the same name), `nodestatus/setters.go`.

use std::net::Ipv6Addr;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use topology::fingerprint::{Fingerprint, PodHash};
use topology::kubelet::rejection::Rejection;
use topology::request::ContainerKind;

use crate::checkpoint;
use crate::machine::{KUBELET_VERSION, Machine};
use crate::node_group::PlannedNode;
use crate::pod::{ContainerView, PodName};

/// The label of hollow nodes, and the key of their taint.
pub const MARK: &str = "hollow.tholepin.dev/node";
/// The prefix of the kubelet's message for pods that it rejects.
const REJECTED: &str = "Pod was rejected: ";

/// A pod whose status is written.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The UID.
    pub uid: &'a str,
    /// The name.
    pub name: &'a PodName,
    /// The name of its node.
    pub node: &'a str,
    /// Its containers.
    pub containers: &'a [ContainerView],
    /// `status.startTime`.
    pub started: Timestamp,
}

/// An address that no network routes (RFC 3849), the same for the same name.
fn address(namespace: &str, name: &str) -> Ipv6Addr {
    let hash = Fingerprint::of(&mut [PodHash::of(namespace, name)]).to_string();
    // The text ends in 16 hexadecimal digits.
    let digits = hash.get(hash.len().saturating_sub(16)..).unwrap_or_default();
    let host = u64::from_str_radix(digits, 16).unwrap_or_default();
    Ipv6Addr::from((0x2001_0db8_u128 << 96) | u128::from(host))
}

fn node_address(node: &str) -> String {
    address("", node).to_string()
}

/// RFC 3339 in whole seconds, as Kubernetes writes times.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

impl Subject<'_> {
    /// The pod runs; `held` is the checkpoint of what its containers got.
    #[must_use]
    pub fn running(&self, held: Option<&str>, now: Timestamp) -> Value {
        let conditions = self.conditions(now, |_| ("True", None));
        let mut patch = self.patch("Running", &conditions, |kind| match kind {
            ContainerKind::Init => completed(self.started, now),
            ContainerKind::Sidecar | ContainerKind::App => {
                json!({ "running": { "startedAt": seconds(now) } })
            }
        });
        if let (Some(held), Some(metadata)) = (held, patch.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("annotations".to_owned(), json!({ checkpoint::KEY: held }));
        }
        patch
    }

    /// All containers of the pod ended well.
    #[must_use]
    pub fn succeeded(&self, now: Timestamp) -> Value {
        let conditions = self.conditions(now, |condition| match condition {
            "Initialized" => ("True", Some("PodCompleted")),
            "PodReadyToStartContainers" => ("False", None),
            _ => ("False", Some("PodCompleted")),
        });
        self.patch("Succeeded", &conditions, |_| completed(self.started, now))
    }

    /// The kubelet does not admit the pod.
    #[must_use]
    pub fn rejected(&self, rejection: &Rejection) -> Value {
        json!({
            "metadata": { "uid": self.uid },
            "status": {
                "phase": "Failed",
                "reason": rejection.reason(),
                "message": format!("{REJECTED}{rejection}"),
                "startTime": seconds(self.started),
            },
        })
    }

    fn conditions(
        &self,
        now: Timestamp,
        of: impl Fn(&str) -> (&'static str, Option<&'static str>),
    ) -> Vec<Value> {
        let condition = |name: &str| {
            let (status, reason) = of(name);
            let mut condition = json!({
                "type": name, "status": status, "lastProbeTime": null, "lastTransitionTime": seconds(now),
            });
            if let (Some(reason), Some(condition)) = (reason, condition.as_object_mut()) {
                condition.insert("reason".to_owned(), reason.into());
            }
            condition
        };
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"].map(condition).to_vec()
    }

    fn patch(&self, phase: &str, conditions: &[Value], state: impl Fn(ContainerKind) -> Value) -> Value {
        let statuses = |is_init: bool| -> Vec<Value> {
            let here = self.containers.iter().filter(|container| {
                matches!(container.kind, ContainerKind::Init | ContainerKind::Sidecar) == is_init
            });
            here.map(|container| {
                let state = state(container.kind);
                let runs = state.get("running").is_some();
                json!({
                    "name": container.name, "image": container.image, "imageID": container.image,
                    "containerID": format!("hollow://{}/{}", self.uid, container.name),
                    "ready": runs || container.kind == ContainerKind::Init, "started": runs,
                    "restartCount": 0, "state": state,
                })
            })
            .collect()
        };
        let (host, own) =
            (node_address(self.node), address(&self.name.namespace, &self.name.name).to_string());
        let mut status = json!({
            "phase": phase,
            "startTime": seconds(self.started),
            "hostIP": host, "hostIPs": [{ "ip": host }],
            "podIP": own, "podIPs": [{ "ip": own }],
            "conditions": conditions,
            "containerStatuses": statuses(false),
        });
        let init = statuses(true);
        if let (false, Some(status)) = (init.is_empty(), status.as_object_mut()) {
            status.insert("initContainerStatuses".to_owned(), init.into());
        }
        json!({ "metadata": { "uid": self.uid }, "status": status })
    }
}

fn completed(began: Timestamp, now: Timestamp) -> Value {
    json!({ "terminated": {
        "exitCode": 0, "reason": "Completed", "startedAt": seconds(began), "finishedAt": seconds(now),
    } })
}

/// The Node object that a kubelet registers.
#[must_use]
pub fn node(planned: &PlannedNode, now: Timestamp) -> Value {
    let name = &planned.name;
    let mut labels = Map::new();
    for (key, value) in [
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", &**name),
        (MARK, ""),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    labels.extend(planned.group.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "taints": taints(planned) },
        "status": node_status(&planned.machine, name, now),
    })
}

/// The taints of a node whose kubelet is ready.
#[must_use]
pub fn taints(planned: &PlannedNode) -> Value {
    if planned.group.untainted { json!([]) } else { json!([{ "key": MARK, "effect": "NoSchedule" }]) }
}

fn node_status(machine: &Machine, name: &str, now: Timestamp) -> Value {
    json!({
        "capacity": machine.capacity,
        "allocatable": machine.allocatable,
        "addresses": [
            { "type": "InternalIP", "address": node_address(name) },
            { "type": "Hostname", "address": name },
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "", "containerRuntimeVersion": "hollow://1", "kernelVersion": "", "osImage": "hollow",
            "machineID": name, "systemUUID": name, "bootID": name,
        },
        "conditions": node_conditions(now, true),
    })
}

/// The status of a node that is taken over from an earlier process.
#[must_use]
pub fn node_patch(planned: &PlannedNode, now: Timestamp) -> Value {
    json!({ "status": node_status(&planned.machine, &planned.name, now) })
}

/// The heartbeat of a node's status: a kubelet writes it every five minutes, changed or not.
#[must_use]
pub fn node_heartbeat(now: Timestamp) -> Value {
    json!({ "status": { "conditions": node_conditions(now, false) } })
}

/// The conditions of a node that is well.
fn node_conditions(now: Timestamp, is_new: bool) -> Value {
    let condition = |(name, status, reason, message): (&str, &str, &str, &str)| {
        let mut condition = json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": seconds(now),
        });
        if let (true, Some(condition)) = (is_new, condition.as_object_mut()) {
            condition.insert("lastTransitionTime".to_owned(), seconds(now).into());
        }
        condition
    };
    let conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    conditions.map(condition).to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn containers() -> Vec<ContainerView> {
        [("first", ContainerKind::Init), ("beside", ContainerKind::Sidecar), ("main", ContainerKind::App)]
            .map(|(name, kind)| ContainerView {
                name: name.into(),
                image: "registry.example/app:1".into(),
                kind,
            })
            .to_vec()
    }

    /// `name: ready, started, state` of each container.
    fn show(patch: &Value) -> String {
        let status = &patch["status"];
        let lists = [&status["initContainerStatuses"], &status["containerStatuses"]];
        let one = |it: &Value| {
            let state = it["state"].as_object().unwrap().keys().next().unwrap();
            format!("{} {} {} {state}", it["name"].as_str().unwrap(), it["ready"], it["started"])
        };
        let all: Vec<String> =
            lists.iter().flat_map(|list| list.as_array().into_iter().flatten()).map(one).collect();
        format!("{}: {}", status["phase"].as_str().unwrap(), all.join(", "))
    }

    #[test]
    fn statuses_are_those_of_a_kubelet() {
        let name = PodName { namespace: "ns".into(), name: "pod".into() };
        let containers = containers();
        let started = Timestamp::from_second(100).unwrap();
        let subject = Subject { uid: "u", name: &name, node: "n", containers: &containers, started };
        let running = subject.running(Some("{}"), started);
        assert_eq!(
            show(&running),
            "Running: first true false terminated, beside true true running, main true true running"
        );
        assert_eq!(running["metadata"]["annotations"][checkpoint::KEY], "{}");
        assert_eq!(running["status"]["startTime"], "1970-01-01T00:01:40Z");
        let succeeded = subject.succeeded(started);
        assert_eq!(
            show(&succeeded),
            "Succeeded: first true false terminated, beside false false terminated, main false false terminated"
        );
        assert_eq!(succeeded["status"]["conditions"][2]["status"], "False");
        let rejected = subject.rejected(&Rejection::TopologyAffinity);
        assert_eq!(rejected["status"]["reason"], "TopologyAffinityError");
        assert_eq!(
            rejected["status"]["message"],
            "Pod was rejected: Resources cannot be allocated with Topology locality"
        );
    }

    #[test]
    fn addresses_differ_and_are_not_routed() {
        let addresses = ["a", "b", "c"].map(|name| address("ns", name));
        assert!(addresses.iter().all(|address| address.segments()[..2] == [0x2001, 0xdb8]));
        assert_ne!(addresses[0], addresses[1]);
        assert_eq!(addresses[0], address("ns", "a"));
    }
}
