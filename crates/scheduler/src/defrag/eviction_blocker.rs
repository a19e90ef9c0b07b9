//! Pods that no defragmentation moves, whatever it would bring.
//!
//! In: a pod's object. Out: the reasons why it stays. Never: a look at nodes, budgets or priorities.

use serde::Serialize;
use serde_json::Value;

/// The annotation by which people keep a pod where it is, as the cluster autoscaler reads it.
const SAFE_TO_EVICT: &str = "/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict";

/// Why a pod stays on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EvictionBlocker {
    /// No controller would make it again.
    NoController,
    /// It is one of a DaemonSet, or a static pod.
    OfItsNode,
    /// It runs to completion, and would begin anew.
    RunsToCompletion,
    /// An annotation says that it is not safe to evict.
    NotSafeToEvict,
    /// It has an emptyDir on disk, which would be lost.
    LocalData,
    /// A budget allows no disruption of it, or several budgets cover it.
    Budget,
}

impl EvictionBlocker {
    /// All that keeps a pod on its node.
    pub(crate) fn all_of(pod: &Value) -> Vec<Self> {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let kind = controller.map(|owner| owner["kind"].as_str().unwrap_or_default());
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
        let is_on_disk = |volume: &Value| {
            volume.get("emptyDir").is_some_and(|dir| dir["medium"].as_str().unwrap_or_default().is_empty())
        };
        let restarts = pod.pointer("/spec/restartPolicy").and_then(Value::as_str);
        let found = [
            (Self::NoController, kind.is_none()),
            (Self::OfItsNode, matches!(kind, Some("DaemonSet" | "Node"))),
            (Self::NotSafeToEvict, pod.pointer(SAFE_TO_EVICT).and_then(Value::as_str) == Some("false")),
            (Self::LocalData, volumes.into_iter().flatten().any(is_on_disk)),
            (Self::RunsToCompletion, restarts.is_some_and(|policy| policy != "Always")),
        ];
        found.into_iter().filter_map(|(blockers, holds)| holds.then_some(blockers)).collect()
    }

    /// For people, in brackets after a number of pods.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoController => "no controller would make them again",
            Self::OfItsNode => "of a DaemonSet, or static",
            Self::RunsToCompletion => "would begin anew, see --move-jobs",
            Self::NotSafeToEvict => "annotated as not safe to evict",
            Self::LocalData => "would lose an emptyDir, see --move-local-data",
            Self::Budget => "kept by a PodDisruptionBudget",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_reason_counts() {
        let owner = |kind: &str| json!([{"kind": kind, "name": "o", "uid": "u", "controller": true}]);
        let pod = |owners: Value, spec: Value, safe: &str| {
            let annotations = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": safe});
            json!({"metadata": {"ownerReferences": owners, "annotations": annotations}, "spec": spec})
        };
        let always = json!({"restartPolicy": "Always"});
        let disk = |medium: &str, restarts: &str| json!({"restartPolicy": restarts, "volumes": [{"name": "v", "emptyDir": {"medium": medium}}]});
        for (object, wanted) in [
            (pod(owner("ReplicaSet"), always.clone(), "true"), &[] as &[EvictionBlocker]),
            (pod(json!([]), always.clone(), "true"), &[EvictionBlocker::NoController]),
            (pod(json!([{"kind": "ReplicaSet"}]), always.clone(), "true"), &[EvictionBlocker::NoController]),
            (pod(owner("DaemonSet"), always.clone(), "true"), &[EvictionBlocker::OfItsNode]),
            (pod(owner("Node"), always.clone(), "true"), &[EvictionBlocker::OfItsNode]),
            (pod(owner("ReplicaSet"), always, "false"), &[EvictionBlocker::NotSafeToEvict]),
            (pod(owner("ReplicaSet"), disk("", "Always"), "true"), &[EvictionBlocker::LocalData]),
            (pod(owner("ReplicaSet"), disk("HugePages-2Mi", "Always"), "true"), &[]),
            (
                pod(owner("Job"), json!({"restartPolicy": "Never"}), "true"),
                &[EvictionBlocker::RunsToCompletion],
            ),
            (
                pod(owner("Job"), disk("", "Never"), "true"),
                &[EvictionBlocker::LocalData, EvictionBlocker::RunsToCompletion],
            ),
            (json!({}), &[EvictionBlocker::NoController]),
        ] {
            assert_eq!(EvictionBlocker::all_of(&object), wanted, "{object}");
        }
    }
}
