//! Whether we may do what we have to.
//!
//! In: an API server. Out: what is not allowed, in the log and as a check of readiness. Never: a watch that is silently blocked.

use std::time::Duration;

use api::hardware;
use api::kmm;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use runtime::client::brief;
use tokio::sync::watch;
use tracing::{info, warn};

use super::watch::DEFINITION;

/// Between questions while something is missing.
const AGAIN: Duration = Duration::from_secs(10);

/// Without these nothing works: group, resource, verbs.
pub(super) const NEEDED: [(&str, &str, &[&str]); 11] = [
    // Of one name only.
    ("apiextensions.k8s.io", "customresourcedefinitions", &["list", "watch"]),
    (hardware::GROUP, hardware::PLURAL, &["list", "watch", "patch"]),
    (hardware::GROUP, "deviceconfigs/status", &["patch"]),
    ("", "nodes", &["list", "watch", "patch"]),
    ("", "pods", &["list", "watch"]),
    ("", "pods/eviction", &["create"]),
    (kmm::GROUP, kmm::MODULES, &["get", "list", "watch", "create", "patch", "delete"]),
    (kmm::GROUP, kmm::node::PLURAL, &["list", "watch"]),
    (kmm::GROUP, kmm::image::PLURAL, &["list", "watch"]),
    ("", "serviceaccounts", &["get", "create", "patch", "delete"]),
    ("", "configmaps", &["get", "create", "patch", "delete"]),
];

/// The only name that matters, where it does.
pub(super) fn only(resource: &str) -> Option<&'static str> {
    (resource == "customresourcedefinitions").then_some(DEFINITION)
}

/// What is missing; empty: nothing, as far as is known.
pub type Missing = watch::Receiver<Vec<String>>;

/// What readiness says of it.
///
/// # Errors
/// What is missing.
pub fn check(missing: &Missing) -> Result<(), String> {
    match missing.borrow().as_slice() {
        [] => Ok(()),
        missing => Err(format!("the service account may not {}", missing.join(", "))),
    }
}

/// Asks until nothing is missing.
pub async fn follow(client: Client, told: watch::Sender<Vec<String>>) {
    loop {
        let missing = match ask(&client).await {
            Ok(missing) => missing,
            Err(error) => {
                warn!(error = brief(&error), "cannot ask what we may do; going on as if all were allowed");
                return;
            }
        };
        let none = missing.is_empty();
        let changed = told.send_if_modified(|known| {
            let changed = *known != missing;
            known.clone_from(&missing);
            changed
        });
        if none {
            if changed {
                info!("everything is allowed now");
            }
            return;
        }
        if changed {
            warn!(
                missing = missing.join(", "),
                "the service account may not do what DeviceConfigs need; see its ClusterRole"
            );
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn ask(client: &Client) -> Result<Vec<String>, kube::Error> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for (group, resource, verbs) in NEEDED {
        for verb in verbs {
            let (plain, sub) =
                resource.split_once('/').map_or((resource, None), |(plain, sub)| (plain, Some(sub)));
            let attributes = ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(plain.to_owned()),
                subresource: sub.map(str::to_owned),
                verb: Some((*verb).to_owned()),
                name: only(resource).map(str::to_owned),
                ..ResourceAttributes::default()
            };
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(attributes),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let answer = reviews.create(&PostParams::default(), &review).await?;
            if answer.status.is_none_or(|status| !status.allowed) {
                missing.push(format!("{verb} {resource}"));
            }
        }
    }
    Ok(missing)
}
