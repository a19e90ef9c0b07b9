//! A scheduler's core with hollow nodes, without an API server.
//!
//! Reports are those of our exporter, and the kubelet's model admits each pod that is placed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use api::convert::node_topology;
use exporter::object::WriteContext;
use hollow::machine::{KUBELET_VERSION, ListedPod};
use hollow::node::HollowNode;
use hollow::node_group::NodeGroup;
use hollow::pod::PodView as KubeletPod;
use k8s_openapi::api::core::v1 as wire;
use scheduler::config;
use scheduler::core::{Binding, Core, Decision, Event, Settings};
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use serde_json::{Value, json};

/// When all begins: so late that no node is young.
pub(crate) const START_MS: u64 = 2_000_000_000_000;

/// Takes events.
pub(crate) type EventSink = Box<dyn FnMut(Event)>;

/// The device that nodes may have.
pub(crate) const GPU: &str = "example.com/gpu";

/// A scheduler's core with its nodes.
pub(crate) struct CoreCluster {
    pub(crate) core: Core,
    /// Takes a copy of all that the core is told.
    sink: Option<EventSink>,
    pub(crate) nodes: Vec<HollowNode>,
    /// The pods of each node.
    pods: Vec<Vec<Arc<str>>>,
    now_ms: u64,
    /// Time that the core has taken so far.
    pub(crate) spent: Duration,
}

/// Settings with which each cycle looks at all nodes.
pub(crate) fn settings() -> Settings {
    let mut settings = config::default_settings(1);
    settings.profiles.iter_mut().for_each(|profile| profile.percentage = 100);
    settings
}

/// A Guaranteed pod of containers with these amounts.
pub(crate) fn pod_of(name: &str, priority: i32, containers: &[Value]) -> Value {
    let container = |(at, amounts): (usize, &Value)| {
        json!({
            "name": format!("c{at}"), "image": "registry.example/app:1",
            "resources": { "requests": amounts, "limits": amounts },
        })
    };
    let containers: Vec<Value> = containers.iter().enumerate().map(container).collect();
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "1",
        },
        "spec": {
            "schedulerName": config::DEFAULT_SCHEDULER_NAME, "priority": priority, "containers": containers,
        },
    })
}

pub(crate) fn read(pod: &Value) -> anyhow::Result<wire::Pod> {
    Ok(serde_json::from_value(pod.clone())?)
}

fn name_of(node: usize) -> Arc<str> {
    format!("n{node}").into()
}

fn number_of(node: &str) -> anyhow::Result<usize> {
    node.strip_prefix('n').and_then(|number| number.parse().ok()).with_context(|| node.to_owned())
}

impl CoreCluster {
    /// Vacant nodes. Each cycle looks at all of them; `is_blind`: not at their zones.
    pub(crate) fn new(group: &NodeGroup, count: usize, is_blind: bool) -> anyhow::Result<Self> {
        let mut settings = settings();
        settings.profiles.iter_mut().for_each(|profile| drop(profile.numa.take_if(|_| is_blind)));
        Self::with(group, count, settings, None)
    }

    /// Vacant nodes and a scheduler with these settings.
    pub(crate) fn with(
        group: &NodeGroup,
        count: usize,
        settings: Settings,
        sink: Option<EventSink>,
    ) -> anyhow::Result<Self> {
        let machine = Arc::new(group.machine()?);
        let nodes = (0..count).map(|at| HollowNode::new(name_of(at), Arc::clone(&machine))).collect();
        let pods = vec![Vec::new(); count];
        let (core, now_ms) = (Core::new(settings), START_MS);
        let mut cluster = Self { core, sink, nodes, pods, now_ms, spent: Duration::ZERO };
        for at in 0..count {
            let name = name_of(at);
            let node: wire::Node = serde_json::from_value(json!({
                "metadata": { "name": name, "uid": name, "labels": { "kubernetes.io/hostname": name } },
                "status": { "allocatable": machine.allocatable },
            }))?;
            cluster.tell(Event::Node(NodeView::read(&node)));
        }
        Ok(cluster)
    }

