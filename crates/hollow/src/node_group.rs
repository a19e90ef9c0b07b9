//! Nodes of one shape, as flags or a file describe them.
//!
//! In: a shape in the simulator's notation (`2x16+gpu4`), settings of a kubelet, labels. Out: names of the nodes and
//! their [`Machine`]. Never: a default other than those of `tholepin simulate`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use runtime::yaml::{self, CONFIG_LIMIT_BYTES, Mode};
use serde::Deserialize;
use sim::machine::{MAX_MACHINES, Shape};
use topology::kubelet::start::PolicyOptions;
use topology::policy::{CpuOption, PREFER_CLOSEST_NUMA_NODES, Policy, Scope};
use topology::quantity::Quantity;
use topology::resource::{ResourceKind, ResourceName};

use crate::machine::Machine;

/// Most pods of one node, and most devices of one resource in a zone.
const MAX_COUNT: u32 = 4096;
/// Most nodes whose names begin alike: five digits.
const MAX_NAME_BYTES: usize = 253 - 6;

/// Nodes of one shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeGroup {
    /// What the names begin with: `hollow` makes `hollow-0`, `hollow-1` and so on.
    pub name_prefix: String,
    /// The number of nodes.
    pub count: usize,
    /// The shape: `2x16`, `2x64+gpu4`.
    pub machine: String,
    /// The memory of each zone; `None`: as much for each CPU as in a simulation.
    pub memory_per_zone: Option<String>,
    /// Devices of each zone by resource name, beside those of the shape.
    pub devices: BTreeMap<String, u32>,
    /// CPUs that are reserved for the system.
    pub reserved_cpus: u32,
    /// Threads of each core.
    pub threads_per_core: u8,
    /// The kubelet's `maxPods`.
    pub max_pods: u32,
    /// The kubelet's `topologyManagerPolicy`.
    pub policy: String,
    /// The kubelet's `topologyManagerScope`.
    pub scope: String,
    /// The kubelet's `cpuManagerPolicyOptions` that are on.
    pub cpu_manager_policy_options: Vec<String>,
    /// The kubelet's `topologyManagerPolicyOptions` that are on.
    pub topology_manager_policy_options: Vec<String>,
    /// Labels of the Node objects.
    pub labels: BTreeMap<String, String>,
    /// Whether the nodes lack the taint that keeps off pods that do not tolerate hollow nodes.
    pub untainted: bool,
}

impl Default for NodeGroup {
    fn default() -> Self {
        Self {
            name_prefix: "hollow".to_owned(),
            count: 10,
            machine: "2x16".to_owned(),
            memory_per_zone: None,
            devices: BTreeMap::new(),
            reserved_cpus: 1,
            threads_per_core: 1,
            max_pods: 250,
            policy: Policy::SingleNumaNode.as_str().to_owned(),
            scope: Scope::Container.as_str().to_owned(),
            cpu_manager_policy_options: Vec::new(),
            topology_manager_policy_options: Vec::new(),
            labels: BTreeMap::new(),
            untainted: false,
        }
    }
}

/// A node to be.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    /// The name of the Node object.
    pub name: Arc<str>,
    /// The machine; nodes of one group share it.
    pub machine: Arc<Machine>,
    /// What the group says of labels and taint.
    pub group: Arc<NodeGroup>,
}

/// A file with several groups.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<NodeGroup>,
}

/// Reads the groups of a file.
///
/// # Errors
/// When the file cannot be read, or a field is unknown or of another type.
pub fn read(file: &Path) -> anyhow::Result<Vec<NodeGroup>> {
    let groups = yaml::read_file::<File>(file, Mode::Strict, CONFIG_LIMIT_BYTES)?.groups;
    ensure!(!groups.is_empty(), "{}: groups is empty: allowed is one group or more", file.display());
    Ok(groups)
}

