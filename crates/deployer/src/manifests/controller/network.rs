//! NetworkPolicies of a controller manager.
//!
//! In: [`Options`]. Out: NetworkPolicies with the Go operator's names. Never: a policy for operands.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{METRICS, Options};
use crate::manifests::network::{AllowedPorts, Servers, only_api_server, policy};

/// Allows egress to the API server and to `kubelets` at this port, and metrics from anywhere.
#[must_use]
pub fn policies(
    options: &Options,
    pods: &BTreeMap<String, String>,
    kubelets: Option<u16>,
) -> [NetworkPolicy; 3] {
    let namespace = &options.namespace;
    let servers = [Servers::api(&options.common)].into_iter().chain(kubelets.map(Servers::kubelets));
    let [nothing, server] = only_api_server(namespace, "operator", pods, servers.collect());
    let metrics = AllowedPorts { ingress: Some(vec![METRICS]), egress: None };
    [nothing, server, policy(namespace, "ingress-to-operator-metrics", pods, &metrics)]
}
