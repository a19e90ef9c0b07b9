//! Reports by ids: the ledger says what the kubelet's model does, for every policy and option.

use topology::kubelet::device_manager::{Device, DeviceIds, Lowest, Preference, Resource};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::machine::{Cpu, Machine, MachineZone};
use topology::kubelet::pod::{Container, Pod};
use topology::kubelet::profile::{CpuManager, CpuOptions, KubeletProfile, MemoryManager, ReservedCpus};
use topology::kubelet::report::{KubeletReport, ReportedPod};
use topology::kubelet::{self, Kubelet, NodeState};
use topology::placement::holdings::HashKey;
use topology::policy::CpuOption;
use topology::request::{ContainerRequest, PodRequest};

use super::*;

mod late_pods;
mod releases;

const NIC: &str = "vendor.com/nic";
/// More than a pod that shows nothing is charged for.
const MAX_REPORTS: usize = 4;
const POLICIES: [Policy; 4] = [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode];
const OPTIONS: [&[CpuOption]; 3] = [&[], &[CpuOption::FullPcpusOnly], &[CpuOption::DistributeAcrossNuma]];

/// A kubelet of the model, with the ledger of its node.
struct Node {
    kubelet: Kubelet,
    state: NodeState,
    pods: Vec<BoundPod>,
    key: HashKey,
    ledger: Ledger,
    scratch: Scratch,
}

/// Two zones of four cores with two threads each; CPU 0 is reserved.
fn node(policy: Policy, scope: Scope, options: &[CpuOption], key: HashKey) -> Node {
    let cpu = |id| Cpu { id, core: id % 8, socket: id % 8 / 4, zone: id % 8 / 4, cache: id % 8 / 4 };
    let zone = |id| MachineZone { id, memory: 1 << 30, ..MachineZone::default() };
    let machine = Machine::new(vec![zone(0), zone(1)], &(0..16).map(cpu).collect::<Vec<_>>()).unwrap();
    let options: CpuOptions = options.iter().copied().collect();
    let profile = KubeletProfile {
        policy,
        scope,
        cpu_manager: CpuManager::Static { options, reserved: ReservedCpus::Count(1) },
        memory_manager: MemoryManager::Static {
            reserved: [0, 1].map(|zone| (zone, ResourceName::MEMORY, 1 << 20)).to_vec(),
        },
        ..KubeletProfile::default()
    };
    let kubelet = Kubelet::new(Arc::new(machine), profile).unwrap();
    let mut state = kubelet.empty_state();
    let device = |zone| Device { zones: Some(ZoneMask::of(zone)), healthy: true };
    let devices = (0..4_u32).map(|at| (format!("nic-{at}").into(), device(at / 2))).collect();
    let nics = Resource { devices, preference: Preference::First };
    state.devices.resources.insert(ResourceName::new(NIC).unwrap(), nics);
    let (ledger, scratch) = (Ledger::default(), Scratch::default());
    let mut node = Node { kubelet, state, pods: Vec::new(), key, ledger, scratch };
    node.report();
    node
}

/// A pod of containers: kind, CPUs, MiB, devices.
fn pod(id: u64, containers: &[(ContainerKind, u32, u32, u32)]) -> BoundPod {
    let container = |(at, (kind, cpus, mib, nics)): (usize, &(ContainerKind, u32, u32, u32))| {
        let mut amounts = vec![
            (ResourceName::CPU, cpus.to_string().parse().unwrap()),
            (ResourceName::MEMORY, format!("{mib}Mi").parse().unwrap()),
        ];
        amounts.extend(
            (*nics > 0).then(|| (ResourceName::new(NIC).unwrap(), nics.to_string().parse().unwrap())),
        );
        ContainerRequest {
            name: format!("c{at}").into(),
            kind: *kind,
            requests: amounts.clone(),
            limits: amounts,
        }
    };
    let request = PodRequest {
        containers: containers.iter().enumerate().map(container).collect(),
        ..PodRequest::default()
    };
    let name = format!("p{id}");
    BoundPod {
        id: PodId(id),
        names: PodNames {
            uid: format!("uid-{id}").into(),
            namespace: "ns".into(),
            name: name.as_str().into(),
        },
        hash: PodHash::of("ns", &name),
        needs: Arc::new(request.needs()),
        finishes: false,
        created_s: id,
    }
}

