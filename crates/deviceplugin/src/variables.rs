//! Variables of a container's environment, of which several devices may have something to say.
//!
//! In: names and values. Out: each name once, its values joined by commas. Never: an opinion about who hands them over.

use std::collections::BTreeMap;

/// Values by name, in the order in which they came.
#[derive(Debug, Default)]
pub struct Variables(BTreeMap<String, Vec<String>>);

impl Variables {
    /// Adds a value; one that is there stays the one.
    pub fn add(&mut self, name: &str, value: &str) {
        let values = self.0.entry(name.to_owned()).or_default();
        if values.iter().all(|there| there != value) {
            values.push(value.to_owned());
        }
    }

    /// Adds a value of each of these.
    pub fn add_all(&mut self, envs: &BTreeMap<String, String>) {
        envs.iter().for_each(|(name, value)| self.add(name, value));
    }

    /// All of them.
    #[must_use]
    pub fn joined(self) -> BTreeMap<String, String> {
        self.0.into_iter().map(|(name, values)| (name, values.join(","))).collect()
    }
}
