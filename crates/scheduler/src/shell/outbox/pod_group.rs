//! Writes of conditions of PodGroups.
//!
//! In: conditions as the core decides them. Out: patches of the status. Never: two writes at a time, so that an older
//! condition never overtakes a newer one; and never a retry, since only people and controllers read them.
//!
//! Source: kube-scheduler 1.36 `updatePodGroupCondition`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use runtime::client;
use serde_json::{Value, json};

use super::Completed;
use crate::core::GroupCondition;
use crate::pod_group::SCHEDULED;

/// Conditions to write, the newest of each group, by uid.
#[derive(Debug, Default)]
pub(super) struct GroupWrites {
    waiting: BTreeMap<Arc<str>, GroupCondition>,
    is_writing: bool,
}

impl GroupWrites {
    pub(super) fn push(&mut self, condition: GroupCondition) {
        self.waiting.insert(Arc::clone(&condition.group.uid), condition);
    }

    /// The next condition to write; `None` while one is being written.
    pub(super) fn next(&mut self) -> Option<GroupCondition> {
        if self.is_writing {
            return None;
        }
        let (_, condition) = self.waiting.pop_first()?;
        self.is_writing = true;
        Some(condition)
    }

    /// A write has ended.
    pub(super) fn done(&mut self) {
        self.is_writing = false;
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// Writes a condition.
pub(super) async fn write(client: Client, condition: GroupCondition) -> Completed {
    let group = &condition.group;
    let api: Api<PodGroup> = Api::namespaced(client, &group.namespace);
    let patch = Patch::Strategic(patch(&condition));
    let result = api.patch_status(&group.name, &PatchParams::default(), &patch).await;
    if let Err(error) = result
        && !client::is_not_found(&error)
        && !client::is_conflict(&error)
    {
        let (namespace, name, reason) = (&group.namespace, &group.name, client::brief(&error));
        tracing::warn!(%namespace, %name, reason, "cannot write the status of a pod group");
    }
    Completed::GroupCondition
}

fn patch(GroupCondition { group, scheduled }: &GroupCondition) -> Value {
    let mut condition = json!({
        "type": SCHEDULED,
        "status": if scheduled.is_true { "True" } else { "False" },
        "observedGeneration": group.generation,
        "reason": scheduled.reason,
        "message": scheduled.message,
    });
    if group.scheduled.as_ref().map(|before| before.is_true) != Some(scheduled.is_true) {
        condition["lastTransitionTime"] = json!(Time(jiff::Timestamp::now()));
    }
    json!({ "metadata": { "uid": *group.uid }, "status": { "conditions": [condition] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_group::{PodGroupView, ScheduledCondition};

    fn condition(uid: &str, before: Option<bool>, is_true: bool) -> GroupCondition {
        let of = |is_true| ScheduledCondition { is_true, reason: "r".to_owned(), message: "m".to_owned() };
        let (namespace, name) = ("ns".into(), "g".into());
        let scheduled = before.map(of);
        let group =
            PodGroupView { namespace, name, uid: uid.into(), generation: 2, min_count: None, scheduled };
        GroupCondition { group, scheduled: of(is_true) }
    }

    #[test]
    fn the_transition_is_timed_when_there_is_one() {
        for (before, is_true, is_timed) in
            [(None, false, true), (Some(false), true, true), (Some(false), false, false)]
        {
            let patch = patch(&condition("u", before, is_true));
            let condition = &patch["status"]["conditions"][0];
            assert_eq!(condition.get("lastTransitionTime").is_some(), is_timed, "{patch}");
            assert_eq!(
                (&patch["metadata"]["uid"], &condition["observedGeneration"]),
                (&json!("u"), &json!(2))
            );
        }
    }

    #[test]
    fn one_condition_is_written_at_a_time_and_the_newest_of_a_group() {
        let mut writes = GroupWrites::default();
        for (uid, is_true) in [("a", false), ("b", false), ("a", true)] {
            writes.push(condition(uid, None, is_true));
        }
        assert!(writes.next().is_some_and(|it| it.scheduled.is_true && &*it.group.uid == "a"));
        assert!(writes.next().is_none());
        writes.done();
        assert!(writes.next().is_some_and(|it| &*it.group.uid == "b"));
        writes.done();
        assert!(writes.next().is_none());
    }
}