fn app(id: u64, cpus: u32) -> BoundPod {
    pod(id, &[(ContainerKind::App, cpus, 64, 0)])
}

impl Node {
    /// The pod as the kubelet knows it.
    fn asked(pod: &BoundPod) -> Pod {
        Pod { uid: Arc::clone(&pod.names.uid), ..Pod::clone(&pod.needs.pod) }
    }

    fn would_admit(&self, pod: &BoundPod) -> bool {
        kubelet::admit(&self.kubelet, &mut self.state.clone(), &Self::asked(pod), &Lowest).is_ok()
    }

    fn fits(&mut self, pod: &BoundPod) -> bool {
        self.ledger.check((&pod.needs, u64::MAX), &mut self.scratch).is_ok()
    }

    fn bind(&mut self, pod: &BoundPod) {
        self.ledger.bound(pod, &mut self.scratch);
    }

    fn admit(&mut self, pod: &BoundPod) {
        kubelet::admit(&self.kubelet, &mut self.state, &Self::asked(pod), &Lowest).unwrap();
        self.ledger.admitted(pod.id, &mut self.scratch);
        self.ledger.initialized(pod.id);
        self.pods.push(pod.clone());
    }

    fn run(&mut self, pod: &BoundPod) {
        self.bind(pod);
        self.admit(pod);
    }

    fn release(&mut self, at: usize) {
        let pod = self.pods.remove(at);
        self.state.remove(&pod.names.uid);
        self.state.sweep();
        self.ledger.released(pod.id, &mut self.scratch);
    }

    /// Devices that podresources shows as held.
    fn shown_devices(&self, name: ResourceName) -> DeviceIds {
        let containers = self.pods.iter().flat_map(|pod| {
            let shown = |it: &&Container| self.key == HashKey::Uid || it.kind != ContainerKind::Init;
            pod.needs.pod.containers.iter().filter(shown).map(|it| (&pod.names.uid, &it.name))
        });
        let held = containers.filter_map(|(uid, container)| self.state.devices.held(uid, container, name));
        held.flatten().cloned().collect()
    }

    fn published(&self) -> NodeTopology {
        let counts = &self.state.memory.counts;
        let zones = [0_u32, 1].map(|id| {
            let zone = ZoneMask::of(id);
            let in_zone = |cpus: Option<topology::cpuset::CpuSet>| {
                let all = self.kubelet.machine().cpus_of(zone);
                i64::try_from(all.count_shared(&cpus.unwrap())).unwrap() * 1_000
            };
            let (allocatable, available) = (
                in_zone(self.kubelet.free_cpus(&self.kubelet.empty_state())),
                in_zone(self.kubelet.free_cpus(&self.state)),
            );
            let nic = ResourceName::new(NIC).unwrap();
            let used = self.shown_devices(nic);
            let free = (2 * id..2 * id + 2).filter(|at| !used.contains(&*format!("nic-{at}"))).count();
            let memory = i64::try_from(counts.free(zone, ResourceName::MEMORY)).unwrap();
            let of = |name, capacity, allocatable, available| ZoneResource {
                name,
                capacity,
                allocatable,
                available,
            };
            let resources = vec![
                of(ResourceName::CPU, 8_000, allocatable, available),
                of(ResourceName::MEMORY, 1 << 30, (1 << 30) - (1 << 20), memory),
                of(nic, 2, 2, i64::try_from(free).unwrap()),
            ];
            Zone { id: ZoneId(id), resources, distances: vec![] }
        });
        let names: Vec<_> = self.pods.iter().map(|pod| pod.names.clone()).collect();
        let pods = self.pods.iter().zip(&names).map(|(pod, names)| ReportedPod {
            key: &names.uid,
            uid: &names.uid,
            namespace: &names.namespace,
            name: &names.name,
            containers: &pod.needs.pod.containers,
        });
        let profile = self.kubelet.profile();
        NodeTopology {
            rules: Rules {
                policy: profile.policy,
                scope: profile.scope,
                cpu_manager: Manager::Static,
                memory_manager: Manager::Static,
            },
            zones: zones.into(),
            threads_per_core: Some(2),
            kubelet: Some(Box::new(KubeletReport::of(&self.kubelet, &self.state, self.key, pods))),
            ..NodeTopology::default()
        }
    }

