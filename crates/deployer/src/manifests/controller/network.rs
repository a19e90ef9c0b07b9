//! NetworkPolicies of a controller manager.
//!
//! In: [`Options`]. Out: NetworkPolicies with the Go operator's names. Never: a policy for operands.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{METRICS, Options};
use crate::manifests::network::{AllowedPorts, policy};

/// Allows egress to the API server and the port `more`, and metrics from anywhere.
#[must_use]
pub fn policies(options: &Options, pods: &BTreeMap<String, String>, more: Option<u16>) -> [NetworkPolicy; 3] {
    let of = |name: &str, ingress, egress| {
        policy(&options.namespace, name, pods, &AllowedPorts { ingress, egress })
    };
    let mut servers = options.common.api_server_ports.clone();
    servers.extend(more);
    [
        of("operator-default-deny-all", Some(Vec::new()), Some(Vec::new())),
        of("operator-egress-to-api-server", None, Some(servers)),
        of("ingress-to-operator-metrics", Some(vec![METRICS]), None),
    ]
}
