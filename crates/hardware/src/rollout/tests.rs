//! A table of single nodes, and upgrades played to their end with nodes, pods and changes of mind at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NEW: &str = "2";

fn policy(pods: PodsUsingDevices) -> Policy<'static> {
    Policy { version: NEW, most_unavailable: 1, pods, paused: false, devices_known: true }
}

fn old(node: &str) -> RolloutNode<'_> {
    RolloutNode {
        node,
        ending: false,
        version: Some("1"),
        loaded: Some("1"),
        ready: true,
        fenced: false,
        stale: false,
        reserved: false,
        supported: true,
        maintenance: false,
        rebooted: false,
        users: Users::Pods(Vec::new()),
    }
}

fn user() -> Users {
    Users::Pods(vec![Pod { namespace: "x".to_owned(), name: "p".to_owned(), leaving: false }])
}

fn told(step: &Step) -> String {
    match step {
        Step::Start(node) => format!("start {node}"),
        Step::Switch { node, checked, .. } => {
            format!("switch {node}{}", if *checked { " checked" } else { "" })
        }
        Step::Fence(node) => format!("fence {node}"),
        Step::Unfence(node) => format!("unfence {node}"),
        Step::Evict { node, pod } => format!("evict {node} {}", pod.name),
        Step::Release { node, checked } => {
            format!("release {node}{}", if *checked { " checked" } else { "" })
        }
    }
}

fn check(policy: &Policy<'_>, states: &[RolloutNode<'_>], steps: &[&str], waiting: &[(&str, Wait)]) {
    let round = round(policy, states);
    let shown: Vec<String> = round.steps.iter().map(told).collect();
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
    let fresh = RolloutNode { version: None, loaded: None, ready: false, ..old("a") };
    check(&wait, &[fresh], &["start a"], &[]);
    check(&wait, &[old("b"), old("a")], &["fence a"], &[("b", Wait::Turn)]);
    check(
        &wait,
        &[old("a"), RolloutNode { fenced: true, ..old("b") }],
        &["switch b checked"],
        &[("a", Wait::Turn)],
    );
    let changed = RolloutNode { version: Some(NEW), ready: false, fenced: true, ..old("a") };
    check(&wait, &[changed.clone(), old("b")], &[], &[("b", Wait::Turn)]);
    check(
        &wait,
        &[RolloutNode { loaded: None, ..changed.clone() }, old("b")],
        &["unfence a"],
        &[("b", Wait::Turn)],
    );
    let done = RolloutNode { loaded: Some(NEW), ready: true, ..changed };
    check(&wait, &[done, old("b")], &["fence b", "unfence a"], &[]);
    let used = RolloutNode { users: user(), ..old("a") };
    check(&wait, &[used.clone(), old("b")], &["fence b"], &[("a", pods(1))]);
    check(&wait, &[RolloutNode { fenced: true, ..used.clone() }], &["unfence a"], &[("a", pods(1))]);
    check(&wait, &[RolloutNode { users: Users::Unknown, ..old("a") }], &[], &[("a", Wait::Unknown)]);
    check(&policy(Ignore), std::slice::from_ref(&used), &["switch a"], &[]);
    check(&policy(Evict), std::slice::from_ref(&used), &["fence a"], &[]);
    check(
        &policy(Evict),
        &[RolloutNode { fenced: true, ..used.clone() }, old("b")],
        &["evict a p"],
        &[("a", pods(1)), ("b", Wait::Turn)],
    );
    let paused = Policy { paused: true, ..wait };
    check(&paused, &[RolloutNode { fenced: true, ..old("a") }], &["unfence a"], &[("a", Wait::Paused)]);
    check(
        &wait,
        &[RolloutNode { maintenance: true, ready: false, ..old("a") }, old("b")],
        &["fence b"],
        &[("a", Wait::Maintenance)],
    );
    // A fence stays as long as something is about to be unloaded.
    let leaves = RolloutNode { version: Some(NEW), ready: false, fenced: true, ..old("a") };
    check(&Policy { version: "3", ..paused }, &[leaves], &[], &[("a", Wait::Paused)]);
    let fresh = RolloutNode { version: Some(NEW), loaded: Some(NEW), fenced: true, ..old("a") };
    check(&wait, &[RolloutNode { stale: true, ..fresh.clone() }], &[], &[]);
    check(&wait, &[RolloutNode { reserved: true, ..fresh.clone() }], &[], &[]);
    check(&wait, &[fresh], &["unfence a"], &[]);
    // A node without a driver for another reason than an upgrade does not hold up others.
    for other in [
        RolloutNode { version: Some(NEW), loaded: None, ready: false, maintenance: true, ..old("a") },
        RolloutNode { version: Some(NEW), loaded: Some(NEW), ready: false, rebooted: true, ..old("a") },
    ] {
        check(&wait, &[other, old("b")], &["fence b"], &[]);
    }
    let fresh = RolloutNode { version: Some(NEW), loaded: None, ready: false, ..old("a") };
    check(&wait, &[fresh, old("b")], &[], &[("b", Wait::Turn)]);
    // What has no working driver loses nothing, and comes first.
    let broken = RolloutNode { ready: false, ..old("z") };
    check(&wait, &[old("a"), broken], &["fence z"], &[("a", Wait::Turn)]);
    let odd = RolloutNode { supported: false, ready: false, loaded: None, ..old("z") };
    check(&wait, &[old("a"), odd], &["fence z", "fence a"], &[]);
    let blind = Policy { devices_known: false, ..wait };
    check(&blind, &[old("a")], &["switch a"], &[]);
}

