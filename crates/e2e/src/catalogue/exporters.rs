//! What exporters write, and what they say of themselves.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use api::keys;
use api::nrt::{NodeResourceTopology, Zone, attribute};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ApiResource, DeleteParams};
use runtime::yaml::{Mode, read_str};
use serde_json::{Value, json};
use topology::fingerprint::{Fingerprint, Method};

use super::configuration::config_maps;
use super::metrics::EXPORTER;
use crate::facts::NodeFacts;
use crate::fixture::{Fixture, gone_already};
use crate::need::Need::{Aligning, Fingerprint as HasFingerprint, Operator};
use crate::operator::{node_of, of_set};
use crate::settled;
use crate::spec::{Result, Skip, Spec};
use crate::tool::Given;
use crate::undo::Target;

/// The name by which this program is an exporter with the peer's flags.
const EXPORTER_PROGRAM: &str = "resource-topology-exporter";
/// The conditions that an exporter keeps on its own pod.
const CONDITIONS: [&str; 2] = ["PodresourcesFetched", "NodeTopologyUpdated"];
/// The counter of written reports.
const WRITES: &str = "rte_noderesourcetopology_writes_total";

pub(super) fn specs() -> Vec<Spec> {
    let of_reports = [
        Spec::new("rte/fingerprint", 1, "each report has the fingerprint of its node's pods", fingerprints)
            .needs([HasFingerprint]),
        Spec::new("rte/fingerprint-changes", 1, "a fingerprint follows a pod that comes and goes", follows)
            .needs([HasFingerprint]),
        Spec::new(
            "rte/fingerprint-method",
            2,
            "a fingerprint covers a best-effort pod if it is to cover all pods",
            covers,
        )
        .needs([HasFingerprint]),
        Spec::new("rte/zones", 1, "a report has zones with distances and amounts that fit", zones),
        Spec::new("rte/attributes", 1, "a report says how its kubelet aligns", attributes),
    ];
    let of_exporters = [
        Spec::new("rte/conditions", 1, "an exporter says of itself that it reads and writes", conditions),
        Spec::new("rte/metrics", 2, "an exporter counts what it writes", metrics).needs([Aligning(1)]),
        Spec::new("rte/refresh", 2, "a report that was deleted is written again", refresh)
            .labels(&["disruptive"])
            .needs([Aligning(1)]),
        Spec::new("rte/owned", 2, "a configuration of exporters that others empty is put back", put_back)
            .labels(&["disruptive"]),
    ];
    let of_program = [Spec::new(
        "rte/options",
        3,
        "an exporter takes its kubelet's rules from flags, then from its environment",
        options,
    )];
    let absent = [
        (
            "rte/notification",
            "an exporter follows a notification file",
            "a file of the node, and its exporter",
        ),
        ("rte/state-directories", "an exporter follows the kubelet's state", "files of the node"),
    ];
    let of_reports = of_reports.into_iter().map(|spec| spec.needs([Aligning(1)]));
    let of_exporters = of_exporters.into_iter().map(|spec| spec.needs([Operator]));
    let absent = absent.map(|(id, title, reason)| Spec::absent(id, 3, title, reason));
    of_reports.chain(of_exporters).chain(of_program).chain(absent).collect()
}

/// The fingerprint of a node's report, once it is about the node's pods.
async fn fingerprint(f: &Fixture, node: &str) -> Result<(Fingerprint, Method)> {
    f.until(&format!("the report of node {node} has the fingerprint of its pods"), |state| {
        settled::settled(state, node)?.fingerprint.ok_or_else(|| "it has none".to_owned())
    })
    .await
}

async fn fingerprints(f: Fixture) -> Result {
    for node in f.nodes() {
        fingerprint(&f, &node.name).await?;
    }
    Ok(())
}

async fn follows(f: Fixture) -> Result {
    let node = f.target()?.name.clone();
    let amounts = f.amounts("1 100Mi")?;
    f.require_zones(&amounts)?;
    let (before, _) = fingerprint(&f, &node).await?;
    let mut seen = BTreeSet::from([before.to_string()]);
    let mut pods = Vec::new();
    for name in ["a", "b"] {
        let pod = f.create(f.pod(name).guaranteed(&amounts).on(&node)).await?;
        f.running(&pod).await?;
        let (now, _) = fingerprint(&f, &node).await?;
        ensure!(seen.insert(now.to_string()), "with pod {} the fingerprint is {now} again", pod.name);
        pods.push(pod);
    }
    for pod in &pods {
        f.delete(pod).await?;
    }
    let (after, _) = fingerprint(&f, &node).await?;
    ensure!(after == before, "without the pods the fingerprint is {after}, before {before}");
    Ok(())
}

