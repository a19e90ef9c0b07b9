//! The command line of `tholepin hollow`.
//!
//! In: flags. Out: [`Settings`]. Never: a check of shapes, which [`crate::node_group`] does.

use std::path::PathBuf;
use std::time::Duration;

use api::goduration::GoDuration;
use runtime::client::ClusterArgs;
use runtime::http;

use crate::fleet::Times;
use crate::node_group::{self, NodeGroup};
use crate::shell::Settings;

/// The flags that describe nodes, which a file describes as well.
const GROUP: [&str; 14] = [
    "name_prefix",
    "nodes",
    "machine",
    "memory_per_zone",
    "devices",
    "reserved_cpus",
    "threads_per_core",
    "max_pods",
    "policy",
    "scope",
    "cpu_manager_policy_options",
    "topology_manager_policy_options",
    "labels",
    "untainted",
];

/// Run hollow nodes: Node objects of a real cluster, whose kubelets are the model of the kubelet.
///
/// Pods that are bound to them run without containers, or fail as on a real kubelet; each node publishes its zones. For
/// benchmarks of schedulers and for capacity planning. Nodes of an earlier process are taken over, with their pods.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin hollow --nodes 100 --machine 2x32+gpu4 --cleanup\n  \
    tholepin hollow --nodes 5000 --policy restricted --scope pod --lag 2s\n  \
    tholepin hollow --file groups.yaml --run-time 30s")]
pub struct Args {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub nodes: usize,
    /// What the names of the nodes begin with; a number follows
    #[arg(long, value_name = "NAME", default_value = "hollow")]
    pub name_prefix: String,
    /// Shape of the nodes: ZONESxCPUS of each zone, with devices as +NAME or +NAMECOUNT, such as 2x16, 8x16, 2x64+gpu4
    #[arg(long, value_name = "SHAPE", default_value = "2x16")]
    pub machine: String,
    /// Memory of each zone, such as 256Gi [default: 4Gi for each CPU]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_per_zone: Option<String>,
    /// Devices of each zone, such as vendor.example/nic=2; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = device)]
    pub devices: Vec<(String, u32)>,
    /// CPUs reserved for the system on each node
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub reserved_cpus: u32,
    /// Threads of each core
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads_per_core: u8,
    /// Most pods of a node
    #[arg(long, value_name = "N", default_value_t = 250)]
    pub max_pods: u32,
    /// Topology manager policy of the kubelets: none, best-effort, restricted or single-numa-node
    #[arg(long, value_name = "POLICY", default_value = "single-numa-node")]
    pub policy: String,
    /// Topology manager scope of the kubelets: container or pod
    #[arg(long, value_name = "SCOPE", default_value = "container")]
    pub scope: String,
    /// Options of the kubelets' CPU manager that are on, such as full-pcpus-only,distribute-cpus-across-numa
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpu_manager_policy_options: Vec<String>,
    /// Options of the kubelets' topology manager that are on: prefer-closest-numa-nodes
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub topology_manager_policy_options: Vec<String>,
    /// A label of the nodes; may be repeated
    #[arg(long = "label", id = "labels", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Leave out the taint hollow.tholepin.dev/node:NoSchedule, so that any pod may come
    #[arg(long)]
    pub untainted: bool,
    /// A file with several groups of nodes, instead of the flags above
    #[arg(long, value_name = "FILE", conflicts_with_all = GROUP)]
    pub file: Option<PathBuf>,
    /// Time between a change on a node and the report that has it
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = GoDuration::parse_std)]
    pub lag: Duration,
    /// Time after which pods succeed that are not restarted [default: they run for ever]
    #[arg(long, value_name = "DURATION", value_parser = GoDuration::positive)]
    pub run_time: Option<Duration>,
    /// Time between two renewals of a node's lease
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = GoDuration::positive)]
    pub heartbeat: Duration,
    /// Most writes per second, heartbeats left out
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub qps: u32,
    /// Delete the nodes at the end
    #[arg(long)]
    pub cleanup: bool,
    /// Address of metrics and health: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10290", value_parser = http::address)]
    pub http_bind_address: http::Listen,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl Args {
    /// The settings.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn settings(self) -> anyhow::Result<Settings> {
        let groups = match &self.file {
            Some(file) => node_group::read(file)?,
            None => vec![self.group()],
        };
        Ok(Settings {
            cluster: self.cluster.options("hollow"),
            groups,
            times: Times { lag: self.lag, run_time: self.run_time },
            heartbeat: self.heartbeat,
            qps: self.qps,
            http: self.http_bind_address,
            cleanup: self.cleanup,
        })
    }

    fn group(&self) -> NodeGroup {
        NodeGroup {
            name_prefix: self.name_prefix.clone(),
            count: self.nodes,
            machine: self.machine.clone(),
            memory_per_zone: self.memory_per_zone.clone(),
            devices: self.devices.iter().cloned().collect(),
            reserved_cpus: self.reserved_cpus,
            threads_per_core: self.threads_per_core,
            max_pods: self.max_pods,
            policy: self.policy.clone(),
            scope: self.scope.clone(),
            cpu_manager_policy_options: self.cpu_manager_policy_options.clone(),
            topology_manager_policy_options: self.topology_manager_policy_options.clone(),
            labels: self.labels.iter().cloned().collect(),
            untainted: self.untainted,
        }
    }
}

fn device(text: &str) -> Result<(String, u32), String> {
    let device = text.split_once('=').and_then(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
    device.ok_or_else(|| "allowed are a name and a number, such as example.com/nic=2".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    let label = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    label.ok_or_else(|| "allowed are a key and a value, such as pool=hollow".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Settings, String> {
        let words = std::iter::once("hollow").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        cli.args.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_settings() {
        let settings = parse(
            "--nodes 3 --name-prefix n --machine 2x8+gpu1 --devices a.b/nic=2 --devices a.b/ssd=1 --label x=y \
             --lag 0 --run-time 5s --qps 7 --cleanup --untainted --http-bind-address 0 --kubeconfig k --scope pod",
        )
        .unwrap();
        let [group] = settings.groups.as_slice() else { panic!("{settings:?}") };
        assert_eq!((group.count, &*group.name_prefix, &*group.scope), (3, "n", "pod"));
        assert_eq!(group.devices, [("a.b/nic".to_owned(), 2), ("a.b/ssd".to_owned(), 1)].into());
        assert_eq!(group.labels, [("x".to_owned(), "y".to_owned())].into());
        assert_eq!(
            (settings.times.lag, settings.times.run_time),
            (Duration::ZERO, Some(Duration::from_secs(5)))
        );
        assert_eq!((settings.qps, settings.cleanup, group.untainted, settings.http), (7, true, true, None));
        let defaults = parse("").unwrap();
        assert_eq!(defaults.heartbeat, Duration::from_secs(40));
        assert!(!defaults.groups[0].untainted && !defaults.cleanup);
    }

    #[test]
    fn contradictions_are_refused() {
        for (line, words) in [
            ("--file f --nodes 2", "cannot be used with"),
            ("--file f --untainted", "cannot be used with"),
            ("--file /nonexistent/f", "/nonexistent/f"),
            ("--devices nic", "allowed are a name and a number"),
            ("--label nic", "allowed are a key and a value"),
            ("--qps 0", "invalid value"),
            ("--run-time 0", "not a duration above zero"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
