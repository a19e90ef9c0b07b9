//! NetworkPolicies.
//!
//! In: labels of pods, ports, address ranges that were stated. Out: NetworkPolicies. Never: an address by itself;
//! manifests do not know those of API servers and kubelets.
//!
//! There is no rule for DNS: pods take the API server's address from their environment.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta::{selector, within};
use crate::options::Options;

/// Servers that pods may connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Their TCP ports.
    pub ports: Vec<u16>,
    /// Their address ranges; empty: any address.
    pub cidrs: Vec<String>,
}

impl Servers {
    /// The API servers.
    #[must_use]
    pub fn api(options: &Options) -> Self {
        Self { ports: options.api_server_ports.clone(), cidrs: options.api_server_cidrs.clone() }
    }

    /// Kubelets. Their addresses are those of nodes, which come and go.
    #[must_use]
    pub fn kubelets(port: u16) -> Self {
        Self { ports: vec![port], cidrs: Vec::new() }
    }
}

/// The allowed connections; `None`: the policy does not restrict this direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedPorts {
    /// Ports of the pods that accept connections; empty: none.
    pub ingress: Option<Vec<u16>>,
    /// Servers that the pods may connect to; empty: none.
    pub egress: Option<Vec<Servers>>,
}

/// A policy for the pods with these labels.
#[must_use]
pub fn policy(
    namespace: &str,
    name: &str,
    pods: &BTreeMap<String, String>,
    openings: &AllowedPorts,
) -> NetworkPolicy {
    let types = [("Ingress", openings.ingress.is_some()), ("Egress", openings.egress.is_some())];
    let types = types.into_iter().filter(|(_, limited)| *limited).map(|(name, _)| name.to_owned());
    let ingress = openings.ingress.as_deref().and_then(ports);
    let egress: Vec<_> = openings.egress.iter().flatten().map(to).collect();
    NetworkPolicy {
        metadata: within(namespace, name),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(pods)),
            policy_types: Some(types.collect()),
            ingress: ingress.map(|ports| vec![NetworkPolicyIngressRule { ports: Some(ports), from: None }]),
            egress: (!egress.is_empty()).then_some(egress),
        }),
    }
}

/// Two policies that permit connections to API servers only: `NAME-default-deny-all` and `NAME-egress-to-api-server`.
pub(super) fn only_api_server(
    namespace: &str,
    name: &str,
    pods: &BTreeMap<String, String>,
    servers: Vec<Servers>,
) -> [NetworkPolicy; 2] {
    let nothing = AllowedPorts { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
    let server = AllowedPorts { ingress: None, egress: Some(servers) };
    [("default-deny-all", nothing), ("egress-to-api-server", server)]
        .map(|(suffix, openings)| policy(namespace, &format!("{name}-{suffix}"), pods, &openings))
}

fn to(servers: &Servers) -> NetworkPolicyEgressRule {
    let peers = servers.cidrs.iter().map(|cidr| NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr: cidr.clone(), except: None }),
        ..NetworkPolicyPeer::default()
    });
    let to = Some(peers.collect()).filter(|peers: &Vec<_>| !peers.is_empty());
    NetworkPolicyEgressRule { ports: ports(&servers.ports), to }
}

/// `None` without ports.
fn ports(numbers: &[u16]) -> Option<Vec<NetworkPolicyPort>> {
    (!numbers.is_empty()).then(|| numbers.iter().copied().map(port).collect())
}

fn port(number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(number.into())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    }
}