#[test]
fn a_node_is_released_when_no_pod_uses_it() {
    use PodsUsingDevices::{Evict, Ignore, Wait as Patience};
    let ending = RolloutNode { ending: true, ..old("a") };
    let used = RolloutNode { users: user(), ..ending.clone() };
    let pods = Wait::Pods("x/p".to_owned(), 1);
    let fenced = RolloutNode { fenced: true, ..ending.clone() };
    check(&policy(Patience), std::slice::from_ref(&ending), &["fence a"], &[]);
    check(&policy(Patience), std::slice::from_ref(&fenced), &["release a checked"], &[]);
    let late = RolloutNode { users: user(), ..fenced };
    check(&policy(Patience), std::slice::from_ref(&late), &["unfence a"], &[("a", pods.clone())]);
    check(&policy(Patience), std::slice::from_ref(&used), &[], &[("a", pods.clone())]);
    check(
        &policy(Patience),
        &[RolloutNode { users: Users::Unknown, ..ending }],
        &[],
        &[("a", Wait::Unknown)],
    );
    check(&policy(Ignore), std::slice::from_ref(&used), &["release a"], &[]);
    check(&policy(Evict), std::slice::from_ref(&used), &["fence a"], &[]);
    check(&policy(Evict), &[RolloutNode { fenced: true, ..used }], &["evict a p"], &[("a", pods)]);
}

/// A node as the play has it.
#[derive(Clone, Debug)]
struct Real {
    version: Option<&'static str>,
    loaded: Option<&'static str>,
    fenced: bool,
    pods: usize,
    supported: bool,
    /// It is cordoned, and KMM keeps the driver away.
    cordoned: bool,
    /// What is loaded was loaded before the machine was started.
    rebooted: bool,
    /// We took its working driver, and it has none again yet. A cordon would have taken it as well.
    taken: bool,
}

/// What happens beside us.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// KMM does its next step on this node.
    Kmm(usize),
    /// A pod comes, where none is kept away.
    Comes(usize),
    /// A pod goes.
    Goes(usize),
    /// It is cordoned or is so no longer.
    Cordon(usize, bool),
    /// The machine is started anew.
    Boots(usize),
    /// What is wanted changes.
    Wanted(&'static str),
    /// Paused or not.
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

/// KMM: the former version goes, then the one comes that the label says.
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
    let pods =
        |count| (0..count).map(|at| Pod { namespace: String::new(), name: format!("{at}"), leaving: false });
    let states: Vec<RolloutNode<'_>> = nodes
        .iter()
        .map(|(node, real)| RolloutNode {
            node,
            ending: false,
            version: real.version,
            loaded: real.loaded,
            ready: real.loaded.is_some() && real.loaded == real.version && !real.rebooted,
            fenced: real.fenced,
            stale: false,
            reserved: false,
            supported: real.supported,
            maintenance: real.cordoned,
            rebooted: real.rebooted && real.loaded == real.version,
            users: Users::Pods(pods(real.pods).collect()),
        })
        .collect();
    let steps = round(policy, &states).steps;
    let version = NAMES.into_iter().find(|name| *name == policy.version);
    for step in &steps {
        match step {
            Step::Start(node) => nodes.get_mut(node.as_str()).unwrap().version = version,
            Step::Switch { node, from, .. } => {
                let real = nodes.get_mut(node.as_str()).unwrap();
                assert_eq!(real.version, Some(from.as_str()));
                assert!(!policy.paused, "nothing is changed while it is paused");
                assert!(
                    policy.pods == PodsUsingDevices::Ignore || real.pods == 0,
                    "{node}: pulled from under a pod"
                );
                real.taken |= real.loaded.is_some() && real.loaded == real.version && !real.rebooted;
                real.version = version;
                // A change of mind before anything was unloaded.
                real.taken &= real.loaded != real.version;
            }
            Step::Fence(node) => nodes.get_mut(node.as_str()).unwrap().fenced = true,
            Step::Unfence(node) => nodes.get_mut(node.as_str()).unwrap().fenced = false,
            Step::Evict { node, .. } => {
                assert_eq!(policy.pods, PodsUsingDevices::Evict);
                let real = nodes.get_mut(node.as_str()).unwrap();
                real.pods = real.pods.saturating_sub(1);
            }
            Step::Release { .. } => unreachable!("all nodes match"),
        }
    }
    steps.len()
}

const NAMES: [&str; 3] = ["1", "2", "3"];

proptest! {
    /// Whatever happens beside us: never more nodes without a driver because of us than allowed, none from under a pod,
    /// and all get there.
    #[test]
    fn upgrades_hold_what_they_promise(
        happens in prop::collection::vec(beside(), 0..60),
        most in 1..4_usize,
        pods in prop_oneof![Just(PodsUsingDevices::Wait), Just(PodsUsingDevices::Evict), Just(PodsUsingDevices::Ignore)],
        supported in prop::collection::vec(prop::bool::weighted(0.8), NODES),
    ) {
        let mut policy = Policy { version: "1", most_unavailable: most, pods, paused: false, devices_known: true };
        let real = |supported| Real { version: None, loaded: None, fenced: false, pods: 0, supported, cordoned: false, rebooted: false, taken: false };
        let mut nodes: BTreeMap<_, _> = (0..NODES).map(|at| (name(at), real(supported[at]))).collect();
        for one in happens {
            match one {
                Beside::Kmm(at) => kmm(nodes.get_mut(name(at)).unwrap()),
                Beside::Comes(at) => {
                    let real = nodes.get_mut(name(at)).unwrap();
                    real.pods += usize::from(!real.fenced && real.loaded.is_some());
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
            prop_assert!(!real.fenced && (real.loaded == real.version || !real.supported), "{name}: {real:?}");
        }
        prop_assert_eq!(play(&policy, &mut nodes), 0, "at rest nothing is done");
    }
}
