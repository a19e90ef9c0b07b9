//! OpenShift's pools of machines: what their kubelets are to have, and whether they have it.
//!
//! In: MachineConfigPools, KubeletConfigs and nodes. Out: the pools that a controller follows; the moment in which all
//! machines have what their pool has, or are as before. Never: a pool whose machines nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::facts::{Facts, NodeFacts};
use crate::fixture::Fixture;
use crate::object;
use crate::observed::Observed;
use crate::settled;
use crate::spec::Result;
use crate::undo::Target;
use crate::verdict::marks;

/// The pool of machines that are in no other.
pub const WORKER: &str = "worker";
/// The pool of the control plane.
pub const MASTER: &str = "master";

/// The group of pools and KubeletConfigs.
const GROUP: &str = "machineconfiguration.openshift.io";
const POOLS: &str = "machineconfigpools.machineconfiguration.openshift.io";
/// Annotations of nodes: what they have, what they are to have, how far they are.
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
const DESIRED: &str = "machineconfiguration.openshift.io/desiredConfig";
const STATE: &str = "machineconfiguration.openshift.io/state";

/// A pool at the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The nodes that have its configuration and nothing else to do.
    pub nodes: BTreeSet<String>,
    /// Its KubeletConfig, or the one that is missing.
    pub kubelet_config: std::result::Result<String, String>,
}

/// What a pool says of its machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// The configuration that they are to have.
    pub config: String,
    /// How many there are.
    pub machines: i64,
    /// Whether all have it and are ready.
    pub is_done: bool,
}

/// Pools and nodes before a spec, as far as the spec may change them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The pools that were up to date.
    pools: BTreeMap<String, PoolStatus>,
    /// Labels, taints and cordons of nodes.
    marks: BTreeMap<String, Value>,
}

/// How far the changes of a spec reach. Others change the rest of the cluster meanwhile, and put it back in their own
/// time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere: nothing runs beside the spec.
    Cluster,
    /// To its own nodes: labels and taints, but no pool.
    Nodes(BTreeSet<String>),
}

impl Reach {
    /// Whether the spec may change a node.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Nodes(nodes) => nodes.contains(node),
        }
    }
}

/// A MachineConfigPool.
#[must_use]
pub fn pool(name: &str) -> Target {
    target("MachineConfigPool", "machineconfigpools", name)
}

/// A KubeletConfig.
#[must_use]
pub fn kubelet_config(name: &str) -> Target {
    target("KubeletConfig", "kubeletconfigs", name)
}

/// The label of the nodes of a pool.
#[must_use]
pub fn role(pool: &str) -> String {
    format!("node-role.kubernetes.io/{pool}")
}

/// The label of a pool by which KubeletConfigs select it.
pub(crate) fn pool_label(pool: &str) -> String {
    format!("pools.operator.{GROUP}/{pool}")
}

/// An object of the group.
pub(crate) fn target(kind: &str, plural: &str, name: &str) -> Target {
    Target::new((&format!("{GROUP}/v1"), kind, plural), "", name)
}

impl Pool {
    /// The pools of a cluster that a controller follows.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn all(
        client: &Client,
        kinds: &BTreeSet<String>,
        state: &Observed,
    ) -> anyhow::Result<Vec<Self>> {
        if !kinds.contains(POOLS) {
            return Ok(Vec::new());
        }
        let pools = pool("").api(client).list(&ListParams::default()).await?.items;
        let configs = match kubelet_config("").api(client).list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(error) if runtime::client::is_not_found(&error) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let read = pools.iter().map(|pool| Self::of(pool, &configs, state));
        Ok(read.filter(|pool| !pool.nodes.is_empty()).collect())
    }

    fn of(pool: &DynamicObject, configs: &[DynamicObject], state: &Observed) -> Self {
        let config = text(&pool.data["spec"]["configuration"]["name"]);
        let has_it = |node: &Node| {
            let is = |key: &str, value: &str| node.annotations().get(key).is_some_and(|found| found == value);
            !config.is_empty() && is(CURRENT, &config) && is(DESIRED, &config) && is(STATE, "Done")
        };
        let nodes = state.nodes.iter().filter(|(_, node)| has_it(node)).map(|(name, _)| name.clone());
        Self {
            name: pool.name_any(),
            nodes: nodes.collect(),
            kubelet_config: chosen(pool, configs).map(ResourceExt::name_any),
        }
    }
}

