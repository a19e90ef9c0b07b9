//! Keeps the world true.
//!
//! In: watches. Out: a [`crate::world::World`] and which controllers it matters to. Never: more of an object than somebody reads.
//!
//! What is watched is a table, [`all`]; it depends on the platform alone. Kinds that the server does not know have no objects and are
//! waited for. Kinds with a namespace are watched in the operator's, whole, because an object whose mark was taken away is still
//! to be found; of kinds without one only what bears the mark, for there are megabytes of the others.

pub mod kubelets;
pub mod legacy;
mod nodes;
mod read;
mod take;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;

use api::numaresources::{self, keys, operator, scheduler};
use deployer::platform::Platform;
use kube::core::ApiResource;
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use objects::ObjectKind;
use runtime::client::Connection;
use runtime::ready::{Gate, Readiness};
use runtime::shutdown::Tasks;
use runtime::tls::Policy;
use runtime::watch::{self, Event, Metrics};
use runtime::wire::{Raw, Texts, Wire};
use tokio::sync::Notify;
use tokio::sync::watch::Sender;

use crate::desired::{Controller, MANAGED_BY, MANAGER};
use crate::reconcile::{ControllerSet, Shared};
use crate::tls;
use crate::world::{Place, TlsProfile, World};
use nodes::WireNode;
use take::Named;

/// HyperShift: where it keeps the KubeletConfigs of NodePools.
pub const NODE_POOL_NAMESPACE: &str = "openshift-config-managed";
/// The NodeResourceTopology definition.
pub const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";

/// What a part of the world is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// NUMAResourcesOperators.
    Operator,
    /// NUMAResourcesSchedulers.
    Scheduler,
    /// MachineConfigPools.
    Pool,
    /// KubeletConfigs.
    KubeletConfig,
    /// HyperShift's ConfigMaps.
    NodePoolConfig,
    /// Nodes.
    Node,
    /// What kubelets answer.
    Kubelet,
    /// What TLS servers are to be like.
    Tls,
    /// Objects that may be ours.
    Live,
}

/// A watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// What it is about.
    pub fact: Fact,
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace; none: all, or the kind has none.
    pub namespace: Option<String>,
    /// A label selector; empty: all.
    pub labels: String,
    /// The only name; empty: all.
    pub name: String,
}

/// Who is told by watches.
#[derive(Clone, Debug)]
pub struct Hearers {
    /// The world and its controllers.
    pub shared: Arc<Shared>,
    /// What our own servers offer.
    pub policy: Sender<Policy>,
    /// Whoever tells of what cannot be read.
    pub unreadable: Sender<()>,
    /// Whoever asks kubelets: nodes or groups have changed.
    pub nodes: Arc<Notify>,
}

impl Fact {
    /// The controllers that have to look again when something of this has changed.
    #[must_use]
    pub fn matters_to(self) -> ControllerSet {
        use Controller::{KubeletConfig, NumaResourcesOperator, NumaResourcesScheduler};
        match self {
            Self::Operator | Self::Pool | Self::KubeletConfig | Self::NodePoolConfig | Self::Kubelet => {
                [KubeletConfig, NumaResourcesOperator].into()
            }
            Self::Scheduler => [NumaResourcesScheduler].into(),
            Self::Node | Self::Tls => [NumaResourcesOperator, NumaResourcesScheduler].into(),
            Self::Live => Controller::ALL.into(),
        }
    }
}

impl Watch {
    fn all(fact: Fact, kind: ObjectKind) -> Self {
        Self { fact, kind, namespace: None, labels: String::new(), name: String::new() }
    }

    fn resource(&self) -> ApiResource {
        self.kind.resource()
    }

    /// What people call it: unique among the watches of one process.
    fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.kind.plural),
            None => self.kind.plural.clone(),
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        if !self.labels.is_empty() {
            config = config.labels(&self.labels);
        }
        if !self.name.is_empty() {
            config = config.fields(&format!("metadata.name={}", self.name));
        }
        config
    }

    fn api<B>(&self, client: Client) -> Api<Wire<B>> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource()),
            None => Api::all_with(client, &self.resource()),
        }
    }
}

/// Kinds that may have objects of ours in the operator's namespace.
const NAMESPACED: [[&str; 4]; 8] = [
    ["", "v1", "ConfigMap", "configmaps"],
    ["", "v1", "Service", "services"],
    ["", "v1", "ServiceAccount", "serviceaccounts"],
    ["apps", "v1", "DaemonSet", "daemonsets"],
    ["apps", "v1", "Deployment", "deployments"],
    ["networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"],
    ["rbac.authorization.k8s.io", "v1", "Role", "roles"],
    ["rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"],
];

