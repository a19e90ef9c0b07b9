//! ResourceClaims as the scheduler keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as wire;
use topology::quantity::Quantity;

use super::{Amounts, DeviceId, NodeSelector, amounts, quantity, selectors};
use crate::devices::selector::Selector;
use crate::volumes::reference::ClaimKey;

/// The finalizer of claims that are allocated.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of claims that a scheduler makes for extended resources (`ExtendedResourceClaimAnnotation`).
pub const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// A ResourceClaim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimView {
    /// Namespace and name.
    pub key: ClaimKey,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`, where it is a number.
    pub version: u64,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether it has the finalizer of allocated claims.
    pub is_protected: bool,
    /// The uid of its controller.
    pub controller: Option<Arc<str>>,
    /// Whether a scheduler made it for extended resources of its controller.
    pub is_extended: bool,
    /// What it asks for.
    pub requests: Vec<Request>,
    /// What its devices must have in common or apart.
    pub constraints: Vec<Constraint>,
    /// Configuration for drivers, in order.
    pub config: Vec<wire::DeviceClaimConfiguration>,
    /// The devices that it has.
    pub allocation: Option<Arc<Allocation>>,
    /// The uids of its users.
    pub reserved_for: Vec<Arc<str>>,
    /// Whether conditions of its devices let pods be bound.
    pub readiness: Readiness,
}

/// A request of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The name.
    pub name: String,
    /// What it asks for; of several the first that can be had.
    pub asks: Asks,
}

/// The alternatives of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Asks {
    /// `exactly`.
    One(Ask),
    /// `firstAvailable`.
    FirstOf(Vec<Ask>),
}

/// What a request or subrequest asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The name of the request or subrequest.
    pub name: String,
    /// The class; empty: a kind of request that is not known.
    pub class: Arc<str>,
    /// How many devices.
    pub mode: Mode,
    /// Selectors that a device must match; `None`: a kind that is not known.
    pub selectors: Vec<Option<Arc<Selector>>>,
    /// Whether devices are taken that others have.
    pub admin_access: Option<bool>,
    /// Taints that do not matter.
    pub tolerations: Vec<wire::DeviceToleration>,
    /// What it takes of each device's capacity.
    pub capacity: Amounts,
}

/// `allocationMode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// So many devices.
    Exact(i64),
    /// All that match.
    All,
    /// A mode that is not known.
    Unknown(String),
}

/// A constraint of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The requests that it is about; empty: all.
    pub requests: Vec<String>,
    /// The attribute.
    pub kind: ConstraintKind,
}

/// The kind of a constraint, with an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    /// `matchAttribute`.
    Match(String),
    /// `distinctAttribute`.
    Distinct(String),
    /// A kind that is not known.
    Unknown,
}

/// The devices of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// The object, to be written.
    pub wire: wire::AllocationResult,
    /// Devices that no other claim may have.
    pub exclusive: Vec<DeviceId>,
    /// Devices that are shared, with the capacities taken.
    pub shared: Vec<(DeviceId, Option<Amounts>)>,
    /// The nodes that reach them; `None`: all.
    pub nodes: Option<NodeSelector>,
    /// Requests and subrequests that have devices.
    pub requests: Vec<String>,
    /// Whether a pod must wait for conditions.
    pub has_conditions: bool,
}

/// What conditions of devices say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Pods may be bound.
    Ready,
    /// Not yet; with the time of the allocation in milliseconds, if known.
    Waiting(Option<u64>),
    /// Never, with the reason.
    Failed(String),
}

