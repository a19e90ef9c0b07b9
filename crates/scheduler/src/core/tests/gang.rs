//! Gangs: whole or not at all.

use super::*;
use crate::pod_group::PodGroupView;

mod waking;

const TAKEN_BACK: &str = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, \
                          one or more plugins asked to wait and no plugin rejected pod";
const MISALIGNED: &str =
    "0/1 nodes are available: 1 cannot align container \"c\": cpu: requested 5, most in one zone 3 (zone 0).";
const FULL: &str = "0/1 nodes are available: 1 Insufficient cpu.";

/// A core with these nodes, each of two zones of 8 CPUs, whose profiles place gangs.
fn core(nodes: &[&str]) -> Core {
    core_with(nodes, |_| {})
}

fn core_with(nodes: &[&str], change: impl Fn(&mut Plugins)) -> Core {
    let mut settings = settings();
    for profile in &mut settings.profiles {
        let plugins = Arc::make_mut(&mut profile.plugins);
        plugins.gang_scheduling = true;
        change(plugins);
    }
    let mut core = Core::new(settings);
    for name in nodes {
        core.handle(Event::Node(node(name)), LATER);
        core.handle(Event::Report((*name).into(), report([8, 8], &[])), LATER);
    }
    core
}

fn group(name: &str, min_count: Option<usize>) -> Event {
    let (namespace, uid) = ("ns".into(), name.into());
    Event::PodGroup(PodGroupView {
        namespace,
        name: name.into(),
        uid,
        generation: 1,
        min_count,
        scheduled: None,
    })
}

fn in_group(group: &str) -> Value {
    json!({"spec": {"schedulingGroup": {"podGroupName": group}}})
}

fn member(name: &str, group: &str, cpus: i64, mut more: Value) -> PodView {
    merge(&mut more, in_group(group));
    pod(name, cpus, more)
}

/// The event of a line: `group NAME MIN`, `basic NAME`, `nogroup NAME`, `pod NAME CPUS [GROUP [more as JSON]]`,
/// `on NODE NAME CPUS [GROUP]`, `gone NODE NAME CPUS [GROUP]`, `delete NAME CPUS GROUP`.
fn event(line: &str) -> Event {
    let words: Vec<&str> = line.splitn(6, ' ').collect();
    let number = |at: usize| words[at].parse::<i64>().unwrap();
    let view = |name: usize, more: Value| {
        let mut more = more;
        if let Some(group) = words.get(name + 2) {
            merge(&mut more, in_group(group));
        }
        pod(words[name], number(name + 1), more)
    };
    match words[0] {
        "group" => group(words[1], Some(usize::try_from(number(2)).unwrap())),
        "basic" => group(words[1], None),
        "nogroup" => Event::PodGroupGone("ns".into(), words[1].into()),
        "pod" => {
            Event::Pod(view(1, words.get(4).map_or(json!({}), |more| serde_json::from_str(more).unwrap())))
        }
        "on" => Event::Pod(view(2, running(words[1]))),
        "gone" => Event::PodGone(view(2, ended(words[1]))),
        "delete" => Event::PodGone(view(1, json!({}))),
        _ => panic!("{line}"),
    }
}

/// Events, each with the decisions that follow.
type Script<'a> = &'a [(&'a [&'a str], &'a [&'a str])];

fn play(core: &mut Core, script: Script<'_>) {
    for (events, wanted) in script {
        events.iter().for_each(|line| core.handle(event(line), LATER));
        let expand = |line: &&str| {
            line.replace("TAKEN", TAKEN_BACK).replace("MISALIGNED", MISALIGNED).replace("FULL", FULL)
        };
        assert_eq!(decide(core, LATER), wanted.iter().map(expand).collect::<Vec<_>>(), "after {events:?}");
        recount(core);
    }
}

