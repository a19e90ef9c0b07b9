//! Node groups of the operator on OpenShift, where a MachineConfigPool says which nodes a group has.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use api::numaresources::keys::{CUSTOM, LABEL_OPERATOR, SELINUX_POLICY};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::install::other_level;
use crate::fixture::Fixture;
use crate::machines::{self, MASTER, WORKER};
use crate::need::Need::{self, Aligning, Masters, Movable, Operator};
use crate::object::value;
use crate::operator::{AVAILABLE, DEGRADED, GROUPS, of_set};
use crate::platform::{self, Platform};
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The pool of these specs.
const POOL: &str = "e2e-group";
/// A KubeletConfig's pool that does not exist.
const NO_POOL: &str = "e2e-none";

pub(super) fn specs() -> Vec<Spec> {
    let openshift = [Need::Platform(Platform::OpenShift), Operator];
    let of_objects = [
        Spec::new(
            "47674",
            2,
            "a group for an empty pool has a DaemonSet of its own, and all follow the log level",
            a_group_more,
        )
        .labels(&["images"]),
        Spec::new(
            "config-selinux",
            2,
            "groups with and without a SELinux policy of their own are side by side",
            mixed_policies,
        ),
        Spec::new(
            "84310",
            1,
            "a KubeletConfig for a pool that does not exist changes no exporter",
            foreign_config,
        )
        .labels(&["slow"]),
        Spec::new(
            "84312/pool",
            1,
            "a group by the name of its pool is added, changed and removed again",
            by_name,
        )
        .labels(&["ngpoolname"]),
    ];
    let of_objects =
        of_objects.into_iter().map(|spec| spec.labels(&["disruptive", "openshift"]).needs(openshift));
    let of_masters = [
        Spec::new(
            "83869",
            2,
            "masters that take pods have exporters beside a pool of some workers",
            masters_and_workers,
        )
        .needs([Movable, Aligning(1)]),
        Spec::new("83870", 2, "a node in the pools of two groups has one exporter", compact)
            .labels(&["compact"]),
    ];
    let of_masters = of_masters.into_iter().map(|spec| {
        let labels = ["disruptive", "openshift", "mno-masters-schedulable"];
        spec.labels(&labels).needs(openshift).needs([Masters])
    });
    of_objects.chain(of_masters).chain(names()).collect()
}