/// The KubeletConfig of a pool, the newest of several, if a spec may change it.
fn chosen<'c>(
    pool: &DynamicObject,
    configs: &'c [DynamicObject],
) -> std::result::Result<&'c DynamicObject, String> {
    let selects = |config: &&DynamicObject| {
        let stated = config.data["spec"]["machineConfigPoolSelector"].clone();
        let stated = serde_json::from_value::<LabelSelector>(stated).ok();
        let selector = stated.and_then(|stated| Selector::try_from(stated).ok());
        selector.is_some_and(|selector| !selector.selects_all() && selector.matches(pool.labels()))
    };
    let newest = configs.iter().filter(selects).max_by_key(|config| config.creation_timestamp());
    let found = newest.ok_or_else(|| format!("a KubeletConfig of MachineConfigPool {}", pool.name_any()))?;
    let name = found.name_any();
    let owner = found.owner_references().iter().find(|owner| owner.kind == "PerformanceProfile");
    if let Some(owner) = owner {
        return Err(format!("a KubeletConfig of its own; {name} is PerformanceProfile {}'s", owner.name));
    }
    match found.data["spec"]["kubeletConfig"].is_object() {
        true => Ok(found),
        false => Err(format!("settings of kubelets in KubeletConfig {name}")),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Facts {
    /// The pool of these nodes and its KubeletConfig, through which their kubelets can be changed.
    ///
    /// # Errors
    /// The capability that is missing.
    pub fn reconfigurable(&self, nodes: &[&NodeFacts]) -> std::result::Result<(&Pool, &str), String> {
        let has_all = |pool: &&Pool| nodes.iter().all(|node| pool.nodes.contains(&node.name));
        let found = self.pools.iter().find(has_all);
        let found = found.ok_or("a MachineConfigPool of all aligning nodes that a controller follows")?;
        Ok((found, found.kubelet_config.as_ref().map_err(Clone::clone)?))
    }

    /// A node of these that can be moved to another pool while another one stays.
    ///
    /// # Errors
    /// The capability that is missing.
    pub fn movable<'n>(&self, nodes: &[&'n NodeFacts]) -> std::result::Result<&'n NodeFacts, String> {
        let workers = self.pool(WORKER).filter(|pool| pool.nodes.len() > 1);
        let workers = workers.ok_or("two nodes in MachineConfigPool worker, of which one can be moved")?;
        let found = nodes.iter().rev().find(|node| workers.nodes.contains(&node.name));
        found.copied().ok_or_else(|| "an aligning node in MachineConfigPool worker".to_owned())
    }

    /// A pool that a controller follows.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }
}

impl PoolStatus {
    /// What a pool says now.
    #[must_use]
    pub fn of(pool: &DynamicObject) -> Self {
        let (spec, status) = (&pool.data["spec"], &pool.data["status"]);
        let count = |field: &str| status[field].as_i64().unwrap_or_default();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_updated =
            conditions.into_iter().any(|one| one["type"] == "Updated" && one["status"] == "True");
        let config = text(&spec["configuration"]["name"]);
        let machines = count("machineCount");
        let counts = ["updatedMachineCount", "readyMachineCount"].map(count);
        let has_it = status["configuration"]["name"] == config.as_str();
        Self { is_done: is_updated && has_it && counts == [machines; 2], config, machines }
    }
}

