//! Admission tables: one line per case, zones and containers in a small notation.

use super::*;
use crate::policy::Policy;
use crate::request::{ContainerNeeds, Need};
use crate::zone::{NodeTopology, Zone, ZoneId, ZoneResource};
use ContainerKind::{App, Init, Sidecar};

mod by_id;

const SINGLE: Rules = Rules {
    policy: Policy::SingleNumaNode,
    scope: Scope::Container,
    cpu_manager: Manager::Static,
    memory_manager: Manager::Static,
};

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// `cpu=4 nic.io/x=2` in base units.
fn amounts(text: &str) -> Vec<(ResourceName, i64)> {
    let mut list: Vec<_> = text
        .split_whitespace()
        .map(|word| {
            let (resource, amount) = word.split_once('=').unwrap();
            let resource = name(resource);
            let milli = amount.strip_suffix('m').map(|m| m.parse::<i64>().unwrap());
            (resource, milli.unwrap_or_else(|| amount.parse::<i64>().unwrap() * resource.base_units()))
        })
        .collect();
    list.sort_unstable();
    list
}

/// Zones separated by `|`, each `id: amounts`.
fn table(text: &str) -> Free {
    let zones = text
        .split('|')
        .map(|zone| {
            let (id, rest) = zone.split_once(':').unwrap();
            let resources = amounts(rest)
                .into_iter()
                .map(|(name, n)| ZoneResource { name, capacity: n, allocatable: n, available: n })
                .collect();
            Zone { id: ZoneId(id.trim().parse().unwrap()), resources, distances: vec![] }
        })
        .collect();
    NodeTopology { zones, ..NodeTopology::default() }.available()
}

fn pod(qos: Qos, containers: &[(ContainerKind, &str)]) -> PodNeeds {
    use crate::quantity::Quantity;
    let request = crate::request::PodRequest {
        containers: containers
            .iter()
            .enumerate()
            .map(|(at, (kind, text))| crate::request::ContainerRequest {
                name: format!("c{at}").into(),
                kind: *kind,
                requests: text
                    .split_whitespace()
                    .map(|word| word.split_once('=').unwrap())
                    .map(|(resource, amount)| (name(resource), Quantity::parse(amount).unwrap()))
                    .collect(),
                limits: vec![],
            })
            .collect(),
        stated_qos: Some(qos),
        ..crate::request::PodRequest::default()
    };
    request.needs()
}

fn guaranteed(containers: &[(ContainerKind, &str)]) -> PodNeeds {
    pod(Qos::Guaranteed, containers)
}

/// `0:cpu=2 1:cpu=4` (held amounts), or the misfit's text.
fn verdict(rules: Rules, free: &Free, needs: &PodNeeds) -> String {
    match admit(rules, free, needs, &mut Scratch::default()) {
        Ok(placement) => placement
            .grants
            .iter()
            .map(|grant| {
                let columns = free.layout().resources().len();
                let (row, column) = (grant.cell as usize / columns, grant.cell as usize % columns);
                let resource = free.layout().resources()[column];
                let hidden = if grant.held == grant.visible {
                    String::new()
                } else {
                    format!("({})", crate::reason::Amount(resource, grant.visible))
                };
                let amount = crate::reason::Amount(resource, grant.held);
                format!("{}:{resource}={amount}{hidden}", free.layout().zones()[row].0)
            })
            .collect::<Vec<_>>()
            .join(" "),
        Err(misfit) => format!("{} {}: {}", misfit.part.text(), misfit.container, misfit.constraint),
    }
}

