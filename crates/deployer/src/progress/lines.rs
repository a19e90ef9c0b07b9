//! Progress as lines: one for each change and each new state of a wait.

use std::collections::BTreeMap;

use super::{Sink, done, how_far, reverted};
use crate::install::step::{Change, Observer, Operation, Step};
use objects::Object;

/// Progress as lines.
pub struct Lines {
    sink: Sink,
    dry: bool,
    /// The last line about each object of a wait.
    waiting: BTreeMap<String, String>,
}

impl Lines {
    /// `dry` marks the lines of a dry run.
    #[must_use]
    pub fn new(dry: bool, sink: Sink) -> Self {
        Self { sink, dry, waiting: BTreeMap::new() }
    }

    /// The line of a step, if it has one.
    pub fn read(&mut self, step: &Step<'_>) -> Option<String> {
        let dry = if self.dry { " (dry run)" } else { "" };
        match step {
            // Unchanged objects are counted at the end.
            Step::Applied(_, _, Change::Unchanged) | Step::Ended(..) => None,
            Step::Began(operation, component) => Some(format!(
                "{} {component}",
                if *operation == Operation::Deploy { "deploying" } else { "removing" }
            )),
            Step::Applied(_, object, change) => Some(match change {
                Change::Foreign => format!("  {object} belongs to others and is used unchanged"),
                change => format!("  {object} {}{dry}", done(*change)),
            }),
            Step::Recreating(_, object, reason) => Some(format!("  {object} will be recreated: {reason}")),
            Step::Kept(_, object, reason) => Some(format!("  {object} stays: {reason}")),
            Step::Warned(_, object, text) => Some(format!("  warning about {object}: {text}")),
            Step::Note(_, object, text) => Some(format!("  {object}: {text}")),
            Step::Diagnosis(_, object, text) => Some(format!("  {object}: {text}")),
            Step::RolledBack(_, object, how) => Some(format!("  {object} {}", reverted(*how))),
            Step::Deleted(_, object) => Some(format!("  {object} deleted{dry}")),
            Step::Failed { object, error, .. } => Some(format!("  {object}: {error}")),
            Step::Waiting(_, object, state) => self.wait(object, how_far(state)),
            Step::Reached(operation, _, object) => {
                // An object that was never waited for has no line.
                self.waiting.remove(&object.to_string())?;
                let reached = match (operation, object.kind().kind.as_str()) {
                    (Operation::Remove, _) => "gone",
                    (Operation::Deploy, "CustomResourceDefinition") => "served",
                    (Operation::Deploy, _) => "ready",
                };
                Some(format!("  {object} is {reached}"))
            }
            Step::RollingBack => Some("rolling back to the previous state".to_owned()),
        }
    }

    fn wait(&mut self, object: &Object, how_far: String) -> Option<String> {
        let said = self.waiting.insert(object.to_string(), how_far.clone());
        (said.as_ref() != Some(&how_far)).then(|| format!("  waiting for {object}: {how_far}"))
    }
}

impl Observer for Lines {
    fn observe(&mut self, step: &Step<'_>) {
        if let Some(line) = self.read(step) {
            (self.sink)(&line);
        }
    }
}