impl Snapshot {
    /// Pools and nodes now, where a spec reaches them.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn take(cluster: &Cluster, reach: &Reach) -> Result<Self> {
        if cluster.facts.pools.is_empty() {
            return Ok(Self::default());
        }
        let mut snapshot =
            Self { pools: BTreeMap::new(), marks: Self::marks(&cluster.observer.now(), reach) };
        if *reach == Reach::Cluster {
            let pools = pool("").api(&cluster.client).list(&ListParams::default()).await;
            let told = pools.context("listing MachineConfigPools")?.items.into_iter();
            let told = told.map(|pool| (pool.name_any(), PoolStatus::of(&pool)));
            snapshot.pools = told.filter(|(_, told)| told.is_done).collect();
        }
        Ok(snapshot)
    }

    fn marks(state: &Observed, reach: &Reach) -> BTreeMap<String, Value> {
        let mut marks = marks(state);
        marks.retain(|node, _| reach.has(node));
        marks
    }

    /// The first node whose labels, taints or cordon are not as they were.
    fn difference(&self, state: &Observed) -> Option<String> {
        let now = marks(state);
        let (node, before) = self.marks.iter().find(|(node, before)| now.get(*node) != Some(before))?;
        Some(format!("node {node}: {:?}, not {before}", now.get(node)))
    }

    /// Waits until pools, nodes and the kubelets' settings are as they were.
    ///
    /// # Errors
    /// The first that is not in time.
    pub async fn restored(&self, cluster: &Cluster) -> Result {
        for (name, before) in &self.pools {
            let what = format!("MachineConfigPool {name} is as before");
            let limit = cluster.settings.rollout;
            object::until(cluster, &pool(name), (&what, limit), |found| match found.map(PoolStatus::of) {
                Some(now) if now == *before => Ok(()),
                now => Err(format!("it says {now:?}, before {before:?}")),
            })
            .await?;
        }
        let patience = cluster.settings.patience;
        let same = |state: &Observed| self.difference(state).map_or(Ok(()), Err);
        cluster.observer.until("labels and taints of nodes are as before", patience, same).await?;
        for node in cluster.facts.nodes.iter().filter(|node| self.marks.contains_key(&node.name)) {
            let what = format!("the kubelet of node {} has its settings again", node.name);
            let same = |state: &Observed| match settled::settled(state, &node.name)?.rules {
                rules if rules == node.rules() => Ok(()),
                rules => Err(format!("its report says {rules:?}")),
            };
            cluster.observer.until(&what, patience, same).await?;
        }
        Ok(())
    }
}

