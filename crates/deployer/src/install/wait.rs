//! Waiting for objects to become ready or to disappear.
//!
//! In: an object. Out: success, or a timeout with reasons; each change of state is reported. Never: a wait without
//! limit.
//!
//! A watch only ends a pause early and a read decides, so a missed watch event does no harm.

use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::Error;
use super::diagnosis::diagnose;
use super::kinds::DEFINITION;
use super::ready::{Readiness, held_by, readiness};
use super::run::{Halt, Run};
use super::step::{ObjectStep, Operation, WaitState};
use crate::part::Component;
use objects::client::{ApiServer, CallError};
use objects::{Object, ObjectKind};

/// One wait.
struct Wait<'o> {
    component: Component,
    object: &'o Object,
    wanted: &'static str,
    began: Instant,
    /// When reasons were last looked up.
    asked: Option<Instant>,
    state: Option<WaitState>,
    reasons: Vec<String>,
}

impl<'o> Wait<'o> {
    fn new(component: Component, object: &'o Object, wanted: &'static str) -> Self {
        let (began, reasons) = (Instant::now(), Vec::new());
        Self { component, object, wanted, began, asked: None, state: None, reasons }
    }
}

impl Run<'_> {
    /// Waits until the object is ready.
    pub(super) async fn wait_ready(&mut self, component: Component, object: &Object) -> Result<(), Halt> {
        let is_definition = object.kind().group_kind() == DEFINITION;
        let wanted = if is_definition { "established" } else { "ready" };
        let mut wait = Wait::new(component, object, wanted);
        loop {
            let live = self.get(object).await?;
            let state = match live.as_ref().map(|live| readiness(object.kind(), live)) {
                Some(Readiness::Ready(finding)) => {
                    self.reached(&wait, Operation::Deploy);
                    if let Some(finding) = finding {
                        self.report(component, object, ObjectStep::Note(finding));
                    }
                    return Ok(());
                }
                Some(Readiness::Never(reason)) => {
                    return Err(Error::NeverServed { object: object.to_string(), reason }.into());
                }
                Some(Readiness::Pending(state)) => state,
                None => WaitState::Absent,
            };
            self.wait_for_change(&mut wait, state, live.as_ref()).await?;
        }
    }

    /// Waits until the object, or the one with this uid, is gone.
    pub(super) async fn wait_gone(
        &mut self,
        component: Component,
        object: &Object,
        uid: Option<&Value>,
    ) -> Result<(), Halt> {
        let mut wait = Wait::new(component, object, "gone");
        loop {
            let live = self.get(object).await?;
            let same = |live: &&Value| uid.is_none_or(|uid| live["metadata"]["uid"] == *uid);
            let Some(live) = live.as_ref().filter(same) else {
                self.reached(&wait, Operation::Remove);
                return Ok(());
            };
            self.wait_for_change(&mut wait, WaitState::Present, Some(live)).await?;
        }
    }

    /// Reports the end of a wait, if its beginning was reported or the object is a workload.
    fn reached(&mut self, wait: &Wait<'_>, operation: Operation) {
        if wait.state.is_some() || wait.object.kind().is_workload() {
            self.report(wait.component, wait.object, ObjectStep::Reached(operation));
        }
    }

    /// Reports the state, and waits for a change.
    async fn wait_for_change(
        &mut self,
        wait: &mut Wait<'_>,
        state: WaitState,
        live: Option<&Value>,
    ) -> Result<(), Halt> {
        if wait.state.as_ref() != Some(&state) {
            self.report(wait.component, wait.object, ObjectStep::Waiting(state.clone()));
            wait.state = Some(state);
        }
        let interval = self.settings.wait_interval;
        let left = self.settings.wait_timeout.saturating_sub(wait.began.elapsed());
        // Not at once: objects that are just being created have no reasons yet.
        let due = wait.asked.unwrap_or(wait.began).elapsed() >= interval;
        if let Some(live) = live.filter(|_| due || left.is_zero()) {
            wait.asked = Some(Instant::now());
            let found = reasons(&self.api_server, wait, live).await;
            for trouble in found.map_err(|stop| Halt::of("reading", wait.object, stop))? {
                if !wait.reasons.contains(&trouble) {
                    self.report(wait.component, wait.object, ObjectStep::Diagnosis(trouble.clone()));
                    wait.reasons.push(trouble);
                }
            }
        }
        if left.is_zero() {
            return Err(timeout(wait, self.settings.wait_timeout).into());
        }
        let changed = changed(&self.api_server, wait.object, live, interval.min(left)).await;
        changed.map_err(|stop| Halt::of("watching", wait.object, stop))
    }
}

fn timeout(wait: &Wait<'_>, after: Duration) -> Error {
    let mut reasons: Vec<String> = wait.state.as_ref().and_then(progress).into_iter().collect();
    reasons.extend(wait.reasons.iter().cloned());
    Error::Timeout { object: wait.object.to_string(), wanted: wait.wanted, after, reasons }
}

/// The progress for the error message.
fn progress(state: &WaitState) -> Option<String> {
    match state {
        WaitState::DaemonSet { desired, updated, ready } => {
            Some(format!("of {desired} pods {updated} are up to date and {ready} are ready"))
        }
        WaitState::Deployment { replicas, updated, available } => {
            Some(format!("of {replicas} pods {updated} are up to date and {available} are available"))
        }
        WaitState::Unobserved => Some("the controller has not observed it".to_owned()),
        WaitState::Absent => Some("the object does not exist".to_owned()),
        WaitState::NotEstablished | WaitState::Present => None,
    }
}

/// Reasons why the wait is not over. A failed read gives no reasons and does not end the wait.
async fn reasons(cluster: &ApiServer, wait: &Wait<'_>, live: &Value) -> Result<Vec<String>, CallError> {
    if wait.wanted == "gone" {
        return Ok(held_by(live));
    }
    if !wait.object.kind().is_workload() {
        return Ok(Vec::new());
    }
    let labels = live["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    let [pods, events] = [["", "v1", "Pod", "pods"], ["", "v1", "Event", "events"]].map(ObjectKind::from);
    let (of_it, warnings) =
        (ListParams::default().labels(&labels.join(",")), ListParams::default().fields("type=Warning"));
    let namespace = wait.object.namespace();
    let read = async |kind, params| match cluster.list(kind, namespace, params).await {
        Err(CallError::Cancelled) => Err(CallError::Cancelled),
        read => Ok(read.ok().flatten().unwrap_or_default()),
    };
    Ok(diagnose(live, &read(&pods, &of_it).await?, &read(&events, &warnings).await?))
}

/// Waits until the object changes, at most this long.
async fn changed(
    cluster: &ApiServer,
    object: &Object,
    live: Option<&Value>,
    longest: Duration,
) -> Result<(), CallError> {
    let change = async {
        let version = live.and_then(|live| live["metadata"]["resourceVersion"].as_str());
        let Some(version) = version else { return std::future::pending().await };
        let (client, resource) = (cluster.client.clone(), object.kind().resource());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let params = WatchParams::default().fields(&format!("metadata.name={}", object.name()));
        if let Ok(events) = api.watch(&params.disable_bookmarks(), version).await
            && let Some(Ok(_)) = std::pin::pin!(events).next().await
        {
            return;
        }
        // The end of a watch is not a change.
        std::future::pending().await
    };
    tokio::select! {
        () = change => Ok(()),
        slept = cluster.sleep(longest) => slept,
    }
}
