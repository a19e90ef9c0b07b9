//! A table of single nodes; random upgrades with pods and changes of the spec, played to their end.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::cluster_state::Node;
use crate::kernel::{KernelSupport, Source};

const NEW: &str = "2";

static NODE: LazyLock<Node> = LazyLock::new(Node::default);
static NONE: BTreeSet<&str> = BTreeSet::new();

fn policy(pods: PodsUsingDevices) -> Policy<'static> {
    let (paused, devices_known) = (false, true);
    Policy { version: NEW, max_unavailable: 1, pods, paused, devices_known, reserved: &NONE }
}

fn old(name: &str) -> NodeState<'_> {
    NodeState {
        name,
        node: &NODE,
        ownership: Ownership::Owned,
        version: Some("1"),
        support: KernelSupport::Supported(Source::default()),
        taint: None,
        loaded: Some("1"),
        configured: None,
        in_use: true,
        ready: true,
        works: true,
        rebooted: false,
        plugin: false,
        cordon_taint_since: None,
        cordon_taint_seen: None,
        stale: false,
        users: Users::Pods(Vec::new()),
    }
}

fn user() -> Users {
    Users::Pods(vec![Pod { id: Id::new("x", "p"), terminating: false, returns: false }])
}

fn shown(step: &Step) -> String {
    match step {
        Step::Evict(node, pod) => format!("evict {node} {}", pod.name),
        Step::Change { node, change, checked } => {
            let change = match change {
                NodeChange::AddCordonTaint => "taint".to_owned(),
                NodeChange::RemoveCordonTaint => "untaint".to_owned(),
                other => format!("{other:?}").to_lowercase(),
            };
            format!("{change} {node}{}", if *checked { " checked" } else { "" })
        }
    }
}

fn check(policy: &Policy<'_>, states: &[NodeState<'_>], steps: &[&str], waiting: &[(&str, Wait)]) {
    let round = round(policy, &states.iter().collect::<Vec<_>>());
    let shown: Vec<String> = round.steps.iter().map(shown).collect();
    assert_eq!(shown, steps, "{states:?}");
    let waiting: Vec<(String, Wait)> =
        waiting.iter().map(|(node, wait)| ((*node).to_owned(), wait.clone())).collect();
    assert_eq!(round.waiting, waiting, "{states:?}");
}

