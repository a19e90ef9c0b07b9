//! The commands that need a cluster, on the rig.
//!
//! In: a shell, the program, the pages, the commands. Out: how each ended. The kubelet has the settings of the page's
//! `kind.yaml`, and the image has the program.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Map, Value};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::env::{Program, rig};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine as Shape;
use testkit::net;

use super::commands::{Command, How, Page};
use super::{Row, Shell};
use crate::gotool::HELM;

/// The name of our image, as `cargo xtask image` gives it.
const IMAGE: &str = concat!("tholepin:", env!("CARGO_PKG_VERSION"));

/// Runs them one after the other in this shell, up to the first that fails. Pods run the program.
pub(super) fn play(
    mut shell: Shell,
    program: PathBuf,
    pages: &[Page],
    commands: Vec<Command>,
) -> anyhow::Result<Vec<Row>> {
    let rig = rig().map_err(|reason| anyhow::anyhow!("no cluster for the other commands: {reason}"))?;
    let programs = tempfile::tempdir()?;
    // Under their plain names, as people have them.
    for (name, program) in
        [("kubectl", rig.binaries.path(Program::Kubectl).to_owned()), ("helm", HELM.program()?)]
    {
        std::os::unix::fs::symlink(program, programs.path().join(name))?;
    }
    shell.before(programs.path())?;
    let settings = settings(pages)?;
    net::private(async |network| {
        let images = Images::new().with(IMAGE, Image::program(program)).with("busybox", Image::tools());
        let options = KubeletOptions { config: settings, ..KubeletOptions::default() };
        let began = Instant::now();
        let cluster = Cluster::builder().node(Shape::new().zones(2).cpus_per_zone(8), options);
        let cluster = cluster.installable(network, images).start(&rig).await?;
        let started = began.elapsed();
        shell.set("KUBECONFIG", cluster.control().kubeconfig());
        // Nodes of the rig have no image until a pod wants it, and then they find it.
        shell.set("THOLEPIN_IMAGE", IMAGE);
        let mut rows = Vec::new();
        for command in commands {
            let row = match command.how {
                How::NotHere => Row { command, code: None, took: Duration::ZERO },
                // The first of them is the making of the cluster.
                How::Played => {
                    let first = !rows.iter().any(|row: &Row| row.command.how == How::Played);
                    Row { command, code: Some(0), took: if first { started } else { Duration::ZERO } }
                }
                _ => Row::of(command, &shell).await?,
            };
            rows.push(row);
            if rows.iter().any(Row::failed) {
                break;
            }
        }
        anyhow::Ok(rows)
    })?
}

/// The fields of the KubeletConfiguration in the file for kind.
fn settings(pages: &[Page]) -> anyhow::Result<Map<String, Value>> {
    let blocks = pages.iter().flat_map(Page::blocks);
    let mut files =
        blocks.filter(|block| block.language == "yaml" && block.text.starts_with("kind: Cluster\n"));
    let file = files.next().context("no page has a file for kind")?;
    let (_, patch) = file.text.split_once("- |\n").context("the file for kind patches no kubelet")?;
    let patch: String = patch.lines().map(|line| format!("{}\n", line.trim())).collect();
    let fields: Value = runtime::yaml::read_str("kind.yaml", &patch, runtime::yaml::Mode::Lenient)?;
    let mut fields = fields.as_object().context("the patch is no map of fields")?.clone();
    fields.remove("kind");
    fields.remove("apiVersion");
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use testkit::env;

    use super::*;
    use crate::readme::commands;
    use crate::tree::root;

    /// The ways to install of the README; a test beside the program runs the commands of the quick start.
    #[test]
    fn each_way_to_install_works_and_can_be_undone() {
        let (Ok(_), Some(program)) = (env::rig(), env::tholepin()) else { return };
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&program, folder.path().join("tholepin")).unwrap();
        let mut shell = Shell::of(root(), &[]);
        shell.before(folder.path()).unwrap();
        let pages = Page::all(&root()).unwrap();
        let ways = commands::of(&pages).unwrap();
        let last = ways.iter().position(|one| one.how == How::Undo).unwrap() - 1;
        let rows = play(shell, program, &pages, ways[last..].to_vec()).unwrap();
        assert!(rows.iter().all(|row| row.code == Some(0)), "see the output");
        assert_eq!(rows.len(), 8);
    }

    #[test]
    fn the_kubelet_has_the_settings_of_the_page() {
        let settings = settings(&Page::all(&root()).unwrap()).unwrap();
        assert_eq!(settings["topologyManagerPolicy"], "single-numa-node");
        assert!(!settings.contains_key("kind") && settings.len() == 3, "{settings:?}");
    }
}
