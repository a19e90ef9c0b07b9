//! Preemption on full nodes against every set of victims: the kubelet's model says which of them are enough.

use std::collections::BTreeMap;

use hollow::node_group::NodeGroup;
use hollow::pod::PodView as KubeletPod;
use itertools::Itertools as _;
use runtime::random::Random;
use scheduler::core::{Decision, Event};
use scheduler::pod::PodView;
use serde_json::{Value, json};

use crate::core_cluster::{CoreCluster, GPU, pod_of, read};

/// Full clusters that are looked at.
const CLUSTERS: usize = 200;
const PREEMPTOR: i32 = 1_000;

/// The harm that victims are: the highest priority among them, and their number.
type Harm = (i32, usize);

/// A full cluster, and the priorities of its pods by node.
struct FullCluster {
    cluster: CoreCluster,
    priorities: Vec<BTreeMap<String, i32>>,
    policy: String,
}

fn below(random: &mut Random, limit: u64) -> u64 {
    random.below(limit)
}

/// A container of a few CPUs, and a GPU at times.
fn amounts(random: &mut Random, most_cpus: u64) -> Value {
    let mut amounts = json!({ "cpu": (1 + below(random, most_cpus)).to_string(), "memory": "64Mi" });
    let gpus = below(random, 3);
    if gpus > 0 {
        amounts[GPU] = gpus.to_string().into();
    }
    amounts
}

/// Nodes that are filled until several pods in a row were rejected.
fn full(random: &mut Random) -> FullCluster {
    let zones = 2 + below(random, 2);
    let policy = ["single-numa-node", "restricted"][usize::try_from(below(random, 2)).unwrap()];
    let group = NodeGroup {
        machine: format!("{zones}x6+gpu3"),
        policy: policy.to_owned(),
        scope: ["container", "pod"][usize::try_from(below(random, 2)).unwrap()].to_owned(),
        ..NodeGroup::default()
    };
    let count = 1 + usize::try_from(below(random, 3)).unwrap();
    let is_mixed = below(random, 2) == 0;
    let mut cluster = CoreCluster::new(&group, count, false).unwrap();
    let mut priorities = vec![BTreeMap::new(); count];
    for (node, priorities) in priorities.iter_mut().enumerate() {
        let mut rejected = 0;
        for number in 0.. {
            let priority = if is_mixed { i32::try_from(below(random, 3)).unwrap() } else { 0 };
            let name = format!("n{node}-{number}");
            match cluster.run(node, pod_of(&name, priority, &[amounts(random, 4)])) {
                Ok(()) => drop(priorities.insert(name, priority)),
                Err(_) if rejected > 4 || priorities.len() > 8 => break,
                Err(_) => rejected += 1,
            }
        }
        cluster.report(node).unwrap();
    }
    FullCluster { cluster, priorities, policy: policy.to_owned() }
}

/// The least harm on any node, by the kubelet's model; `None`: no set of victims is enough.
fn least_harm(full: &FullCluster, incoming: &Value) -> Option<Harm> {
    let view = KubeletPod::of(&read(incoming).unwrap()).unwrap();
    let harms = full.cluster.nodes.iter().zip(&full.priorities).flat_map(|(node, priorities)| {
        let sets = priorities.iter().powerset();
        let enough = sets.filter(|set| {
            let mut vacated = node.clone();
            set.iter().for_each(|(name, _)| vacated.release(&name.as_str().into()));
            vacated.admit(&view).is_ok()
        });
        enough.map(|set| (set.iter().map(|(_, priority)| **priority).max().unwrap_or(i32::MIN), set.len()))
    });
    harms.min()
}

/// `cargo test -p hollow --test it -- --nocapture fewest_victims` prints the counts.
#[test]
fn preemption_finds_the_fewest_victims() {
    let mut random = Random::seeded(21);
    let (mut evicting, mut by_size) = (0, BTreeMap::<usize, usize>::new());
    let mut looked_at = 0;
    while looked_at < CLUSTERS {
        let mut full = full(&mut random);
        let containers: Vec<Value> = match below(&mut random, 3) {
            0 => vec![amounts(&mut random, 4), amounts(&mut random, 2)],
            _ => vec![amounts(&mut random, 6)],
        };
        let incoming = pod_of("incoming", PREEMPTOR, &containers);
        let wanted = least_harm(&full, &incoming);
        if wanted.is_some_and(|(_, size)| size == 0) {
            continue;
        }
        looked_at += 1;
        let case = format!("{}: {containers:?} beside {:?}", full.policy, full.priorities);
        let found = match wanted {
            // The kubelet takes the pod once they have left.
            Some(_) => {
                let evicted = full.cluster.place(&[("incoming".into(), incoming)].into());
                let evicted = evicted.unwrap_or_else(|error| panic!("{error}: {case}"));
                let most = evicted.iter().map(|victim| victim.priority).max();
                most.map(|most| (most, evicted.len()))
            }
            None => {
                full.cluster.tell(Event::Pod(PodView::read(&read(&incoming).unwrap())));
                let decision = full.cluster.next();
                assert!(matches!(decision, Some(Decision::Refuse(_))), "{decision:?}: {case}");
                None
            }
        };
        assert_eq!(found, wanted, "{case}");
        evicting += usize::from(found.is_some());
        found.iter().for_each(|(_, size)| *by_size.entry(*size).or_default() += 1);
    }
    println!("{evicting} of {looked_at} pods evict others, by number of victims: {by_size:?}");
    assert!(evicting * 2 > looked_at && by_size.keys().any(|size| *size > 1), "{evicting}: {by_size:?}");
}
