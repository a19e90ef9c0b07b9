//! Whom pods may talk to.
//!
//! In: labels of pods, ports. Out: NetworkPolicies. Never: a peer's address: API servers and kubelets have none that a manifest could know.
//!
//! Names need not be looked up: in a pod the API server's address comes from the environment. So there is no rule for DNS.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta::{selector, within};

/// What pods may do beyond nothing; `None`: not spoken about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openings {
    /// TCP ports of theirs that anybody may reach; with none, nobody reaches any.
    pub ingress: Option<Vec<u16>>,
    /// TCP ports of anybody that they may reach; with none, they reach nobody.
    pub egress: Option<Vec<u16>>,
}

/// A policy for the pods with these labels.
#[must_use]
pub fn policy(
    namespace: &str,
    name: &str,
    pods: &BTreeMap<String, String>,
    openings: &Openings,
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

fn port(number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(number.into())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    }
}
