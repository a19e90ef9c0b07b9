//! The work of the leader.
//!
//! In: the shared cluster state, the lease's state. Out: running controllers. Never: a write before the cluster state
//! is complete, or without the lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::core::params::PropagationPolicy;
use objects::controller::leader::{Leadership, ready_to_lead};
use objects::controller::status::event;
use objects::ownership::uid;
use objects::{ApiServer, CallError, Object, ObjectKey};
use runtime::client::brief;
use runtime::events::{Event, Recorder, Severity, Subject};
use runtime::ready::Readiness;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cluster_state::Unreadable;
use crate::rbac::SCHEDULING;
use crate::reconcile::{Engine, Shared};
use crate::watch::kubelets::KubeletPoller;
use crate::watch::{elsewhere, legacy};

/// The parts that work under the lease.
pub(super) struct Leader {
    pub(super) shared: Arc<Shared>,
    pub(super) poller: KubeletPoller,
    pub(super) engine: Engine,
    pub(super) recorder: Recorder,
    /// Notified when objects may have become unreadable or readable.
    pub(super) unreadable_changes: watch::Receiver<()>,
}

impl Leader {
    /// Waits until we lead and the cluster state is complete, then works until cancelled. The candidate ends the
    /// process when the lease is lost.
    pub(super) async fn run(
        mut self,
        leadership: Leadership,
        readiness: &Readiness,
        token: CancellationToken,
    ) {
        if !ready_to_lead(leadership, readiness, &token).await {
            return;
        }
        info!("the cluster state is complete; starting the controllers");
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = self.prepare() => {}
        }
        let Self { shared, poller, engine, recorder, unreadable_changes, .. } = &mut self;
        tokio::select! {
            () = engine.run(token.clone()) => {}
            () = poller.run() => {}
            () = elsewhere::run(engine.api_server(), shared) => {}
            () = report_unreadable(shared, recorder, unreadable_changes) => {}
        }
    }

    /// Does what is needed once, before the controllers start.
    async fn prepare(&mut self) {
        let api_server = self.engine.api_server();
        legacy::take_in(api_server, &self.shared).await;
        let namespace = self.shared.read(|cluster| cluster.environment.namespace.clone());
        remove_former_binding(api_server, &namespace).await;
        // The first reconcile needs the answers of the kubelets.
        self.poller.ask().await;
    }
}

/// Reports each unreadable object once, in the log and as an event.
async fn report_unreadable(shared: &Shared, recorder: &Recorder, changes: &mut watch::Receiver<()>) {
    let mut reported = BTreeMap::new();
    loop {
        let now = shared.read(|cluster| cluster.unreadable.clone());
        for (key, Unreadable { uid, reason }) in &now {
            if reported.get(key) != now.get(key) {
                let (kind, name) = key;
                warn!(kind, name, reason, "an object cannot be read; what was made for it stays as it is");
                recorder.record(unreadable(kind, name, uid, reason));
            }
        }
        reported = now;
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn unreadable(kind: &str, name: &str, uid: &str, reason: &str) -> Event {
    let subject = Subject {
        api_version: format!("{}/{}", api::numaresources::GROUP, api::numaresources::VERSION),
        kind: kind.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let note = format!("It cannot be read, and what was made for it stays as it is: {reason}");
    Event { action: "Reading".to_owned(), ..event(&subject, Severity::Warning, "Unreadable", note) }
}

/// Removes the binding that operators before 4.18 made under another name, unless it has other subjects.
async fn remove_former_binding(api_server: &ApiServer, namespace: &str) {
    let binding = Object::bare(ObjectKey::of::<ClusterRoleBinding>(None, SCHEDULING));
    let remove = async {
        let Some(found) = api_server.get(&binding).await? else { return Ok(()) };
        if !is_former(&found, namespace) {
            info!(name = SCHEDULING, "a ClusterRoleBinding of this name has other subjects and stays");
        } else if api_server.delete(&binding, Some(uid(&found)), PropagationPolicy::Background).await? {
            info!(name = SCHEDULING, "removed the ClusterRoleBinding of a former operator");
        }
        Ok(())
    };
    if let Err(CallError::Failed(error)) = remove.await {
        let error = brief(&error);
        warn!(name = SCHEDULING, error, "cannot remove the ClusterRoleBinding of a former operator");
    }
}

/// Whether the scheduler's service account is its only subject.
fn is_former(binding: &Value, namespace: &str) -> bool {
    let ours = |subject: &Value| {
        subject["kind"] == "ServiceAccount"
            && subject["name"] == SCHEDULING
            && subject["namespace"] == namespace
    };
    let subjects = binding["subjects"].as_array();
    subjects.is_some_and(|subjects| !subjects.is_empty() && subjects.iter().all(ours))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// U024 in part.
    #[test]
    fn a_binding_with_other_subjects_stays() {
        let account = |name: &str, namespace: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
        let ours = account(SCHEDULING, "numa");
        let table = [
            (json!([ours]), true),
            (json!([ours, ours]), true),
            (json!([]), false),
            (json!([ours, account("default", "numa")]), false),
            (json!([account(SCHEDULING, "elsewhere")]), false),
            (json!([{ "kind": "User", "name": SCHEDULING, "apiGroup": "rbac.authorization.k8s.io" }]), false),
        ];
        for (subjects, wanted) in table {
            let binding = json!({
                "metadata": { "name": SCHEDULING },
                "subjects": subjects,
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x" },
            });
            assert_eq!(is_former(&binding, "numa"), wanted, "{subjects}");
        }
    }
}