/// Deletes the pools and KubeletConfigs that a selector names. A pool is deleted once it has no machines: from the
/// configuration of a pool that is gone they could not find the way to another one.
///
/// # Errors
/// When one cannot be deleted, or machines stay.
pub(crate) async fn sweep(cluster: &Cluster, selector: &str) -> Result {
    if !cluster.facts.kinds.contains(POOLS) {
        return Ok(());
    }
    let chosen = ListParams::default().labels(selector);
    let listed = pool("").api(&cluster.client).list(&chosen).await.context("listing MachineConfigPools")?;
    for name in listed.iter().map(ResourceExt::name_any) {
        let what = format!("MachineConfigPool {name} has no machines");
        let limit = (&*what, cluster.settings.rollout);
        object::until(cluster, &pool(&name), limit, |found| match found.map(PoolStatus::of) {
            Some(told) if told.machines > 0 => Err(format!("it has {}", told.machines)),
            _ => Ok(()),
        })
        .await?;
    }
    for target in [kubelet_config(""), pool("")] {
        let deleted = target.api(&cluster.client).delete_collection(&DeleteParams::default(), &chosen).await;
        match deleted {
            Err(error) if !runtime::client::is_not_found(&error) => {
                return Err(error).with_context(|| format!("deleting {}", target.plural));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Fixture {
    /// Makes a pool for the nodes with its role, of which there are none yet. Its machines have what workers have.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn make_pool(&self, name: &str) -> Result {
        let takes = json!({ "key": format!("{GROUP}/role"), "operator": "In", "values": [WORKER, name] });
        let spec = json!({
            "machineConfigSelector": { "matchExpressions": [takes] },
            "nodeSelector": { "matchLabels": { role(name): "" } },
        });
        let labels = json!({ pool_label(name): "" });
        self.make(&pool(name), json!({ "metadata": { "labels": labels }, "spec": spec })).await?;
        Ok(())
    }

    /// Makes a KubeletConfig for the pools with a label that [`Fixture::make_pool`] gives them.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn make_kubelet_config(&self, name: &str, of_pool: &str, mut spec: Value) -> Result<Target> {
        spec["machineConfigPoolSelector"] = json!({ "matchLabels": { pool_label(of_pool): "" } });
        let target = kubelet_config(name);
        self.make(&target, json!({ "spec": spec })).await?;
        Ok(target)
    }

    /// Moves a node to a pool, and waits until the pool's only machine is up to date.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn move_to(&self, name: &str, node: &str) -> Result {
        let pointer = format!("/metadata/labels/{}", role(name).replace('/', "~1"));
        self.set(&Target::node(node), &pointer, Some(json!(""))).await?;
        self.rolled_out(name, |told| told.machines == 1).await
    }

    /// What a pool says now.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn told(&self, name: &str) -> Result<PoolStatus> {
        let found = pool(name).api(&self.cluster().client).get(name).await;
        Ok(PoolStatus::of(&found.with_context(|| format!("reading MachineConfigPool {name}"))?))
    }

    /// Waits until all machines of a pool have what it has, and `holds` says that it is the right thing.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn rolled_out(&self, name: &str, holds: impl Fn(&PoolStatus) -> bool) -> Result {
        let cluster = self.cluster();
        let what = format!("the machines of MachineConfigPool {name} are up to date");
        let limit = (&*what, cluster.settings.rollout);
        object::until(cluster, &pool(name), limit, |found| {
            match found.map(PoolStatus::of).ok_or("it is not there")? {
                told if told.is_done && holds(&told) => Ok(()),
                told => Err(format!("it says {told:?}")),
            }
        })
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn node(current: &str, desired: &str, state: &str) -> Arc<Node> {
        let annotations = json!({ CURRENT: current, DESIRED: desired, STATE: state });
        Arc::new(serde_json::from_value(json!({ "metadata": { "annotations": annotations } })).unwrap())
    }

    fn workers() -> DynamicObject {
        let conditions = json!([{ "type": "Updated", "status": "True" }]);
        object(json!({
            "metadata": { "name": "worker", "labels": { "pool": "worker" } },
            "spec": { "configuration": { "name": "r-1" } },
            "status": { "configuration": { "name": "r-1" }, "conditions": conditions,
                "machineCount": 2, "updatedMachineCount": 2, "readyMachineCount": 2 },
        }))
    }

    /// Another spec has tainted node `b`, and takes the taint back after this one has begun.
    #[test]
    fn a_spec_on_its_own_nodes_is_not_blamed_for_those_of_others() {
        let state = |tainted: &[&str]| {
            let mut state = Observed::default();
            for name in ["a", "b"] {
                let taints = tainted.contains(&name).then(|| json!([{ "key": "k", "effect": "NoSchedule" }]));
                let node = json!({ "metadata": { "name": name }, "spec": { "taints": taints } });
                state.nodes.insert(name.to_owned(), Arc::new(serde_json::from_value(node).unwrap()));
            }
            state
        };
        let differs = |reach: &Reach, tainted: &[&str]| {
            let marks = Snapshot::marks(&state(&["b"]), reach);
            Snapshot { marks, ..Snapshot::default() }.difference(&state(tainted)).is_some()
        };
        let own = Reach::Nodes(["a".to_owned()].into());
        for (reach, tainted, wanted) in [
            (&own, &["b"][..], false),
            (&own, &[], false),
            (&own, &["a", "b"], true),
            (&Reach::Cluster, &["b"], false),
            (&Reach::Cluster, &[], true),
            (&Reach::Cluster, &["a", "b"], true),
        ] {
            assert_eq!(differs(reach, tainted), wanted, "{reach:?} {tainted:?}");
        }
    }

    #[test]
    fn a_pool_has_the_nodes_with_its_configuration() {
        let mut state = Observed::default();
        for (name, node) in [
            ("a", node("r-1", "r-1", "Done")),
            ("b", node("r-1", "r-2", "Done")),
            ("c", node("r-1", "r-1", "Working")),
            ("d", node("r-2", "r-2", "Done")),
            ("e", Arc::default()),
        ] {
            state.nodes.insert(name.to_owned(), node);
        }
        let pool = Pool::of(&workers(), &[], &state);
        assert_eq!(pool.nodes.into_iter().collect::<Vec<_>>(), ["a"]);
        // A pool that nothing has rendered has no nodes, not those without annotations.
        let bare = object(json!({ "metadata": { "name": "bare" }, "spec": {} }));
        assert!(Pool::of(&bare, &[], &state).nodes.is_empty());
    }

    #[test]
    fn the_newest_kubelet_config_counts_unless_a_profile_owns_it() {
        let config = |name: &str, created: &str, labels: Value, owner: &str, settings: Value| {
            let owner = json!([{ "apiVersion": "v", "kind": owner, "name": "o", "uid": "u" }]);
            object(json!({
                "metadata": { "name": name, "creationTimestamp": created, "ownerReferences": owner },
                "spec": { "machineConfigPoolSelector": { "matchLabels": labels }, "kubeletConfig": settings },
            }))
        };
        let workers_only = || json!({ "pool": "worker" });
        let old = config("old", "2026-01-01T00:00:00Z", workers_only(), "X", json!({}));
        let new = config("new", "2026-01-02T00:00:00Z", workers_only(), "X", json!({}));
        let other = config("other", "2026-01-03T00:00:00Z", json!({ "pool": "infra" }), "X", json!({}));
        let of_all = config("all", "2026-01-03T00:00:00Z", json!({}), "X", json!({}));
        let owned = config("owned", "2026-01-04T00:00:00Z", workers_only(), "PerformanceProfile", json!({}));
        let bare = config("bare", "2026-01-05T00:00:00Z", workers_only(), "X", Value::Null);
        let check = |configs: &[&DynamicObject], expected: std::result::Result<&str, &str>| {
            let configs: Vec<DynamicObject> = configs.iter().map(|config| (*config).clone()).collect();
            match (chosen(&workers(), &configs), expected) {
                (Ok(found), Ok(name)) => assert_eq!(found.name_any(), name),
                (Err(missing), Err(text)) => assert!(missing.contains(text), "{missing}"),
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        };
        check(&[&old, &new, &other, &of_all], Ok("new"));
        check(&[&other, &of_all], Err("a KubeletConfig of MachineConfigPool worker"));
        check(&[&new, &owned], Err("PerformanceProfile o"));
        check(&[&new, &bare], Err("settings of kubelets in KubeletConfig bare"));
    }

    #[test]
    fn a_pool_is_done_when_all_its_machines_have_what_it_has() {
        let told = |change: Value| {
            let mut pool = workers();
            if let (Some(status), Some(change)) = (pool.data["status"].as_object_mut(), change.as_object()) {
                status.extend(change.clone());
            }
            PoolStatus::of(&pool).is_done
        };
        assert!(told(json!({})));
        assert!(!told(json!({ "configuration": { "name": "r-0" } })));
        assert!(!told(json!({ "updatedMachineCount": 1 })));
        assert!(!told(json!({ "readyMachineCount": 1 })));
        assert!(!told(json!({ "conditions": [{ "type": "Updated", "status": "False" }] })));
    }

    #[test]
    fn a_pool_can_be_changed_and_a_worker_moved_if_a_controller_follows() {
        let node = |name: &str| {
            let report: api::nrt::NodeResourceTopology = serde_json::from_value(json!({
                "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
                "metadata": { "name": name }, "zones": [],
            }))
            .unwrap();
            let (topology, _) = api::convert::node_topology(&report).unwrap();
            NodeFacts {
                name: name.to_owned(),
                topology,
                allocatable: <_>::default(),
                base_load: <_>::default(),
            }
        };
        let facts = |pools: &[(&str, &[&str], std::result::Result<&str, &str>)]| {
            let mut facts = Facts::new(BTreeSet::new());
            facts.pools = pools
                .iter()
                .map(|(name, nodes, config)| Pool {
                    name: (*name).to_owned(),
                    nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
                    kubelet_config: config.map(str::to_owned).map_err(str::to_owned),
                })
                .collect();
            facts
        };
        let (a, b) = (node("a"), node("b"));
        let both = [&a, &b];
        let whole = facts(&[("infra", &["c"], Ok("c")), ("worker", &["a", "b"], Ok("numa"))]);
        assert_eq!(
            whole.reconfigurable(&both).map(|(pool, config)| (&*pool.name, config)),
            Ok(("worker", "numa"))
        );
        // The last one: the first is the target of specs.
        assert_eq!(whole.movable(&both).map(|node| &*node.name), Ok("b"));
        for (pools, config, moved) in [
            (facts(&[]), "a MachineConfigPool", "two nodes"),
            (
                facts(&[("worker", &["a"], Ok("numa")), ("x", &["b"], Ok("x"))]),
                "a MachineConfigPool",
                "two nodes",
            ),
            (facts(&[("worker", &["c", "d"], Ok("numa"))]), "a MachineConfigPool", "an aligning node"),
        ] {
            assert!(pools.reconfigurable(&both).unwrap_err().starts_with(config), "{:?}", pools.pools);
            assert!(pools.movable(&both).unwrap_err().starts_with(moved), "{:?}", pools.pools);
        }
        let bare = facts(&[("worker", &["a", "b"], Err("a KubeletConfig"))]);
        assert_eq!(bare.reconfigurable(&both).unwrap_err(), "a KubeletConfig");
    }
}
