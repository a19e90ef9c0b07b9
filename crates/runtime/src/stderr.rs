//! Messages on standard error.
//!
//! In: text, parts of which may come from strangers. Out: the text on standard error, in short lines, without
//! characters that act on a terminal. Never: a panic when it is closed.

mod words;

use std::fmt::Display;
use std::io::Write as _;

use crate::output::{printable, shortened};

/// The longest line, in bytes. Messages quote arguments and files, which can be a thousand times as long.
const LINE_BYTES: usize = 2048;

/// Prints a message as it is, without adding a line break.
pub fn print(message: impl Display) {
    // There is no other place to complain.
    let _ = std::io::stderr().lock().write_all(text(&message.to_string()).as_bytes());
}

/// Prints a message and a line break.
pub fn line(message: impl Display) {
    print(format_args!("{message}\n"));
}

/// The message as it is printed.
#[must_use]
pub fn text(message: &str) -> String {
    shortened(&printable(&words::plain(message)), LINE_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_harmless() {
        assert_eq!(text("error: a\n\tb\n"), "error: a\n\tb\n");
        assert_eq!(text("a\u{1b}[2J\u{7}\n"), "a\u{fffd}[2J\u{fffd}\n");
        let long = text(&format!("error: {} is wrong\nhint\n", "x".repeat(1 << 20)));
        assert!(long.len() < LINE_BYTES + 100, "{}", long.len());
        assert!(long.starts_with("error: xx") && long.ends_with("xx is wrong\nhint\n"), "{long}");
    }
}
