//! What the scheduler remembers of pods that it, or others, placed a moment ago.

use crate::facts::DEFAULT_SCHEDULER;
use crate::fixture::Fixture;
use crate::need::Need::{Aligning, DefaultScheduler, Devices, Scheduler};
use crate::payload::slots;
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};

/// Pods of the default scheduler that are there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foreign {
    /// They hold CPUs of zones.
    Guaranteed,
    /// They hold CPUs of nodes.
    Burstable,
}

pub(super) fn specs() -> Vec<Spec> {
    let foreign = [
        ("85787", "guaranteed", "qos:gu", Foreign::Guaranteed),
        ("85788", "burstable", "qos:bu", Foreign::Burstable),
    ];
    let foreign = foreign.into_iter().map(|(id, word, label, kind)| {
        let title = format!("pods fill the zones that {word} pods of the default scheduler leave");
        Spec::new(id, 0, title, move |f| beside_others(f, kind))
            .labels(&["generic", label])
            .needs([DefaultScheduler])
    });
    let devices = [
        ("85789", "of pods for the zones with a device as many run as there are zones", false),
        ("85790", "a pod for a zone with a device runs once another of them has gone", true),
    ];
    let devices = devices.into_iter().map(|(id, title, leaves)| {
        Spec::new(id, 0, title, move |f| one_zone_has_devices(f, leaves))
            .labels(&["devices"])
            .needs([Devices])
    });
    let first = Spec::new("85786", 0, "a burst of pods of more than half a zone fills all zones", fills);
    let all = std::iter::once(first.labels(&["generic"])).chain(foreign).chain(devices);
    all.map(|spec| spec.labels(&["cache", "periodic_update", "openshift"]).needs([Scheduler, Aligning(2)]))
        .collect()
}

/// Each zone holds one: a scheduler that forgets what it placed a moment ago sends two to one zone.
async fn fills(f: Fixture) -> Result {
    let plan = f.pod("p").guaranteed(&f.share(3, 5));
    let count = f.nodes().iter().map(|node| node.topology.zones.len()).sum();
    f.payload("p", &plan, count).await?;
    let pods = f.payload_runs("p", count).await?;
    f.accounted_everywhere(&pods).await
}

/// Foreign pods hold parts of zones that no scheduler chose. What they leave is filled.
async fn beside_others(f: Fixture, foreign: Foreign) -> Result {
    let zones: usize = f.nodes().iter().map(|node| node.topology.zones.len()).sum();
    let plan = f.pod("foreign").scheduler(DEFAULT_SCHEDULER);
    let (plan, count): (PodPlan, usize) = match foreign {
        Foreign::Guaranteed => (plan.guaranteed(&f.share(1, 6)), 2 * zones),
        Foreign::Burstable => (plan.burstable(&f.share(1, 16)), 4 * zones),
    };
    f.payload("foreign", &plan, count).await?;
    f.all_running(crate::payload::LABEL, "foreign", count).await?;
    let size = f.share(3, 10);
    let mut room = 0;
    for node in f.nodes() {
        room += slots(node, &f.free(&node.name).await?, &size);
    }
    // Burstable pods hold none of the zones, and a quarter of the node: two pods for each zone fit beside them.
    let count = room.min(2 * zones);
    f.payload("p", &f.pod("p").guaranteed(&size), count).await?;
    f.payload_runs("p", count).await.map(drop)
}

/// One zone of each node has the device, and holds one of the pods; there is a pod more than nodes.
async fn one_zone_has_devices(f: Fixture, leaves: bool) -> Result {
    let size = f.share(if leaves { 6 } else { 7 }, 10).plus(&f.amounts("dev3=1")?);
    let nodes = f.nodes().len();
    f.payload("p", &f.pod("p").guaranteed(&size), nodes + 1).await?;
    let running = f.payload_fits("p", nodes, nodes + 1).await?;
    f.accounted_everywhere(&running).await?;
    if let Some(first) = running.first().filter(|_| leaves) {
        f.delete(first).await?;
        let pods = f.payload_runs("p", nodes).await?;
        f.accounted_everywhere(&pods).await?;
    }
    Ok(())
}
