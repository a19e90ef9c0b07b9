//! NetworkPolicy objects in force, as by a network plugin that knows them.
//!
//! In: watches of pods, namespaces and policies, and the networks of pods on each node. Out: filters in those networks.
//! Never: a filter for a pod in its node's network, nor on a connection that is there already.

mod rules;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use self::rules::View;
use crate::cri::PodNetworks;
use crate::net::filter::{Block, Filter, Rule};

/// Policies are in force while this lives.
#[derive(Debug)]
pub(crate) struct NetworkPolicies {
    _task: AbortOnDropHandle<()>,
}

/// A node, as far as policies go.
#[derive(Debug)]
pub(crate) struct PolicyNode {
    /// Its own traffic with its pods is always allowed.
    pub(crate) address: Ipv4Addr,
    pub(crate) networks: PodNetworks,
}

/// What is observed.
struct Observed {
    pods: Store<Pod>,
    namespaces: Store<Namespace>,
    policies: Store<NetworkPolicy>,
}

impl NetworkPolicies {
    /// Begins; needs a runtime that goes on.
    pub(crate) fn enforce(client: &Client, nodes: Vec<PolicyNode>) -> Self {
        let (pods, pod_events) = follow::<Pod>(client);
        let (namespaces, namespace_events) = follow::<Namespace>(client);
        let (policies, policy_events) = follow::<NetworkPolicy>(client);
        let observed = Observed { pods, namespaces, policies };
        let task = tokio::spawn(async move {
            let mut events = futures::stream::select_all([pod_events, namespace_events, policy_events]);
            let mut applied = BTreeMap::new();
            while events.next().await.is_some() {
                // A pod that ends meanwhile takes its network with it.
                if let Err(error) = observed.apply(&nodes, &mut applied) {
                    tracing::warn!(%error, "network policies are not in force");
                }
            }
        });
        Self { _task: AbortOnDropHandle::new(task) }
    }
}

impl Observed {
    /// Puts in force what differs from what is.
    fn apply(&self, nodes: &[PolicyNode], applied: &mut BTreeMap<String, Filter>) -> anyhow::Result<()> {
        let (pods, namespaces) = (self.pods.state(), self.namespaces.state());
        let policies = self.policies.state();
        let view = View { pods: &pods, namespaces: &namespaces, policies: &policies };
        let mut present = Vec::new();
        for node in nodes {
            for network in node.networks.list() {
                present.push(network.sandbox.clone());
                let Some(pod) = pods.iter().find(|pod| pod.uid().as_ref() == Some(&network.uid)) else {
                    continue;
                };
                let filter = with_node(view.filter(pod), node.address);
                if applied.get(&network.sandbox).unwrap_or(&Filter::default()) == &filter {
                    continue;
                }
                let done = network.namespaces.run(|| filter.apply()).flatten();
                done.with_context(|| format!("filtering {}", pod.name_any()))?;
                applied.insert(network.sandbox, filter);
            }
        }
        applied.retain(|sandbox, _| present.contains(sandbox));
        Ok(())
    }
}

/// The filter with what its node may do, probes above all.
fn with_node(mut filter: Filter, node: Ipv4Addr) -> Filter {
    for rules in [&mut filter.ingress, &mut filter.egress].into_iter().flatten() {
        rules.push(Rule { peer: Block::one(node), except: Vec::new(), ports: None });
    }
    filter
}

/// All objects of a kind, and a sign for each change of them.
fn follow<K>(client: &Client) -> (Store<K>, futures::stream::BoxStream<'static, ()>)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let watch = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    let events = reflector::reflector(writer, watch).inspect_err(|error| {
        tracing::warn!(%error, "a watch for network policies failed");
    });
    (store, events.map(|_| ()).boxed())
}