/// Specs about names of pools, which HyperShift has nothing else than.
fn names() -> Vec<Spec> {
    let labels = ["disruptive", "hypershift", "ngpoolname"];
    let duplicate = |f| refused(f, &["e2e", "e2e"], r#"the pool name "e2e" has duplicates"#);
    let empty = |f| refused(f, &["e2e", ""], "pool name for pool #1 cannot be empty");
    vec![
        Spec::new("80823/duplicate", 2, "two groups with the same pool are refused", duplicate)
            .labels(&labels)
            .needs([Operator]),
        Spec::new("80823/empty", 2, "a group with an empty name of its pool is refused", empty)
            .labels(&labels)
            .needs([Operator]),
        Spec::new("80912", 2, "a selector of MachineConfigPools is refused on HyperShift", no_selectors)
            .labels(&labels)
            .needs([Need::Platform(Platform::HyperShift), Operator]),
    ]
}

/// The groups that the operator has, and one more.
pub(super) async fn with_group(f: &Fixture, group: Value) -> Result<Vec<Value>> {
    let mut groups = groups(&f.read(&f.nro()?).await?);
    groups.push(group);
    Ok(groups)
}

fn groups(nro: &Value) -> Vec<Value> {
    nro.pointer(GROUPS).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The exporters' DaemonSet of a pool.
pub(super) async fn set_of(f: &Fixture, pool: &str) -> Result<Target> {
    let name = format!("{}-{pool}", f.nro()?.name);
    let found = f.exporter_sets().await?.into_iter().find(|set| set.name == name);
    found.with_context(|| format!("the NUMAResourcesOperator names no DaemonSet {name}"))
}

async fn a_group_more(f: Fixture) -> Result {
    let nro = f.nro()?;
    f.make_pool(POOL).await?;
    let groups = with_group(&f, json!({ "poolName": POOL })).await?;
    let level = other_level(&f.read(&nro).await?);
    let verbosity = format!("-v={}", level.verbosity());
    f.set(&nro, GROUPS, Some(json!(groups))).await?;
    f.set(&nro, "/spec/logLevel", Some(json!(level))).await?;
    f.condition(&nro, AVAILABLE).await?;
    let sets = f.exporter_sets().await?;
    ensure!(sets.len() == groups.len(), "{} groups have {} DaemonSets", groups.len(), sets.len());
    for set in &sets {
        let what = format!("DaemonSet {} has the flag {verbosity}", set.name);
        f.until_object(set, &what, |found| {
            let set = value(found.ok_or("it is not there")?);
            let flags = set["spec"]["template"]["spec"]["containers"][0]["args"].clone();
            let is_there = flags.as_array().is_some_and(|flags| flags.contains(&json!(verbosity)));
            if is_there { Ok(()) } else { Err(format!("it has {flags}")) }
        })
        .await?;
    }
    let set = f.read(&set_of(&f, POOL).await?).await?;
    let selector = &set["spec"]["template"]["spec"]["nodeSelector"];
    ensure!(
        selector[machines::role(POOL)] == "",
        "the DaemonSet of the new pool has the selector {selector}"
    );
    Ok(())
}

async fn mixed_policies(f: Fixture) -> Result {
    let nro = f.nro()?;
    f.make_pool(POOL).await?;
    let groups =
        with_group(&f, json!({ "poolName": POOL, "annotations": { SELINUX_POLICY: CUSTOM } })).await?;
    let own = machines::target("MachineConfig", "machineconfigs", &format!("51-{}-{POOL}", nro.name));
    f.set(&nro, GROUPS, Some(json!(groups))).await?;
    f.condition(&nro, AVAILABLE).await?;
    let sets = f.exporter_sets().await?;
    ensure!(sets.len() == groups.len(), "{} groups have {} DaemonSets", groups.len(), sets.len());
    f.read(&own).await?;
    let mut kinds = BTreeSet::new();
    for set in &sets {
        let set = f.read(set).await?;
        let context = &set["spec"]["template"]["spec"]["containers"][0]["securityContext"];
        kinds.insert(context["seLinuxOptions"]["type"].as_str().unwrap_or_default().to_owned());
    }
    ensure!(
        kinds.len() == 2,
        "with and without a policy of their own exporters have the SELinux types {kinds:?}"
    );
    Ok(())
}

/// Name and version of the exporters' configurations.
async fn configurations(f: &Fixture) -> Result<BTreeMap<String, Option<String>>> {
    let set = f.exporter_sets().await?.into_iter().next().context("there are no exporters")?;
    let maps = Api::<ConfigMap>::namespaced(f.cluster().client.clone(), &set.namespace);
    let listed = maps.list(&ListParams::default().labels(LABEL_OPERATOR)).await?;
    let named = |map: ConfigMap| (map.metadata.name.unwrap_or_default(), map.metadata.resource_version);
    Ok(listed.into_iter().map(named).collect())
}

/// The operator has seen the KubeletConfig when it has followed a change of later.
async fn foreign_config(f: Fixture) -> Result {
    let nro = f.nro()?;
    f.condition(&nro, AVAILABLE).await?;
    let before = configurations(&f).await?;
    ensure!(!before.is_empty(), "the exporters have no configuration with the label {LABEL_OPERATOR}");
    f.make_kubelet_config("e2e-foreign", NO_POOL, json!({ "autoSizingReserved": true })).await?;
    let level = f.read(&nro).await?["spec"]["logLevel"].clone();
    let level = if level == "Debug" { "Trace" } else { "Debug" };
    f.set(&nro, "/spec/logLevel", Some(json!(level))).await?;
    f.condition(&nro, AVAILABLE).await?;
    for set in f.exporter_sets().await? {
        f.complete(&set).await?;
    }
    let now = configurations(&f).await?;
    ensure!(now == before, "the exporters' configurations are {now:?}, before {before:?}");
    Ok(())
}

async fn by_name(f: Fixture) -> Result {
    let nro = f.nro()?;
    let before = f.read(&nro).await?;
    f.make_pool(POOL).await?;
    let with = [("Enabled", "Periodic", "Enabled"), ("Disabled", "Events", "Disabled")];
    for (fingerprinting, mode, pause) in with {
        let config = json!({ "podsFingerprinting": fingerprinting, "infoRefreshMode": mode, "infoRefreshPause": pause });
        let mut groups = groups(&before);
        groups.push(json!({ "poolName": POOL, "config": config }));
        f.set(&nro, GROUPS, Some(json!(groups))).await?;
        f.until_object(&nro, "the status has the group's configuration", |found| {
            let object = value(found.ok_or("it is not there")?);
            AVAILABLE.of(&object)?;
            has_config(&object["status"], &config)
        })
        .await?;
    }
    let set = set_of(&f, POOL).await?;
    let uid = f.uid(&set).await?;
    f.set(&nro, GROUPS, Some(json!(groups(&before)))).await?;
    f.gone(&set, &uid).await?;
    f.until_object(&nro, "the status no longer has the group", |found| {
        let object = value(found.ok_or("it is not there")?);
        AVAILABLE.of(&object)?;
        let status = object["status"].to_string();
        if status.contains(POOL) { Err(format!("it says {status}")) } else { Ok(()) }
    })
    .await
}

/// Whether pool and group of [`POOL`] have the configuration, in all lists of a status.
fn has_config(status: &Value, config: &Value) -> std::result::Result<(), String> {
    let of = |list: &str, name: &str| {
        let mut all = status[list].as_array().into_iter().flatten();
        let found = all.find(|one| one[name] == POOL).ok_or_else(|| format!("{list} has no {POOL}"))?;
        let wanted = config.as_object().into_iter().flatten();
        let other = wanted.into_iter().find(|(field, value)| found["config"][field.as_str()] != **value);
        other.map_or(Ok(()), |(field, value)| {
            Err(format!("{list}: {field} is not {value} but {}", found["config"]))
        })
    };
    of("machineconfigpools", "name")?;
    of("nodeGroups", "selector")?;
    let sets = status["daemonsets"].as_array().into_iter().flatten();
    let is_there = sets.into_iter().any(|set| set["name"].as_str().is_some_and(|name| name.ends_with(POOL)));
    if is_there { Ok(()) } else { Err(format!("daemonsets has none of {POOL}")) }
}

/// Lets masters take pods.
async fn schedulable_masters(f: &Fixture) -> Result {
    f.set(&platform::config("Scheduler", "schedulers"), "/spec/mastersSchedulable", Some(json!(true)))
        .await?;
    let masters = f.facts().pool(MASTER).context("there are no masters: the spec needs Need::Masters")?;
    for name in &masters.nodes {
        f.until(&format!("master {name} is a worker too"), |state| {
            let node = state.nodes.get(name).ok_or("it is not there")?;
            let labels = node.metadata.labels.iter().flatten();
            let is_worker = labels.into_iter().any(|(key, _)| *key == machines::role(WORKER));
            if is_worker { Ok(()) } else { Err("it has no label".to_owned()) }
        })
        .await?;
    }
    Ok(())
}

async fn masters_and_workers(f: Fixture) -> Result {
    let nro = f.nro()?;
    let nodes: Vec<_> = f.nodes().iter().collect();
    let moved = f.facts().movable(&nodes).map_err(Skip)?.name.clone();
    schedulable_masters(&f).await?;
    f.make_pool(POOL).await?;
    f.move_to(POOL, &moved).await?;
    let groups = json!([{ "poolName": MASTER }, { "poolName": POOL }]);
    f.set(&nro, GROUPS, Some(groups)).await?;
    f.condition(&nro, AVAILABLE).await?;
    let masters = f.facts().pool(MASTER).map(|pool| pool.nodes.clone()).unwrap_or_default();
    for (pool, nodes) in [(MASTER, masters), (POOL, BTreeSet::from([moved]))] {
        f.on_nodes(&set_of(&f, pool).await?, &nodes, |_| true).await?;
        for node in nodes {
            f.free(&node).await?;
        }
    }
    Ok(())
}

/// The Go operator's second DaemonSet keeps a pod pending on such a node, ours does not mean the node.
async fn compact(f: Fixture) -> Result {
    schedulable_masters(&f).await?;
    let groups = json!([{ "poolName": MASTER }, { "poolName": WORKER }]);
    f.set(&f.nro()?, GROUPS, Some(groups)).await?;
    let pools = [MASTER, WORKER].map(|name| f.facts().pool(name));
    let nodes: BTreeSet<String> = pools.into_iter().flatten().flat_map(|pool| pool.nodes.clone()).collect();
    f.until_object(&f.nro()?, "both groups have a DaemonSet", |found| {
        let object = value(found.ok_or("it is not there")?);
        let sets = object["status"]["nodeGroups"].as_array().map_or(0, Vec::len);
        if sets == 2 { Ok(()) } else { Err(format!("there are {sets}")) }
    })
    .await?;
    let sets = f.exporter_sets().await?;
    f.until("each node has one exporter", |state| {
        let pods: Vec<_> = sets.iter().flat_map(|set| of_set(state, set)).collect();
        let running = |node: &str| {
            let here = pods
                .iter()
                .filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node));
            here.map(|pod| crate::placement::runs(pod)).collect::<Vec<_>>()
        };
        let other = nodes.iter().find(|node| running(node) != [true]);
        other.map_or(Ok(()), |node| Err(format!("node {node}: running {:?}", running(node))))
    })
    .await
}

/// The operator, or the API server, objects to groups with these pools.
async fn refused(f: Fixture, pools: &[&str], text: &str) -> Result {
    let groups: Vec<Value> = pools.iter().map(|name| json!({ "poolName": name })).collect();
    let objection = f.objection(&f.nro()?, GROUPS, json!(groups)).await?;
    // The API server has words of its own.
    let is_named = objection.reason.is_none() || objection.message.contains(text);
    ensure!(is_named, "the objection is {:?}, without {text:?}", objection.message);
    Ok(())
}

async fn no_selectors(f: Fixture) -> Result {
    let selector = json!({ "matchLabels": { "e2e": "none" } });
    let nro = f.nro()?;
    f.set(&nro, GROUPS, Some(json!([{ "machineConfigPoolSelector": selector }]))).await?;
    let message = f.condition(&nro, DEGRADED).await?;
    ensure!(message.to_lowercase().contains("poolname"), "the objection {message:?} does not name poolName");
    Ok(())
}
