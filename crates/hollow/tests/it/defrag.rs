//! Room made by moves, against every sequence of moves: the kubelet's model says which of them are possible.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser as _;
use hollow::node::HollowNode;
use hollow::node_group::NodeGroup;
use hollow::pod::PodView as KubeletPod;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use runtime::random::Random;
use scheduler::core::Event;
use scheduler::defrag::eviction_blocker::EvictionBlocker;
use scheduler::defrag::{ClusterObjects, Plan, PlanOptions, cli, plan};
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use serde_json::{Value, json};
use sim::preset::{Defaults, Preset};
use testkit::account::Account;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Running, control_plane, eventually, pods};
use crate::core_cluster::{CoreCluster, EventSink, GPU, START_MS, pod_of, read, settings};

/// Clusters that are looked at: in each the pod has no room, and moves may make some.
const CLUSTERS: usize = 200;
/// Most moves.
const MAX_MOVES: usize = 3;

/// A cluster with fragments, and its pods that may move.
struct FragmentedCluster {
    cluster: CoreCluster,
    /// All that its core was told.
    told: Rc<RefCell<Vec<Event>>>,
    /// The node and the object of each pod, by name.
    pods: BTreeMap<String, (usize, Value)>,
    blockers: BTreeMap<String, Vec<EvictionBlocker>>,
}

impl FragmentedCluster {
    fn new(group: &NodeGroup, count: usize) -> Self {
        let told: Rc<RefCell<Vec<Event>>> = Rc::default();
        let log = Rc::clone(&told);
        let sink: EventSink = Box::new(move |event| log.borrow_mut().push(event));
        let cluster = CoreCluster::with(group, count, settings(), Some(sink)).unwrap();
        Self { cluster, told, pods: BTreeMap::new(), blockers: BTreeMap::new() }
    }

    /// Room for these pods.
    fn plan(
        &self,
        pods: &[Value],
        blockers: &BTreeMap<String, Vec<EvictionBlocker>>,
        max_moves: usize,
    ) -> Plan {
        let rules = PlanOptions { max_moves, moves_jobs: false, moves_local_data: false };
        let objects = ClusterObjects { events: self.told.borrow().clone(), blockers: blockers.clone() };
        let pods: Vec<PodView> = pods.iter().map(|pod| PodView::read(&read(pod).unwrap())).collect();
        plan(settings(), objects, &pods, rules, START_MS, &mut |_| ())
    }
}

