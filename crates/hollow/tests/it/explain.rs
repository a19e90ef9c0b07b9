//! Explanations of nodes as our exporter reports them: the change that is named first is made, and the kubelet's model
//! takes the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use exporter::object::WriteContext;
use hollow::machine::{KUBELET_VERSION, ListedPod, Machine};
use hollow::node::HollowNode;
use hollow::node_group::NodeGroup;
use hollow::pod::PodView;
use runtime::random::Random;
use scheduler::explain::{ChangeParts, Explanation, of_objects};
use serde_json::{Value, json};
use topology::policy::Policy;

const NOW_MS: u64 = 2_000_000_000_000;
/// Refusals for which a change is asked.
const REFUSALS: usize = 500;

/// Name, CPUs and devices of a container.
type Container = (&'static str, i64, i64);

/// A node with what runs there.
struct Bed {
    group: NodeGroup,
    machine: Arc<Machine>,
    node: HollowNode,
    pods: Vec<(Value, Vec<Container>)>,
    /// Whether the report says all that the model of the kubelet needs. Without it the ledger has amounts only.
    says_version: bool,
}

fn pod(name: &str, node: Option<&str>, containers: &[Container]) -> Value {
    let containers: Vec<Value> = containers
        .iter()
        .map(|(name, cpus, gpus)| {
            let mut amounts = json!({ "cpu": cpus.to_string(), "memory": "64Mi" });
            if *gpus > 0 {
                amounts["example.com/gpu"] = gpus.to_string().into();
            }
            json!({ "name": name, "image": "i", "resources": { "requests": amounts, "limits": amounts } })
        })
        .collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "schedulerName": "topo-aware-scheduler", "containers": containers },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["status"] =
            json!({ "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Guaranteed" });
    }
    pod
}

fn view(pod: &Value) -> PodView {
    PodView::of(&serde_json::from_value(pod.clone()).unwrap()).unwrap()
}

impl Bed {
    fn new(group: NodeGroup) -> Self {
        let machine = Arc::new(group.machine().unwrap());
        let node = HollowNode::new("n".into(), Arc::clone(&machine));
        Self { group, machine, node, pods: Vec::new(), says_version: true }
    }

    /// A machine of random settings on which random pods have come and gone.
    fn random(random: &mut Random) -> Self {
        let policy = [Policy::SingleNumaNode, Policy::Restricted][usize::try_from(random.below(2)).unwrap()];
        let mut bed = Self::new(NodeGroup {
            machine: format!("{}x8+gpu2", 2 + random.below(3)),
            policy: policy.as_str().to_owned(),
            scope: ["container", "pod"][usize::try_from(random.below(2)).unwrap()].to_owned(),
            ..NodeGroup::default()
        });
        bed.says_version = random.below(2) == 0;
        let count = 3 + random.below(12);
        for at in 0..count {
            let containers = [("c", below(random, 5) + 1, below(random, 2))];
            bed.add(&format!("p{at}"), &containers);
            if random.below(3) == 0 && !bed.pods.is_empty() {
                let at = usize::try_from(random.below(bed.pods.len() as u64)).unwrap();
                bed.remove(at);
            }
        }
        bed
    }

    /// Whether the kubelet took a pod.
    fn add(&mut self, name: &str, containers: &[Container]) -> bool {
        let object = pod(name, Some("n"), containers);
        let taken = self.node.admit(&view(&object)).is_ok();
        if taken {
            self.pods.push((object, containers.to_vec()));
        }
        taken
    }

    fn remove(&mut self, at: usize) {
        let (object, _) = self.pods.remove(at);
        self.node.release(&view(&object).uid);
    }

    fn end(&mut self, name: &str) {
        let is_it =
            |(object, _): &(Value, _)| object["metadata"]["name"].as_str() == name.strip_prefix("ns/");
        let at = self.pods.iter().position(is_it).unwrap();
        self.remove(at);
    }