#[test]
fn container_scope_places_each_container_on_the_lowest_zone_that_fits() {
    let free = table("0: cpu=4 memory=8 n.io/x=1 | 1: cpu=8 memory=8 n.io/x=2");
    for (containers, expected) in [
        (&[(App, "cpu=2 memory=2")][..], "0:cpu=2 0:memory=2"),
        (&[(App, "cpu=5 memory=2")], "1:cpu=5 1:memory=2"),
        (&[(App, "cpu=2 memory=2 n.io/x=2")], "1:cpu=2 1:memory=2 1:n.io/x=2"),
        (&[(App, "cpu=4 memory=1"), (App, "cpu=8 memory=1")], "0:cpu=4 0:memory=1 1:cpu=8 1:memory=1"),
        // greedy: the small one takes zone 0 first and the big one no longer fits anywhere
        (
            &[(App, "cpu=5 memory=1"), (App, "cpu=4 memory=1"), (App, "cpu=4 memory=1")],
            "cannot align container 2: cpu: requested 4, most in one zone 3 (zone 1)",
        ),
        (
            &[(App, "cpu=9 memory=1")],
            "cannot align container 0: cpu: requested 9, most in one zone 8 (zone 1)",
        ),
        (
            &[(App, "cpu=1 memory=1 hugepages-1Gi=1")],
            "cannot align container 0: hugepages-1Gi: no zone lists it",
        ),
        // a device no zone lists has no topology: any zone will do
        (&[(App, "cpu=1 memory=1 other.io/y=3")], "0:cpu=1 0:memory=1"),
        // fractional cpu is not pinned, its memory still is
        (&[(App, "cpu=7500m memory=1")], "0:memory=1"),
        (&[(App, "")], ""),
    ] {
        assert_eq!(verdict(SINGLE, &free, &guaranteed(containers)), expected, "{containers:?}");
    }
}

#[test]
fn no_zone_has_everything_at_once() {
    let free = table("0: cpu=8 memory=8 | 1: cpu=1 memory=8 n.io/x=2");
    let needs = guaranteed(&[(App, "cpu=4 memory=1 n.io/x=1")]);
    assert_eq!(verdict(SINGLE, &free, &needs), "cannot align container 0: no zone has all resources at once");
}

#[test]
fn zone_ids_are_opaque_and_zones_may_lack_cpus() {
    let free = table("3: memory=8 | 17: cpu=4 memory=2 | 63: cpu=8 memory=8");
    for (container, expected) in
        [("cpu=2 memory=1", "17:cpu=2 17:memory=1"), ("cpu=2 memory=4", "63:cpu=2 63:memory=4")]
    {
        assert_eq!(verdict(SINGLE, &free, &guaranteed(&[(App, container)])), expected);
    }
}

/// On a zone whose first core has one thread reserved, the kubelet holds at most so many CPUs. For the first four its
/// own packages hold exactly these.
#[test]
fn single_threads_of_init_containers_stay_held() {
    let free = table("0: cpu=15 memory=64");
    for (containers, held) in [
        (&[(Init, 1), (App, 2)][..], 3),
        (&[(Init, 1), (App, 4)], 5),
        (&[(Init, 3), (App, 2), (App, 2)], 5),
        (&[(Init, 1), (Init, 2), (App, 2)], 3),
        (&[(Init, 2), (App, 1), (App, 1), (App, 1)], 5),
        (&[(Init, 4), (App, 2)], 4),
        (&[(App, 1), (App, 2)], 3),
    ] {
        let texts: Vec<_> = containers.iter().map(|(_, cpus)| format!("cpu={cpus} memory=1")).collect();
        let containers: Vec<_> =
            containers.iter().zip(&texts).map(|((kind, _), text)| (*kind, text.as_str())).collect();
        let placement = admit(SINGLE, &free, &guaranteed(&containers), &mut Scratch::default()).unwrap();
        assert_eq!(placement.grants[0].held, held * 1_000, "{containers:?}");
    }
    let full = table("0: cpu=2 memory=8");
    assert_eq!(
        verdict(SINGLE, &full, &guaranteed(&[(Init, "cpu=1 memory=1"), (App, "cpu=2 memory=1")])),
        "0:cpu=2 0:memory=1",
        "no more than the zone has"
    );
}

