//! DynamicResources: claims get devices that the pod's node reaches.
//!
//! In: the claims of a pod, and a node. Out: whether the node reaches the devices of claims that have some, and for the
//! others the devices that they would get there. Never: a write (`shell/outbox`).
//!
//! Source: kube-scheduler 1.36 `dynamicresources`, with the features that are on by default. Cost for each node: that
//! of its pools, and of a search ([`allocator`]) if a claim has no devices yet.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::AllocationResult;
use topology::request::PodNeeds;

use crate::devices::Devices;
use crate::devices::reference::ClaimRef;
use crate::devices::views::claim::{Allocation, Asks, ClaimView, Readiness};
use crate::node::NodeView;
use crate::pod::{PodView, Spec};
use crate::reason::Reason;

pub mod allocator;
mod capacity;
mod constraints;
pub mod extended;
mod pools;

use allocator::{Allocator, Failure};
use extended::ExtendedClaim;

/// The points of the first of several subrequests; each later one has one less (`FirstAvailableDeviceRequestMaxSize`).
const MAX_POINTS: usize = 8;

/// `DynamicResourcesArgs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args {
    /// `bindingTimeout`: how long a pod waits for conditions of its devices.
    pub binding_timeout_ms: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self { binding_timeout_ms: 600_000 }
    }
}

/// The claims of one pod.
#[derive(Clone, Debug)]
pub struct PodClaims<'a> {
    devices: &'a Devices,
    args: Args,
    now_ms: u64,
    all: Vec<&'a ClaimView>,
    /// Those without devices.
    waiting: Vec<&'a ClaimView>,
    /// The pod, if devices may serve extended resources of it.
    extended: Option<Extended<'a>>,
}

/// A pod with extended resources that classes name.
#[derive(Clone, Debug)]
struct Extended<'a> {
    needs: &'a PodNeeds,
    namespace: Arc<str>,
    /// The claim that an earlier attempt has made. What it has may no longer suit, so it has to go first.
    stale: Option<&'a ClaimView>,
}

impl<'a> PodClaims<'a> {
    /// Looks up the claims of a pod; `None`: it has none, and none is made for it. `pod`: the pod, if the spec is that
    /// of one.
    ///
    /// # Errors
    /// The message about a claim for which the pod has to wait.
    pub fn new(
        (spec, pod): (&'a Spec, Option<&PodView>),
        devices: &'a Devices,
        args: Args,
        now_ms: u64,
    ) -> Result<Option<Self>, String> {
        let extended = (!devices.delegated(&spec.needs).is_empty()).then(|| Extended {
            needs: &spec.needs,
            namespace: pod.map_or_else(|| "".into(), |pod| Arc::clone(&pod.namespace)),
            stale: pod.and_then(|pod| devices.claim_made_for(&pod.namespace, &pod.uid)),
        });
        let mut claims = Self { devices, args, now_ms, all: Vec::new(), waiting: Vec::new(), extended };
        for reference in &spec.claims {
            claims.all.push(usable(reference, devices)?);
        }
        let without = claims.all.iter().copied().filter(|claim| claim.allocation.is_none());
        claims.waiting = without.collect();
        for claim in &claims.waiting {
            if devices.is_pending(&claim.key) {
                return Err(format!("resource claim {} is in the process of being allocated", claim.key));
            }
            for request in &claim.requests {
                if request.asks().is_empty() {
                    return Err(format!(
                        "resource claim {}, request {}: unknown request type",
                        claim.key, request.name
                    ));
                }
                for ask in request.asks() {
                    let name = request.result_name(ask);
                    if ask.class.is_empty() {
                        return Err(format!("request {name}: unsupported request type"));
                    }
                    if devices.class(&ask.class).is_none() {
                        return Err(format!("request {name}: device class {} does not exist", ask.class));
                    }
                }
            }
        }
        Ok((!claims.all.is_empty() || claims.extended.is_some()).then_some(claims))
    }

    /// The claim of an earlier attempt, which has to go first.
    #[must_use]
    pub fn stale(&self) -> Option<&'a ClaimView> {
        self.extended.as_ref()?.stale
    }

    /// All claims, but for the one that is made for extended resources.
    #[must_use]
    pub fn all(&self) -> &[&'a ClaimView] {
        &self.all
    }

    /// Those without devices.
    #[must_use]
    pub fn waiting(&self) -> &[&'a ClaimView] {
        &self.waiting
    }

