//! Payloads: many equal pods, and the room that zones have for them.
//!
//! In: the spec's nodes, a pod as the spec describes it. Out: how many such pods zones hold, pods created at once, and
//! waits for all of them. Never: a number of pods that is the same on every cluster.

use futures::future::try_join_all;
use topology::zone::Free;

use crate::amounts::Amounts;
use crate::facts::NodeFacts;
use crate::fixture::{Fixture, PodRef};
use crate::placement;
use crate::pods::PodPlan;
use crate::spec::Result;

/// The label of a payload's pods: its name.
pub const LABEL: &str = "e2e.tholepin.dev/payload";

impl Fixture {
    /// The [`room`] of the spec's nodes.
    #[must_use]
    pub fn room(&self) -> Amounts {
        room(self.nodes(), self.facts().scale().cpus)
    }

    /// A part of [`Fixture::room`].
    #[must_use]
    pub fn share(&self, parts: i64, of: i64) -> Amounts {
        self.room().part(parts, of, self.facts().scale().cpus)
    }

    /// Creates equal pods at once; a number distinguishes their names, a label tells them from others.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn payload(&self, name: &str, plan: &PodPlan, count: usize) -> Result<Vec<PodRef>> {
        let plans = (0..count).map(|number| {
            let plan = plan.clone().label(LABEL, name);
            let name = format!("{}-{number}", plan.name());
            plan.named(&name)
        });
        try_join_all(plans.map(|plan| self.create(plan))).await
    }

    /// Waits until all pods of a payload run, sent by the scheduler under test.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn payload_runs(&self, name: &str, count: usize) -> Result<Vec<PodRef>> {
        let pods = self.all_running(LABEL, name, count).await?;
        for pod in &pods {
            self.scheduled(pod).await?;
        }
        Ok(pods)
    }

    /// Waits until so many pods of a payload run, and the others have been found unschedulable.
    ///
    /// # Errors
    /// When others run, or it takes too long.
    pub async fn payload_fits(&self, name: &str, wanted: usize, all: usize) -> Result<Vec<PodRef>> {
        self.fitting(LABEL, name, wanted, all).await?;
        let state = self.cluster().observer.now();
        let pods = self.labelled(LABEL, name).into_iter();
        Ok(pods.filter(|pod| pod.find(&state).is_some_and(|pod| placement::runs(pod))).collect())
    }

    /// Waits until the report of each node of the spec shows these pods, and nothing else of the spec.
    ///
    /// # Errors
    /// The zone and resource that differ.
    pub async fn accounted_everywhere(&self, pods: &[PodRef]) -> Result {
        for node in self.nodes() {
            let mut here = Vec::new();
            for pod in pods {
                if self.node_of(pod).await? == node.name {
                    here.push(pod.clone());
                }
            }
            self.accounted(&node.name, self.before(&node.name)?, &here).await?;
        }
        Ok(())
    }
}

/// CPUs and memory that every zone of these nodes has, besides what pods without a zone request of a node: multiples of
/// so many CPUs.
#[must_use]
pub fn room(nodes: &[NodeFacts], cpus: i64) -> Amounts {
    let rooms = nodes.iter().map(|node| node.smallest_zone().minus(&node.base()));
    rooms.reduce(|a, b| a.min(&b)).unwrap_or_default().part(1, 1, cpus)
}

/// How many pods of this size the zones of a node hold. The first zone keeps what pods without a zone request.
#[must_use]
pub fn slots(node: &NodeFacts, free: &Free, size: &Amounts) -> usize {
    let zones = node.topology.zones.iter().map(|zone| Amounts::of_zone(free, zone.id));
    held(zones, &node.base(), size)
}

fn held(zones: impl Iterator<Item = Amounts>, base: &Amounts, size: &Amounts) -> usize {
    let zones = zones.enumerate().map(|(row, there)| if row == 0 { there.minus(base) } else { there });
    let of_zone = |there: Amounts| {
        size.iter().map(|(name, amount)| there.get(name) / amount.max(1)).min().unwrap_or_default()
    };
    usize::try_from(zones.map(of_zone).sum::<i64>()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::Scale;

    #[test]
    fn the_first_zone_keeps_what_pods_without_a_zone_request() {
        let read = |text| Amounts::parse(text, &Scale { cpus: 1, devices: Default::default() }).unwrap();
        for (zones, base, size, wanted) in [
            (&["8 8Gi", "8 8Gi"][..], "0 0", "4 4Gi", 4),
            (&["8 8Gi", "8 8Gi"], "1 0", "4 4Gi", 3),
            (&["8 8Gi", "8 8Gi"], "9 0", "4 4Gi", 2),
            (&["8 8Gi", "8 4Gi", "3 9Gi"], "0 0", "4 4Gi", 3),
            (&["8 8Gi"], "0 0", "4 4Gi x.dev/a=1", 0),
            (&[], "0 0", "1 1Gi", 0),
        ] {
            let found = held(zones.iter().map(|text| read(text)), &read(base), &read(size));
            assert_eq!(found, wanted, "{zones:?} {base} {size}");
        }
    }
}
