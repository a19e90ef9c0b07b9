//! Room made by moves, against every sequence of moves: the kubelet's model says which of them are possible.

use std::collections::BTreeMap;

use hollow::node::HollowNode;
use hollow::node_group::NodeGroup;
use hollow::pod::PodView as KubeletPod;
use runtime::random::Random;
use scheduler::defrag::Plan;
use scheduler::defrag::pinned::Pinned;
use scheduler::pod::PodView;
use serde_json::{Value, json};

use crate::core_cluster::{CoreCluster, GPU, pod_of, read};

/// Clusters that are looked at: in each the pod has no room, and moves may make some.
const CLUSTERS: usize = 200;
/// Most moves.
const MAX_MOVES: usize = 3;

/// A cluster with fragments, and its pods that may move.
struct Fragments {
    cluster: CoreCluster,
    /// The node and the object of each pod, by name.
    pods: BTreeMap<String, (usize, Value)>,
    pinned: BTreeMap<String, Option<Pinned>>,
}

fn number(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).unwrap()
}

fn amounts(cpus: usize, gpus: usize) -> Value {
    let mut amounts = json!({ "cpu": cpus.to_string(), "memory": "64Mi" });
    if gpus > 0 {
        amounts[GPU] = gpus.to_string().into();
    }
    amounts
}

/// Nodes that took pods one by one, some of which have gone.
fn fragments(random: &mut Random) -> Fragments {
    let group = NodeGroup {
        machine: "2x5+gpu2".to_owned(),
        policy: ["single-numa-node", "restricted"][number(random, 2)].to_owned(),
        scope: ["container", "pod"][number(random, 2)].to_owned(),
        ..NodeGroup::default()
    };
    let count = 2 + number(random, 2);
    let mut cluster = CoreCluster::new(&group, count, false).unwrap();
    let (mut pods, mut pinned) = (BTreeMap::new(), BTreeMap::new());
    for node in 0..count {
        let mut names = Vec::new();
        for at in 0..6 {
            let name = format!("n{node}-{at}");
            let pod = pod_of(&name, 0, &[amounts(1 + number(random, 3), number(random, 2))]);
            if cluster.run(node, pod.clone()).is_ok() {
                names.push(name.clone());
                pods.insert(name, (node, pod));
            }
        }
        for name in names.into_iter().filter(|_| random.below(100) < 45).collect::<Vec<_>>() {
            cluster.report(node).unwrap();
            cluster.evict(cluster.core.pod_with_uid(&name).unwrap().clone()).unwrap();
            pods.remove(&name);
        }
        cluster.report(node).unwrap();
    }
    for name in pods.keys() {
        let stays = random.below(100) < 15;
        pinned.insert(name.clone(), stays.then_some(Pinned::NotSafeToEvict));
    }
    Fragments { cluster, pods, pinned }
}

/// Nodes, and the node of each pod that has not moved yet and may.
type State<'a> = (Vec<HollowNode>, BTreeMap<&'a str, (usize, KubeletPod)>);

/// Whether moves of so many pods, each to any node, let a kubelet admit the pod in the end.
fn is_possible((nodes, movable): &State<'_>, incoming: &KubeletPod, moves: usize) -> bool {
    let admits = |node: &HollowNode, pod: &KubeletPod| node.clone().admit(pod).is_ok();
    if moves == 0 {
        return nodes.iter().any(|node| admits(node, incoming));
    }
    movable.iter().any(|(name, (from, pod))| {
        let mut left = nodes[*from].clone();
        left.release(&(*name).into());
        // The last move has to help itself.
        if moves == 1 && !admits(&left, incoming) {
            return false;
        }
        (0..nodes.len()).filter(|to| to != from && admits(&nodes[*to], pod)).any(|to| {
            let (mut nodes, mut movable) = (nodes.clone(), movable.clone());
            nodes[*from] = left.clone();
            nodes[to].admit(pod).unwrap();
            movable.remove(name);
            is_possible(&(nodes, movable), incoming, moves - 1)
        })
    })
}

