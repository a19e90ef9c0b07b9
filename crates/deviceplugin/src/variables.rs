//! Environment variables of a container, for which several devices may have values.
//!
//! In: names and values. Out: each name once, its values joined by commas. Never: an opinion about who sets them.

use std::collections::BTreeMap;

/// Values by name, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Variables(BTreeMap<String, Vec<String>>);

impl Variables {
    /// Adds a value to a variable; a value that is there already is not repeated.
    pub fn add(&mut self, name: &str, value: &str) {
        let values = self.0.entry(name.to_owned()).or_default();
        if values.iter().all(|there| there != value) {
            values.push(value.to_owned());
        }
    }

    /// Adds each of these variables.
    pub fn add_all(&mut self, envs: &BTreeMap<String, String>) {
        envs.iter().for_each(|(name, value)| self.add(name, value));
    }

    /// The variables with their values joined by commas.
    #[must_use]
    pub fn joined(self) -> BTreeMap<String, String> {
        self.0.into_iter().map(|(name, values)| (name, values.join(","))).collect()
    }
}
