//! The stack as the operator installs it, removes it and makes it anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use api::nrt::NodeResourceTopology;
use api::numaresources::LogLevel;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::facts::CONTROL_PLANE;
use crate::fixture::{Fixture, gone_already};
use crate::installation::owned;
use crate::need::Need::{Operator, SchedulerObject};
use crate::operator::{AVAILABLE, DEGRADED, Wanted, node_of, of_set};
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The kind of definitions.
const DEFINITION: (&str, &str, &str) =
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
/// The owner of an operator that OLM has installed.
const OLM: &str = "ClusterServiceVersion";
/// The definitions that the stack needs.
const DEFINITIONS: [&str; 2] =
    ["noderesourcetopologies.topology.node.k8s.io", "numaresourcesoperators.nodetopology.openshift.io"];

pub(super) fn specs() -> Vec<Spec> {
    vec![
        Spec::new(
            "47574",
            0,
            "the operator's exporters are complete, and report about their nodes",
            exporters,
        )
        .needs([Operator]),
        Spec::new(
            "48598",
            2,
            "the operator's schedulers are complete, as many as there should be, and bind pods",
            schedulers,
        )
        .needs([SchedulerObject]),
        Spec::new(
            "install/image",
            1,
            "an image of the user's own is refused, and the exporters stay",
            own_image,
        )
        .labels(&["disruptive"])
        .needs([Operator]),
        Spec::new(
            "install/operator",
            2,
            "all that belongs to exporters goes with their object, and comes again",
            |f| made_anew(f, Part::Operator),
        )
        .labels(&["disruptive", "slow"])
        .needs([Operator]),
        Spec::new(
            "install/scheduler",
            2,
            "all that belongs to schedulers goes with their object, and comes again",
            |f| made_anew(f, Part::Scheduler),
        )
        .labels(&["disruptive"])
        .needs([SchedulerObject]),
        Spec::new("install/log-level", 2, "the log level of the object is that of every exporter", log_level)
            .labels(&["disruptive"])
            .needs([Operator]),
        Spec::new(
            "47587",
            1,
            "an image of the user's own runs where the operator is told to allow it",
            |f| image_runs(f, Part::Operator),
        )
        .labels(&["disruptive"])
        .needs([Operator]),
    ]
}

/// The object that is removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Operator,
    Scheduler,
}

async fn exporters(f: Fixture) -> Result {
    let nro = f.nro()?;
    f.condition(&nro, AVAILABLE).await?;
    for name in DEFINITIONS {
        let definition = Target::new(DEFINITION, "", name);
        f.condition(&definition, Wanted { kind: "Established", status: "True", ..Wanted::default() }).await?;
    }
    for set in f.exporter_sets().await? {
        let count = f.complete(&set).await?;
        let nodes = f.nodes_of(&set);
        ensure!(i64::try_from(nodes.len()) == Ok(count), "{count} exporters are on {} nodes", nodes.len());
        f.on_nodes(&set, &nodes, |_| true).await?;
        f.until("each exporter reports about its node", |state| {
            let silent = nodes.iter().find(|node| !state.reports.contains_key(*node));
            silent.map_or(Ok(()), |node| Err(format!("node {node} has no report")))
        })
        .await?;
        let state = f.cluster().observer.now();
        for (node, report) in state.reports.iter().filter(|(node, _)| nodes.contains(*node)) {
            let zones = &report.zones;
            let lacking = zones.iter().find(|zone| zone.costs.len() != zones.len());
            let name = lacking.map(|zone| &zone.name);
            ensure!(name.is_none(), "node {node}: zone {name:?} does not have its distance to each zone");
        }
    }
    Ok(())
}

async fn schedulers(f: Fixture) -> Result {
    let nrs = f.nrs()?;
    let wanted =
        [("Available", "True"), ("Upgradeable", "True"), ("Degraded", "False"), ("Progressing", "False")];
    for (kind, status) in wanted {
        f.condition(&nrs, Wanted { kind, status, ..Wanted::default() }).await?;
    }
    let deployment = f.scheduler_deployment().await?;
    let pods = f.pods_of(&deployment).await?;
    let asked = f.read(&nrs).await?["spec"]["replicas"].as_i64();
    let wanted = asked.unwrap_or(usual_replicas(&f));
    ensure!(i64::try_from(pods.len()) == Ok(wanted), "{} schedulers run, not {wanted}", pods.len());
    ensure!(wanted == 0 || f.facts().scheduler.is_some(), "the schedulers have not bound a pod of the suite");
    let state = f.cluster().observer.now();
    let is_there = |pod: &Arc<Pod>| state.nodes.get(node_of(pod)).is_some_and(|node| is_control_plane(node));
    if state.nodes.values().any(|node| is_control_plane(node)) {
        let elsewhere = pods.iter().find(|pod| !is_there(pod));
        let node = elsewhere.map(|pod| node_of(pod));
        ensure!(node.is_none(), "a scheduler is on node {node:?}, which is not of the control plane");
    }
    Ok(())
}

