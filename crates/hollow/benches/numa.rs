//! What zones cost a scheduler: their part of a cycle, and preemption for pods that must be aligned.
//!
//! Nodes are hollow ones: reports are those of our exporter, and the kubelet's model admits each pod that is placed.
//! Prints a JSON object a line. `cargo xtask bench cycle` runs it.

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
use runtime::random::Random;
use scheduler::config;
use scheduler::core::{Binding, Core, Decision, Event};
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use serde_json::{Value, json};

/// Cycles of which the median counts.
const CYCLES: usize = 301;
/// Nodes of a cycle, which looks at each of them.
const NODES: usize = 1000;
/// Number of pods that evict others, as in the benchmark of KAI-Scheduler.
const PREEMPTORS: usize = 250;
/// Nodes that are full of less important pods.
const FULL_NODES: usize = 500;
const GPU: &str = "example.com/gpu";
/// A scheduler's core with its nodes.
struct Cluster {
    core: Core,
    nodes: Vec<HollowNode>,
    /// The pods of each node.
    pods: Vec<Vec<Arc<str>>>,
    now_ms: u64,
    /// Time that the core has taken so far.
    spent: Duration,
}

/// A Guaranteed pod of one container.
fn pod(name: &str, priority: i32, amounts: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "1",
        },
        "spec": { "schedulerName": config::DEFAULT_SCHEDULER_NAME, "priority": priority, "containers": [{
            "name": "c", "image": "registry.example/app:1", "resources": { "requests": amounts, "limits": amounts },
        }] },
    })
}

fn read(pod: &Value) -> anyhow::Result<wire::Pod> {
    Ok(serde_json::from_value(pod.clone())?)
}

fn name_of(node: usize) -> Arc<str> {
    format!("n{node}").into()
}

fn number_of(node: &str) -> anyhow::Result<usize> {
    node.strip_prefix('n').and_then(|number| number.parse().ok()).with_context(|| node.to_owned())
}

