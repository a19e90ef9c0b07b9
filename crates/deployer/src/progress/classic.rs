//! Progress as sentences of the Go deployer, as its README shows them.
//!
//! Steps that it does not have get sentences in the same style.

use super::{Sink, done, key, reverted, spoken, tag};
use crate::install::step::{ObjectStep, Observer, Operation, Step, WaitState};
use crate::options::Updater;
use objects::Object;

/// Progress as sentences.
pub(crate) struct Classic {
    sink: Sink,
    updater: Updater,
    /// The object of the current wait, whose beginning is printed once.
    waiting: Option<String>,
}

impl Classic {
    /// Progress of an installation with this updater.
    pub(crate) fn new(updater: Updater, sink: Sink) -> Self {
        Self { sink, updater, waiting: None }
    }

    fn line(&mut self, text: &str) {
        (self.sink)(text);
    }

    fn wait(&mut self, object: &Object, state: &WaitState) {
        let Some(set) = workload(object) else { return };
        let name = format!("{} {}", object.namespace().unwrap_or_default(), object.name());
        let begun = self.waiting.replace(key(object)) == Some(key(object));
        match state {
            WaitState::Present if set == "namespace" && !begun => {
                self.line(&format!("wait for the deployment namespace {:?} to be gone", object.name()));
            }
            WaitState::Present if !begun => {
                self.line(&format!("wait for all the pods in {set} {name} to be gone"));
            }
            WaitState::Present => {}
            _ if set == "namespace" => {}
            _ => {
                if !begun {
                    // The Go deployer says "deployment" for a DaemonSet too.
                    self.line(&format!("wait for all the pods in deployment {name} to be running and ready"));
                }
                self.line(&match state {
                    WaitState::DaemonSet { desired, ready, .. } if *desired > 0 => {
                        format!("pods of {name} not ready yet ({ready} of {desired})")
                    }
                    WaitState::Deployment { replicas, updated, available } if *updated > 0 => {
                        format!("pods of {name} not ready yet ({available} of {replicas})")
                    }
                    _ => format!("no pods found for {name}"),
                });
            }
        }
    }

    /// Writes a pod's reason in the Go deployer's form, which has only the phase.
    fn trouble(&mut self, object: &Object, trouble: &str) {
        let namespace = object.namespace().unwrap_or_default();
        let pod = trouble.strip_prefix("pod ").and_then(|text| text.split_once(": "));
        match pod {
            Some((pod, reason)) => self.line(&format!("pod {namespace} {pod} not ready yet ({reason})")),
            None => self.line(&format!("pods of {namespace} {} not ready yet ({trouble})", object.name())),
        }
    }

    fn reached(&mut self, operation: Operation, object: &Object) {
        let waited = self.waiting.take().is_some();
        let Some(set) = workload(object) else { return };
        let name = format!("{} {}", object.namespace().unwrap_or_default(), object.name());
        match operation {
            Operation::Deploy if set != "namespace" => {
                if !waited {
                    self.line(&format!("wait for all the pods in deployment {name} to be running and ready"));
                }
                self.line(&format!("all the pods in {set} {name} are running and ready!"));
            }
            Operation::Remove if set == "namespace" => {
                self.line(&format!("namespace gone for daemonset {:?}!", object.name()));
            }
            Operation::Remove if waited => self.line(&format!("all pods gone for {set} {name} are gone!")),
            _ => {}
        }
    }
}

impl Observer for Classic {
    fn observe(&mut self, step: &Step<'_>) {
        match step {
            Step::Began(operation, component) => {
                let verb = operation.word("deploying", "removing");
                self.line(&format!("{verb} topology-aware-scheduling {}...", spoken(*component)));
            }
            Step::Ended(operation, component) => {
                let verb = operation.word("deployed", "removed");
                self.line(&format!("...{verb} topology-aware-scheduling {}!", spoken(*component)));
            }
            Step::RollingBack => self.line("rolling back to the previous state..."),
            Step::Object(component, object, step) => {
                let title = format!("{} {:?}", object.kind().kind, object.name());
                let text = match step {
                    ObjectStep::Waiting(state) => return self.wait(object, state),
                    ObjectStep::Reached(operation) => return self.reached(*operation, object),
                    ObjectStep::Diagnosis(trouble) => return self.trouble(object, trouble),
                    ObjectStep::Applied(change) => format!("{} {title}", done(*change)),
                    ObjectStep::Deleted => format!("deleted {title}"),
                    ObjectStep::Failed(operation, error) => {
                        format!("error {} {title}: {error}", operation.word("creating", "deleting"))
                    }
                    ObjectStep::Recreating(reason) => format!("recreating {title}: {reason}"),
                    ObjectStep::Kept(reason) => format!("kept {title}: {reason}"),
                    ObjectStep::Warned(warning) => format!("warning about {title}: {warning}"),
                    ObjectStep::Note(note) => format!("note about {title}: {note}"),
                    ObjectStep::RolledBack(how) => format!("{} {title}", reverted(*how)),
                };
                self.line(&format!("-{:>5}> {text}", tag(*component, self.updater)));
            }
        }
    }
}

/// The Go deployer's word for a kind that it waits for.
fn workload(object: &Object) -> Option<&'static str> {
    match object.kind().kind.as_str() {
        "DaemonSet" => Some("daemonset"),
        "Deployment" => Some("deployment"),
        "Namespace" => Some("namespace"),
        _ => None,
    }
}
