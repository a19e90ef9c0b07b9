//! Calls of cargo.
//!
//! In: a command. Out: a process to start. Never: what `cargo run` or `cargo xtask` has set for us.

use std::process::Command;

/// The profile of what is shipped and measured; also the name of its folder below `target`.
pub(crate) const DIST: &str = "dist";
/// The profile of the clients of benchmarks.
pub(crate) const CLIENT: &str = "client";

/// `cargo COMMAND`, with the cargo that runs this task.
pub(crate) fn command(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg(command);
    // Set for us by `cargo run`. ring's build script watches them, and it and all above would be built anew.
    for (name, _) in std::env::vars_os() {
        let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(ours) {
            cargo.env_remove(name);
        }
    }
    cargo
}