/// Closes a node to new pods, or opens it.
fn cordon(cluster: &mut CoreCluster, node: &str, unschedulable: bool) {
    let view = cluster.core.node_named(node).and_then(|node| node.view.clone()).unwrap();
    cluster.tell(Event::Node(NodeView { unschedulable, ..view }));
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
fn fragments(random: &mut Random) -> FragmentedCluster {
    let group = NodeGroup {
        machine: "2x5+gpu2".to_owned(),
        policy: ["single-numa-node", "restricted"][number(random, 2)].to_owned(),
        scope: ["container", "pod"][number(random, 2)].to_owned(),
        ..NodeGroup::default()
    };
    let count = 2 + number(random, 2);
    let mut fragments = FragmentedCluster::new(&group, count);
    let FragmentedCluster { cluster, pods, blockers, .. } = &mut fragments;
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
        blockers.insert(name.clone(), Vec::from_iter(stays.then_some(EvictionBlocker::NotSafeToEvict)));
    }
    fragments
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
fn fewest(fragments: &FragmentedCluster, incoming: &Value) -> Option<usize> {
    let may_move = |name: &&String| fragments.blockers[*name].is_empty();
    let movable = fragments.pods.keys().filter(may_move).map(|name| {
        let (node, pod) = &fragments.pods[name];
        (name.as_str(), (*node, KubeletPod::of(&read(pod).unwrap()).unwrap()))
    });
    let state = (fragments.cluster.nodes.clone(), movable.collect());
    let incoming = KubeletPod::of(&read(incoming).unwrap()).unwrap();
    (0..=MAX_MOVES).find(|moves| is_possible(&state, &incoming, *moves))
}

/// Evicts pods as planned, lets them be made again and placed, and places the pods that get room. All kubelets admit
/// all of them.
fn carry_out(fragments: &mut FragmentedCluster, plan: &Plan, incoming: &[Value]) -> anyhow::Result<()> {
    let cluster = &mut fragments.cluster;
    let place = |cluster: &mut CoreCluster, pod: &Value| {
        let evicted =
            cluster.place(&[(pod["metadata"]["uid"].as_str().unwrap().into(), pod.clone())].into())?;
        anyhow::ensure!(evicted.is_empty(), "{evicted:?}");
        Ok(())
    };
    for (room, pod) in plan.rooms.iter().zip(incoming) {
        for step in &room.moves {
            let mut closed = vec![&step.from];
            closed.extend(Some(&room.node).filter(|node| ![&step.from, &step.to].contains(node)));
            closed.iter().for_each(|node| cordon(cluster, node, true));
            let leaving: PodView = cluster.core.pod_with_uid(&step.uid).cloned().unwrap();
            let mut again = fragments.pods[&*leaving.name].1.clone();
            let name = format!("{}-again", leaving.name);
            (again["metadata"]["name"], again["metadata"]["uid"]) =
                (name.as_str().into(), name.as_str().into());
            cluster.evict(leaving)?;
            place(cluster, &again)?;
            closed.iter().for_each(|node| cordon(cluster, node, false));
        }
        place(cluster, pod)?;
    }
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
        let plan = fragments.plan(std::slice::from_ref(&incoming), &fragments.blockers, MAX_MOVES);
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
                carry_out(&mut fragments, &plan, std::slice::from_ref(&incoming))
                    .unwrap_or_else(|error| panic!("{error:#}: {case}"));
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

/// Nodes of the preset `ci-inference`: in each zone a pod has one or two of four GPUs. No pod of four GPUs has a zone,
/// and no pod of eight a node, though 40 of 64 GPUs are free.
#[test]
fn the_livelock_of_whole_zones_ends() {
    let Defaults { machine, nodes, policy, .. } = Preset::CiInference.defaults();
    let group = NodeGroup {
        machine: machine.to_owned(),
        policy: policy.as_str().to_owned(),
        memory_per_zone: Some("192Gi".to_owned()),
        ..NodeGroup::default()
    };
    let mut fragments = FragmentedCluster::new(&group, nodes);
    // Jobs have their part of the memory: with less, the one of eight GPUs would need one zone for it and two for the
    // rest.
    let job = |name: &str, gpus: usize| {
        let mut amounts = amounts(11 * gpus, gpus);
        amounts["memory"] = format!("{}Gi", 40 * gpus).into();
        pod_of(name, 0, &[amounts])
    };
    for node in 0..nodes {
        // A pod of three GPUs has the first zone while the second one gets its pod.
        let filler = format!("filler-{node}");
        for (name, gpus) in [(filler.as_str(), 3), (&format!("one-{node}"), 2), (&format!("two-{node}"), 1)] {
            fragments.cluster.run(node, job(name, gpus)).unwrap();
            fragments.pods.insert(name.to_owned(), (node, job(name, gpus)));
        }
        fragments.cluster.report(node).unwrap();
        let filler_pod = fragments.cluster.core.pod_with_uid(&filler).unwrap().clone();
        fragments.cluster.evict(filler_pod).unwrap();
        fragments.pods.remove(&filler);
    }
    fragments.blockers = fragments.pods.keys().map(|name| (name.clone(), Vec::new())).collect();
    let waiting: Vec<Value> =
        [8, 4, 4, 4, 4].iter().enumerate().map(|(at, gpus)| job(&format!("waits-{at}"), *gpus)).collect();
    let now = fragments.plan(&waiting, &BTreeMap::new(), 4);
    assert!(now.rooms.is_empty(), "{now:?}");
    let began = std::time::Instant::now();
    let plan = fragments.plan(&waiting, &fragments.blockers, 4);
    println!("{} moves for {} pods in {:?}", plan.moves, waiting.len(), began.elapsed());
    assert!(plan.is_whole(), "{plan:?}");
    carry_out(&mut fragments, &plan, &waiting).unwrap();
}

// === on an API server ===

/// The pods that wait, the oldest first.
const WAITING: [&str; 2] = ["waits-0", "waits-1"];

#[derive(clap::Parser)]
struct DefragCli {
    #[command(flatten)]
    args: cli::Args,
}

/// A ReplicaSet of one Guaranteed pod.
fn replica_set(name: &str, cpus: usize) -> ReplicaSet {
    let labels = json!({ "app": name });
    let set = json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": template(cpus) },
        },
    });
    serde_json::from_value(set).unwrap()
}

