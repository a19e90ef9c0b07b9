//! Progress as lines: one for each change and each new state of a wait.

use std::collections::BTreeMap;

use super::{Sink, done, how_far, reverted};
use crate::install::step::{Change, ObjectStep, Observer, Operation, Step};
use objects::Object;

/// Progress as lines.
pub(crate) struct Lines {
    sink: Sink,
    dry: bool,
    /// The last line about each object of a wait.
    waiting: BTreeMap<String, String>,
}

impl Lines {
    /// `dry` marks the lines of a dry run.
    pub(crate) fn new(dry: bool, sink: Sink) -> Self {
        Self { sink, dry, waiting: BTreeMap::new() }
    }

    /// The line of a step, if it has one.
    pub(crate) fn read(&mut self, step: &Step<'_>) -> Option<String> {
        match step {
            Step::Began(operation, component) => {
                Some(format!("{} {component}", operation.word("deploying", "removing")))
            }
            Step::Object(_, object, step) => self.object(object, step).map(|line| format!("  {line}")),
            Step::RollingBack => Some("rolling back to the previous state".to_owned()),
            Step::Ended(..) => None,
        }
    }

    fn object(&mut self, object: &Object, step: &ObjectStep) -> Option<String> {
        let dry = if self.dry { " (dry run)" } else { "" };
        Some(match step {
            // Unchanged objects are counted at the end.
            ObjectStep::Applied(Change::Unchanged) => return None,
            ObjectStep::Applied(Change::Foreign) => {
                format!("{object} belongs to others and is used unchanged")
            }
            ObjectStep::Applied(change) => format!("{object} {}{dry}", done(*change)),
            ObjectStep::Recreating(reason) => format!("{object} will be recreated: {reason}"),
            ObjectStep::Kept(reason) => format!("{object} stays: {reason}"),
            ObjectStep::Warned(text) => format!("warning about {object}: {text}"),
            ObjectStep::Note(text) | ObjectStep::Diagnosis(text) | ObjectStep::Failed(_, text) => {
                format!("{object}: {text}")
            }
            ObjectStep::RolledBack(how) => format!("{object} {}", reverted(*how)),
            ObjectStep::Deleted => format!("{object} deleted{dry}"),
            ObjectStep::Waiting(state) => return self.wait(object, how_far(state)),
            ObjectStep::Reached(operation) => {
                // An object that was never waited for has no line.
                self.waiting.remove(&object.to_string())?;
                let reached = match (operation, object.kind().kind.as_str()) {
                    (Operation::Remove, _) => "gone",
                    (Operation::Deploy, "CustomResourceDefinition") => "served",
                    (Operation::Deploy, _) => "ready",
                };
                format!("{object} is {reached}")
            }
        })
    }

    fn wait(&mut self, object: &Object, how_far: String) -> Option<String> {
        let said = self.waiting.insert(object.to_string(), how_far.clone());
        (said.as_ref() != Some(&how_far)).then(|| format!("waiting for {object}: {how_far}"))
    }
}

impl Observer for Lines {
    fn observe(&mut self, step: &Step<'_>) {
        if let Some(line) = self.read(step) {
            (self.sink)(&line);
        }
    }
}
