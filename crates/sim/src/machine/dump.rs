//! Machines of a real cluster, from `kubectl get nodes,pods,noderesourcetopologies -A -o yaml` (or `json`), or from the
//! folder of a must-gather.
//!
//! In: v1 Lists, in a folder also single objects. Out: one [`Machine`] for each node with known zones, with the pods
//! there as residents, and notes about what was left out or guessed. Never: a panic, or a guess that no note names.
//!
//! Residents stay for the whole simulation, so their zones do not matter: the NRT object says what is free in each
//! zone. For nodes without an NRT object the caller may state the number of zones. Amounts are then divided evenly, and
//! residents are placed as the kubelet would have placed them in the order of their start. A resident that fits no zone
//! counts for the node as a whole only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use api::nrt::{self, NodeResourceTopology};
use k8s_openapi::api::core::v1 as wire;
use runtime::yaml;
use runtime::yaml::dump::Part;
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use serde::de::DeserializeOwned;
use serde_json::Value;
use topology::admit::{self, Scratch};
use topology::kubelet::start::{KubeletStart, PolicyOptions};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};

use super::{MAX_MACHINES, Machine, ShapeError, check_zones};
use crate::plural::count;
use crate::workload::{MAX_ARRIVALS, NamedPod};

/// The content of a dump.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// The machines, by name.
    pub machines: Vec<Machine>,
    /// Pods that are on no node, in the order of their creation.
    pub pending: Vec<NamedPod>,
    /// Pods of nodes that were taken out, as their controllers would make them again, in the order of their creation.
    pub displaced: Vec<NamedPod>,
    /// Namespace and name of pods of such nodes that no controller would make again.
    pub lost: Vec<String>,
    /// Notes about what was left out or guessed, for people.
    pub notes: Vec<String>,
    /// Whether settings of kubelets are guesses.
    pub is_guessed: bool,
}

/// How to read a dump.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpOptions<'a> {
    /// Zones of nodes without an NRT object; `None`: such nodes are left out.
    pub zones: Option<u32>,
    /// Policy of all nodes, in place of the one in NRT objects.
    pub policy: Option<Policy>,
    /// Scope of all nodes, in place of the one in NRT objects.
    pub scope: Option<Scope>,
    /// Options of the kubelets' managers, which NRT objects of most exporters lack.
    pub options: PolicyOptions,
    /// Threads of each core, in place of the number in NRT objects.
    pub threads_per_core: Option<u8>,
    /// Whether pods that are on no node are wanted.
    pub pending: bool,
    /// Nodes that are taken out.
    pub remove: &'a [String],
}

/// A dump that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file cannot be read, or is neither YAML nor JSON.
    #[error(transparent)]
    File(#[from] yaml::Error),
    /// A number of the options is out of range.
    #[error(transparent)]
    Range(#[from] ShapeError),
    /// The file holds something other than a List.
    #[error(
        "{file}: kind is {kind:?}: allowed is List, as kubectl get nodes,pods,noderesourcetopologies -A -o yaml \
         prints it"
    )]
    NotAList {
        /// The file.
        file: String,
        /// The kind that the file has.
        kind: String,
    },
    /// An object that cannot be used.
    #[error("{file}: items[{index}] ({what}): {problem}")]
    Item {
        /// The file.
        file: String,
        /// Index in the list.
        index: usize,
        /// Kind and name.
        what: String,
        /// The problem.
        problem: String,
    },
    /// No node can be simulated.
    #[error("{file}: {problem}")]
    NoMachines {
        /// The file.
        file: String,
        /// The reason.
        problem: String,
    },
}

/// Most objects named in a note.
const MAX_NAMED: usize = 5;
/// Most pods of a node; kubelets run a few hundred.
const MAX_RESIDENTS: usize = 5_000;

