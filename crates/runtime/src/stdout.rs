//! Data on standard output.
//!
//! In: text. Out: all of it, or as much as whoever reads wants. Never: a word about what goes wrong there.

use std::io::{ErrorKind, Write as _};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("writing to standard output")]
pub struct Error(#[source] std::io::Error);

/// Prints. Whoever reads may stop reading.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error),
    }
}
