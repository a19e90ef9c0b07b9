//! The NUMAResourcesScheduler: its Deployment follows it, and what others change of its objects is put back.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use api::goduration::GoDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ApiResource, DeleteParams};
use runtime::yaml::{Mode, read_str};
use serde_json::{Value, json};

use super::configuration::config_maps;
use super::install::{Part, image_runs, is_control_plane, nodes_for_schedulers, unless, usual_replicas};
use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Scheduler, SchedulerObject};
use crate::operator::{AVAILABLE, node_of, selected, uids};
use crate::placement::is_unschedulable;
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The field with the number of schedulers.
const REPLICAS: &str = "/spec/replicas";
/// The most schedulers that a spec makes.
const MOST: usize = 9;

pub(super) fn specs() -> Vec<Spec> {
    let images = [
        ("sched/image-by-tag", "tag", "registry.invalid/e2e/scheduler:none".to_owned()),
        (
            "sched/image-by-digest",
            "unknown digest",
            format!("registry.invalid/e2e/scheduler@sha256:{}", "0".repeat(64)),
        ),
    ];
    let images = images.into_iter().map(|(id, by, image)| {
        let title = format!("a scheduler's image by {by} is refused, and the scheduler stays");
        Spec::new(id, 2, title, move |f| refused_image(f, image.clone())).labels(&["images"])
    });
    let specs = [
        Spec::new("sched/owned", 2, "what others change of the scheduler's objects is put back", put_back),
        Spec::new(
            "sched/resync",
            2,
            "the period of comparisons reaches status, configuration and schedulers",
            resync,
        ),
        Spec::new("sched/spread", 2, "as many schedulers as usual run, each on a node of its own", spread),
        Spec::new(
            "sched/same",
            2,
            "the usual number of schedulers, stated, changes nothing",
            stated_as_usual,
        ),
        Spec::new(
            "sched/none",
            2,
            "no scheduler runs where none is asked for, and the usual number comes back",
            none,
        ),
        Spec::new("sched/one", 2, "one scheduler runs where one is asked for", one),
        Spec::new("sched/cordon", 3, "a scheduler waits for a node of its own", waits_for_node),
        Spec::new("sched/image", 2, "another image of the scheduler is rolled out", |f| {
            image_runs(f, Part::Scheduler)
        })
        .needs([Scheduler, Aligning(1)]),
    ];
    specs
        .into_iter()
        .chain(images)
        .map(|spec| spec.labels(&["disruptive"]).needs([SchedulerObject]))
        .collect()
}

/// The ConfigMap with the schedulers' configuration: its key and text.
async fn configuration(f: &Fixture, deployment: &Target) -> Result<(Target, String, String)> {
    let object = f.read(deployment).await?;
    let name = config_maps(&object).next().context("the schedulers mount no ConfigMap")?.to_owned();
    let target = Target::of(&ApiResource::erase::<ConfigMap>(&()), &deployment.namespace, &name);
    let object = f.read(&target).await?;
    let data = object["data"].as_object().and_then(|data| data.iter().next());
    let (key, text) = data.with_context(|| format!("ConfigMap {name} is empty"))?;
    let text = text.as_str().unwrap_or_default().to_owned();
    Ok((target, key.clone(), text))
}

async fn put_back(f: Fixture) -> Result {
    let deployment = f.scheduler_deployment().await?;
    let (map, key, text) = configuration(&f, &deployment).await?;
    let pointer = format!("/data/{}", key.replace('~', "~0").replace('/', "~1"));
    let template = "/spec/template/spec";
    let before = f.read(&deployment).await?.pointer(template).cloned().unwrap_or_default();
    let container = before["containers"][0].clone();
    let mut two = before["containers"].clone();
    if let Some(all) = two.as_array_mut() {
        all.push(json!({ "name": "another", "image": container["image"], "command": container["command"] }));
    }
    let changes = [
        (&map, pointer, Value::from(format!("{text}\n# changed\n")), Value::from(text)),
        (&deployment, format!("{template}/hostname"), "changed".into(), before["hostname"].clone()),
        (&deployment, format!("{template}/containers"), two, before["containers"].clone()),
    ];
    for (target, pointer, changed, wanted) in changes {
        f.set(target, &pointer, Some(changed)).await?;
        f.rolled(target, &format!("{} {} is put back", target.kind, target.name), |object| {
            let now = object.pointer(&pointer).cloned().unwrap_or_default();
            if now == wanted { Ok(()) } else { Err(format!("{pointer} is changed")) }
        })
        .await?;
    }
    f.complete(&deployment).await?;
    Ok(())
}

