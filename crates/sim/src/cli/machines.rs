//! The machines of a simulation: by shape, or those of a cluster, with changes.
//!
//! In: flags. Out: machines, and pods that belong to them. Never: a change of a cluster; it is listed.

use std::io::Write as _;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kube::Client;
use runtime::client::{self, Connection, pages};
use runtime::output::one_line;
use topology::kubelet::start::PolicyOptions;
use topology::policy::{PREFER_CLOSEST_NUMA_NODES, Rules};

use super::Args;
use crate::machine::dump::{Dump, DumpOptions, Reader};
use crate::machine::{MAX_MACHINES, Machine, Shape, ShapeError};
use crate::plural::count;
use crate::preset::Defaults;
use crate::workload::NamedPod;

/// The time limit of a list.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most pods named in a sentence.
const MAX_NAMED: usize = 5;
/// The reports of nodes, in the version of today and in the one before.
const REPORTS: [&str; 2] = [
    "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
];

/// Nodes that a cluster might have.
#[derive(Clone, Debug, PartialEq)]
pub struct AddedNodes {
    shape: Shape,
    number: usize,
}

/// The machines, and whether settings of their kubelets are guesses.
pub(super) struct Machines {
    pub(super) machines: Vec<Machine>,
    is_guessed: bool,
    /// Pods on no node, if they are to be placed.
    pub(super) pending: Option<Vec<NamedPod>>,
    /// Pods of removed nodes, which are placed first.
    pub(super) displaced: Vec<NamedPod>,
    /// Pods of such nodes that no controller makes again.
    pub(super) lost: Vec<String>,
}

impl FromStr for AddedNodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "allowed is SHAPE=N, such as 2x64+gpu4=3";
        let (shape, number) = text.rsplit_once('=').ok_or(form)?;
        let number = number.parse().ok().filter(|number| *number > 0).ok_or(form)?;
        let shape = shape.parse().map_err(|error: ShapeError| error.to_string())?;
        Ok(Self { shape, number })
    }
}

impl Machines {
    pub(super) fn guess(&self) -> &'static str {
        if self.is_guessed { " Settings of kubelets were guessed, see the notes." } else { "" }
    }

    /// A sentence about the pods of removed nodes, if there are any.
    pub(super) fn removal(&self) -> String {
        let mut text = String::new();
        if !self.displaced.is_empty() {
            let (pods, verb) = counted(self.displaced.len(), "is", "are");
            text += &format!(" {pods} of removed nodes {verb} among them.");
        }
        if !self.lost.is_empty() {
            let (pods, verb) = counted(self.lost.len(), "is", "are");
            let named: Vec<&str> = self.lost.iter().take(MAX_NAMED).map(String::as_str).collect();
            let more = if self.lost.len() > MAX_NAMED { ", ..." } else { "" };
            text += &format!(
                " {pods} of removed nodes {verb} lost, without a controller: {}{more}.",
                named.join(", ")
            );
        }
        text
    }
}

fn counted(number: usize, one: &'static str, several: &'static str) -> (String, &'static str) {
    (count(number as u64, "pod"), if number == 1 { one } else { several })
}

pub(super) fn machines(args: &Args) -> anyhow::Result<Machines> {
    let options = DumpOptions {
        zones: args.zones,
        policy: args.policy,
        scope: args.scope,
        options: options(args),
        threads_per_core: args.threads_per_core,
        pending: args.pending,
        remove: &args.remove,
    };
    let (name, dump) = match &args.from {
        Some(file) => (file.display().to_string(), Dump::read(file, options)?),
        None if args.live => ("the cluster".to_owned(), live(args, options)?),
        None => return by_shape(args),
    };
    let mut stderr = std::io::stderr().lock();
    for note in &dump.notes {
        writeln!(stderr, "{name}: {}", one_line(note))?;
    }
    let mut machines = dump.machines;
    let all: usize = args.add.iter().map(|added| added.number).fold(machines.len(), usize::saturating_add);
    ensure!(all <= MAX_MACHINES, "--add: {all} nodes: allowed are up to {MAX_MACHINES}");
    for AddedNodes { shape, number } in &args.add {
        add(args, &mut machines, shape.clone(), *number).context("--add")?;
    }
    Ok(Machines {
        machines,
        is_guessed: dump.is_guessed,
        pending: args.pending.then_some(dump.pending),
        displaced: dump.displaced,
        lost: dump.lost,
    })
}

