//! The watches that feed the cluster state.
//!
//! In: watches. Out: a [`ClusterState`] and the controllers that its changes concern. Never: a field that no controller
//! reads.
//!
//! A kind that the server does not have has no objects and is waited for. Namespaced kinds are watched whole in the
//! operator's namespace, because objects that lost their label must be found too. Other kinds are selected by the
//! label, because clusters have megabytes of them.

pub mod elsewhere;
pub mod kubelets;
pub mod legacy;
mod nodes;
mod read;
mod take;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use api::numaresources::{GROUP, VERSION, keys, operator, scheduler};
use deployer::platform::Platform;
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use objects::ObjectKind;
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use runtime::tls::Policy;
use runtime::watch::{self, Event, Metrics};
use runtime::wire::{Raw, Texts};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::watch::Sender;

use crate::cluster_state::{ClusterState, Environment, TlsProfile};
use crate::desired::{Controller, MANAGED_BY, MANAGER};
use crate::kubeletconfig::payload;
use crate::rbac::CONFIG_MANAGED;
use crate::reconcile::{ControllerSet, Shared};
use crate::tls;
use take::Requests;

/// The part of the cluster state that a watch fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// NUMAResourcesOperators.
    Operators,
    /// NUMAResourcesSchedulers.
    Schedulers,
    /// MachineConfigPools.
    Pools,
    /// KubeletConfigs.
    KubeletConfigs,
    /// HyperShift: ConfigMaps with the KubeletConfigs of NodePools.
    NodePoolConfigs,
    /// Nodes.
    Nodes,
    /// OpenShift: the TLS profile for servers.
    Tls,
    /// Objects that may be the operator's.
    Observed,
}

/// A watch of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The part of the cluster state.
    pub topic: Topic,
    /// Group, version, kind and plural.
    pub kind: [&'static str; 4],
    /// The namespace.
    pub namespace: Namespace,
    /// The objects of the kind.
    pub selection: Selection,
    /// The platforms that have the kind.
    platforms: &'static [Platform],
}

/// The namespace of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// All namespaces, or the kind has none.
    All,
    /// The operator's.
    Operator,
    /// The namespace of this name.
    Named(&'static str),
}

/// The objects of a kind that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All objects.
    All,
    /// Objects with the operator's label.
    Managed,
    /// Objects with a label of this key.
    Label(&'static str),
    /// The object of this name.
    Name(&'static str),
}

/// The parts of the process that watches need. Watches share the connections of one client.
pub struct Watcher<'a> {
    /// The process.
    pub tasks: &'a mut Tasks,
    /// The API server.
    pub client: Client,
    /// Metrics of the watches.
    pub metrics: &'a Metrics,
    /// The readiness, which gets a gate for each watch.
    pub readiness: &'a Readiness,
    /// The environment.
    pub environment: &'a Environment,
}

/// The recipients of changes.
#[derive(Clone, Debug)]
pub struct Subscribers {
    /// The cluster state and its controllers.
    pub shared: Arc<Shared>,
    /// The TLS policy of our own servers.
    pub policy: Sender<Policy>,
    /// Notified when objects may have become unreadable or readable.
    pub unreadable: Sender<()>,
    /// Notified when nodes or node groups have changed.
    pub nodes: Arc<Notify>,
}

const OPENSHIFT: &[Platform] = &[Platform::OpenShift];
const HYPERSHIFT: &[Platform] = &[Platform::HyperShift];
const BOTH: &[Platform] = &[Platform::OpenShift, Platform::HyperShift];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const MACHINE_CONFIG: &str = "machineconfiguration.openshift.io";

/// The TLS profile for OpenShift's servers.
const TLS_PROFILE: Watch = Watch {
    selection: Selection::Name("cluster"),
    ..every(Topic::Tls, BOTH, ["config.openshift.io", "v1", "APIServer", "apiservers"])
};

