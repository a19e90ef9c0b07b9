//! Verifies that no pod uses the devices of some nodes.
//!
//! In: a [`Precondition`]. Out: nothing if the API server confirms it, else a fault. Never: an answer from a watch,
//! which may be behind.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::core::ApiResource;
use kube::{Api, Resource};
use objects::ObjectKind;
use runtime::client::is_not_found;
use runtime::wire::Texts;
use serde::de::DeserializeOwned;

use super::{Executor, Fault, fault};
use crate::claim::Id;
use crate::claims_in_use::{ClaimsInUse, is_driver};
use crate::cluster_state::{AffectedConfigs, ClusterState, Pod};
use crate::precondition::Precondition;
use crate::wire::{WireClaim, WirePod, read_claim, read_pod};

/// Objects of one page of a list.
const PAGE: u32 = 500;

impl Executor {
    /// Verifies with the API server that no pod uses the devices of these nodes, and that none can be on its way there.
    pub(super) async fn verify_unused(&self, unused: &Precondition) -> Result<(), Fault> {
        if unused.device_names.is_empty() {
            return Ok(());
        }
        if let Some(left) = unused.remaining(Timestamp::now(), self.binding) {
            return Err(Fault::Later(left));
        }
        let gone = self.shared.read(ClusterState::pods_gone);
        let mut pods = self.pods(unused).await?;
        let by_claims = !pods.is_empty() && unused.device_names.iter().any(|name| is_driver(name));
        let claims = if by_claims { self.claims_in_use().await? } else { ClaimsInUse::default() };
        pods.retain(|(_, pod)| pod.uses(&unused.device_names, Some(&claims)));
        if pods.is_empty() {
            return Ok(());
        }
        self.shared.update(|cluster| {
            let mut affected = AffectedConfigs::new();
            for (id, claim) in pods.iter().flat_map(|(_, pod)| claims.of(&pod.uid)) {
                affected.extend(cluster.put_claim_in_use(id.clone(), Some(claim.clone())));
            }
            affected.extend(cluster.put_listed_pods(pods, gone));
            affected
        });
        Err(Fault::Stale)
    }

    /// The pods on these nodes that may have devices.
    async fn pods(&self, unused: &Precondition) -> Result<Vec<(Id, Pod)>, Fault> {
        let mut params = ListParams::default();
        if let (1, Some(node)) = (unused.cordon_taints.len(), unused.cordon_taints.keys().next()) {
            params = params.fields(&format!("spec.nodeName={node}"));
        }
        let (mut pods, mut texts) = (Vec::new(), Texts::default());
        let kind = ObjectKind::of::<core::Pod>();
        let listed = self.pages(&kind, params, |pod: WirePod| {
            let (id, pod) = read_pod(pod, &mut texts);
            let pod = pod.filter(|pod| unused.cordon_taints.contains_key(&*pod.node));
            pods.extend(pod.map(|pod| (id, pod)));
        });
        listed.await.map_err(|error| fault("pods that may use the devices", &error, false))?;
        Ok(pods)
    }

    /// The resource claims by which pods have devices; none if the API server does not have the kind.
    async fn claims_in_use(&self) -> Result<ClaimsInUse, Fault> {
        let (mut claims, mut texts) = (ClaimsInUse::default(), Texts::default());
        let kind = ObjectKind::of::<ResourceClaim>();
        let listed = self.pages(&kind, ListParams::default(), |claim: WireClaim| {
            let (id, claim) = read_claim(claim, &mut texts);
            claims.put(id, claim);
        });
        match listed.await {
            Err(error) if !is_not_found(&error) => {
                Err(fault("resource claims that pods may have devices by", &error, false))
            }
            _ => Ok(claims),
        }
    }

    /// Lists the objects of all namespaces page by page.
    async fn pages<W>(
        &self,
        kind: &ObjectKind,
        params: ListParams,
        mut take: impl FnMut(W),
    ) -> Result<(), kube::Error>
    where
        W: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned,
    {
        let api = Api::<W>::all_with(self.client.clone(), &kind.resource());
        let mut params = params.limit(PAGE);
        loop {
            let list = api.list(&params).await?;
            list.items.into_iter().for_each(&mut take);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }
}