/// Adds nodes whose kubelets have the flags' settings, or else those of most nodes.
fn add(args: &Args, machines: &mut Vec<Machine>, mut shape: Shape, number: usize) -> anyhow::Result<()> {
    let rules = machines.iter().map(|machine| machine.topology.rules);
    let rules: Vec<Rules> = rules.collect();
    let usual = rules.iter().max_by_key(|one| rules.iter().filter(|other| other == one).count());
    shape.rules = *usual.context("the cluster has no node")?;
    shape.rules.policy = args.policy.unwrap_or(shape.rules.policy);
    shape.rules.scope = args.scope.unwrap_or(shape.rules.scope);
    shape.options = options(args);
    shape.threads_per_core = args.threads_per_core.unwrap_or(shape.threads_per_core);
    let before = machines.iter().filter(|machine| machine.view.name.starts_with(ADDED)).count();
    for (at, mut machine) in shape.machines(number)?.into_iter().enumerate() {
        let name = format!("{ADDED}{}", before + at);
        ensure!(machines.iter().all(|other| *other.view.name != *name), "the cluster has a node {name}");
        (machine.view.name, machine.view.uid) = (name.as_str().into(), name.as_str().into());
        machines.push(machine);
    }
    Ok(())
}

/// What the names of added nodes begin with; a number follows.
const ADDED: &str = "added-";

fn live(args: &Args, options: DumpOptions<'_>) -> anyhow::Result<Dump> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let reader = runtime.context("cannot start")?.block_on(listed(args, options))?;
    Ok(reader.finish("the cluster", options)?)
}

/// Lists the objects of a cluster.
async fn listed(args: &Args, options: DumpOptions<'_>) -> anyhow::Result<Reader> {
    let connection = Connection::open(&args.cluster.options("simulate")).await?;
    let client = connection.client_with_timeout(args.cluster.request_timeout.unwrap_or(PATIENCE))?;
    let mut reader = Reader::new(options);
    list(&client, "/api/v1/nodes", &mut reader).await?;
    list(&client, "/api/v1/pods", &mut reader).await?;
    for reports in REPORTS {
        if list(&client, reports, &mut reader).await? {
            break;
        }
    }
    Ok(reader)
}

/// Takes the objects of a list. Returns whether the API server has such.
async fn list(client: &Client, path: &str, reader: &mut Reader) -> anyhow::Result<bool> {
    let mut index = 0;
    let read = pages::each(client, path, "", |object| {
        reader.object(path, index, object);
        index += 1;
    });
    match read.await {
        Ok(()) => Ok(true),
        Err(error) if client::is_not_found(&error) => Ok(false),
        Err(error) => bail!("listing {path}: {}", client::brief(&error)),
    }
}

fn by_shape(args: &Args) -> anyhow::Result<Machines> {
    let Defaults { machine, nodes, policy, .. } = args.preset.defaults();
    let mut shape = match &args.machine {
        Some(shape) => shape.clone(),
        None => machine.parse()?,
    };
    let zones = args.zones.unwrap_or(u32::try_from(shape.zones.len()).unwrap_or(u32::MAX));
    let cpus = args.cpus_per_zone.or(shape.zones.first().map(|zone| zone.cpus)).unwrap_or_default();
    let devices = shape.zones.first().map(|zone| zone.devices.clone()).unwrap_or_default();
    shape.zones = Shape::even(zones, cpus)?.zones;
    shape.zones.iter_mut().for_each(|zone| zone.devices.clone_from(&devices));
    shape.reserved_cpus = args.reserved_cpus;
    shape.rules.policy = args.policy.unwrap_or(policy);
    shape.rules.scope = args.scope.unwrap_or(shape.rules.scope);
    shape.options = options(args);
    shape.threads_per_core = args.threads_per_core.unwrap_or(shape.threads_per_core);
    let machines = shape.machines(args.nodes.unwrap_or(nodes))?;
    Ok(Machines { machines, is_guessed: false, pending: None, displaced: Vec::new(), lost: Vec::new() })
}

fn options(args: &Args) -> PolicyOptions {
    let topology = &args.topology_manager_policy_options;
    PolicyOptions {
        cpus: args.cpu_manager_policy_options.iter().copied().collect(),
        prefer_closest: topology.iter().any(|option| option == PREFER_CLOSEST_NUMA_NODES),
    }
}
