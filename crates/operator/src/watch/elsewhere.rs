//! Workloads of users' objects in other namespaces, where another operator made them.
//!
//! In: the metadata of all DaemonSets and Deployments. Out: their keys in the cluster state. Never: a change of them.
//!
//! Two operators for the same users' objects give each node two exporters, and the cluster two schedulers of one name.
//! Both kinds are listed when this operator begins to lead, and again while there are such workloads.

use std::collections::BTreeSet;
use std::time::Duration;

use api::numaresources::{keys, operator, scheduler};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use objects::{ApiServer, CallError, ObjectKey, ObjectKind};
use runtime::client::brief;
use serde_json::Value;
use tracing::warn;

use crate::desired::Controller;
use crate::ownership::owners;
use crate::reconcile::{ControllerSet, Shared};

/// The pause before both kinds are listed again.
const AGAIN: Duration = Duration::from_secs(30);

/// Keeps [`crate::cluster_state::ClusterState::elsewhere`] until there are no such workloads; never ends.
pub async fn run(api_server: &ApiServer, shared: &Shared) {
    let namespace = shared.read(|cluster| cluster.environment.namespace.clone());
    loop {
        match look(api_server, &namespace).await {
            Ok(found) => {
                let none = found.is_empty();
                take(shared, found);
                if none {
                    break;
                }
            }
            Err(CallError::Failed(error)) => {
                warn!(error = brief(&error), "cannot list workloads of other namespaces");
            }
            Err(CallError::Cancelled) => break,
        }
        tokio::time::sleep(AGAIN).await;
    }
    std::future::pending::<()>().await;
}

async fn look(api_server: &ApiServer, namespace: &str) -> Result<BTreeSet<ObjectKey>, CallError> {
    let mut found = BTreeSet::new();
    for kind in [ObjectKind::of::<DaemonSet>(), ObjectKind::of::<Deployment>()] {
        let listed = api_server.list_metadata(&kind, None).await?.unwrap_or_default();
        found.extend(listed.iter().filter_map(|object| elsewhere(&kind, object, namespace)));
    }
    Ok(found)
}

fn take(shared: &Shared, found: BTreeSet<ObjectKey>) {
    shared.update(|cluster| {
        if cluster.elsewhere == found {
            return ControllerSet::new();
        }
        cluster.elsewhere = found;
        [Controller::NumaResourcesOperator, Controller::NumaResourcesScheduler].into()
    });
}

/// The key of a workload that a user's object controls, outside the operator's namespace.
fn elsewhere(kind: &ObjectKind, object: &Value, own: &str) -> Option<ObjectKey> {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    let namespace = text("namespace").filter(|namespace| namespace != own)?;
    let users = [(operator::KIND, keys::OPERATOR), (scheduler::KIND, keys::SCHEDULER)];
    let controlled = owners(object).any(|owner| users.contains(&owner));
    let name = text("name").filter(|_| controlled)?;
    Some(ObjectKey { kind: kind.clone(), namespace: Some(namespace), name })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workloads_of_users_objects_in_other_namespaces_are_found() {
        let owner = |kind: &str, name: &str, controller: bool| {
            json!([{
                "apiVersion": "nodetopology.openshift.io/v1", "kind": kind, "name": name, "uid": "u",
                "controller": controller,
            }])
        };
        let kind = ObjectKind::of::<DaemonSet>();
        for (namespace, owners, wanted) in [
            ("there", owner(operator::KIND, keys::OPERATOR, true), true),
            ("there", owner(scheduler::KIND, keys::SCHEDULER, true), true),
            ("here", owner(operator::KIND, keys::OPERATOR, true), false),
            ("there", owner(operator::KIND, "another", true), false),
            ("there", owner(operator::KIND, keys::OPERATOR, false), false),
            ("there", owner("NodeGroup", keys::OPERATOR, true), false),
            ("there", json!([]), false),
        ] {
            let metadata = json!({ "name": "a", "namespace": namespace, "ownerReferences": owners });
            let found = elsewhere(&kind, &json!({ "metadata": metadata }), "here");
            assert_eq!(found.map(|key| key.to_string()), wanted.then(|| "DaemonSet there/a".to_owned()));
        }
    }
}
