//! What the operator's objects ask for is what runs, and their status says so.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use api::keys;
use api::nrt::attribute;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use runtime::client::{get_text, percent_encode};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Operator, Scheduler, SchedulerObject};
use crate::object::value;
use crate::operator::{AVAILABLE, GROUPS, node_of, of_set};
use crate::spec::{Result, Skip, Spec};

/// The attributes of a report, and the fields of a kubelet's configuration.
const ALIGNMENT: [&str; 2] = [keys::ATTRIBUTE_POLICY, keys::ATTRIBUTE_SCOPE];
/// The label of exporters' configurations.
const OF_OPERATOR: &str = api::numaresources::keys::LABEL_OPERATOR;
/// The largest configuration of a kubelet.
const CONFIG_BYTES: usize = 1 << 20;
/// A group without nodes.
const EMPTY_POOL: &str = "e2e-empty";

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("84315", 0, "reports say how their kubelets align", aligned_as_kubelets)
            .needs([Operator, Aligning(1)]),
        Spec::new("84309", 2, "the operator's objects name what belongs to them", related)
            .labels(&["related_objects"])
            .needs([Operator, SchedulerObject]),
        Spec::new(
            "84307",
            2,
            "the status of a group has its pool, its DaemonSet and its whole configuration",
            group,
        )
        .labels(&["openshift"])
        .needs([Operator]),
        Spec::new("54916", 2, "a scheduler with another name schedules the pods that name it", renamed)
            .labels(&["schedrst"])
            .needs([Scheduler, SchedulerObject, Aligning(1)]),
        Spec::new("84311", 2, "a group that names its pools twice is objected to", named_twice)
            .labels(&["ngpoolname"])
            .needs([Operator]),
        Spec::new(
            "84312",
            1,
            "the status follows a group that is added, changed and removed",
            added_and_removed,
        )
        .labels(&["openshift", "ngpoolname"])
        .needs([Operator]),
    ];
    specs.into_iter().map(|spec| spec.labels(&["disruptive"])).collect()
}

/// Each report is compared with the kubelet itself where it may be asked, and with its exporter's configuration where
/// there is one.
async fn aligned_as_kubelets(f: Fixture) -> Result {
    let mut compared = 0;
    for set in f.exporter_sets().await? {
        let object = f.read(&set).await?;
        let configured = configuration(&f, &set.namespace, &object).await?;
        let state = f.cluster().observer.now();
        for pod in of_set(&state, &set) {
            let node = node_of(&pod).to_owned();
            let asked = if f.facts().exec { Some(kubelet(&f, &node).await?) } else { None };
            let report = state.reports.get(&node).with_context(|| format!("node {node} has no report"))?;
            for name in ALIGNMENT {
                let reported = attribute::get(&report.attributes, name).unwrap_or_default();
                let sources = [("its kubelet", &asked), ("its exporter's configuration", &configured)];
                for (source, settings) in sources {
                    let Some(stated) = settings.as_ref().and_then(|all| all[name].as_str()) else { continue };
                    ensure!(
                        reported == stated,
                        "node {node}: {name} is {reported:?}, in {source} {stated:?}"
                    );
                    compared += 1;
                }
            }
        }
    }
    if compared == 0 {
        let missing = "the right to ask kubelets (nodes/proxy), or exporters with a configuration";
        return Err(Skip(missing.to_owned()).into());
    }
    Ok(())
}

/// The configuration of a kubelet that runs.
async fn kubelet(f: &Fixture, node: &str) -> Result<Value> {
    let path = format!("/api/v1/nodes/{}/proxy/configz", percent_encode(node));
    let text = get_text(&f.cluster().client, &path, CONFIG_BYTES).await?;
    let answer: Value = serde_json::from_str(&text).with_context(|| format!("configz of node {node}"))?;
    Ok(answer["kubeletconfig"].clone())
}

/// The kubelets' settings that the configuration of a DaemonSet's exporters states.
async fn configuration(f: &Fixture, namespace: &str, set: &Value) -> Result<Option<Value>> {
    let mounted: BTreeSet<&str> = config_maps(set).collect();
    let maps = Api::<ConfigMap>::namespaced(f.cluster().client.clone(), namespace);
    let chosen = ListParams::default().labels(OF_OPERATOR);
    for map in maps.list(&chosen).await? {
        if !mounted.contains(map.metadata.name.as_deref().unwrap_or_default()) {
            continue;
        }
        let texts = map.data.unwrap_or_default();
        let Some((key, text)) = texts.first_key_value() else { continue };
        let file: Value = runtime::yaml::read_str(key, text, runtime::yaml::Mode::Lenient)?;
        return Ok(file.get("kubelet").cloned());
    }
    Ok(None)
}

