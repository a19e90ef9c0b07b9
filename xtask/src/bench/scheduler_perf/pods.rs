//! All pods of the cluster, as a watch shows them, and the measurement that counts them.
//!
//! In: watch events. Out: how many pods of a namespace are on nodes or were tried; when pods got a node during a
//! measurement.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinHandle;

use super::operations::Stage;

/// Labels that pods must have; without any, all pods count.
pub(super) type Selector = BTreeMap<String, String>;

/// What the watch has shown so far. The watch ends when this is dropped.
pub(super) struct Pods {
    state: Arc<Mutex<State>>,
    watch: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// By namespace and name.
    pods: BTreeMap<(String, String), Observed>,
    measuring: Option<Measuring>,
}

#[derive(Default)]
struct Observed {
    labels: BTreeMap<String, String>,
    scheduled: bool,
    attempted: bool,
}

/// A measurement that runs.
struct Measuring {
    name: String,
    namespaces: Vec<String>,
    selector: Selector,
    began: Instant,
    scheduled: Vec<Duration>,
}

/// A measurement that ended.
#[derive(Debug)]
pub(super) struct Measurement {
    /// Its name, or the namespace of the pods.
    pub(super) name: String,
    /// When each pod was seen on a node, from the start.
    pub(super) scheduled: Vec<Duration>,
    pub(super) lasted: Duration,
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Pods {
    pub(super) fn watch(client: &Client) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (api, seen) = (Api::<Pod>::all(client.clone()), state.clone());
        let watch = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                        locked(&seen).apply(&pod, Instant::now())
                    }
                    Ok(Event::Delete(pod)) => locked(&seen).forget(&pod),
                    // After an error the watch begins again with a list.
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { state, watch }
    }

    /// How many pods of a namespace have reached a stage. Cost grows with the pods of the namespace.
    pub(super) fn count(&self, namespace: &str, selector: &Selector, stage: Stage) -> usize {
        let state = locked(&self.state);
        let reached = |pod: &&Observed| pod.scheduled || (stage == Stage::Attempted && pod.attempted);
        state.selected(namespace, selector).map(|(_, pod)| pod).filter(reached).count()
    }

    /// The names of the pods of a namespace.
    pub(super) fn names(&self, namespace: &str, selector: &Selector) -> Vec<String> {
        let state = locked(&self.state);
        state.selected(namespace, selector).map(|(name, _)| name.to_owned()).collect()
    }

    /// Begins a measurement of the pods in some namespaces.
    pub(super) fn measure(
        &self,
        name: &str,
        namespaces: Vec<String>,
        selector: Selector,
    ) -> anyhow::Result<()> {
        let mut state = locked(&self.state);
        ensure!(state.measuring.is_none(), "a measurement begins while another one runs");
        let (name, scheduled) = (name.to_owned(), Vec::new());
        state.measuring = Some(Measuring { name, namespaces, selector, began: Instant::now(), scheduled });
        Ok(())
    }

    /// Ends the measurement that runs.
    pub(super) fn measured(&self) -> anyhow::Result<Measurement> {
        let measuring = locked(&self.state).measuring.take().context("no measurement has begun")?;
        let Measuring { name, scheduled, began, .. } = measuring;
        Ok(Measurement { name, scheduled, lasted: began.elapsed() })
    }
}

impl State {
    fn apply(&mut self, pod: &Pod, now: Instant) {
        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
        let namespace = key.0.clone();
        let observed = self.pods.entry(key).or_default();
        pod.labels().clone_into(&mut observed.labels);
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        observed.attempted = conditions.unwrap_or_default().iter().any(|c| c.type_ == "PodScheduled");
        let on_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !on_node || observed.scheduled {
            return;
        }
        observed.scheduled = true;
        if let Some(measuring) = &mut self.measuring
            && measuring.namespaces.contains(&namespace)
            && matches(&observed.labels, &measuring.selector)
        {
            measuring.scheduled.push(now.saturating_duration_since(measuring.began));
        }
    }

    fn forget(&mut self, pod: &Pod) {
        self.pods.remove(&(pod.namespace().unwrap_or_default(), pod.name_any()));
    }

    fn selected<'a>(
        &'a self,
        namespace: &'a str,
        selector: &'a Selector,
    ) -> impl Iterator<Item = (&'a str, &'a Observed)> {
        let from = (namespace.to_owned(), String::new());
        let of_namespace = self.pods.range(from..).take_while(move |((ns, _), _)| ns == namespace);
        let selected = of_namespace.filter(|(_, pod)| matches(&pod.labels, selector));
        selected.map(|((_, name), pod)| (name.as_str(), pod))
    }
}

fn matches(labels: &BTreeMap<String, String>, selector: &Selector) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(namespace: &str, name: &str, node: Option<&str>, tried: bool) -> Pod {
        let conditions =
            if tried { json!([{ "type": "PodScheduled", "status": "False" }]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": name, "labels": { "app": name } },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    #[test]
    fn pods_are_counted_once_when_they_get_a_node() {
        let began = Instant::now();
        let mut state = State::default();
        state.apply(&pod("a", "early", Some("node"), true), began);
        state.measuring = Some(Measuring {
            name: "a".to_owned(),
            namespaces: vec!["a".to_owned()],
            selector: Selector::from([("app".to_owned(), "two".to_owned())]),
            began,
            scheduled: Vec::new(),
        });
        let at = |seconds| began + Duration::from_secs(seconds);
        state.apply(&pod("a", "two", None, false), at(1));
        state.apply(&pod("a", "two", None, true), at(2));
        state.apply(&pod("a", "two", Some("node"), true), at(3));
        state.apply(&pod("a", "two", Some("node"), true), at(4));
        state.apply(&pod("a", "other", Some("node"), true), at(5));
        state.apply(&pod("b", "two", Some("node"), true), at(6));
        assert_eq!(state.measuring.as_ref().unwrap().scheduled, [Duration::from_secs(3)]);

        state.apply(&pod("a", "waits", None, true), at(7));
        let all = Selector::new();
        let names =
            |state: &State| state.selected("a", &all).map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&state), ["early", "other", "two", "waits"]);
        state.forget(&pod("a", "other", None, false));
        assert_eq!(names(&state), ["early", "two", "waits"]);
        let of_two = Selector::from([("app".to_owned(), "two".to_owned())]);
        assert_eq!(state.selected("a", &of_two).count(), 1);
    }
}
