//! The command line of `tholepin admit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use node::kubelet::Configuration;
use node::kubelet::machine::{MachineInfo, of_sysfs};
use node::kubelet::profile::profile;
use node::sysfs::Sysfs;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stderr;
use runtime::stdout::print;
use runtime::yaml::{self, Mode, dump};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use topology::kubelet::Kubelet;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::profile::{Minor, Refusal};

use super::model::{Model, registration};
use super::session::{Plugin, Session, Step};
use super::verdict::{ContainerVerdict, Verdict};
use crate::machine::dump::{Dump, DumpOptions};

/// The greatest size of a machine's, devices' or session's file.
const MAX_BYTES: u64 = 64 << 20;

/// Most nodes that an error names.
const MAX_NAMED: usize = 5;

/// The exit code for files that cannot be read.
const WRONG_INPUT: u8 = 2;

/// Tell what a kubelet would do with pods: admit each, with CPUs, memory and devices of its containers, or reject it,
/// and why. Nothing runs; the answer is the model's that the scheduler and the simulator share.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin admit --sysfs /sys --kubelet-config /var/lib/kubelet/config.yaml --pods pods.yaml\n  \
    tholepin admit --machine machine.json --kubelet-config kubelet.yaml --devices devices.json --pods - -o json\n  \
    kubectl get nodes,pods,noderesourcetopologies -A -o yaml >dump.yaml\n  \
    tholepin admit --from dump.yaml --node worker-1 --pods pods.yaml\n\n\
    A machine file is what the kubelet's cAdvisor reports (MachineInfo). A devices file is a list such as\n  \
    [{\"resource\": \"vendor.com/nic\", \"devices\": [{\"id\": \"d0\", \"nodes\": [0]}]}].\n\n\
    The exit code is 0 if all pods are admitted, 1 if one is rejected or the kubelet refuses to start, 2 for wrong input.")]
pub struct Args {
    /// A node of a cluster with what its pods hold: a dump as kubectl prints it, or the folder of a must-gather
    #[arg(long, value_name = "PATH", requires = "node", conflicts_with_all = ["sysfs", "machine", "kubelet_config", "kubelet_version", "devices", "session"])]
    pub from: Option<PathBuf>,
    /// The node of --from
    #[arg(long, value_name = "NAME", requires = "from")]
    pub node: Option<String>,
    /// The machine: a directory where its sysfs is, or a copy
    #[arg(long, value_name = "DIR", conflicts_with = "machine")]
    pub sysfs: Option<PathBuf>,
    /// The machine: cAdvisor's MachineInfo, as JSON or YAML
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// The kubelet's configuration file; without it the kubelet's defaults
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// The kubelet's minor version: 1.34, 1.35, 1.36 or 1.37
    #[arg(long, value_name = "VERSION", default_value = "1.36")]
    pub kubelet_version: Minor,
    /// What device plugins list: resources, devices, zones
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Pods, admitted in this order: objects, lists, several documents, a folder, or - for standard input
    #[arg(long, value_name = "PATH", required_unless_present = "session")]
    pub pods: Option<PathBuf>,
    /// A machine, a configuration, devices and steps in one file, as `cargo xtask differential` keeps a difference
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sysfs", "machine", "kubelet_config", "devices", "pods"])]
    pub session: Option<PathBuf>,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<TableFormat>,
}

/// The result in JSON and YAML.
#[derive(Debug, Serialize)]
struct Document {
    pods: Vec<PodResult>,
}

/// What became of one pod.
#[derive(Debug, Serialize)]
struct PodResult {
    pod: String,
    #[serde(flatten)]
    verdict: Verdict,
}