#[test]
fn one_node_at_a_time() {
    use PodsUsingDevices::{Evict, Ignore, Wait as Patience};
    let pods = |count| Wait::Pods("x/p".to_owned(), count);
    let wait = policy(Patience);
    let fresh = NodeState { version: None, loaded: None, ready: false, ..old("a") };
    check(&wait, &[fresh], &["start a"], &[]);
    check(&wait, &[old("b"), old("a")], &["taint a"], &[("b", Wait::MaxUnavailable)]);
    check(
        &wait,
        &[old("a"), NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..old("b") }],
        &["switch b checked"],
        &[("a", Wait::MaxUnavailable)],
    );
    let changed = NodeState {
        version: Some(NEW),
        ready: false,
        cordon_taint_since: Some(Timestamp::UNIX_EPOCH),
        ..old("a")
    };
    check(&wait, &[changed.clone(), old("b")], &[], &[("b", Wait::MaxUnavailable)]);
    check(
        &wait,
        &[NodeState { loaded: None, ..changed.clone() }, old("b")],
        &["untaint a"],
        &[("b", Wait::MaxUnavailable)],
    );
    let done = NodeState { loaded: Some(NEW), ready: true, ..changed };
    check(&wait, &[done, old("b")], &["taint b", "untaint a"], &[]);
    let used = NodeState { users: user(), ..old("a") };
    check(&wait, &[used.clone(), old("b")], &["taint b"], &[("a", pods(1))]);
    check(
        &wait,
        &[NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..used.clone() }],
        &["untaint a"],
        &[("a", pods(1))],
    );
    check(&wait, &[NodeState { users: Users::Unknown, ..old("a") }], &[], &[("a", Wait::Unknown)]);
    check(&policy(Ignore), std::slice::from_ref(&used), &["switch a"], &[]);
    check(&policy(Evict), std::slice::from_ref(&used), &["taint a"], &[]);
    check(
        &policy(Evict),
        &[NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..used.clone() }, old("b")],
        &["evict a p"],
        &[("a", pods(1)), ("b", Wait::MaxUnavailable)],
    );
    let paused = Policy { paused: true, ..wait };
    check(
        &paused,
        &[NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..old("a") }],
        &["untaint a"],
        &[("a", Wait::Paused)],
    );
    check(
        &wait,
        &[NodeState { taint: Some("a".to_owned()), ready: false, ..old("a") }, old("b")],
        &["taint b"],
        &[("a", Wait::Maintenance)],
    );
    // The cordon taint stays while a driver is about to be unloaded.
    let leaves = NodeState {
        version: Some(NEW),
        ready: false,
        cordon_taint_since: Some(Timestamp::UNIX_EPOCH),
        ..old("a")
    };
    check(&Policy { version: "3", ..paused }, &[leaves], &[], &[("a", Wait::Paused)]);
    let fresh = NodeState {
        version: Some(NEW),
        loaded: Some(NEW),
        cordon_taint_since: Some(Timestamp::UNIX_EPOCH),
        ..old("a")
    };
    check(&wait, &[NodeState { stale: true, ..fresh.clone() }], &[], &[]);
    let reserved = BTreeSet::from(["a"]);
    check(&Policy { reserved: &reserved, ..wait }, std::slice::from_ref(&fresh), &[], &[]);
    check(&wait, &[fresh], &["untaint a"], &[]);
    // A node without a driver for other reasons does not stop an upgrade.
    for other in [
        NodeState { version: Some(NEW), loaded: None, ready: false, taint: Some("a".to_owned()), ..old("a") },
        NodeState { version: Some(NEW), loaded: Some(NEW), ready: false, rebooted: true, ..old("a") },
    ] {
        check(&wait, &[other, old("b")], &["taint b"], &[]);
    }
    let fresh = NodeState { version: Some(NEW), loaded: None, ready: false, ..old("a") };
    check(&wait, &[fresh, old("b")], &[], &[("b", Wait::MaxUnavailable)]);
    // A node without a working driver loses nothing, and comes first.
    let broken = NodeState { ready: false, ..old("z") };
    check(&wait, &[old("a"), broken], &["taint z"], &[("a", Wait::MaxUnavailable)]);
    let odd = NodeState { support: KernelSupport::Unsupported, ready: false, loaded: None, ..old("z") };
    check(&wait, &[old("a"), odd], &["taint z", "taint a"], &[]);
    let blind = Policy { devices_known: false, ..wait };
    check(&blind, &[old("a")], &["switch a"], &[]);
}

#[test]
fn a_node_is_released_when_no_pod_uses_it() {
    use PodsUsingDevices::{Evict, Ignore, Wait as Patience};
    let ending = NodeState { ownership: Ownership::Unmatched, ..old("a") };
    let used = NodeState { users: user(), ..ending.clone() };
    let pods = Wait::Pods("x/p".to_owned(), 1);
    let cordon_tainted = NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..ending.clone() };
    check(&policy(Patience), std::slice::from_ref(&ending), &["taint a"], &[]);
    check(&policy(Patience), std::slice::from_ref(&cordon_tainted), &["release a checked"], &[]);
    let late = NodeState { users: user(), ..cordon_tainted };
    check(&policy(Patience), std::slice::from_ref(&late), &["untaint a"], &[("a", pods.clone())]);
    check(&policy(Patience), std::slice::from_ref(&used), &[], &[("a", pods.clone())]);
    check(&policy(Patience), &[NodeState { users: Users::Unknown, ..ending }], &[], &[("a", Wait::Unknown)]);
    check(&policy(Ignore), std::slice::from_ref(&used), &["release a"], &[]);
    check(&policy(Evict), std::slice::from_ref(&used), &["taint a"], &[]);
    check(
        &policy(Evict),
        &[NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..used }],
        &["evict a p"],
        &[("a", pods)],
    );
}