    pub(crate) fn tell(&mut self, event: Event) {
        if let Some(sink) = &mut self.sink {
            sink(event.clone());
        }
        let began = Instant::now();
        self.core.handle(event, self.now_ms);
        self.spent += began.elapsed();
    }

    pub(crate) fn next(&mut self) -> Option<Decision> {
        let began = Instant::now();
        let decision = self.core.next(self.now_ms);
        self.spent += began.elapsed();
        decision
    }

    /// The exporter of a node reports it.
    pub(crate) fn report(&mut self, at: usize) -> anyhow::Result<()> {
        let name = name_of(at);
        let listed = |uid| ListedPod { uid, namespace: "ns", name: uid, running: &["c0"] };
        let listed: Vec<ListedPod<'_>> = self.pods[at].iter().map(|uid| listed(uid)).collect();
        let context =
            WriteContext { kubelet_version: Some(KUBELET_VERSION), ..WriteContext::new(&name, "reactive") };
        let report = self.nodes[at].report(&listed)?.object(&context);
        let (topology, _) = node_topology(&report).map_err(|error| anyhow!("{name}: {error}"))?;
        self.tell(Event::Report(Arc::clone(&name), Arc::new(topology)));
        Ok(())
    }

    /// A kubelet admits a pod.
    fn admit(&mut self, at: usize, pod: &Value) -> anyhow::Result<()> {
        let view = KubeletPod::of(&read(pod)?).map_err(|error| anyhow!("{error}: {pod}"))?;
        let admitted = self.nodes[at].admit(&view);
        admitted.map_err(|rejection| anyhow!("n{at} rejects {pod}: {rejection:?}"))?;
        self.pods[at].push(view.uid);
        Ok(())
    }

    /// A pod runs on a node from the beginning.
    pub(crate) fn run(&mut self, at: usize, mut pod: Value) -> anyhow::Result<()> {
        pod["spec"]["nodeName"] = (*name_of(at)).into();
        pod["status"] =
            json!({ "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Guaranteed" });
        self.admit(at, &pod)?;
        self.tell(Event::Pod(PodView::read(&read(&pod)?)));
        Ok(())
    }

    /// A binding is accepted, the kubelet admits the pod, the exporter reports it.
    pub(crate) fn bind(&mut self, binding: &Binding, mut pod: Value) -> anyhow::Result<()> {
        let at = number_of(&binding.node)?;
        pod["spec"]["nodeName"] = (*binding.node).into();
        self.admit(at, &pod)?;
        let mut view = PodView { node: Some(Arc::clone(&binding.node)), ..binding.pod.clone() };
        view.progress.admitted = true;
        self.tell(Event::Bound(binding.id));
        self.tell(Event::Pod(view));
        self.report(at)
    }

    pub(crate) fn evict(&mut self, victim: PodView) -> anyhow::Result<()> {
        let at = number_of(victim.node.as_deref().unwrap_or_default())?;
        self.nodes[at].release(&victim.uid);
        self.pods[at].retain(|uid| *uid != victim.uid);
        self.tell(Event::PodGone(victim));
        self.report(at)
    }

    /// Pods come and are placed, others are evicted for them; these are returned.
    pub(crate) fn place(&mut self, pods: &BTreeMap<Arc<str>, Value>) -> anyhow::Result<Vec<PodView>> {
        for pod in pods.values() {
            self.tell(Event::Pod(PodView::read(&read(pod)?)));
        }
        let (mut placed, mut evicted, mut pauses) = (0, Vec::new(), 0);
        while placed < pods.len() {
            match self.next() {
                Some(Decision::Bind(binding)) => {
                    self.bind(&binding, pods[&binding.pod.uid].clone())?;
                    placed += 1;
                }
                Some(Decision::Preempt(preemption)) => {
                    for victim in preemption.victims {
                        evicted.push(victim.clone());
                        self.evict(victim)?;
                    }
                }
                Some(_) => {}
                None => {
                    ensure!(pauses < 100, "only {placed} of {} pods were placed", pods.len());
                    pauses += 1;
                    self.now_ms += 1_000;
                }
            }
        }
        Ok(evicted)
    }
}
