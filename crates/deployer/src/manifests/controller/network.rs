//! Whom a controller manager may talk to.
//!
//! In: [`Options`]. Out: NetworkPolicies, under the names of the Go operator's. Never: a rule for its operands.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{METRICS, Options};
use crate::manifests::network::{Openings, policy};

/// Nothing is allowed but the API server, the port `more`, and metrics for everyone.
#[must_use]
pub fn policies(options: &Options, pods: &BTreeMap<String, String>, more: Option<u16>) -> [NetworkPolicy; 3] {
    let of =
        |name: &str, ingress, egress| policy(&options.namespace, name, pods, &Openings { ingress, egress });
    let mut servers = options.common.api_server_ports.clone();
    servers.extend(more);
    [
        of("operator-default-deny-all", Some(Vec::new()), Some(Vec::new())),
        of("operator-egress-to-api-server", None, Some(servers)),
        of("ingress-to-operator-metrics", Some(vec![METRICS]), None),
    ]
}