/// Whether a node runs the cluster's own programs.
pub(super) fn is_control_plane(node: &Node) -> bool {
    node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(CONTROL_PLANE))
}

/// The number of nodes that schedulers are for: those of the control plane, else all.
pub(super) fn nodes_for_schedulers(f: &Fixture) -> usize {
    let state = f.cluster().observer.now();
    match state.nodes.values().filter(|node| is_control_plane(node)).count() {
        0 => state.nodes.len(),
        count => count,
    }
}

/// The number of schedulers where the object states none.
pub(super) fn usual_replicas(f: &Fixture) -> i64 {
    if nodes_for_schedulers(f) >= 3 { 3 } else { 1 }
}

/// Skips the spec where the operator's environment has this value.
pub(super) async fn unless(f: &Fixture, variable: &str, value: &str) -> Result {
    let manager = f.manager().await?;
    let object = f.read(&manager).await?;
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let mut variables = containers.iter().flat_map(|one| one["env"].as_array().into_iter().flatten());
    if variables.any(|one| one["name"] == variable && one["value"] == value) {
        return Err(Skip(format!("an operator without {variable}={value}")).into());
    }
    Ok(())
}

/// Sets a variable of the operator's environment until the end of the spec, and waits for the operator that has it.
async fn with_variable(f: &Fixture, variable: &str, value: &str) -> Result {
    let manager = f.manager().await?;
    let object = f.read(&manager).await?;
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    if owners.into_iter().any(|owner| owner["kind"] == OLM) {
        return Err(Skip(format!("an operator whose environment no {OLM} keeps as it is")).into());
    }
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let at = containers.iter().position(|one| one["name"] == "manager").unwrap_or(0);
    let env = containers.get(at).and_then(|one| one["env"].as_array().cloned()).unwrap_or_default();
    let mut env: Vec<Value> = env.into_iter().filter(|one| one["name"] != variable).collect();
    env.push(json!({ "name": variable, "value": value }));
    f.set(&manager, &format!("/spec/template/spec/containers/{at}/env"), Some(env.into())).await?;
    f.pods_of(&manager).await?;
    Ok(())
}

/// The operator is told to allow any image; the pods get another reference of theirs, and run with it.
pub(super) async fn image_runs(f: Fixture, of: Part) -> Result {
    let image = f.cluster().settings.other_image.clone();
    let image = image.ok_or_else(|| Skip("another image of the stack (--other-image)".to_owned()))?;
    let (target, variable) = match of {
        Part::Operator => (f.nro()?, "EXPORTER_IMAGE_RESTRICTION"),
        Part::Scheduler => (f.nrs()?, "SCHEDULER_IMAGE_VALIDATION"),
    };
    let workloads = workloads(&f, of).await?;
    with_variable(&f, variable, "false").await?;
    let mark = f.changes().mark().await;
    f.set(&target, "/spec/imageSpec", Some(image.clone().into())).await?;
    let what = format!("{} {} takes the image, or objects to it", target.kind, target.name);
    let objection = f
        .rolled(&target, &what, |object| match (AVAILABLE.of(object), DEGRADED.of(object)) {
            (Ok(_), _) => Ok(None),
            (_, Ok(message)) => Ok(Some(message)),
            (Err(reason), _) => Err(reason),
        })
        .await?;
    // An operator may lack the rights that it would have to grant.
    if let Some(message) = objection {
        return Err(Skip(format!("an operator that may run image {image}: {message}")).into());
    }
    for workload in &workloads {
        has_image(&f, workload, &image, true).await?;
        f.complete(workload).await?;
    }
    f.condition(&target, AVAILABLE).await?;
    if of == Part::Scheduler {
        let pod = f.create(f.pod("p").best_effort()).await?;
        f.running(&pod).await?;
        return f.scheduled(&pod).await;
    }
    f.changes().back_to(mark).await?;
    for workload in &workloads {
        has_image(&f, workload, &image, false).await?;
        end_at_once(&f, workload).await?;
    }
    // The fixture waits at the end until the exporters' reports are as before.
    Ok(())
}

/// Waits until the pods of a workload are to have an image, or are no longer to have it.
async fn has_image(f: &Fixture, workload: &Target, image: &str, wanted: bool) -> Result {
    let what = if wanted { "has" } else { "no longer has" };
    f.rolled(workload, &format!("{} {} {what} image {image}", workload.kind, workload.name), |object| {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
        let images: Vec<&Value> = containers.map(|one| &one["image"]).collect();
        let is_so = images.iter().any(|now| **now == *image) == wanted;
        if is_so { Ok(()) } else { Err(format!("it has {images:?}")) }
    })
    .await
}

/// Deletes the exporters of a DaemonSet. The Go exporter's second container is a shell that hears no signal, so a
/// rollout would take half a minute for each node.
async fn end_at_once(f: &Fixture, set: &Target) -> Result {
    let state = f.cluster().observer.now();
    let pods = Api::<Pod>::namespaced(f.cluster().client.clone(), &set.namespace);
    for pod in of_set(&state, set) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        gone_already(pods.delete(name, &DeleteParams::default().grace_period(1)).await)?;
    }
    Ok(())
}