    /// Whether the node fits.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, view: &NodeView) -> Result<(), Reason> {
        self.allocate(view).map_err(|failure| match failure {
            Failure::Unavailable => Reason::DevicesUnavailable,
            Failure::InvalidPools => Reason::InvalidPools,
            Failure::Error(_) => Reason::ClaimError,
            Failure::Extended(reason) => reason,
        })?;
        match self.unavailable(view).next() {
            Some(_) => Err(Reason::ClaimElsewhere),
            None => Ok(()),
        }
    }

    /// The claim that is to be made for extended resources on a node.
    fn made_on(&self, view: &NodeView) -> Result<Option<ExtendedClaim>, Reason> {
        match &self.extended {
            None => Ok(None),
            Some(Extended { stale: Some(_), .. }) => Err(Reason::StaleClaim),
            Some(it) => extended::claim_on((it.needs, &it.namespace), self.devices, view),
        }
    }

    /// The devices that claims without any get on a node, in the order of [`Self::waiting`]; and the claim that is to
    /// be made there, of which the devices are the last.
    ///
    /// # Errors
    /// The reason why they get none.
    pub fn allocate(
        &self,
        view: &NodeView,
    ) -> Result<(Vec<AllocationResult>, Option<ExtendedClaim>), Failure> {
        let made = self.made_on(view).map_err(Failure::Extended)?;
        let waiting: Vec<&ClaimView> =
            self.waiting.iter().copied().chain(made.as_ref().map(|made| &made.view)).collect();
        if waiting.is_empty() {
            return Ok((Vec::new(), None));
        }
        let pools = pools::gather(self.devices, view);
        let found = Allocator::new(self.devices, &waiting, view, pools).allocate()?;
        Ok((found, made))
    }

    /// The claims with devices that the node does not reach, or whose devices are not made ready.
    pub fn unavailable(&self, view: &NodeView) -> impl Iterator<Item = &'a ClaimView> + '_ {
        let view = (view.name.clone(), view.labels.clone());
        self.all.iter().copied().filter(move |claim| {
            let Some(allocation) = &claim.allocation else { return false };
            let is_elsewhere = allocation.nodes.as_ref().is_some_and(|it| !it.selects(&view.0, &view.1));
            is_elsewhere || self.has_failed(claim)
        })
    }

    /// Whether conditions of a claim's devices will not hold, or did not in time.
    fn has_failed(&self, claim: &ClaimView) -> bool {
        match &claim.readiness {
            Readiness::Ready | Readiness::Waiting(None) => false,
            Readiness::Waiting(Some(since_ms)) => {
                since_ms.saturating_add(self.args.binding_timeout_ms) < self.now_ms
            }
            Readiness::Failed(_) => true,
        }
    }

    /// Whether nodes differ in the points that subrequests give.
    #[must_use]
    pub fn scores(&self) -> bool {
        let has_choice = |claim: &&ClaimView| {
            claim.requests.iter().any(|request| matches!(request.asks, Asks::FirstOf(_)))
        };
        !self.waiting.is_empty() && self.all.iter().any(has_choice)
    }

    /// The points of the node, by the subrequests whose devices the claims get there (1.36 `computeScore`).
    #[must_use]
    pub fn points(&self, view: &NodeView) -> i64 {
        let Ok((found, _)) = self.allocate(view) else { return 0 };
        let mut found = found.into_iter().map(Allocation::read);
        let mut points = 0;
        for claim in &self.all {
            let own = claim.allocation.as_deref().map(|allocation| allocation.requests.clone());
            let Some(names) = own.or_else(|| found.next().map(|it| it.requests)) else { break };
            for request in claim.requests.iter().filter(|it| matches!(it.asks, Asks::FirstOf(_))) {
                let asks = request.asks().iter().enumerate();
                let chosen = asks.filter(|(_, ask)| names.contains(&request.result_name(ask)));
                points += chosen.map(|(at, _)| MAX_POINTS.saturating_sub(at)).sum::<usize>();
            }
        }
        i64::try_from(points).unwrap_or(i64::MAX)
    }
}

/// A claim that a pod may use (1.36 `foreachPodResourceClaim`).
fn usable<'a>(reference: &ClaimRef, devices: &'a Devices) -> Result<&'a ClaimView, String> {
    let key = match reference {
        ClaimRef::Named(key) | ClaimRef::Made { key, .. } => key,
        ClaimRef::Missing(reason) => return Err(reason.clone()),
    };
    let Some(claim) = devices.claim(key) else {
        return Err(format!("could not find ResourceClaim \"{key}\""));
    };
    if claim.is_leaving {
        return Err(format!("resourceclaim {:?} is being deleted", claim.key.name));
    }
    match reference {
        ClaimRef::Made { pod, uid, .. } if claim.controller.as_ref() != Some(uid) => Err(format!(
            "ResourceClaim {key} was not created for Pod {}/{pod} (Pod is not owner)",
            key.namespace
        )),
        _ => Ok(claim),
    }
}

#[cfg(test)]
mod tests;
