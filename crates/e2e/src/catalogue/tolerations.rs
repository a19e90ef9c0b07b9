//! Tolerations of the exporters: their pods live with the taints that a node group names, and with no others.
//!
//! One node is tainted, on which no pod but the exporter would leave; devices of the suite tolerate everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::need::Need::Operator;
use crate::object::{self, value};
use crate::observed::Observed;
use crate::operator::{AVAILABLE, GROUP_CONFIG, node_of, of_set, uids};
use crate::settled;
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The key of taints and tolerations.
const KEY: &str = "e2e.tholepin.dev/exporter";
/// Effects.
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
/// An annotation of the DaemonSet, and the most changes of it.
const LOOK: &str = "/metadata/annotations/e2e.tholepin.dev~1look";
const LOOKS: u32 = 6;
/// The list in a group's configuration.
const TOLERATIONS: &str = "tolerations";

/// The exporters at the beginning, and the node that is tainted.
struct Exporters {
    f: Fixture,
    set: Target,
    /// All nodes with an exporter.
    nodes: BTreeSet<String>,
    tainted: String,
}

pub(super) fn specs() -> Vec<Spec> {
    let bad = [("84302", "operator", "Some"), ("72862", "effect", "Sometimes")];
    let bad = bad.into_iter().map(|(id, field, value)| {
        let title = format!("a toleration with a bad {field} is objected to, and the exporters stay");
        Spec::new(id, 2, title, move |f| objected(f, field, value))
    });
    let changed = [
        ("84304", "a changed value of a toleration evicts the exporter", true),
        ("84305", "a changed value of a tolerated taint evicts the exporter", false),
    ];
    let changed = changed.into_iter().map(|(id, title, toleration)| {
        Spec::new(id, 3, title, move |f| changed_value(f, toleration)).labels(&["slow"])
    });
    let again = [
        ("72854", "made anew without a toleration, the operator's exporters leave out a tainted node", false),
        ("72855", "made anew with a toleration, the operator's exporters are on a tainted node", true),
    ];
    let again = again.into_iter().map(|(id, title, toleration)| {
        Spec::new(id, 2, title, move |f| made_anew(f, toleration)).labels(&["reboot_required", "slow"])
    });
    let others = [
        Spec::new("84303", 3, "a further toleration reaches every exporter", further),
        Spec::new("72857", 2, "exporters tolerate a taint as long as their group does", while_tolerated)
            .labels(&["slow"]),
        Spec::new(
            "72861",
            2,
            "a taint NoSchedule leaves an exporter where it is, NoExecute evicts it",
            evicted,
        ),
        Spec::new("72859", 3, "an exporter deleted from a tainted node does not come back", deleted),
        Spec::new("84306", 3, "an evicted exporter comes back without the taint", untainted),
    ];
    let all = bad.chain(others).chain(changed).chain(again);
    all.map(|spec| spec.labels(&["disruptive", "rtetols"]).needs([Operator])).collect()
}

impl Exporters {
    async fn begin(f: &Fixture) -> Result<Self> {
        let set = f.only_set().await?;
        f.complete(&set).await?;
        let nodes = f.nodes_of(&set);
        let state = f.cluster().observer.now();
        let tainted = nodes.iter().find(|node| stays_empty(&state, &set, node)).cloned();
        let missing = || Skip("a node with an exporter that no other pod would leave for a taint".to_owned());
        Ok(Self { f: f.clone(), set, nodes, tainted: tainted.ok_or_else(missing)? })
    }

    async fn taint(&self, value: &str, effect: &str) -> Result {
        self.f.changes().taint(&self.tainted, KEY, value, effect).await
    }

    /// All nodes but the tainted one.
    fn rest(&self) -> BTreeSet<String> {
        self.nodes.iter().filter(|node| **node != self.tainted).cloned().collect()
    }

    /// Waits until all nodes have an exporter with this toleration.
    async fn everywhere(&self, value: &str) -> Result<Vec<Arc<Pod>>> {
        self.f.on_nodes(&self.set, &self.nodes, |pod| has(pod, value)).await
    }

    /// Waits until all nodes but the tainted one have an exporter.
    async fn elsewhere(&self) -> Result<Vec<Arc<Pod>>> {
        self.f.on_nodes(&self.set, &self.rest(), |_| true).await
    }

