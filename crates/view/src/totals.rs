//! All zones of a cluster in a few numbers.
//!
//! In: the rows of a cluster. Out: what is free in all and where most is in one zone. Never: a judgement.
//!
//! Amounts are in base units, as in [`crate::cluster`]. Cost: nodes x zones, for each resource.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::cluster::{NodeRow, ReportStatus};

/// The zones of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneTotals {
    /// How many there are.
    pub zones: usize,
    /// How many nodes have a report that says what was expected.
    pub confirmed: usize,
    /// Nodes of which it is known within bounds what some pods hold.
    pub in_doubt: Vec<Arc<str>>,
    /// Nodes whose newest report is not explained, cannot be read, or is gone.
    pub unconfirmed: Vec<Arc<str>>,
    /// CPUs and memory first.
    pub resources: Vec<ResourceTotals>,
}

/// A resource in all zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTotals {
    /// Its name.
    pub resource: &'static str,
    /// What no pod has.
    pub free: i64,
    /// What pods may have at most.
    pub allocatable: i64,
    /// The zone with most of it; none where none is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<LargestZone>,
}

/// The zone that has most of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargestZone {
    /// Its node.
    pub node: Arc<str>,
    /// Its id.
    pub zone: u32,
    /// What is free there.
    pub free: i64,
}

impl ZoneTotals {
    /// The zones of these nodes.
    #[must_use]
    pub fn of(nodes: &[NodeRow]) -> Self {
        let names =
            |state| nodes.iter().filter(move |node| node.state == state).map(|node| node.name.clone());
        Self {
            zones: nodes.iter().map(|node| node.zones.len()).sum(),
            confirmed: names(ReportStatus::Confirmed).count(),
            in_doubt: names(ReportStatus::InDoubt).collect(),
            unconfirmed: names(ReportStatus::Unconfirmed).collect(),
            resources: resources(nodes).into_iter().map(|name| ResourceTotals::of(nodes, name)).collect(),
        }
    }
}

impl ResourceTotals {
    /// A resource in the zones of these nodes. Of zones that have as much the first counts.
    #[must_use]
    pub fn of(nodes: &[NodeRow], resource: &'static str) -> Self {
        let mut totals = Self { resource, free: 0, allocatable: 0, largest: None };
        for (node, zone) in nodes.iter().flat_map(|node| node.zones.iter().map(move |zone| (node, zone))) {
            let Some(column) = node.column(resource) else { continue };
            let free = zone.free[column].max(0);
            totals.free += free;
            totals.allocatable += zone.allocatable[column];
            if free > totals.largest.as_ref().map_or(0, |largest| largest.free) {
                totals.largest = Some(LargestZone { node: Arc::clone(&node.name), zone: zone.id, free });
            }
        }
        totals
    }
}

/// The resources that zones have, CPUs and memory first.
#[must_use]
pub fn resources(nodes: &[NodeRow]) -> Vec<&'static str> {
    let names: BTreeSet<&'static str> =
        nodes.iter().flat_map(|node| node.resources.iter().copied()).collect();
    let mut names: Vec<&'static str> = names.into_iter().collect();
    names.sort_by_key(|name| (*name != "cpu", *name != "memory"));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ZoneRow;

    fn node(name: &str, state: ReportStatus, resources: &[&'static str], zones: &[&[i64]]) -> NodeRow {
        let zone = |(id, free): (usize, &&[i64])| ZoneRow {
            id: u32::try_from(id).unwrap(),
            free: free.to_vec(),
            allocatable: vec![8_000; resources.len()],
        };
        NodeRow {
            name: name.into(),
            policy: None,
            scope: None,
            state,
            cordoned: false,
            pods: 0,
            on_their_way: 0,
            rejected: 0,
            resources: resources.to_vec(),
            zones: zones.iter().enumerate().map(zone).collect(),
        }
    }

    #[test]
    fn sums_and_the_first_of_the_largest() {
        let nodes = [
            node("a", ReportStatus::Confirmed, &["cpu", "gpu"], &[&[1_000, 0], &[4_000, 0]]),
            node("b", ReportStatus::InDoubt, &["cpu"], &[&[4_000], &[-1_000]]),
            node("c", ReportStatus::Unreported, &[], &[]),
            node("d", ReportStatus::Unconfirmed, &["memory", "cpu"], &[&[5, 2_000]]),
        ];
        let totals = ZoneTotals::of(&nodes);
        assert_eq!((totals.zones, totals.confirmed), (5, 1));
        assert_eq!((&totals.in_doubt, &totals.unconfirmed), (&vec!["b".into()], &vec!["d".into()]));
        let at = |node: &str, zone, free| Some(LargestZone { node: node.into(), zone, free });
        let row =
            |resource, free, allocatable, largest| ResourceTotals { resource, free, allocatable, largest };
        let wanted = [
            row("cpu", 11_000, 40_000, at("a", 1, 4_000)),
            row("memory", 5, 8_000, at("d", 0, 5)),
            row("gpu", 0, 16_000, None),
        ];
        assert_eq!(totals.resources, wanted);
    }
}