/// Kinds without a namespace that may have objects of ours.
const CLUSTER: [[&str; 4]; 2] = [
    ["rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"],
    ["rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"],
];

const SCC: [&str; 4] =
    ["security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints"];
const MACHINE_CONFIG: [&str; 4] =
    ["machineconfiguration.openshift.io", "v1", "MachineConfig", "machineconfigs"];
const POOL: [&str; 4] =
    ["machineconfiguration.openshift.io", "v1", "MachineConfigPool", "machineconfigpools"];
const KUBELET_CONFIG: [&str; 4] =
    ["machineconfiguration.openshift.io", "v1", "KubeletConfig", "kubeletconfigs"];
const API_SERVER: [&str; 4] = ["config.openshift.io", "v1", "APIServer", "apiservers"];
const NODE: [&str; 4] = ["", "v1", "Node", "nodes"];
const CRD: [&str; 4] =
    ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"];

/// Everything that is watched in this place.
#[must_use]
pub fn all(place: &Place) -> Vec<Watch> {
    let asked = |kind, plural| ObjectKind::new(numaresources::GROUP, numaresources::VERSION, kind, plural);
    let mut all = vec![
        Watch::all(Fact::Operator, asked(operator::KIND, operator::PLURAL)),
        Watch::all(Fact::Scheduler, asked(scheduler::KIND, scheduler::PLURAL)),
        Watch::all(Fact::Node, ObjectKind::from(NODE)),
        Watch { name: DEFINITION.to_owned(), ..Watch::all(Fact::Live, ObjectKind::from(CRD)) },
    ];
    all.extend(NAMESPACED.map(|kind| Watch {
        namespace: Some(place.namespace.clone()),
        ..Watch::all(Fact::Live, ObjectKind::from(kind))
    }));
    all.extend(
        marked(place.platform)
            .into_iter()
            .map(|kind| Watch { labels: format!("{MANAGED_BY}={MANAGER}"), ..Watch::all(Fact::Live, kind) }),
    );
    if place.platform == Platform::OpenShift {
        all.push(Watch::all(Fact::Pool, ObjectKind::from(POOL)));
        all.push(Watch::all(Fact::KubeletConfig, ObjectKind::from(KUBELET_CONFIG)));
    }
    if place.platform == Platform::HyperShift {
        all.push(Watch {
            namespace: Some(NODE_POOL_NAMESPACE.to_owned()),
            labels: keys::LABEL_KUBELET_CONFIG.to_owned(),
            ..Watch::all(Fact::NodePoolConfig, ObjectKind::from(NAMESPACED[0]))
        });
    }
    if place.platform.is_openshift() {
        all.push(profile());
    }
    all
}

/// What OpenShift's TLS servers are to be like.
fn profile() -> Watch {
    Watch { name: "cluster".to_owned(), ..Watch::all(Fact::Tls, ObjectKind::from(API_SERVER)) }
}

/// Kinds without a namespace that are watched by our mark.
fn marked(platform: Platform) -> Vec<ObjectKind> {
    let mut kinds: Vec<ObjectKind> = CLUSTER.map(ObjectKind::from).into();
    if platform.is_openshift() {
        kinds.push(ObjectKind::from(SCC));
    }
    if platform == Platform::OpenShift {
        kinds.push(ObjectKind::from(MACHINE_CONFIG));
    }
    kinds
}

/// Starts all watches as tasks; `readiness` is there once each has told the whole truth of its kind once.
///
/// # Errors
/// When no client can be made.
pub fn start(
    tasks: &mut Tasks,
    connection: &Connection,
    place: &Place,
    metrics: &Metrics,
    readiness: &Readiness,
    hearers: &Hearers,
) -> Result<(), runtime::client::Error> {
    // One client: watches share its connections.
    let client = connection.watch_client()?;
    for watch in all(place) {
        let gate = readiness.gate(watch.title());
        let (client, metrics, hearers) = (client.clone(), metrics.clone(), hearers.clone());
        tasks.spawn("watch", async move {
            Ok::<_, Infallible>(follow(&watch, client, &metrics, &gate, &hearers).await)
        });
    }
    Ok(())
}

