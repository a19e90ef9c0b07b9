//! Progress as keys and values, as later releases of the Go deployer print it.

use std::fmt::Write as _;

use super::{Sink, done, key, reverted, spoken, tag};
use crate::install::step::{Observer, Operation, Step, WaitState};
use crate::options::Updater;
use crate::part::Component;
use objects::Object;

/// Progress as keys and values.
pub struct Structured {
    sink: Sink,
    updater: Updater,
    verbosity: i64,
    /// The namespace whose deletion is awaited.
    waiting: Option<String>,
}

/// The value of a key.
pub enum Value {
    /// A text, printed in quotes.
    Text(String),
    /// A number, printed without quotes.
    Number(i64),
}

impl Structured {
    /// Progress of an installation with this updater; lines above the level `verbosity` are dropped.
    #[must_use]
    pub fn new(updater: Updater, verbosity: i64, sink: Sink) -> Self {
        Self { sink, updater, verbosity, waiting: None }
    }

    /// Writes a line unless its level is above the verbosity.
    pub fn line(&mut self, component: Option<Component>, level: i64, message: &str, pairs: &[(&str, Value)]) {
        if level > self.verbosity {
            return;
        }
        let mut text = component.map_or_else(String::new, |one| format!("{}: ", tag(one, self.updater)));
        // Writing to a string cannot fail.
        let _ = write!(text, "\"level\"={level} \"msg\"={message:?}");
        for (name, value) in pairs {
            let _ = match value {
                Value::Text(value) => write!(text, " {name:?}={value:?}"),
                Value::Number(value) => write!(text, " {name:?}={value}"),
            };
        }
        (self.sink)(&text);
    }

    /// Writes a message about an object with one more pair.
    fn about(&mut self, component: Component, object: &Object, message: &str, name: &str, text: &str) {
        let [kind, title] = titles(object);
        self.line(Some(component), 0, message, &[kind, title, (name, Value::Text(text.to_owned()))]);
    }

    fn wait(&mut self, component: Component, object: &Object, state: &WaitState) {
        let number = |name, value: &i32| (name, Value::Number(i64::from(*value)));
        let key = ("key", Value::Text(key(object)));
        match state {
            WaitState::DaemonSet { desired, updated, ready } => {
                let pairs =
                    [key, number("desired", desired), number("current", updated), number("ready", ready)];
                self.line(Some(component), 0, "daemonset not ready", &pairs);
            }
            WaitState::Deployment { replicas, updated, available } => {
                let pairs = [
                    key,
                    number("replicas", replicas),
                    number("updated", updated),
                    number("available", available),
                ];
                self.line(Some(component), 0, "deployment not complete", &pairs);
            }
            WaitState::Present => {
                let name = object.name().to_owned();
                if object.kind().kind == "Namespace"
                    && self.waiting.replace(name.clone()) != Some(name.clone())
                {
                    let pairs = [("namespace", Value::Text(name))];
                    self.line(Some(component), 0, "wait for the namespace to be gone", &pairs);
                }
                let pairs = [("kind", Value::Text(short(object))), key];
                self.line(Some(component), 0, "object still present", &pairs);
            }
            WaitState::Absent | WaitState::NotEstablished | WaitState::Unobserved => {}
        }
    }

    fn reached(&mut self, operation: Operation, component: Component, object: &Object) {
        let key = ("key", Value::Text(key(object)));
        let message = match (operation, object.kind().kind.as_str()) {
            (Operation::Remove, _) => {
                let pairs = [("kind", Value::Text(short(object))), key];
                return self.line(Some(component), 0, "object is gone", &pairs);
            }
            (Operation::Deploy, "CustomResourceDefinition") => "CRD available",
            (Operation::Deploy, "DaemonSet") => "daemonset ready",
            (Operation::Deploy, "Deployment") => "deployment complete",
            (Operation::Deploy, _) => return,
        };
        self.line(Some(component), 0, message, &[key]);
    }
}

impl Observer for Structured {
    fn observe(&mut self, step: &Step<'_>) {
        let titles = |object: &Object| {
            [
                ("kind", Value::Text(object.kind().kind.clone())),
                ("name", Value::Text(object.name().to_owned())),
            ]
        };
        match step {
            Step::Began(operation, component) => {
                let verb = if *operation == Operation::Deploy { "deploying" } else { "removing" };
                let message = format!("{verb} topology-aware-scheduling {}", spoken(*component));
                self.line(Some(*component), 0, &message, &[]);
            }
            Step::Ended(operation, component) => {
                let (verb, mark) = match (operation, component) {
                    (Operation::Deploy, Component::TopologyUpdater) => ("deployed", "!"),
                    (Operation::Deploy, _) => ("deployed", ""),
                    (Operation::Remove, Component::SchedulerPlugin) => ("removed", ""),
                    (Operation::Remove, _) => ("removed", "!"),
                };
                let message = format!("{verb} topology-aware-scheduling {}{mark}", spoken(*component));
                self.line(Some(*component), 0, &message, &[]);
            }
            Step::Applied(component, object, change) => {
                self.line(Some(*component), 0, done(*change), &titles(object));
            }
            Step::Deleted(component, object) => self.line(Some(*component), 0, "deleted", &titles(object)),
            Step::Failed { operation, component, object, error } => {
                let message =
                    if *operation == Operation::Deploy { "error creating" } else { "error deleting" };
                self.about(*component, object, message, "error", error);
            }
            Step::Waiting(component, object, state) => self.wait(*component, object, state),
            Step::Reached(operation, component, object) => self.reached(*operation, *component, object),
            Step::Recreating(component, object, reason) => {
                self.about(*component, object, "recreating", "reason", reason);
            }
            Step::Kept(component, object, reason) => self.about(*component, object, "kept", "reason", reason),
            Step::Warned(component, object, text) => {
                self.about(*component, object, "the API server warns", "warning", text);
            }
            Step::Note(component, object, text) => self.about(*component, object, "found", "note", text),
            Step::Diagnosis(component, object, text) => {
                self.about(*component, object, "not ready", "trouble", text)
            }
            Step::RollingBack => self.line(None, 0, "rolling back to the previous state", &[]),
            Step::RolledBack(component, object, how) => {
                self.line(Some(*component), 0, reverted(*how), &titles(object));
            }
        }
    }
}

fn titles(object: &Object) -> [(&'static str, Value); 2] {
    [("kind", Value::Text(object.kind().kind.clone())), ("name", Value::Text(object.name().to_owned()))]
}

/// The kind in the Go deployer's messages about waits.
fn short(object: &Object) -> String {
    let kind = object.kind().kind.as_str();
    if kind == "CustomResourceDefinition" { "CRD".to_owned() } else { kind.to_owned() }
}
