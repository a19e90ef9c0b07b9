//! What policies allow a pod.
//!
//! In: pods, namespaces and policies as observed. Out: the filter of one pod. Never: I/O, nor a pod in its node's
//! network as a peer, which policies do not know.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use crate::net::filter::{Block, Filter, Ports, Rule};

/// Every address.
const ANY: Block = Block { address: Ipv4Addr::UNSPECIFIED, prefix: 0 };

/// What is observed.
pub(super) struct View<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) namespaces: &'a [Arc<Namespace>],
    pub(super) policies: &'a [Arc<NetworkPolicy>],
}

/// The other end of connections.
struct Peer<'a> {
    block: Block,
    except: Vec<Block>,
    /// The pod, if it is one.
    pod: Option<&'a Pod>,
}

/// One rule of a policy, whichever direction it is for.
struct PolicyRule<'a> {
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
}

impl View<'_> {
    /// What connections a pod may take and make.
    pub(super) fn filter(&self, pod: &Pod) -> Filter {
        let mut filter = Filter::default();
        for policy in self.policies.iter().filter(|policy| policy.namespace() == pod.namespace()) {
            let Some(spec) = &policy.spec else { continue };
            if !selects(spec.pod_selector.as_ref(), pod.labels()) {
                continue;
            }
            let types = spec.policy_types.as_deref().unwrap_or_default();
            let is_for = |name: &str| types.iter().any(|one| one == name);
            // Without types a policy is for ingress, and for egress if it has rules for it.
            if types.is_empty() || is_for("Ingress") {
                let rules = spec.ingress.iter().flatten().map(|rule| PolicyRule {
                    peers: rule.from.as_deref().unwrap_or_default(),
                    ports: rule.ports.as_deref().unwrap_or_default(),
                });
                let allowed = filter.ingress.get_or_insert_default();
                rules.for_each(|rule| self.allow(policy, &rule, Some(pod), allowed));
            }
            if is_for("Egress") || types.is_empty() && spec.egress.is_some() {
                let rules = spec.egress.iter().flatten().map(|rule| PolicyRule {
                    peers: rule.to.as_deref().unwrap_or_default(),
                    ports: rule.ports.as_deref().unwrap_or_default(),
                });
                let allowed = filter.egress.get_or_insert_default();
                rules.for_each(|rule| self.allow(policy, &rule, None, allowed));
            }
        }
        for rules in [&mut filter.ingress, &mut filter.egress].into_iter().flatten() {
            rules.sort();
            rules.dedup();
        }
        filter
    }

    /// Adds what a rule allows; `server` is the pod itself where it is the one that listens.
    fn allow(
        &self,
        policy: &NetworkPolicy,
        rule: &PolicyRule<'_>,
        server: Option<&Pod>,
        allowed: &mut Vec<Rule>,
    ) {
        let mut peers = Vec::new();
        if rule.peers.is_empty() {
            peers.push(Peer { block: ANY, except: Vec::new(), pod: None });
            // For ports by name, which only pods have.
            let by_name = rule.ports.iter().any(|port| matches!(port.port, Some(IntOrString::String(_))));
            if by_name && server.is_none() {
                peers.extend(self.pods.iter().filter_map(|pod| peer(pod)));
            }
        }
        peers.extend(rule.peers.iter().flat_map(|peer| self.peers(policy, peer)));
        for Peer { block, except, pod } in peers {
            let add = |ports| Rule { peer: block, except: except.clone(), ports };
            if rule.ports.is_empty() {
                allowed.push(add(None));
            }
            let ports = rule.ports.iter().filter_map(|port| ports(port, server.or(pod)));
            allowed.extend(ports.map(|ports| add(Some(ports))));
        }
    }

    fn peers<'a>(&'a self, policy: &NetworkPolicy, of: &NetworkPolicyPeer) -> Vec<Peer<'a>> {
        if let Some(block) = &of.ip_block {
            let except = block.except.iter().flatten().filter_map(|text| Block::read(text)).collect();
            // A block of IPv6 has no peers here.
            return Block::read(&block.cidr)
                .map(|block| Peer { block, except, pod: None })
                .into_iter()
                .collect();
        }
        let in_namespace = |pod: &Pod| match &of.namespace_selector {
            None => pod.namespace() == policy.namespace(),
            Some(selector) => {
                let own = self.namespaces.iter().find(|one| Some(one.name_any()) == pod.namespace());
                own.is_some_and(|own| selects(Some(selector), own.labels()))
            }
        };
        let is_meant = |pod: &&Arc<Pod>| in_namespace(pod) && selects(of.pod_selector.as_ref(), pod.labels());
        self.pods.iter().filter(is_meant).filter_map(|pod| peer(pod)).collect()
    }
}

