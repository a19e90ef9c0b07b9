//! `cargo xtask features`: the crate `api` compiles without features, and with each of them alone.
//!
//! In: `crates/api/Cargo.toml`. Out: the first combination that does not compile, as an error. Never: a test, which
//! always sees all features together.

use anyhow::{Context as _, bail};

use crate::cargo;

/// The manifest, in this repository.
const MANIFEST: &str = include_str!("../../crates/api/Cargo.toml");

/// Checks each combination, warnings denied.
pub(crate) fn run() -> anyhow::Result<()> {
    for feature in std::iter::once("default").chain(features(MANIFEST)) {
        let mut check = cargo::command("clippy");
        check.args([
            "--package",
            "api",
            "--no-default-features",
            "--locked",
            "--quiet",
            "--features",
            feature,
        ]);
        // As an argument of clippy, so that dependencies are not checked anew.
        let status = check.args(["--", "-Dwarnings"]).status().context("running cargo")?;
        if !status.success() {
            bail!("the crate api does not compile with the feature {feature} alone");
        }
        eprintln!("api with {feature}: ok");
    }
    Ok(())
}

/// The names in the table `[features]`, `default` aside.
fn features(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let names = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name).filter(|name| !name.starts_with('#') && *name != "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_the_manifest() {
        let names: Vec<_> = features(MANIFEST).collect();
        assert!(names.contains(&"schema") && names.contains(&"convert"), "{names:?}");
        let text = "[package]\nname = \"a\"\n[features]\ndefault = []\n# one = more\nx = []\n[dependencies]\ny = \"1\"\n";
        assert_eq!(features(text).collect::<Vec<_>>(), ["x"]);
    }
}
