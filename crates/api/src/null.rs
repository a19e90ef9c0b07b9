//! `null` as the default: Go programs write unset lists and maps so.
//!
//! In: a value or `null`. Out: the value or its type's default. Never: a default for an absent field, which
//! `#[serde(default)]` gives.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the type's default. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// When the value is neither `null` nor a `T`.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
