//! The peer's sentences, as its README shows them.
//!
//! Where we do more than it did when that was written, there are more sentences of the same kind.

use super::{Sink, done, key, spoken, tag, undone};
use crate::install::progress::{Action, State, Step, Tell};
use crate::options::Updater;
use objects::Object;

/// Tells in sentences.
pub struct Classic {
    sink: Sink,
    updater: Updater,
    /// What is being waited for, so that the beginning of it is told once.
    waiting: Option<String>,
}

impl Classic {
    /// Tells of an installation with this updater.
    #[must_use]
    pub fn new(updater: Updater, sink: Sink) -> Self {
        Self { sink, updater, waiting: None }
    }

    fn line(&mut self, text: &str) {
        (self.sink)(text);
    }

    fn wait(&mut self, object: &Object, state: &State) {
        let Some(set) = workload(object) else { return };
        let name = format!("{} {}", object.namespace().unwrap_or_default(), object.name());
        let begun = self.waiting.replace(key(object)) == Some(key(object));
        match state {
            State::Present if set == "namespace" && !begun => {
                self.line(&format!("wait for the deployment namespace {:?} to be gone", object.name()));
            }
            State::Present if !begun => {
                self.line(&format!("wait for all the pods in {set} {name} to be gone"));
            }
            State::Present => {}
            _ if set == "namespace" => {}
            _ => {
                if !begun {
                    // The peer says "deployment" of a daemonset too.
                    self.line(&format!("wait for all the pods in deployment {name} to be running and ready"));
                }
                self.line(&match state {
                    State::DaemonSet { desired, ready, .. } if *desired > 0 => {
                        format!("pods of {name} not ready yet ({ready} of {desired})")
                    }
                    State::Deployment { replicas, updated, available } if *updated > 0 => {
                        format!("pods of {name} not ready yet ({available} of {replicas})")
                    }
                    _ => format!("no pods found for {name}"),
                });
            }
        }
    }

    /// Of a pod in the peer's words, with more than its phase.
    fn trouble(&mut self, object: &Object, trouble: &str) {
        let namespace = object.namespace().unwrap_or_default();
        let pod = trouble.strip_prefix("pod ").and_then(|text| text.split_once(": "));
        match pod {
            Some((pod, reason)) => self.line(&format!("pod {namespace} {pod} not ready yet ({reason})")),
            None => self.line(&format!("pods of {namespace} {} not ready yet ({trouble})", object.name())),
        }
    }

    fn reached(&mut self, action: Action, object: &Object) {
        let waited = self.waiting.take().is_some();
        let Some(set) = workload(object) else { return };
        let name = format!("{} {}", object.namespace().unwrap_or_default(), object.name());
        match action {
            Action::Deploy if set != "namespace" => {
                if !waited {
                    self.line(&format!("wait for all the pods in deployment {name} to be running and ready"));
                }
                self.line(&format!("all the pods in {set} {name} are running and ready!"));
            }
            Action::Remove if set == "namespace" => {
                self.line(&format!("namespace gone for daemonset {:?}!", object.name()));
            }
            Action::Remove if waited => self.line(&format!("all pods gone for {set} {name} are gone!")),
            _ => {}
        }
    }
}

impl Tell for Classic {
    fn tell(&mut self, step: &Step<'_>) {
        let updater = self.updater;
        let of = |component| format!("-{:>5}>", tag(component, updater));
        let title = |object: &Object| format!("{} {:?}", object.kind().kind, object.name());
        match step {
            Step::Began(action, component) => {
                let verb = if *action == Action::Deploy { "deploying" } else { "removing" };
                self.line(&format!("{verb} topology-aware-scheduling {}...", spoken(*component)));
            }
            Step::Ended(action, component) => {
                let verb = if *action == Action::Deploy { "deployed" } else { "removed" };
                self.line(&format!("...{verb} topology-aware-scheduling {}!", spoken(*component)));
            }
            Step::Applied(component, object, change) => {
                self.line(&format!("{} {} {}", of(*component), done(*change), title(object)));
            }
            Step::Deleted(component, object) => {
                self.line(&format!("{} deleted {}", of(*component), title(object)));
            }
            Step::Failed { action, component, object, error } => {
                let verb = if *action == Action::Deploy { "creating" } else { "deleting" };
                self.line(&format!("{} error {verb} {}: {error}", of(*component), title(object)));
            }
            Step::Waiting(_, object, state) => self.wait(object, state),
            Step::Reached(action, _, object) => self.reached(*action, object),
            Step::Recreating(component, object, reason) => {
                self.line(&format!("{} recreating {}: {reason}", of(*component), title(object)));
            }
            Step::Kept(component, object, reason) => {
                self.line(&format!("{} kept {}: {reason}", of(*component), title(object)));
            }
            Step::Warned(component, object, warning) => {
                self.line(&format!("{} warning about {}: {warning}", of(*component), title(object)));
            }
            Step::Found(component, object, finding) => {
                self.line(&format!("{} note about {}: {finding}", of(*component), title(object)));
            }
            Step::Trouble(_, object, trouble) => self.trouble(object, trouble),
            Step::RollingBack => self.line("restoring what was there before..."),
            Step::RolledBack(component, object, how) => {
                self.line(&format!("{} {} {}", of(*component), undone(*how), title(object)));
            }
        }
    }
}

/// What the peer calls a kind whose pods it waits for.
fn workload(object: &Object) -> Option<&'static str> {
    match object.kind().kind.as_str() {
        "DaemonSet" => Some("daemonset"),
        "Deployment" => Some("deployment"),
        "Namespace" => Some("namespace"),
        _ => None,
    }
}
