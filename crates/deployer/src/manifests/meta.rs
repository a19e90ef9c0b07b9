//! Metadata, labels, selectors and namespaces.
//!
//! In: names and labels. Out: metadata. Never: the labels of ownership; [`crate::part`] sets these.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Namespace, ResourceQuota, ResourceQuotaSpec, ScopeSelector, ScopedResourceSelectorRequirement,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::platform::Platform;

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSecurityLevel {
    /// Allows `hostPath` volumes, which the lower levels forbid.
    Privileged,
    /// Allows no access to the node.
    Restricted,
}

/// Metadata of a cluster-scoped object.
#[must_use]
pub fn cluster(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Metadata of a namespaced object.
#[must_use]
pub fn within(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_owned()), ..cluster(name) }
}

/// Labels or annotations.
#[must_use]
pub fn labels<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// A selector of objects with all of the labels.
#[must_use]
pub fn selector(labels: &BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() }
}

/// A namespace that enforces `level`.
#[must_use]
pub fn namespace(name: &str, level: PodSecurityLevel, platform: Platform) -> Namespace {
    let word = match level {
        PodSecurityLevel::Privileged => "privileged",
        PodSecurityLevel::Restricted => "restricted",
    };
    let mut metadata = cluster(name);
    let modes = ["enforce", "audit", "warn"].map(|mode| format!("pod-security.kubernetes.io/{mode}"));
    let mut marks = BTreeMap::from(modes.map(|label| (label, word.to_owned())));
    if platform.is_openshift() {
        // Otherwise OpenShift sets these labels from the service accounts' SecurityContextConstraints.
        marks.insert("security.openshift.io/scc.podSecurityLabelSync".to_owned(), "false".to_owned());
    }
    metadata.labels = Some(marks);
    Namespace { metadata, ..Namespace::default() }
}

/// A ResourceQuota that admits pods of critical priority, for clusters that demand one outside of `kube-system` (GKE).
#[must_use]
pub fn critical_quota(namespace: &str) -> ResourceQuota {
    let classes = ["system-node-critical", "system-cluster-critical"];
    let requirement = ScopedResourceSelectorRequirement {
        scope_name: "PriorityClass".to_owned(),
        operator: "In".to_owned(),
        values: Some(classes.map(str::to_owned).to_vec()),
    };
    ResourceQuota {
        metadata: within(namespace, "critical-pods"),
        spec: Some(ResourceQuotaSpec {
            hard: Some(BTreeMap::from([("pods".to_owned(), Quantity("1G".to_owned()))])),
            scope_selector: Some(ScopeSelector { match_expressions: Some(vec![requirement]) }),
            scopes: None,
        }),
        status: None,
    }
}
