//! Drift: a report contradicts what the ledger has booked.
//!
//! In: what the possible worlds said of each pod, and what a report says. Out: how often, and which pods. Never: a
//! correction; the report has won by then.

use std::collections::BTreeSet;
use std::fmt;

use topology::zone::Free;

use super::{Held, HeldIds, Ledger, Location, PodNames};

/// Most pods that the text names.
pub(super) const MAX_NAMED: usize = 10;

/// One contradiction: no possible world agreed with a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Pods that hold something else than any world said. None: the report does not tell which.
    pub pods: Vec<PodNames>,
    /// What was booked for the first of them, in each world, and what is reported, by ids; if there is none of them,
    /// for each pod about which some world was wrong. By amounts: those that differ from what some world expected.
    pub detail: String,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("The report of the node's zones contradicts what the scheduler had booked")?;
        for (at, pod) in self.pods.iter().take(MAX_NAMED).enumerate() {
            let before = if at == 0 { " for " } else { ", " };
            write!(f, "{before}{}/{}", pod.namespace, pod.name)?;
        }
        match self.pods.len().saturating_sub(MAX_NAMED) {
            0 => f.write_str("; the report counts"),
            more => write!(f, " and {more} more; the report counts"),
        }
    }
}

/// The contradictions so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Drifts {
    pub(super) number: u64,
    /// The newest, until it is taken.
    newest: Option<Drift>,
}

impl Drifts {
    /// Notes one, with the pods that it is about.
    pub(super) fn note(&mut self, pods: impl Iterator<Item = PodNames>) {
        self.number += 1;
        self.newest = Some(Drift { pods: pods.collect(), detail: String::new() });
    }

    /// Adds what was booked for a pod, and what is reported of it.
    pub(super) fn explain<'a>(
        &mut self,
        pod: &PodNames,
        booked: impl Iterator<Item = &'a Location>,
        reported: &HeldIds,
    ) {
        let Some(newest) = &mut self.newest else { return };
        let worlds: Vec<String> = booked.map(location_text).collect();
        let separator = if newest.detail.is_empty() { "" } else { ". " };
        newest.detail += &format!(
            "{separator}{}/{}: booked {}; reported {}",
            pod.namespace,
            pod.name,
            worlds.join(" or "),
            held_text(reported)
        );
    }

    /// Adds, for each amount that some world expected to be another one, what was expected and what is reported, in
    /// base units.
    pub(super) fn explain_amounts(&mut self, expected: &[Free], reported: &Free) {
        let Some(newest) = &mut self.newest else { return };
        let layout = reported.layout();
        let columns = layout.resources().len().max(1);
        let told = reported.cells().iter().enumerate().filter_map(|(cell, amount)| {
            let of_worlds: BTreeSet<i64> =
                expected.iter().filter_map(|table| table.cells().get(cell).copied()).collect();
            if of_worlds.iter().all(|one| one == amount) {
                return None;
            }
            let booked: Vec<String> = of_worlds.iter().map(ToString::to_string).collect();
            let (zone, name) = (layout.zones()[cell / columns].0, layout.resources()[cell % columns]);
            Some(format!("zone {zone} {name}: expected {} free; reported {amount}", booked.join(" or ")))
        });
        newest.detail = told.take(MAX_NAMED).collect::<Vec<_>>().join(". ");
    }

    /// Whether one waits to be taken.
    pub(super) fn is_noted(&self) -> bool {
        self.newest.is_some()
    }

    /// Takes the newest one.
    pub(super) fn take(&mut self) -> Option<Drift> {
        self.newest.take()
    }
}

fn location_text(location: &Location) -> String {
    match location {
        Location::Unknown => "somewhere".to_owned(),
        Location::Charged { held: Held::Ids(held), exact } => {
            format!("{}{}", held_text(held), if *exact { "" } else { " at most" })
        }
        Location::Charged { held: Held::Cells(_), .. } => "amounts".to_owned(),
    }
}

/// Each container with its CPUs, and zones and mebibytes of its memory.
fn held_text(held: &HeldIds) -> String {
    let containers = held.containers.iter().map(|it| {
        let memory = it.memory.iter().map(|block| format!(" {}@{}", block.bytes >> 20, block.zones));
        let devices = it.devices.iter().map(|(name, ids)| format!(" {name} x {}", ids.len()));
        format!("{} [{}]{}{}", it.name, it.cpus, memory.collect::<String>(), devices.collect::<String>())
    });
    let text: Vec<String> = containers.collect();
    if text.is_empty() { "nothing".to_owned() } else { text.join(", ") }
}

impl Ledger {
    /// Whether a report has contradicted every world since [`Self::take_drift`].
    #[must_use]
    pub fn has_drift(&self) -> bool {
        self.drifts.is_noted()
    }

    /// Takes the newest contradiction.
    pub fn take_drift(&mut self) -> Option<Drift> {
        self.drifts.take()
    }
}