    /// Waits until the DaemonSet's controller has counted so many pods on nodes that are not for them. It is the sign
    /// that it has seen the taint. A taint that lets a pod stay does not make it look; a change of its object does.
    async fn misplaced(&self, count: i64) -> Result {
        let wanted = (i64::try_from(self.nodes.len()).unwrap_or_default() - 1, count);
        let what = format!("DaemonSet {} has {count} pods where it should have none", self.set.name);
        let test = |found: Option<&_>| {
            let object = value(found.ok_or("it is not there")?);
            let number = |field: &str| object["status"][field].as_i64().unwrap_or_default();
            let now = (number("desiredNumberScheduled"), number("numberMisscheduled"));
            if now == wanted {
                return Ok(());
            }
            Err(format!("it wants {} pods and has {} where it should have none", now.0, now.1))
        };
        let cluster = self.f.cluster();
        let mut look = 0;
        loop {
            look += 1;
            self.f.set(&self.set, LOOK, Some(format!("{count}-{look}").into())).await?;
            // The controller may have looked before it knew the taint.
            let limit = cluster.settings.patience / LOOKS;
            match object::until(cluster, &self.set, (&what, limit), test).await {
                Err(_) if look < LOOKS => {}
                done => return Ok(done?),
            }
        }
    }

    /// The exporter on the tainted node.
    fn there(&self) -> Result<Arc<Pod>> {
        let state = self.f.cluster().observer.now();
        let pod = of_set(&state, &self.set).into_iter().find(|pod| node_of(pod) == self.tainted);
        pod.with_context(|| format!("node {} has no exporter", self.tainted))
    }
}

/// Whether a taint would drive away no pod but the DaemonSet's.
fn stays_empty(state: &Observed, set: &Target, node: &str) -> bool {
    let exporters = of_set(state, set);
    let is_exporter = |pod: &Pod| exporters.iter().any(|other| other.metadata.uid == pod.metadata.uid);
    settled::pods(state, node).filter(|pod| !is_exporter(pod)).all(tolerates_all)
}

fn tolerations(pod: &Pod) -> impl Iterator<Item = &Toleration> {
    pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten())
}

/// Whether a pod stays whatever the taint's key is.
fn tolerates_all(pod: &Pod) -> bool {
    tolerations(pod).any(|toleration| {
        toleration.key.as_deref().unwrap_or_default().is_empty()
            && toleration.operator.as_deref() == Some("Exists")
            && matches!(toleration.effect.as_deref().unwrap_or_default(), "" | NO_EXECUTE)
            && toleration.toleration_seconds.is_none()
    })
}

/// Whether a pod has the suite's toleration with this value; empty: whether it has none.
fn has(pod: &Pod, value: &str) -> bool {
    let mut own = tolerations(pod).filter(|toleration| toleration.key.as_deref() == Some(KEY)).peekable();
    match value {
        "" => own.peek().is_none(),
        value => own.any(|toleration| toleration.value.as_deref() == Some(value)),
    }
}

/// Changes the suite's toleration in a group's configuration; an empty value removes it.
fn tolerate(config: &mut Value, value: &str, effect: &str) {
    let mut all = config[TOLERATIONS].as_array().cloned().unwrap_or_default();
    all.retain(|toleration| toleration["key"] != KEY);
    if !value.is_empty() {
        all.push(json!({ "key": KEY, "operator": "Equal", "value": value, "effect": effect }));
    }
    match (all.is_empty(), config.as_object_mut()) {
        (true, Some(fields)) => drop(fields.remove(TOLERATIONS)),
        _ => config[TOLERATIONS] = all.into(),
    }
}

