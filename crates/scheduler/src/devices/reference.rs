//! The claims of a pod, by reference.
//!
//! In: `spec.resourceClaims`, and for claims that are made for the pod `status.resourceClaimStatuses`. Out: which
//! claims the pod names. Never: what a claim has become.
//!
//! Source: kube-scheduler 1.36 `resourceclaim.Name` and `IsForPod`.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use crate::volumes::reference::ClaimKey;

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimRef {
    /// A claim that exists by itself.
    Named(ClaimKey),
    /// A claim that was made for the pod from a template.
    Made {
        /// The claim.
        key: ClaimKey,
        /// The pod's name.
        pod: Arc<str>,
        /// The pod's uid, which the claim has to name as its controller.
        uid: Arc<str>,
    },
    /// A claim for which kube-scheduler's words say why it is none.
    Missing(String),
}

impl ClaimRef {
    /// The claims of a pod, without those that no claim was needed for.
    pub(crate) fn read(pod: &wire::Pod) -> Vec<Self> {
        let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
        let status = pod.status.as_ref();
        let made = || status.and_then(|status| status.resource_claim_statuses.as_ref()).into_iter().flatten();
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let meta = &pod.metadata;
        let (namespace, name) = (text(meta.namespace.as_ref()), text(meta.name.as_ref()));
        let key =
            |claim: &String| ClaimKey { namespace: Arc::clone(&namespace), name: claim.as_str().into() };
        let read = |claim: &wire::PodResourceClaim| match (
            &claim.resource_claim_name,
            &claim.resource_claim_template_name,
        ) {
            (Some(claim), _) => Some(Self::Named(key(claim))),
            (None, Some(_)) => match made().find(|status| status.name == claim.name) {
                Some(status) => status.resource_claim_name.as_ref().map(|claim| Self::Made {
                    key: key(claim),
                    pod: Arc::clone(&name),
                    uid: text(meta.uid.as_ref()),
                }),
                None => {
                    Some(Self::Missing(format!("pod \"{namespace}/{name}\": ResourceClaim not created yet")))
                }
            },
            (None, None) => Some(Self::Missing(format!(
                "pod \"{namespace}/{name}\", spec.resourceClaim {:?}: none of the supported fields are set",
                claim.name
            ))),
        };
        claims.into_iter().flatten().filter_map(read).collect()
    }

    /// The claim, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<&ClaimKey> {
        match self {
            Self::Named(key) | Self::Made { key, .. } => Some(key),
            Self::Missing(_) => None,
        }
    }
}
