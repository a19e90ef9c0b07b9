//! Nodes that a group's pool selects and a pool without a group has.
//!
//! In: groups, the cluster's pools and nodes. Out: such nodes with both pools. Never: a node that has an exporter.
//!
//! On OpenShift `master` comes before custom pools, and `worker` last. A kubelet's settings come with its pool, so the
//! group's exporter would publish settings of other nodes there. The Go operator's selects by label and runs there.

use super::choice::Choice;
use super::{Groups, machine_config_pool};
use crate::cluster_state::ClusterState;

/// A node without an exporter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedOver<'a> {
    /// Its name.
    pub node: &'a str,
    /// The pool that it is in.
    pub pool: &'a str,
    /// The group's pool that selects it.
    pub selected_by: &'a str,
}

/// All such nodes, by name.
#[must_use]
pub fn passed_over<'a>(cluster: &'a ClusterState, groups: &'a Groups<'_>) -> Vec<PassedOver<'a>> {
    let choice = |name: &'a String| Some((name.as_str(), machine_config_pool(cluster, name, &[]).ok()?));
    let pools: Vec<(&str, Choice)> = cluster.pools.keys().filter_map(choice).collect();
    let of_node = |(node, state): (&'a String, &'a crate::cluster_state::Node)| {
        let label = |key: &str| state.label(key);
        let selects = |choice: &Choice| choice.selects(label);
        let mut wanted = groups.pools().map(|(_, pool)| pool);
        let by = wanted.find(|pool| pool.nodes.as_ref().is_ok_and(selects))?;
        if groups.pool_of(label).is_some() {
            return None;
        }
        let (pool, _) = pools.iter().find(|(_, choice)| choice.holds(label))?;
        Some(PassedOver { node, pool, selected_by: by.name })
    };
    cluster.nodes.iter().filter_map(of_node).collect()
}