    /// A report comes. Returns whether it is news; if not, no verdict is another one.
    fn report(&mut self) -> bool {
        let before = self.verdicts();
        let is_news = self.ledger.report(Arc::new(self.published()), &mut self.scratch);
        assert!(is_news || before == self.verdicts());
        is_news
    }

    /// Fails if a report has contradicted the ledger.
    fn expect_no_surprise(&mut self) {
        let surprises = (self.ledger.summary().corrections, self.ledger.take_drift());
        assert_eq!(surprises, (0, None), "{:#?}", self.ledger);
    }

    /// Which pods of one and of two containers fit.
    fn verdicts(&mut self) -> Vec<bool> {
        let sizes = (1..=8).flat_map(|cpus| (0..=2).map(move |nics| (ContainerKind::App, cpus, 64, nics)));
        let pods =
            sizes.flat_map(|size| [pod(99, &[size]), pod(99, &[size, (ContainerKind::App, 2, 600, 0)])]);
        pods.map(|pod| self.fits(&pod)).collect()
    }

    /// The scheduler starts anew beside what runs.
    fn restart_scheduler(&mut self) {
        self.ledger = Ledger::default();
        for pod in self.pods.clone() {
            self.bind(&pod);
            self.ledger.admitted(pod.id, &mut self.scratch);
            self.ledger.initialized(pod.id);
        }
        self.report();
    }
}

#[test]
fn pods_over_several_zones_are_placed_before_a_report_shows_them() {
    let mut node = node(Policy::Restricted, Scope::Container, &[], HashKey::Uid);
    let wide = pod(1, &[(ContainerKind::App, 10, 1_200, 0)]);
    assert!(node.fits(&wide));
    node.bind(&wide);
    // 5 CPUs are left: which zone they are in decides, and memory of both zones goes together no longer.
    let sizes: Vec<u32> = (1..=6).filter(|cpus| node.fits(&app(2, *cpus))).collect();
    node.admit(&wide);
    let admitted: Vec<u32> = (1..=6).filter(|cpus| node.would_admit(&app(2, *cpus))).collect();
    assert_eq!(sizes, admitted);
    node.report();
    assert_eq!(node.ledger.summary().corrections, 0, "the report shows what was expected");
}

#[test]
fn an_expected_report_is_no_news() {
    for key in [HashKey::Uid, HashKey::Name] {
        let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], key);
        let (own, foreign) = (app(1, 3), app(2, 4));
        node.run(&own);
        assert_eq!((node.report(), node.report()), (false, false), "{key:?}");
        kubelet::admit(&node.kubelet, &mut node.state, &Node::asked(&foreign), &Lowest).unwrap();
        node.pods.push(foreign.clone());
        assert!(node.report(), "{key:?}: a pod that is not known holds CPUs");
        assert!(!node.report());
        node.bind(&foreign);
        assert_eq!(node.report(), key == HashKey::Name, "{key:?}: it is charged once");
        node.ledger.admitted(foreign.id, &mut node.scratch);
        node.release(0);
        assert!(!node.report(), "{key:?}: it has left, as its status said");
    }
}

#[test]
fn whole_cores_are_counted_as_the_kubelet_does() {
    let mut node = node(Policy::BestEffort, Scope::Container, &[CpuOption::FullPcpusOnly], HashKey::Uid);
    assert!(!node.fits(&app(1, 3)), "SMTAlignmentError: not a multiple of a core's threads");
    for (id, fits) in [(1, true), (2, true), (3, false)] {
        let pod = app(id, 6);
        assert_eq!((node.fits(&pod), node.would_admit(&pod)), (fits, fits), "pod {id}");
        if fits {
            node.run(&pod);
        }
    }
}

#[test]
fn a_restarted_scheduler_knows_what_finished_init_containers_hold() {
    let containers = [(ContainerKind::Init, 5, 64, 0), (ContainerKind::App, 2, 64, 0)];
    for key in [HashKey::Uid, HashKey::Name] {
        let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], key);
        let first = pod(1, &containers);
        node.run(&first);
        node.restart_scheduler();
        let fitting = |node: &mut Node| (1..=8).filter(|cpus| node.fits(&app(2, *cpus))).max();
        assert_eq!(fitting(&mut node), Some(8), "{key:?}: zone 1 is free");
        let second = app(2, 8);
        node.run(&second);
        node.report();
        let kubelet_has = (1..=8).filter(|cpus| node.would_admit(&app(3, *cpus))).max();
        let held = fitting(&mut node);
        match key {
            HashKey::Uid => assert_eq!(held, kubelet_has),
            // The report does not show them: a bound.
            HashKey::Name => assert!(held <= kubelet_has, "{held:?} {kubelet_has:?}"),
        }
    }
}