/// The names of the ConfigMaps that a workload's pods mount.
pub(super) fn config_maps(workload: &Value) -> impl Iterator<Item = &str> {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["configMap"]["name"].as_str())
}

async fn related(f: Fixture) -> Result {
    let reference = |group: &str, resource: &str, namespace: &str, name: &str| {
        [group, resource, namespace, name].map(str::to_owned)
    };
    let sets = f.exporter_sets().await?;
    let mut of_operator = vec![reference("topology.node.k8s.io", "noderesourcetopologies", "", "")];
    for set in &sets {
        of_operator.push(reference("", "namespaces", "", &set.namespace));
        of_operator.push(reference("apps", "daemonsets", &set.namespace, &set.name));
    }
    if f.facts().platform.is_openshift() {
        let machine = "machineconfiguration.openshift.io";
        of_operator.extend(["kubeletconfigs", "machineconfigs"].map(|kind| reference(machine, kind, "", "")));
    }
    let deployment = f.scheduler_deployment().await?;
    let of_scheduler = vec![
        reference("", "namespaces", "", &deployment.namespace),
        reference("apps", "deployments", &deployment.namespace, &deployment.name),
    ];
    for (target, wanted) in [(f.nro()?, of_operator), (f.nrs()?, of_scheduler)] {
        let object = f.read(&target).await?;
        let listed = object["status"]["relatedObjects"].as_array().cloned().unwrap_or_default();
        let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let listed: BTreeSet<_> = listed
            .iter()
            .map(|object| ["group", "resource", "namespace", "name"].map(|field| text(object, field)))
            .collect();
        for reference in wanted {
            ensure!(listed.contains(&reference), "{} does not name {reference:?}", target.kind);
        }
    }
    Ok(())
}

/// What of a configuration is not in another.
fn lacks(whole: &Value, stated: &Value) -> Option<String> {
    let mut fields = stated.as_object().into_iter().flatten();
    let (field, stated) = fields.find(|(field, stated)| whole[field.as_str()] != **stated)?;
    Some(format!("{field} is {}, not {stated}", whole[field.as_str()]))
}

async fn group(f: Fixture) -> Result {
    let set = f.only_set().await?;
    let object = f.read(&f.nro()?).await?;
    let (spec, status) = (&object["spec"]["nodeGroups"][0], &object["status"]);
    let name = spec["poolName"].as_str().unwrap_or_default();
    let reported = &status["nodeGroups"][0];
    ensure!(
        status["nodeGroups"].as_array().map_or(0, Vec::len) == 1
            && reported["daemonsets"]["name"] == *set.name,
        "the status of the groups is {}",
        status["nodeGroups"]
    );
    ensure!(name.is_empty() || reported["selector"] == name, "the group is called {}", reported["selector"]);
    let mut configurations = vec![&reported["config"]];
    if f.facts().platform.is_openshift() {
        let pool = &status["machineconfigpools"][0];
        ensure!(name.is_empty() || pool["name"] == name, "the pool is called {}", pool["name"]);
        configurations.push(&pool["config"]);
    }
    for config in configurations {
        let fields = ["podsFingerprinting", "infoRefreshMode", "infoRefreshPeriod", "infoRefreshPause"];
        let missing = fields.iter().find(|field| config[**field].is_null());
        ensure!(missing.is_none(), "the status has no {missing:?}: {config}");
        let differs = spec.get("config").and_then(|stated| lacks(config, stated));
        ensure!(differs.is_none(), "the status is not as the spec: {differs:?}");
    }
    Ok(())
}

async fn renamed(f: Fixture) -> Result {
    const NAME: &str = "test-topology-scheduler";
    let (nrs, target) = (f.nrs()?, f.target()?.name.clone());
    f.set(&nrs, "/spec/schedulerName", Some(NAME.into())).await?;
    f.rolled(&nrs, &format!("the status has the scheduler's name {NAME}"), |object| {
        AVAILABLE.of(object)?;
        let now = &object["status"]["schedulerName"];
        if now == NAME { Ok(()) } else { Err(format!("it has {now}")) }
    })
    .await?;
    let plan = f.pod("p").among(&[&target]).scheduler(NAME).guaranteed(&f.amounts("1 100Mi")?);
    let before = f.before(&target)?.clone();
    let pod = f.create(plan).await?;
    f.running(&pod).await?;
    f.scheduled_by(&pod, NAME).await?;
    f.accounted(&target, &before, &[pod]).await?;
    f.complete(&f.scheduler_deployment().await?).await?;
    let now = f.read(&nrs).await?;
    ensure!(now["status"]["schedulerName"] == NAME, "the status has {}", now["status"]["schedulerName"]);
    f.condition(&nrs, AVAILABLE).await?;
    Ok(())
}

