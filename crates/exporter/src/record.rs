//! `tholepin record`: the inputs of a scan of this node, in a folder from which `tholepin exporter` prints the same
//! object elsewhere.
//!
//! In: the kubelet's podresources service, configuration and checkpoints, sysfs. Out: a folder of the user alone, with
//! the fields that this program reads; the command that prints the object. Never: the Kubernetes API, a field that is
//! not read, half a recording under its name, or a folder replaced that is no recording. The format is in
//! docs/record.md.

mod folder;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use node::kubelet::state::Checkpoint;
use node::podresources::{Call, Client};
use node::sysfs::Sysfs;
use prometheus_client::registry::Registry;
use runtime::{stderr, stdout};
use serde_json::json;

use crate::args::Node;
use crate::compat::Environment;
use crate::configuration::{KubeletSettings, Reader};
use crate::metrics::Metrics;
use crate::scan::{KUBELET_DEADLINE, Scanner};
use crate::settings::{Accounting, KubeletConfigSource, PodResourcesAddress, Sources};
use folder::{Files, Place};

/// The file that makes a folder a recording.
const MANIFEST: &str = "recording.json";
/// The version of the format.
const FORMAT: u32 = 1;
/// The kubelet's configuration in a recording.
const CONFIGURATION: &str = "config.yaml";
/// The machine in a recording.
const MACHINE: &str = "sys";

/// The command line.
///
/// Its help is beside the command's name, in the binary.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin record --out node-7\n  \
    kubectl debug node/node-7 --profile=sysadmin -it --image=IMAGE -- tholepin record --out /host/tmp/node-7 \\\n      \
      --hostname node-7 --sysfs /host/sys --kubelet-state-dir /host/var/lib/kubelet \\\n      \
      --podresources-socket /host/var/lib/kubelet/pod-resources/kubelet.sock \\\n      \
      --kubelet-config-file /host/var/lib/kubelet/config.yaml\n\n\
    The output is the command that prints the object of the recording elsewhere. Files are the user's alone, and\n\
    have the fields that tholepin reads: names of pods, containers and devices, and no Secret, variable or label.\n\n\
    Exit codes: 0 recorded, 1 nothing is written, 2 wrong command line.")]
pub struct Args {
    /// Folder to create
    #[arg(long, value_name = "DIR", default_value = "recorded")]
    out: PathBuf,
    /// Replace the recording that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    node: Node,
}

/// Records this node.
///
/// # Errors
/// When something that the exporter needs cannot be read, or the folder cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let place = Place::new(&args.out, MANIFEST, args.force)?;
    let (name, mut sources) = args.node.sources_in(&Environment::real()).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::Error::msg(problems.join("; "))
    })?;
    let (files, notes) = collect(&name, &mut sources).await?;
    let written = place.write(&files)?;
    // The recording itself says whether it is one.
    let summary = replay(&name, &elsewhere(&written.path(), &sources)).await.context("the recording")?;
    let out = written.keep()?;
    for note in notes {
        stderr::line(note);
    }
    let size = files.bytes().div_ceil(1024);
    stderr::line(format_args!(
        "recorded {name}: {summary}; {} files, {size} KiB in {}",
        files.len(),
        out.display()
    ));
    stdout::print(&format!("{}\n", command(&name, &sources, &out)))?;
    Ok(ExitCode::SUCCESS)
}

