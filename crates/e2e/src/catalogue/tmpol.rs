//! Policy single-numa-node, vector by vector: what is left in the zones, what a pod asks for, and where it must go.

pub mod vectors;

use topology::policy::{Manager, Scope};
use topology::resource::ResourceName;

use crate::amounts::Amounts;
use crate::fixture::Fixture;
use crate::need::Need::{self, Aligning, Devices, Resource, Scheduler};
use crate::padding::Left;
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};
use vectors::{Expect, VECTORS, Vector};

/// How a pod comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Pod,
    Deployment,
}

/// Specs in which the target is free, and the others lack one CPU and one GiB: id, tier, scope, owner, huge pages.
const ROOM: [(&str, u8, Scope, Owner, bool); 8] = [
    ("48713", 1, Scope::Container, Owner::Pod, false),
    ("50156", 1, Scope::Pod, Owner::Pod, false),
    ("50158", 1, Scope::Container, Owner::Pod, true),
    ("50157", 1, Scope::Pod, Owner::Pod, true),
    ("47583", 0, Scope::Container, Owner::Deployment, false),
    ("50159", 0, Scope::Pod, Owner::Deployment, false),
    ("50165", 1, Scope::Container, Owner::Deployment, true),
    ("50182", 1, Scope::Pod, Owner::Deployment, true),
];

pub(super) fn specs() -> Vec<Spec> {
    let room = ROOM.iter().map(|(id, tier, scope, owner, pages)| {
        let title = match (owner, pages) {
            (Owner::Pod, false) => "a pod runs on the only node with room in a zone",
            (Owner::Pod, true) => "a pod runs on the only node with huge pages enough in a zone",
            (Owner::Deployment, false) => "a deployment's pod runs on the only node with room in a zone",
            (Owner::Deployment, true) => "a deployment's pod runs on the only node with huge pages enough",
        };
        let pages_need = pages.then_some(Resource("hugepages-2Mi"));
        let title = format!("{title} (scope {})", scope.as_str());
        Spec::new(*id, *tier, title, move |f| has_room(f, *owner, *pages))
            .labels(labels(*scope))
            .needs([Scheduler, Devices, Need::Scope(*scope), Aligning(2)].into_iter().chain(pages_need))
    });
    room.chain(VECTORS.iter().map(vector)).collect()
}

fn labels(scope: Scope) -> &'static [&'static str] {
    match scope {
        Scope::Pod => &["scheduler", "disruptive", "feature:wlplacement", "tmscope:pod"],
        Scope::Container => {
            &["scheduler", "disruptive", "feature:wlplacement", "tmscope:cnt", "tmscope:container"]
        }
    }
}

fn vector(vector: &'static Vector) -> Spec {
    let (id, tier, scope, word) = (vector.id, vector.tier, vector.scope, vector.labels);
    let title = match vector.expect {
        Expect::Target => {
            format!("{} go to the zones that hold them (scope {})", vector.about, scope.as_str())
        }
        Expect::WholeCpusOnly => format!("{} are aligned by whole CPUs only (scope pod)", vector.about),
        Expect::CannotAlign | Expect::InsufficientCpu => {
            format!("{} wait: no zones hold them (scope {})", vector.about, scope.as_str())
        }
    };
    let pages =
        ["hugepages-2Mi", "hugepages-1Gi"].into_iter().filter(|name| vector.mentions(name)).map(Resource);
    Spec::new(id, tier, title, move |f| run(f, vector))
        .labels(labels(scope))
        .labels(word)
        .needs([Scheduler, Devices, Need::Scope(scope), Aligning(2)].into_iter().chain(pages))
}

async fn has_room(f: Fixture, owner: Owner, pages: bool) -> Result {
    let target = f.target()?.name.clone();
    let (wanted, left) = match pages {
        false => ("4 4Gi", "3 3Gi"),
        true => ("4 4Gi hugepages-2Mi=256Mi", "4 4Gi hugepages-2Mi=192Mi"),
    };
    let wanted = f.amounts(wanted)?;
    f.require_zones(&wanted)?;
    f.pad(f.others(), Left(&[f.amounts(left)?])).await?;
    let before = f.free(&target).await?;
    let plan = f.pod("p").guaranteed(&wanted);
    let pod = match owner {
        Owner::Pod => f.create(plan).await?,
        Owner::Deployment => f.deployment(plan, 1).await?.pods().await?.remove(0),
    };
    f.runs_on(&pod, &target).await?;
    f.accounted(&target, &before, &[pod]).await
}

async fn run(f: Fixture, vector: &'static Vector) -> Result {
    let target = f.target()?.clone();
    let zones = |texts: &[&str]| texts.iter().map(|text| f.amounts(text)).collect::<Result<Vec<Amounts>>>();
    // Zones beyond the vector's two are full.
    let left = |mut zones: Vec<Amounts>| {
        let none =
            Amounts::of(zones.iter().flat_map(Amounts::iter).map(|(name, _)| (name, 0)).collect::<Vec<_>>());
        zones.push(none);
        zones
    };
    f.pad(f.others(), Left(&left(zones(&vector.others)?))).await?;
    f.pad(std::slice::from_ref(&target), Left(&left(zones(&vector.target)?))).await?;
    let before = f.free(&target.name).await?;
    let init = zones(vector.init)?;
    let app = zones(vector.app)?;
    let plan = init.iter().fold(f.pod("p"), PodPlan::init);
    let plan = app.iter().fold(plan, PodPlan::guaranteed);
    let pod = f.create(plan).await?;
    let is_known = target.rules().cpu_manager == Manager::Static;
    match vector.expect {
        Expect::WholeCpusOnly if !is_known => f.cannot_align(&pod).await?,
        Expect::Target | Expect::WholeCpusOnly => {
            f.runs_on(&pod, &target.name).await?;
            f.accounted(&target.name, &before, std::slice::from_ref(&pod)).await?;
        }
        Expect::CannotAlign => f.cannot_align(&pod).await?,
        Expect::InsufficientCpu => f.lacks(&pod, ResourceName::CPU).await?,
    }
    f.delete(&pod).await?;
    f.restored(&target.name, &before).await
}