fn template(cpus: usize) -> Value {
    let amounts = amounts(cpus, 0);
    json!({
        "schedulerName": "topo-aware-scheduler", "automountServiceAccountToken": false,
        "tolerations": [{ "key": hollow::status::MARK, "operator": "Exists" }],
        "containers": [{
            "name": "main", "image": "registry.example/app:1",
            "resources": { "requests": amounts, "limits": amounts },
        }],
    })
}

/// The node of the only running pod of a ReplicaSet; of another pod by its name.
async fn node_of(client: &Client, name: &str) -> Option<String> {
    let list = pods(client).list(&ListParams::default()).await.unwrap();
    let is_of = |pod: &Pod| {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        pod.metadata.name.as_deref() == Some(name) || labels.get("app").is_some_and(|app| app == name)
    };
    let running = |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    let mut found = list.items.into_iter().filter(|pod| is_of(pod) && running(pod));
    found.next().and_then(|pod| pod.spec?.node_name).filter(|_| found.next().is_none())
}

async fn closed_nodes(client: &Client) -> Vec<String> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let closed = nodes
        .into_iter()
        .filter(|node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)));
    closed.filter_map(|node| node.metadata.name).collect()
}

async fn close(client: &Client, node: &str, unschedulable: bool) {
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": unschedulable } }));
    Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// Creates a pod that fits nowhere.
async fn waits(client: &Client, name: &str, cpus: usize) {
    let pod: Pod =
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": template(cpus) })).unwrap();
    pods(client).create(&PostParams::default(), &pod).await.unwrap();
    eventually("a pod that fits nowhere", async || {
        let pod = pods(client).get(name).await.unwrap();
        let conditions = pod.status?.conditions?;
        conditions.iter().any(|it| it.reason.as_deref() == Some("Unschedulable")).then_some(())
    })
    .await;
}

async fn defrag(kubeconfig: &Path, flags: &str, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let kubeconfig = kubeconfig.display().to_string();
    let line = ["defrag", "--kubeconfig", &kubeconfig, "-o", "json"];
    let args = DefragCli::parse_from(line.into_iter().chain(flags.split_whitespace())).args;
    cli::run(args, token.clone()).await
}

/// Two nodes with zones of 4 and 5 CPUs, each with 3 and 2 in use, and two pods of 4 that wait. A move for each makes
/// room.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_carried_out_with_the_rights_of_its_role() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, kubeconfig) = control_plane(&rig).await;
    let account = Account::create(cluster.control(), "tools", "defrag").await.unwrap();
    account.allow(scheduler::rbac::defrag(true), Vec::new()).await.unwrap();
    let mover = account.kubeconfig(None).await.unwrap();
    let controllers = cluster
        .control()
        .start_controllers(&["replicaset-controller", "disruption-controller", "node-lifecycle-controller"])
        .await
        .unwrap();
    let _hollow = Running::hollow(&kubeconfig, "--nodes 2 --machine 2x5 --lag 50ms");
    eventually("two nodes", async || {
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
        (nodes.items.len() == 2).then_some(())
    })
    .await;
    let _scheduler = Running::scheduler(cluster.control().kubeconfig());
    let sets = Api::<ReplicaSet>::default_namespaced(client.clone());
    for (node, [first, second]) in [("hollow-0", ["a", "b"]), ("hollow-1", ["c", "d"])] {
        for other in ["hollow-0", "hollow-1"] {
            close(&client, other, other != node).await;
        }
        for (name, cpus) in [(first, 3), (second, 2)] {
            sets.create(&PostParams::default(), &replica_set(name, cpus)).await.unwrap();
            let found = eventually(name, async || node_of(&client, name).await).await;
            assert_eq!(found, node, "{name}");
        }
    }
    close(&client, "hollow-0", false).await;
    for name in WAITING {
        waits(&client, name, 4).await;
    }

    // A budget keeps the pods, and nothing is done.
    let token = CancellationToken::new();
    let budgets = Api::<PodDisruptionBudget>::default_namespaced(client.clone());
    for name in ["a", "b", "c", "d"] {
        let budget = json!({
            "metadata": { "name": name },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": name } } },
        });
        budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
        eventually("a budget that is counted", async || {
            budgets.get(name).await.unwrap().status?.observed_generation
        })
        .await;
    }
    assert_eq!(defrag(&mover, "--apply --yes", &token).await.unwrap(), ExitCode::FAILURE);
    for name in ["a", "b", "c", "d"] {
        budgets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    // A plan alone changes nothing.
    let nodes = async || {
        let mut nodes = BTreeMap::new();
        for name in ["a", "b", "c", "d"] {
            nodes.insert(name, eventually(name, async || node_of(&client, name).await).await);
        }
        nodes
    };
    let before = nodes().await;
    assert_eq!(defrag(&mover, "", &token).await.unwrap(), ExitCode::SUCCESS);
    assert_eq!((nodes().await, closed_nodes(&client).await), (before.clone(), Vec::new()));

    // The node that another run has closed is left to it; one that a killed run left closed is opened.
    let leave = async |since: &str| {
        let left = Patch::Merge(json!({
            "metadata": { "annotations": { "tholepin.dev/cordoned-by-defrag": since } },
            "spec": { "unschedulable": true },
        }));
        Api::<Node>::all(client.clone()).patch("hollow-1", &PatchParams::default(), &left).await.unwrap();
    };
    leave(&Timestamp::now().to_string()).await;
    assert_eq!(defrag(&mover, "--apply --yes", &token).await.unwrap(), ExitCode::from(2));
    assert_eq!(closed_nodes(&client).await, ["hollow-1"]);
    leave("2026-01-01T00:00:00Z").await;
    assert_eq!(defrag(&mover, "--apply --yes --rate 600", &token).await.unwrap(), ExitCode::SUCCESS);
    for name in WAITING {
        eventually(name, async || node_of(&client, name).await).await;
    }
    let after = nodes().await;
    let moved: Vec<&str> = before.keys().copied().filter(|name| before[name] != after[name]).collect();
    assert_eq!(moved.len(), 2, "{before:?} {after:?}");
    assert_eq!(closed_nodes(&client).await, Vec::<String>::new());
    let failed = pods(&client).list(&ListParams::default().fields("status.phase=Failed")).await.unwrap();
    assert!(failed.items.is_empty(), "{failed:?}");

    // A run that is ended while an evicted pod is not there again opens its nodes.
    let number = async || pods(&client).list(&ListParams::default()).await.unwrap().items.len();
    for name in WAITING {
        pods(&client).delete(name, &DeleteParams::default()).await.unwrap();
    }
    eventually("gone", async || (number().await == before.len()).then_some(())).await;
    waits(&client, "late", 5).await;
    controllers.pause().unwrap();
    let until_evicted = async {
        eventually("an evicted pod", async || (number().await == before.len()).then_some(())).await;
        assert!(!closed_nodes(&client).await.is_empty());
        token.cancel();
    };
    let (result, ()) = tokio::join!(defrag(&mover, "--apply --yes", &token), until_evicted);
    assert_eq!(result.unwrap_err().to_string(), "interrupted");
    assert_eq!(closed_nodes(&client).await, Vec::<String>::new());
}
