//! What OLM's tools and kustomize say of our files.
//!
//! In: the folders. Out: an error if a tool finds one. Never: a tool from anywhere but Go's module proxy, in
//! the versions that the module files under `testenv` pin; built once, they stay in the cache folder of the
//! test environment.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use deployer::platform::Platform;
use testkit::env::cache_dir;

use super::package;
use crate::manifests::{self, FOLDER, HARDWARE};
use crate::tree::{Tree, root};

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// Of operator-framework/api: the bundles.
    OperatorVerify,
    /// Of operator-framework/operator-registry: the catalog.
    Opm,
    /// The kustomizations.
    Kustomize,
}

impl Tool {
    /// Cheap ones first.
    pub(crate) const ALL: [Self; 3] = [Self::Kustomize, Self::OperatorVerify, Self::Opm];

    fn name(self) -> &'static str {
        match self {
            Self::OperatorVerify => "operator-verify",
            Self::Opm => "opm",
            Self::Kustomize => "kustomize",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::OperatorVerify => "github.com/operator-framework/api/cmd/operator-verify",
            Self::Opm => "github.com/operator-framework/operator-registry/cmd/opm",
            Self::Kustomize => "sigs.k8s.io/kustomize/kustomize/v5",
        }
    }

    /// Parts of opm want C libraries otherwise.
    fn tags(self) -> &'static str {
        match self {
            Self::Opm => {
                "containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper"
            }
            _ => "",
        }
    }

    /// The program, built if it is not in the cache.
    fn program(self) -> anyhow::Result<PathBuf> {
        let cache =
            cache_dir().context("neither XDG_CACHE_HOME nor HOME is set: no place for built programs")?;
        let module = root().join("testenv").join(self.name());
        // A module file of another version is another tool.
        let pinned = std::fs::read(module.join("go.sum"))
            .with_context(|| format!("reading {}/go.sum", module.display()))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &pinned);
        let short: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let target = cache.with_file_name("tools").join(format!("{}-{short}", self.name()));
        if target.exists() {
            return Ok(target);
        }
        let began = Instant::now();
        eprintln!("building {} with Go; the first time takes minutes", self.name());
        let half = target.with_extension("part");
        let status = Command::new("go")
            .args(["build", "-trimpath", "-tags", self.tags(), "-o"])
            .arg(&half)
            .arg(self.package())
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .env_remove("GOFLAGS")
            .status()
            .context("running go")?;
        ensure!(status.success(), "building {} failed", self.name());
        std::fs::rename(&half, &target).with_context(|| format!("writing {}", target.display()))?;
        eprintln!("built {} in {:.0} s", self.name(), began.elapsed().as_secs_f64());
        Ok(target)
    }
}

/// Has tools look at the folders of bundles and of the catalog below `folder`, and at the kustomizations in the
/// repository.
pub(crate) fn run(folder: &Path, tools: &[Tool]) -> anyhow::Result<()> {
    for tool in Tool::ALL.into_iter().filter(|tool| tools.contains(tool)) {
        let program = tool.program()?;
        match tool {
            Tool::OperatorVerify => {
                package::ALL.iter().try_for_each(|package| bundle(&program, &folder.join(package.folder)))?;
            }
            Tool::Opm => {
                let folder = folder.join("catalog");
                package::ALL.iter().try_for_each(|package| catalog(&program, &folder.join(package.name)))?;
            }
            Tool::Kustomize => kustomizations(&program)?,
        }
    }
    Ok(())
}

fn bundle(program: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(["manifests", "--operatorhub_validate", "--object_validate"]).arg(folder);
    let (_, said) = output(&mut command)?;
    // It ends well whatever it has found.
    if said.contains("level=error") || said.contains("level=fatal") {
        bail!("operator-verify finds errors in {}:\n{said}", folder.display());
    }
    println!("operator-verify: {} has no errors", folder.display());
    said.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

fn catalog(program: &Path, folder: &Path) -> anyhow::Result<()> {
    // Beside the documents there must be nothing but what says how to serve them.
    let mut command = Command::new(program);
    command.arg("validate").arg(folder);
    output(&mut command)?;
    println!("opm validate: {} is valid", folder.display());
    Ok(())
}

/// Fails unless each kustomization makes what the plain files have.
fn kustomizations(program: &Path) -> anyhow::Result<()> {
    let image = manifests::image();
    for (name, tree) in [(FOLDER, manifests::tree(&image)?), (HARDWARE, manifests::hardware_tree(&image)?)] {
        kustomization(program, name, &tree)?;
    }
    Ok(())
}

fn kustomization(program: &Path, name: &str, tree: &Tree) -> anyhow::Result<()> {
    let folder = root().join(name);
    for (what, like) in [
        ("kubernetes", Platform::Kubernetes),
        ("openshift", Platform::OpenShift),
        ("hypershift", Platform::HyperShift),
        (".", Platform::Kubernetes),
        ("overlays/registry", Platform::Kubernetes),
    ] {
        let mut command = Command::new(program);
        command.arg("build").arg(folder.join(what));
        let (made, _) = output(&mut command)?;
        let mut plain = String::new();
        for file in manifests::files(tree, like) {
            let path = folder.join(file);
            plain +=
                &std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            plain.push('\n');
        }
        let (made, plain) = (kinds(&made), kinds(&plain));
        ensure!(made == plain, "kustomize build {name}/{what} makes other objects than the files for {like}");
        println!("kustomize build {name}/{what}: {} objects", made.len());
    }
    Ok(())
}

/// The kinds of all documents, sorted.
fn kinds(text: &str) -> Vec<&str> {
    let mut kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    kinds.sort_unstable();
    kinds
}

/// Standard output and standard error of a program that ended well.
fn output(command: &mut Command) -> anyhow::Result<(String, String)> {
    let done = command.output().with_context(|| format!("running {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&done.stdout), text(&done.stderr));
    ensure!(done.status.success(), "{command:?} failed:\n{said}{complained}");
    Ok((said, complained))
}
