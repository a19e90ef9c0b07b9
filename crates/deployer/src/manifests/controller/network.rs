//! NetworkPolicies of a controller manager.
//!
//! In: [`Options`]. Out: NetworkPolicies with the Go operator's names. Never: a policy for operands.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{METRICS, Options};
use crate::manifests::network::{AllowedPorts, only_api_server, policy};

/// Allows egress to the API server and the port `more`, and metrics from anywhere.
#[must_use]
pub fn policies(options: &Options, pods: &BTreeMap<String, String>, more: Option<u16>) -> [NetworkPolicy; 3] {
    let namespace = &options.namespace;
    let servers: Vec<u16> = options.common.api_server_ports.iter().copied().chain(more).collect();
    let [nothing, server] = only_api_server(namespace, "operator", pods, &servers);
    let metrics = AllowedPorts { ingress: Some(vec![METRICS]), egress: None };
    [nothing, server, policy(namespace, "ingress-to-operator-metrics", pods, &metrics)]
}