/// Runs the command.
///
/// Wrong input is told on standard error, with file and field, and the exit code is 2.
///
/// # Errors
/// When the output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (text, rejected) = match answer(args) {
        Ok(answer) => answer,
        Err(error) => {
            stderr::line(format_args!("error: {error:#}"));
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    print(&text)?;
    Ok(if rejected { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The result in the format that was asked for, and whether a pod is rejected.
pub(super) fn answer(args: &Args) -> anyhow::Result<(String, bool)> {
    let results = match &args.session {
        Some(file) => replay(file, args.kubelet_version)?,
        None => {
            let model = match &args.from {
                Some(dump) => of_dump(dump, args.node.as_deref().unwrap_or_default())?,
                None => start(args)?,
            };
            let Some(mut model) = model else { return Ok((String::new(), true)) };
            let pods = read_pods(args.pods.as_deref().unwrap_or(Path::new("-")))?;
            pods.iter()
                .enumerate()
                .map(|(at, pod)| admit(&mut model, at, pod))
                .collect::<anyhow::Result<_>>()?
        }
    };
    let rejected = results.iter().any(|result| !result.verdict.admitted);
    let document = Document { pods: results };
    Ok((args.output.format.write(&document, |wide| table(&document.pods, wide))?, rejected))
}

/// The kubelet; `None` if it refuses to start, which standard error says.
fn start(args: &Args) -> anyhow::Result<Option<Model>> {
    let machine = match (&args.sysfs, &args.machine) {
        (Some(dir), _) => of_sysfs(&Sysfs::new(dir)).with_context(|| format!("{}", dir.display()))?,
        (None, Some(file)) => {
            let info: MachineInfo = read(file)?;
            info.machine().with_context(|| format!("{}", file.display()))?
        }
        (None, None) => of_sysfs(&Sysfs::new("/sys")).context("/sys")?,
    };
    let configuration = match &args.kubelet_config {
        Some(file) => Configuration::parse(&yaml::read_text(file, MAX_BYTES)?, file)?,
        None => Configuration::parse(
            "{\"kind\": \"KubeletConfiguration\", \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\"}",
            Path::new("defaults"),
        )?,
    };
    let devices: Vec<Plugin> = match &args.devices {
        Some(file) => read(file)?,
        None => Vec::new(),
    };
    let machine = Arc::new(machine);
    let profile = profile(&configuration, args.kubelet_version, &machine);
    match profile.and_then(|profile| Kubelet::new(machine, profile)) {
        Ok(kubelet) => {
            let file = args.devices.as_deref().unwrap_or(Path::new("devices"));
            Ok(Some(Model::new(kubelet, &devices).with_context(|| format!("{}", file.display()))?))
        }
        Err(refusal) => Ok(refused(&refusal)),
    }
}

/// The kubelet of a node of a dump; `None` if it refuses to start, which standard error says.
fn of_dump(path: &Path, node: &str) -> anyhow::Result<Option<Model>> {
    let dump = Dump::read(path, DumpOptions::default())?;
    dump.notes.iter().for_each(|note| stderr::line(format_args!("note: {note}")));
    let Some(machine) = dump.machines.iter().find(|machine| &*machine.view.name == node) else {
        let names: Vec<_> = dump.machines.iter().take(MAX_NAMED).map(|machine| &*machine.view.name).collect();
        let more = if dump.machines.len() > MAX_NAMED { ", and more" } else { "" };
        bail!("{}: no node {node:?} with a report; there are {}{more}", path.display(), names.join(", "));
    };
    if !machine.start.has_ids {
        stderr::line(format_args!("note: the report of {node} has no ids: those of CPUs are made up"));
    }
    Ok(Model::of(machine).map_or_else(|refusal| refused(&refusal), Some))
}

/// Standard error says why the kubelet does not start.
fn refused(refusal: &Refusal) -> Option<Model> {
    stderr::line(format_args!("the kubelet refuses to start: {refusal}"));
    None
}

/// Reads a document. An error names the file, and the field by its path.
fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let value: Value = yaml::read_file(file, Mode::Lenient, MAX_BYTES)?;
    serde_path_to_error::deserialize(value).with_context(|| format!("{}", file.display()))
}

/// Pods without a UID get their place in the file.
fn admit(model: &mut Model, at: usize, pod: &Value) -> anyhow::Result<PodResult> {
    let mut pod = pod.clone();
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let named = format!("{}/{name}", if namespace.is_empty() { "default" } else { &namespace });
    if text("uid").is_empty() {
        pod["metadata"]["uid"] = Value::from(format!("pod-{at}"));
    }
    let verdict = model.admit(&pod, &Lowest).with_context(|| format!("pod {named}"))?;
    Ok(PodResult { pod: named, verdict })
}

fn replay(file: &Path, minor: Minor) -> anyhow::Result<Vec<PodResult>> {
    let session: Session = read(file)?;
    let mut model = match Model::start(&session, minor)? {
        Ok(model) => model,
        Err(refused) => bail!("the kubelet refuses to start: {}", refused.error),
    };
    let mut results = Vec::new();
    for (at, step) in session.steps.iter().enumerate() {
        match step {
            Step::Admit { pod } => results.push(admit(&mut model, at, pod)?),
            Step::Remove { uid } => model.remove(uid),
            Step::Resize { pod } => {
                let resized = model.resize(pod).with_context(|| format!("step {at}"))?;
                if !resized.resized {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    stderr::line(format_args!(
                        "step {at}: the resize of {name} waits: {}: {}",
                        resized.reason, resized.message
                    ));
                }
            }
            Step::Restart { plugins } => {
                let restarted = model.restart(registration(*plugins), &Lowest);
                if !restarted.ok {
                    bail!("step {at}: the kubelet does not start again: {}", restarted.error);
                }
                restarted.rejected.iter().for_each(|pod| {
                    stderr::line(format_args!(
                        "step {at}: after the restart {} is rejected: {}",
                        pod.uid, pod.reason
                    ));
                });
            }
        }
    }
    Ok(results)
}

fn read_pods(path: &Path) -> anyhow::Result<Vec<Value>> {
    let mut pods = Vec::new();
    dump::objects(path, &mut |object| {
        if object["kind"] == "Pod" {
            pods.push(object);
        }
    })?;
    if pods.is_empty() {
        bail!("{}: no object of kind Pod", path.display());
    }
    Ok(pods)
}

fn table(results: &[PodResult], wide: bool) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["POD", "CONTAINER", "CPUS", "MEMORY", "DEVICES"]);
    for result in results {
        if !result.verdict.admitted {
            let why = if wide { &result.verdict.message } else { &result.verdict.reason };
            table.add_row([&*result.pod, "", "", &*format!("rejected: {why}"), ""]);
        }
        for container in &result.verdict.containers {
            table.add_row([
                &*result.pod,
                &*container.name,
                cpus(container),
                &memory(container),
                &devices(container),
            ]);
        }
    }
    format!("{table}\n")
}

fn cpus(container: &ContainerVerdict) -> &str {
    if container.cpus.is_empty() { "shared" } else { &container.cpus }
}

fn memory(container: &ContainerVerdict) -> String {
    let blocks = container.memory.iter().map(|block| {
        let zones: Vec<String> = block.zones.iter().map(ToString::to_string).collect();
        let bytes = i64::try_from(block.bytes).unwrap_or(i64::MAX);
        let amount = topology::quantity::Quantity::from_i64(bytes, topology::quantity::Format::BinarySI);
        let name = if block.name == "memory" { String::new() } else { format!("{} ", block.name) };
        format!("{name}{amount} in {}", zones.join(","))
    });
    blocks.collect::<Vec<_>>().join("; ")
}

fn devices(container: &ContainerVerdict) -> String {
    let lists =
        container.devices.iter().map(|devices| format!("{}: {}", devices.resource, devices.ids.join(",")));
    lists.collect::<Vec<_>>().join("; ")
}