#[test]
fn init_containers_are_reused_and_hold_their_zone() {
    let free = table("0: cpu=4 memory=8 | 1: cpu=8 memory=8");
    for (containers, expected) in [
        (&[(Init, "cpu=4 memory=1"), (App, "cpu=4 memory=1")][..], "0:cpu=4 0:memory=1"),
        // the init container keeps what the app did not take over; podresources shows 2 of 4
        (&[(Init, "cpu=4 memory=4"), (App, "cpu=2 memory=1")], "0:cpu=4(2) 0:memory=4(1)"),
        // cpus of the init container are in zone 0, so the app may not go to zone 1 where it would fit
        (
            &[(Init, "cpu=2 memory=1"), (App, "cpu=6 memory=1")],
            "cannot align container 1: no zone has all resources at once",
        ),
        (&[(Sidecar, "cpu=3 memory=1"), (App, "cpu=4 memory=1")], "0:cpu=3 0:memory=1 1:cpu=4 1:memory=1"),
        (
            &[(Init, "cpu=9 memory=1")],
            "cannot align init container 0: cpu: requested 9, most in one zone 8 (zone 1)",
        ),
        (
            &[(Sidecar, "cpu=9 memory=1")],
            "cannot align sidecar container 0: cpu: requested 9, most in one zone 8 (zone 1)",
        ),
    ] {
        assert_eq!(verdict(SINGLE, &free, &guaranteed(containers)), expected, "{containers:?}");
    }
}

#[test]
fn pod_scope_needs_one_zone_for_the_sum() {
    let rules = Rules { scope: Scope::Pod, ..SINGLE };
    let free = table("0: cpu=4 memory=8 | 1: cpu=8 memory=8");
    for (containers, expected) in [
        (&[(App, "cpu=2 memory=1"), (App, "cpu=4 memory=1")][..], "1:cpu=6 1:memory=2"),
        (
            &[(App, "cpu=4 memory=1"), (App, "cpu=8 memory=1")],
            "cannot align pod 0: cpu: requested 12, most in one zone 8 (zone 1)",
        ),
        (&[(Init, "cpu=8 memory=1"), (App, "cpu=1 memory=1")], "1:cpu=8(1) 1:memory=1"),
        // only whole CPUs count for the pod's hint
        (&[(App, "cpu=4 memory=1"), (App, "cpu=500m memory=1")], "0:cpu=4 0:memory=2"),
    ] {
        assert_eq!(verdict(rules, &free, &guaranteed(containers)), expected, "{containers:?}");
    }
}

#[test]
fn only_devices_are_aligned_for_other_qos_classes() {
    let free = table("0: cpu=4 memory=8 n.io/x=1 | 1: cpu=8 memory=8 n.io/x=2");
    for qos in [Qos::Burstable, Qos::BestEffort] {
        for (container, expected) in [
            ("cpu=100 memory=100 n.io/x=2", "1:n.io/x=2"),
            ("n.io/x=3", "cannot align container 0: n.io/x: requested 3, most in one zone 2 (zone 1)"),
            ("cpu=100", ""),
        ] {
            assert_eq!(verdict(SINGLE, &free, &pod(qos, &[(App, container)])), expected);
        }
    }
}

#[test]
fn managers_decide_what_is_aligned() {
    let free = table("0: cpu=4 | 1: cpu=8");
    let off = Rules { cpu_manager: Manager::Off, memory_manager: Manager::Off, ..SINGLE };
    let unknown = Rules { cpu_manager: Manager::Unknown, memory_manager: Manager::Unknown, ..SINGLE };
    for (rules, container, expected) in [
        (off, "cpu=100 memory=1", ""),
        (Rules { memory_manager: Manager::Off, ..SINGLE }, "cpu=2 memory=1", "0:cpu=2"),
        // the peer's reading: a fractional cpu is checked (and not charged), unlisted memory rejects
        (unknown, "cpu=7500m", ""),
        (unknown, "cpu=8100m", "cannot align container 0: cpu: requested 8100m, most in one zone 8 (zone 1)"),
        (unknown, "cpu=1 memory=1", "cannot align container 0: memory: no zone lists it"),
    ] {
        assert_eq!(verdict(rules, &free, &guaranteed(&[(App, container)])), expected, "{container}");
    }
}

