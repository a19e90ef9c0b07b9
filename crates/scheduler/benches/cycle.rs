//! What a scheduling cycle costs: by nodes, by waiting classes, by running Jobs.
//!
//! Prints a JSON object a line. Each figure is the median of many cycles, as load on the machine makes single ones
//! long. `cargo xtask bench cycle` runs it and draws the chart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::schedulerconfig::SchedulerConfig;
use k8s_openapi::api::core::v1 as wire;
use scheduler::config;
use scheduler::core::{Binding, Core, Decision, Event};
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use serde_json::{Value, json};
use topology::fingerprint::{Fingerprint, Method};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::resource::ResourceName;
use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};

/// Late enough that no node is young.
const NOW_MS: u64 = 1_000_000;
/// Cycles of which the median counts.
const CYCLES: usize = 301;
/// CPUs of a zone; a node has two.
const ZONE_CPUS: i64 = 64;
const ZONE_BYTES: i64 = 256 << 30;
const CONFIGURATION: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: NodeResourceTopologyMatch
";

/// A cluster, and what happens in it.
struct Cluster {
    core: Core,
    pods: usize,
    waits: Vec<PodView>,
}

fn node(at: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("n{at}"), "uid": format!("node-{at}"),
            "labels": { "kubernetes.io/hostname": format!("n{at}"), "topology.kubernetes.io/zone": format!("z{}", at % 3) },
        },
        "status": {
            "allocatable": { "cpu": (2 * ZONE_CPUS).to_string(), "memory": format!("{}", 2 * ZONE_BYTES), "pods": "250" },
        },
    })
}

/// Two zones of which all is free.
fn report() -> NodeTopology {
    let resource =
        |name, amount| ZoneResource { name, capacity: amount, allocatable: amount, available: amount };
    let zone = |id| Zone {
        id: ZoneId(id),
        distances: Vec::new(),
        resources: vec![
            resource(ResourceName::CPU, ZONE_CPUS * 1000),
            resource(ResourceName::MEMORY, ZONE_BYTES),
        ],
    };
    NodeTopology {
        rules: Rules {
            policy: Policy::SingleNumaNode,
            scope: Scope::Container,
            cpu_manager: Manager::Static,
            memory_manager: Manager::Static,
        },
        zones: [0, 1].map(zone).into(),
        fingerprint: Some((Fingerprint::of(&mut []), Method::WithExclusiveResources)),
        ..NodeTopology::default()
    }
}

/// A pod of one container that asks for so many thousandths of a CPU, with further fields of its spec.
fn pod(number: usize, milli: i64, more: &Value) -> Value {
    let amounts = json!({ "cpu": format!("{milli}m"), "memory": "64Mi" });
    let mut spec = json!({
        "schedulerName": "default-scheduler",
        "containers": [{ "name": "c", "image": "registry.example/app:1", "resources": { "requests": amounts } }],
    });
    if more["aligned"] == true {
        spec["containers"][0]["resources"]["limits"] = amounts;
    }
    for (field, value) in more["spec"].as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": "default", "uid": format!("pod-{number}"),
            "labels": { "app": "web" }, "resourceVersion": "1",
        },
        "spec": spec,
    })
}

fn view(pod: &Value) -> Option<PodView> {
    serde_json::from_value::<wire::Pod>(pod.clone()).ok().map(|pod| PodView::read(&pod))
}

impl Cluster {
    fn new(nodes: usize) -> anyhow::Result<Self> {
        let settings = config::settings(&SchedulerConfig::parse(CONFIGURATION)?, 1)?;
        let mut core = Core::new(settings);
        let report = Arc::new(report());
        for at in 0..nodes {
            let node: wire::Node = serde_json::from_value(node(at))?;
            core.handle(Event::Node(NodeView::read(&node)), NOW_MS);
            core.handle(Event::Report(format!("n{at}").into(), Arc::clone(&report)), NOW_MS);
        }
        Ok(Self { core, pods: 0, waits: Vec::new() })
    }

    /// A pod comes and is decided about; its time.
    fn cycle(&mut self, milli: i64, more: &Value) -> (Duration, Option<Binding>) {
        self.pods += 1;
        let Some(view) = view(&pod(self.pods, milli, more)) else { return (Duration::ZERO, None) };
        let waits = view.clone();
        let began = Instant::now();
        self.core.handle(Event::Pod(view), NOW_MS);
        let decision = self.core.next(NOW_MS);
        let took = began.elapsed();
        match decision {
            Some(Decision::Bind(binding)) => (took, Some(binding)),
            _ => {
                self.waits.push(waits);
                (took, None)
            }
        }
    }

