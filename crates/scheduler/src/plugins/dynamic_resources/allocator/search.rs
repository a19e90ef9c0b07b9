//! The search itself (1.36 `allocateOne` and `allocateDevice`).

use std::collections::BTreeMap;

use super::{
    Allocator, Amounts, Ask, Asks, Candidate, Choice, Device, MAX_RESULTS, MAX_STEPS, Mode, RequestKey, add,
    capacity, subtract,
};
use crate::devices::views::claim::ClaimView;

/// The end of a part of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All claims have their devices.
    Found,
    /// There are no devices.
    Nothing,
    /// The claim would have too many devices, however earlier ones are chosen.
    TooMany,
}

/// The next device to look for.
#[derive(Clone, Copy, Debug, Default)]
struct Next {
    claim: usize,
    request: usize,
    /// The subrequest that is tried; `None`: none is yet.
    subrequest: Option<usize>,
    /// The number of devices that the request has.
    count: usize,
    /// The first candidate. Earlier ones were tried already: their order does not matter within a request.
    start: usize,
}

/// What choosing a device has changed.
struct Undo {
    counted: bool,
    /// Number of constraints that know it.
    constraints: usize,
    marked: bool,
    /// Whether its capacity was shared before, if it is.
    was_shared: Option<bool>,
}

impl<'a> Allocator<'a> {
    /// Whether all claims get their devices.
    pub(super) fn search(&mut self) -> Result<bool, String> {
        Ok(self.step(Next::default())? == Outcome::Found)
    }

