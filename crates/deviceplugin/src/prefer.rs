//! Which of several devices to take: those of the fewest zones, then by policy.
//!
//! In: which devices there are and where, which are free, which must be among the answer, how many. Out: exactly so many, or why
//! there is no such answer. Never: chance, or an answer that depends on the order of the question.
//!
//! The kubelet asks when several devices would do, and uses the answer as far as its own alignment allows. Zones are covered: a
//! device that is close to two zones counts for either, and one without a zone counts for any.

mod cover;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::allocate::shown;
use crate::config::Policy;

/// What matters of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The device behind it; shares of one device have one.
    pub device: &'a str,
    /// Zones it is close to.
    pub zones: &'a [u32],
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A device we do not have, or that is not healthy.
    #[error("device {0:?} must be included and is unknown or unhealthy")]
    Unknown(String),
    /// One that must be taken is not free.
    #[error("device {0:?} must be included and is not available")]
    NotFree(String),
    /// More must be taken than are wanted.
    #[error("{required} devices must be included in an allocation of {size}")]
    TooMany {
        /// How many must be taken.
        required: usize,
        /// How many are wanted.
        size: usize,
    },
    /// There are not so many.
    #[error("{available} devices are available for an allocation of {size}")]
    TooFew {
        /// How many there are.
        available: usize,
        /// How many are wanted.
        size: usize,
    },
}

/// Chooses `size` of the `available` ids, all that are `required` among them; sorted. Ids that are not known are not available: the
/// kubelet may ask while it is being told. Grows with the available ids, not with those there are.
///
/// # Errors
/// When there is no such choice.
pub fn prefer<'a, 'b>(
    known: impl Fn(&str) -> Option<Facts<'a>>,
    available: &'b [String],
    required: &'b [String],
    size: usize,
    policy: Policy,
) -> Result<Vec<String>, Refusal> {
    let facts = |id: &'b String| Some((id.as_str(), known(id)?));
    let free: BTreeMap<&str, Facts<'a>> = available.iter().filter_map(facts).collect();
    let must = required.iter().map(|id| facts(id).ok_or_else(|| Refusal::Unknown(shown(id))));
    let must: BTreeMap<&str, Facts<'a>> = must.collect::<Result<_, _>>()?;
    if let Some(id) = must.keys().find(|id| !free.contains_key(*id)) {
        return Err(Refusal::NotFree(shown(id)));
    }
    if must.len() > size {
        return Err(Refusal::TooMany { required: must.len(), size });
    }
    if free.len() < size {
        return Err(Refusal::TooFew { available: free.len(), size });
    }
    let zones_of =
        |ids: &BTreeMap<&str, Facts<'a>>| ids.values().map(|facts| facts.zones).collect::<Vec<_>>();
    let zones = cover::fewest(&zones_of(&free), &zones_of(&must), size, policy);

    // Those of the zones come before those without any; others are not needed, or the cover would have them.
    let mut heap = Candidates::new(policy);
    for (id, facts) in free.iter().filter(|(id, _)| !must.contains_key(*id)) {
        let rank = if facts.zones.iter().any(|zone| zones.contains(zone)) {
            0
        } else if facts.zones.is_empty() {
            1
        } else {
            2
        };
        heap.add(id, rank, facts.device);
    }
    heap.taken(must.values().map(|facts| facts.device));
    let mut chosen: BTreeSet<&str> = must.into_keys().collect();
    while chosen.len() < size {
        let Some(id) = heap.next() else { break };
        chosen.insert(id);
    }
    Ok(chosen.into_iter().map(str::to_owned).collect())
}

/// Free ids, by device: each time the next one is that of the best device.
struct Candidates<'a> {
    policy: Policy,
    /// Free ids of each device, natural order, and its rank.
    devices: BTreeMap<&'a str, (usize, Vec<&'a str>)>,
    /// How many of each device are chosen already.
    chosen: BTreeMap<&'a str, usize>,
    order: BTreeSet<(Key, &'a str)>,
}

/// What makes a device come before others: its rank; for `spread` that it is not chosen yet; how much of it is free; its name.
type Key = (usize, usize, Reverse<usize>, usize, Natural);

impl<'a> Candidates<'a> {
    fn new(policy: Policy) -> Self {
        Self { policy, devices: BTreeMap::new(), chosen: BTreeMap::new(), order: BTreeSet::new() }
    }

    fn add(&mut self, id: &'a str, rank: usize, device: &'a str) {
        self.devices.entry(device).or_insert((rank, Vec::new())).1.push(id);
    }

    /// Counts what is chosen already, and puts all in order.
    fn taken(&mut self, devices: impl Iterator<Item = &'a str>) {
        for device in devices {
            *self.chosen.entry(device).or_default() += 1;
        }
        for (device, (rank, ids)) in &mut self.devices {
            // The best last, to be popped.
            ids.sort_unstable_by_key(|id| Reverse(Natural::of(id)));
            let key =
                key(self.policy, *rank, ids.len(), self.chosen.get(device).copied().unwrap_or(0), device);
            self.order.insert((key, device));
        }
    }

    fn next(&mut self) -> Option<&'a str> {
        let (_, device) = self.order.pop_first()?;
        let (rank, ids) = self.devices.get_mut(device)?;
        let id = ids.pop()?;
        let chosen = self.chosen.entry(device).or_default();
        *chosen += 1;
        if !ids.is_empty() {
            self.order.insert((key(self.policy, *rank, ids.len(), *chosen, device), device));
        }
        Some(id)
    }
}

fn key(policy: Policy, rank: usize, free: usize, chosen: usize, device: &str) -> Key {
    match policy {
        // What is begun is finished: few free shares first.
        Policy::Packed => (rank, 0, Reverse(chosen.min(1)), free, Natural::of(device)),
        Policy::Spread => (rank, chosen, Reverse(free), 0, Natural::of(device)),
    }
}

/// A name whose numbers count as numbers: `dev-9` comes before `dev-10`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Natural(Vec<(String, u64)>, String);

impl Natural {
    fn of(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
            let (word, digits) = rest.split_at(begin);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            parts.push((word.to_owned(), digits[..end].parse().unwrap_or(u64::MAX)));
            rest = &digits[end..];
        }
        parts.push((rest.to_owned(), 0));
        Self(parts, text.to_owned())
    }
}

#[cfg(test)]
mod tests;
