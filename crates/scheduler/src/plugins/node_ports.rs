//! NodePorts: a port of the host serves one pod.
//!
//! In: host ports of a pod, and of the pods of a node. Out: whether they get in each other's way. Never: the port of an
//! init container that ends, which is free again before others start.
//!
//! Source: kube-scheduler 1.36 `nodeports`, `HostPortInfo`. Cost: ports of the pod x ports of the node.

use k8s_openapi::api::core::v1 as wire;

/// The address that stands for every address of a host.
const ANY_ADDRESS: &str = "0.0.0.0";

/// A port that a pod takes of its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

/// The host ports of the pods on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedPorts(Vec<HostPort>);

impl HostPort {
    /// The host ports of a pod: those of app containers and sidecars.
    #[must_use]
    pub fn read(spec: &wire::PodSpec) -> Vec<Self> {
        let is_sidecar = |container: &&wire::Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
        let ports =
            spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
        let stated = |text: Option<&String>, or: &str| {
            text.filter(|text| !text.is_empty()).map_or(or, String::as_str).to_owned()
        };
        ports
            .filter_map(|port| Some((port, port.host_port.filter(|number| *number > 0)?)))
            .map(|(port, number)| Self {
                address: stated(port.host_ip.as_ref(), ANY_ADDRESS),
                protocol: stated(port.protocol.as_ref(), "TCP"),
                port: number,
            })
            .collect()
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address
                || [&self.address, &other.address].iter().any(|address| *address == ANY_ADDRESS))
    }
}

impl UsedPorts {
    /// Adds the ports of a pod that is on the node now.
    pub fn add(&mut self, ports: &[HostPort]) {
        self.0.extend_from_slice(ports);
    }

    /// Removes the ports of a pod that left.
    pub fn remove(&mut self, ports: &[HostPort]) {
        for port in ports {
            if let Some(at) = self.0.iter().position(|used| used == port) {
                self.0.swap_remove(at);
            }
        }
    }

    /// Whether all these ports are free.
    #[must_use]
    pub fn are_free(&self, ports: &[HostPort]) -> bool {
        !ports.iter().any(|port| self.0.iter().any(|used| used.conflicts(port)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn port(address: &str, protocol: &str, number: i32) -> serde_json::Value {
        json!({"containerPort": 1, "hostPort": number, "hostIP": address, "protocol": protocol})
    }

    fn read(spec: serde_json::Value) -> Vec<HostPort> {
        HostPort::read(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn ports_conflict_by_address_protocol_and_number() {
        let container = |port| json!({"containers": [{"name": "c", "ports": [port]}]});
        for (one, other, free) in [
            (port("", "", 80), port("0.0.0.0", "TCP", 80), false),
            (port("", "", 80), port("", "", 81), true),
            (port("", "UDP", 80), port("", "TCP", 80), true),
            (port("10.0.0.1", "", 80), port("10.0.0.2", "", 80), true),
            (port("10.0.0.1", "", 80), port("10.0.0.1", "", 80), false),
            (port("10.0.0.1", "", 80), port("", "", 80), false),
            (port("", "", 80), port("10.0.0.1", "", 80), false),
            (port("", "", 0), port("", "", 0), true),
        ] {
            let (one, other) = (read(container(one)), read(container(other)));
            let mut used = UsedPorts::default();
            used.add(&one);
            assert_eq!(used.are_free(&other), free, "{one:?} {other:?}");
            used.remove(&one);
            assert!(used.are_free(&other));
        }
    }

    #[test]
    fn init_containers_that_end_take_no_port() {
        let init = |policy: Option<&str>| {
            json!({
                "containers": [{"name": "c"}],
                "initContainers": [{"name": "i", "restartPolicy": policy, "ports": [port("", "", 80)]}],
            })
        };
        assert!(read(init(None)).is_empty());
        assert_eq!(read(init(Some("Always"))).len(), 1);
    }
}
