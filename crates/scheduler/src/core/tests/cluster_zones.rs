//! What all zones have free, and what of it is of no use.

use super::*;
use topology::request::Need;
use topology::zone::Cells;

use crate::core::cluster_zones::{ClusterZones, FreeInZones};

#[test]
fn zones_are_summed_and_stranded_cpus_found() {
    let mut core = core(&[]);
    assert_eq!(core.cluster_zones(), ClusterZones::default());
    for (name, free) in [("a", [5, 5]), ("b", [1, 7]), ("c", [2, 1])] {
        core.handle(Event::Node(node(name)), LATER);
        core.handle(Event::Report(name.into(), report(free, &[])), LATER);
    }
    let cpus = |core: &Core| core.cluster_zones().by_resource[&ResourceName::CPU].clone();
    // Memory of both zones of each node is the same.
    let with = |free: i128, largest: i64| {
        let shape = [(ResourceName::CPU, largest), (ResourceName::MEMORY, 15 * GI)];
        let shape = shape.map(|(name, amount)| Need { name, amount }).to_vec();
        FreeInZones { free, largest, shape }
    };
    assert_eq!(cpus(&core), with(21_000, 7_000));
    assert_eq!(core.cluster_zones().stranded_cpu, 0, "no pod waits");
    for (name, cpus) in [("fits", 7), ("waits", 6)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    decide(&mut core, LATER);
    // `a` has 10 for the pod of 6, `b` no more than 1, and `c` 3.
    assert_eq!(cpus(&core), with(14_000, 5_000));
    assert_eq!(core.cluster_zones().stranded_cpu, 10_000);
    core.handle(Event::ReportGone("a".into()), LATER);
    assert_eq!(cpus(&core).free, 4_000, "a report that is gone tells nothing");
}

/// Of the zones with most CPUs the one with more memory counts, and what it has is one zone's.
#[test]
fn the_largest_shape_is_what_one_zone_has() {
    let names = [ResourceName::CPU, ResourceName::MEMORY];
    let amounts = [6_000, 9, 7_000, 3, 7_000, 4];
    let zones = Cells { zones: 3, resources: &names, amounts: &amounts };
    let shape = |column: usize| {
        let mut all = FreeInZones::default();
        (0..3).for_each(|row| all.add(zones.row(row)[column], &zones, row));
        all.shape.iter().map(|need| need.amount).collect::<Vec<_>>()
    };
    assert_eq!((shape(0), shape(1)), (vec![7_000, 4], vec![6_000, 9]));
}

/// Else the last value would stand for ever.
#[test]
fn a_resource_that_no_zone_has_any_more_has_no_series() {
    let mut core = core(&["n"]);
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = crate::metrics::Metrics::register(&mut registry);
    let series = |core: &Core| {
        metrics.observe(core);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.lines()
            .filter(|line| line.starts_with("tholepin_zone_free{"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let all = 32 * GI;
    let wanted = [
        "tholepin_zone_free{resource=\"cpu\"} 16.0",
        &format!("tholepin_zone_free{{resource=\"memory\"}} {all}.0"),
    ];
    let mut found = series(&core);
    found.sort();
    assert_eq!(found, wanted);
    core.handle(Event::ReportGone("n".into()), LATER);
    assert_eq!(series(&core), [""; 0]);
}
