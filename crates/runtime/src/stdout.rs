//! Data on standard output.
//!
//! In: text. Out: the text on standard output, up to the point where the reader closes the pipe. Never: an error about
//! a closed pipe.

use std::io::{ErrorKind, Write as _};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("writing to standard output")]
pub struct Error(#[source] std::io::Error);

/// Prints `text`. A reader that closes the pipe early is no error.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error),
    }
}