impl Cluster {
    /// Vacant nodes. Each cycle looks at all of them; `is_blind`: not at their zones.
    fn new(group: &NodeGroup, count: usize, is_blind: bool) -> anyhow::Result<Self> {
        let mut settings = config::default_settings(1);
        for profile in &mut settings.profiles {
            profile.percentage = 100;
            profile.numa.take_if(|_| is_blind);
        }
        let machine = Arc::new(group.machine()?);
        let nodes = (0..count).map(|at| HollowNode::new(name_of(at), Arc::clone(&machine))).collect();
        let pods = vec![Vec::new(); count];
        // Late enough that no node is young.
        let now_ms = 2_000_000_000_000;
        let mut cluster = Self { core: Core::new(settings), nodes, pods, now_ms, spent: Duration::ZERO };
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

    fn tell(&mut self, event: Event) {
        let began = Instant::now();
        self.core.handle(event, self.now_ms);
        self.spent += began.elapsed();
    }

    fn next(&mut self) -> Option<Decision> {
        let began = Instant::now();
        let decision = self.core.next(self.now_ms);
        self.spent += began.elapsed();
        decision
    }

    /// The exporter of a node reports it.
    fn report(&mut self, at: usize) -> anyhow::Result<()> {
        let name = name_of(at);
        let listed = |uid| ListedPod { uid, namespace: "ns", name: uid, running: &["c"] };
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
    fn run(&mut self, at: usize, mut pod: Value) -> anyhow::Result<()> {
        pod["spec"]["nodeName"] = (*name_of(at)).into();
        pod["status"] =
            json!({ "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Guaranteed" });
        self.admit(at, &pod)?;
        self.tell(Event::Pod(PodView::read(&read(&pod)?)));
        Ok(())
    }

    /// A binding is accepted, the kubelet admits the pod, the exporter reports it.
    fn bind(&mut self, binding: &Binding, mut pod: Value) -> anyhow::Result<()> {
        let at = number_of(&binding.node)?;
        pod["spec"]["nodeName"] = (*binding.node).into();
        self.admit(at, &pod)?;
        let mut view = PodView { node: Some(Arc::clone(&binding.node)), ..binding.pod.clone() };
        view.progress.admitted = true;
        self.tell(Event::Bound(binding.id));
        self.tell(Event::Pod(view));
        self.report(at)
    }

    fn evict(&mut self, victim: PodView) -> anyhow::Result<()> {
        let at = number_of(victim.node.as_deref().unwrap_or_default())?;
        self.nodes[at].release(&victim.uid);
        self.pods[at].retain(|uid| *uid != victim.uid);
        self.tell(Event::PodGone(victim));
        self.report(at)
    }

    /// Pods come and are placed, others are evicted for them; how many were evicted.
    fn place(&mut self, pods: &BTreeMap<Arc<str>, Value>) -> anyhow::Result<usize> {
        for pod in pods.values() {
            self.tell(Event::Pod(PodView::read(&read(pod)?)));
        }
        let (mut placed, mut evicted, mut pauses) = (0, 0, 0);
        while placed < pods.len() {
            match self.next() {
                Some(Decision::Bind(binding)) => {
                    self.bind(&binding, pods[&binding.pod.uid].clone())?;
                    placed += 1;
                }
                Some(Decision::Preempt(preemption)) => {
                    evicted += preemption.victims.len();
                    for victim in preemption.victims {
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

    /// The time until a new pod has its node.
    fn cycle(&mut self, pod: &Value) -> anyhow::Result<Duration> {
        let view = PodView::read(&read(pod)?);
        let before = self.spent;
        self.tell(Event::Pod(view));
        let decision = self.next();
        let took = self.spent - before;
        let Some(Decision::Bind(binding)) = decision else {
            return Err(anyhow!("a small pod has no node: {decision:?}"));
        };
        self.bind(&binding, pod.clone())?;
        Ok(took)
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e9)
}

fn print(what: &str, unit: &str, size: usize, ns: f64) {
    println!("{}", json!({ "what": what, "unit": unit, "size": size, "ns": ns }));
}

/// Nodes of so many zones, some of whose CPUs are in use.
fn half_full(zones: u32, is_blind: bool) -> anyhow::Result<Cluster> {
    let group = NodeGroup { machine: format!("{zones}x8"), ..NodeGroup::default() };
    let mut cluster = Cluster::new(&group, NODES, is_blind)?;
    let mut random = Random::seeded(5);
    for at in 0..NODES {
        for number in 0..2 * zones {
            let amounts = json!({ "cpu": (1 + random.below(3)).to_string(), "memory": "64Mi" });
            cluster.run(at, pod(&format!("n{at}-{number}"), 0, &amounts))?;
        }
        cluster.report(at)?;
    }
    Ok(cluster)
}

/// Pods of a class each come to half-full nodes; the difference that zones make, by node.
fn zones_of_a_cycle(zones: u32) -> anyhow::Result<()> {
    let (mut blind, mut seeing) = (half_full(zones, true)?, half_full(zones, false)?);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 0..CYCLES {
        let amounts = json!({ "cpu": "1", "memory": format!("{}Ki", 65_536 + number) });
        let pod = pod(&format!("new-{number}"), 0, &amounts);
        without.push(blind.cycle(&pod)?);
        with.push(seeing.cycle(&pod)?);
    }
    let nodes = NODES as f64;
    let (without, with) = (median(without) / nodes, median(with) / nodes);
    let zones = usize::try_from(zones)?;
    print("one node in a cycle without a look at zones", "zones", zones, without);
    print("what zones add to that", "zones", zones, with - without);
    Ok(())
}

/// Important pods of two GPUs come to nodes that are full of pods of so many GPUs; the time of the core for all.
fn preemption(gpus: usize) -> anyhow::Result<()> {
    let group = NodeGroup {
        machine: "2x32+gpu4".to_owned(),
        policy: "restricted".to_owned(),
        ..NodeGroup::default()
    };
    let amounts =
        |gpus: usize| json!({ "cpu": (4 * gpus).to_string(), "memory": "1Gi", GPU: gpus.to_string() });
    let mut cluster = Cluster::new(&group, FULL_NODES, false)?;
    for at in 0..FULL_NODES {
        for number in 0..8 / gpus {
            cluster.run(at, pod(&format!("n{at}-{number}"), 0, &amounts(gpus)))?;
        }
        cluster.report(at)?;
    }
    let incoming = (0..PREEMPTORS).map(|number| {
        let name = format!("important-{number}");
        (name.as_str().into(), pod(&name, 1000, &amounts(2)))
    });
    let incoming = incoming.collect();
    cluster.spent = Duration::ZERO;
    let evicted = cluster.place(&incoming)?;
    ensure!(evicted == PREEMPTORS * 2 / gpus, "{evicted} pods of {gpus} GPUs were evicted");
    let what = format!("{PREEMPTORS} pods of two GPUs evict pods of {gpus} and are placed");
    print(&what, "nodes", FULL_NODES, cluster.spent.as_secs_f64() * 1e9);
    Ok(())
}

/// `zones` or `preemption` among the arguments: that part alone.
fn main() -> anyhow::Result<()> {
    let parts: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let is_asked = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    for zones in [2, 8].into_iter().filter(|_| is_asked("zones")) {
        zones_of_a_cycle(zones)?;
    }
    for gpus in [1, 2].into_iter().filter(|_| is_asked("preemption")) {
        preemption(gpus)?;
    }
    Ok(())
}