/// The nodes of all groups, in the order of the groups.
///
/// # Errors
/// The group and the field that make no sense, or a name that two nodes would have.
pub fn plan(groups: Vec<NodeGroup>) -> anyhow::Result<Vec<PlannedNode>> {
    let (mut nodes, mut prefixes) = (Vec::new(), BTreeSet::new());
    for group in groups {
        let prefix = group.name_prefix.clone();
        ensure!(prefixes.insert(prefix.clone()), "two groups of nodes have the name prefix {prefix:?}");
        let machine = group.machine().with_context(|| format!("nodes {prefix}-*"))?;
        let (machine, group) = (Arc::new(machine), Arc::new(group));
        nodes.extend((0..group.count).map(|number| PlannedNode {
            name: format!("{prefix}-{number}").into(),
            machine: Arc::clone(&machine),
            group: Arc::clone(&group),
        }));
        ensure!(nodes.len() <= MAX_MACHINES, "more than {MAX_MACHINES} nodes");
    }
    Ok(nodes)
}

impl NodeGroup {
    /// The machine of this group's nodes.
    ///
    /// # Errors
    /// The field that makes no sense, with the values allowed.
    pub fn machine(&self) -> anyhow::Result<Machine> {
        self.check_prefix()?;
        ensure!(
            (1..=MAX_MACHINES).contains(&self.count),
            "the number of nodes is {}: allowed are 1 to {MAX_MACHINES}",
            self.count
        );
        ensure!(
            (1..=MAX_COUNT).contains(&self.max_pods),
            "the number of pods of a node is {}: allowed are 1 to {MAX_COUNT}",
            self.max_pods
        );
        let mut shape: Shape = self.machine.parse()?;
        let memory_mib = self.memory_mib()?;
        let devices = self.devices()?;
        for zone in &mut shape.zones {
            zone.memory_mib = memory_mib.unwrap_or(zone.memory_mib);
            zone.devices.extend(devices.iter().map(|(name, count)| (*name, *count)));
        }
        shape.reserved_cpus = self.reserved_cpus;
        shape.threads_per_core = self.threads_per_core;
        shape.max_pods = self.max_pods;
        shape.rules.policy = Policy::parse(&self.policy).with_context(|| {
            format!(
                "policy is {:?}: allowed are none, best-effort, restricted, single-numa-node",
                self.policy
            )
        })?;
        shape.rules.scope = Scope::parse(&self.scope)
            .with_context(|| format!("scope is {:?}: allowed are container, pod", self.scope))?;
        shape.options = self.options()?;
        let machines = shape.machines(1)?;
        let machine = machines.first().context("a shape without a machine")?;
        Machine::new(machine, shape.options)
    }

    fn check_prefix(&self) -> anyhow::Result<()> {
        let prefix = &self.name_prefix;
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let ends = is_end(prefix.bytes().next()) && is_end(prefix.bytes().last());
        ensure!(
            ends && prefix.bytes().all(is_inner) && prefix.len() <= MAX_NAME_BYTES && !prefix.contains(".."),
            "the name prefix is {prefix:?}: allowed are names of nodes"
        );
        Ok(())
    }

    fn memory_mib(&self) -> anyhow::Result<Option<u64>> {
        let Some(text) = &self.memory_per_zone else { return Ok(None) };
        let bytes = Quantity::parse(text).map(|quantity| quantity.value());
        let mib = bytes.ok().and_then(|bytes| u64::try_from(bytes >> 20).ok());
        let mib = mib.filter(|mib| (1024..=1 << 24).contains(mib));
        mib.map(Some).with_context(|| format!("the memory of a zone is {text:?}: allowed are 1Gi to 16Ti"))
    }

    fn devices(&self) -> anyhow::Result<BTreeMap<ResourceName, u32>> {
        let device = |(name, count): (&String, &u32)| {
            let known = ResourceName::new(name).ok().filter(|name| name.kind() == ResourceKind::Device);
            let known = known.with_context(|| {
                format!("{name:?} is not a device: allowed are names with a domain, such as example.com/gpu")
            })?;
            ensure!(
                (1..=MAX_COUNT).contains(count),
                "the number of {name} in a zone is {count}: allowed are 1 to {MAX_COUNT}"
            );
            Ok((known, *count))
        };
        self.devices.iter().map(device).collect()
    }