/// Pods that come back in spite of the cordon taint are not evicted in vain: between two of them the driver would be
/// unloaded under the second. The other nodes go on.
#[test]
fn pods_that_come_back_are_waited_for() {
    use PodsUsingDevices::{Evict, Ignore, Wait as Patience};
    let pod = |name: &str, returns| Pod { id: Id::new("x", name), terminating: false, returns };
    let mixed = Users::Pods(vec![pod("a", false), pod("p", true)]);
    let used = NodeState { users: mixed.clone(), ..old("a") };
    let tainted = NodeState { cordon_taint_since: Some(Timestamp::UNIX_EPOCH), ..used.clone() };
    let returning = || Wait::Returning("x/p".to_owned(), 1);
    check(&policy(Evict), &[used.clone(), old("b")], &["taint b"], &[("a", returning())]);
    check(&policy(Evict), &[tainted.clone(), old("b")], &["taint b", "untaint a"], &[("a", returning())]);
    let unmatched = NodeState { ownership: Ownership::Unmatched, ..used.clone() };
    check(&policy(Evict), &[unmatched], &[], &[("a", returning())]);
    let all = Wait::Pods("x/a".to_owned(), 2);
    check(&policy(Patience), std::slice::from_ref(&used), &[], &[("a", all.clone())]);
    check(&policy(Ignore), std::slice::from_ref(&used), &["switch a"], &[]);
    let cleared = |policy, node: &NodeState<'_>| {
        let round = clear(policy, &[node]);
        (round.steps.iter().map(shown).collect::<Vec<_>>(), round.waiting)
    };
    for node in [&used, &tainted] {
        assert_eq!(cleared(Evict, node), (vec![], vec![("a".to_owned(), returning())]));
        assert_eq!(cleared(Patience, node), (vec![], vec![("a".to_owned(), all.clone())]));
    }
}

/// A node of the model.
#[derive(Clone, Debug)]
struct Real {
    version: Option<&'static str>,
    loaded: Option<&'static str>,
    cordon_tainted: bool,
    pods: usize,
    supported: bool,
    /// The node is cordoned, and KMM keeps the driver away.
    cordoned: bool,
    /// The driver was loaded before the last boot.
    rebooted: bool,
    /// We took the working driver, and none is loaded again yet; a cordon would have taken it as well.
    taken: bool,
}

/// An event outside of the controller.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// KMM does the next step on this node.
    Kmm(usize),
    /// A pod comes, unless a taint keeps it away.
    Comes(usize),
    /// A pod goes.
    Goes(usize),
    /// The node is cordoned, or no longer.
    Cordon(usize, bool),
    /// The machine reboots.
    Boots(usize),
    /// The desired version changes.
    Wanted(&'static str),
    /// Upgrades are paused, or no longer.
    Pause(bool),
}

const NODES: usize = 6;

fn beside() -> impl Strategy<Value = Beside> {
    prop_oneof![
        4 => (0..NODES).prop_map(Beside::Kmm),
        1 => (0..NODES).prop_map(Beside::Comes),
        2 => (0..NODES).prop_map(Beside::Goes),
        1 => ((0..NODES), any::<bool>()).prop_map(|(node, on)| Beside::Cordon(node, on)),
        1 => (0..NODES).prop_map(Beside::Boots),
        1 => prop_oneof![Just("1"), Just("2"), Just("3")].prop_map(Beside::Wanted),
        1 => any::<bool>().prop_map(Beside::Pause),
    ]
}

fn name(node: usize) -> &'static str {
    ["a", "b", "c", "d", "e", "f"][node]
}

/// A step of KMM: unload the former version, then load the version of the label.
fn kmm(real: &mut Real) {
    if real.loaded.is_some() && (real.loaded != real.version || real.cordoned) {
        real.loaded = None;
        real.rebooted = false;
    } else if real.rebooted {
        real.rebooted = false;
    } else if real.loaded.is_none() && real.supported && !real.cordoned {
        real.loaded = real.version;
        real.taken &= real.loaded.is_none();
    }
}

