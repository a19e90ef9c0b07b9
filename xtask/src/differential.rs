//! `cargo xtask differential`: the model of the kubelet's admission beside the kubelet's own packages.
//!
//! In: arguments of the crate `differential`, which lists them. Out: what that program prints, and its exit code. It is
//! built with optimisation, since it asks millions of things.

use std::ffi::OsString;

use anyhow::{Context as _, bail};

use crate::cargo;

/// Builds and runs the program.
pub(crate) fn run(args: &[OsString]) -> anyhow::Result<()> {
    let mut program = cargo::command("run");
    program.args(["--release", "--quiet", "--locked", "--package", "differential", "--"]).args(args);
    let status = program.status().context("running cargo")?;
    if !status.success() {
        bail!("the comparison ended with {status}");
    }
    Ok(())
}