async fn covers(f: Fixture) -> Result {
    let node = f.target()?.name.clone();
    let (before, method) = fingerprint(&f, &node).await?;
    let pod = f.create(f.pod("p").best_effort().on(&node)).await?;
    f.running(&pod).await?;
    let (now, _) = fingerprint(&f, &node).await?;
    let wanted = method == Method::All;
    ensure!((now != before) == wanted, "by method {method:?} the fingerprint is {now}, before {before}");
    Ok(())
}

async fn zones(f: Fixture) -> Result {
    each_report(&f, |_, report| check(report))
}

/// Checks the report of each node.
fn each_report(f: &Fixture, check: impl Fn(&NodeFacts, &NodeResourceTopology) -> Result) -> Result {
    let state = f.cluster().observer.now();
    for node in f.nodes() {
        let name = &node.name;
        let report = state.reports.get(name).with_context(|| format!("node {name} has no report"))?;
        check(node, report).with_context(|| format!("the report of node {name}"))?;
    }
    Ok(())
}

/// Zones know the distance to each other, and have no more than there is.
fn check(report: &NodeResourceTopology) -> Result {
    let names: BTreeSet<&str> = report.zones.iter().map(|zone| &*zone.name).collect();
    ensure!(!names.is_empty(), "it has no zone");
    ensure!(names.len() == report.zones.len(), "two zones have one name: {names:?}");
    for Zone { name, kind, costs, resources, .. } in &report.zones {
        ensure!(kind == api::nrt::ZONE_TYPE_NODE, "zone {name} is a {kind:?}");
        let costs: BTreeSet<&str> = costs.iter().map(|cost| &*cost.name).collect();
        ensure!(costs == names, "zone {name} has distances to {costs:?}, not to {names:?}");
        for of in ["cpu", "memory"] {
            ensure!(resources.iter().any(|resource| resource.name == of), "zone {name} has no {of}");
        }
        for resource in resources {
            let [capacity, allocatable, available] =
                [&resource.capacity, &resource.allocatable, &resource.available].map(|amount| amount.parse());
            let (capacity, allocatable, available) = (capacity?, allocatable?, available?);
            let fits = available <= allocatable && allocatable <= capacity;
            ensure!(fits, "zone {name}: {resource:?}");
        }
    }
    Ok(())
}

async fn attributes(f: Fixture) -> Result {
    each_report(&f, |node, report| {
        let rules = node.rules();
        let wanted =
            [(keys::ATTRIBUTE_POLICY, rules.policy.as_str()), (keys::ATTRIBUTE_SCOPE, rules.scope.as_str())];
        for (attribute, wanted) in wanted {
            let found = attribute::get(&report.attributes, attribute);
            ensure!(found == Some(wanted), "{attribute} is {found:?}, not {wanted:?}");
        }
        Ok(())
    })
}

async fn conditions(f: Fixture) -> Result {
    for set in f.exporter_sets().await? {
        let object = f.read(&set).await?;
        let gates = object["spec"]["template"]["spec"]["readinessGates"].as_array().map_or(0, Vec::len);
        if gates == 0 {
            let missing = format!("exporters with readiness gates; DaemonSet {} has none", set.name);
            return Err(Skip(missing).into());
        }
        f.until("each exporter reads and writes", |state| {
            let pods = of_set(state, &set);
            let lacking = pods.iter().find_map(|pod| Some((node_of(pod), lacking(pod)?)));
            lacking.map_or(Ok(()), |(node, kind)| Err(format!("that of node {node} does not say {kind}")))
        })
        .await?;
    }
    Ok(())
}

/// The first condition that a pod does not have.
fn lacking(pod: &Pod) -> Option<&'static str> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_true =
        |kind: &str| conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True");
    CONDITIONS.into_iter().find(|kind| !is_true(kind))
}

async fn metrics(f: Fixture) -> Result {
    let node = f.target()?.name.clone();
    let amounts = f.amounts("1 100Mi")?;
    f.require_zones(&amounts)?;
    let state = f.cluster().observer.now();
    let sets = f.exporter_sets().await?;
    let exporter = sets.iter().flat_map(|set| of_set(&state, set)).find(|pod| node_of(pod) == node);
    let exporter = exporter.with_context(|| format!("node {node} has no exporter"))?;
    let before = f.measured(&exporter, EXPORTER, WRITES, |line| line.name == WRITES).await?;
    let pod = f.create(f.pod("p").guaranteed(&amounts).on(&node)).await?;
    f.running(&pod).await?;
    f.accounted(&node, &f.before(&node)?.clone(), &[pod]).await?;
    let what = format!("{WRITES} beyond {before}");
    f.measured(&exporter, EXPORTER, &what, |line| line.name == WRITES && line.value > before).await?;
    Ok(())
}