#[test]
fn a_gang_is_placed_whole_or_not_at_all() {
    let scripts: [(&str, Script<'_>); 12] = [
        (
            "it fits",
            &[(
                &["group g 4", "pod a 4 g", "pod b 4 g", "pod c 4 g", "pod d 4 g"],
                &["a -> n", "b -> n", "c -> n", "d -> n", "g: Scheduled"],
            )],
        ),
        (
            "the totals fit, and the zones do not",
            &[
                (
                    &["group g 3", "pod a 5 g", "pod b 5 g", "pod c 5 g"],
                    &["a: TAKEN", "b: TAKEN", "c: MISALIGNED", "g: Unschedulable"],
                ),
                (&["pod s 8"], &["s -> n"]),
            ],
        ),
        (
            "more pods than it needs",
            &[
                (
                    &["group g 2", "pod a 5 g", "pod b 5 g", "pod c 5 g"],
                    &["a -> n", "b -> n", "c: MISALIGNED", "g: Scheduled"],
                ),
                (&["on n a 5 g"], &[]),
                (&["gone n a 5 g"], &["c -> n"]),
            ],
        ),
        (
            "the group comes last",
            &[
                (&["pod a 8 g", "pod b 8 g"], &[]),
                (&["pod s 2", "on n s 2", "gone n s 2"], &[]),
                (&["group g 2"], &["a -> n", "b -> n", "g: Scheduled"]),
            ],
        ),
        (
            "too few pods exist",
            &[
                (&["group g 3", "pod a 4 g", "pod b 4 g"], &[]),
                (&["pod s 2"], &["s -> n"]),
                (&["pod c 4 g"], &["a -> n", "b -> n", "c -> n", "g: Scheduled"]),
            ],
        ),
        (
            "two gangs that only fit one after the other",
            &[
                (
                    &["group g 2", "group h 2", "pod g1 8 g", "pod h1 8 h", "pod g2 8 g", "pod h2 8 h"],
                    &["g1 -> n", "g2 -> n", "g: Scheduled", "h1: FULL", "h2: FULL", "h: Unschedulable"],
                ),
                (&["on n g1 8 g", "on n g2 8 g"], &[]),
                (&["gone n g1 8 g"], &["h1: TAKEN", "h2: FULL"]),
                (&["gone n g2 8 g"], &["h1 -> n", "h2 -> n", "h: Scheduled"]),
            ],
        ),
        (
            "a pod is deleted while the gang waits",
            &[
                (&["on n s 8", "group g 2"], &[]),
                (
                    &["pod a 8 g", "pod b 8 g", "pod c 8 g"],
                    &["a: TAKEN", "b: FULL", "c: FULL", "g: Unschedulable"],
                ),
                (&["delete b 8 g"], &["a: TAKEN", "c: FULL"]),
                (&["delete c 8 g"], &[]),
                (&["gone n s 8"], &[]),
                (&["pod d 8 g"], &["a -> n", "d -> n", "g: Scheduled"]),
            ],
        ),
        (
            "a leader ended between two bindings",
            &[(&["group g 2", "on n a 8 g", "pod s 8", "pod b 8 g"], &["b -> n", "g: Scheduled", "s: FULL"])],
        ),
        (
            "small pods come and go beside it",
            &[
                (&["on n s1 1", "on n s2 1", "group g 2"], &[]),
                (&["pod a 8 g", "pod b 8 g"], &["a: TAKEN", "b: FULL", "g: Unschedulable"]),
                (&["pod s3 1", "pod s4 1"], &["s3 -> n", "s4 -> n"]),
                (&["on n s3 1", "on n s4 1"], &[]),
                (&["gone n s3 1"], &[]),
                (&["gone n s4 1", "gone n s1 1"], &[]),
                (&["gone n s2 1"], &["a -> n", "b -> n", "g: Scheduled"]),
            ],
        ),
        (
            "another policy",
            &[
                (&["pod a 8 g", "pod b 8 g", "pod c 8 g"], &[]),
                (&["basic g"], &["a -> n", "g: Scheduled", "b -> n", "c: FULL"]),
            ],
        ),
        (
            "the group goes, and comes back with another number",
            &[
                (
                    &["on n s 8", "group g 2", "pod a 8 g", "pod b 8 g"],
                    &["a: TAKEN", "b: FULL", "g: Unschedulable"],
                ),
                (&["nogroup g"], &[]),
                (&["gone n s 8"], &[]),
                (&["group g 1", "pod t 8"], &["a -> n", "b -> n", "g: Scheduled", "t: FULL"]),
            ],
        ),
        (
            "pods of several schedulers",
            &[(
                &["group g 2", "pod a 4 g", r#"pod b 4 g {"spec":{"schedulerName":"blind"}}"#],
                &[
                    "a: all pods in a single pod group should have the same .spec.schedulerName set, got: \"numa\" and \"blind\"",
                    "b: all pods in a single pod group should have the same .spec.schedulerName set, got: \"numa\" and \"blind\"",
                ],
            )],
        ),
    ];
    for (name, script) in scripts {
        let mut core = core(&["n"]);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(&mut core, script)))
            .unwrap_or_else(|_| panic!("{name}"));
    }
}

