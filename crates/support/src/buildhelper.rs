//! `buildhelper`: version, commit and branch of a source tree.
//!
//! In: the source tree around the working directory; variables `NRO_BUILD_VERSION`, `NRO_BUILD_VERSION_FILE`,
//! `NRO_BUILD_COMMIT` and `NRO_BUILD_BRANCH`, which take precedence. Out: version, commit or branch, or all as JSON
//! (`buildinfo.json` of images). Never: exit code 0 after an error, as in the Go tool.
//!
//! The version is that of `Cargo.toml`, or of the Makefile line `VERSION ?= 5.0.999-snapshot`, without the suffix.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use runtime::stderr;
use runtime::yaml;
use serde::Serialize;
use tokio::process::Command;

use crate::call::{self, Call};

/// Suffix of the version in the Makefile.
const SNAPSHOT: &str = ".999-snapshot";
/// Prefix of release branches.
const RELEASE: &str = "release-";
/// Name for all branches that are not release branches.
const DEVEL: &str = "devel";

/// A description of the source tree.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct BuildInfo {
    /// Name of the branch in git.
    gitbranch: String,
    /// `X.Y` of a release branch, else `devel`.
    branch: String,
    version: String,
    commit: String,
}

/// Runs the tool.
///
/// # Errors
/// When version, commit or branch cannot be determined.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let text = match call.arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["inspect"] => inspect().await?,
        ["version"] => version()?,
        ["commit"] => commit().await?,
        ["branch"] => branch(&git_branch().await?),
        _ => {
            stderr::line(format_args!("usage: {} [inspect|version|commit|branch]", call.program));
            return Ok(ExitCode::FAILURE);
        }
    };
    call::print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn inspect() -> anyhow::Result<String> {
    let gitbranch = git_branch().await?;
    let info =
        BuildInfo { branch: branch(&gitbranch), gitbranch, version: version()?, commit: commit().await? };
    Ok(serde_json::to_string(&info.checked()?)?)
}

impl BuildInfo {
    /// Checks that a release branch has the version of its name.
    fn checked(self) -> anyhow::Result<Self> {
        let of = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
        if self.branch != DEVEL && of(&self.branch) != of(&self.version) {
            bail!("branch {} is not of version {}", self.gitbranch, self.version);
        }
        Ok(self)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn version() -> anyhow::Result<String> {
    if let Some(version) = variable("NRO_BUILD_VERSION") {
        return Ok(version);
    }
    let file = match variable("NRO_BUILD_VERSION_FILE") {
        Some(file) => PathBuf::from(file),
        None => match file(&std::env::current_dir().context("the working directory")?) {
            Some(file) => file,
            None => return Ok(env!("CARGO_PKG_VERSION").to_owned()),
        },
    };
    let text = yaml::read_text(&file, yaml::CONFIG_LIMIT_BYTES)?;
    version_of(&text).with_context(|| format!("{}: no version found", file.display()))
}

/// The uppermost `Cargo.toml` with a version, in the folder or above it: that of a workspace rather than of a member.
fn file(folder: &Path) -> Option<PathBuf> {
    let files = folder.ancestors().map(|folder| folder.join("Cargo.toml"));
    let has = |file: &PathBuf| {
        yaml::read_text(file, yaml::CONFIG_LIMIT_BYTES).is_ok_and(|text| version_of(&text).is_some())
    };
    files.filter(has).last()
}

/// The version that a `Cargo.toml` or a Makefile states.
fn version_of(text: &str) -> Option<String> {
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim().trim_end_matches(['?', ':']).trim(), value.trim());
        if matches!(section, "[workspace.package]" | "[package]") && key == "version" {
            let version = value.strip_prefix('"').and_then(|rest| rest.split('"').next());
            return version.map(str::to_owned);
        }
        if section.is_empty() && key == "VERSION" {
            return value.strip_suffix(SNAPSHOT).map(str::to_owned);
        }
    }
    None
}

async fn commit() -> anyhow::Result<String> {
    match variable("NRO_BUILD_COMMIT") {
        Some(commit) => Ok(commit),
        None => git(&["log", "-1", "--pretty=format:%h"]).await,
    }
}

async fn git_branch() -> anyhow::Result<String> {
    match variable("NRO_BUILD_BRANCH") {
        Some(branch) => Ok(branch),
        None => git(&["rev-parse", "--abbrev-ref", "HEAD"]).await,
    }
}

fn branch(git: &str) -> String {
    git.strip_prefix(RELEASE).unwrap_or(DEVEL).to_owned()
}

async fn git(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(words).output().await.context("running git")?;
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout).context("git")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        // U034.
        let table = [
            ("# Makefile\nVERSION ?= 5.0.999-snapshot\nVERSION=1", Some("5.0")),
            ("VERSION := 4.20.999-snapshot", Some("4.20")),
            ("VERSION ?= 5.0.1", None),
            (
                "[workspace]\nversion = \"9\"\n\n[workspace.package]\nversion = \"0.1.0\" # now\n",
                Some("0.1.0"),
            ),
            ("[package]\nname = \"x\"\nversion=\"1.2.3\"\n", Some("1.2.3")),
            ("[package]\nversion.workspace = true\n", None),
            ("[dependencies]\nversion = \"1\"\nVERSION = \"2\"", None),
            ("", None),
        ];
        for (text, wanted) in table {
            assert_eq!(version_of(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn this_repository_has_the_version_of_this_program() {
        let found = file(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let text = std::fs::read_to_string(found).unwrap();
        assert_eq!(version_of(&text).as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn release_branches_are_of_their_version() {
        let check = |git: &str, version: &str, wanted: Option<&str>| {
            let info = BuildInfo {
                gitbranch: git.to_owned(),
                branch: branch(git),
                version: version.to_owned(),
                commit: "c".to_owned(),
            };
            assert_eq!(info.checked().ok().map(|info| info.branch).as_deref(), wanted, "{git} {version}");
        };
        check("main", "5.0", Some("devel"));
        check("HEAD", "", Some("devel"));
        check("release-4.20", "4.20", Some("4.20"));
        check("release-4.20", "4.20.3", Some("4.20"));
        check("release-4.20", "4.21", None);
        check("release-4.2", "4.20", None);
    }
}
