//! What OLM's tools and kustomize say of our files.
//!
//! In: the folders. Out: an error if a tool finds one. Never: a tool that [`crate::gotool`] does not build.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use deployer::platform::Platform;

use super::package;
use crate::gotool::{GoTool, output};
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

    /// Where it comes from.
    fn module(self) -> GoTool {
        match self {
            Self::OperatorVerify => GoTool {
                name: "operator-verify",
                package: "github.com/operator-framework/api/cmd/operator-verify",
                tags: "",
            },
            Self::Opm => GoTool {
                name: "opm",
                package: "github.com/operator-framework/operator-registry/cmd/opm",
                // Parts of it want C libraries otherwise.
                tags: "containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper",
            },
            Self::Kustomize => {
                GoTool { name: "kustomize", package: "sigs.k8s.io/kustomize/kustomize/v5", tags: "" }
            }
        }
    }
}

/// Has tools look at the folders of bundles and of the catalog below `folder`, and at the kustomizations in the
/// repository.
pub(crate) fn run(folder: &Path, tools: &[Tool]) -> anyhow::Result<()> {
    for tool in Tool::ALL.into_iter().filter(|tool| tools.contains(tool)) {
        let program = tool.module().program()?;
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
