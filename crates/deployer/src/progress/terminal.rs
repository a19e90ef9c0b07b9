//! Progress on a terminal: the current wait is one changing line below the completed steps.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::lines::Lines;
use crate::install::step::{ObjectStep, Observer, Step};

/// Progress on a terminal.
pub(crate) struct Terminal {
    lines: Lines,
    bar: ProgressBar,
}

impl Terminal {
    /// `dry` marks the lines of a dry run.
    pub(crate) fn new(dry: bool) -> Self {
        let bar = ProgressBar::new_spinner();
        // On a parse error the default template stays.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { lines: Lines::new(dry, Box::new(|_| ())), bar }
    }
}

impl Observer for Terminal {
    fn observe(&mut self, step: &Step<'_>) {
        let Some(line) = self.lines.read(step) else { return };
        match step {
            Step::Began(..) => {
                self.bar.set_message(line.clone());
                self.bar.println(line);
            }
            Step::Object(_, _, ObjectStep::Waiting(_)) => self.bar.set_message(line.trim_start().to_owned()),
            _ => self.bar.println(line),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
