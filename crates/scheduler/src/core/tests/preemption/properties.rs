//! Preemption under any sequence of events.

use super::*;

#[derive(Clone, Debug)]
enum Move {
    Create(usize, i64, i32),
    Decide,
    Leave(usize),
    End(usize),
    Fail(usize),
}

fn moves() -> impl Strategy<Value = Move> {
    let pods = 0..10_usize;
    prop_oneof![
        5 => (pods.clone(), 1..=8_i64, 0..4_i32).prop_map(|(pod, cpus, prio)| Move::Create(pod, cpus, prio)),
        5 => Just(Move::Decide),
        2 => pods.clone().prop_map(Move::Leave),
        3 => pods.clone().prop_map(Move::End),
        1 => pods.prop_map(Move::Fail),
    ]
}

/// The last state of a pod.
fn last_of(at: usize, cpus: i64, prio: i32, node: Option<String>) -> PodView {
    let last = node.map_or_else(|| json!({}), |node| ended(&node));
    pod(&format!("p{at}"), cpus, merged(last, priority(prio)))
}

/// Carries out steps on a core; returns its decisions.
///
/// # Errors
/// Where a victim is not one, decisions do not end, or something is left over at the end.
fn survive(core: &mut Core, steps: &[Move]) -> Result<Vec<String>, TestCaseError> {
    let mut pods: BTreeMap<usize, (i64, i32, Option<String>)> = BTreeMap::new();
    let mut log = Vec::new();
    for step in steps {
        match step.clone() {
            Move::Create(at, cpus, prio) if !pods.contains_key(&at) => {
                pods.insert(at, (cpus, prio, None));
                core.handle(Event::Pod(pod(&format!("p{at}"), cpus, priority(prio))), LATER);
            }
            Move::Decide => {
                let mut decisions = 0;
                while let Some(decision) = core.next(LATER) {
                    decisions += 1;
                    prop_assert!(decisions < 200, "decisions without end");
                    match decision {
                        Decision::Bind(binding) => {
                            log.push(format!("{} -> {}", binding.pod.name, binding.node));
                            let at: usize = binding.pod.name[1..].parse().unwrap();
                            pods.entry(at).and_modify(|pod| pod.2 = Some(binding.node.to_string()));
                        }
                        Decision::Preempt(it) => {
                            prop_assert!(!it.victims.is_empty());
                            let names: Vec<&str> = it.victims.iter().map(|victim| &*victim.name).collect();
                            log.push(format!("{} evicts {names:?} on {}", it.refused.pod.name, it.node));
                            for victim in &it.victims {
                                let at: usize = victim.name[1..].parse().unwrap();
                                prop_assert!(victim.priority < it.refused.pod.priority);
                                prop_assert_eq!(pods[&at].2.as_deref(), Some(&*it.node));
                            }
                        }
                        Decision::Refuse(it) => log.push(format!("{}: {}", it.pod.name, it.message)),
                        Decision::BindVolumes(_)
                        | Decision::ReserveClaims(_)
                        | Decision::ReleaseClaims(_)
                        | Decision::FailVolumes(_)
                        | Decision::SetGroupCondition(_)
                        | Decision::NoteRejection(_)
                        | Decision::Withdraw(_) => {}
                    }
                }
            }
            Move::Leave(at) => {
                if let Some((cpus, prio, Some(node))) = pods.get(&at) {
                    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
                    let view = runs(&format!("p{at}"), *cpus, node, (*prio, 1), leaving);
                    core.handle(Event::Pod(view), LATER);
                }
            }
            Move::End(at) => {
                if let Some((cpus, prio, node)) = pods.remove(&at) {
                    core.handle(Event::PodGone(last_of(at, cpus, prio, node)), LATER);
                }
            }
            Move::Fail(at) => {
                if let Some(id) = core.ids.get(format!("uid-p{at}").as_str()).copied() {
                    core.handle(Event::PreemptFailed(id), LATER);
                }
            }
            Move::Create(..) => {}
        }
        recount(core);
    }
    for (at, (cpus, prio, node)) in pods {
        core.handle(Event::PodGone(last_of(at, cpus, prio, node)), LATER);
    }
    prop_assert!(core.nominations.is_empty() && core.evicting.is_empty());
    prop_assert!(core.nodes.iter().all(|node| node.residents.is_empty()));
    Ok(log)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Victims are less important and on the node; no decision repeats for ever; nothing is left over at the end.
    #[test]
    fn preemption_survives_any_interleaving(steps in prop::collection::vec(moves(), 1..60)) {
        survive(&mut core(&["n", "m"]), &steps)?;
    }

    /// Few classes, so that most victims are remembered ones.
    #[test]
    fn remembered_victims_change_no_decision(steps in prop::collection::vec(moves(), 1..60)) {
        let coarse = |step: &Move| match step {
            Move::Create(at, cpus, prio) => Move::Create(*at, 3 + cpus % 2 * 3, prio / 2 * 3),
            other => other.clone(),
        };
        let steps: Vec<Move> = steps.iter().map(coarse).collect();
        let mut forgetful = core(&["n", "m"]);
        forgetful.victims = EquivalenceCache::disabled();
        prop_assert_eq!(survive(&mut core(&["n", "m"]), &steps)?, survive(&mut forgetful, &steps)?);
    }
}

/// A core with these pods running on two nodes, and a more important one that comes.
fn crowded(pods: &[(i64, i32)], cpus: i64) -> (Core, BTreeMap<String, (i64, i32, String)>) {
    let mut core = core(&["n", "m"]);
    let mut placed = BTreeMap::new();
    for (at, (cpus, prio)) in pods.iter().enumerate() {
        // None of them preempts, so that those that find no place wait in vain.
        let more = json!({"spec": {"priority": prio, "preemptionPolicy": "Never"}});
        let name = format!("p{at}");
        core.handle(Event::Pod(pod(&name, *cpus, more)), LATER);
        match core.next(LATER) {
            Some(Decision::Bind(binding)) => {
                let view = runs(&name, *cpus, &binding.node, (*prio, 1), json!({}));
                core.handle(Event::Pod(view), LATER);
                placed.insert(name, (*cpus, *prio, binding.node.to_string()));
            }
            _ => core.handle(Event::PodGone(pod(&name, *cpus, priority(*prio))), LATER),
        }
    }
    core.handle(Event::Pod(pod("big", cpus, priority(3))), LATER);
    (core, placed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Once all victims have left, the pod is bound to its node; while any of them is there, it waits.
    #[test]
    fn victims_are_enough_and_none_is_too_many(
        pods in prop::collection::vec((1..=8_i64, 0..4_i32), 1..14),
        cpus in 1..=8_i64,
    ) {
        let (mut first, _) = crowded(&pods, cpus);
        let Some(Decision::Preempt(it)) = first.next(LATER) else { return Ok(()) };
        let victims: Vec<String> = it.victims.iter().map(|pod| pod.name.to_string()).collect();
        for spared in victims.iter().map(Some).chain([None]) {
            let (mut core, placed) = crowded(&pods, cpus);
            prop_assert!(matches!(core.next(LATER), Some(Decision::Preempt(_))));
            for victim in victims.iter().filter(|victim| Some(*victim) != spared) {
                let (cpus, prio, node) = &placed[victim];
                end(&mut core, victim, *cpus, node, *prio);
            }
            let wanted = if spared.is_none() { vec![format!("big -> {}", it.node)] } else { vec![] };
            prop_assert_eq!(tell(&mut core, LATER), wanted, "{:?} of {:?}", spared, victims);
        }
    }
}