/// Reports by names cannot tell a pod from its successor of the same name.
#[test]
fn a_late_report_of_the_former_pod_does_not_move_its_namesake() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Name);
    let (former, filler) = (app(1, 6), app(2, 7));
    for pod in [&former, &filler] {
        node.run(pod);
    }
    node.report();
    let late = node.published();
    node.release(0);
    // Zone 0 is too small for the next one now.
    let small = app(3, 4);
    node.run(&small);
    let mut anew = app(4, 1);
    (anew.names.name, anew.hash) = (former.names.name.clone(), former.hash);
    node.bind(&anew);
    let free = |node: &mut Node| (1..=8).filter(|cpus| node.fits(&app(9, *cpus))).max();
    let before = free(&mut node);
    node.ledger.report(Arc::new(late), &mut node.scratch);
    assert_eq!((free(&mut node), node.ledger.summary().corrections), (before, 0));
    node.admit(&anew);
    for _ in 0..2 * MAX_REPORTS {
        node.report();
        assert_eq!((free(&mut node), node.ledger.summary().corrections), (before, 0));
    }
}

#[test]
fn a_report_in_the_middle_of_an_admission_is_left_out() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let two = pod(1, &[(ContainerKind::App, 2, 64, 0), (ContainerKind::App, 4, 64, 0)]);
    node.bind(&two);
    let before = node.published();
    node.admit(&two);
    let mut half = node.published();
    let containers = &two.needs.pod.containers[..1];
    let (uid, namespace, name) = ("uid-1", "ns", "p1");
    let partly = ReportedPod { key: uid, uid, namespace, name, containers };
    half.kubelet = Some(Box::new(KubeletReport::of(&node.kubelet, &node.state, node.key, [partly])));
    for report in [before, half] {
        node.ledger.report(Arc::new(report), &mut node.scratch);
        assert_eq!(node.ledger.summary().corrections, 0);
        assert!(!node.fits(&app(2, 9)) && node.fits(&app(2, 8)), "zone 1 alone is free");
    }
}

/// The kubelet hands out memory after CPUs. A report between is of no use where no world has the pod there.
#[test]
fn a_report_in_the_middle_of_an_admission_elsewhere_is_left_out() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let (foreign, ours) = (app(1, 6), app(2, 4));
    node.bind(&ours);
    for pod in [&foreign, &ours] {
        kubelet::admit(&node.kubelet, &mut node.state, &Node::asked(pod), &Lowest).unwrap();
        node.pods.push(pod.clone());
    }
    node.ledger.admitted(ours.id, &mut node.scratch);
    node.release(0);
    let whole = node.state.clone();
    node.state.memory.pods.retain(|held| *held.uid != *ours.names.uid);
    for _ in 0..3 {
        node.report();
        assert_eq!(node.ledger.take_drift(), None);
    }
    let partial = node.ledger.clone();
    node.state = whole;
    node.report();
    assert!(node.ledger.take_drift().is_some_and(|drift| drift.detail.contains("reported c0 [4-")), "zone 1");
    assert!(!node.fits(&pod(3, &[(ContainerKind::App, 8, 990, 0)])), "zone 1 has the pod's memory");
    // One that stays is believed.
    node.state.memory.pods.clear();
    node.ledger = partial;
    node.report();
    assert!(node.ledger.take_drift().is_some());
}

/// The kubelet forgets the devices of a pod that ends before its CPUs, and those before its memory.
#[test]
fn a_report_in_the_middle_of_a_release_is_no_contradiction() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let (ends, stays) = (pod(1, &[(ContainerKind::App, 4, 64, 1)]), app(2, 2));
    for pod in [&ends, &stays] {
        node.run(pod);
    }
    node.report();
    node.ledger.leaving(ends.id, &mut node.scratch);
    let next = app(3, 3);
    node.bind(&next);
    let before = node.verdicts();
    node.state.devices.pods.retain(|held| *held.uid != *ends.names.uid);
    node.report();
    node.state.cpus.pods.retain(|held| *held.uid != *ends.names.uid);
    node.report();
    assert_eq!((node.ledger.take_drift(), node.verdicts()), (None, before));
    node.release(0);
    node.report();
    assert_eq!(node.ledger.take_drift(), None);
    assert!(node.fits(&app(4, 5)), "its CPUs are free");
}

