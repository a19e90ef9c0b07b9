//! Programs in Go that look at what we make.
//!
//! In: the module files under `testenv`, which pin versions. Out: a program in the cache folder of the test
//! environment, built once. Never: a program from anywhere but Go's module proxy.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use testkit::env::cache_root;

use crate::tree::root;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoTool {
    /// Its name, which is that of its folder under `testenv`.
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    /// Build tags, joined by commas.
    pub(crate) tags: &'static str,
}

/// Helm, for the chart.
pub(crate) const HELM: GoTool = GoTool { name: "helm", package: "helm.sh/helm/v4/cmd/helm", tags: "" };

/// resource-topology-exporter, whose reports our scheduler understands as well.
pub(crate) const RTE: GoTool = GoTool {
    name: "resource-topology-exporter",
    package: "github.com/k8stopologyawareschedwg/resource-topology-exporter/cmd/resource-topology-exporter",
    tags: "",
};

/// nfd-topology-updater, whose reports our scheduler understands too.
pub(crate) const NFD: GoTool = GoTool {
    name: "nfd-topology-updater",
    package: "sigs.k8s.io/node-feature-discovery/cmd/nfd-topology-updater",
    tags: "",
};

/// The scheduler of the Go plugins.
pub(crate) const SCHEDULER_PLUGINS: GoTool =
    GoTool { name: "scheduler-plugins", package: "sigs.k8s.io/scheduler-plugins/cmd/scheduler", tags: "" };

/// Promtool, for alerts and queries.
#[cfg(test)]
pub(crate) const PROMTOOL: GoTool = GoTool {
    name: "promtool",
    package: "github.com/prometheus/prometheus/cmd/promtool",
    // Clients of clouds, of which no check needs one.
    tags: "remove_all_sd",
};

impl GoTool {
    /// Where the program is, once it is built. A module file of another version is another program.
    pub(crate) fn place(self) -> anyhow::Result<PathBuf> {
        let cache =
            cache_root().context("neither XDG_CACHE_HOME nor HOME is set: no place for built programs")?;
        let sums = self.module().join("go.sum");
        let pinned = std::fs::read(&sums).with_context(|| format!("reading {}", sums.display()))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &pinned);
        let short: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(cache.join("testenv/tools").join(format!("{}-{short}", self.name)))
    }

    /// The program for a test, built if this variable asks for it; `None` where it is not built. `chore`: the nightly
    /// run that sets the variable.
    #[cfg(test)]
    pub(crate) fn asked(self, variable: &str, chore: &str) -> Option<PathBuf> {
        let place = self.place().expect("a cache folder");
        match is_set(variable) {
            true => Some(self.program().expect("Go builds it")),
            false if place.exists() => Some(place),
            false => {
                eprintln!("SKIPPED: no {}; cargo xtask nightly {chore} builds it", self.name);
                None
            }
        }
    }

    /// The program, built if it is not in the cache.
    pub(crate) fn program(self) -> anyhow::Result<PathBuf> {
        let target = self.place()?;
        if target.exists() {
            return Ok(target);
        }
        let folder = target.parent().context("the cache has no folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        // Tests ask for a program at the same time; one of them builds it.
        let lock = target.with_extension("lock");
        let lock = File::create(&lock).with_context(|| format!("making {}", lock.display()))?;
        lock.lock().with_context(|| format!("waiting until another process has built {}", self.name))?;
        if target.exists() {
            return Ok(target);
        }
        let began = Instant::now();
        eprintln!("building {} with Go; the first time takes minutes", self.name);
        let half = target.with_extension("part");
        let status = Command::new("go")
            .args(["build", "-trimpath", "-tags", self.tags, "-o"])
            .arg(&half)
            .arg(self.package)
            .current_dir(self.module())
            .env("CGO_ENABLED", "0")
            .env_remove("GOFLAGS")
            .status()
            .context("running go")?;
        ensure!(status.success(), "building {} failed", self.name);
        std::fs::rename(&half, &target).with_context(|| format!("writing {}", target.display()))?;
        eprintln!("built {} in {:.0} s", self.name, began.elapsed().as_secs_f64());
        Ok(target)
    }

    /// The folder of its module.
    pub(crate) fn module(self) -> PathBuf {
        root().join("testenv").join(self.name)
    }
}

/// Whether a variable of the environment is there and not empty.
#[cfg(test)]
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Standard output and standard error of a program that ended well.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<(String, String)> {
    let done = command.output().with_context(|| format!("running {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&done.stdout), text(&done.stderr));
    ensure!(done.status.success(), "{command:?} failed:\n{said}{complained}");
    Ok((said, complained))
}