async fn refresh(f: Fixture) -> Result {
    let node = f.target()?.name.clone();
    let state = f.cluster().observer.now();
    let report = state.reports.get(&node).with_context(|| format!("node {node} has no report"))?;
    let uid = report.metadata.uid.clone();
    let reports = Api::<NodeResourceTopology>::all(f.cluster().client.clone());
    gone_already(reports.delete(&node, &DeleteParams::default()).await)?;
    f.until(&format!("node {node} has another report"), |state| match state.reports.get(&node) {
        Some(report) if report.metadata.uid != uid => Ok(()),
        Some(_) => Err("it is the old one".to_owned()),
        None => Err("it has none".to_owned()),
    })
    .await?;
    f.restored(&node, f.before(&node)?).await
}

/// The exporter of this very program says what it would run with: variables, flags, then scope and policy.
async fn options(f: Fixture) -> Result {
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], [&'a str; 2]);
    let variables = [("TOPOLOGY_MANAGER_SCOPE", "pod"), ("TOPOLOGY_MANAGER_POLICY", "restricted")];
    let flags = ["--topology-manager-scope=container", "--topology-manager-policy=best-effort"];
    let table: [Row<'_>; 4] = [
        (&variables, &[], ["pod", "restricted"]),
        (&[], &flags, ["container", "best-effort"]),
        (&variables, &flags, ["container", "best-effort"]),
        (&variables, &flags[..1], ["container", "restricted"]),
    ];
    for (variables, flags, wanted) in table {
        let words: Vec<&str> =
            [EXPORTER_PROGRAM, "--dump-config=.andexit"].iter().chain(flags).copied().collect();
        let said = f.tool(&words, Given { variables, ..Given::default() }).await?;
        ensure!(said.code == Some(0), "{words:?}: exit code {:?}: {}", said.code, said.last());
        let dump: Value = read_str("the exporter's configuration", &said.stdout, Mode::Lenient)?;
        let of = &dump["topologyExporter"];
        let found = [&of["topologyManagerScope"], &of["topologyManagerPolicy"]];
        ensure!(found == wanted, "{words:?} with {variables:?}: {found:?}, not {wanted:?}");
    }
    Ok(())
}

async fn put_back(f: Fixture) -> Result {
    let mut maps = 0;
    for set in f.exporter_sets().await? {
        let object = f.read(&set).await?;
        for name in config_maps(&object) {
            let map = Target::of(&ApiResource::erase::<ConfigMap>(&()), &set.namespace, name);
            // Kubelets that may be asked need none, and the volume is optional.
            let Some(found) = map.api(&f.cluster().client).get_opt(name).await? else { continue };
            let before = found.data["data"].clone();
            f.set(&map, "/data", Some(json!({}))).await?;
            f.rolled(&map, &format!("ConfigMap {name} is put back"), |now: &Value| {
                if now["data"] == before { Ok(()) } else { Err("it is not".to_owned()) }
            })
            .await?;
            maps += 1;
        }
        f.complete(&set).await?;
    }
    if maps == 0 {
        return Err(Skip("exporters with a ConfigMap".to_owned()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check;

    fn report(change: impl FnOnce(&mut Value)) -> bool {
        let resource =
            |name: &str| json!({ "name": name, "capacity": "4", "allocatable": "3", "available": "2" });
        let zone = |name: &str| {
            json!({ "name": name, "type": "Node", "resources": [resource("cpu"), resource("memory")],
                "costs": [{ "name": "node-0", "value": 10 }, { "name": "node-1", "value": 21 }] })
        };
        let mut zones = json!([zone("node-0"), zone("node-1")]);
        change(&mut zones);
        let report = json!({ "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": { "name": "a" }, "zones": zones });
        check(&serde_json::from_value(report).unwrap()).is_ok()
    }

    #[test]
    fn a_report_has_zones_with_distances_and_amounts_that_fit() {
        assert!(report(|_| {}));
        assert!(!report(|zones| *zones = json!([])));
        assert!(!report(|zones| zones[1]["name"] = "node-0".into()));
        assert!(!report(|zones| zones[1]["type"] = "Socket".into()));
        assert!(!report(|zones| zones[1]["costs"] = json!([])));
        assert!(!report(|zones| zones[0]["resources"][1]["name"] = "disk".into()));
        assert!(!report(|zones| zones[0]["resources"][0]["available"] = "3500m".into()));
        assert!(!report(|zones| zones[0]["resources"][0]["allocatable"] = "5".into()));
        assert!(!report(|zones| zones[0]["resources"][0]["available"] = "some".into()));
    }
}
