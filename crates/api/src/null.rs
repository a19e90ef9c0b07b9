//! `null` where something else is meant: Go writes a list or map that was never set so.

use serde::{Deserialize, Deserializer};

/// `null` is the default. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// When what is there is something else.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