impl ClaimView {
    /// Reads a claim.
    #[must_use]
    pub fn read(claim: &wire::ResourceClaim) -> Self {
        let meta = &claim.metadata;
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let devices = claim.spec.devices.as_ref();
        let status = claim.status.as_ref();
        let allocation = status.and_then(|status| status.allocation.as_ref());
        let owners = meta.owner_references.iter().flatten();
        let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
        let constraints = devices.and_then(|devices| devices.constraints.as_ref());
        let reserved = status.and_then(|status| status.reserved_for.as_ref());
        let requests = devices.and_then(|devices| devices.requests.as_ref());
        Self {
            key: ClaimKey { namespace: text(meta.namespace.as_ref()), name: text(meta.name.as_ref()) },
            uid: text(meta.uid.as_ref()),
            version: meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0),
            is_leaving: meta.deletion_timestamp.is_some(),
            is_protected: meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER),
            controller: controller.map(|owner| owner.uid.as_str().into()),
            is_extended: meta
                .annotations
                .as_ref()
                .and_then(|all| all.get(EXTENDED))
                .is_some_and(|it| it == "true"),
            requests: requests.into_iter().flatten().map(Request::read).collect(),
            constraints: constraints.into_iter().flatten().map(Constraint::read).collect(),
            config: devices.and_then(|devices| devices.config.clone()).unwrap_or_default(),
            allocation: allocation.map(|allocation| Arc::new(Allocation::read(allocation.clone()))),
            reserved_for: reserved.into_iter().flatten().map(|user| user.uid.as_str().into()).collect(),
            readiness: status
                .map_or(Readiness::Ready, |status| Readiness::read(text(meta.name.as_ref()), status)),
        }
    }

    /// Whether a pod has the claim.
    #[must_use]
    pub fn is_reserved_for(&self, uid: &str) -> bool {
        self.reserved_for.iter().any(|user| **user == *uid)
    }

    /// All that its requests ask for.
    pub fn asks(&self) -> impl Iterator<Item = &Ask> {
        self.requests.iter().flat_map(Request::asks)
    }

    pub(in crate::devices) fn selectors_mut(&mut self) -> impl Iterator<Item = &mut Arc<Selector>> {
        let asks = self.requests.iter_mut().flat_map(|request| match &mut request.asks {
            Asks::One(ask) => std::slice::from_mut(ask),
            Asks::FirstOf(asks) => asks.as_mut_slice(),
        });
        asks.flat_map(|ask| &mut ask.selectors).flatten()
    }
}

impl Request {
    fn read(wire: &wire::DeviceRequest) -> Self {
        let name = wire.name.clone();
        let asks = match &wire.exactly {
            Some(it) => Asks::One(Ask {
                name: name.clone(),
                class: it.device_class_name.as_str().into(),
                mode: Mode::read(it.allocation_mode.as_deref(), it.count),
                selectors: selectors(it.selectors.as_ref()),
                admin_access: it.admin_access,
                tolerations: it.tolerations.clone().unwrap_or_default(),
                capacity: capacity(it.capacity.as_ref()),
            }),
            None => Asks::FirstOf(wire.first_available.iter().flatten().map(Ask::read).collect()),
        };
        Self { name, asks }
    }

    /// What it asks for.
    #[must_use]
    pub fn asks(&self) -> &[Ask] {
        match &self.asks {
            Asks::One(ask) => std::slice::from_ref(ask),
            Asks::FirstOf(asks) => asks,
        }
    }

    /// The name of what it asks for in an allocation.
    #[must_use]
    pub fn result_name(&self, ask: &Ask) -> String {
        match self.asks {
            Asks::One(_) => self.name.clone(),
            Asks::FirstOf(_) => format!("{}/{}", self.name, ask.name),
        }
    }
}

impl Ask {
    fn read(wire: &wire::DeviceSubRequest) -> Self {
        Self {
            name: wire.name.clone(),
            class: wire.device_class_name.as_str().into(),
            mode: Mode::read(wire.allocation_mode.as_deref(), wire.count),
            selectors: selectors(wire.selectors.as_ref()),
            admin_access: None,
            tolerations: wire.tolerations.clone().unwrap_or_default(),
            capacity: capacity(wire.capacity.as_ref()),
        }
    }

    /// Whether devices are taken that others have.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.admin_access == Some(true)
    }
}

fn capacity(wire: Option<&wire::CapacityRequirements>) -> Amounts {
    amounts(wire.into_iter().flat_map(|wire| wire.requests.iter().flatten()))
}

