//! Where exporters are compared: one cluster, and for each exporter a real kubelet of its own on an equal machine.
//!
//! In: the shape of the machines, the exporters' programs. Out: running exporters whose objects are there.
//! Never: anything between an exporter and the API server or the kubelet.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use testkit::cluster::{Cluster, ClusterNode};
use testkit::controlplane::ControlPlaneOptions;
use testkit::kubelet::{KubeletOptions, PodCgroups};
use testkit::machine::Machine;
use testkit::process_group::{Process, Spec};
use testkit::{env, load, port};
use topology::policy::Policy;

use super::audit::Audit;
use super::report::Reports;
use crate::bench::rig;

/// How long an exporter may take to its first report.
const FIRST_REPORT: Duration = Duration::from_secs(90);
/// Nothing takes this long unless it never happens: hundreds of pods start on two cores.
pub(super) const PATIENCE: Duration = Duration::from_secs(900);
/// Pods being created at the same time.
const CREATORS: usize = 4;

/// A machine and how full it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// NUMA zones.
    pub(super) zones: u32,
    /// CPUs in each.
    pub(super) cpus_per_zone: u32,
    /// Pods that run all the time, with one CPU each.
    pub(super) pods: usize,
    /// Whether the kubelet aligns. It tries every set of zones when it does (2 to the power of their number),
    /// so it cannot with 32.
    pub(super) aligned: bool,
}

/// An exporter to measure.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The mounts of ours, or `peer`.
    pub(super) label: &'static str,
    /// Its program.
    pub(super) program: PathBuf,
    /// Arguments besides those that say where things are.
    pub(super) args: Vec<String>,
    /// Whether its machine has cgroups of pods.
    pub(super) cgroups: bool,
}

/// A running exporter and its node.
#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) label: &'static str,
    pub(super) process: Process,
    number: usize,
}

/// Everything runs; everything ends when it is dropped.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) exporters: Vec<Exporter>,
    pub(super) reports: Reports,
    pub(super) audit: Audit,
    pub(super) pods: Api<Pod>,
    cluster: Cluster,
    shape: Shape,
    _cgroups: Vec<PodCgroups>,
}

impl Field {
    /// Starts cluster and exporters, and waits for a report of each.
    pub(super) async fn start(shape: Shape, subjects: &[Subject]) -> anyhow::Result<Self> {
        let rig = match env::check() {
            Ok(rig) => rig,
            Err(reason) => bail!("the benchmark needs the rig: {reason}"),
        };
        let audit = Audit::new()?;
        let machine = Machine::new().zones(shape.zones).cpus_per_zone(shape.cpus_per_zone);
        let cluster = Cluster::builder()
            .machines(vec![machine; subjects.len()])
            .kubelet(shape.kubelet())
            .control(ControlPlaneOptions {
                api_server_flags: audit.flags(),
                ..ControlPlaneOptions::default()
            })
            .crds(api::crd::NRT_CRD_YAML)
            .start(&rig)
            .await?;
        let client = cluster.client().await?;
        let reports = Reports::watch(client.clone(), cluster.nodes().iter().map(ClusterNode::name));
        let pods = Api::default_namespaced(client);
        let seen = cluster.nodes().iter().zip(subjects).filter(|(_, subject)| subject.cgroups);
        let cgroups = seen.map(|(node, _)| node.kubelet().show_cgroups()).collect::<anyhow::Result<_>>()?;
        let mut field =
            Self { exporters: Vec::new(), reports, audit, pods, cluster, shape, _cgroups: cgroups };
        for (number, subject) in subjects.iter().enumerate() {
            let process = field.cluster.spawn(field.spec(number, subject)?)?;
            field.exporters.push(Exporter { label: subject.label, process, number });
        }
        for exporter in &field.exporters {
            field.reports.wait(field.node(exporter).name(), FIRST_REPORT, |_| true).await.with_context(
                || format!("{}'s log ends:\n{}", exporter.process.name(), exporter.process.log_tail(15)),
            )?;
        }
        Ok(field)
    }

    /// The node an exporter reports.
    pub(super) fn node(&self, exporter: &Exporter) -> &ClusterNode {
        &self.cluster.nodes()[exporter.number]
    }

    /// Runs the shape's pods on every node, until every report shows them.
    pub(super) async fn fill(&self) -> anyhow::Result<()> {
        let count = self.shape.pods;
        let nodes: Vec<&str> = self.exporters.iter().map(|exporter| self.node(exporter).name()).collect();
        let mut full = Vec::new();
        for node in &nodes {
            full.push(self.reports.wait(node, FIRST_REPORT, |_| true).await?.cpus);
        }
        let all = (0..count).flat_map(|number| nodes.iter().map(move |node| (*node, number)));
        stream::iter(all)
            .map(|(node, number)| self.create(node, format!("steady-{node}-{number}")))
            .buffer_unordered(CREATORS)
            .try_collect::<()>()
            .await?;
        let taken = i64::try_from(count)? * 1000;
        for (node, full) in nodes.iter().zip(full) {
            self.reports.wait(node, PATIENCE, |cpus| cpus <= full - taken).await?;
        }
        Ok(())
    }

    /// Creates a pod of one CPU on a node.
    pub(super) async fn create(&self, node: &str, name: String) -> anyhow::Result<()> {
        let mut pod = load::guaranteed_pod(&name, "none", [("cpu", "1"), ("memory", "64Mi")]);
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(node.to_owned());
            // A node has 254 pod addresses.
            spec.host_network = Some(!self.shape.aligned);
        }
        self.pods.create(&PostParams::default(), &pod).await.with_context(|| format!("creating {name}"))?;
        Ok(())
    }

    /// Deletes a pod gracefully.
    pub(super) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.pods.delete(name, &DeleteParams::default()).await.with_context(|| format!("deleting {name}"))?;
        Ok(())
    }

    fn spec(&self, number: usize, subject: &Subject) -> anyhow::Result<Spec> {
        let node = &self.cluster.nodes()[number];
        let name = format!("{}-{}", subject.label, node.name());
        let spec = Spec::new(name, &subject.program).env("NODE_NAME", node.name());
        let port = port::free()?.to_string();
        let own = subject.args.iter().map(|arg| arg.replace("PORT", &port));
        let own = own.map(|arg| arg.replace("ROOT", &node.kubelet().root_dir().display().to_string()));
        Ok(spec.args(own).args(rig::places(&self.cluster, node)))
    }
}

impl Shape {
    fn kubelet(self) -> KubeletOptions {
        let max_pods = u32::try_from(self.pods + 20).unwrap_or(u32::MAX);
        let options = KubeletOptions { max_pods, ..KubeletOptions::default() };
        if self.aligned {
            return options;
        }
        KubeletOptions { policy: Policy::None, static_memory: false, ..options }
    }
}
