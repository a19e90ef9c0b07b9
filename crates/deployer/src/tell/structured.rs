//! Keys and values, as the peer's later releases log.

use std::fmt::Write as _;

use super::{Sink, done, key, spoken, tag, undone};
use crate::install::progress::{Action, State, Step, Tell};
use crate::options::Updater;
use crate::part::Component;
use objects::Object;

/// Tells in keys and values.
pub struct Structured {
    sink: Sink,
    updater: Updater,
    verbosity: i64,
    /// The namespace whose end is being waited for.
    waiting: Option<String>,
}

/// A value of a pair.
pub enum Value {
    /// Quoted.
    Text(String),
    /// Bare.
    Number(i64),
}

impl Structured {
    /// Tells of an installation with this updater what is of this level or below.
    #[must_use]
    pub fn new(updater: Updater, verbosity: i64, sink: Sink) -> Self {
        Self { sink, updater, verbosity, waiting: None }
    }

    /// One line, if its level is wanted.
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

    /// A message about an object, with a text.
    fn about(&mut self, component: Component, object: &Object, message: &str, name: &str, text: &str) {
        let [kind, title] = titles(object);
        self.line(Some(component), 0, message, &[kind, title, (name, Value::Text(text.to_owned()))]);
    }

    fn wait(&mut self, component: Component, object: &Object, state: &State) {
        let number = |name, value: &i32| (name, Value::Number(i64::from(*value)));
        let key = ("key", Value::Text(key(object)));
        match state {
            State::DaemonSet { desired, updated, ready } => {
                let pairs =
                    [key, number("desired", desired), number("current", updated), number("ready", ready)];
                self.line(Some(component), 0, "daemonset not ready", &pairs);
            }
            State::Deployment { replicas, updated, available } => {
                let pairs = [
                    key,
                    number("replicas", replicas),
                    number("updated", updated),
                    number("available", available),
                ];
                self.line(Some(component), 0, "deployment not complete", &pairs);
            }
            State::Present => {
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
            State::Absent | State::NotEstablished | State::Unobserved => {}
        }
    }

    fn reached(&mut self, action: Action, component: Component, object: &Object) {
        let key = ("key", Value::Text(key(object)));
        let message = match (action, object.kind().kind.as_str()) {
            (Action::Remove, _) => {
                let pairs = [("kind", Value::Text(short(object))), key];
                return self.line(Some(component), 0, "object is gone", &pairs);
            }
            (Action::Deploy, "CustomResourceDefinition") => "CRD available",
            (Action::Deploy, "DaemonSet") => "daemonset ready",
            (Action::Deploy, "Deployment") => "deployment complete",
            (Action::Deploy, _) => return,
        };
        self.line(Some(component), 0, message, &[key]);
    }
}

impl Tell for Structured {
    fn tell(&mut self, step: &Step<'_>) {
        let titles = |object: &Object| {
            [
                ("kind", Value::Text(object.kind().kind.clone())),
                ("name", Value::Text(object.name().to_owned())),
            ]
        };
        match step {
            Step::Began(action, component) => {
                let verb = if *action == Action::Deploy { "deploying" } else { "removing" };
                let message = format!("{verb} topology-aware-scheduling {}", spoken(*component));
                self.line(Some(*component), 0, &message, &[]);
            }
            Step::Ended(action, component) => {
                let (verb, mark) = match (action, component) {
                    (Action::Deploy, Component::TopologyUpdater) => ("deployed", "!"),
                    (Action::Deploy, _) => ("deployed", ""),
                    (Action::Remove, Component::SchedulerPlugin) => ("removed", ""),
                    (Action::Remove, _) => ("removed", "!"),
                };
                let message = format!("{verb} topology-aware-scheduling {}{mark}", spoken(*component));
                self.line(Some(*component), 0, &message, &[]);
            }
            Step::Applied(component, object, change) => {
                self.line(Some(*component), 0, done(*change), &titles(object));
            }
            Step::Deleted(component, object) => self.line(Some(*component), 0, "deleted", &titles(object)),
            Step::Failed { action, component, object, error } => {
                let message = if *action == Action::Deploy { "error creating" } else { "error deleting" };
                self.about(*component, object, message, "error", error);
            }
            Step::Waiting(component, object, state) => self.wait(*component, object, state),
            Step::Reached(action, component, object) => self.reached(*action, *component, object),
            Step::Recreating(component, object, reason) => {
                self.about(*component, object, "recreating", "reason", reason);
            }
            Step::Kept(component, object, reason) => self.about(*component, object, "kept", "reason", reason),
            Step::Warned(component, object, text) => {
                self.about(*component, object, "the API server warns", "warning", text);
            }
            Step::Found(component, object, text) => self.about(*component, object, "found", "note", text),
            Step::Trouble(component, object, text) => {
                self.about(*component, object, "not ready", "trouble", text)
            }
            Step::RollingBack => self.line(None, 0, "restoring what was there before", &[]),
            Step::RolledBack(component, object, how) => {
                self.line(Some(*component), 0, undone(*how), &titles(object));
            }
        }
    }
}

fn titles(object: &Object) -> [(&'static str, Value); 2] {
    [("kind", Value::Text(object.kind().kind.clone())), ("name", Value::Text(object.name().to_owned()))]
}

/// A kind as the peer's waits call it.
fn short(object: &Object) -> String {
    let kind = object.kind().kind.as_str();
    if kind == "CustomResourceDefinition" { "CRD".to_owned() } else { kind.to_owned() }
}