async fn named_twice(f: Fixture) -> Result {
    let nro = f.nro()?;
    let group = json!({
        "poolName": "e2e", "machineConfigPoolSelector": { "matchLabels": { "e2e.tholepin.dev/none": "none" } },
    });
    let said = f.objection(&nro, GROUPS, json!([group])).await?;
    let is_right = match said.reason.as_deref() {
        Some(reason) => reason == "ValidationErrorUnderNodeGroups",
        None => said.fields.iter().any(|field| field.starts_with("spec.nodeGroups[0]")),
    };
    ensure!(is_right, "{said:?} is not about the group");
    // All mistakes in groups have one reason, and the selector alone is one where there are no pools.
    ensure!(said.message.contains("specifier"), "{said:?} does not name the mistake");
    Ok(())
}

/// The group has a node selector that no node meets, and comes first, since one without a selector must be the last.
async fn added_and_removed(f: Fixture) -> Result {
    let workers = f.only_set().await?;
    if f.facts().platform.is_openshift() {
        return Err(Skip("node groups with a nodeSelector, which OpenShift's have not".to_owned()).into());
    }
    let nro = f.nro()?;
    let groups = f.read(&nro).await?["spec"]["nodeGroups"].as_array().cloned().unwrap_or_default();
    let configs = [
        (
            json!({
                "podsFingerprinting": "Enabled", "infoRefreshMode": "Periodic", "infoRefreshPeriod": "23s",
                "infoRefreshPause": "Enabled",
            }),
            &["--pods-fingerprint-method=all", "--sleep-interval=23s", "--no-publish"][..],
        ),
        (json!({ "podsFingerprinting": "Disabled", "infoRefreshMode": "Events" }), &[]),
    ];
    let mut added = None;
    for (config, flags) in configs {
        let selector = json!({ "matchLabels": { "e2e.tholepin.dev/none": "none" } });
        let group = json!({ "poolName": EMPTY_POOL, "nodeSelector": selector, "config": config });
        let all = std::iter::once(group).chain(groups.clone()).collect();
        f.set(&nro, GROUPS, Some(Value::Array(all))).await?;
        if f.read(&nro).await?["spec"]["nodeGroups"][0]["nodeSelector"] != selector {
            return Err(Skip("node groups with a nodeSelector".to_owned()).into());
        }
        let what = format!("the status follows group {EMPTY_POOL}");
        f.rolled(&nro, &what, |object| {
            AVAILABLE.of(object)?;
            let all = object["status"]["nodeGroups"].as_array().cloned().unwrap_or_default();
            let own =
                all.iter().find(|group| group["selector"] == EMPTY_POOL).ok_or("it does not name it")?;
            lacks(&own["config"], &config).map_or(Ok(()), Err)
        })
        .await?;
        let mut sets = f.exporter_sets().await?;
        sets.retain(|set| set.name != workers.name);
        ensure!(sets.len() == 1, "the group has {} DaemonSets", sets.len());
        added = sets.pop();
        let set = f.read(added.as_ref().context("no group was added")?).await?;
        let args = &set["spec"]["template"]["spec"]["containers"][0]["args"];
        let is_there = |flag: &&str| args.as_array().is_some_and(|args| args.iter().any(|arg| arg == *flag));
        let missing = flags.iter().find(|flag| !is_there(flag));
        ensure!(missing.is_none(), "the group's exporters lack {missing:?}: they have {args}");
    }
    let added = added.context("no group was added")?;
    let pods = f.complete(&added).await?;
    ensure!(pods == 0, "a group without nodes has {pods} exporters");
    let uid = f.uid(&added).await?;
    f.set(&nro, GROUPS, Some(groups.into())).await?;
    f.gone(&added, &uid).await?;
    f.until_object(&nro, &format!("the status forgets group {EMPTY_POOL}"), |found| {
        let object = value(found.ok_or("it is not there")?);
        let all = object["status"]["nodeGroups"].as_array().cloned().unwrap_or_default();
        let is_left = all.iter().any(|group| group["selector"] == EMPTY_POOL);
        if is_left { Err("it is still there".to_owned()) } else { Ok(()) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_may_have_more_than_was_stated_but_nothing_else() {
        let whole = json!({ "a": "1", "b": "2" });
        let table = [
            (json!({}), true),
            (json!({ "a": "1" }), true),
            (json!({ "a": "2" }), false),
            (json!({ "c": "1" }), false),
        ];
        for (stated, is_there) in table {
            assert_eq!(lacks(&whole, &stated).is_none(), is_there, "{stated}");
        }
    }
}
