//! PodGroups, as gangs need them.
//!
//! In: `PodGroup` objects of `scheduling.k8s.io/v1alpha2`. Out: how many pods of a group are placed together, and its
//! condition. Never: a verdict about a pod.
//!
//! Source: kube-scheduler 1.36 `gangscheduling`, which reads the scheduling policy alone, and
//! `updatePodGroupCondition`.

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1alpha2 as wire;

/// The type of the condition that a scheduler writes.
pub const SCHEDULED: &str = "PodGroupScheduled";

/// The fields of a PodGroup that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroupView {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.schedulingPolicy.gang.minCount`; `None`: another policy, whose pods are placed one by one.
    pub min_count: Option<usize>,
    /// The condition `PodGroupScheduled`.
    pub scheduled: Option<ScheduledCondition>,
}

/// A condition `PodGroupScheduled`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledCondition {
    /// Whether its status is `True`.
    pub is_true: bool,
    /// The reason: `Scheduled`, `Unschedulable` or `SchedulerError`.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl PodGroupView {
    /// Reads a group.
    #[must_use]
    pub fn read(group: &wire::PodGroup) -> Self {
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let gang = group.spec.scheduling_policy.gang.as_ref();
        let mut conditions = group.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let scheduled = conditions.find(|condition| condition.type_ == SCHEDULED);
        Self {
            namespace: text(group.metadata.namespace.as_ref()),
            name: text(group.metadata.name.as_ref()),
            uid: text(group.metadata.uid.as_ref()),
            generation: group.metadata.generation.unwrap_or(0),
            min_count: gang.map(|gang| usize::try_from(gang.min_count).unwrap_or(0)),
            scheduled: scheduled.map(|condition| ScheduledCondition {
                is_true: condition.status == "True",
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_policy_and_the_condition_are_read() {
        let condition = |status: &str| {
            json!([{
                "type": "PodGroupScheduled", "status": status, "reason": "r", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }])
        };
        for (policy, conditions, min_count, is_true) in [
            (json!({"gang": {"minCount": 4}}), condition("True"), Some(4), Some(true)),
            (json!({"gang": {"minCount": 1}}), condition("False"), Some(1), Some(false)),
            (json!({"basic": {}}), json!([]), None, None),
            (json!({}), json!(null), None, None),
        ] {
            let object = json!({
                "metadata": {"namespace": "ns", "name": "g", "uid": "u", "generation": 3},
                "spec": {"schedulingPolicy": policy},
                "status": {"conditions": conditions},
            });
            let view = PodGroupView::read(&serde_json::from_value(object).unwrap());
            let found = (view.min_count, view.scheduled.map(|it| it.is_true), view.generation);
            assert_eq!(found, (min_count, is_true, 3), "{policy}");
        }
    }
}