/// A pod as a peer, unless it has no address of its own.
fn peer(pod: &Pod) -> Option<Peer<'_>> {
    let status = pod.status.as_ref()?;
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if is_over || pod.spec.as_ref()?.host_network == Some(true) {
        return None;
    }
    let address = status.pod_ip.as_ref()?.parse().ok()?;
    Some(Peer { block: Block::one(address), except: Vec::new(), pod: Some(pod) })
}

/// A port of a rule; one by name is that of the pod that listens, if it has such a port.
fn ports(port: &NetworkPolicyPort, server: Option<&Pod>) -> Option<Ports> {
    let name = port.protocol.as_deref().unwrap_or("TCP");
    let protocol = match name {
        "TCP" => 6,
        "UDP" => 17,
        "SCTP" => 132,
        _ => return None,
    };
    let range = match &port.port {
        None => None,
        Some(IntOrString::Int(first)) => Some((*first, port.end_port.unwrap_or(*first))),
        Some(IntOrString::String(wanted)) => {
            let containers = server?.spec.iter().flat_map(|spec| &spec.containers);
            let mut all = containers.flat_map(|container| container.ports.iter().flatten());
            let found = all.find(|port| {
                port.name.as_ref() == Some(wanted) && port.protocol.as_deref().unwrap_or("TCP") == name
            });
            Some((found?.container_port, found?.container_port))
        }
    };
    let range = match range {
        Some((first, last)) => Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?)),
        None => None,
    };
    Some(Ports { protocol, range })
}