    fn options(&self) -> anyhow::Result<PolicyOptions> {
        let cpu = |text: &String| {
            CpuOption::parse(text).with_context(|| {
                let all: Vec<&str> = CpuOption::ALL.into_iter().map(CpuOption::as_str).collect();
                format!("{text:?} is no option of the CPU manager: allowed are {}", all.join(", "))
            })
        };
        let cpus = self.cpu_manager_policy_options.iter().map(cpu).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(other) =
            self.topology_manager_policy_options.iter().find(|option| *option != PREFER_CLOSEST_NUMA_NODES)
        {
            bail!("{other:?} is no option of the topology manager: allowed is {PREFER_CLOSEST_NUMA_NODES}");
        }
        Ok(PolicyOptions {
            cpus: cpus.into_iter().collect(),
            prefer_closest: !self.topology_manager_policy_options.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(change: impl FnOnce(&mut NodeGroup)) -> NodeGroup {
        let mut group = NodeGroup::default();
        change(&mut group);
        group
    }

    #[test]
    fn groups_become_nodes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "groups:\n- namePrefix: small\n  count: 2\n- namePrefix: large\n  count: 1\n  machine: 4x8+gpu2\n  \
                    memoryPerZone: 64Gi\n  devices: {example.com/nic: 3}\n  scope: pod\n  policy: restricted\n  \
                    cpuManagerPolicyOptions: [full-pcpus-only]\n  threadsPerCore: 2\n  reservedCpus: 2\n";
        std::fs::write(file.path(), text).unwrap();
        let nodes = plan(read(file.path()).unwrap()).unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["small-0", "small-1", "large-0"]);
        assert!(Arc::ptr_eq(&nodes[0].machine, &nodes[1].machine));
        let amounts = |node: &PlannedNode| serde_json::to_string(&node.machine.allocatable).unwrap();
        assert_eq!(
            amounts(&nodes[0]),
            r#"{"cpu":"31","ephemeral-storage":"107374182400","memory":"136902082560","pods":"250"}"#
        );
        assert_eq!(
            amounts(&nodes[2]),
            r#"{"cpu":"30","ephemeral-storage":"107374182400","example.com/gpu":"8","example.com/nic":"12","#
                .to_owned()
                + r#""memory":"273804165120","pods":"250"}"#
        );
    }

    #[test]
    fn bad_groups_name_the_field() {
        for (group, words) in [
            (group(|it| it.name_prefix = "No_Name".to_owned()), "name prefix is \"No_Name\""),
            (group(|it| it.name_prefix = "a-".to_owned()), "name prefix"),
            (group(|it| it.count = 0), "number of nodes is 0: allowed are 1 to 20000"),
            (group(|it| it.max_pods = 0), "pods of a node is 0"),
            (group(|it| it.machine = "2".to_owned()), "expected ZONESxCPUS"),
            (group(|it| it.policy = "strict".to_owned()), "policy is \"strict\": allowed are none"),
            (group(|it| it.scope = "node".to_owned()), "scope is \"node\": allowed are container, pod"),
            (group(|it| it.memory_per_zone = Some("1Mi".to_owned())), "memory of a zone is \"1Mi\""),
            (group(|it| it.devices = [("gpu".to_owned(), 1)].into()), "\"gpu\" is not a device"),
            (group(|it| it.devices = [("a.b/gpu".to_owned(), 0)].into()), "a.b/gpu in a zone is 0"),
            (group(|it| it.cpu_manager_policy_options = vec!["x".to_owned()]), "allowed are full-pcpus-only"),
            (group(|it| it.topology_manager_policy_options = vec!["x".to_owned()]), "allowed is prefer-"),
            (group(|it| it.reserved_cpus = 32), "reserved CPUs is 32"),
        ] {
            let error = format!("{:#}", plan(vec![group]).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
        let twice = plan(vec![NodeGroup::default(), NodeGroup::default()]).unwrap_err().to_string();
        assert!(twice.contains("two groups"), "{twice}");
    }
}
