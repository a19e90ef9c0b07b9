//! Bursts of small pods: each is placed, and none is rejected.

use topology::resource::ResourceName;

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Scheduler};
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};

/// The quality of service of a burst's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

pub(super) fn specs() -> Vec<Spec> {
    let rows = [
        ("84018", 1, Qos::Guaranteed, true),
        ("84019", 1, Qos::Burstable, true),
        ("84020", 2, Qos::BestEffort, true),
        ("84021", 0, Qos::Guaranteed, false),
        ("84022", 1, Qos::Burstable, false),
        ("84023", 2, Qos::BestEffort, false),
    ];
    let spec = |(id, tier, qos, one)| {
        let (word, label) = match qos {
            Qos::Guaranteed => ("guaranteed", "qos:gu"),
            Qos::Burstable => ("burstable", "qos:bu"),
            Qos::BestEffort => ("best-effort", "qos:be"),
        };
        let place = if one { "one node" } else { "all nodes" };
        Spec::new(id, tier, format!("a burst of {word} pods fills {place}"), move |f| burst(f, qos, one))
            .labels(&["scheduler", "fundamentals", "feature:nonreg", label])
            .labels(if one { &["node1"] } else { &["nodeAll"] })
            .needs([Scheduler, Aligning(2)])
    };
    rows.into_iter().map(spec).collect()
}

impl Qos {
    fn pod(self, f: &Fixture, number: usize) -> Result<PodPlan> {
        let (plan, amounts) = (f.pod(&format!("b-{number}")), f.amounts("2 64Mi")?);
        Ok(match self {
            Self::Guaranteed => plan.guaranteed(&amounts),
            Self::Burstable => plan.burstable(&amounts),
            Self::BestEffort => plan.best_effort(),
        })
    }
}

/// Three quarters of the room on one node, five eighths on each of all.
async fn burst(f: Fixture, qos: Qos, one: bool) -> Result {
    let nodes: Vec<&str> = f.nodes().iter().map(|node| &*node.name).collect();
    let nodes = if one { &nodes[..1] } else { &nodes[..] };
    let smallest = f.nodes().iter().map(crate::facts::NodeFacts::smallest_zone).reduce(|a, b| a.min(&b));
    let cpus = smallest.unwrap_or_default().get(ResourceName::CPU) / ResourceName::CPU.base_units();
    let of_zone = usize::try_from(cpus / (2 * f.facts().scale().cpus)).unwrap_or_default();
    let count = if one { of_zone * 3 / 2 } else { of_zone * 5 / 4 * nodes.len() };
    let mut pods = Vec::new();
    for number in 0..count {
        pods.push(f.create(qos.pod(&f, number)?.among(nodes)).await?);
    }
    for pod in &pods {
        f.running(pod).await?;
        f.scheduled(pod).await?;
    }
    Ok(())
}