async fn resync(f: Fixture) -> Result {
    let (nrs, deployment) = (f.nrs()?, f.scheduler_deployment().await?);
    let before = uids(&f.pods_of(&deployment).await?);
    let period = |object: &Value| {
        let text = object["status"]["cacheResyncPeriod"].as_str().unwrap_or("0s").to_owned();
        GoDuration::parse(&text).map_err(|error| error.to_string())
    };
    let now = period(&f.read(&nrs).await?).map_err(anyhow::Error::msg)?;
    let wanted = if now.0 > 0 { GoDuration(now.0.saturating_mul(2)) } else { GoDuration::from_secs(300) };
    f.set(&nrs, "/spec/cacheResyncPeriod", Some(wanted.to_string().into())).await?;
    f.rolled(&nrs, &format!("the status has the period {wanted}"), |object| {
        AVAILABLE.of(object)?;
        let now = period(object)?;
        if now == wanted { Ok(()) } else { Err(format!("it has {now}")) }
    })
    .await?;
    let (_, key, text) = configuration(&f, &deployment).await?;
    let file: Value = read_str(&key, &text, Mode::Lenient)?;
    let name = f.read(&nrs).await?["status"]["schedulerName"].clone();
    let profiles = file["profiles"].as_array().cloned().unwrap_or_default();
    let own = profiles.iter().find(|profile| profile["schedulerName"] == name);
    let own = own.with_context(|| format!("the configuration has no profile {name}"))?;
    let plugins = own["pluginConfig"].as_array().into_iter().flatten();
    let seconds: Vec<i64> =
        plugins.filter_map(|plugin| plugin["args"]["cacheResyncPeriodSeconds"].as_i64()).collect();
    ensure!(seconds == [wanted.0 / 1_000_000_000], "the configuration has {seconds:?} s, not {wanted}");
    let after = uids(&f.pods_of(&deployment).await?);
    ensure!(after.is_disjoint(&before), "a scheduler was not replaced");
    Ok(())
}

/// Asks for so many schedulers, and waits until they run; `None`: the usual number.
async fn replicas(f: &Fixture, count: Option<i64>) -> Result<(Target, Vec<Arc<Pod>>)> {
    let nrs = f.nrs()?;
    f.set(&nrs, REPLICAS, count.map(Value::from)).await?;
    let deployment = f.scheduler_deployment().await?;
    let wanted = count.unwrap_or(usual_replicas(f));
    f.rolled(&deployment, &format!("the Deployment wants {wanted} schedulers"), |object| {
        let now = &object["spec"]["replicas"];
        if *now == wanted { Ok(()) } else { Err(format!("it wants {now}")) }
    })
    .await?;
    f.condition(&nrs, AVAILABLE).await?;
    let pods = f.pods_of(&deployment).await?;
    Ok((deployment, pods))
}

async fn spread(f: Fixture) -> Result {
    let (deployment, pods) = replicas(&f, None).await?;
    let object = f.read(&deployment).await?;
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    let wanted = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["pod-template-hash"], "labelSelector": { "matchLabels": labels },
    }]);
    let now = &object["spec"]["template"]["spec"]["topologySpreadConstraints"];
    ensure!(*now == wanted, "the constraints are {now}");
    let nodes: BTreeSet<&str> = pods.iter().map(|pod| node_of(pod)).collect();
    ensure!(nodes.len() == pods.len(), "{} schedulers are on {} nodes", pods.len(), nodes.len());
    Ok(())
}

