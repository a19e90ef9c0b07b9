//! Numbers with nouns, for messages.
//!
//! In: a number and a regular English noun. Out: text. Never: an irregular plural.

/// A number with its noun in the singular or plural.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
