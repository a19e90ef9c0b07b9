//! Which of several devices to take: those in the fewest zones, then by policy.
//!
//! In: the devices behind ids and their zones, the free ids, the required ids, and a size. Out: exactly that many ids,
//! or why there is no such answer. Never: chance, or an answer that depends on the order of the question.
//!
//! The kubelet asks when several devices would do, and follows the answer as far as its own alignment allows. The
//! answer covers zones: a device close to two zones counts for either, and one without a zone counts for any.

mod cover;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::allocate::shorten;
use crate::config::Policy;

/// The device behind an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The device; shares of one device have the same.
    pub device: &'a str,
    /// The zones the device is close to.
    pub zones: &'a [u32],
}

/// Why no devices can be preferred.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A required device is unknown or unhealthy.
    #[error("device {0:?} must be included and is unknown or unhealthy")]
    Unknown(String),
    /// A required device is not free.
    #[error("device {0:?} must be included and is not available")]
    NotFree(String),
    /// More devices are required than are wanted.
    #[error("{required} devices must be included in an allocation of {size}")]
    TooMany {
        /// The number of required devices.
        required: usize,
        /// The number of wanted devices.
        size: usize,
    },
    /// Fewer devices are free than are wanted.
    #[error("{available} devices are available for an allocation of {size}")]
    TooFew {
        /// The number of free devices.
        available: usize,
        /// The number of wanted devices.
        size: usize,
    },
}

/// Chooses `size` of the `available` ids, all `required` ones among them; sorted. Unknown ids count as not available:
/// the kubelet may ask while its list is out of date.
///
/// Cost: grows with the available ids, n log n, not with the resource's devices; in addition 2^zones for up to 12
/// zones.
///
/// # Errors
/// When there is no such choice.
pub fn prefer<'a, 'b>(
    known: impl Fn(&str) -> Option<Candidate<'a>>,
    available: &'b [String],
    required: &'b [String],
    size: usize,
    policy: Policy,
) -> Result<Vec<String>, Refusal> {
    let candidate = |id: &'b String| Some((id.as_str(), known(id)?));
    let free: BTreeMap<&str, Candidate<'a>> = available.iter().filter_map(candidate).collect();
    let must = required.iter().map(|id| candidate(id).ok_or_else(|| Refusal::Unknown(shorten(id))));
    let must: BTreeMap<&str, Candidate<'a>> = must.collect::<Result<_, _>>()?;
    if let Some(id) = must.keys().find(|id| !free.contains_key(*id)) {
        return Err(Refusal::NotFree(shorten(id)));
    }
    if must.len() > size {
        return Err(Refusal::TooMany { required: must.len(), size });
    }
    if free.len() < size {
        return Err(Refusal::TooFew { available: free.len(), size });
    }
    let zones_of = |ids: &BTreeMap<&str, Candidate<'a>>| {
        ids.values().map(|candidate| candidate.zones).collect::<Vec<_>>()
    };
    let zones = cover::fewest(&zones_of(&free), &zones_of(&must), size, policy);

    // Devices in the chosen zones come first, then those without any. The others are not needed, or the cover would
    // have their zones.
    let mut queue = CandidateQueue::new(policy);
    for (id, candidate) in free.iter().filter(|(id, _)| !must.contains_key(*id)) {
        let rank = if candidate.zones.iter().any(|zone| zones.contains(zone)) {
            0
        } else if candidate.zones.is_empty() {
            1
        } else {
            2
        };
        queue.add(id, rank, candidate.device);
    }
    queue.order(must.values().map(|candidate| candidate.device));
    let mut chosen: BTreeSet<&str> = must.into_keys().collect();
    while chosen.len() < size {
        let Some(id) = queue.next() else { break };
        chosen.insert(id);
    }
    Ok(chosen.into_iter().map(str::to_owned).collect())
}

/// Free ids, by device: each step takes an id of the best device.
struct CandidateQueue<'a> {
    policy: Policy,
    /// The rank of each device, and its free ids in natural order.
    devices: BTreeMap<&'a str, (usize, Vec<&'a str>)>,
    /// How many ids of each device are chosen already.
    chosen: BTreeMap<&'a str, usize>,
    ordered: BTreeSet<(Key, &'a str)>,
}

/// What makes a device come before others: its rank; for `spread`, how little of it is chosen; how much of it is free;
/// its name.
type Key = (usize, usize, Reverse<usize>, usize, NaturalName);

impl<'a> CandidateQueue<'a> {
    fn new(policy: Policy) -> Self {
        Self { policy, devices: BTreeMap::new(), chosen: BTreeMap::new(), ordered: BTreeSet::new() }
    }

    fn add(&mut self, id: &'a str, rank: usize, device: &'a str) {
        self.devices.entry(device).or_insert((rank, Vec::new())).1.push(id);
    }

    /// Counts what is chosen already, and sorts the devices.
    fn order(&mut self, devices: impl Iterator<Item = &'a str>) {
        for device in devices {
            *self.chosen.entry(device).or_default() += 1;
        }
        for (device, (rank, ids)) in &mut self.devices {
            // The best id is the last, to be popped.
            ids.sort_unstable_by_key(|id| Reverse(NaturalName::of(id)));
            let key =
                key(self.policy, *rank, ids.len(), self.chosen.get(device).copied().unwrap_or(0), device);
            self.ordered.insert((key, device));
        }
    }

    fn next(&mut self) -> Option<&'a str> {
        let (_, device) = self.ordered.pop_first()?;
        let (rank, ids) = self.devices.get_mut(device)?;
        let id = ids.pop()?;
        let chosen = self.chosen.entry(device).or_default();
        *chosen += 1;
        if !ids.is_empty() {
            self.ordered.insert((key(self.policy, *rank, ids.len(), *chosen, device), device));
        }
        Some(id)
    }
}

fn key(policy: Policy, rank: usize, free: usize, chosen: usize, device: &str) -> Key {
    match policy {
        // A device in use is used up first: few free shares come first.
        Policy::Packed => (rank, 0, Reverse(chosen.min(1)), free, NaturalName::of(device)),
        Policy::Spread => (rank, chosen, Reverse(free), 0, NaturalName::of(device)),
    }
}

/// A name in which digits count as numbers: `dev-9` comes before `dev-10`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NaturalName(Vec<(String, u64)>, String);

impl NaturalName {
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
