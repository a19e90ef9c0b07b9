//! What tests in a browser or a terminal need: Debian's Chromium with its driver, or tmux, and the accessibility
//! checker axe-core.
//!
//! In: Debian's and npm's registries. Out: the path of the checker. Never: a package in another version than is pinned
//! here, but for those that Debian keeps up to date.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use testkit::env::cache_root;

/// The checker's version.
const AXE: &str = "4.14.1";
/// Debian's packages.
const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// Installs what is missing.
///
/// # Errors
/// When a package cannot be had.
pub(crate) fn install() -> anyhow::Result<PathBuf> {
    install_packages("chromedriver", "--version", &PACKAGES)?;
    axe()
}

/// Installs Debian's packages unless this program can be run.
///
/// # Errors
/// When a package cannot be had.
pub(crate) fn install_packages(program: &str, flag: &str, packages: &[&str]) -> anyhow::Result<()> {
    if Command::new(program).arg(flag).output().is_err() {
        eprintln!("installing {}", packages.join(" and "));
        let apt = |args: &[&str]| run(Command::new("apt-get").args(args));
        apt(&["update", "-qq"])?;
        apt(&[["install", "-y", "-qq", "--no-install-recommends"].as_slice(), packages].concat())?;
    }
    Ok(())
}

/// The checker, one file, fetched once.
fn axe() -> anyhow::Result<PathBuf> {
    let cache = cache_root().context("neither XDG_CACHE_HOME nor HOME is set: no place for programs")?;
    let folder = cache.join("testenv/tools");
    let target = folder.join(format!("axe-{AXE}.min.js"));
    if target.exists() {
        return Ok(target);
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let unpacked = tempfile::tempdir()?;
    run(Command::new("npm")
        .args(["pack", "--silent"])
        .arg(format!("axe-core@{AXE}"))
        .current_dir(&unpacked))?;
    let archive = unpacked.path().join(format!("axe-core-{AXE}.tgz"));
    let archive = fs::File::open(&archive).with_context(|| archive.display().to_string())?;
    tar::Archive::new(flate2::read::GzDecoder::new(archive)).unpack(&unpacked)?;
    // In one step: a half-written file is none.
    let half = target.with_extension("part");
    fs::copy(unpacked.path().join("package/axe.min.js"), &half).context("axe-core has no axe.min.js")?;
    fs::rename(&half, &target).with_context(|| format!("writing {}", target.display()))?;
    Ok(target)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
