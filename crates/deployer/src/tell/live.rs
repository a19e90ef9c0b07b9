//! Our own manner on a terminal: what is waited for is one line that changes, what is done stays above it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plain::Plain;
use crate::install::progress::{Step, Tell};

/// Tells on a terminal.
pub struct Live {
    plain: Plain,
    bar: ProgressBar,
}

impl Live {
    /// `dry`: nothing happens really.
    #[must_use]
    pub fn new(dry: bool) -> Self {
        let bar = ProgressBar::new_spinner();
        // A template of ours that does not parse would leave the usual one.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { plain: Plain::new(dry, Box::new(|_| ())), bar }
    }
}

impl Tell for Live {
    fn tell(&mut self, step: &Step<'_>) {
        let Some(line) = self.plain.read(step) else { return };
        match step {
            Step::Began(..) => {
                self.bar.set_message(line.clone());
                self.bar.println(line);
            }
            Step::Waiting(..) => self.bar.set_message(line.trim_start().to_owned()),
            _ => self.bar.println(line),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
