//! NetworkPolicy objects in force, as by a network plugin that knows them.
//!
//! In: watches of pods, namespaces and policies, and the networks of pods on each node. Out: filters in those networks.
//! Never: a filter for a pod in its node's network, nor on a connection that is there already.

mod rules;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::rules::View;
use crate::cri::PodNetworks;
use crate::net::filter::{Block, Filter, Rule};

/// The pause before a network that could not be filtered is tried again.
const RETRY: Duration = Duration::from_millis(500);

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
            let mut is_whole = true;
            loop {
                let next = match is_whole {
                    true => events.next().await,
                    // A network may be filtered later; that of a pod that ends goes with it.
                    false => timeout(RETRY, events.next()).await.unwrap_or(Some(())),
                };
                if next.is_none() {
                    return;
                }
                let refused = observed.apply(&nodes, &mut applied);
                is_whole = refused.is_empty();
                for error in refused {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the network policies of a pod are not in force"
                    );
                }
            }
        });
        Self { _task: AbortOnDropHandle::new(task) }
    }
}

impl Observed {
    /// Puts in force what differs from what is, and returns what could not be.
    fn apply(&self, nodes: &[PolicyNode], applied: &mut BTreeMap<String, Filter>) -> Vec<anyhow::Error> {
        let (pods, namespaces) = (self.pods.state(), self.namespaces.state());
        let policies = self.policies.state();
        let view = View { pods: &pods, namespaces: &namespaces, policies: &policies };
        let networks =
            nodes.iter().flat_map(|node| node.networks.list().into_iter().map(move |one| (node, one)));
        let wanted = networks.map(|(node, network)| {
            let pod = pods.iter().find(|pod| pod.uid().as_ref() == Some(&network.uid));
            let filter = pod.map(|pod| with_node(view.filter(pod), node.address));
            (network.sandbox.clone(), (network, filter))
        });
        replace(wanted.collect(), applied, |network, filter| {
            let done = network.namespaces.run(|| filter.apply()).flatten();
            done.with_context(|| format!("filtering the network of pod {}", network.uid))
        })
    }
}

/// Applies to each network, by its sandbox, the filter that it should have, if it has another one. A network that
/// refuses keeps what it had, and keeps no other from its filter.
fn replace<N>(
    wanted: BTreeMap<String, (N, Option<Filter>)>,
    applied: &mut BTreeMap<String, Filter>,
    apply: impl Fn(&N, &Filter) -> anyhow::Result<()>,
) -> Vec<anyhow::Error> {
    applied.retain(|sandbox, _| wanted.contains_key(sandbox));
    let mut refused = Vec::new();
    for (sandbox, (network, filter)) in wanted {
        // Nothing is known yet of a pod that has only just come.
        let Some(filter) = filter else { continue };
        if applied.get(&sandbox).unwrap_or(&Filter::default()) == &filter {
            continue;
        }
        match apply(&network, &filter) {
            Ok(()) => drop(applied.insert(sandbox, filter)),
            Err(error) => refused.push(error),
        }
    }
    refused
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn filter(last: u8) -> Filter {
        let address = Ipv4Addr::new(10, 0, 0, last);
        Filter {
            ingress: Some(vec![Rule { peer: Block::one(address), except: Vec::new(), ports: None }]),
            egress: None,
        }
    }

    /// Filters networks of which `broken` refuse; returns those that were asked, and the number of refusals.
    fn replaced(
        wanted: &[(&str, Option<Filter>)],
        applied: &mut BTreeMap<String, Filter>,
        broken: &[&str],
    ) -> (Vec<String>, usize) {
        let asked = RefCell::new(Vec::new());
        let wanted =
            wanted.iter().map(|(name, filter)| ((*name).to_owned(), ((*name).to_owned(), filter.clone())));
        let refused = replace(wanted.collect(), applied, |name: &String, _| {
            asked.borrow_mut().push(name.clone());
            anyhow::ensure!(!broken.contains(&&**name), "{name} is gone");
            Ok(())
        });
        (asked.into_inner(), refused.len())
    }

    #[test]
    fn a_network_that_refuses_keeps_no_other_from_its_filter() {
        let mut applied = BTreeMap::new();
        let all = ["a", "b", "c"].map(|name| (name, Some(filter(1))));
        assert_eq!(replaced(&all, &mut applied, &["a"]), (["a", "b", "c"].map(str::to_owned).into(), 1));
        assert_eq!(applied.keys().collect::<Vec<_>>(), ["b", "c"]);
        // Only what is missing is tried again.
        assert_eq!(replaced(&all, &mut applied, &[]), (vec!["a".to_owned()], 0));
        assert_eq!(replaced(&all, &mut applied, &[]), (vec![], 0));
    }

    #[test]
    fn networks_that_are_gone_are_forgotten_and_unknown_pods_are_left_alone() {
        let mut applied = BTreeMap::new();
        replaced(&[("a", Some(filter(1))), ("b", Some(filter(1)))], &mut applied, &[]);
        let next = [("b", None), ("c", Some(Filter::default()))];
        assert_eq!(replaced(&next, &mut applied, &[]), (vec![], 0));
        assert_eq!(applied.keys().collect::<Vec<_>>(), ["b"]);
        // What was filtered and should not be any longer is opened.
        assert_eq!(replaced(&[("b", Some(Filter::default()))], &mut applied, &[]).0, ["b"]);
    }
}