    fn step(&mut self, next: Next) -> Result<Outcome, String> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(format!("node {}: timed out trying to allocate devices", self.node.name));
        }
        let claims = self.claims;
        let Some(claim) = claims.get(next.claim) else { return Ok(Outcome::Found) };
        let Some(request) = claim.requests.get(next.request) else {
            let outcome = self.step(Next { claim: next.claim + 1, ..Next::default() })?;
            // Other devices of this claim may leave a later one a subrequest that needs fewer.
            return Ok(if outcome == Outcome::TooMany { Outcome::Nothing } else { outcome });
        };
        let subrequest = match (&request.asks, next.subrequest) {
            (Asks::One(_), _) => 0,
            (Asks::FirstOf(_), Some(subrequest)) => subrequest,
            (Asks::FirstOf(asks), None) => return self.first_of(next, asks.len()),
        };
        let key = (next.claim, next.request, subrequest);
        let Some(wanted) = self.wanted.get(&key) else { return Ok(Outcome::Nothing) };
        let (ask, count, is_all) = (wanted.ask, wanted.count, wanted.ask.mode == Mode::All);
        let all = wanted.all.get(next.count).copied();
        if is_all && wanted.all.is_empty() {
            return Ok(Outcome::Nothing);
        }
        if next.count >= count {
            return self.step(Next { claim: next.claim, request: next.request + 1, ..Next::default() });
        }
        let chosen = self.choices.get(next.claim).map_or(0, Vec::len);
        if chosen + count - next.count > MAX_RESULTS {
            return Ok(Outcome::TooMany);
        }
        if is_all {
            let Some(at) = all else { return Ok(Outcome::Nothing) };
            let Some(undo) = self.choose(key, claim, ask, at, true)? else { return Ok(Outcome::Nothing) };
            let outcome = self.step(Next { count: next.count + 1, ..next })?;
            if outcome != Outcome::Found {
                self.undo(key, at, &undo, true);
            }
            return Ok(outcome);
        }
        for at in next.start..self.candidates.len() {
            if self.is_in_use(ask, at, next.claim) || !self.is_wanted(key, ask, at)? {
                continue;
            }
            let Some(undo) = self.choose(key, claim, ask, at, false)? else { continue };
            let outcome = self.step(Next { count: next.count + 1, start: at + 1, ..next })?;
            if outcome == Outcome::Found {
                return Ok(outcome);
            }
            self.undo(key, at, &undo, true);
            if outcome == Outcome::TooMany {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Nothing)
    }

    /// Tries the subrequests of a request one after the other.
    fn first_of(&mut self, next: Next, subrequests: usize) -> Result<Outcome, String> {
        let mut all_too_many = true;
        for subrequest in 0..subrequests {
            match self.step(Next { subrequest: Some(subrequest), start: 0, ..next })? {
                Outcome::TooMany => {}
                Outcome::Nothing => all_too_many = false,
                Outcome::Found => {
                    self.selected.insert((next.claim, next.request), subrequest);
                    return Ok(Outcome::Found);
                }
            }
        }
        Ok(if all_too_many { Outcome::TooMany } else { Outcome::Nothing })
    }

    /// Whether a device matches a request, and has enough capacity.
    fn is_wanted(&mut self, key: RequestKey, ask: &'a Ask, at: usize) -> Result<bool, String> {
        let Some(class) = self.wanted.get(&key).map(|wanted| wanted.class) else { return Ok(false) };
        let Some(device) = self.candidates.get(at).map(|candidate| candidate.device) else {
            return Ok(false);
        };
        Ok(self.is_selected(key, (ask, class), at)? && self.has_capacity(at, device, ask))
    }

    /// Whether a device is taken. With admin access only one of the same claim counts.
    fn is_in_use(&self, ask: &Ask, at: usize, claim: usize) -> bool {
        let claims = self.allocating.get(&at);
        match ask.is_admin() {
            true => claims.is_some_and(|claims| claims.contains(&claim)),
            false => {
                let is_taken = |it: &Candidate<'_>| self.devices.taken().is_exclusive(&it.id);
                claims.is_some_and(|claims| !claims.is_empty())
                    || self.candidates.get(at).is_some_and(is_taken)
            }
        }
    }

    /// Chooses a device, which matches. `None`: it cannot be had.
    fn choose(
        &mut self,
        key: RequestKey,
        claim: &'a ClaimView,
        ask: &'a Ask,
        at: usize,
        must: bool,
    ) -> Result<Option<Undo>, String> {
        let Some(candidate) = self.candidates.get(at) else { return Ok(None) };
        let (device, id) = (candidate.device, candidate.id.clone());
        let is_checked = !device.is_shareable || !ask.is_admin();
        if is_checked && self.is_in_use(ask, at, key.0) {
            return Ok(None);
        }
        let Some(request) = claim.requests.get(key.1) else { return Ok(None) };
        let subrequest = matches!(request.asks, Asks::FirstOf(_)).then_some(ask.name.as_str());
        let mut undo = Undo { counted: false, constraints: 0, marked: false, was_shared: None };
        // Devices that others share have taken their counters already.
        let has_counters = device.is_shareable && self.is_shared(at);
        if !has_counters && !device.consumes.is_empty() {
            if !self.count(at) {
                return Ok(None);
            }
            undo.counted = true;
        }
        if prevents(device, ask) {
            self.undo(key, at, &undo, false);
            return Ok(None);
        }
        for constraint in self.constraints.get_mut(key.0).into_iter().flatten() {
            if !constraint.add(&request.name, subrequest, device) {
                self.undo(key, at, &undo, false);
                return match must {
                    true => Err(format!(
                        "claim {}, request {}: cannot add device {id} because a claim constraint would not be \
                         satisfied",
                        claim.key, ask.name
                    )),
                    false => Ok(None),
                };
            }
            undo.constraints += 1;
        }
        if !device.is_shareable {
            self.allocating.entry(at).or_default().insert(key.0);
            undo.marked = true;
        }
        if !self.has_capacity(at, device, ask) {
            self.undo(key, at, &undo, false);
            return Ok(None);
        }
        let consumed = device.is_shareable.then(|| capacity::consumption(device, &ask.capacity));
        if let Some(consumed) = &consumed {
            undo.was_shared = Some(self.capacity.contains_key(&at));
            add(self.capacity.entry(at).or_default(), consumed);
        }
        let name = request.result_name(ask);
        if let Some(choices) = self.choices.get_mut(key.0) {
            choices.push(Choice { candidate: at, ask, name, consumed });
        }
        Ok(Some(undo))
    }

    /// Takes a choice back. `is_complete`: the claim has the device already.
    fn undo(&mut self, key: RequestKey, at: usize, undo: &Undo, is_complete: bool) {
        let claims = self.claims;
        let last = self.choices.get_mut(key.0).filter(|_| is_complete).and_then(Vec::pop);
        if let (Some(was_shared), Some(consumed)) = (undo.was_shared, last.and_then(|last| last.consumed)) {
            if let Some(taken) = self.capacity.get_mut(&at) {
                subtract(taken, &consumed);
            }
            if !was_shared {
                self.capacity.remove(&at);
            }
        }
        if undo.marked
            && let Some(claims) = self.allocating.get_mut(&at)
        {
            claims.remove(&key.0);
        }
        let Some(request) = claims.get(key.0).and_then(|claim| claim.requests.get(key.1)) else { return };
        let ask = request.asks().get(key.2);
        let subrequest =
            ask.filter(|_| matches!(request.asks, Asks::FirstOf(_))).map(|ask| ask.name.as_str());
        let constraints = self.constraints.get_mut(key.0).into_iter().flatten();
        constraints
            .take(undo.constraints)
            .for_each(|constraint| constraint.remove(&request.name, subrequest));
        if undo.counted {
            self.uncount(at);
        }
    }

    /// Whether claims share a device already.
    fn is_shared(&self, at: usize) -> bool {
        let by_others = |it: &Candidate<'_>| self.devices.taken().capacity(&it.id).is_some();
        self.capacity.contains_key(&at) || self.candidates.get(at).is_some_and(by_others)
    }

    /// Takes the counters of a device from its pool, if they are left.
    fn count(&mut self, at: usize) -> bool {
        let Some(Candidate { pool, device, .. }) = self.candidates.get(at) else { return false };
        let (pool, device) = (*pool, *device);
        let available = match self.available.remove(&pool) {
            Some(known) => known,
            None => self.left(pool),
        };
        let consumed = self.consumed.entry(pool).or_default();
        for (set, amounts) in &device.consumes {
            add(consumed.entry(set).or_default(), amounts);
        }
        let taken = |set: &str, name: &str| {
            consumed.get(set).and_then(|amounts| amounts.get(name)).copied().unwrap_or_default()
        };
        let is_enough = available
            .iter()
            .all(|(set, amounts)| amounts.iter().all(|(name, left)| *left >= taken(set, name)));
        self.available.insert(pool, available);
        if !is_enough {
            self.uncount(at);
        }
        is_enough
    }

    fn uncount(&mut self, at: usize) {
        let Some(Candidate { pool, device, .. }) = self.candidates.get(at) else { return };
        let Some(consumed) = self.consumed.get_mut(pool) else { return };
        for (set, amounts) in &device.consumes {
            if let Some(taken) = consumed.get_mut(set.as_str()) {
                subtract(taken, amounts);
            }
        }
    }

    /// The counters of a pool without those of devices that claims have; perhaps less than nothing.
    fn left(&self, pool: usize) -> BTreeMap<&'a str, Amounts> {
        let Some(pool) = self.pools.get(pool) else { return BTreeMap::new() };
        let mut left: BTreeMap<&str, Amounts> =
            pool.counters.iter().map(|(set, amounts)| (*set, (*amounts).clone())).collect();
        for slice in pool.slices.iter().chain(&pool.others) {
            for device in slice.devices.iter().filter(|device| !device.consumes.is_empty()) {
                if self.devices.taken().has(&slice.id(device)) {
                    for (set, amounts) in &device.consumes {
                        if let Some(left) = left.get_mut(set.as_str()) {
                            subtract(left, amounts);
                        }
                    }
                }
            }
        }
        left
    }
}

/// Whether a taint of a device keeps a request away (1.36 `taintPreventsAllocation`).
fn prevents(device: &Device, ask: &Ask) -> bool {
    let counted = device.taints.iter().filter(|it| matches!(it.effect.as_str(), "NoExecute" | "NoSchedule"));
    let mut counted = counted;
    counted.any(|taint| {
        !ask.tolerations.iter().any(|toleration| {
            let is_any = |stated: Option<&str>, of: &str| stated.is_none_or(|it| it.is_empty() || it == of);
            let covers_value = match toleration.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => {
                    toleration.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default()
                }
                "Exists" => true,
                _ => false,
            };
            is_any(toleration.effect.as_deref(), &taint.effect)
                && is_any(toleration.key.as_deref(), &taint.key)
                && covers_value
        })
    })
}
