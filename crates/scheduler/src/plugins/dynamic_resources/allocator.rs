//! The search for devices: the first of all combinations that satisfies the claims of a pod on one node.
//!
//! In: claims without devices, a node, the pools that it reaches. Out: an allocation for each claim. Never: a device
//! that is taken, or a search without end: it gives up after `MAX_STEPS`, where kube-scheduler does after ten seconds.
//!
//! Source: kube-scheduler 1.36 `structured/internal/incubating`, which its default features select. Pools, slices and
//! devices are tried in the same order, so the same devices are found. Cost: for each request selectors x devices,
//! once; the search itself is exhaustive, and in the usual case ends with the first device of each request that is
//! free.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1 as wire;

use super::capacity;
use super::constraints::Chosen;
use super::pools::{Pool, PoolState};
use crate::devices::Devices;
use crate::devices::selector::Selector;
use crate::devices::taken::{add, subtract};
use crate::devices::views::claim::{Ask, Asks, ClaimView, ConstraintKind, Mode};
use crate::devices::views::{Amounts, ClassView, Device, DeviceId, SlicePlace, SliceView};
use crate::node::NodeView;
use crate::reason::Reason;

mod result;
mod search;

/// The most devices of a claim (`AllocationResultsMaxSize`).
const MAX_RESULTS: usize = 32;
/// The most steps of a search.
const MAX_STEPS: usize = 100_000;

/// Why claims get no devices on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Too few are free.
    Unavailable,
    /// Too few are free, and some pools contradict themselves.
    InvalidPools,
    /// Something is wrong with a claim or class, on whatever node; in kube-scheduler's words.
    Error(String),
    /// Extended resources of the pod keep it off the node.
    Extended(Reason),
}

/// A device that the node reaches.
#[derive(Debug)]
struct Candidate<'a> {
    slice: &'a SliceView,
    device: &'a Device,
    id: DeviceId,
    /// Its pool.
    pool: usize,
}

/// A request or subrequest with what is known before the search.
#[derive(Debug)]
struct Wanted<'a> {
    ask: &'a Ask,
    class: &'a ClassView,
    count: usize,
    /// The devices, where all that match are wanted.
    all: Vec<usize>,
}

/// A device chosen for a claim.
#[derive(Debug)]
struct Choice<'a> {
    candidate: usize,
    ask: &'a Ask,
    /// The name of the request, with the subrequest.
    name: String,
    /// What it takes of the device's capacity, where that is shared.
    consumed: Option<Amounts>,
}

/// A request of a claim, by index; the last is that of the subrequest.
type RequestKey = (usize, usize, usize);

/// A search on one node.
pub(super) struct Allocator<'a> {
    devices: &'a Devices,
    claims: &'a [&'a ClaimView],
    node: &'a NodeView,
    pools: Vec<Pool<'a>>,
    candidates: Vec<Candidate<'a>>,
    wanted: BTreeMap<RequestKey, Wanted<'a>>,
    /// The subrequest of each request, by claim and request.
    selected: BTreeMap<(usize, usize), usize>,
    /// Whether devices match requests.
    matches: BTreeMap<(RequestKey, usize), bool>,
    constraints: Vec<Vec<Chosen<'a>>>,
    /// Devices that claims of the pod get, each with the claims.
    allocating: BTreeMap<usize, BTreeSet<usize>>,
    /// Capacities of shared devices that they take.
    capacity: BTreeMap<usize, Amounts>,
    /// Counters that are left in each pool, before the search.
    available: BTreeMap<usize, BTreeMap<&'a str, Amounts>>,
    /// Counters that the devices take, by pool and set.
    consumed: BTreeMap<usize, BTreeMap<&'a str, Amounts>>,
    choices: Vec<Vec<Choice<'a>>>,
    steps: usize,
}