/// Without the plugin a group means nothing.
#[test]
fn a_profile_without_the_plugin_places_pods_one_by_one() {
    let mut core = core_with(&["n"], |plugins| plugins.gang_scheduling = false);
    play(
        &mut core,
        &[(&["group g 3", "pod a 8 g", "pod b 8 g", "pod c 8 g"], &["a -> n", "b -> n", "c: FULL"])],
    );
    assert_eq!(core.gated(), 0);
}

#[test]
fn pods_held_back_are_counted_and_so_are_those_that_follow() {
    let mut core = core(&["n"]);
    play(&mut core, &[(&["pod a 8 g", "pod b 8 g", "pod c 8 g"], &[])]);
    assert_eq!((core.gated(), core.queue_lengths()), (3, (0, 0, 0)));
    play(&mut core, &[(&["group g 3"], &["a: TAKEN", "b: TAKEN", "c: FULL", "g: Unschedulable"])]);
    assert_eq!((core.gated(), core.queue_lengths()), (0, (0, 0, 3)));
    play(&mut core, &[(&["delete c 8 g"], &[])]);
    assert_eq!((core.gated(), core.queue_lengths()), (2, (0, 0, 0)));
}

/// The other pods of the gang stay where they are, and the one that failed comes before more important pods.
#[test]
fn a_pod_whose_binding_failed_is_retried_first() {
    let mut core = core(&["n"]);
    core.handle(group("g", Some(2)), LATER);
    for name in ["a", "b"] {
        core.handle(Event::Pod(member(name, "g", 8, json!({}))), LATER);
    }
    let Some(Decision::Bind(first)) = core.next(LATER) else { panic!() };
    assert_eq!(decide(&mut core, LATER), ["b -> n", "g: Scheduled"]);
    core.handle(Event::BindFailed(first.id), LATER);
    let more = json!({"spec": {"priority": 1000, "preemptionPolicy": "Never"}});
    core.handle(Event::Pod(pod("high", 8, more)), LATER + 1_000);
    assert_eq!(decide(&mut core, LATER + 1_000), ["a -> n", format!("high: {FULL}").as_str()]);
}

