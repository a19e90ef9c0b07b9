//! What all zones have free, and what of it is of no use.

use super::*;
use crate::core::cluster_zones::{ClusterZones, FreeInZones};

#[test]
fn zones_are_summed_and_stranded_cpus_found() {
    let mut core = core(&[]);
    assert_eq!(core.cluster_zones(), ClusterZones::default());
    for (name, free) in [("a", [5, 5]), ("b", [1, 7]), ("c", [2, 1])] {
        core.handle(Event::Node(node(name)), LATER);
        core.handle(Event::Report(name.into(), report(free, &[])), LATER);
    }
    let cpus = |core: &Core| core.cluster_zones().by_resource[&ResourceName::CPU];
    assert_eq!(cpus(&core), FreeInZones { free: 21_000, largest: 7_000 });
    assert_eq!(core.cluster_zones().stranded_cpu, 0, "no pod waits");
    for (name, cpus) in [("fits", 7), ("waits", 6)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    decide(&mut core, LATER);
    // `a` has 10 for the pod of 6, `b` no more than 1, and `c` 3.
    assert_eq!(cpus(&core), FreeInZones { free: 14_000, largest: 5_000 });
    assert_eq!(core.cluster_zones().stranded_cpu, 10_000);
    core.handle(Event::ReportGone("a".into()), LATER);
    assert_eq!(cpus(&core).free, 4_000, "a report that is gone tells nothing");
}
