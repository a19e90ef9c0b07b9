//! What a cluster can do.
//!
//! In: the observed state, a few questions to the API server. Out: [`Facts`]. Never: an error for something that is
//! missing; specs name it when they need it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use topology::policy::{Policy, Rules, Scope};
use topology::resource::ResourceName;
use topology::zone::NodeTopology;

use crate::amounts::{Amounts, Scale};
use crate::machines::Pool;
use crate::observed::{Observed, Observer};
use crate::platform::Platform;
use crate::undo::Target;
use crate::{rights, settled};

/// The group of the operator's kinds.
const OPERATOR_GROUP: &str = "nodetopology.openshift.io";

/// The label of nodes that run the cluster's own programs.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// The scheduler of every cluster.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The most unused nodes that a line names.
const MOST_UNUSED: usize = 3;

/// A node that pods may be sent to.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its settled report at the beginning.
    pub topology: NodeTopology,
    /// What the kubelet offers to pods in all.
    pub allocatable: Amounts,
    /// What the pods that are there at the beginning request.
    pub base_load: Amounts,
}

/// An object of a cluster-scoped kind.
#[derive(Clone, Debug)]
pub struct Singleton {
    /// The kind.
    pub resource: ApiResource,
    /// The object.
    pub object: DynamicObject,
}

/// What a cluster can do.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Nodes that are ready, take pods, and have a report, by name.
    pub nodes: Vec<NodeFacts>,
    /// All other nodes, with the reason why they are not used.
    pub unused: BTreeMap<String, String>,
    /// The scheduler under test, once it has bound a pod.
    pub scheduler: Option<String>,
    /// Whether the default scheduler has bound a pod.
    pub default_scheduler: bool,
    /// The NUMAResourcesOperator object.
    pub operator: Option<Singleton>,
    /// The NUMAResourcesScheduler object.
    pub scheduler_object: Option<Singleton>,
    /// The platform.
    pub platform: Platform,
    /// The pools of machines that a controller follows.
    pub pools: Vec<Pool>,
    /// The kinds that the API server has, as `plural.group`.
    pub kinds: BTreeSet<String>,
    /// Whether commands may be run in containers.
    pub exec: bool,
    /// The names of the devices `dev1` to `dev3`, or why there are none.
    pub devices: Result<[String; 3], String>,
}

impl NodeFacts {
    /// How its kubelet admits pods.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.topology.rules
    }

    /// Whether its kubelet rejects pods that no single zone can hold, and there is a choice of zones.
    #[must_use]
    pub fn aligns(&self) -> bool {
        self.rules().policy == Policy::SingleNumaNode && self.topology.zones.len() > 1
    }

    /// Whether it does so by this scope.
    #[must_use]
    pub fn aligns_by(&self, scope: Scope) -> bool {
        self.aligns() && self.rules().scope == scope
    }

    /// Whether a zone has the resource.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let resources = self.topology.zones.iter().flat_map(|zone| &zone.resources);
        resources.filter(|resource| resource.name.as_str() == name).any(|resource| resource.allocatable > 0)
    }

    /// What the pods that are there at the beginning keep from a zone, if their CPUs come from it: whole cores.
    #[must_use]
    pub fn base(&self) -> Amounts {
        self.base_load.clone().whole_cores(i64::from(self.topology.threads_per_core.unwrap_or(1)))
    }

    /// The CPUs of its largest zone, whether free or not, in base units.
    #[must_use]
    pub fn most_cpus(&self) -> i64 {
        let resources = self.topology.zones.iter().flat_map(|zone| &zone.resources);
        let cpus = resources.filter(|resource| resource.name == ResourceName::CPU);
        cpus.map(|resource| resource.allocatable).max().unwrap_or_default()
    }

    /// What the zone with the fewest resources has: the smallest amount of each.
    #[must_use]
    pub fn smallest_zone(&self) -> Amounts {
        let free = self.topology.available();
        let zones = self.topology.zones.iter().map(|zone| Amounts::of_zone(&free, zone.id));
        zones.reduce(|a, b| a.min(&b)).unwrap_or_default()
    }
}

