//! What the account of the run may do.
//!
//! In: a client. Out: the rights that are missing, in words. Never: a request that changes something.

use anyhow::ensure;
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::cluster::NAMESPACE;

/// A right: verb, group, resource (`resource/subresource`), namespace.
pub type Right = (&'static str, &'static str, &'static str, &'static str);

/// Without these nothing can be tested.
const REQUIRED: [Right; 12] = [
    ("watch", "", "nodes", ""),
    ("watch", "", "pods", ""),
    ("watch", "", "events", ""),
    ("watch", "topology.node.k8s.io", "noderesourcetopologies", ""),
    ("patch", "", "nodes", ""),
    ("create", "", "namespaces", ""),
    ("delete", "", "namespaces", ""),
    ("create", "", "configmaps", NAMESPACE),
    ("create", "", "pods", NAMESPACE),
    ("delete", "", "pods", NAMESPACE),
    ("create", "apps", "daemonsets", NAMESPACE),
    ("create", "coordination.k8s.io", "leases", NAMESPACE),
];
/// Commands in containers, by way of the node.
pub const EXEC: Right = ("create", "", "nodes/proxy", "");

/// Fails unless the account may do what every run does.
///
/// # Errors
/// The rights that are missing, in one line.
pub async fn require(client: &Client) -> anyhow::Result<()> {
    let answers = try_join_all(REQUIRED.iter().map(|right| may(client, right))).await?;
    let missing = REQUIRED.iter().zip(answers).filter(|(_, allowed)| !allowed).map(|(right, _)| words(right));
    let missing: Vec<String> = missing.collect();
    ensure!(
        missing.is_empty(),
        "the account may not {}; the suite needs an administrator",
        missing.join(", ")
    );
    Ok(())
}

/// Whether the account has a right.
///
/// # Errors
/// When the API server does not answer.
pub async fn may(client: &Client, (verb, group, resource, namespace): &Right) -> anyhow::Result<bool> {
    let (resource, subresource) = resource.split_once('/').map_or((*resource, None), |(a, b)| (a, Some(b)));
    let attributes = ResourceAttributes {
        verb: Some((*verb).to_owned()),
        group: Some((*group).to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        namespace: (!namespace.is_empty()).then(|| (*namespace).to_owned()),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// As `watch nodes` and `create pods in namespace a`.
fn words((verb, _, resource, namespace): &Right) -> String {
    let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
    format!("{verb} {resource}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_named_in_words() {
        assert_eq!(words(&("watch", "", "nodes", "")), "watch nodes");
        assert_eq!(words(&("create", "", "pods", "a")), "create pods in namespace a");
    }
}