impl Mode {
    fn read(mode: Option<&str>, count: Option<i64>) -> Self {
        match mode.unwrap_or_default() {
            // The API server sets the defaults.
            "" | "ExactCount" => Self::Exact(count.unwrap_or(1)),
            "All" => Self::All,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

impl Constraint {
    fn read(wire: &wire::DeviceConstraint) -> Self {
        let kind = match (&wire.match_attribute, &wire.distinct_attribute) {
            (Some(attribute), _) => ConstraintKind::Match(attribute.clone()),
            (None, Some(attribute)) => ConstraintKind::Distinct(attribute.clone()),
            (None, None) => ConstraintKind::Unknown,
        };
        Self { requests: wire.requests.clone().unwrap_or_default(), kind }
    }
}

impl Allocation {
    /// Reads an allocation (1.36 `foreachAllocatedDevice`). Devices with admin access are not taken.
    #[must_use]
    pub fn read(wire: wire::AllocationResult) -> Self {
        let results = || wire.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let id = |it: &wire::DeviceRequestAllocationResult| DeviceId {
            driver: it.driver.as_str().into(),
            pool: it.pool.as_str().into(),
            device: it.device.as_str().into(),
        };
        let taken = || results().filter(|it| it.admin_access != Some(true));
        let consumed = |it: &wire::DeviceRequestAllocationResult| {
            let amounts = it.consumed_capacity.as_ref()?;
            Some(amounts.iter().map(|(name, amount)| (name.clone(), quantity(amount))).collect())
        };
        Self {
            exclusive: taken().filter(|it| it.share_id.is_none()).map(id).collect(),
            shared: taken().filter(|it| it.share_id.is_some()).map(|it| (id(it), consumed(it))).collect(),
            nodes: wire.node_selector.as_ref().map(NodeSelector::read),
            requests: results().map(|it| it.request.clone()).collect(),
            has_conditions: results().any(|it| it.binding_conditions.iter().flatten().next().is_some()),
            wire,
        }
    }

    /// Whether both take the same devices. Shares have ids of their own.
    #[must_use]
    pub fn has_devices_of(&self, other: &Self) -> bool {
        let shared = |it: &Self| -> Vec<_> { it.shared.iter().map(|(id, _)| id.clone()).collect() };
        self.exclusive == other.exclusive && shared(self) == shared(other)
    }
}

impl Readiness {
    /// 1.36 `isClaimReadyForBinding`.
    fn read(name: Arc<str>, status: &wire::ResourceClaimStatus) -> Self {
        let Some(allocation) = &status.allocation else { return Self::Ready };
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let time = allocation.allocation_timestamp.as_ref().map(|time| time.0.as_millisecond());
        let waiting = Self::Waiting(time.and_then(|time| u64::try_from(time).ok()));
        for result in results {
            let Some(wanted) = result.binding_conditions.as_ref().filter(|list| !list.is_empty()) else {
                continue;
            };
            let mut devices = status.devices.iter().flatten();
            let device = devices.find(|it| {
                it.device == result.device && it.driver == result.driver && it.pool == result.pool
            });
            let Some(device) = device else { return waiting };
            let conditions: BTreeMap<&str, _> = device
                .conditions
                .iter()
                .flatten()
                .map(|condition| (condition.type_.as_str(), condition))
                .collect();
            let holding = |name: &String| conditions.get(name.as_str()).filter(|it| it.status == "True");
            if let Some(failed) = result.binding_failure_conditions.iter().flatten().find_map(holding) {
                let (reason, message) = (&failed.reason, &failed.message);
                let text =
                    format!("device binding failed: claim={name}, reason={reason}, message={message:?}");
                return Self::Failed(text);
            }
            if !wanted.iter().all(|condition| holding(condition).is_some()) {
                return waiting;
            }
        }
        Self::Ready
    }
}

/// The amount of a quantity as it is written.
#[must_use]
pub fn wire_amounts(
    amounts: &Amounts,
) -> BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity> {
    let write =
        |amount: &Quantity| k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.to_string());
    amounts.iter().map(|(name, amount)| (name.clone(), write(amount))).collect()
}