/// The first pod moves to the lower zone, if the one that leaves is gone before. The second one's init container is
/// there as well then, and its other container, which has to follow, no longer fits.
#[test]
fn a_pod_on_its_way_may_be_rejected_once_another_leaves() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let leaves = app(1, 4);
    node.run(&leaves);
    node.report();
    let (first, second) =
        (app(2, 5), pod(3, &[(ContainerKind::Init, 2, 64, 0), (ContainerKind::App, 3, 64, 0)]));
    for pod in [&first, &second] {
        assert!(node.fits(pod));
        node.bind(pod);
    }
    let may_be_rejected = |node: &mut Node| {
        let rejected = node.ledger.may_be_rejected(&mut node.scratch);
        [&first, &second].map(|pod| rejected.contains(&pod.id))
    };
    assert_eq!(may_be_rejected(&mut node), [false, false]);
    node.ledger.leaving(leaves.id, &mut node.scratch);
    assert_eq!(may_be_rejected(&mut node), [false, true]);
    node.release(0);
    node.admit(&first);
    assert!(!node.would_admit(&second), "the kubelet rejects it");
}

#[test]
fn a_pod_that_holds_nothing_is_charged_for_some_reports_only() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    // The kubelet admitted it before it had the policy static.
    let odd = app(1, 6);
    node.bind(&odd);
    node.ledger.admitted(odd.id, &mut node.scratch);
    let fits: Vec<bool> = (0..4)
        .map(|_| {
            node.report();
            node.fits(&pod(2, &[(ContainerKind::App, 8, 64, 0)])) && node.fits(&app(3, 7))
        })
        .collect();
    assert_eq!(fits.last(), Some(&true), "{fits:?}");
}

#[test]
fn huge_pods_are_refused_and_nothing_overflows() {
    let amounts = |cpus: &str, memory: &str, nics: &str| {
        let amounts = [
            (ResourceName::CPU, cpus),
            (ResourceName::MEMORY, memory),
            (ResourceName::new(NIC).unwrap(), nics),
        ];
        amounts.map(|(name, amount)| (name, amount.parse().unwrap())).to_vec()
    };
    let sizes =
        [("9000000000000000", "64Mi", "1"), ("1", "8E", "1"), ("1", "64Mi", "9E"), ("1e30", "16E", "1e30")];
    for (policy, scope, options) in POLICIES.into_iter().flat_map(|policy| {
        [Scope::Container, Scope::Pod]
            .into_iter()
            .flat_map(move |scope| OPTIONS.map(|options| (policy, scope, options)))
    }) {
        let mut node = node(policy, scope, options, HashKey::Uid);
        for (id, (cpus, memory, nics)) in (1..).zip(sizes) {
            let container = |(at, kind)| {
                let requests = amounts(cpus, memory, nics);
                ContainerRequest { name: format!("c{at}").into(), kind, limits: requests.clone(), requests }
            };
            let kinds = [ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App, ContainerKind::App];
            let containers = kinds.into_iter().cycle().take(40).enumerate().map(container).collect();
            let needs = PodRequest { containers, ..PodRequest::default() }.needs();
            let pod = BoundPod { needs: Arc::new(needs), ..pod(id, &[]) };
            assert!(!node.fits(&pod), "{policy:?} {scope:?} {cpus} {memory} {nics}");
            // Another scheduler may bind it all the same.
            node.bind(&pod);
            node.report();
            assert!(!node.fits(&pod));
        }
    }
}

/// Zones of 7 and 8 CPUs. A pod that the ledger does not know takes the zone that it predicts for the next one.
#[test]
fn reports_judge_predictions() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let told = |node: &Node| {
        let summary = node.ledger.summary();
        (summary.predictions.right, summary.predictions.wrong, summary.in_doubt)
    };
    let (first, foreign, second) = (app(1, 3), app(2, 4), app(3, 4));
    node.run(&first);
    assert_eq!(told(&node), (0, 0, 0), "no report has told it");
    node.report();
    node.report();
    assert_eq!(told(&node), (1, 0, 0), "each pod counts once");
    node.admit(&foreign);
    node.run(&second);
    assert_eq!(node.ledger.take_drift(), None);
    node.report();
    assert_eq!(told(&node), (1, 1, 0));
    let drift = node.ledger.take_drift().unwrap();
    assert_eq!(drift.pods, std::slice::from_ref(&second.names), "the first pod is where it was");
    let text = drift.to_string();
    assert!(text.ends_with(&format!(" for ns/{}; the report counts", second.names.name)), "{text}");
    assert_eq!(node.ledger.take_drift(), None, "told once");
    node.restart_scheduler();
    assert_eq!(told(&node), (0, 0, 0), "nothing was predicted of pods that were there before");
}

