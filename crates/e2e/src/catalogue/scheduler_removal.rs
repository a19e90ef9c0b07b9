//! A cluster whose NUMAResourcesScheduler is deleted, and made anew.

use anyhow::ensure;

use crate::controllers::Controller;
use crate::fixture::{Fixture, PodRef};
use crate::need::Need::{Aligning, DefaultScheduler, Scheduler, SchedulerObject};
use crate::operator::selected;
use crate::placement;
use crate::spec::{Result, Spec};

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("47593", 1, "pods go on running without the scheduler that has sent them", pods_go_on),
        Spec::new("49093", 1, "pods wait while their scheduler is not there", pods_wait)
            .labels(&["unsched"])
            .needs([DefaultScheduler]),
        Spec::new("48069", 2, "pods that wait run once their scheduler is made anew", pods_go_at_last)
            .needs([DefaultScheduler]),
    ];
    let all = specs.into_iter();
    all.map(|spec| spec.labels(&["disruptive", "scheduler"]).needs([Scheduler, SchedulerObject, Aligning(1)]))
        .collect()
}

/// Deletes the NUMAResourcesScheduler until the end of the spec, and waits until none of its schedulers is left.
pub(super) async fn remove(f: &Fixture) -> Result {
    let (nrs, deployment) = (f.nrs()?, f.scheduler_deployment().await?);
    let object = f.read(&deployment).await?;
    let uid = f.uid(&deployment).await?;
    f.changes().delete(&nrs).await?;
    f.gone(&deployment, &uid).await?;
    // A scheduler on its way out may still send pods.
    f.until("the scheduler's pods are gone", |state| {
        let left = selected(state, &deployment.namespace, &object).into_iter().next();
        left.map_or(Ok(()), |pod| Err(format!("pod {:?} is there", pod.metadata.name)))
    })
    .await
}

/// A deployment of one small pod.
async fn deploy(f: &Fixture) -> Result<Controller> {
    let plan = f.pod("p").guaranteed(&f.amounts("1 100Mi")?);
    f.deployment(plan, 1).await
}

async fn pods_go_on(f: Fixture) -> Result {
    let deployment = deploy(&f).await?;
    let before = deployment.running(1).await?;
    for pod in &before {
        f.scheduled(pod).await?;
    }
    remove(&f).await?;
    let now = deployment.running(1).await?;
    ensure!(now == before, "the pods were replaced");
    Ok(())
}

/// Makes a deployment that no scheduler looks at. The default scheduler has sent a later pod, so there was time.
async fn waiting(f: &Fixture) -> Result<(Controller, Vec<PodRef>)> {
    remove(f).await?;
    let deployment = deploy(f).await?;
    let pods = deployment.pods().await?;
    let later = f.create(f.pod("later").best_effort().scheduler("default-scheduler")).await?;
    f.running(&later).await?;
    let state = f.cluster().observer.now();
    for pod in &pods {
        let found = pod.find(&state);
        let node = found.and_then(|found| found.spec.as_ref()?.node_name.clone());
        ensure!(node.is_none(), "pod {} was sent to node {node:?}", pod.name);
        let is_seen = found.is_some_and(|found| placement::is_unschedulable(found));
        ensure!(!is_seen, "a scheduler has looked at pod {}", pod.name);
    }
    Ok((deployment, pods))
}

async fn pods_wait(f: Fixture) -> Result {
    waiting(&f).await.map(drop)
}

async fn pods_go_at_last(f: Fixture) -> Result {
    let mark = f.changes().mark().await;
    let (deployment, pods) = waiting(&f).await?;
    f.changes().back_to(mark).await?;
    let running = deployment.running(1).await?;
    ensure!(running == pods, "the pods were replaced");
    for pod in &running {
        f.scheduled(pod).await?;
    }
    Ok(())
}
