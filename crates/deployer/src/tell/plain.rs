//! Our own manner: a line for each change and each step of waiting.

use std::collections::BTreeMap;

use super::{Sink, done, how_far, undone};
use crate::install::progress::{Action, Change, Step, Tell};
use objects::Object;

/// Tells line by line.
pub struct Plain {
    sink: Sink,
    dry: bool,
    /// What is waited for and what was last said of it.
    waiting: BTreeMap<String, String>,
}

impl Plain {
    /// `dry`: nothing happens really.
    #[must_use]
    pub fn new(dry: bool, sink: Sink) -> Self {
        Self { sink, dry, waiting: BTreeMap::new() }
    }

    /// The line of a step, if there is something to say.
    pub fn read(&mut self, step: &Step<'_>) -> Option<String> {
        let dry = if self.dry { " (dry run)" } else { "" };
        match step {
            // What did not change is counted at the end.
            Step::Applied(_, _, Change::Unchanged) | Step::Ended(..) => None,
            Step::Began(action, component) => Some(format!(
                "{} {component}",
                if *action == Action::Deploy { "deploying" } else { "removing" }
            )),
            Step::Applied(_, object, change) => Some(match change {
                Change::Foreign => format!("  {object} is somebody else's and used as it is"),
                change => format!("  {object} {}{dry}", done(*change)),
            }),
            Step::Recreating(_, object, reason) => Some(format!("  {object} is made anew: {reason}")),
            Step::Kept(_, object, reason) => Some(format!("  {object} stays: {reason}")),
            Step::Warned(_, object, text) => Some(format!("  warning about {object}: {text}")),
            Step::Found(_, object, text) => Some(format!("  {object}: {text}")),
            Step::Trouble(_, object, text) => Some(format!("  {object}: {text}")),
            Step::RolledBack(_, object, how) => Some(format!("  {object} {}", undone(*how))),
            Step::Deleted(_, object) => Some(format!("  {object} deleted{dry}")),
            Step::Failed { object, error, .. } => Some(format!("  {object}: {error}")),
            Step::Waiting(_, object, state) => self.wait(object, how_far(state)),
            Step::Reached(action, _, object) => {
                // Only what took time is worth a line.
                self.waiting.remove(&object.to_string())?;
                let reached = match (action, object.kind().kind.as_str()) {
                    (Action::Remove, _) => "gone",
                    (Action::Deploy, "CustomResourceDefinition") => "served",
                    (Action::Deploy, _) => "ready",
                };
                Some(format!("  {object} is {reached}"))
            }
            Step::RollingBack => Some("restoring what was there before".to_owned()),
        }
    }

    fn wait(&mut self, object: &Object, how_far: String) -> Option<String> {
        let said = self.waiting.insert(object.to_string(), how_far.clone());
        (said.as_ref() != Some(&how_far)).then(|| format!("  waiting for {object}: {how_far}"))
    }
}

impl Tell for Plain {
    fn tell(&mut self, step: &Step<'_>) {
        if let Some(line) = self.read(step) {
            (self.sink)(&line);
        }
    }
}