impl<'a> Allocator<'a> {
    /// `pools`: those that the node reaches.
    pub(super) fn new(
        devices: &'a Devices,
        claims: &'a [&'a ClaimView],
        node: &'a NodeView,
        pools: Vec<Pool<'a>>,
    ) -> Self {
        let mut candidates = Vec::new();
        for (pool, it) in pools.iter().enumerate() {
            for slice in &it.slices {
                let of_slice = slice.devices.iter();
                candidates.extend(of_slice.map(|device| Candidate {
                    slice,
                    device,
                    id: slice.id(device),
                    pool,
                }));
            }
        }
        Self {
            devices,
            claims,
            node,
            pools,
            candidates,
            wanted: BTreeMap::new(),
            selected: BTreeMap::new(),
            matches: BTreeMap::new(),
            constraints: Vec::new(),
            allocating: BTreeMap::new(),
            capacity: BTreeMap::new(),
            available: BTreeMap::new(),
            consumed: BTreeMap::new(),
            choices: claims.iter().map(|_| Vec::new()).collect(),
            steps: 0,
        }
    }

    /// An allocation for each claim.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn allocate(mut self) -> Result<Vec<wire::AllocationResult>, Failure> {
        self.prepare().map_err(Failure::Error)?;
        match self.search().map_err(Failure::Error)? {
            true => self.results().map_err(Failure::Error),
            false if self.pools.iter().any(|pool| pool.state == PoolState::Invalid) => {
                Err(Failure::InvalidPools)
            }
            false => Err(Failure::Unavailable),
        }
    }

    /// Checks the claims, and finds the devices of requests for all.
    fn prepare(&mut self) -> Result<(), String> {
        let claims = self.claims;
        for (at, claim) in claims.iter().enumerate() {
            let mut total = 0_usize;
            for (request_at, request) in claim.requests.iter().enumerate() {
                let mut fewest = None;
                for (sub_at, ask) in request.asks().iter().enumerate() {
                    let key = (at, request_at, sub_at);
                    let wanted = self.wanted(key, claim, ask)?;
                    fewest = Some(fewest.map_or(wanted.count, |fewest: usize| fewest.min(wanted.count)));
                    self.wanted.insert(key, wanted);
                }
                total = total.saturating_add(fewest.unwrap_or(0));
            }
            if total > MAX_RESULTS {
                return Err(format!(
                    "claim {}: number of requested devices {total} exceeds the claim limit of {MAX_RESULTS}",
                    claim.key
                ));
            }
            if let Some(at) = claim.constraints.iter().position(|it| it.kind == ConstraintKind::Unknown) {
                return Err(format!(
                    "claim {}, constraint #{at}: empty constraint (unsupported constraint type?)",
                    claim.key
                ));
            }
            self.constraints.push(claim.constraints.iter().map(Chosen::new).collect());
        }
        Ok(())
    }

    fn wanted(&mut self, key: RequestKey, claim: &ClaimView, ask: &'a Ask) -> Result<Wanted<'a>, String> {
        let told = |what: &str| format!("claim {}, request {}{what}", claim.key, ask.name);
        if let Some(at) = ask.selectors.iter().position(Option::is_none) {
            return Err(told(&format!(
                ", selector #{at}: CEL expression empty (unsupported selector type?)"
            )));
        }
        if ask.class.is_empty() {
            return Err(told(": missing device class name (unsupported request type?)"));
        }
        let Some(class) = self.devices.class(&ask.class) else {
            let class = &ask.class;
            return Err(told(&format!(
                ": could not retrieve device class {class}: deviceclass.resource.k8s.io {class:?} not found"
            )));
        };
        let mut wanted = Wanted { ask, class, count: 0, all: Vec::new() };
        match &ask.mode {
            Mode::Exact(count) => wanted.count = usize::try_from(*count).unwrap_or(0),
            Mode::Unknown(mode) => return Err(told(&format!(": unsupported count mode {mode}"))),
            Mode::All => {
                let unusable = self.pools.iter().position(|pool| pool.state != PoolState::Usable);
                let end = unusable.unwrap_or(self.pools.len());
                // Errors of selectors for earlier pools come first.
                for at in 0..self.candidates.len() {
                    let Some(candidate) = self.candidates.get(at).filter(|it| it.pool < end) else { break };
                    let device = candidate.device;
                    if self.is_selected(key, (ask, class), at)? && self.has_capacity(at, device, ask) {
                        wanted.all.push(at);
                    }
                }
                if let Some(pool) = unusable.and_then(|at| self.pools.get(at)) {
                    let state = match pool.state {
                        PoolState::Invalid => "invalid",
                        PoolState::Incomplete | PoolState::Usable => "being updated",
                    };
                    let (driver, name) = pool.id;
                    return Err(told(&format!(
                        ": asks for all devices, but resource pool {driver}/{name} is currently {state}"
                    )));
                }
                wanted.count = wanted.all.len();
            }
        }
        Ok(wanted)
    }

    /// Whether a device matches the class and the request, and the node reaches it.
    fn is_selected(
        &mut self,
        key: RequestKey,
        (ask, class): (&Ask, &ClassView),
        at: usize,
    ) -> Result<bool, String> {
        if let Some(known) = self.matches.get(&(key, at)) {
            return Ok(*known);
        }
        let Some(Candidate { slice, device, id, .. }) = self.candidates.get(at) else { return Ok(false) };
        let place = &device.place;
        let claim = self.claims.get(key.0).map(|claim| claim.key.to_string()).unwrap_or_default();
        let reached = slice.place != SlicePlace::PerDevice || place.has(&self.node.name, &self.node.labels);
        let selected = select(&class.selectors, id, device, &format!("class {}", class.name))?
            && select(&ask.selectors, id, device, &format!("claim {claim}"))?
            && reached;
        self.matches.insert((key, at), selected);
        Ok(selected)
    }

    /// Whether enough of a device's capacity is left for a request.
    fn has_capacity(&self, at: usize, device: &Device, ask: &Ask) -> bool {
        let taken = self.candidates.get(at).and_then(|it| self.devices.taken().capacity(&it.id));
        capacity::is_enough(device, &ask.capacity, [taken, self.capacity.get(&at)])
    }
}

fn select(
    selectors: &[Option<std::sync::Arc<Selector>>],
    id: &DeviceId,
    device: &Device,
    of: &str,
) -> Result<bool, String> {
    for (at, selector) in selectors.iter().enumerate() {
        let Some(selector) = selector else {
            return Err(format!("{of}: selector #{at}: CEL expression empty (unsupported selector type?)"));
        };
        if !selector.selects(&id.driver, device).map_err(|error| format!("{of}: selector #{at}: {error}"))? {
            return Ok(false);
        }
    }
    Ok(true)
}