async fn objected(f: Fixture, field: &'static str, value: &'static str) -> Result {
    let set = f.only_set().await?;
    f.complete(&set).await?;
    let template = f.read(&set).await?["spec"]["template"].clone();
    let before = uids(&of_set(&f.cluster().observer.now(), &set));
    let nro = f.nro()?;
    let object = f.read(&nro).await?;
    let mut config = object["spec"]["nodeGroups"][0].get("config").cloned().unwrap_or_else(|| json!({}));
    let mut toleration = json!({ "key": KEY, "operator": "Exists", "effect": NO_SCHEDULE });
    toleration[field] = value.into();
    let mut all = config[TOLERATIONS].as_array().cloned().unwrap_or_default();
    let place = format!("tolerations[{}]", all.len());
    all.push(toleration);
    config[TOLERATIONS] = all.into();
    let said = f.objection(&nro, GROUP_CONFIG, config).await?;
    for part in [&*place, field, value] {
        ensure!(said.message.contains(part), "{said:?} does not name {part}");
    }
    ensure!(f.read(&set).await?["spec"]["template"] == template, "the DaemonSet was changed");
    ensure!(uids(&of_set(&f.cluster().observer.now(), &set)) == before, "the exporters were replaced");
    Ok(())
}

async fn further(f: Fixture) -> Result {
    let exporters = Exporters::begin(&f).await?;
    let stated = f.read(&f.nro()?).await?;
    let stated = stated["spec"]["nodeGroups"][0]["config"][TOLERATIONS].as_array().map_or(0, Vec::len);
    let object = f.read(&exporters.set).await?;
    let template = object["spec"]["template"]["spec"][TOLERATIONS].as_array().map_or(0, Vec::len);
    ensure!(template == stated, "the DaemonSet has {template} tolerations, its group {stated}");
    let before = uids(&of_set(&f.cluster().observer.now(), &exporters.set));
    f.configure(|config| tolerate(config, "true", NO_SCHEDULE)).await?;
    let pods = exporters.everywhere("true").await?;
    ensure!(uids(&pods).is_disjoint(&before), "an exporter was not replaced");
    f.condition(&f.nro()?, AVAILABLE).await?;
    Ok(())
}

async fn while_tolerated(f: Fixture) -> Result {
    let exporters = Exporters::begin(&f).await?;
    f.configure(|config| tolerate(config, "a", NO_SCHEDULE)).await?;
    let before = uids(&exporters.everywhere("a").await?);
    exporters.taint("a", NO_SCHEDULE).await?;
    let uid = f.uid(&exporters.set).await?;
    exporters.set.api(&f.cluster().client).delete(&exporters.set.name, &DeleteParams::default()).await?;
    f.gone(&exporters.set, &uid).await?;
    let is_new = |pod: &Pod| has(pod, "a") && !before.contains(&pod.metadata.uid);
    f.on_nodes(&exporters.set, &exporters.nodes, is_new).await?;
    f.configure(|config| tolerate(config, "", "")).await?;
    f.on_nodes(&exporters.set, &exporters.rest(), |pod| has(pod, "")).await?;
    Ok(())
}

/// The toleration's value changes, or the taint's: they no longer match.
async fn changed_value(f: Fixture, toleration: bool) -> Result {
    let exporters = Exporters::begin(&f).await?;
    f.configure(|config| tolerate(config, "a", NO_EXECUTE)).await?;
    exporters.everywhere("a").await?;
    exporters.taint("a", NO_EXECUTE).await?;
    if toleration {
        f.configure(|config| tolerate(config, "b", NO_EXECUTE)).await?;
        f.on_nodes(&exporters.set, &exporters.rest(), |pod| has(pod, "b")).await?;
        // The toleration counts on the node as everywhere: a taint with its value is lived with.
        exporters.taint("b", NO_EXECUTE).await?;
        exporters.everywhere("b").await?;
    } else {
        exporters.taint("b", NO_EXECUTE).await?;
        exporters.elsewhere().await?;
    }
    Ok(())
}

async fn evicted(f: Fixture) -> Result {
    let exporters = Exporters::begin(&f).await?;
    let before = uids(&of_set(&f.cluster().observer.now(), &exporters.set));
    exporters.taint("a", NO_SCHEDULE).await?;
    exporters.misplaced(1).await?;
    let now = uids(&f.on_nodes(&exporters.set, &exporters.nodes, |_| true).await?);
    ensure!(now == before, "a taint NoSchedule replaced an exporter");
    exporters.taint("a", NO_EXECUTE).await?;
    let left = uids(&exporters.elsewhere().await?);
    ensure!(left.is_subset(&before), "an exporter without the taint was replaced");
    exporters.misplaced(0).await
}