/// Removes the NUMAResourcesOperator until the end of the spec, with all exporters and their reports; the nodes that
/// had them.
pub(super) async fn remove_exporters(f: &Fixture) -> Result<BTreeSet<String>> {
    let nro = f.nro()?;
    let sets = f.exporter_sets().await?;
    let mut nodes = BTreeSet::new();
    for set in &sets {
        f.complete(set).await?;
        nodes.extend(f.nodes_of(set));
    }
    let uid = f.uid(&nro).await?;
    let namespace = sets.first().map(|set| set.namespace.clone()).unwrap_or_default();
    let owned = owned(f.cluster(), &uid, &namespace).await?;
    f.changes().delete(&nro).await?;
    for (object, uid) in owned.values() {
        f.gone(object, uid).await?;
    }
    f.until("no exporter is left", |state| {
        let left = sets.iter().find(|set| !of_set(state, set).is_empty());
        left.map_or(Ok(()), |set| Err(format!("DaemonSet {} has pods", set.name)))
    })
    .await?;
    // Reports that belong to their nodes stay.
    let reports = Api::<NodeResourceTopology>::all(f.cluster().client.clone());
    for node in &nodes {
        gone_already(reports.delete(node, &DeleteParams::default()).await)?;
    }
    f.until("no report is left", |state| {
        let left = nodes.iter().find(|node| state.reports.contains_key(*node));
        left.map_or(Ok(()), |node| Err(format!("node {node} has one")))
    })
    .await?;
    Ok(nodes)
}

async fn own_image(f: Fixture) -> Result {
    unless(&f, "EXPORTER_IMAGE_RESTRICTION", "false").await?;
    let sets = f.exporter_sets().await?;
    let mut before = Vec::new();
    for set in &sets {
        before.push(f.read(set).await?["spec"]["template"].clone());
    }
    let image = "registry.invalid/e2e/exporter:none";
    let said = f.objection(&f.nro()?, "/spec/imageSpec", image.into()).await?;
    ensure!(said.reason.as_deref() == Some("CustomUserImage"), "the objection is {said:?}");
    for (set, before) in sets.iter().zip(before) {
        ensure!(f.read(set).await?["spec"]["template"] == before, "DaemonSet {} was changed", set.name);
        f.complete(set).await?;
    }
    Ok(())
}

async fn made_anew(f: Fixture, part: Part) -> Result {
    let target = match part {
        Part::Operator => f.nro()?,
        Part::Scheduler => f.nrs()?,
    };
    f.condition(&target, AVAILABLE).await?;
    let workloads = workloads(&f, part).await?;
    let namespace = workloads.first().context("it has no workload")?.namespace.clone();
    let uid = f.uid(&target).await?;
    let before = owned(f.cluster(), &uid, &namespace).await?;
    ensure!(!before.is_empty(), "{} controls nothing", target.kind);
    let mark = f.changes().mark().await;
    f.changes().delete(&target).await?;
    f.gone(&target, &uid).await?;
    for (object, uid) in before.values() {
        f.gone(object, uid).await?;
    }
    f.changes().back_to(mark).await?;
    f.condition(&target, AVAILABLE).await?;
    for workload in &workloads {
        f.complete(workload).await?;
    }
    let after = owned(f.cluster(), &f.uid(&target).await?, &namespace).await?;
    let missing = before.keys().find(|name| !after.contains_key(*name));
    ensure!(missing.is_none(), "{missing:?} did not come again");
    let further = after.keys().find(|name| !before.contains_key(*name));
    ensure!(further.is_none(), "{further:?} was not there before");
    Ok(())
}

async fn workloads(f: &Fixture, of: Part) -> Result<Vec<Target>> {
    match of {
        Part::Operator => f.exporter_sets().await,
        Part::Scheduler => Ok(vec![f.scheduler_deployment().await?]),
    }
}

/// Another log level than an object has.
pub(super) fn other_level(object: &Value) -> LogLevel {
    let now: LogLevel = serde_json::from_value(object["spec"]["logLevel"].clone()).unwrap_or_default();
    if now == LogLevel::Trace { LogLevel::Debug } else { LogLevel::Trace }
}

async fn log_level(f: Fixture) -> Result {
    let nro = f.nro()?;
    let level = other_level(&f.read(&nro).await?);
    f.set(&nro, "/spec/logLevel", Some(serde_json::to_value(level)?)).await?;
    let flag = format!("-v={}", level.verbosity());
    for set in f.exporter_sets().await? {
        f.rolled(&set, &format!("the exporters have {flag}"), |object| {
            let containers = &object["spec"]["template"]["spec"]["containers"];
            let args = |one: &Value| one["args"].as_array().cloned().unwrap_or_default();
            let mut args = containers.as_array().into_iter().flatten().flat_map(args);
            if args.any(|arg| arg == *flag) { Ok(()) } else { Err("they have not".to_owned()) }
        })
        .await?;
        f.complete(&set).await?;
    }
    f.condition(&nro, AVAILABLE).await?;
    Ok(())
}
