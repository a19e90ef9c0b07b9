//! Waiting for objects to be ready or gone.
//!
//! In: an object. Out: that it is, or why not in time; progress is told whenever it changes. Never: a wait without end.
//!
//! A watch wakes the wait up, a read decides; so nothing depends on what a watch misses.

use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::Error;
use super::progress::{Action, State, Step};
use super::ready::{Verdict, held_by, verdict};
use super::run::{Halt, Run};
use super::sorts::Role;
use super::trouble::troubles;
use crate::part::Component;
use objects::client::{ApiServer, CallError};
use objects::{Object, ObjectKind};

/// One wait.
struct Wait<'o> {
    component: Component,
    object: &'o Object,
    wanted: &'static str,
    began: Instant,
    /// When reasons were looked for last.
    asked: Option<Instant>,
    state: Option<State>,
    troubles: Vec<String>,
}

impl<'o> Wait<'o> {
    fn new(component: Component, object: &'o Object, wanted: &'static str) -> Self {
        let (began, troubles) = (Instant::now(), Vec::new());
        Self { component, object, wanted, began, asked: None, state: None, troubles }
    }
}

impl Run<'_> {
    /// Waits until it is ready in the sense of its kind.
    pub(super) async fn wait_ready(&mut self, component: Component, object: &Object) -> Result<(), Halt> {
        let role = Role::of(object);
        let wanted = if role == Role::Definition { "established" } else { "ready" };
        let mut wait = Wait::new(component, object, wanted);
        loop {
            let live = self.get(object).await?;
            let state = match live.as_ref().map(|live| verdict(role, live)) {
                Some(Verdict::Ready(finding)) => {
                    self.reached(&wait, Action::Deploy);
                    if let Some(finding) = finding {
                        self.found(component, object, finding);
                    }
                    return Ok(());
                }
                Some(Verdict::Hopeless(reason)) => {
                    return Err(Error::NeverServed { object: object.to_string(), reason }.into());
                }
                Some(Verdict::Pending(state)) => state,
                None => State::Absent,
            };
            self.goes_on(&mut wait, state, live.as_ref()).await?;
        }
    }

    /// Waits until it, or the one with this uid, is gone.
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
                self.reached(&wait, Action::Remove);
                return Ok(());
            };
            self.goes_on(&mut wait, State::Present, Some(live)).await?;
        }
    }

    /// Only if it was told that there was something to wait for.
    fn reached(&mut self, wait: &Wait<'_>, action: Action) {
        if wait.state.is_some() || Role::of(wait.object).is_workload() {
            self.tell(&Step::Reached(action, wait.component, wait.object));
        }
    }

    /// Tells how far it is, and waits for a change.
    async fn goes_on(&mut self, wait: &mut Wait<'_>, state: State, live: Option<&Value>) -> Result<(), Halt> {
        if wait.state.as_ref() != Some(&state) {
            self.tell(&Step::Waiting(wait.component, wait.object, state.clone()));
            wait.state = Some(state);
        }
        let interval = self.settings.wait_interval;
        let left = self.settings.wait_timeout.saturating_sub(wait.began.elapsed());
        // Not at once: what is just being made is no trouble.
        let due = wait.asked.unwrap_or(wait.began).elapsed() >= interval;
        if let Some(live) = live.filter(|_| due || left.is_zero()) {
            wait.asked = Some(Instant::now());
            let found = reasons(&self.api_server, wait, live).await;
            for trouble in found.map_err(|stop| Halt::of("reading", wait.object, stop))? {
                if !wait.troubles.contains(&trouble) {
                    self.tell(&Step::Trouble(wait.component, wait.object, trouble.clone()));
                    wait.troubles.push(trouble);
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
    let mut troubles: Vec<String> = wait.state.as_ref().and_then(progress).into_iter().collect();
    troubles.extend(wait.troubles.iter().cloned());
    Error::Timeout { object: wait.object.to_string(), wanted: wait.wanted, after, troubles }
}

/// How far it got, where that is a number.
fn progress(state: &State) -> Option<String> {
    match state {
        State::DaemonSet { desired, updated, ready } => {
            Some(format!("of {desired} pods {updated} are up to date and {ready} are ready"))
        }
        State::Deployment { replicas, updated, available } => {
            Some(format!("of {replicas} pods {updated} are up to date and {available} are available"))
        }
        State::Unobserved => Some("its controller has not seen it".to_owned()),
        State::Absent => Some("it is not there".to_owned()),
        State::NotEstablished | State::Present => None,
    }
}

/// Why it takes so long. What cannot be read is no reason to stop waiting.
async fn reasons(cluster: &ApiServer, wait: &Wait<'_>, live: &Value) -> Result<Vec<String>, CallError> {
    if wait.wanted == "gone" {
        return Ok(held_by(live));
    }
    if !Role::of(wait.object).is_workload() {
        return Ok(Vec::new());
    }
    let labels = live["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    let (pods, events) =
        (ObjectKind::new("", "v1", "Pod", "pods"), ObjectKind::new("", "v1", "Event", "events"));
    let (of_it, warnings) =
        (ListParams::default().labels(&labels.join(",")), ListParams::default().fields("type=Warning"));
    let namespace = wait.object.namespace();
    let read = async |kind, params| match cluster.list(kind, namespace, params).await {
        Err(CallError::Cancelled) => Err(CallError::Cancelled),
        read => Ok(read.ok().flatten().unwrap_or_default()),
    };
    Ok(troubles(live, &read(&pods, &of_it).await?, &read(&events, &warnings).await?))
}

/// Waits until somebody writes the object, at most this long.
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
        // A watch that ended tells nothing.
        std::future::pending().await
    };
    tokio::select! {
        () = change => Ok(()),
        slept = cluster.sleep(longest) => slept,
    }
}