async fn deleted(f: Fixture) -> Result {
    let exporters = Exporters::begin(&f).await?;
    exporters.taint("a", NO_SCHEDULE).await?;
    exporters.misplaced(1).await?;
    let pod = exporters.there()?;
    let name = pod.metadata.name.clone().unwrap_or_default();
    let pods = kube::Api::<Pod>::namespaced(f.cluster().client.clone(), &exporters.set.namespace);
    pods.delete(&name, &DeleteParams::default()).await?;
    let key = (exporters.set.namespace.clone(), name);
    f.until("the exporter of the tainted node is gone", |state| match state.pods.get(&key) {
        Some(_) => Err("it is still there".to_owned()),
        None => Ok(()),
    })
    .await?;
    // The controller has counted without it, and wants none in its place.
    exporters.misplaced(0).await?;
    exporters.elsewhere().await?;
    Ok(())
}

async fn untainted(f: Fixture) -> Result {
    let exporters = Exporters::begin(&f).await?;
    let mark = f.changes().mark().await;
    exporters.taint("a", NO_EXECUTE).await?;
    exporters.elsewhere().await?;
    f.changes().back_to(mark).await?;
    f.on_nodes(&exporters.set, &exporters.nodes, |_| true).await?;
    Ok(())
}

async fn made_anew(f: Fixture, toleration: bool) -> Result {
    let exporters = Exporters::begin(&f).await?;
    let (nro, undo) = (f.nro()?, f.changes());
    if toleration {
        f.configure(|config| tolerate(config, "a", NO_SCHEDULE)).await?;
        exporters.everywhere("a").await?;
    }
    exporters.taint("a", NO_SCHEDULE).await?;
    let mark = undo.mark().await;
    let (operator, set) = (f.uid(&nro).await?, f.uid(&exporters.set).await?);
    undo.delete(&nro).await?;
    f.gone(&nro, &operator).await?;
    f.gone(&exporters.set, &set).await?;
    f.on_nodes(&exporters.set, &BTreeSet::new(), |_| true).await?;
    undo.back_to(mark).await?;
    f.condition(&nro, AVAILABLE).await?;
    if !toleration {
        exporters.elsewhere().await?;
        f.configure(|config| tolerate(config, "a", NO_SCHEDULE)).await?;
    }
    exporters.everywhere("a").await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(tolerations: &Value) -> Pod {
        let pod = json!({ "metadata": {}, "spec": { "containers": [], "tolerations": tolerations } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn pods_that_stay_tolerate_every_taint_for_ever() {
        let table = [
            (json!([]), false),
            (json!([{ "operator": "Exists" }]), true),
            (json!([{ "operator": "Exists", "effect": "NoExecute" }]), true),
            (json!([{ "operator": "Exists", "effect": "NoSchedule" }]), false),
            (json!([{ "operator": "Exists", "tolerationSeconds": 300 }]), false),
            (json!([{ "key": KEY, "operator": "Exists" }]), false),
            (json!([{ "key": "a", "operator": "Exists" }, { "operator": "Exists" }]), true),
        ];
        for (tolerations, stays) in table {
            assert_eq!(tolerates_all(&pod(&tolerations)), stays, "{tolerations}");
        }
    }

    #[test]
    fn a_toleration_is_added_changed_and_removed_beside_others() {
        let other = json!({ "key": "other", "operator": "Exists" });
        let own =
            |value: &str| json!({ "key": KEY, "operator": "Equal", "value": value, "effect": "NoExecute" });
        let table = [
            (json!({}), "a", json!({ "tolerations": [own("a")] })),
            (json!({ "tolerations": [own("a")] }), "b", json!({ "tolerations": [own("b")] })),
            (json!({ "tolerations": [own("a")] }), "", json!({})),
            (json!({ "tolerations": [other] }), "a", json!({ "tolerations": [other, own("a")] })),
            (
                json!({ "tolerations": [other, own("a")], "x": 1 }),
                "",
                json!({ "tolerations": [other], "x": 1 }),
            ),
            (json!({}), "", json!({})),
        ];
        for (mut config, value, wanted) in table {
            tolerate(&mut config, value, NO_EXECUTE);
            assert_eq!(config, wanted, "{value}");
        }
        assert!(has(&pod(&json!([own("a")])), "a") && !has(&pod(&json!([own("a")])), "b"));
        assert!(has(&pod(&json!([other])), "") && !has(&pod(&json!([own("a")])), ""));
    }
}