/// The fewest moves; `None`: more than [`MAX_MOVES`].
fn fewest(fragments: &Fragments, incoming: &Value) -> Option<usize> {
    let may_move = |name: &&String| fragments.pinned[*name].is_none();
    let movable = fragments.pods.keys().filter(may_move).map(|name| {
        let (node, pod) = &fragments.pods[name];
        (name.as_str(), (*node, KubeletPod::of(&read(pod).unwrap()).unwrap()))
    });
    let state = (fragments.cluster.nodes.clone(), movable.collect());
    let incoming = KubeletPod::of(&read(incoming).unwrap()).unwrap();
    (0..=MAX_MOVES).find(|moves| is_possible(&state, &incoming, *moves))
}

/// Evicts pods as planned, lets them be made again and placed, and places the pod. All kubelets admit all of them.
fn carry_out(fragments: &mut Fragments, plan: &Plan, incoming: &Value) -> anyhow::Result<()> {
    let cluster = &mut fragments.cluster;
    for room in &plan.rooms {
        for step in &room.moves {
            let mut closed = vec![&step.from];
            closed.extend(Some(&room.node).filter(|node| ![&step.from, &step.to].contains(node)));
            closed.iter().try_for_each(|node| cluster.cordon(node, true))?;
            let leaving: PodView = cluster.core.pod_with_uid(&step.uid).cloned().unwrap();
            let mut again = fragments.pods[&*leaving.name].1.clone();
            let name = format!("{}-again", leaving.name);
            (again["metadata"]["name"], again["metadata"]["uid"]) = (name.as_str().into(), name.as_str().into());
            cluster.evict(leaving)?;
            let evicted = cluster.place(&[(name.into(), again)].into())?;
            assert!(evicted.is_empty(), "{evicted:?}");
            closed.iter().try_for_each(|node| cluster.cordon(node, false))?;
        }
    }
    let evicted = cluster.place(&[("incoming".into(), incoming.clone())].into())?;
    assert!(evicted.is_empty(), "{evicted:?}");
    Ok(())
}

/// `cargo test -p hollow --test it -- --nocapture fewest_moves` prints the counts.
#[test]
fn plans_have_the_fewest_moves_and_can_be_carried_out() {
    let mut random = Random::seeded(22);
    let (mut planned, mut optimal, mut missed, mut looked_at) = (0, 0, 0, 0);
    let mut by_size = BTreeMap::<usize, usize>::new();
    while looked_at < CLUSTERS {
        let mut fragments = fragments(&mut random);
        let (cpus, gpus) = (3 + number(&mut random, 3), number(&mut random, 3));
        let incoming = pod_of("incoming", 0, &[amounts(cpus, gpus)]);
        let wanted = fewest(&fragments, &incoming);
        if wanted == Some(0) {
            continue;
        }
        looked_at += 1;
        let plan = fragments.cluster.plan(&incoming, fragments.pinned.clone(), MAX_MOVES).unwrap();
        let case = format!("{cpus} CPUs, {gpus} GPUs, wanted {wanted:?}: {plan:?}");
        match (wanted, plan.is_whole()) {
            (None, false) => {}
            (None, true) => panic!("impossible: {case}"),
            (Some(_), false) => {
                println!("missed: {case}");
                missed += 1;
            }
            (Some(fewest), true) => {
                assert!(plan.moves >= fewest, "too few: {case}");
                carry_out(&mut fragments, &plan, &incoming).unwrap_or_else(|error| panic!("{error:#}: {case}"));
                (planned, optimal) = (planned + plan.moves, optimal + fewest);
                *by_size.entry(plan.moves).or_default() += 1;
            }
        }
    }
    println!("{planned} moves, optimum {optimal}; {missed} missed; by number of moves: {by_size:?}");
    assert!(planned * 10 <= optimal * 11, "{planned} moves, optimum {optimal}");
    assert!(missed * 20 <= by_size.values().sum::<usize>(), "{missed} missed, {by_size:?}");
    assert!(by_size.keys().any(|moves| *moves > 1), "{by_size:?}");
}