/// All watches, whatever the platform.
const WATCHES: [Watch; 22] = [
    every(Topic::Operators, &Platform::ALL, [GROUP, VERSION, operator::KIND, operator::PLURAL]),
    every(Topic::Schedulers, &Platform::ALL, [GROUP, VERSION, scheduler::KIND, scheduler::PLURAL]),
    every(Topic::Nodes, &Platform::ALL, ["", "v1", "Node", "nodes"]),
    Watch {
        selection: Selection::Name("noderesourcetopologies.topology.node.k8s.io"),
        ..managed(
            &Platform::ALL,
            ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"],
        )
    },
    namespaced(["", "v1", "ConfigMap", "configmaps"]),
    namespaced(["", "v1", "Service", "services"]),
    namespaced(["", "v1", "ServiceAccount", "serviceaccounts"]),
    namespaced(["apps", "v1", "DaemonSet", "daemonsets"]),
    namespaced(["apps", "v1", "Deployment", "deployments"]),
    namespaced(["networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"]),
    namespaced([RBAC, "v1", "Role", "roles"]),
    namespaced([RBAC, "v1", "RoleBinding", "rolebindings"]),
    managed(&Platform::ALL, [RBAC, "v1", "ClusterRole", "clusterroles"]),
    managed(&Platform::ALL, [RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"]),
    managed(&Platform::ALL, [ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"]),
    managed(
        &Platform::ALL,
        [ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"],
    ),
    managed(
        BOTH,
        ["security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints"],
    ),
    managed(OPENSHIFT, [MACHINE_CONFIG, "v1", "MachineConfig", "machineconfigs"]),
    every(Topic::Pools, OPENSHIFT, [MACHINE_CONFIG, "v1", "MachineConfigPool", "machineconfigpools"]),
    every(Topic::KubeletConfigs, OPENSHIFT, [MACHINE_CONFIG, "v1", "KubeletConfig", "kubeletconfigs"]),
    Watch {
        namespace: Namespace::Named(CONFIG_MANAGED),
        selection: Selection::Label(keys::LABEL_KUBELET_CONFIG),
        ..every(Topic::NodePoolConfigs, HYPERSHIFT, ["", "v1", "ConfigMap", "configmaps"])
    },
    TLS_PROFILE,
];

const fn every(topic: Topic, platforms: &'static [Platform], kind: [&'static str; 4]) -> Watch {
    Watch { topic, kind, namespace: Namespace::All, selection: Selection::All, platforms }
}

const fn managed(platforms: &'static [Platform], kind: [&'static str; 4]) -> Watch {
    Watch { selection: Selection::Managed, ..every(Topic::Observed, platforms, kind) }
}

const fn namespaced(kind: [&'static str; 4]) -> Watch {
    Watch { namespace: Namespace::Operator, ..every(Topic::Observed, &Platform::ALL, kind) }
}

/// The watches on a platform.
pub fn all(platform: Platform) -> impl Iterator<Item = Watch> {
    WATCHES.into_iter().filter(move |watch| watch.platforms.contains(&platform))
}

impl Topic {
    /// The controllers that its changes concern.
    fn controllers(self) -> ControllerSet {
        use Controller::{KubeletConfig, NumaResourcesOperator, NumaResourcesScheduler};
        match self {
            Self::Operators | Self::Pools | Self::KubeletConfigs | Self::NodePoolConfigs => {
                [KubeletConfig, NumaResourcesOperator].into()
            }
            Self::Schedulers => [NumaResourcesScheduler].into(),
            Self::Nodes | Self::Tls => [NumaResourcesOperator, NumaResourcesScheduler].into(),
            Self::Observed => Controller::ALL.into(),
        }
    }
}

impl Watch {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        self.kind.into()
    }

    /// The namespace; `None`: all, or the kind has none.
    #[must_use]
    pub fn namespace<'a>(&self, environment: &'a Environment) -> Option<&'a str> {
        match self.namespace {
            Namespace::All => None,
            Namespace::Operator => Some(&environment.namespace),
            Namespace::Named(name) => Some(name),
        }
    }

    /// The name of its gate, unique in the process.
    fn title(&self, environment: &Environment) -> String {
        let plural = self.kind[3];
        self.namespace(environment)
            .map_or_else(|| plural.to_owned(), |namespace| format!("{plural} in {namespace}"))
    }

    fn config(&self) -> Config {
        match self.selection {
            Selection::All => Config::default(),
            Selection::Managed => Config::default().labels(&format!("{MANAGED_BY}={MANAGER}")),
            Selection::Label(key) => Config::default().labels(key),
            Selection::Name(name) => Config::default().fields(&format!("metadata.name={name}")),
        }
    }
}

impl Watcher<'_> {
    /// Starts a watch as a task; its first complete list opens its gate.
    fn start<W, V>(
        &mut self,
        watch: Watch,
        convert: impl FnMut(W) -> Result<V, String> + Send + 'static,
        mut take: impl FnMut(Event<V>) + Send + 'static,
    ) where
        W: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
        W: Clone + Debug + DeserializeOwned + Send + 'static,
        V: Send,
    {
        let gate = self.readiness.gate(watch.title(self.environment));
        let (client, resource) = (self.client.clone(), watch.kind().resource());
        let api: Api<W> = match watch.namespace(self.environment) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let metrics = self.metrics.clone();
        self.tasks.spawn("watch", async move {
            let sink = |event: Event<V>| {
                let complete = matches!(event, Event::Reset { .. });
                take(event);
                if complete {
                    gate.open();
                }
            };
            let never = watch::run_mapped(api, watch.kind[3], watch.config(), &metrics, convert, sink).await;
            Ok::<_, Infallible>(never)
        });
    }

    /// Starts a watch into a map of objects by name.
    fn start_map<T: PartialEq + Send + 'static>(
        &mut self,
        watch: Watch,
        to: Subscribers,
        read: fn(&Value) -> T,
        map: fn(&mut ClusterState) -> &mut BTreeMap<String, T>,
    ) {
        let named = move |raw: Raw| Ok((raw.meta.name.unwrap_or_default(), read(&raw.body)));
        self.start(watch, named, move |event| {
            to.update(watch.topic, |cluster| take::by_name(map(cluster), event));
        });
    }
}

