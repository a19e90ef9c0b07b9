//! The kubelets of nodes, as users state them.
//!
//! In and out: the object as stored. Never: a default; each distribution has its own.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;

/// The kubelets of nodes: their paths, and the check of their certificates. It is for Kubernetes; on OpenShift and
/// HyperShift only `distribution: openshift` is accepted. What is absent is as the operator's flags say, else as
/// kubeadm has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = schema::kubelet_rules())))]
pub struct Kubelets {
    /// The distribution that the other fields differ from: the source of their defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::distribution"))]
    pub distribution: Option<String>,
    /// The kubelet's root directory (its `--root-dir`). Default: that of the distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 4096)))]
    pub root: Option<String>,
    /// The source of its configuration: the path of its file; `configz` or `configz:PORT`, which asks the kubelet and
    /// needs Kubernetes 1.33; or policy and scope as stated here, such as `single-numa-node/container`. Default: that
    /// of the distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 4096)))]
    pub config: Option<String>,
    /// The directory of drop-ins to that file (the kubelet's `--config-dir`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 4096)))]
    pub config_drop_ins: Option<String>,
    /// The name of a ConfigMap in the operator's namespace, in whose key `ca.crt` is the authority that signed the
    /// kubelets' certificates. Default: the cluster's authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 253)))]
    pub certificate_authority: Option<String>,
    /// Whether kubelets' certificates are not checked: any server at a node's address gets the tokens of operator and
    /// exporter. Default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
}
