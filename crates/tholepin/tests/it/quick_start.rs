//! The commands of docs/quick-start.md, in its order, on a kubelet with the settings of its configurations.

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::env::{Program, rig};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use testkit::net;

use super::documents::{self, Block};
use super::{Installed, told};

const PAGE: &str = "docs/quick-start.md";

#[test]
fn each_command_works_in_the_order_of_the_page() {
    let page = documents::read(PAGE);
    let blocks = documents::blocks(&page);
    let commands: Vec<&Block> = blocks.iter().filter(|block| block.language == "sh").collect();
    assert_eq!(commands.len(), 5, "{PAGE}: blocks of commands");
    let Ok(rig) = rig() else { return };
    let kubectl = rig.binaries.path(Program::Kubectl).to_owned();
    net::private(async |network| {
        let program = Path::new(env!("CARGO_BIN_EXE_tholepin"));
        let image = concat!("tholepin:", env!("CARGO_PKG_VERSION"));
        let images = Images::new().with(image, Image::program(program)).with("busybox", Image::tools());
        let options = KubeletOptions { config: settings(&blocks), ..KubeletOptions::default() };
        let machine = Machine::new().zones(2).cpus_per_zone(8);
        let cluster = Cluster::builder().node(machine, options).installable(network, images);
        let cluster = cluster.start(&rig).await.unwrap();
        let installed = Installed::under("tholepin");
        let folders = [installed.program.parent().unwrap(), kubectl.parent().unwrap()];
        let system = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{system}", folders[0].display(), folders[1].display());
        for block in commands {
            let began = Instant::now();
            let mut shell = tokio::process::Command::new("sh");
            shell.args(["-ec", &block.text]).current_dir(folders[0]).env_clear();
            shell.env("PATH", &path).env("KUBECONFIG", cluster.control().kubeconfig());
            // Nodes of the rig have no image until a pod wants it, and then they find it.
            shell.env("THOLEPIN_IMAGE", image);
            let (code, stdout, stderr) = told(shell.output().await.unwrap());
            assert_eq!(code, 0, "{}\n{stdout}{stderr}", block.text);
            println!("{:.1} s: {}", began.elapsed().as_secs_f64(), block.text.lines().next().unwrap());
            // The pod to try is that of the page.
            if block.text.contains("tholepin deploy") {
                let pod = blocks.iter().find(|block| block.text.starts_with("kubectl apply")).unwrap();
                let (manifest, _) = pod.text.split_once("kubectl wait").unwrap();
                assert!(stderr.contains(manifest), "{stderr}");
            }
        }
    })
    .unwrap();
}

/// The fields of the KubeletConfiguration, which is the same in all of the page's files.
fn settings(blocks: &[Block]) -> Map<String, Value> {
    let files = blocks.iter().filter(|block| block.language == "yaml");
    let texts = files.map(|block| match block.text.split_once("- |\n") {
        Some((_, patch)) => patch.lines().map(|line| format!("{}\n", line.trim())).collect(),
        None => block.text.split("---\n").last().unwrap().to_owned(),
    });
    let mut found: Vec<Map<String, Value>> = texts
        .map(|text: String| {
            let fields: Value = runtime::yaml::read_str(PAGE, &text, runtime::yaml::Mode::Lenient).unwrap();
            fields.as_object().unwrap().clone()
        })
        .collect();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], found[1]);
    let mut fields = found.remove(0);
    assert_eq!(fields.remove("kind"), Some("KubeletConfiguration".into()));
    fields.remove("apiVersion");
    fields
}