#[derive(Default)]
struct Objects {
    nodes: BTreeMap<String, NodeView>,
    zones: BTreeMap<String, NodeTopology>,
    /// Pods by node, with the time of their start.
    residents: BTreeMap<String, Vec<(i64, PodView)>>,
    /// Pods on no node, with the second of their creation.
    pending: Vec<(u64, NamedPod)>,
    /// Nodes that are taken out, and their pods as they would be made again.
    removed: BTreeSet<String>,
    displaced: Vec<(u64, NamedPod)>,
    lost: Vec<String>,
    warnings: usize,
    /// Nodes whose reports do not say all of the kubelet's settings, by the guess about them.
    guesses: BTreeMap<&'static str, Vec<String>>,
}

/// Reads objects up to the first error.
#[derive(Default)]
pub(crate) struct Reader {
    objects: Objects,
    /// Objects that were read. In a folder, an object may be in several files.
    known: Option<BTreeSet<String>>,
    /// Files of a folder that are neither YAML nor JSON.
    unreadable: usize,
    error: Option<DumpError>,
}

impl Dump {
    /// Reads a dump from a file or a folder. Costs little more memory than the largest file and the objects it keeps.
    ///
    /// # Errors
    /// [`DumpError`] names the file, the item and the field.
    pub fn read(path: &Path, options: DumpOptions<'_>) -> Result<Self, DumpError> {
        let mut reader = Reader::new(options);
        if path.is_dir() {
            reader.known = Some(BTreeSet::new());
        }
        yaml::dump::texts(path, &mut |file, text| reader.file(&file.display().to_string(), text))?;
        reader.finish(&path.display().to_string(), options)
    }

    /// Reads a dump from text; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Dump::read`].
    pub fn parse(name: &str, text: &str, options: DumpOptions<'_>) -> Result<Self, DumpError> {
        let mut reader = Reader::new(options);
        reader.file(name, text);
        reader.finish(name, options)
    }
}

impl Reader {
    pub(crate) fn new(options: DumpOptions<'_>) -> Self {
        let mut reader = Self::default();
        reader.objects.removed = options.remove.iter().cloned().collect();
        reader
    }

    fn file(&mut self, file: &str, text: &str) {
        if self.error.is_some() {
            return;
        }
        let in_folder = self.known.is_some();
        match yaml::dump::read(file, text, &mut |part| self.part(file, part)) {
            Ok(()) => {}
            Err(_) if in_folder => self.unreadable += 1,
            Err(error) => self.fail(error.into()),
        }
    }

    fn part(&mut self, file: &str, part: Part) {
        match part {
            Part::Item { index, value } => self.object(file, index, value),
            Part::Document { value, is_list: false } if self.known.is_some() || is_object(&value) => {
                self.object(file, 0, value);
            }
            Part::Document { value, .. } => {
                let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
                if self.known.is_none() && !kind.ends_with("List") {
                    let kind = kind.chars().take(64).collect();
                    self.fail(DumpError::NotAList { file: file.to_owned(), kind });
                }
            }
        }
    }

    /// Takes an object; the first error is kept.
    pub(crate) fn object(&mut self, file: &str, index: usize, item: Value) {
        let is_known = self.known.as_mut().is_some_and(|known| !known.insert(describe(&item, usize::MAX)));
        if self.error.is_some() || is_known {
            return;
        }
        let what = describe(&item, 64);
        if let Err(problem) = self.objects.take(item) {
            self.error = Some(DumpError::Item { file: file.to_owned(), index, what, problem });
        }
    }

    /// Keeps the first error.
    fn fail(&mut self, error: DumpError) {
        self.error.get_or_insert(error);
    }

    /// The content. `name`: where all came from, for errors.
    ///
    /// # Errors
    /// The first one.
    pub(crate) fn finish(self, name: &str, options: DumpOptions<'_>) -> Result<Dump, DumpError> {
        options.zones.map_or(Ok(()), check_zones)?;
        if let Some(error) = self.error {
            return Err(error);
        }
        let problem = |problem| DumpError::NoMachines { file: name.to_owned(), problem };
        let mut dump = self.objects.into_dump(options).map_err(problem)?;
        if self.unreadable > 0 {
            let files = count(self.unreadable as u64, "file");
            dump.notes.push(format!("ignored {files} without valid YAML or JSON"));
        }
        Ok(dump)
    }
}

