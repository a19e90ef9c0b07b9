//! The nodes of the operator's node groups.
//!
//! In: the node groups of a NUMAResourcesOperator, MachineConfigPools, nodes. Out: names of nodes. Never: a guess
//! without such an object.

use std::collections::{BTreeMap, BTreeSet};

use api::numaresources::{NodeGroup, NumaResourcesOperator};
use kube::{Api, Client};
use runtime::client::{self, brief};
use serde_json::Value;

use crate::validate::collect::{NODE_POOL, selects};
use crate::validate::evidence::{Evidence, text};

/// The name of the only NUMAResourcesOperator object.
const OPERATOR: &str = "numaresourcesoperator";
const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const MAX_BYTES: usize = 64 << 20;

/// Names of the nodes of all groups; `None` without an operator.
///
/// # Errors
/// When the API server refuses or does not answer.
pub(super) async fn nodes(client: &Client, evidence: &Evidence) -> anyhow::Result<Option<BTreeSet<String>>> {
    let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
    let operator = match operators.get(OPERATOR).await {
        Ok(operator) => operator,
        Err(error) if client::is_not_found(&error) => return Ok(None),
        Err(error) => anyhow::bail!("NUMAResourcesOperator {OPERATOR}: {}", brief(&error)),
    };
    let pools = match client::get_text(client, POOLS, MAX_BYTES).await {
        Ok(text) => serde_json::from_str(&text)?,
        Err(error) if client::is_not_found(&error) => Value::Null,
        Err(error) => anyhow::bail!("machineconfigpools: {}", brief(&error)),
    };
    let pools = pools.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(Some(chosen(&operator.spec.node_groups, &pools, evidence)))
}

fn chosen(groups: &[NodeGroup], pools: &[Value], evidence: &Evidence) -> BTreeSet<String> {
    let of = |takes: &dyn Fn(&BTreeMap<String, String>) -> bool| -> Vec<String> {
        let nodes = evidence.nodes.values().filter(|node| takes(&node.labels));
        nodes.map(|node| node.name.clone()).collect()
    };
    let mut chosen = BTreeSet::new();
    for group in groups {
        let json = |selector| serde_json::to_value(selector).unwrap_or_default();
        if let Some(selector) = &group.node_selector {
            let selector = json(selector);
            chosen.extend(of(&|labels| selects(&selector, labels)));
            continue;
        }
        let by_labels = group.machine_config_pool_selector.as_ref().map(json);
        for pool in pools {
            let labels = pool.pointer("/metadata/labels").cloned().unwrap_or_default();
            let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap_or_default();
            let named = group.pool_name.as_deref() == Some(text(pool, "/metadata/name"));
            if named || by_labels.as_ref().is_some_and(|selector| selects(selector, &labels)) {
                let selector = pool.pointer("/spec/nodeSelector").cloned().unwrap_or_default();
                chosen.extend(of(&|labels| selects(&selector, labels)));
            }
        }
        if let Some(name) = &group.pool_name {
            chosen.extend(of(&|labels| labels.get(NODE_POOL) == Some(name)));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::evidence::Node;
    use serde_json::json;

    #[test]
    fn groups_are_resolved() {
        // U030.
        let nodes = [("a", "worker", ""), ("b", "numa", ""), ("c", "numa", "hosted"), ("d", "", "")];
        let mut evidence = Evidence::default();
        for (name, role, hosted) in nodes {
            let mut labels = BTreeMap::new();
            for (key, value) in [("role", role), (NODE_POOL, hosted)] {
                if !value.is_empty() {
                    labels.insert(key.to_owned(), value.to_owned());
                }
            }
            let node = Node { name: name.to_owned(), labels, ..Node::default() };
            evidence.nodes.insert(name.to_owned(), node);
        }
        let pool = |name: &str| {
            json!({
                "metadata": { "name": name, "labels": { "pool": name } },
                "spec": { "nodeSelector": { "matchLabels": { "role": name } } },
            })
        };
        let pools = [pool("worker"), pool("numa")];
        let check = |groups: Value, wanted: &[&str]| {
            let groups: Vec<NodeGroup> = serde_json::from_value(groups.clone()).unwrap();
            let got: Vec<String> = chosen(&groups, &pools, &evidence).into_iter().collect();
            assert_eq!(got, wanted, "{groups:?}");
        };
        check(json!([]), &[]);
        check(json!([{ "poolName": "worker" }]), &["a"]);
        check(json!([{ "poolName": "worker" }, { "poolName": "numa" }]), &["a", "b", "c"]);
        check(json!([{ "poolName": "hosted" }]), &["c"]);
        check(json!([{ "poolName": "missing" }]), &[]);
        check(json!([{ "machineConfigPoolSelector": { "matchLabels": { "pool": "numa" } } }]), &["b", "c"]);
        check(
            json!([{ "poolName": "any", "nodeSelector": { "matchLabels": { "role": "worker" } } }]),
            &["a"],
        );
    }
}