/// Everything a recording has, and notes about what is left out. Checkpoints are there together or not at all: part of
/// them would say that containers hold less.
async fn collect(name: &str, sources: &mut Sources) -> anyhow::Result<(Files, Vec<String>)> {
    let (mut files, mut notes) = (Files::default(), Vec::new());
    // In the order of a scan, pods last.
    let machine = Sysfs::new(&sources.sysfs).record()?;
    notes.extend(machine.unreadable.iter().map(|error| format!("recorded as unreadable: {error}")));
    for (path, text) in machine.files {
        files.put(Path::new(MACHINE).join(path), text);
    }
    let KubeletSettings { configuration, .. } = Reader::new(sources).read().await?;
    match configuration {
        Some(configuration) => files.put(CONFIGURATION, runtime::yaml::write(&configuration.recording())?),
        None => notes.push("without the kubelet's configuration, which could not be read".to_owned()),
    }
    let client = Client::at(&sources.podresources, KUBELET_DEADLINE)?;
    for call in [Call::Allocatable, Call::List] {
        files.put(call.file_name(), client.recording(call).await?);
    }
    let found = match sources.kubelet_root.as_deref().map(checkpoints) {
        Some(Ok(found)) => found,
        Some(Err(note)) => {
            notes.push(note);
            Vec::new()
        }
        None => Vec::new(),
    };
    if found.is_empty() {
        sources.kubelet_root = None;
    }
    found.into_iter().for_each(|(file, text)| files.put(file, text));
    let manifest = json!({
        "format": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "node": name,
        "exporter": flags(name, sources, Path::new(".")),
    });
    files.put(MANIFEST, format!("{manifest:#}\n"));
    Ok((files, notes))
}

/// The checkpoints that the kubelet's managers have written, or a note why none is recorded.
fn checkpoints(root: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let mut found = Vec::new();
    for checkpoint in Checkpoint::ALL {
        let recording = checkpoint.recording(root).map_err(|error| {
            let error = runtime::client::chain(&error);
            format!("without checkpoints, so reports name containers by their pods' names: {error}")
        });
        found.extend(recording?.map(|text| (checkpoint.file_name(), text)));
    }
    Ok(found)
}

/// The sources of a scan of the recording.
fn elsewhere(dir: &Path, sources: &Sources) -> Sources {
    Sources {
        podresources: PodResourcesAddress::Folder(dir.to_owned()),
        sysfs: dir.join(MACHINE),
        kubelet_root: sources.kubelet_root.as_ref().map(|_| dir.to_owned()),
        kubelet_config: KubeletConfigSource::File { path: dir.join(CONFIGURATION), drop_ins: None },
        policy: sources.policy,
        scope: sources.scope,
    }
}

/// Scans the recording and says what is there.
async fn replay(name: &str, sources: &Sources) -> anyhow::Result<String> {
    let accounting = Accounting::default();
    let metrics = Metrics::register(&mut Registry::default(), name);
    let report = Scanner::new(sources, &accounting, metrics)?.scan().await?;
    let count = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    Ok(format!(
        "{} and {} with CPUs, memory or devices of their own",
        count(report.content.zones.len(), "NUMA zone"),
        count(report.fingerprinted.len(), "pod"),
    ))
}

/// The flags with which the exporter reads the recording in this folder.
fn flags(name: &str, sources: &Sources, dir: &Path) -> Vec<String> {
    let path = |name: &str| dir.join(name).display().to_string();
    let root = sources.kubelet_root.as_ref().map(|_| dir.display().to_string()).unwrap_or_default();
    let mut flags = vec![
        "--oneshot".to_owned(),
        "--dry-run".to_owned(),
        format!("--hostname={name}"),
        format!("--podresources-socket=fake://{}", dir.display()),
        format!("--sysfs={}", path(MACHINE)),
        format!("--kubelet-config-file={}", path(CONFIGURATION)),
        format!("--kubelet-state-dir={root}"),
    ];
    flags.extend(sources.policy.map(|policy| format!("--topology-manager-policy={}", policy.as_str())));
    flags.extend(sources.scope.map(|scope| format!("--topology-manager-scope={}", scope.as_str())));
    flags
}

/// The same for a shell.
fn command(name: &str, sources: &Sources, dir: &Path) -> String {
    let plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=./:,@%+".contains(&byte));
    let word = |text: String| if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) };
    let words = flags(name, sources, dir).into_iter().map(word);
    format!("tholepin exporter {}", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
