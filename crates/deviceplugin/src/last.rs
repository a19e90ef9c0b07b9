//! Whether a text is the one that was read last.
//!
//! In: texts. Out: yes or no. Never: the text kept: a list of thousands of devices is looked at every few seconds, and is nearly always the same.

use xxhash_rust::xxh64::xxh64;

/// What was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last(Option<u64>);

impl Last {
    /// Whether the text is the one of the last time; it is from now on.
    pub fn is(&mut self, text: &str) -> bool {
        let hash = xxh64(text.as_bytes(), 0);
        self.0.replace(hash) == Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_text_is_the_same() {
        let mut last = Last::default();
        let is = ["", "", "a", "a", "b", "a"].map(|text| last.is(text));
        assert_eq!(is, [false, true, false, true, false, false]);
    }
}
