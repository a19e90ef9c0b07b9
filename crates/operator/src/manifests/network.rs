//! Whom the operator may talk to.
//!
//! In: [`Options`]. Out: NetworkPolicies, under the names of the Go operator's. Never: a rule for its operands: it makes those itself.

use std::collections::BTreeMap;

use deployer::manifests::network::{Openings, policy};
use deployer::platform::Platform;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::Options;
use super::deployment::{METRICS, pod_labels};

/// Where kubelets answer.
const KUBELET: u16 = 10250;

/// Nothing; but the API server, and where it has to ask them the kubelets; and metrics to anybody.
#[must_use]
pub fn policies(options: &Options) -> [NetworkPolicy; 3] {
    let kubelets = (options.common.platform == Platform::Kubernetes).then_some(KUBELET);
    policies_of(options, &pod_labels(), kubelets)
}

/// The same of any operator, which may also reach the port `more`.
#[must_use]
pub fn policies_of(
    options: &Options,
    pods: &BTreeMap<String, String>,
    more: Option<u16>,
) -> [NetworkPolicy; 3] {
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