#[test]
fn priority_and_then_age_order_the_pods_of_a_gang() {
    let mut core = core(&["n"]);
    play(
        &mut core,
        &[
            (&["pod a 4 g", "pod b 4 g", r#"pod c 4 g {"spec":{"priority":7}}"#], &[]),
            (&["group g 3"], &["c -> n", "a -> n", "b -> n", "g: Scheduled"]),
        ],
    );
}

/// An event that cannot help costs a waiting gang no attempt: the pod that was refused fits on the node, and not beside
/// those that were placed there.
#[test]
fn a_change_that_cannot_help_causes_no_attempt() {
    let mut core = core(&["n"]);
    let attempts = |core: &Core| {
        let views = core.pods.iter().filter(|(_, entry)| entry.view.group.is_some());
        views.map(|(id, _)| core.queue.attempts(*id).0).sum::<u32>()
    };
    play(
        &mut core,
        &[
            (&["on n s 1", "on n t 2"], &[]),
            (
                &["group g 3", "pod a 5 g", "pod b 5 g", "pod c 5 g"],
                &["a: TAKEN", "b: TAKEN", "c: FULL", "g: Unschedulable"],
            ),
        ],
    );
    assert_eq!(attempts(&core), 3);
    core.handle(event("gone n s 1"), LATER);
    core.handle(event("gone n t 2"), LATER);
    assert_eq!(decide(&mut core, LATER), [""; 0]);
    assert_eq!(attempts(&core), 3);
    core.handle(Event::Node(node("m")), LATER);
    core.handle(Event::Report("m".into(), report([8, 8], &[])), LATER);
    assert_eq!(decide(&mut core, LATER).len(), 4, "three bindings and a condition");
    assert_eq!(attempts(&core), 6);
}

/// Pods refused for different reasons wait each for its own.
#[test]
fn any_refused_pod_wakes_the_gang() {
    let zone = |zone: &str| format!(r#"{{"spec":{{"nodeSelector":{{"zone":"{zone}"}}}}}}"#);
    for helpful in ["m", "k"] {
        let mut core = core(&["n"]);
        let [a, b, c] =
            [("a", "n"), ("b", "m"), ("c", "k")].map(|(name, at)| format!("pod {name} 8 g {}", zone(at)));
        for line in ["group g 2", &a, &b, &c] {
            core.handle(event(line), LATER);
        }
        assert_eq!(decide(&mut core, LATER).len(), 4);
        core.handle(Event::Node(node(helpful)), LATER);
        core.handle(Event::Report(helpful.into(), report([8, 8], &[])), LATER);
        let decisions = decide(&mut core, LATER);
        assert_eq!(decisions.iter().filter(|line| line.contains("->")).count(), 2, "{decisions:?}");
    }
}

/// A gang evicts nothing, and no node is held for it.
#[test]
fn a_gang_evicts_nothing() {
    let mut core = core(&["n"]);
    let high = r#"{"spec":{"priority":9}}"#;
    play(
        &mut core,
        &[
            (&["on n s 8", "on n t 8", "group g 2"], &[]),
            (
                &[&format!("pod a 8 g {high}"), &format!("pod b 8 g {high}")],
                &["a: FULL", "b: FULL", "g: Unschedulable"],
            ),
        ],
    );
    assert_eq!(decide(&mut core, LATER + 120_000), [""; 0]);
    assert!(core.held().is_none());
}

/// Devices that pods of a gang were to get are free again, and nothing is written of them.
#[test]
fn claims_are_written_once_the_gang_is_placed() {
    use super::claims::{claim, class, slice};
    let mut core = core(&["n"]);
    let with_claim = |name: &str, group: &str| {
        let claims = json!([{"name": "c", "resourceClaimName": format!("c-{name}")}]);
        Event::Pod(member(name, group, 1, json!({"spec": {"resourceClaims": claims}})))
    };
    core.handle(class(), LATER);
    core.handle(slice("n", 1, json!({})), LATER);
    core.handle(group("g", Some(2)), LATER);
    for name in ["a", "b"] {
        core.handle(claim(&format!("c-{name}"), 1, json!({})), LATER);
        core.handle(with_claim(name, "g"), LATER);
    }
    let decisions = decide(&mut core, LATER);
    assert_eq!(decisions[0], format!("a: {TAKEN_BACK}"));
    assert!(
        decisions[1].starts_with("b: 0/1 nodes are available: 1 cannot allocate all claims"),
        "{decisions:?}"
    );
    assert!(core.waits.is_empty());
    core.handle(slice("n", 2, json!({})), LATER);
    let reserved: Vec<String> = std::iter::from_fn(|| core.next(LATER))
        .filter_map(|decision| match decision {
            Decision::ReserveClaims(reserve) => Some(reserve.binding.pod.name.to_string()),
            Decision::SetGroupCondition(_) | Decision::NoteRejection(_) | Decision::Withdraw(_) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reserved, ["a", "b"]);
}

// === any order of events ===

const PODS: usize = 14;
/// CPUs of the pods of each group; those of the last number are in none.
const CPUS: [i64; 4] = [3, 5, 8, 2];

#[derive(Clone, Debug)]
enum GangStep {
    Group(usize, usize),
    GroupGone(usize),
    Create(usize, usize),
    Decide,
    Run(usize),
    End(usize),
    Delete(usize),
    FailBind(usize),
    Node(usize),
    NodeGone(usize),
    /// Another leader starts: of the bindings that are not confirmed, those of this mask were stored; where they are
    /// stored in order, the first ones of each node, as many as its byte has bits.
    Restart(u32),
    Wait(u64),
}

fn gang_step() -> impl Strategy<Value = GangStep> {
    let (pods, groups, nodes) = (0..PODS, 0..3_usize, 0..3_usize);
    prop_oneof![
        3 => (groups.clone(), 1..5_usize).prop_map(|(group, min)| GangStep::Group(group, min)),
        1 => groups.prop_map(GangStep::GroupGone),
        10 => (pods.clone(), 0..CPUS.len()).prop_map(|(pod, group)| GangStep::Create(pod, group)),
        6 => Just(GangStep::Decide),
        4 => pods.clone().prop_map(GangStep::Run),
        3 => pods.clone().prop_map(GangStep::End),
        1 => pods.clone().prop_map(GangStep::Delete),
        1 => pods.prop_map(GangStep::FailBind),
        2 => nodes.clone().prop_map(GangStep::Node),
        1 => nodes.prop_map(GangStep::NodeGone),
        1 => any::<u32>().prop_map(GangStep::Restart),
        1 => (0..5_000_u64).prop_map(GangStep::Wait),
    ]
}

#[derive(Clone, Debug)]
struct Known {
    group: usize,
    node: Option<String>,
    /// The number of bindings before its own.
    order: usize,
    /// The binding that is not confirmed.
    binding: Option<PodId>,
    is_running: bool,
}

#[derive(Default)]
struct GangWorld {
    /// Whether the API server stores the bindings to a node in the order of the decisions, as our outbox sends them.
    stores_in_order: bool,
    /// Whether a pod has ended. What is left is not where a kubelet would put it by now, and the reports do not tell.
    has_ended: bool,
    bindings: usize,
    groups: BTreeMap<usize, usize>,
    pods: BTreeMap<usize, Known>,
    nodes: BTreeSet<usize>,
    now: u64,
}

impl GangWorld {
    fn view(&self, at: usize, more: Value) -> Option<PodView> {
        let group = self.pods.get(&at)?.group;
        let mut more = more;
        if group < 3 {
            merge(&mut more, in_group(&format!("g{group}")));
        }
        // Pods keep their age after a restart.
        Some(PodView { created_s: at as u64, ..pod(&format!("p{at}"), CPUS[group], more) })
    }

    fn node(core: &mut Core, at: usize, now: u64) {
        let name = format!("n{at}");
        core.handle(Event::Node(node(&name)), now);
        core.handle(Event::Report(name.as_str().into(), report([8, 8], &[])), now);
    }

    fn group(&self, at: usize) -> Event {
        group(&format!("g{at}"), self.groups.get(&at).copied())
    }

    fn apply(&mut self, core: &mut Core, step: &GangStep) {
        let now = LATER + self.now;
        match step {
            GangStep::Group(at, min) => {
                self.groups.entry(*at).or_insert(*min);
                core.handle(self.group(*at), now);
            }
            GangStep::GroupGone(at) => {
                self.groups.remove(at);
                core.handle(Event::PodGroupGone("ns".into(), format!("g{at}").into()), now);
            }
            GangStep::Create(at, group) if !self.pods.contains_key(at) => {
                let known = Known { group: *group, node: None, order: 0, binding: None, is_running: false };
                self.pods.insert(*at, known);
                core.handle(Event::Pod(self.view(*at, json!({})).unwrap()), now);
            }
            GangStep::Create(..) => {}
            GangStep::Decide => self.decide(core),
            GangStep::Run(at) => {
                let Some(known) = self.pods.get_mut(at) else { return };
                let Some(node) = known.node.clone() else { return };
                (known.binding, known.is_running) = (None, true);
                core.handle(Event::Pod(self.view(*at, running(&node)).unwrap()), now);
            }
            GangStep::End(at) => {
                let Some(node) = self.pods.get(at).filter(|it| it.is_running).and_then(|it| it.node.clone())
                else {
                    return;
                };
                core.handle(Event::PodGone(self.view(*at, ended(&node)).unwrap()), now);
                self.pods.remove(at);
                self.has_ended = true;
            }
            GangStep::Delete(at) => {
                if self.pods.get(at).is_some_and(|known| known.node.is_none()) {
                    core.handle(Event::PodGone(self.view(*at, json!({})).unwrap()), now);
                    self.pods.remove(at);
                }
            }
            GangStep::FailBind(at) => {
                let Some(known) = self.pods.get_mut(at) else { return };
                let Some(id) = known.binding.take() else { return };
                known.node = None;
                core.handle(Event::BindFailed(id), now);
            }
            GangStep::Node(at) => {
                if self.nodes.insert(*at) {
                    Self::node(core, *at, now);
                }
            }
            GangStep::NodeGone(at) => {
                let name = format!("n{at}");
                if self.pods.values().all(|known| known.node.as_ref() != Some(&name)) && self.nodes.remove(at)
                {
                    core.handle(Event::NodeGone(name.as_str().into()), now);
                    core.handle(Event::ReportGone(name.as_str().into()), now);
                }
            }
            GangStep::Restart(stored) => self.restart(core, *stored),
            GangStep::Wait(ms) => self.now += ms,
        }
    }

    fn restart(&mut self, core: &mut Core, stored: u32) {
        let now = LATER + self.now;
        let least = |group: &usize| self.groups.get(group).copied().unwrap_or(usize::MAX);
        let whole: Vec<usize> = (0..3).filter(|group| self.placed(core, *group) >= least(group)).collect();
        *core = self::core(&[]);
        self.nodes.iter().for_each(|at| Self::node(core, *at, now));
        self.groups.keys().for_each(|at| core.handle(self.group(*at), now));
        self.lose_bindings(stored);
        // Pods are told in the order of their versions.
        let mut told: Vec<(usize, &Known)> = self.pods.iter().map(|(at, known)| (*at, known)).collect();
        told.sort_by_key(|(_, known)| known.order);
        for (at, known) in told {
            let more = match (&known.node, known.is_running) {
                (Some(node), true) => running(node),
                (Some(node), false) => on(node),
                (None, _) => json!({}),
            };
            core.handle(Event::Pod(self.view(at, more).unwrap()), now);
        }
        if self.stores_in_order && !self.has_ended {
            let is_part = |group: &usize| (1..self.groups[group]).contains(&self.placed(core, *group));
            let in_part: Vec<usize> = whole.into_iter().filter(is_part).collect();
            self.decide(core);
            for group in in_part {
                let (placed, least) = (self.placed(core, group), self.groups[&group]);
                assert!(placed >= least, "g{group} has {placed} of {least} pods on nodes after a restart");
            }
        }
    }

    /// Confirms the bindings that were stored, and forgets the others.
    fn lose_bindings(&mut self, stored: u32) {
        let mut open: Vec<(usize, &mut Known)> = self
            .pods
            .iter_mut()
            .filter(|(_, known)| known.binding.is_some())
            .map(|(at, it)| (*at, it))
            .collect();
        open.sort_by_key(|(_, known)| known.order);
        let mut before: BTreeMap<String, u32> = BTreeMap::new();
        for (at, known) in open {
            let node = known.node.clone().unwrap();
            let byte = stored >> (8 * node[1..].parse::<u32>().unwrap()) & 0xff;
            let place = before.entry(node).or_default();
            let is_stored =
                if self.stores_in_order { *place < byte.count_ones() } else { stored >> at & 1 == 1 };
            *place += 1;
            known.binding = None;
            known.node = known.node.take().filter(|_| is_stored);
        }
    }

    /// The pods of a gang that are on nodes, as the core sees them; 0 for what is no gang.
    fn placed(&self, core: &Core, group: usize) -> usize {
        let name = format!("g{group}");
        let is_placed = |entry: &Entry| {
            entry.view.group.as_deref() == Some(name.as_str())
                && matches!(entry.lifecycle, Lifecycle::Assumed { .. } | Lifecycle::Bound { .. })
        };
        core.pods.values().filter(|entry| is_placed(entry)).count()
    }

    /// Takes all decisions. None leaves a gang with more pods on nodes than before, and fewer than it needs.
    fn decide(&mut self, core: &mut Core) {
        let now = LATER + self.now;
        for decisions in 0.. {
            assert!(decisions < 1_000, "decisions without end");
            let before: Vec<usize> = (0..3).map(|group| self.placed(core, group)).collect();
            let Some(decision) = core.next(now) else { break };
            for (group, before) in before.into_iter().enumerate() {
                let placed = self.placed(core, group);
                let is_enough = self.groups.get(&group).is_some_and(|min| placed >= *min);
                assert!(placed <= before || is_enough, "g{group} has {placed} pods on nodes: {decision:?}");
            }
            let Decision::Bind(binding) = decision else { continue };
            let at: usize = binding.pod.name[1..].parse().unwrap();
            let known = self.pods.get_mut(&at).unwrap();
            (known.node, known.binding) = (Some(binding.node.to_string()), Some(binding.id));
            known.order = self.bindings;
            self.bindings += 1;
        }
    }

    /// Takes all decisions, and kubelets see all bindings. While one has not, an older pod may be seen before it and
    /// take its zone; whether a gang of older pods finds the nodes where none does is up to ties.
    fn settle(&mut self, core: &mut Core) {
        loop {
            self.decide(core);
            let bound = self.pods.iter().filter(|(_, known)| known.binding.is_some());
            let bound: Vec<usize> = bound.map(|(at, _)| *at).collect();
            if bound.is_empty() {
                break;
            }
            bound.into_iter().for_each(|at| self.apply(core, &GangStep::Run(at)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_gang_is_placed_in_part(
        steps in prop::collection::vec(gang_step(), 1..100),
        stores_in_order in any::<bool>(),
    ) {
        let mut core = core(&["n0", "n1"]);
        let mut world = GangWorld { stores_in_order, nodes: [0, 1].into(), ..GangWorld::default() };
        for step in &steps {
            world.apply(&mut core, step);
            recount(&core);
        }
        // Nothing that fits is left waiting for more than five minutes: an attempt at all of them changes nothing.
        world.settle(&mut core);
        world.now += crate::config::MAX_WAIT_MS;
        world.settle(&mut core);
        let bound = |world: &GangWorld| world.pods.values().filter(|known| known.node.is_some()).count();
        let before = bound(&world);
        core.groups.renew();
        core.pods.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| core.queue.resume(id));
        world.settle(&mut core);
        prop_assert_eq!(bound(&world), before);
    }
}