/// Of two pods alike the kubelet has admitted the second first. Its report tells which is where, and is no surprise.
#[test]
fn a_report_tells_pods_alike_apart() {
    let mut node = node(Policy::SingleNumaNode, Scope::Pod, &[], HashKey::Uid);
    let pods = [1, 2].map(|id| BoundPod { created_s: 0, ..app(id, 5) });
    pods.iter().for_each(|pod| node.bind(pod));
    pods.iter().rev().for_each(|pod| node.admit(pod));
    node.report();
    node.expect_no_surprise();
    node.release(0);
    let next = app(3, 6);
    assert_eq!((node.ledger.summary().worlds, node.fits(&next)), (1, node.would_admit(&next)));
}

#[derive(Clone, Debug)]
enum Step {
    Pod(Vec<(ContainerKind, u32, u32, u32)>),
    /// A pod of another scheduler, which is seen only after a report that shows it.
    LatePod(Vec<(ContainerKind, u32, u32, u32)>),
    End(usize),
    Report,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App]);
    let container = |kind| (kind, 1..12_u32, prop_oneof![4 => Just(64_u32), 1 => Just(700)], 0..2_u32);
    // Every pod has an app container, the last.
    let last = container(Just(ContainerKind::App).boxed());
    let containers = (prop::collection::vec(container(kind.boxed()), 0..3), last);
    let containers = containers.prop_map(|(mut all, last)| {
        all.sort_by_key(|(kind, ..)| *kind == ContainerKind::App);
        all.push(last);
        all
    });
    prop_oneof![
        5 => containers.clone().prop_map(Step::Pod),
        1 => containers.prop_map(Step::LatePod),
        3 => (0..8_usize).prop_map(Step::End),
        3 => Just(Step::Report),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Nothing is on its way, so the answer is the kubelet's: with the kubelet's checkpoints always, without them where
    /// the scheduler saw the pods come. Where no policy keeps pods apart, groups of memory may be unclear.
    #[test]
    fn what_fits_is_what_the_kubelet_admits(
        policy in prop::sample::select(&POLICIES[..]),
        scope in prop::sample::select(vec![Scope::Container, Scope::Pod]),
        options in prop::sample::select(&OPTIONS[..]),
        key in prop::sample::select(vec![HashKey::Uid, HashKey::Name]),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut node = node(policy, scope, options, key);
        let mut is_exact = true;
        for (id, step) in (1..).zip(steps) {
            match step {
                Step::Pod(containers) => {
                    let pod = pod(id, &containers);
                    let (fits, admitted) = (node.fits(&pod), node.would_admit(&pod));
                    prop_assert!(admitted || !fits, "{:?} is rejected", containers);
                    if is_exact && policy.enforces() {
                        prop_assert_eq!(fits, admitted, "{:?}", containers);
                    }
                    if fits {
                        node.run(&pod);
                    }
                }
                Step::LatePod(containers) => {
                    let pod = pod(id, &containers);
                    if node.would_admit(&pod) {
                        let asked = Node::asked(&pod);
                        kubelet::admit(&node.kubelet, &mut node.state, &asked, &Lowest).unwrap();
                        node.pods.push(pod.clone());
                        node.report();
                        node.bind(&pod);
                        node.ledger.admitted(pod.id, &mut node.scratch);
                        node.ledger.initialized(pod.id);
                        is_exact &= key == HashKey::Uid;
                    }
                }
                Step::End(at) if at < node.pods.len() => node.release(at),
                Step::End(_) => {}
                Step::Report => {
                    node.report();
                    prop_assert_eq!(node.ledger.summary().corrections, 0);
                }
                Step::Restart => {
                    node.restart_scheduler();
                    is_exact &= key == HashKey::Uid;
                }
            }
            leave_at_once(&node.ledger)?;
        }
    }
}