    /// The watch shows that a pod is bound and its kubelet has admitted it; the pod as it then is.
    fn run(&mut self, binding: &Binding) -> PodView {
        let mut pod = PodView { node: Some(Arc::clone(&binding.node)), ..binding.pod.clone() };
        pod.progress.admitted = true;
        self.core.handle(Event::Bound(binding.id), NOW_MS);
        self.core.handle(Event::Pod(pod.clone()), NOW_MS);
        pod
    }

    /// A running pod ends; the time until nothing more is to be done.
    fn end(&mut self, pod: PodView) -> Duration {
        let began = Instant::now();
        self.core.handle(Event::PodGone(pod), NOW_MS + 10_000);
        while self.core.next(NOW_MS + 20_000).is_some() {}
        began.elapsed()
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e9)
}

fn print(what: &str, unit: &str, size: usize, ns: f64) {
    println!("{}", json!({ "what": what, "unit": unit, "size": size, "ns": ns }));
}

/// Pods of one kind come one after the other to so many nodes. `step`: by how much each asks for more than the last.
fn by_nodes(what: &str, nodes: usize, (milli, step): (i64, i64), more: &Value) -> anyhow::Result<()> {
    let mut cluster = Cluster::new(nodes)?;
    let mut times = Vec::new();
    let mut milli = milli;
    for _ in 0..CYCLES {
        let (took, binding) = cluster.cycle(milli, more);
        anyhow::ensure!(binding.is_some(), "{what}: a pod fits no node of {nodes}");
        times.push(took);
        milli += step;
    }
    print(what, "nodes", nodes, median(times));
    Ok(())
}

/// So many pods, each of a class of its own, wait for more CPUs than are free; a pod ends that frees too little.
fn by_waiting(classes: usize) -> anyhow::Result<()> {
    let mut cluster = Cluster::new(100)?;
    let filler = json!({});
    let nodes = 100;
    // All nodes are nearly full of pods that stay.
    for _ in 0..nodes {
        anyhow::ensure!(cluster.cycle(2 * ZONE_CPUS * 1000 - 500, &filler).1.is_some(), "a node has no room");
    }
    for class in 0..classes {
        let (_, binding) = cluster.cycle(10_000 + i64::try_from(class)?, &filler);
        anyhow::ensure!(binding.is_none(), "a large pod fits");
    }
    let (mut ends, mut comes) = (Vec::new(), Vec::new());
    for _ in 0..CYCLES {
        let (took, binding) = cluster.cycle(100, &filler);
        let binding = binding.ok_or_else(|| anyhow::anyhow!("a small pod does not fit"))?;
        comes.push(took);
        let pod = cluster.run(&binding);
        ends.push(cluster.end(pod));
    }
    print("a small pod ends, which helps none", "waiting classes", classes, median(ends));
    print("a small pod comes", "waiting classes", classes, median(comes));
    Ok(())
}

/// So many pods of Jobs run on 1,000 nodes; one ends, the next comes.
fn by_running(jobs: usize) -> anyhow::Result<()> {
    let mut cluster = Cluster::new(1000)?;
    let finishes = json!({ "spec": { "restartPolicy": "Never" } });
    let mut running = Vec::new();
    for _ in 0..jobs {
        let (_, binding) = cluster.cycle(500, &finishes);
        let binding = binding.ok_or_else(|| anyhow::anyhow!("a pod of a Job fits no node"))?;
        running.push(cluster.run(&binding));
    }
    let mut times = Vec::new();
    for _ in 0..CYCLES.min(jobs) {
        let Some(ended) = running.pop() else { break };
        let ended = cluster.end(ended);
        let (took, binding) = cluster.cycle(500, &finishes);
        drop(binding.map(|binding| cluster.run(&binding)));
        times.push(ended + took);
    }
    print("a pod of a Job ends and the next comes", "running pods", jobs, median(times));
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let spread = json!({ "spec": { "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    }] } });
    for nodes in [100, 300, 1000, 3000, 10_000] {
        by_nodes("equal pods", nodes, (100, 0), &json!({}))?;
        by_nodes("pods of a class each", nodes, (100, 1), &json!({}))?;
        by_nodes("aligned pods", nodes, (1000, 0), &json!({ "aligned": true }))?;
        by_nodes("pods that spread over zones", nodes, (100, 0), &spread)?;
    }
    for classes in [1, 10, 100, 1000, 10_000] {
        by_waiting(classes)?;
    }
    for jobs in [100, 1000, 10_000, 50_000] {
        by_running(jobs)?;
    }
    Ok(())
}
