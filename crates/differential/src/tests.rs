use std::path::Path;
use std::time::Instant;

use node::kubelet::machine::of_sysfs;
use node::sysfs::Sysfs;
use sim::admit::model::Model;
use sim::admit::session::Step;
use testkit::machine::Layout;
use testkit::oracle::{Oracle, Release};
use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::machine::Machine;
use topology::kubelet::profile::Minor;

use crate::case::Case;
use crate::compare::compare;
use crate::generate::session;
use crate::kubelets::Kubelets;
use crate::respondent::{Respondent as _, RespondentKind};
use crate::search::{Options, search};
use crate::tally::Tally;

/// What former searches found, and kubelets answered.
#[test]
fn recorded_kubelets_are_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut tally = Tally::default();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let case: Case = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let minor = case.kubernetes.parse().unwrap();
        let difference = compare(&case.session, &case.answers, minor, &mut tally).unwrap();
        assert!(difference.is_none(), "{}: {difference:#?}", path.display());
    }
    assert!(tally.admissions > 40 && tally.admitted > 30 && tally.reasons.len() > 2, "{tally:?}");
}

/// A short search; with `ADMISSIONS`, `SEED` and `KUBERNETES` a long one.
#[test]
fn the_kubelets_own_packages_agree() {
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let release = Release::ALL.into_iter().find(|release| release.minor() == variable("KUBERNETES", "1.36"));
    let release = release.expect("KUBERNETES is 1.34, 1.35, 1.36 or 1.37");
    let Ok(program) = release.program() else { return };
    let admissions = variable("ADMISSIONS", "3000").parse().unwrap();
    let minor = release.minor().parse().unwrap();
    let options =
        Options::new(RespondentKind::Oracle, minor, variable("SEED", "36").parse().unwrap(), admissions);
    let (tally, failures) = search(&options, &|| Oracle::start(&program), &|_| {}, &|_| {}).unwrap();
    println!(
        "differential: {} admissions by kubelet {}, seed {}: {} mismatches; {} rejected, {} over several zones, {} \
         restarts, {} resizes, {} sets of options, {} ended by chance",
        tally.admissions,
        release.minor(),
        options.seed,
        tally.mismatches,
        tally.admissions - tally.admitted,
        tally.multi_zone,
        tally.restarts,
        tally.resizes.values().sum::<u64>(),
        tally.options.len(),
        tally.by_chance,
    );
    assert_eq!((tally.mismatches, failures.len()), (0, 0), "{failures:#?}");
    assert!(tally.reasons.len() > 2 && tally.multi_zone > 0 && tally.restarts > 0, "{tally:?}");
    assert!(tally.resizes.contains_key("Resized") && tally.resizes.contains_key("Infeasible"), "{tally:?}");
}

/// A few lives of real kubelets. `ADMISSIONS` is how many admissions are compared, `SEED` the seed.
#[test]
fn real_kubelets_agree() {
    let Ok(rig) = testkit::env::rig() else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    let kubelets = Kubelets::start(&rig, Release::default()).unwrap();
    let seed = number("SEED").unwrap_or(36);
    let options = match number("ADMISSIONS") {
        Some(admissions) => Options::new(RespondentKind::Kubelets, Minor::V36, seed, admissions),
        None => {
            Options { workers: 2, steps: 14, ..Options::new(RespondentKind::Kubelets, Minor::V36, seed, 14) }
        }
    };
    let begun = Instant::now();
    let (tally, failures) = search(&options, &|| Ok(kubelets.respondent()), &|_| {}, &|_| {}).unwrap();
    println!(
        "kubelets: {} admissions on {} kubelets, {} restarts, {} differences in {} s",
        tally.admissions,
        tally.sessions,
        tally.restarts,
        tally.mismatches,
        begun.elapsed().as_secs()
    );
    assert_eq!((tally.mismatches, failures.len()), (0, 0), "{failures:#?}");
    assert!(tally.admitted > 5 && !tally.reasons.is_empty(), "{tally:?}");
}

/// The files of a machine say what the session says. A machine is thousands of files, so only a few are written.
#[test]
fn machines_for_kubelets_are_found_in_their_files() {
    for number in 0..16 {
        let session = session(RespondentKind::Kubelets, 5, number, Minor::V36);
        let folder = tempfile::tempdir().unwrap();
        let tree = Layout::reported(&session.machine).write_to(folder.path()).unwrap();
        let found = of_sysfs(&Sysfs::new(tree.sys())).unwrap();
        let machine = session.machine.machine().unwrap();
        assert_eq!(found.cpus(), machine.cpus(), "session {number}");
        for cpu in machine.cpus().iter() {
            let of = |machine: &Machine| machine.cpu(cpu).map(|cpu| (cpu.zone, cpu.socket, cpu.core));
            assert_eq!(of(&found), of(&machine), "session {number}");
        }
        let zones = |machine: &Machine| {
            machine
                .zones()
                .iter()
                .map(|zone| (zone.id, zone.memory, zone.distances.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(zones(&found), zones(&machine), "session {number}");
    }
}

/// A comparison that could not fail would be worth nothing.
#[test]
fn a_wrong_model_is_found() {
    let Ok(program) = Release::default().program() else { return };
    let mut oracle = Oracle::start(&program).unwrap();
    let differs = (0..400).any(|number| {
        let mut session = session(RespondentKind::Oracle, 36, number, Minor::V36);
        let answers = oracle.answers(&session).unwrap();
        // The model is told of other reserved CPUs than the kubelet.
        session.kubelet["reservedSystemCPUs"] = "".into();
        session.kubelet["kubeReserved"]["cpu"] = "4".into();
        matches!(compare(&session, &answers, Minor::V36, &mut Tally::default()), Ok(Some(_)))
    });
    assert!(differs);
}

/// Nothing is lost and nothing is held twice, whatever pods come and go.
#[test]
fn what_pods_give_back_is_what_they_took() {
    let mut ended = 0;
    for number in 0..400 {
        let session = session(RespondentKind::Oracle, 7, number, Minor::V36);
        let Ok(mut model) = Model::start(&session, Minor::V36).unwrap() else { continue };
        let empty = model.state().clone();
        for step in &session.steps {
            match step {
                Step::Admit { pod } => drop(model.admit(pod, &Lowest).unwrap()),
                Step::Remove { uid } => model.remove(uid),
                // The pod may have been rejected.
                Step::Resize { pod } => drop(model.resize(pod)),
                Step::Restart { .. } => {} // A restart may take more than it gives back, as in the kubelet.
            }
            let state = model.state();
            let mut known = state.cpus.shared.clone();
            for cpus in state.cpus.pods.iter().flat_map(|pod| &pod.containers).map(|(_, cpus)| cpus) {
                known.insert_all(cpus);
            }
            assert!(known.is_subset(model.kubelet().machine().cpus()), "session {number}");
        }
        let pods: Vec<String> = model.pods().map(str::to_owned).collect();
        pods.iter().for_each(|uid| model.remove(uid));
        model.sweep();
        let state = model.state();
        assert!(state.pods.is_empty() && state.cpus.pods.is_empty() && state.memory.pods.is_empty());
        // Sockets of different sizes let the kubelet hand out CPUs that it keeps for the system.
        let lost = |one: &CpuSet, other: &CpuSet| one.difference(other);
        assert!(lost(&empty.cpus.shared, &state.cpus.shared).is_empty(), "session {number}");
        if !state.memory.is_by_chance() {
            assert_eq!(state.memory.counts.zones, empty.memory.counts.zones, "session {number}");
        }
        ended += 1;
    }
    assert!(ended > 300);
}