impl Facts {
    /// Nothing is known but the kinds.
    #[must_use]
    pub fn new(kinds: BTreeSet<String>) -> Self {
        Self {
            nodes: Vec::new(),
            unused: BTreeMap::new(),
            scheduler: None,
            default_scheduler: false,
            operator: None,
            scheduler_object: None,
            platform: Platform::default(),
            pools: Vec::new(),
            kinds,
            exec: false,
            devices: Err("they are not deployed yet".to_owned()),
        }
    }

    /// Asks the cluster.
    ///
    /// # Errors
    /// When the API server does not answer, or the reports cannot be read at all.
    pub async fn gather(client: &Client, observer: &Observer, patience: Duration) -> anyhow::Result<Self> {
        let kinds = Self::kinds(client).await?;
        let mut facts = Self::new(kinds);
        facts.operator = facts.singleton(client, "numaresourcesoperators", "NUMAResourcesOperator").await?;
        facts.scheduler_object =
            facts.singleton(client, "numaresourcesschedulers", "NUMAResourcesScheduler").await?;
        facts.nodes(observer, patience).await;
        facts.platform = Platform::of(client, &facts.kinds).await?;
        facts.pools = Pool::all(client, &facts.kinds, &observer.now()).await?;
        facts.exec = rights::may(client, &rights::EXEC).await?;
        Ok(facts)
    }

    /// Fails where no exporter can report.
    ///
    /// # Errors
    /// The kind of reports is missing.
    pub fn require_reports(kinds: &BTreeSet<String>) -> anyhow::Result<()> {
        anyhow::ensure!(
            kinds.contains(&format!("noderesourcetopologies.{}", group())),
            "the cluster has no NodeResourceTopology kind: no exporter is installed; `tholepin deploy` installs ours"
        );
        Ok(())
    }

    /// Fails where no node can be used.
    ///
    /// # Errors
    /// Each node with the reason why it is not used.
    pub fn require_nodes(&self) -> anyhow::Result<()> {
        let unused: Vec<_> = self.unused.iter().map(|(node, reason)| format!("{node}: {reason}")).collect();
        let reasons = if unused.is_empty() { "there are no nodes".to_owned() } else { unused.join("; ") };
        anyhow::ensure!(!self.nodes.is_empty(), "no node can be used: {reasons}");
        Ok(())
    }

    /// The nodes in a line: how many admit pods by which policy and scope, and which are not used.
    #[must_use]
    pub fn nodes_line(&self) -> String {
        let mut alike = BTreeMap::<(&str, &str), usize>::new();
        for rules in self.nodes.iter().map(NodeFacts::rules) {
            *alike.entry((rules.policy.as_str(), rules.scope.as_str())).or_default() += 1;
        }
        let used = alike.iter().map(|((policy, scope), count)| format!("{count} {policy} (scope {scope})"));
        let mut line = format!("nodes: {}", used.collect::<Vec<_>>().join(", "));
        let unused = self.unused.iter().take(MOST_UNUSED).map(|(node, reason)| format!("{node}: {reason}"));
        let unused = unused.collect::<Vec<_>>().join(", ");
        if !unused.is_empty() {
            line += &format!("; not used: {unused}");
        }
        match self.unused.len().saturating_sub(MOST_UNUSED) {
            0 => line,
            more => format!("{line}, and {more} more"),
        }
    }