    fn objects(&self) -> Vec<Value> {
        let views: Vec<PodView> = self.pods.iter().map(|(object, _)| view(object)).collect();
        let running: Vec<Vec<&str>> =
            self.pods.iter().map(|(_, containers)| containers.iter().map(|it| it.0).collect()).collect();
        let listed: Vec<ListedPod<'_>> = views
            .iter()
            .zip(&running)
            .map(|(view, running)| ListedPod {
                uid: &view.uid,
                namespace: &view.name.namespace,
                name: &view.name.name,
                running,
            })
            .collect();
        let kubelet_version = self.says_version.then_some(KUBELET_VERSION);
        let context = WriteContext { kubelet_version, ..WriteContext::new("n", "reactive") };
        let report = self.node.report(&listed).unwrap().object(&context);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "uid": "n" },
            "status": { "allocatable": self.machine.allocatable },
        });
        let mut report = serde_json::to_value(report).unwrap();
        report["kind"] = "NodeResourceTopology".into();
        report["apiVersion"] = "topology.node.k8s.io/v1alpha2".into();
        self.pods.iter().map(|(object, _)| object.clone()).chain([node, report]).collect()
    }

    fn explain(&self, containers: &[Container]) -> Explanation {
        let settings = scheduler::config::default_settings(0);
        of_objects(settings, self.objects(), pod("asked", None, containers), NOW_MS).unwrap()
    }

    /// Whether the kubelet takes the pod once the change is made.
    fn takes(mut self, containers: &[Container], change: &ChangeParts) -> bool {
        match change {
            ChangeParts::Request { container, resources, pods } => {
                pods.iter().for_each(|gone| self.end(gone));
                let to = |resource: &str, asked: i64| {
                    resources.get(resource).map_or(asked, |row| row.to.parse().unwrap())
                };
                let smaller = |it: &Container| match it.0 == container {
                    true => (it.0, to("cpu", it.1), to("example.com/gpu", it.2)),
                    false => *it,
                };
                let containers: Vec<Container> = containers.iter().map(smaller).collect();
                self.add("asked", &containers)
            }
            ChangeParts::Leave { pods } => {
                pods.iter().for_each(|gone| self.end(gone));
                self.add("asked", containers)
            }
            ChangeParts::Scope { scope } => {
                let mut group = self.group.clone();
                group.scope = (*scope).to_owned();
                let mut other = Self::new(group);
                // What runs stays where it is.
                other.node = self.node.with_machine(Arc::clone(&other.machine));
                other.add("asked", containers)
            }
        }
    }
}

fn below(random: &mut Random, limit: u64) -> i64 {
    i64::try_from(random.below(limit)).unwrap()
}

/// `cargo test -p hollow --test it -- --nocapture explain` prints the counts.
#[test]
fn the_smallest_change_makes_the_pod_fit() {
    let mut random = Random::seeded(11);
    let (mut refusals, mut named) = (0, 0);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    while refusals < REFUSALS {
        let bed = Bed::random(&mut random);
        let mut containers: Vec<Container> =
            vec![("main", below(&mut random, 12) + 1, below(&mut random, 3))];
        if random.below(2) == 0 {
            containers.push(("side", below(&mut random, 4) + 1, 0));
        }
        let explanation = bed.explain(&containers);
        let row = &explanation.nodes[0];
        let mut alike = bed.node.clone();
        let admitted = alike.admit(&view(&pod("asked", Some("n"), &containers))).is_ok();
        assert_eq!(row.fits, admitted, "{containers:?} on {:?}: {:?}", bed.group, row.reasons);
        if row.fits {
            continue;
        }
        refusals += 1;
        let Some(first) = row.changes.first() else { continue };
        let kind = match first.change {
            ChangeParts::Request { ref pods, .. } if !pods.is_empty() => "both",
            ChangeParts::Request { .. } => "request",
            ChangeParts::Leave { .. } => "leave",
            ChangeParts::Scope { .. } => "scope",
        };
        *kinds.entry(kind).or_default() += 1;
        let case = format!("{} for {containers:?} on {:?}: {:?}", first.text, bed.group, row.reasons);
        assert!(bed.takes(&containers, &first.change), "{case}");
        named += 1;
    }
    println!("{named} of {refusals} refusals have a change that helps: {kinds:?}");
    assert!(named * 100 >= refusals * 95, "{named} of {refusals}: {kinds:?}");
}