impl Objects {
    fn take(&mut self, item: Value) -> Result<(), String> {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match text("kind").as_str() {
            "Node" => {
                let view = NodeView::read(&typed::<wire::Node>(item)?);
                if view.name.is_empty() {
                    return Err("metadata.name is missing".to_owned());
                }
                match self.nodes.insert(view.name.to_string(), view) {
                    Some(_) => Err("this node is listed twice".to_owned()),
                    None => Ok(()),
                }
            }
            "Pod" => self.pod(&typed::<wire::Pod>(item)?),
            nrt::KIND => {
                let object = NodeResourceTopology::from_json(item).map_err(|error| error.to_string())?;
                let name = object.metadata.name.clone().unwrap_or_default();
                let (topology, warnings) =
                    api::convert::node_topology(&object).map_err(|error| error.to_string())?;
                self.warnings += warnings.len();
                match self.zones.insert(name, topology) {
                    Some(_) => Err("this node's zones are listed twice".to_owned()),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn pod(&mut self, pod: &wire::Pod) -> Result<(), String> {
        let mut view = PodView::read(pod);
        if view.progress.terminal {
            return Ok(());
        }
        let Some(node) = view.node.clone() else {
            return add(&mut self.pending, unbound(pod, view));
        };
        if self.removed.contains(&*node) {
            let owners = pod.metadata.owner_references.iter().flatten();
            match owners.into_iter().any(|owner| owner.controller == Some(true)) {
                _ if view.stays => {}
                true => return add(&mut self.displaced, unbound(pod, view)),
                false => self.lost.push(view.key()),
            }
            return Ok(());
        }
        // Unique, and never the uid of a pod of the workload, whatever the file says.
        let residents = self.residents.entry(node.to_string()).or_default();
        if residents.len() >= MAX_RESIDENTS {
            return Err(format!("node {node} has more pods than the {MAX_RESIDENTS} allowed"));
        }
        view.uid = format!("dump/{node}/{}/{}", view.uid, residents.len()).into();
        view.progress.admitted = true;
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        residents.push((started.map_or(i64::MAX, |time| time.0.as_millisecond()), view));
        Ok(())
    }

    fn into_dump(mut self, options: DumpOptions<'_>) -> Result<Dump, String> {
        if self.nodes.is_empty() {
            return Err("no Node objects; nodes, pods and noderesourcetopologies are needed".to_owned());
        }
        if self.nodes.len() > MAX_MACHINES {
            return Err(format!("{} nodes: allowed are up to {MAX_MACHINES}", self.nodes.len()));
        }
        for name in &self.removed {
            self.zones.remove(name);
            if self.nodes.remove(name).is_none() {
                return Err(format!("there is no node {name} to remove"));
            }
        }
        if self.nodes.is_empty() {
            return Err("no node is left".to_owned());
        }
        let mut dump = Dump::default();
        let (mut without, mut impossible) = (Vec::new(), Vec::new());
        for (name, view) in std::mem::take(&mut self.nodes) {
            let residents = self.residents.remove(&name).unwrap_or_default();
            let found = match (self.zones.remove(&name), options.zones) {
                (Some(topology), _) => {
                    let topology = self.completed(&name, topology);
                    reported(view, topology, residents)
                }
                (None, Some(count)) => divided_evenly(view, count, residents),
                (None, None) => {
                    without.push(name);
                    continue;
                }
            };
            match with_kubelet(found, options) {
                Ok(machine) => dump.machines.push(machine),
                Err(problem) => impossible.push((name, problem)),
            }
        }
        if let (true, Some((node, problem))) = (dump.machines.is_empty(), impossible.first()) {
            return Err(format!("node {node}: {problem}"));
        }
        if dump.machines.is_empty() {
            return Err(
                "no node has a NodeResourceTopology object; say how many zones the nodes have with --zones"
                    .to_owned(),
            );
        }
        dump.notes = self.notes(&without, options.pending);
        let impossible = impossible.iter().take(MAX_NAMED);
        dump.notes.extend(impossible.map(|(node, problem)| format!("left out node {node}: {problem}")));
        dump.is_guessed = !self.guesses.is_empty();
        (dump.pending, dump.displaced) = (by_creation(self.pending), by_creation(self.displaced));
        dump.lost = self.lost;
        Ok(dump)
    }

    /// The report, with a guess for each setting of the kubelet that it does not say.
    fn completed(&mut self, node: &str, mut report: NodeTopology) -> NodeTopology {
        let mut guess = |guess| self.guesses.entry(guess).or_default().push(node.to_owned());
        if report.rules.cpu_manager == Manager::Unknown {
            guess("cpuManagerPolicy static");
        }
        if report.rules.memory_manager == Manager::Unknown {
            let mut resources = report.zones.iter().flat_map(|zone| &zone.resources);
            if resources
                .any(|resource| resource.name.kind() == ResourceKind::Memory && resource.allocatable > 0)
            {
                guess("memoryManagerPolicy Static, so that memory must fit in a zone");
            } else {
                // Exporters list memory in zones where the memory manager has some.
                guess("memoryManagerPolicy None, because their zones list no memory");
                report.rules.memory_manager = Manager::Off;
            }
        }
        report
    }

    fn notes(&self, without: &[String], pending: bool) -> Vec<String> {
        let list = |names: &[String]| {
            let more = names.len().saturating_sub(MAX_NAMED);
            let named = names[..names.len() - more].join(", ");
            if more > 0 { format!("{named} and {more} more") } else { named }
        };
        let mut notes = Vec::new();
        for (guess, nodes) in &self.guesses {
            let number = count(nodes.len() as u64, "node");
            notes.push(format!("guessed for {number} without such a report ({}): {guess}", list(nodes)));
        }
        if !without.is_empty() {
            notes.push(format!(
                "left out {} without a NodeResourceTopology object: {} (--zones N includes them with N equal zones)",
                count(without.len() as u64, "node"),
                list(without)
            ));
        }
        let strays: Vec<String> = self.zones.keys().chain(self.residents.keys()).cloned().collect();
        if !strays.is_empty() {
            notes.push(format!("ignored zones and pods of nodes missing from the file: {}", list(&strays)));
        }
        if !pending && !self.pending.is_empty() {
            let number = self.pending.len();
            notes.push(format!(
                "left out {} that {} not bound to a node (--pending tries them instead of generated pods)",
                count(number as u64, "pod"),
                if number == 1 { "is" } else { "are" }
            ));
        }
        if self.warnings > 0 {
            let fields = count(self.warnings as u64, "invalid field");
            notes.push(format!("ignored {fields} of NodeResourceTopology objects"));
        }
        notes
    }
}

/// A pod without its node, with the second of its creation.
fn unbound(pod: &wire::Pod, view: PodView) -> (u64, NamedPod) {
    let PodView { namespace, name, priority, spec, created_s, .. } = view;
    // A pod that cannot be read has a spec that no node fits.
    let request = Arc::new(api::convert::whole_pod_request(pod).unwrap_or_default());
    (created_s, NamedPod { namespace, name, priority, spec, request })
}

/// # Errors
/// When there are too many.
fn add(pods: &mut Vec<(u64, NamedPod)>, pod: (u64, NamedPod)) -> Result<(), String> {
    if pods.len() >= MAX_ARRIVALS {
        return Err(format!("more pods than the {MAX_ARRIVALS} allowed are on no node"));
    }
    pods.push(pod);
    Ok(())
}

fn by_creation(mut pods: Vec<(u64, NamedPod)>) -> Vec<NamedPod> {
    pods.sort_by_key(|(created_s, _)| *created_s);
    pods.into_iter().map(|(_, pod)| pod).collect()
}

/// What is known of a node, before its kubelet starts.
struct ReportedNode {
    view: NodeView,
    topology: NodeTopology,
    residents: Vec<PodView>,
}

/// A node with a report of its zones.
fn reported(view: NodeView, topology: NodeTopology, residents: Vec<(i64, PodView)>) -> ReportedNode {
    let residents = residents.into_iter().map(|(_, pod)| pod).collect();
    ReportedNode { view, topology, residents }
}

/// A node without a report, divided into equal zones.
fn divided_evenly(view: NodeView, zones: u32, mut residents: Vec<(i64, PodView)>) -> ReportedNode {
    let zones = zones.max(1);
    let part = |amount: i64, units: i64, id: u32| {
        // Whole units; the first zones get the remainder.
        let (whole, count) = (amount / units, i64::from(zones));
        (whole / count + i64::from(i64::from(id) < whole % count)) * units
    };
    let aligned = |name: ResourceName| name.kind() != ResourceKind::Host;
    let zone = |id: u32| Zone {
        id: ZoneId(id),
        distances: Vec::new(),
        resources: view
            .allocatable
            .iter()
            .filter(|need| aligned(need.name))
            .map(|need| {
                let amount = part(need.amount, need.name.base_units(), id);
                ZoneResource { name: need.name, capacity: amount, allocatable: amount, available: amount }
            })
            .collect(),
    };
    let rules = Rules {
        policy: Policy::SingleNumaNode,
        scope: Scope::Container,
        cpu_manager: Manager::Static,
        memory_manager: Manager::Static,
    };
    let mut topology =
        NodeTopology { rules, zones: (0..zones).map(zone).collect(), ..NodeTopology::default() };
    residents.sort_by_key(|(started, _)| *started);
    let mut free = topology.available();
    let mut scratch = Scratch::default();
    for (_, pod) in &residents {
        if let Ok(placement) = admit::admit(rules, &free, &pod.spec.needs, &mut scratch) {
            placement.charge(&mut free);
        }
    }
    for zone in &mut topology.zones {
        for resource in &mut zone.resources {
            resource.available = free.amount(zone.id, resource.name);
        }
    }
    reported(view, topology, residents)
}

/// # Errors
/// Why there can be no such machine.
fn with_kubelet(found: ReportedNode, options: DumpOptions<'_>) -> Result<Machine, String> {
    let ReportedNode { view, mut topology, residents } = found;
    topology.rules.policy = options.policy.unwrap_or(topology.rules.policy);
    topology.rules.scope = options.scope.unwrap_or(topology.rules.scope);
    topology.threads_per_core = options.threads_per_core.or(topology.threads_per_core);
    // Another number of threads makes it another machine, whose ids the report does not know.
    topology.kubelet = topology.kubelet.filter(|_| options.threads_per_core.is_none());
    let start = Arc::new(KubeletStart::new(&topology, options.options)?);
    Ok(Machine { view, topology: Arc::new(topology), residents, start })
}

fn typed<T: DeserializeOwned>(item: Value) -> Result<T, String> {
    serde_json::from_value(item).map_err(|error| error.to_string())
}

/// Whether a document is a single object of Kubernetes.
fn is_object(value: &Value) -> bool {
    let has =
        |field: &str| value.get(field).and_then(Value::as_str).is_some_and(|text| !text.ends_with("List"));
    has("kind") && has("apiVersion")
}

/// Kind, namespace and name, each up to a number of characters.
fn describe(item: &Value, most: usize) -> String {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).unwrap_or_default().chars().take(most).collect::<String>()
    };
    let meta = |field| text(item.get("metadata").and_then(|meta| meta.get(field)));
    let (kind, namespace, name) = (text(item.get("kind")), meta("namespace"), meta("name"));
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!("{kind} {namespace}{separator}{name}")
}

#[cfg(test)]
mod tests;
