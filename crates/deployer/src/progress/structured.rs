//! Progress as keys and values, as later releases of the Go deployer print it.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Sink, done, key, reverted, spoken, tag};
use crate::install::step::{ObjectStep, Observer, Operation, Step, WaitState};
use crate::options::Updater;
use crate::part::Component;
use objects::Object;

/// Progress as keys and values.
pub(crate) struct Structured {
    sink: Sink,
    updater: Updater,
    verbosity: i64,
    /// The namespace whose deletion is awaited.
    waiting: Option<String>,
}

impl Structured {
    /// Progress of an installation with this updater; lines above the level `verbosity` are dropped.
    pub(crate) fn new(updater: Updater, verbosity: i64, sink: Sink) -> Self {
        Self { sink, updater, verbosity, waiting: None }
    }

    /// Writes a line unless its level is above the verbosity. Values are texts, printed in quotes, or numbers.
    pub(crate) fn line(
        &mut self,
        component: Option<Component>,
        level: i64,
        message: &str,
        pairs: &[(&str, Value)],
    ) {
        if level > self.verbosity {
            return;
        }
        let mut text = component.map_or_else(String::new, |one| format!("{}: ", tag(one, self.updater)));
        // Writing to a string cannot fail.
        let _ = write!(text, "\"level\"={level} \"msg\"={message:?}");
        for (name, value) in pairs {
            let _ = match value {
                Value::String(value) => write!(text, " {name:?}={value:?}"),
                number => write!(text, " {name:?}={number}"),
            };
        }
        (self.sink)(&text);
    }

    fn wait(&mut self, component: Component, object: &Object, state: &WaitState) {
        let number = |name, value: &i32| (name, Value::from(*value));
        let key = ("key", Value::from(key(object)));
        let (message, pairs) = match state {
            WaitState::DaemonSet { desired, updated, ready } => (
                "daemonset not ready",
                vec![key, number("desired", desired), number("current", updated), number("ready", ready)],
            ),
            WaitState::Deployment { replicas, updated, available } => {
                let numbers = [("replicas", replicas), ("updated", updated), ("available", available)];
                let numbers = numbers.map(|(name, value)| number(name, value));
                ("deployment not complete", std::iter::once(key).chain(numbers).collect())
            }
            WaitState::Present => {
                let name = object.name();
                if object.kind().kind == "Namespace"
                    && self.waiting.replace(name.to_owned()).as_deref() != Some(name)
                {
                    let pairs = [("namespace", name.into())];
                    self.line(Some(component), 0, "wait for the namespace to be gone", &pairs);
                }
                ("object still present", vec![short(object), key])
            }
            WaitState::Absent | WaitState::NotEstablished | WaitState::Unobserved => return,
        };
        self.line(Some(component), 0, message, &pairs);
    }

    fn reached(&mut self, operation: Operation, component: Component, object: &Object) {
        let key = ("key", Value::from(key(object)));
        let (message, pairs) = match (operation, object.kind().kind.as_str()) {
            (Operation::Remove, _) => ("object is gone", vec![short(object), key]),
            (Operation::Deploy, "CustomResourceDefinition") => ("CRD available", vec![key]),
            (Operation::Deploy, "DaemonSet") => ("daemonset ready", vec![key]),
            (Operation::Deploy, "Deployment") => ("deployment complete", vec![key]),
            (Operation::Deploy, _) => return,
        };
        self.line(Some(component), 0, message, &pairs);
    }
}

impl Observer for Structured {
    fn observe(&mut self, step: &Step<'_>) {
        match step {
            Step::Began(operation, component) => {
                let verb = operation.word("deploying", "removing");
                let message = format!("{verb} topology-aware-scheduling {}", spoken(*component));
                self.line(Some(*component), 0, &message, &[]);
            }
            Step::Ended(operation, component) => {
                let (verb, mark) = match (operation, component) {
                    (Operation::Deploy, Component::Exporter) => ("deployed", "!"),
                    (Operation::Deploy, _) => ("deployed", ""),
                    (Operation::Remove, Component::Scheduler) => ("removed", ""),
                    (Operation::Remove, _) => ("removed", "!"),
                };
                let message = format!("{verb} topology-aware-scheduling {}{mark}", spoken(*component));
                self.line(Some(*component), 0, &message, &[]);
            }
            Step::RollingBack => self.line(None, 0, "rolling back to the previous state", &[]),
            Step::Object(component, object, step) => {
                let (message, more) = match step {
                    ObjectStep::Waiting(state) => return self.wait(*component, object, state),
                    ObjectStep::Reached(operation) => return self.reached(*operation, *component, object),
                    ObjectStep::Applied(change) => (done(*change), None),
                    ObjectStep::Deleted => ("deleted", None),
                    ObjectStep::RolledBack(how) => (reverted(*how), None),
                    ObjectStep::Failed(operation, error) => {
                        (operation.word("error creating", "error deleting"), Some(("error", error)))
                    }
                    ObjectStep::Recreating(reason) => ("recreating", Some(("reason", reason))),
                    ObjectStep::Kept(reason) => ("kept", Some(("reason", reason))),
                    ObjectStep::Warned(text) => ("the API server warns", Some(("warning", text))),
                    ObjectStep::Note(text) => ("found", Some(("note", text))),
                    ObjectStep::Diagnosis(text) => ("not ready", Some(("trouble", text))),
                };
                let mut pairs =
                    vec![("kind", object.kind().kind.as_str().into()), ("name", object.name().into())];
                pairs.extend(more.map(|(name, text)| (name, text.as_str().into())));
                self.line(Some(*component), 0, message, &pairs);
            }
        }
    }
}

/// The kind in the Go deployer's messages about waits.
fn short(object: &Object) -> (&'static str, Value) {
    let kind = object.kind().kind.as_str();
    ("kind", if kind == "CustomResourceDefinition" { "CRD" } else { kind }.into())
}
