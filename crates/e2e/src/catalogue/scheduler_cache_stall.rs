//! Pods of others that come and go: they keep no pod of the scheduler under test waiting.
//!
//! The bound is the suite's patience. Others come and go before the payload and beside it.

use crate::amounts::Amounts;
use crate::controllers::Controller;
use crate::facts::DEFAULT_SCHEDULER;
use crate::fixture::Fixture;
use crate::need::Need::{Aligning, DefaultScheduler, Scheduler};
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};
use topology::resource::ResourceName;

/// Labels that all specs have.
const LABELS: &[&str] = &["cache", "stall", "feature:cache", "periodic_update", "openshift"];

/// How containers of others end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    InitAndApp,
    Init,
    OneOfTwo,
    OneOfTwoAgainAndAgain,
}

/// The quality of service of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Qos {
    /// With limits.
    Guaranteed(&'static str),
    /// Without.
    Burstable(&'static str),
    BestEffort,
}

pub(super) fn specs() -> Vec<Spec> {
    let ends = [
        ("83865", "whose containers all end", Ends::InitAndApp),
        ("83866", "whose init containers end", Ends::Init),
        ("83867", "of which one container ends", Ends::OneOfTwo),
        ("83868", "of which one container ends again and again", Ends::OneOfTwoAgainAndAgain),
    ];
    let ends = ends.into_iter().map(|(id, words, how)| {
        let title = format!("a burst of pods runs beside others {words}");
        Spec::new(id, 1, title, move |f| beside_ends(f, how)).labels(&["restartPolicy"])
    });
    let jobs = [
        ("85780", 1, "best-effort", "qos:be", Qos::BestEffort),
        ("85781", 0, "burstable", "qos:bu", Qos::Burstable("100m 256Mi")),
        ("85782", 1, "guaranteed", "qos:gu", Qos::Guaranteed("100m 256Mi")),
        ("85783", 0, "guaranteed and pinned", "qos:gu", Qos::Guaranteed("1 256Mi")),
    ];
    let jobs = jobs.into_iter().map(|(id, tier, word, label, job)| {
        let title = format!("pods of more than half a zone run beside jobs of {word} pods");
        Spec::new(id, tier, title, move |f| beside_jobs(f, job)).labels(&["job", "generic", label])
    });
    let bursts = [
        ("85784", "guaranteed", "qos:gu", Qos::Guaranteed("2 64Mi")),
        ("85785", "burstable", "qos:bu", Qos::Burstable("2 64Mi")),
    ];
    let bursts = bursts.into_iter().map(|(id, word, label, pods)| {
        let title = format!("a burst of {word} pods on all nodes runs beside jobs");
        Spec::new(id, 0, title, move |f| burst_beside_jobs(f, pods))
            .labels(&["job", "nodeAll", "podburst", label])
    });
    let all = ends.chain(jobs).chain(bursts);
    all.map(|spec| spec.labels(LABELS).needs([Scheduler, DefaultScheduler, Aligning(2)])).collect()
}

impl Ends {
    fn pod(self, plan: PodPlan, amounts: &Amounts) -> PodPlan {
        match self {
            Self::InitAndApp => plan.init(amounts).short(amounts).restart("Never"),
            Self::Init => plan.init(amounts).guaranteed(amounts).restart("Never"),
            Self::OneOfTwo => plan.short(amounts).guaranteed(amounts).restart("Never"),
            Self::OneOfTwoAgainAndAgain => plan.short(amounts).guaranteed(amounts),
        }
    }
}

impl Qos {
    fn pod(self, f: &Fixture, plan: PodPlan) -> Result<PodPlan> {
        Ok(match self {
            Self::Guaranteed(text) => plan.guaranteed(&f.amounts(text)?),
            Self::Burstable(text) => plan.burstable(&f.amounts(text)?),
            Self::BestEffort => plan.best_effort(),
        })
    }

    /// The same, ending after a second.
    fn short(self, f: &Fixture, plan: PodPlan) -> Result<PodPlan> {
        Ok(match self {
            Self::Guaranteed(text) => plan.short(&f.amounts(text)?),
            Self::Burstable(text) => plan.short(&f.amounts(text)?).without_limits(),
            Self::BestEffort => plan.short(&Amounts::default()),
        })
    }
}

/// Pods of two CPUs that take five eighths of the nodes.
fn burst_size(f: &Fixture) -> usize {
    let cpus = f.room().get(ResourceName::CPU) / ResourceName::CPU.base_units();
    let of_zone = usize::try_from(cpus / (2 * f.facts().scale().cpus)).unwrap_or_default();
    of_zone * 5 / 4 * f.nodes().len()
}

async fn burst(f: &Fixture, plan: PodPlan) -> Result {
    let count = burst_size(f);
    f.payload("p", &plan, count).await?;
    f.payload_runs("p", count).await.map(drop)
}

/// The burst begins once the others have their nodes, so that they end beside it.
async fn beside_ends(f: Fixture, how: Ends) -> Result {
    let plan = f.pod("foreign").scheduler(DEFAULT_SCHEDULER);
    let foreign = how.pod(plan, &f.amounts("1 64Mi")?);
    for pod in f.payload("foreign", &foreign, 2 * f.nodes().len()).await? {
        f.node_of(&pod).await?;
    }
    let plan = f.pod("p").guaranteed(&f.amounts("2 64Mi")?);
    burst(&f, plan).await
}

/// A job of the default scheduler: two pods on each node. Its pods have their nodes: of two schedulers that send pods
/// to a node in the same instant, neither can foresee the other.
async fn job(f: &Fixture, name: &str, qos: Qos) -> Result<Controller> {
    let plan = qos.short(f, f.pod(name).scheduler(DEFAULT_SCHEDULER))?;
    let job = f.spread_job(plan, 2 * f.nodes().len()).await?;
    for pod in job.pods().await? {
        f.node_of(&pod).await?;
    }
    Ok(job)
}

async fn beside_jobs(f: Fixture, qos: Qos) -> Result {
    job(&f, "before", qos).await?.finished().await?;
    let beside = job(&f, "beside", qos).await?;
    let count = f.nodes().iter().map(|node| node.topology.zones.len()).sum();
    f.payload("p", &f.pod("p").guaranteed(&f.share(3, 5)), count).await?;
    f.payload_runs("p", count).await?;
    beside.finished().await
}

async fn burst_beside_jobs(f: Fixture, qos: Qos) -> Result {
    job(&f, "before", Qos::Guaranteed("1 256Mi")).await?.finished().await?;
    let beside = job(&f, "beside", Qos::Guaranteed("1 256Mi")).await?;
    let plan = qos.pod(&f, f.pod("p"))?;
    burst(&f, plan).await?;
    beside.finished().await
}
