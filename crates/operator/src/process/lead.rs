//! What is done by the one that leads.
//!
//! In: the shared world, the lease's state. Out: controllers at work. Never: a write before everything is known, or without the lease.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use objects::controller::leader::{Leadership, ready_to_lead};
use runtime::client::{brief, is_not_found};
use runtime::events::{Event, Recorder, Severity, Subject};
use runtime::ready::Readiness;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::reconcile::{Engine, Shared};
use crate::watch::kubelets::Asker;
use crate::watch::legacy;
use crate::world::{Place, Unreadable};

/// The service account of the scheduler, and the name of a binding that former operators made for it.
const SCHEDULING: &str = "secondary-scheduler";

/// Everything that works under the lease.
pub(super) struct Leader {
    pub(super) shared: Arc<Shared>,
    pub(super) asker: Asker,
    pub(super) engine: Engine,
    pub(super) recorder: Recorder,
    /// Something unreadable may have come or gone.
    pub(super) odd: watch::Receiver<()>,
    pub(super) client: Client,
    pub(super) place: Place,
    pub(super) readiness: Readiness,
}

impl Leader {
    /// Waits until all is known and we lead, then works until it is stopped. Losing the lease ends the process: that is seen to elsewhere.
    pub(super) async fn run(mut self, leads: Leadership, token: CancellationToken) {
        if !ready_to_lead(leads, &self.readiness, &token).await {
            return;
        }
        info!("everything is known, the controllers start");
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = self.prepare() => {}
        }
        let Self { shared, asker, engine, recorder, odd, .. } = &mut self;
        tokio::select! {
            () = engine.run(token.clone()) => {}
            () = asker.run() => {}
            () = tell_unreadable(shared, recorder, odd) => {}
        }
    }

    /// What is done once.
    async fn prepare(&mut self) {
        legacy::take_in(&self.client, self.place.platform, &self.shared).await;
        remove_former_binding(&self.client, &self.place.namespace).await;
        // So that what kubelets say is known when the controllers first look.
        self.asker.ask().await;
    }
}

/// Tells of each unreadable object once.
async fn tell_unreadable(shared: &Shared, recorder: &Recorder, odd: &mut watch::Receiver<()>) {
    let mut told = BTreeSet::new();
    loop {
        let now: BTreeSet<(&'static str, String, String, String)> = shared.read(|world| {
            let each = |(kind, all): (&&'static str, &std::collections::BTreeMap<String, Unreadable>)| {
                let kind = *kind;
                let all = all.iter();
                all.map(move |(name, odd)| (kind, name.clone(), odd.uid.clone(), odd.reason.clone()))
                    .collect::<Vec<_>>()
            };
            world.unreadable.iter().flat_map(each).collect()
        });
        for (kind, name, uid, reason) in now.difference(&told) {
            warn!(kind, name, reason, "an object cannot be read; what was made for it stays as it is");
            recorder.record(unreadable(kind, name, uid, reason));
        }
        told = now;
        if odd.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn unreadable(kind: &str, name: &str, uid: &str, reason: &str) -> Event {
    Event {
        regarding: Subject {
            api_version: format!("{}/{}", api::numaresources::GROUP, api::numaresources::VERSION),
            kind: kind.to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        },
        related: None,
        severity: Severity::Warning,
        reason: "Unreadable".to_owned(),
        action: "Reading".to_owned(),
        note: format!("It cannot be read, and what was made for it stays as it is: {reason}"),
    }
}

/// Removes the binding that operators before 4.18 made under another name. It is theirs if nobody else is bound by it.
async fn remove_former_binding(client: &Client, namespace: &str) {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let removed = async {
        let Some(binding) = bindings.get_opt(SCHEDULING).await? else { return Ok(()) };
        if !is_former(&binding, namespace) {
            info!(name = SCHEDULING, "a ClusterRoleBinding of this name binds others too and stays");
            return Ok(());
        }
        let preconditions = Preconditions { uid: binding.metadata.uid, resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        bindings.delete(SCHEDULING, &params).await?;
        info!(name = SCHEDULING, "removed the ClusterRoleBinding of a former operator");
        Ok(())
    };
    match removed.await {
        Err(error) if !is_not_found(&error) => {
            warn!(
                name = SCHEDULING,
                error = brief(&error),
                "cannot look for the ClusterRoleBinding of a former operator"
            );
        }
        _ => {}
    }
}

/// Whether it binds the scheduler's service account alone.
fn is_former(binding: &ClusterRoleBinding, namespace: &str) -> bool {
    let subjects = binding.subjects.as_deref().unwrap_or_default();
    let ours = |subject: &k8s_openapi::api::rbac::v1::Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == SCHEDULING
            && subject.namespace.as_deref() == Some(namespace)
    };
    !subjects.is_empty() && subjects.iter().all(ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// U024 in part.
    #[test]
    fn a_binding_of_others_is_left_alone() {
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
            let read: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
            assert_eq!(is_former(&read, "numa"), wanted, "{subjects}");
        }
    }
}