    /// The kinds of the API server, as `plural.group`; those of the core group are not listed.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn kinds(client: &Client) -> anyhow::Result<BTreeSet<String>> {
        let groups = client.list_api_groups().await.map_err(|error| {
            anyhow::anyhow!("the API server cannot be reached: {}", runtime::client::brief(&error))
        })?;
        let mut kinds = BTreeSet::new();
        for group in groups.groups {
            let Some(version) = group.preferred_version.or_else(|| group.versions.into_iter().next()) else {
                continue;
            };
            // A broken aggregated API is none of our business.
            let Ok(list) = client.list_api_group_resources(&version.group_version).await else { continue };
            kinds.extend(
                list.resources.into_iter().map(|resource| format!("{}.{}", resource.name, group.name)),
            );
        }
        Ok(kinds)
    }

    /// Whether the API server has the kind of an object.
    #[must_use]
    pub fn has(&self, target: &Target) -> bool {
        let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
        group.is_empty() || self.kinds.contains(&format!("{}.{group}", target.plural))
    }

    /// The scopes of the nodes that align, that of most nodes first; containers first where there are as many of each.
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        let count = |scope| self.nodes.iter().filter(|node| node.aligns_by(scope)).count();
        let mut scopes = vec![Scope::Container, Scope::Pod];
        scopes.retain(|scope| count(*scope) > 0);
        scopes.sort_by_key(|scope| std::cmp::Reverse(count(*scope)));
        scopes
    }

    /// The units of tables here.
    #[must_use]
    pub fn scale(&self) -> Scale {
        let threads = self.nodes.iter().filter_map(|node| node.topology.threads_per_core).max().unwrap_or(1);
        // Whole cores only, or not: a multiple of a core's threads is right in both cases.
        let devices = self.devices.clone().unwrap_or_default();
        Scale { cpus: i64::from(threads.max(1)), devices }
    }

    /// The name of the scheduler that the operator runs.
    #[must_use]
    pub fn stated_scheduler(&self) -> Option<String> {
        let status = self.scheduler_object.as_ref()?.object.data.get("status")?;
        status.get("schedulerName")?.as_str().map(str::to_owned)
    }

    /// Whether the scheduler under test evicts pods for others of higher priority: the default scheduler does, that of
    /// the operator if it is told to.
    #[must_use]
    pub fn preempts(&self) -> bool {
        let mode = self.scheduler_object.as_ref().map(|found| &found.object.data["spec"]["preemptionMode"]);
        let is_told = mode.is_some_and(|mode| mode == "Enabled") && self.scheduler == self.stated_scheduler();
        self.scheduler.is_some() && (is_told || self.scheduler.as_deref() == Some(DEFAULT_SCHEDULER))
    }

    async fn singleton(
        &self,
        client: &Client,
        plural: &str,
        kind: &str,
    ) -> anyhow::Result<Option<Singleton>> {
        if !self.kinds.contains(&format!("{plural}.{OPERATOR_GROUP}")) {
            return Ok(None);
        }
        let gvk = kube::api::GroupVersionKind::gvk(OPERATOR_GROUP, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let list =
            Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await;
        match list {
            Ok(list) => Ok(list.items.into_iter().next().map(|object| Singleton { resource, object })),
            Err(error) if runtime::client::is_forbidden(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sorts the nodes into those that are used and the others. Nodes whose reports are not settled get some time.
    async fn nodes(&mut self, observer: &Observer, patience: Duration) {
        for (name, node) in observer.now().nodes {
            if let Some(reason) = unusable(&node) {
                self.unused.insert(name, reason);
                continue;
            }
            if !observer.now().reports.contains_key(&name) {
                self.unused.insert(name, "no exporter reports about it".to_owned());
                continue;
            }
            let what = format!("the report of node {name} is settled");
            match observer.until(&what, patience, |state| settled::settled(state, &name)).await {
                Ok(topology) => {
                    let state = observer.now();
                    let base_load = requested(&state, &name);
                    self.nodes.push(NodeFacts { allocatable: allocatable(&node), base_load, topology, name });
                }
                Err(timeout) => {
                    self.unused.insert(name, timeout.last);
                }
            }
        }
    }
}

fn group() -> String {
    <NodeResourceTopology as kube::Resource>::group(&()).into_owned()
}

/// Why pods should not be sent to a node.
fn unusable(node: &Node) -> Option<String> {
    let spec = node.spec.as_ref();
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        return Some("it is cordoned".to_owned());
    }
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    if let Some(taint) = taints.iter().find(|taint| taint.effect != "PreferNoSchedule") {
        return Some(format!("it has the taint {}:{}", taint.key, taint.effect));
    }
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready =
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    (!is_ready).then(|| "it is not ready".to_owned())
}

/// What the kubelet offers in all.
fn allocatable(node: &Node) -> Amounts {
    let listed = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amounts = listed.into_iter().flatten().filter_map(|(name, quantity)| {
        let name = ResourceName::new(name).ok()?;
        let quantity = topology::quantity::Quantity::parse(&quantity.0).ok()?;
        Some((name, api::convert::amount_available(name, quantity)))
    });
    Amounts::of(amounts)
}

/// What the pods of a node request of its totals.
#[must_use]
pub fn requested(state: &Observed, node: &str) -> Amounts {
    let requests = settled::pods(state, node).filter_map(|pod| api::convert::pod_request(pod).ok());
    requests.fold(Amounts::default(), |sum, request| {
        let needs = request.needs();
        sum.plus(&Amounts::of(needs.totals.iter().map(|need| (need.name, need.amount))))
    })
}

#[cfg(test)]
mod tests {
    use api::keys;
    use kube::api::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::need::Need;

    #[test]
    fn the_default_scheduler_preempts_and_another_if_it_is_told_to() {
        for (tested, mode, wanted) in [
            (None, json!("Enabled"), false),
            (Some("default-scheduler"), json!(null), true),
            (Some("ours"), json!(null), false),
            (Some("ours"), json!("Disabled"), false),
            (Some("ours"), json!("Enabled"), true),
            (Some("another"), json!("Enabled"), false),
        ] {
            let kind = GroupVersionKind::gvk(OPERATOR_GROUP, "v1", "NUMAResourcesScheduler");
            let resource = ApiResource::from_gvk(&kind);
            let mut object = DynamicObject::new("s", &resource);
            object.data =
                json!({ "spec": { "preemptionMode": mode }, "status": { "schedulerName": "ours" } });
            let mut facts = Facts::new(BTreeSet::new());
            facts.scheduler = tested.map(str::to_owned);
            facts.scheduler_object = Some(Singleton { resource, object });
            assert_eq!(facts.preempts(), wanted, "{tested:?} {mode}");
        }
    }

    /// A node with two zones.
    fn node(name: &str, policy: &str, scope: &str) -> NodeFacts {
        let attribute = |name: &str, value: &str| json!({ "name": name, "value": value });
        let attributes = [attribute(keys::ATTRIBUTE_POLICY, policy), attribute(keys::ATTRIBUTE_SCOPE, scope)];
        let zone = |zone| json!({ "name": format!("node-{zone}"), "type": "Node", "resources": [] });
        let report = json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": { "name": name }, "attributes": attributes, "zones": [zone(0), zone(1)],
        });
        let report: NodeResourceTopology = serde_json::from_value(report).unwrap();
        let (topology, _) = api::convert::node_topology(&report).unwrap();
        let (allocatable, base_load) = Default::default();
        NodeFacts { name: name.to_owned(), topology, allocatable, base_load }
    }

    #[test]
    fn a_line_tells_a_single_node_and_mixed_policies() {
        let none = Facts::new(BTreeSet::new());
        assert_eq!(none.require_nodes().unwrap_err().to_string(), "no node can be used: there are no nodes");
        let mut facts = Facts { nodes: vec![node("a", "single-numa-node", "pod")], ..none };
        assert_eq!(facts.nodes_line(), "nodes: 1 single-numa-node (scope pod)");
        let skipped = |facts: &Facts, needs: &[Need]| Need::groups(needs, None, facts).unwrap_err();
        assert_eq!(
            skipped(&facts, &[Need::Aligning(2)]),
            "2 nodes with policy single-numa-node and two zones or more; there are 1"
        );
        facts.nodes.push(node("b", "restricted", "container"));
        facts.nodes.push(node("c", "single-numa-node", "pod"));
        let cordoned = ["d", "e", "f", "g", "h"].map(|name| (name.to_owned(), "it is cordoned".to_owned()));
        facts.unused = cordoned.into();
        assert_eq!(
            facts.nodes_line(),
            "nodes: 1 restricted (scope container), 2 single-numa-node (scope pod); not used: \
             d: it is cordoned, e: it is cordoned, f: it is cordoned, and 2 more"
        );
        assert!(Need::groups(&[Need::Aligning(2)], None, &facts).is_ok());
        assert_eq!(
            skipped(&facts, &[Need::Scope(Scope::Container)]),
            "nodes with topology manager scope container"
        );
    }
}