async fn stated_as_usual(f: Fixture) -> Result {
    let (deployment, before) = replicas(&f, None).await?;
    let generation = f.read(&deployment).await?["metadata"]["generation"].clone();
    let (_, after) = replicas(&f, Some(usual_replicas(&f))).await?;
    let now = f.read(&deployment).await?["metadata"]["generation"].clone();
    ensure!(now == generation, "the Deployment was changed: generation {now}, not {generation}");
    ensure!(uids(&after) == uids(&before), "a scheduler was replaced");
    Ok(())
}

async fn none(f: Fixture) -> Result {
    let (deployment, pods) = replicas(&f, Some(0)).await?;
    ensure!(pods.is_empty(), "{} schedulers run", pods.len());
    let object = f.read(&deployment).await?;
    f.until("no scheduler is left", |state| match selected(state, &deployment.namespace, &object).len() {
        0 => Ok(()),
        left => Err(format!("there are {left}")),
    })
    .await?;
    let (_, pods) = replicas(&f, None).await?;
    ensure!(i64::try_from(pods.len()) == Ok(usual_replicas(&f)), "{} schedulers run", pods.len());
    Ok(())
}

async fn one(f: Fixture) -> Result {
    let (_, pods) = replicas(&f, Some(1)).await?;
    ensure!(pods.len() == 1, "{} schedulers run", pods.len());
    let (_, pods) = replicas(&f, None).await?;
    ensure!(i64::try_from(pods.len()) == Ok(usual_replicas(&f)), "{} schedulers run", pods.len());
    Ok(())
}

/// As many schedulers as nodes: one that goes from a cordoned node has no other to go to.
async fn waits_for_node(f: Fixture) -> Result {
    let count = nodes_for_schedulers(&f);
    let state = f.cluster().observer.now();
    let has_control_plane = state.nodes.values().any(|node| is_control_plane(node));
    let is_usable = has_control_plane || f.facts().nodes.len() == count;
    if !(2..=MOST).contains(&count) || !is_usable {
        return Err(Skip(format!("two to {MOST} nodes for schedulers, all of which take pods")).into());
    }
    let (deployment, pods) = replicas(&f, Some(i64::try_from(count)?)).await?;
    let object = f.read(&deployment).await?;
    let leaving = pods.first().context("there is no scheduler")?;
    let mark = f.changes().mark().await;
    f.set(&Target::node(node_of(leaving)), "/spec/unschedulable", Some(true.into())).await?;
    let api = Api::<Pod>::namespaced(f.cluster().client.clone(), &deployment.namespace);
    api.delete(leaving.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default()).await?;
    // That it waits for this node alone: each other node has a scheduler, and this one is enough at the end.
    f.until("a scheduler waits for the cordoned node", |state| {
        let pods = selected(state, &deployment.namespace, &object);
        let others: BTreeSet<&str> =
            pods.iter().map(|pod| node_of(pod)).filter(|node| !node.is_empty()).collect();
        let waiting = pods.iter().filter(|pod| is_unschedulable(pod)).count();
        match (waiting, others.len(), others.contains(node_of(leaving))) {
            (1, there, false) if there == count - 1 => Ok(()),
            (waiting, there, _) => Err(format!("{waiting} wait, the others are on {there} nodes")),
        }
    })
    .await?;
    f.changes().back_to(mark).await?;
    let pods = f.pods_of(&deployment).await?;
    ensure!(pods.len() == count, "{} schedulers run", pods.len());
    Ok(())
}

async fn refused_image(f: Fixture, image: String) -> Result {
    unless(&f, "SCHEDULER_IMAGE_VALIDATION", "false").await?;
    let deployment = f.scheduler_deployment().await?;
    let before = f.read(&deployment).await?["spec"]["template"].clone();
    let said = f.objection(&f.nrs()?, "/spec/imageSpec", image.into()).await?;
    ensure!(said.reason.as_deref() == Some("InvalidSchedulerImage"), "the objection is {said:?}");
    ensure!(f.read(&deployment).await?["spec"]["template"] == before, "the Deployment was changed");
    f.complete(&deployment).await?;
    Ok(())
}