/// Starts all watches of the platform as tasks; the readiness is complete once each has listed its kind.
pub fn start(watcher: &mut Watcher<'_>, subscribers: &Subscribers) {
    for watch in all(watcher.environment.platform) {
        let (topic, to) = (watch.topic, subscribers.clone());
        match topic {
            Topic::Operators => watcher.start(watch, read::request, move |event| {
                to.update_requests(topic, |cluster| {
                    let (readable, unreadable) = (&mut cluster.operators, &mut cluster.unreadable);
                    Requests { kind: operator::KIND, readable, unreadable }.take(event)
                });
            }),
            Topic::Schedulers => watcher.start(watch, read::request, move |event| {
                to.update_requests(topic, |cluster| {
                    let (readable, unreadable) = (&mut cluster.schedulers, &mut cluster.unreadable);
                    Requests { kind: scheduler::KIND, readable, unreadable }.take(event)
                });
            }),
            Topic::Pools => watcher.start_map(watch, to, read::pool, |cluster| &mut cluster.pools),
            Topic::KubeletConfigs => {
                watcher.start_map(watch, to, payload::kubelet_config, |cluster| &mut cluster.kubelet_configs);
            }
            Topic::NodePoolConfigs => {
                let read = payload::node_pool_config;
                watcher.start_map(watch, to, read, |cluster| &mut cluster.node_pool_configs);
            }
            Topic::Nodes => {
                let mut texts = Texts::default();
                watcher.start(
                    watch,
                    move |node| Ok(nodes::trim(node, &mut texts)),
                    move |event| {
                        if to.update(topic, |cluster| take::by_name(&mut cluster.nodes, event)) {
                            to.nodes.notify_one();
                        }
                    },
                );
            }
            Topic::Tls => watcher.start(watch, Ok, move |event| {
                to.update(topic, |cluster| read::tls(&mut cluster.tls, event));
                to.shared.read(|cluster| offer(cluster.tls.as_ref(), &to.policy));
            }),
            Topic::Observed => {
                let kind = watch.kind();
                watcher.start(watch, Ok, move |event| take::observed(&to.shared, &kind, event));
            }
        }
    }
}

/// Starts the watch of the TLS profile alone, for our own servers on OpenShift.
pub fn start_tls_profile(watcher: &mut Watcher<'_>, policy: Sender<Policy>) {
    let mut known = None;
    watcher.start(TLS_PROFILE, Ok, move |event: Event<Raw>| {
        read::tls(&mut known, event);
        offer(known.as_ref(), &policy);
    });
}

impl Subscribers {
    /// Changes the cluster state. The controllers of the topic are queued if `change` returns that something differs.
    fn update(&self, topic: Topic, change: impl FnOnce(&mut ClusterState) -> bool) -> bool {
        let mut changed = false;
        self.shared.update(|cluster| {
            changed = change(cluster);
            if changed { topic.controllers() } else { ControllerSet::new() }
        });
        changed
    }

    /// The same for users' objects, which may be unreadable and have node groups.
    fn update_requests(&self, topic: Topic, change: impl FnOnce(&mut ClusterState) -> bool) {
        self.update(topic, change);
        self.unreadable.send_replace(());
        self.nodes.notify_one();
    }
}

/// Gives our own servers the TLS policy of the cluster's profile.
fn offer(profile: Option<&TlsProfile>, policy: &Sender<Policy>) {
    let Some(profile) = profile else { return };
    match tls::policy(profile) {
        Ok(wanted) => drop(policy.send_if_modified(|offered| {
            let changed = *offered != wanted;
            *offered = wanted;
            changed
        })),
        Err(error) => {
            tracing::warn!(%error, "the TLS profile cannot be used here; our server keeps its TLS policy")
        }
    }
}
