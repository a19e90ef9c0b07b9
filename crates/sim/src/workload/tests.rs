use proptest::prelude::*;
use topology::request::Qos;

use super::*;

#[test]
fn open_arrivals_have_the_load_that_was_asked_for() {
    for (pods, rate, load, cpus) in [(2000, 3.0, 0.65, 124), (3000, 75.0, 2.0, 3100), (3000, 0.5, 0.1, 31)] {
        let open = OpenArrivals { pods, rate, load, cpus, ..OpenArrivals::default() };
        let workload = open.workload().unwrap();
        let cpu_s: f64 =
            workload.arrivals.iter().map(|a| f64::from(a.cpus) * a.life_ms.unwrap() as f64 / 1000.0).sum();
        let seconds = pods as f64 / rate;
        let found = cpu_s / (seconds * f64::from(cpus));
        assert!((found / load - 1.0).abs() < 0.03, "{open:?}: {found}");
        let mean_s = load * f64::from(cpus) / (rate * 6.0);
        let bounds = (mean_s * 2000.0 / 3.0 - 1.0)..=(mean_s * 4000.0 / 3.0 + 1.0);
        assert!(workload.arrivals.iter().all(|a| bounds.contains(&(a.life_ms.unwrap() as f64))));
        assert!(workload.arrivals.is_sorted_by_key(|a| a.at_ms));
        assert_eq!(workload.arrivals[pods - 1].at_ms, ((pods - 1) as f64 * 1000.0 / rate).round() as u64);
    }
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let workload = |seed| OpenArrivals { seed, ..OpenArrivals::default() }.workload().unwrap();
    assert_eq!(workload(4), workload(4));
    assert_ne!(workload(4), workload(5));
}

#[test]
fn plans_survive_a_file() {
    let mut workload =
        OpenArrivals { pods: 12, max_pending: Some(3), ..OpenArrivals::default() }.workload().unwrap();
    workload.arrivals[3].end = End::Finished;
    workload.arrivals[4].life_ms = None;
    workload.arrivals[4].resize = Some(Resize { after_ms: 3, cpus: 1 });
    workload.arrivals[5].devices.insert("example.com/gpu".to_owned(), 2);
    workload.arrivals[6].init.push(ContainerResources { cpus: 1, memory_mib: 5, devices: BTreeMap::new() });
    let text = yaml::write(&workload).unwrap();
    assert_eq!(Workload::parse("workload.yaml", &text).unwrap(), workload);
    let text = serde_json::to_string(&workload).unwrap();
    assert_eq!(Workload::parse("workload.json", &text).unwrap(), workload);
}

#[test]
fn files_may_be_short_and_out_of_order() {
    let text = "arrivals:\n- {at_ms: 50, cpus: 2}\n- {at_ms: 10, cpus: 4, life_ms: 7, end: forced}\n";
    let workload = Workload::parse("p", text).unwrap();
    assert_eq!(workload.arrivals[0], Arrival { end: End::Forced, ..Arrival::new(10, 4, 7) });
    assert_eq!((workload.arrivals[1].life_ms, workload.arrivals[1].memory_mib), (None, DEFAULT_MEMORY_MIB));
}

#[test]
fn bad_plans_name_file_field_and_what_is_allowed() {
    for (text, words) in [
        ("", "p.yaml: "),
        ("arrivals: 3", "p.yaml: "),
        ("{arrivals: [], pods: 3}", r#"p.yaml: unknown field "pods""#),
        ("arrivals:\n- {cpus: 2}", "at_ms"),
        ("arrivals:\n- {at_ms: -1, cpus: 2}", "p.yaml: "),
        ("arrivals:\n- {at_ms: 1, cpus: 2, end: killed}", "killed"),
        ("arrivals:\n- {at_ms: 1, cpus: 2, cpu: 3}", r#"unknown field "arrivals.0.cpu""#),
        (
            "arrivals:\n- {at_ms: 1, cpus: 2}\n- {at_ms: 1, cpus: 70000}",
            "p.yaml: arrivals[1].cpus is 70000: allowed are 0 to 65536",
        ),
        ("arrivals:\n- {at_ms: 999999999999999, cpus: 2}", "arrivals[0].at_ms is 999999999999999"),
        (
            "arrivals:\n- {at_ms: 1, cpus: 2, resize: {after_ms: 1, cpus: 70000}}",
            "arrivals[0].resize.cpus is 70000",
        ),
        (
            "arrivals:\n- {at_ms: 1, cpus: 2, resize: {after_ms: 1, cpus: 0}}",
            "arrivals[0].resize.cpus is 0: allowed are those that leave the pod Guaranteed",
        ),
        ("{max_pending: 0, arrivals: []}", "max_pending is 0: allowed are 1 to"),
        (
            "arrivals:\n- {at_ms: 1, cpus: 1, devices: {gpu: 1}}",
            r#"arrivals[0].devices: "gpu" is not a device"#,
        ),
        (
            "arrivals:\n- {at_ms: 1, cpus: 1, init: [{cpus: 1}, {cpus: 1, memory_mib: 99999999999}]}",
            "arrivals[0].init[1].memory_mib is 99999999999",
        ),
        (
            "arrivals:\n- {at_ms: 1, cpus: 1, beside: [{cpus: 1, devices: {a.b/c: 70000}}]}",
            "arrivals[0].beside[0].devices[a.b/c] is 70000",
        ),
    ] {
        let error = Workload::parse("p.yaml", text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn specs_are_guaranteed_in_order_and_shared() {
    let mut arrival = Arrival::new(0, 4, 1);
    arrival.init.push(ContainerResources { cpus: 2, memory_mib: 1, devices: BTreeMap::new() });
    arrival.beside.push(ContainerResources { cpus: 1, memory_mib: 1, devices: BTreeMap::new() });
    let burstable = Arrival { memory_mib: 0, ..Arrival::new(0, 4, 1) };
    let workload = Workload { max_pending: None, arrivals: vec![arrival.clone(), burstable, arrival] };
    let specs = workload.specs();
    assert_eq!((specs[0].needs.qos, specs[1].needs.qos), (Qos::Guaranteed, Qos::Burstable));
    let kinds: Vec<_> = specs[0].needs.containers.iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [ContainerKind::Init, ContainerKind::App, ContainerKind::App]);
    assert_eq!(specs[0].needs.totals[0].amount, 5_000);
    assert!(Arc::ptr_eq(&specs[0], &specs[2]));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = Workload::parse("p", &text);
    }

    #[test]
    fn no_numbers_make_the_generator_panic(
        pods in 0_usize..300, rate in proptest::num::f64::ANY, load in proptest::num::f64::ANY,
        cpus in proptest::num::u32::ANY, size in proptest::num::u32::ANY, seed in proptest::num::u64::ANY,
    ) {
        let kinds = [size, 1].map(ContainerResources::of_cpus).to_vec();
        let open = OpenArrivals { pods, rate, load, cpus, kinds, seed, max_pending: None };
        if let Ok(workload) = open.workload() {
            prop_assert_eq!(workload.arrivals.len(), pods);
        }
    }
}