/// Has our own servers on OpenShift offer what the cluster wants, where no other watch does.
///
/// # Errors
/// When no client can be made.
pub fn start_profile(
    tasks: &mut Tasks,
    connection: &Connection,
    metrics: &Metrics,
    readiness: &Readiness,
    policy: Sender<Policy>,
) -> Result<(), runtime::client::Error> {
    let watch = profile();
    let api = watch.api(connection.watch_client()?);
    let (metrics, gate) = (metrics.clone(), readiness.gate(watch.title()));
    tasks.spawn("watch", async move {
        let mut known = None;
        let tell = |event: Event<Raw>| {
            let whole = matches!(event, Event::Reset { .. });
            read::tls(&mut known, event);
            offer(known.as_ref(), &policy);
            opened(&gate, whole);
        };
        let never = watch::run_mapped(api, &watch.kind.plural, watch.config(), &metrics, Ok, tell).await;
        Ok::<_, Infallible>(never)
    });
    Ok(())
}

/// Watches for ever.
async fn follow(
    watch: &Watch,
    client: Client,
    metrics: &Metrics,
    gate: &Gate,
    hearers: &Hearers,
) -> Infallible {
    let fact = watch.fact;
    if fact == Fact::Node {
        let mut texts = Texts::default();
        let open = |node: WireNode| {
            let (name, value) = nodes::trim(node, &mut texts);
            Ok(Named { name, value })
        };
        let tell = |event: Event<Named<crate::world::Node>>| {
            let whole = matches!(event, Event::Reset { .. });
            let mut changed = false;
            change(&hearers.shared, fact, |world| {
                changed = take::table(&mut world.nodes, event);
                changed
            });
            if changed {
                hearers.nodes.notify_one();
            }
            opened(gate, whole);
        };
        let api = watch.api(client);
        return watch::run_mapped(api, &watch.kind.plural, watch.config(), metrics, open, tell).await;
    }
    let tell = |event: Event<Raw>| {
        let whole = matches!(event, Event::Reset { .. });
        tell(fact, &watch.kind, event, hearers);
        opened(gate, whole);
    };
    watch::run_mapped(watch.api(client), &watch.kind.plural, watch.config(), metrics, Ok, tell).await
}

fn opened(gate: &Gate, whole: bool) {
    if whole {
        gate.open();
    }
}

/// Takes in what a watch of whole objects tells.
fn tell(fact: Fact, kind: &ObjectKind, event: Event<Raw>, hearers: &Hearers) {
    let shared = &hearers.shared;
    match fact {
        Fact::Operator => {
            let event = read::each(event, read::asked::<numaresources::NumaResourcesOperator>);
            change(shared, fact, |world| {
                take::asked(world, operator::KIND, |world| &mut world.operators, event)
            });
        }
        Fact::Scheduler => {
            let event = read::each(event, read::asked::<numaresources::NumaResourcesScheduler>);
            change(shared, fact, |world| {
                take::asked(world, scheduler::KIND, |world| &mut world.schedulers, event)
            });
        }
        Fact::Pool => {
            let event = read::each(event, read::pool);
            change(shared, fact, |world| take::table(&mut world.pools, event));
        }
        Fact::KubeletConfig => {
            let event = read::each(event, read::kubelet_config);
            change(shared, fact, |world| take::table(&mut world.kubelet_configs, event));
        }
        Fact::NodePoolConfig => {
            let event = read::each(event, read::node_pool_config);
            change(shared, fact, |world| take::table(&mut world.node_pool_configs, event));
        }
        Fact::Tls => {
            change(shared, fact, |world| read::tls(&mut world.tls, event));
            shared.read(|world| offer(world.tls.as_ref(), &hearers.policy));
        }
        Fact::Live => take::live(shared, kind, event),
        Fact::Node | Fact::Kubelet => {}
    }
    if matches!(fact, Fact::Operator | Fact::Scheduler) {
        hearers.unreadable.send_replace(());
        hearers.nodes.notify_one();
    }
}

/// Has our own servers offer what the cluster wants.
fn offer(profile: Option<&TlsProfile>, policy: &Sender<Policy>) {
    let Some(profile) = profile else { return };
    match tls::policy(profile) {
        Ok(wanted) => drop(policy.send_if_modified(|offered| {
            let changed = *offered != wanted;
            *offered = wanted;
            changed
        })),
        Err(error) => tracing::warn!(%error, "our own server goes on with what it offered before"),
    }
}

/// Changes the world; whom it matters to is woken if the change says that something is different.
fn change(shared: &Shared, fact: Fact, change: impl FnOnce(&mut World) -> bool) {
    shared.update(|world| if change(world) { fact.matters_to() } else { ControllerSet::new() });
}
