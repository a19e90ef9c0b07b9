//! The version of this program.

use std::sync::LazyLock;

/// The commit of the build: 40 hexadecimal digits, if the build had them in the variable `THOLEPIN_COMMIT`.
pub(crate) fn commit() -> Option<&'static str> {
    option_env!("THOLEPIN_COMMIT").filter(|commit| !commit.is_empty())
}

/// Version and commit, as people see them: `0.1.0 (commit 012345678)`.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let short = short().map(|short| format!(" (commit {short})")).unwrap_or_default();
    format!("{}{short}", env!("CARGO_PKG_VERSION"))
});

/// The tag of the release: `v0.1.0`.
pub(crate) fn tag() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

/// The tag and the first nine digits of the commit, if it is known: `v0.1.0-012345678`.
pub(crate) fn full() -> String {
    short().map_or_else(tag, |short| format!("{}-{short}", tag()))
}

/// The first nine digits of the commit.
fn short() -> Option<String> {
    commit().map(|commit| commit.chars().take(9).collect())
}
