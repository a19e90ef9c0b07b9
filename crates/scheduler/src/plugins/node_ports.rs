//! NodePorts: no two pods of a node use the same port of the host.
//!
//! In: the ports of a pod, the ports in use on a node. Out: whether they go together. Never: ports that a container
//! uses without a `hostPort`. Source: kube-scheduler 1.36 `nodeports`, `HostPortInfo` and `GetHostPorts`.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

/// A port of the host that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// `hostPort`; above 0.
    port: i32,
    /// `protocol`, by default TCP.
    protocol: Box<str>,
    /// `hostIP`; `None`: every address, which is the default and `0.0.0.0`. Other texts are compared as they stand, as
    /// in kube-scheduler.
    ip: Option<Box<str>>,
}

/// The ports in use on a node, each with the number of pods that use it: pods of other schedulers may share one.
#[derive(Debug, Default)]
pub struct UsedPorts(Vec<(HostPort, u32)>);

impl HostPort {
    /// The ports of a pod, in order, each once: those of app containers and of sidecars. An ordinary init container has
    /// ended before they start, and its ports do not count.
    #[must_use]
    pub fn read(spec: &wire::PodSpec) -> Arc<[Self]> {
        let init = spec.init_containers.iter().flatten();
        let sidecars = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let containers = sidecars.chain(&spec.containers);
        let mut ports: Vec<Self> =
            containers.flat_map(|container| container.ports.iter().flatten()).filter_map(Self::of).collect();
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() { Arc::default() } else { ports.into() }
    }

    fn of(wire: &wire::ContainerPort) -> Option<Self> {
        let stated = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        Some(Self {
            port: wire.host_port.filter(|port| *port > 0)?,
            protocol: stated(&wire.protocol).unwrap_or_else(|| "TCP".into()),
            ip: stated(&wire.host_ip).filter(|ip: &Box<str>| &**ip != "0.0.0.0"),
        })
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip.is_none() || other.ip.is_none() || self.ip == other.ip)
    }
}

impl UsedPorts {
    /// Adds the ports of a pod that is on the node now.
    pub fn add(&mut self, ports: &[HostPort]) {
        for port in ports {
            match self.0.iter_mut().find(|(used, _)| used == port) {
                Some((_, pods)) => *pods += 1,
                None => self.0.push((port.clone(), 1)),
            }
        }
    }

    /// Removes the ports of a pod that left the node.
    pub fn remove(&mut self, ports: &[HostPort]) {
        for port in ports {
            if let Some(at) = self.0.iter().position(|(used, _)| used == port) {
                self.0[at].1 -= 1;
                if self.0[at].1 == 0 {
                    self.0.swap_remove(at);
                }
            }
        }
    }

    /// Whether a pod with these ports can run beside those that are there. Cost: its ports x ports in use; nothing for
    /// pods without host ports.
    #[must_use]
    pub fn fit(&self, ports: &[HostPort]) -> bool {
        !ports.iter().any(|port| self.0.iter().any(|(used, _)| used.conflicts(port)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(app: &Value, sidecar: &Value, init: &Value) -> Arc<[HostPort]> {
        let spec = json!({
            "containers": [{"name": "app", "ports": app}],
            "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always", "ports": sidecar},
                {"name": "init", "ports": init},
            ],
        });
        HostPort::read(&serde_json::from_value(spec).unwrap())
    }

    fn port(port: i32, protocol: Option<&str>, ip: Option<&str>) -> Value {
        json!([{"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": ip}])
    }

    #[test]
    fn ports_conflict_as_in_kube_scheduler() {
        let (one, two) = (Some("10.0.0.1"), Some("10.0.0.2"));
        for (used, wanted, fits) in [
            (port(80, None, None), port(80, Some("TCP"), Some("0.0.0.0")), false),
            (port(80, None, None), port(81, None, None), true),
            (port(80, None, None), port(80, Some("UDP"), None), true),
            (port(80, None, one), port(80, None, two), true),
            (port(80, None, one), port(80, None, one), false),
            (port(80, None, one), port(80, None, None), false),
            (port(80, None, None), port(80, None, two), false),
            (port(80, None, Some("::")), port(80, None, one), true),
            (port(80, None, Some("::")), port(80, None, Some("")), false),
            (port(0, None, None), port(0, None, None), true),
        ] {
            let mut node = UsedPorts::default();
            node.add(&ports(&used, &Value::Null, &Value::Null));
            assert_eq!(node.fit(&ports(&wanted, &Value::Null, &Value::Null)), fits, "{used} {wanted}");
        }
    }

    #[test]
    fn sidecars_count_and_other_init_containers_do_not() {
        let (a, b, c) = (port(1, None, None), port(2, None, None), port(3, None, None));
        let found: Vec<i32> = ports(&a, &b, &c).iter().map(|port| port.port).collect();
        assert_eq!(found, [1, 2]);
        assert_eq!(ports(&a, &a, &c).len(), 1);
    }

    #[test]
    fn a_port_is_free_when_its_last_pod_has_left() {
        let ports = ports(&port(80, None, None), &Value::Null, &Value::Null);
        let mut node = UsedPorts::default();
        node.add(&ports);
        node.add(&ports);
        node.remove(&ports);
        assert!(!node.fit(&ports));
        node.remove(&ports);
        assert!(node.fit(&ports) && node.0.is_empty());
        node.remove(&ports);
        assert!(node.fit(&ports));
    }
}
