//! NetworkPolicies.
//!
//! In: labels of pods, ports. Out: NetworkPolicies. Never: an address; manifests do not know those of API servers and
//! kubelets.
//!
//! There is no rule for DNS: pods take the API server's address from their environment.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta::{selector, within};

/// The allowed TCP ports; `None`: the policy does not restrict this direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedPorts {
    /// Ports of the pods that accept connections; empty: none.
    pub ingress: Option<Vec<u16>>,
    /// Ports at any address that the pods may connect to; empty: none.
    pub egress: Option<Vec<u16>>,
}

/// A policy for the pods with these labels.
#[must_use]
pub fn policy(
    namespace: &str,
    name: &str,
    pods: &BTreeMap<String, String>,
    openings: &AllowedPorts,
) -> NetworkPolicy {
    let ports = |ports: &Vec<u16>| {
        let ports: Vec<NetworkPolicyPort> = ports.iter().copied().map(port).collect();
        (!ports.is_empty()).then_some(ports)
    };
    let types = [("Ingress", &openings.ingress), ("Egress", &openings.egress)];
    let types = types.into_iter().filter(|(_, ports)| ports.is_some()).map(|(name, _)| name.to_owned());
    let ingress = openings.ingress.as_ref().and_then(ports);
    let egress = openings.egress.as_ref().and_then(ports);
    NetworkPolicy {
        metadata: within(namespace, name),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(pods)),
            policy_types: Some(types.collect()),
            ingress: ingress.map(|ports| vec![NetworkPolicyIngressRule { ports: Some(ports), from: None }]),
            egress: egress.map(|ports| vec![NetworkPolicyEgressRule { ports: Some(ports), to: None }]),
        }),
    }
}

/// Two policies that permit connections to API servers only: `NAME-default-deny-all` and `NAME-egress-to-api-server`.
pub(super) fn only_api_server(
    namespace: &str,
    name: &str,
    pods: &BTreeMap<String, String>,
    servers: &[u16],
) -> [NetworkPolicy; 2] {
    let nothing = AllowedPorts { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
    let server = AllowedPorts { ingress: None, egress: Some(servers.to_vec()) };
    [("default-deny-all", nothing), ("egress-to-api-server", server)]
        .map(|(suffix, openings)| policy(namespace, &format!("{name}-{suffix}"), pods, &openings))
}

fn port(number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(number.into())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    }
}
