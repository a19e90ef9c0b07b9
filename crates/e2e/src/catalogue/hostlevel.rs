//! Resources of the node that no zone has: ephemeral storage.

use anyhow::ensure;

use crate::amounts::Amounts;
use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Scheduler};
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};

/// How containers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Limits,
    Requests,
    StorageOnly,
}

pub(super) fn specs() -> Vec<Spec> {
    let rows: [(&str, u8, Ask, &str, &'static [&str]); 7] = [
        ("84015", 0, Ask::Limits, "Guaranteed", &["2 256Mi"]),
        ("84016", 1, Ask::Requests, "Burstable", &["2 256Mi"]),
        ("84017", 1, Ask::StorageOnly, "BestEffort", &[""]),
        ("74249", 0, Ask::Limits, "Guaranteed", &["2 256Mi", "2 256Mi", "1 128Mi", "1 128Mi"]),
        ("74250", 0, Ask::Limits, "Guaranteed", &["1500m 256Mi", "2 256Mi"]),
        ("74251", 1, Ask::Requests, "Burstable", &["1500m 256Mi", "500m 256Mi"]),
        ("74252", 1, Ask::StorageOnly, "BestEffort", &["", ""]),
    ];
    let runs = rows.into_iter().map(|(id, tier, ask, qos, containers)| {
        let count = if containers.len() == 1 { "a container" } else { "containers" };
        let title = format!("a {qos} pod of {count} with storage runs");
        Spec::new(id, tier, title, move |f| runs(f, ask, qos, containers)).needs([Scheduler, Aligning(1)])
    });
    let waits = [
        ("74253", 2, Ask::Limits, "Guaranteed"),
        ("74254", 2, Ask::Requests, "Burstable"),
        ("74255", 3, Ask::StorageOnly, "BestEffort"),
    ];
    let waits = waits.into_iter().map(|(id, tier, ask, qos)| {
        let title = format!("a {qos} pod waits for storage that no node has left");
        Spec::new(id, tier, title, move |f| waits_for_storage(f, ask))
            .labels(&["unsched"])
            .needs([Scheduler, Aligning(1)])
    });
    runs.chain(waits).map(|spec| spec.labels(&["scheduler", "hostlevel"])).collect()
}

impl Ask {
    fn container(self, plan: PodPlan, amounts: &Amounts) -> PodPlan {
        match self {
            Self::Limits => plan.guaranteed(amounts),
            Self::Requests | Self::StorageOnly => plan.burstable(amounts),
        }
    }
}

async fn runs(f: Fixture, ask: Ask, qos: &'static str, containers: &'static [&'static str]) -> Result {
    let target = f.target()?.name.clone();
    let before = f.free(&target).await?;
    let mut plan = f.pod("p").among(&[&target]);
    for container in containers {
        plan = ask.container(plan, &f.amounts(&format!("{container} ephemeral-storage=256Mi"))?);
    }
    let pod = f.create(plan).await?;
    f.runs_on(&pod, &target).await?;
    let found = f.running(&pod).await?;
    let actual = found.status.as_ref().and_then(|status| status.qos_class.clone()).unwrap_or_default();
    ensure!(actual == qos, "the pod's class is {actual}, not {qos}");
    f.accounted(&target, &before, &[pod]).await
}

/// Pods take the storage of every node but for one MiB less than is asked for.
async fn waits_for_storage(f: Fixture, ask: Ask) -> Result {
    let storage = topology::resource::ResourceName::EPHEMERAL_STORAGE;
    let wanted = f.amounts("ephemeral-storage=256Mi")?;
    for node in f.nodes() {
        let free = node.allocatable.get(storage) - node.base_load.get(storage);
        let taken = free - wanted.get(storage) + (1 << 20);
        let name = format!("holder-{}", f.number().await);
        let holder =
            f.create(f.pod(&name).burstable(&Amounts::of([(storage, taken)])).on(&node.name)).await?;
        f.running(&holder).await?;
    }
    let amounts = match ask {
        Ask::StorageOnly => wanted,
        Ask::Limits | Ask::Requests => f.amounts("1 128Mi")?.plus(&wanted),
    };
    let pod = f.create(ask.container(f.pod("p"), &amounts)).await?;
    f.lacks(&pod, storage).await
}
