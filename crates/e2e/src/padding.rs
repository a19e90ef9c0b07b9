//! Padding: pods that leave a chosen amount free in each zone of a node.
//!
//! In: nodes, and what is to be left in each zone. Out: zones with exactly that, as their reports say. Never: a
//! scheduler: padding pods name their node, and a device of a single zone pins them.
//!
//! A zone keeps, besides, what pods without a zone request of the node: the kubelet counts them against the node's
//! total, and would else have no room for a pod that fits its zone. The first zone gets that.

use anyhow::Context as _;
use futures::future::try_join_all;
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::Free;

use crate::amounts::Amounts;
use crate::devices;
use crate::facts::NodeFacts;
use crate::fixture::{Fixture, PodRef};
use crate::spec::{Result, Skip};

/// The label of padding pods: their node.
const LABEL: &str = "e2e.tholepin.dev/padding";

/// What is to be left in each zone of a node, by the order of its zones. Zones beyond the list keep what the last entry
/// says.
#[derive(Clone, Debug)]
pub struct Left<'a>(
    /// By zone.
    pub &'a [Amounts],
);

impl Fixture {
    /// Pads nodes until their zones have exactly this free, of the resources that `left` names.
    ///
    /// # Errors
    /// [`Skip`] where a zone has less than is to be left; else when the padding does not run, or reports differ.
    pub async fn pad(&self, nodes: &[NodeFacts], left: Left<'_>) -> Result<Vec<PodRef>> {
        let mut pods = Vec::new();
        for node in nodes {
            pods.extend(self.pad_zones(node, &left).await?);
        }
        try_join_all(pods.iter().map(|pod| self.running(pod))).await?;
        for node in nodes {
            self.is_padded(node, &left).await?;
        }
        Ok(pods)
    }

    /// Pads nodes until nothing fits there any more: no CPU and no memory is left but what pods without a zone request.
    ///
    /// # Errors
    /// As [`Fixture::pad`].
    pub async fn fill(&self, nodes: &[NodeFacts]) -> Result<Vec<PodRef>> {
        let nothing = Amounts::of([(ResourceName::CPU, 0), (ResourceName::MEMORY, 0)]);
        self.pad(nodes, Left(&[nothing])).await
    }

    async fn pad_zones(&self, node: &NodeFacts, left: &Left<'_>) -> Result<Vec<PodRef>> {
        let free = self.free(&node.name).await?;
        let plans = node.topology.zones.iter().enumerate().map(|(row, zone)| {
            let there = Amounts::of_zone(&free, zone.id);
            let leave = left.of(node, row);
            if let Some((name, there)) = leave.more_than(&there) {
                let (wanted, there) = (leave.get(name), api::convert::quantity(name, there));
                let wanted = api::convert::quantity(name, wanted);
                let text = format!(
                    "{wanted} of {name} in a zone; zone {} of node {} has {there} free",
                    zone.id.0, node.name
                );
                return Err(anyhow::Error::from(Skip(text)));
            }
            let pin = ResourceName::new(&devices::of_zone(zone.id)).context("the name of a device")?;
            let taken = there.only(|name| leave.iter().any(|(wanted, _)| wanted == name)).minus(&leave);
            Ok((row, pinned(taken).map(|amounts| amounts.with(pin, 1))))
        });
        let mut pods = Vec::new();
        for plan in plans {
            let (row, Some(amounts)) = plan? else { continue };
            let name = format!("pad-{}-{row}", self.number().await);
            let plan = self.pod(&name).on(&node.name).label(LABEL, &node.name);
            pods.push(self.create(plan.guaranteed(&amounts)).await?);
        }
        Ok(pods)
    }

    async fn is_padded(&self, node: &NodeFacts, left: &Left<'_>) -> Result {
        self.until(&format!("node {} is padded", node.name), |state| {
            let free = crate::settled::settled(state, &node.name)?.available();
            left.differs(node, &free).map_or(Ok(()), Err)
        })
        .await
    }
}

/// What a padding pod asks for: at least a little CPU and memory, or the kubelet would not pin the rest. None where
/// nothing is to be taken.
fn pinned(taken: Amounts) -> Option<Amounts> {
    let taken = Amounts::of(taken.iter().filter(|(_, amount)| *amount > 0).collect::<Vec<_>>());
    taken.iter().next()?;
    // Less than a CPU comes from the shared ones, and so from no zone.
    let least = Amounts::of([(ResourceName::CPU, 10), (ResourceName::MEMORY, 1 << 20)]);
    Some(taken.max(&least))
}

impl Left<'_> {
    /// What a zone keeps.
    fn of(&self, node: &NodeFacts, row: usize) -> Amounts {
        let wanted = self.0.get(row).or_else(|| self.0.last()).cloned().unwrap_or_default();
        let base = node.base().only(|name| wanted.iter().any(|(other, _)| other == name));
        if row == 0 { wanted.plus(&base.only(|name| name.kind() != ResourceKind::Device)) } else { wanted }
    }

    fn differs(&self, node: &NodeFacts, free: &Free) -> Option<String> {
        node.topology.zones.iter().enumerate().find_map(|(row, zone)| {
            let wanted = self.of(node, row);
            let (name, amount) =
                wanted.iter().find(|(name, amount)| free.amount(zone.id, *name) != *amount)?;
            let text = |amount| api::convert::quantity(name, amount);
            let there = text(free.amount(zone.id, name));
            Some(format!("zone {}: {name}: {there} free, expected {}", zone.id.0, text(amount)))
        })
    }
}