/// Whether a selector selects; none selects all, and one that cannot be read none.
fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let selector = selector.cloned().unwrap_or_default();
    Selector::try_from(selector).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn pod(namespace: &str, name: &str, address: &str) -> Arc<Pod> {
        let port = json!({ "name": "web", "containerPort": 8080 });
        object(json!({
            "metadata": { "namespace": namespace, "name": name, "labels": { "app": name } },
            "spec": { "hostNetwork": name == "host", "containers": [{ "name": "main", "ports": [port] }] },
            "status": { "phase": if name == "over" { "Succeeded" } else { "Running" }, "podIP": address },
        }))
    }

    /// The pod `a` of `one` under one policy, as `ingress` and `egress` in words.
    fn check(spec: Value, ingress: Option<&[&str]>, egress: Option<&[&str]>) {
        let pods = [
            pod("one", "a", "10.0.0.1"),
            pod("one", "b", "10.0.0.2"),
            pod("one", "host", "10.9.0.1"),
            pod("one", "over", "10.0.0.3"),
            pod("two", "b", "10.0.1.2"),
        ];
        let namespaces = ["one", "two"].map(|name| {
            let labels = json!({ "kubernetes.io/metadata.name": name });
            object::<Namespace>(json!({ "metadata": { "name": name, "labels": labels } }))
        });
        let metadata = json!({ "namespace": "one", "name": "policy" });
        let policies = [object::<NetworkPolicy>(json!({ "metadata": metadata, "spec": spec }))];
        let view = View { pods: &pods, namespaces: &namespaces, policies: &policies };
        let words = |rule: &Rule| {
            let mut text = format!("{}/{}", rule.peer.address, rule.peer.prefix);
            for except in &rule.except {
                text += &format!(" not {}/{}", except.address, except.prefix);
            }
            match rule.ports {
                None => text,
                Some(Ports { protocol, range: None }) => format!("{text} {protocol}"),
                Some(Ports { protocol, range: Some((first, last)) }) => {
                    format!("{text} {protocol}:{first}-{last}")
                }
            }
        };
        let told = |rules: Option<Vec<Rule>>| rules.map(|rules| rules.iter().map(words).collect::<Vec<_>>());
        let Filter { ingress: is_in, egress: is_out } = view.filter(&pods[0]);
        let wanted = |rules: Option<&[&str]>| {
            rules.map(|rules| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(told(is_in), wanted(ingress), "ingress of {spec}");
        assert_eq!(told(is_out), wanted(egress), "egress of {spec}");
        let stranger = view.filter(&pods[4]);
        assert_eq!(stranger, Filter::default(), "a policy is for its own namespace only");
    }

    #[test]
    fn directions() {
        let all = json!({});
        check(json!({ "podSelector": { "matchLabels": { "app": "b" } } }), None, None);
        check(json!({ "podSelector": all }), Some(&[]), None);
        check(json!({ "podSelector": all, "egress": [] }), Some(&[]), Some(&[]));
        check(json!({ "podSelector": all, "policyTypes": ["Egress"] }), None, Some(&[]));
        let both = json!({ "podSelector": all, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}] });
        check(both, Some(&["0.0.0.0/0"]), Some(&["0.0.0.0/0"]));
        let expression = json!({ "key": "app", "operator": "In", "values": ["a", "x"] });
        check(json!({ "podSelector": { "matchExpressions": [expression] } }), Some(&[]), None);
    }

    #[test]
    fn peers() {
        let from = |peers: Value, expected: &[&str]| {
            check(json!({ "podSelector": {}, "ingress": [{ "from": peers }] }), Some(expected), None);
        };
        let b = json!({ "matchLabels": { "app": "b" } });
        let two = json!({ "matchLabels": { "kubernetes.io/metadata.name": "two" } });
        from(json!([{ "podSelector": b }]), &["10.0.0.2/32"]);
        from(json!([{ "podSelector": {} }]), &["10.0.0.1/32", "10.0.0.2/32"]);
        from(json!([{ "namespaceSelector": {}, "podSelector": b }]), &["10.0.0.2/32", "10.0.1.2/32"]);
        from(json!([{ "namespaceSelector": two }]), &["10.0.1.2/32"]);
        from(json!([{ "namespaceSelector": two }, { "podSelector": b }]), &["10.0.0.2/32", "10.0.1.2/32"]);
        from(json!([{ "podSelector": { "matchLabels": { "app": "nobody" } } }]), &[]);
        let block = json!({ "cidr": "10.0.0.0/16", "except": ["10.0.1.0/24"] });
        from(json!([{ "ipBlock": block }]), &["10.0.0.0/16 not 10.0.1.0/24"]);
        from(json!([{ "ipBlock": { "cidr": "fd00::/8" } }]), &[]);
    }

    #[test]
    fn ports_by_number_range_and_name() {
        let rule = |ports: Value| json!([{ "ports": ports }]);
        let both = |ports: Value, ingress: &[&str], egress: &[&str]| {
            let spec = json!({ "podSelector": {}, "ingress": rule(ports.clone()), "egress": rule(ports) });
            check(spec, Some(ingress), Some(egress));
        };
        let same = |ports: Value, expected: &[&str]| both(ports, expected, expected);
        same(json!([{ "port": 80 }]), &["0.0.0.0/0 6:80-80"]);
        same(json!([{ "protocol": "UDP" }]), &["0.0.0.0/0 17"]);
        same(json!([{ "port": 80, "endPort": 90, "protocol": "SCTP" }]), &["0.0.0.0/0 132:80-90"]);
        let named = ["10.0.0.1/32 6:8080-8080", "10.0.0.2/32 6:8080-8080", "10.0.1.2/32 6:8080-8080"];
        both(json!([{ "port": "web" }]), &["0.0.0.0/0 6:8080-8080"], &named);
        same(json!([{ "port": "web", "protocol": "UDP" }]), &[]);
        same(json!([{ "port": "nothing" }]), &[]);
    }
}
