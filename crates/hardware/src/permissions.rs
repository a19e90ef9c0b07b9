//! Verification of the service account's rights.
//!
//! In: an API server. Out: missing rights, in the log and as a check of readiness. Never: a watch that is silently
//! blocked.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use runtime::client::brief;
use tokio::sync::watch;
use tracing::{info, warn};

use super::rbac::required;

/// The pause between verifications while rights are missing.
const PAUSE: Duration = Duration::from_secs(10);

/// Missing rights; empty: none is known to be missing.
pub type Missing = watch::Receiver<Vec<String>>;

/// The check of readiness.
///
/// # Errors
/// The missing rights.
pub fn check(missing: &Missing) -> Result<(), String> {
    match missing.borrow().as_slice() {
        [] => Ok(()),
        missing => Err(format!("the service account may not {}", missing.join(", "))),
    }
}

/// Verifies the rights until none is missing, and sends the missing ones.
pub async fn verify(client: Client, openshift: bool, sender: watch::Sender<Vec<String>>) {
    loop {
        let missing = match missing(&client, openshift).await {
            Ok(missing) => missing,
            Err(error) => {
                warn!(
                    error = brief(&error),
                    "cannot verify the rights of the service account; going on without"
                );
                return;
            }
        };
        let is_complete = missing.is_empty();
        let changed = sender.send_if_modified(|known| std::mem::replace(known, missing.clone()) != missing);
        match (is_complete, changed) {
            (true, true) => info!("the service account has all rights now"),
            (false, true) => warn!(
                missing = missing.join(", "),
                "the service account lacks rights that DeviceConfigs need; see its ClusterRole"
            ),
            _ => {}
        }
        if is_complete {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Missing rights as `verb resource`.
async fn missing(client: &Client, openshift: bool) -> Result<Vec<String>, kube::Error> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for rule in required(openshift) {
        let group = rule.api_groups.unwrap_or_default().pop();
        let name = rule.resource_names.unwrap_or_default().pop();
        for resource in rule.resources.unwrap_or_default() {
            let (plain, sub) = match resource.split_once('/') {
                Some((plain, sub)) => (plain, Some(sub)),
                None => (resource.as_str(), None),
            };
            for verb in &rule.verbs {
                let attributes = ResourceAttributes {
                    group: group.clone(),
                    resource: Some(plain.to_owned()),
                    subresource: sub.map(str::to_owned),
                    verb: Some(verb.clone()),
                    name: name.clone(),
                    ..ResourceAttributes::default()
                };
                let spec = SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(attributes),
                    ..SelfSubjectAccessReviewSpec::default()
                };
                let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
                let answer = reviews.create(&PostParams::default(), &review).await?;
                if answer.status.is_none_or(|status| !status.allowed) {
                    missing.push(format!("{verb} {resource}"));
                }
            }
        }
    }
    Ok(missing)
}