#[test]
fn policies_that_do_not_reject_admit_everything() {
    let free = table("0: cpu=1");
    for policy in [Policy::None, Policy::BestEffort] {
        let rules = Rules { policy, ..SINGLE };
        assert_eq!(verdict(rules, &free, &guaranteed(&[(App, "cpu=9")])), "");
        assert!(!needs_alignment(rules, &free, &guaranteed(&[(App, "cpu=9")])));
    }
    let restricted = Rules { policy: Policy::Restricted, ..SINGLE };
    assert!(verdict(restricted, &free, &guaranteed(&[(App, "cpu=9")])).starts_with("cannot align container"));
}

#[test]
fn exclusive_pods_are_those_podresources_reports_with_a_zone() {
    let free = table("0: cpu=4 memory=8 n.io/x=1");
    let cpu_only = Rules { memory_manager: Manager::Off, ..SINGLE };
    for (rules, needs, expected) in [
        (SINGLE, guaranteed(&[(App, "cpu=1 memory=1")]), true),
        (cpu_only, guaranteed(&[(App, "cpu=500m memory=1")]), false),
        (SINGLE, guaranteed(&[(Init, "cpu=1 memory=1"), (App, "")]), false),
        (SINGLE, guaranteed(&[(Sidecar, "cpu=1 memory=1")]), true),
        (SINGLE, pod(Qos::Burstable, &[(App, "cpu=1 memory=1")]), false),
        (SINGLE, pod(Qos::BestEffort, &[(App, "n.io/x=1")]), true),
        (SINGLE, pod(Qos::BestEffort, &[(App, "other.io/x=1")]), false),
    ] {
        assert_eq!(is_exclusive(rules, &free, &needs), expected, "{needs:?}");
    }
}

#[test]
fn charging_and_releasing_cancel_out() {
    let free = table("0: cpu=4 memory=8 | 1: cpu=8 memory=8");
    let needs = guaranteed(&[(Init, "cpu=4 memory=4"), (App, "cpu=2 memory=1")]);
    let placement = admit(SINGLE, &free, &needs, &mut Scratch::default()).unwrap();
    let mut after = free.clone();
    placement.charge(&mut after);
    assert_eq!(after.amount(ZoneId(0), ResourceName::CPU), 0);
    placement.release(&mut after);
    assert_eq!(after, free);
}

#[test]
fn pods_with_fifty_containers_are_admitted() {
    let free = table("0: cpu=25 memory=100 | 1: cpu=25 memory=100");
    let fifty: Vec<_> = (0..50).map(|_| (App, "cpu=1 memory=1")).collect();
    assert_eq!(verdict(SINGLE, &free, &guaranteed(&fifty)), "0:cpu=25 0:memory=25 1:cpu=25 1:memory=25");
    let more: Vec<_> = (0..51).map(|_| (App, "cpu=1 memory=1")).collect();
    assert!(verdict(SINGLE, &free, &guaranteed(&more)).starts_with("cannot align container 50"));
}

#[test]
fn needs_are_peak_of_init_and_running_phase() {
    let needs = guaranteed(&[(Init, "cpu=6"), (Sidecar, "cpu=1"), (Init, "cpu=2"), (App, "cpu=3")]);
    assert_eq!(needs.totals, [Need { name: ResourceName::CPU, amount: 6000 }]);
    let needs = guaranteed(&[(Sidecar, "cpu=3"), (Init, "cpu=4"), (App, "cpu=2500m")]);
    assert_eq!(needs.totals, [Need { name: ResourceName::CPU, amount: 7000 }]);
    assert_eq!(needs.pod_scope_whole_cpu, 7000);
    assert_eq!(guaranteed(&[(App, "cpu=2500m"), (App, "cpu=2")]).pod_scope_whole_cpu, 2000);
    let _: &ContainerNeeds = &needs.containers[0];
}
