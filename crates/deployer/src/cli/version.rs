//! Which version this is.

/// The commit it was built from: 40 hexadecimal digits, if whoever built it said so in `THOLEPIN_COMMIT`.
#[must_use]
pub fn commit() -> Option<&'static str> {
    option_env!("THOLEPIN_COMMIT").filter(|commit| !commit.is_empty())
}

/// As releases are tagged: `v0.1.0`.
#[must_use]
pub fn tag() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

/// With the beginning of the commit, if it is known: `v0.1.0-0123456789`.
#[must_use]
pub fn full() -> String {
    let short = commit().map(|commit| commit.chars().take(9).collect::<String>());
    short.map_or_else(tag, |short| format!("{}-{short}", tag()))
}
