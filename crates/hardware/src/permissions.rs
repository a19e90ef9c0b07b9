//! Whether we may do what we have to.
//!
//! In: an API server. Out: what is not allowed, in the log and as a check of readiness. Never: a watch that is silently
//! blocked.

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

use super::claims_in_use;
use super::module::SCC_ROLE;
use super::watch::DEFINITION;

/// Between questions while something is missing.
const AGAIN: Duration = Duration::from_secs(10);

/// Rights to one resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) group: &'static str,
    /// With its subresource.
    pub(super) resource: &'static str,
    /// The only name that matters, where one does.
    pub(super) name: Option<&'static str>,
    pub(super) verbs: &'static [&'static str],
}

const NAMED: &[&str] = &["get", "create", "patch", "delete"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// Without these nothing works.
pub(super) fn needed(openshift: bool) -> Vec<Need> {
    let any = |group, resource, verbs| Need { group, resource, name: None, verbs };
    let one = |group, resource, name, verbs| Need { name: Some(name), ..any(group, resource, verbs) };
    let mut all = vec![
        one("apiextensions.k8s.io", "customresourcedefinitions", DEFINITION, &["list", "watch"]),
        any(hardware::GROUP, hardware::PLURAL, &["list", "watch", "patch"]),
        any(hardware::GROUP, "deviceconfigs/status", &["patch"]),
        any("", "nodes", &["list", "watch", "patch"]),
        any("", "pods", &["list", "watch"]),
        any("", "pods/eviction", &["create"]),
        any(claims_in_use::GROUP, claims_in_use::PLURAL, &["list", "watch"]),
        any(kmm::GROUP, kmm::MODULES, &["get", "list", "watch", "create", "patch", "delete"]),
        any(kmm::GROUP, kmm::node::PLURAL, &["list", "watch"]),
        any(kmm::GROUP, kmm::image::PLURAL, &["list", "watch"]),
        any("", "serviceaccounts", NAMED),
        any("", "configmaps", NAMED),
    ];
    if openshift {
        // The accounts of KMM's pods and of the device plugin.
        all.push(any(RBAC, "rolebindings", NAMED));
        all.push(one(RBAC, "clusterroles", SCC_ROLE, &["bind"]));
    }
    all
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
pub async fn follow(client: Client, openshift: bool, told: watch::Sender<Vec<String>>) {
    loop {
        let missing = match ask(&client, openshift).await {
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

async fn ask(client: &Client, openshift: bool) -> Result<Vec<String>, kube::Error> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for Need { group, resource, name, verbs } in needed(openshift) {
        for verb in verbs {
            let (plain, sub) =
                resource.split_once('/').map_or((resource, None), |(plain, sub)| (plain, Some(sub)));
            let attributes = ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(plain.to_owned()),
                subresource: sub.map(str::to_owned),
                verb: Some((*verb).to_owned()),
                name: name.map(str::to_owned),
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
