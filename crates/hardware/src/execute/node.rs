//! Patches nodes and evicts pods.
//!
//! In: a patch, a pod. Out: the API server's answer in the cluster state. Never: a patch whose precondition does not
//! hold.

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{EvictParams, Patch, PatchParams};
use objects::ObjectKind;
use runtime::client::{code, is_not_found};
use runtime::wire::Texts;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{DISRUPTION, Executor, Fault, fault};
use crate::claim::Id;
use crate::cluster_state::{AffectedConfigs, CORDON_TAINT};
use crate::plan::NodeWrite;
use crate::rollout::NodeChange;
use crate::wire::{WireNode, read_node};

impl Executor {
    pub(super) async fn patch_node(&self, write: &NodeWrite) -> Result<(), Fault> {
        self.verify_unused(&write.unused).await?;
        let nodes = ObjectKind::of::<core::Node>();
        let api = Api::<WireNode>::all_with(self.client.clone(), &nodes.resource());
        let patch = match write.change {
            NodeChange::AddCordonTaint => with_time(write.patch.clone(), Timestamp::now()),
            _ => write.patch.clone(),
        };
        let patch = json_patch::Patch::deserialize(patch).unwrap_or_default();
        match api.patch(&write.node, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(node) => {
                let (name, node) = read_node(node, &mut Texts::default());
                self.shared.update(|cluster| match cluster.nodes.contains_key(&name) {
                    true => cluster.put_node(name, node),
                    false => AffectedConfigs::new(),
                });
                tracing::info!(node = write.node, change = ?write.change, "changed a node");
                Ok(())
            }
            // The watch reports its deletion.
            Err(error) if is_not_found(&error) => Err(Fault::Stale),
            Err(error) => Err(fault(&format!("Node {}", write.node), &error, false)),
        }
    }

    pub(super) async fn evict(&self, node: &str, id: &Id) -> Result<(), Fault> {
        let pods: Api<core::Pod> = Api::namespaced(self.client.clone(), &id.namespace);
        match pods.evict(&id.name, &EvictParams::default()).await {
            Ok(_) => {
                tracing::info!(node, pod = %id, "evicted a pod that uses the devices");
                // The watch reports this later; until then no pod is evicted twice.
                self.shared.update(|cluster| cluster.mark_pod_terminating(id));
                Ok(())
            }
            Err(error) if is_not_found(&error) => {
                self.shared.update(|cluster| cluster.put_pod(id.clone(), None));
                Ok(())
            }
            // A disruption budget does not allow it now.
            Err(error) if code(&error) == Some(429) => Err(Fault::Later(DISRUPTION)),
            Err(error) => Err(fault(&format!("eviction of pod {id}"), &error, false)),
        }
    }
}

/// Adds the time to the cordon taint, so that the next leader knows since when pods are evicted.
fn with_time(mut patch: Value, now: Timestamp) -> Value {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let steps = patch.as_array_mut().into_iter().flatten();
    let taints = steps.filter(|step| step["op"] == "add" && step["path"] == "/spec/taints");
    let taints = taints.filter_map(|step| step["value"].as_array_mut()).flatten();
    for taint in taints.filter(|taint| taint["key"] == CORDON_TAINT) {
        taint["timeAdded"] = json!(now);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cordon_taint_has_a_time() {
        let others = json!({ "key": "a", "effect": "NoSchedule" });
        let step = |taint: Value| {
            json!([
                { "op": "test", "path": "/spec/taints", "value": [others] },
                { "op": "add", "path": "/spec/taints", "value": [others, taint] },
            ])
        };
        let taint = json!({ "key": CORDON_TAINT, "value": "hw.m", "effect": "NoSchedule" });
        let mut wanted = taint.clone();
        wanted["timeAdded"] = "1970-01-01T00:00:07Z".into();
        assert_eq!(with_time(step(taint), Timestamp::from_millisecond(7_900).unwrap()), step(wanted));
    }
}