fn play(policy: &Policy<'_>, nodes: &mut BTreeMap<&'static str, Real>) -> usize {
    let pods = |count| {
        (0..count).map(|at| Pod { id: Id::new("", &format!("{at}")), terminating: false, returns: false })
    };
    let supported = KernelSupport::Supported(Source::default());
    let states: Vec<NodeState<'_>> = nodes
        .iter()
        .map(|(node, real)| NodeState {
            version: real.version,
            loaded: real.loaded,
            ready: real.loaded.is_some() && real.loaded == real.version && !real.rebooted,
            cordon_taint_since: real.cordon_tainted.then_some(Timestamp::UNIX_EPOCH),
            support: if real.supported { supported.clone() } else { KernelSupport::Unsupported },
            taint: real.cordoned.then(|| "a".to_owned()),
            rebooted: real.rebooted && real.loaded == real.version,
            users: Users::Pods(pods(real.pods).collect()),
            ..old(node)
        })
        .collect();
    let steps = round(policy, &states.iter().collect::<Vec<_>>()).steps;
    let version = NAMES.into_iter().find(|name| *name == policy.version);
    for step in &steps {
        let (Step::Change { node, .. } | Step::Evict(node, _)) = step;
        let real = nodes.get_mut(node.as_str()).unwrap();
        let change = match step {
            Step::Change { change, .. } => change,
            Step::Evict(..) => {
                assert_eq!(policy.pods, PodsUsingDevices::Evict);
                real.pods = real.pods.saturating_sub(1);
                continue;
            }
        };
        match change {
            NodeChange::Start => real.version = version,
            NodeChange::Switch => {
                assert!(!policy.paused, "no change while paused");
                let may_unload = policy.pods == PodsUsingDevices::Ignore || real.pods == 0;
                assert!(may_unload, "{node}: unloaded under a pod");
                real.taken |= real.loaded.is_some() && real.loaded == real.version && !real.rebooted;
                real.version = version;
                // The version changes back before the driver was unloaded.
                real.taken &= real.loaded != real.version;
            }
            NodeChange::AddCordonTaint => real.cordon_tainted = true,
            NodeChange::RemoveCordonTaint => real.cordon_tainted = false,
            NodeChange::Claim | NodeChange::Release => unreachable!("all nodes match"),
        }
    }
    steps.len()
}

const NAMES: [&str; 3] = ["1", "2", "3"];

proptest! {
    /// Whatever happens: never more nodes without a driver because of us than allowed, none unloaded under a pod, and
    /// all nodes get the version.
    #[test]
    fn upgrades_keep_their_guarantees(
        happens in prop::collection::vec(beside(), 0..60),
        most in 1..4_usize,
        pods in prop::sample::select(vec![
            PodsUsingDevices::Wait, PodsUsingDevices::Evict, PodsUsingDevices::Ignore,
        ]),
        supported in prop::collection::vec(prop::bool::weighted(0.8), NODES),
    ) {
        let mut policy = Policy { version: "1", max_unavailable: most, ..policy(pods) };
        let real = |supported| Real {
            version: None,
            loaded: None,
            cordon_tainted: false,
            pods: 0,
            supported,
            cordoned: false,
            rebooted: false,
            taken: false,
        };
        let mut nodes: BTreeMap<_, _> = (0..NODES).map(|at| (name(at), real(supported[at]))).collect();
        for one in happens {
            match one {
                Beside::Kmm(at) => kmm(nodes.get_mut(name(at)).unwrap()),
                Beside::Comes(at) => {
                    let real = nodes.get_mut(name(at)).unwrap();
                    real.pods += usize::from(!real.cordon_tainted && real.loaded.is_some());
                }
                Beside::Goes(at) => {
                    let real = nodes.get_mut(name(at)).unwrap();
                    real.pods = real.pods.saturating_sub(1);
                }
                Beside::Cordon(at, on) => {
                    let real = nodes.get_mut(name(at)).unwrap();
                    real.cordoned = on;
                    real.taken &= !on;
                }
                Beside::Boots(at) => {
                    let real = nodes.get_mut(name(at)).unwrap();
                    real.rebooted = real.loaded.is_some();
                }
                Beside::Wanted(version) => policy.version = version,
                Beside::Pause(paused) => policy.paused = paused,
            }
            play(&policy, &mut nodes);
            let taken = nodes.values().filter(|real| real.taken).count();
            prop_assert!(taken <= most, "{taken} of {most}: {nodes:?}");
        }
        policy.paused = false;
        nodes.values_mut().for_each(|real| real.cordoned = false);
        for _ in 0..200 {
            nodes.values_mut().for_each(kmm);
            nodes.values_mut().for_each(|real| real.pods = 0);
            play(&policy, &mut nodes);
        }
        for (name, real) in &nodes {
            prop_assert_eq!(real.version, Some(policy.version), "{}", name);
            prop_assert!(!real.cordon_tainted && (real.loaded == real.version || !real.supported), "{name}: {real:?}");
        }
        prop_assert_eq!(play(&policy, &mut nodes), 0, "no step at the end");
    }
}
