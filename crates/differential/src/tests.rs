use std::path::Path;

use sim::admit::model::Model;
use sim::admit::session::Step;
use testkit::oracle::{Oracle, Release};
use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::profile::Minor;

use crate::case::Case;
use crate::compare::compare;
use crate::generate::session;
use crate::search::{Options, ask, search};
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
    let options = Options {
        seed: variable("SEED", "36").parse().unwrap(),
        first: 0,
        admissions: variable("ADMISSIONS", "3000").parse().unwrap(),
        minor: release.minor().parse().unwrap(),
        program,
        workers: 2,
    };
    let (tally, failures) = search(&options, &|_| {}, &|_| {}).unwrap();
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

/// A comparison that could not fail would be worth nothing.
#[test]
fn a_wrong_model_is_found() {
    let Ok(program) = Release::default().program() else { return };
    let mut oracle = Oracle::start(&program).unwrap();
    let differs = (0..400).any(|number| {
        let mut session = session(36, number, Minor::V36);
        let answers = ask(&mut oracle, &session).unwrap();
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
        let session = session(7, number, Minor::V36);
        let Ok(mut model) = Model::start(&session, Minor::V36).unwrap() else { continue };
        let empty = model.state().clone();
        for step in &session.steps {
            match step {
                Step::Admit { pod } => drop(model.admit(pod, &Lowest).unwrap()),
                Step::Remove { uid } => model.remove(uid),
                // The pod may have been rejected.
                Step::Resize { pod } => drop(model.resize(pod)),
                Step::Restart => {} // A restart may take more than it gives back, as in the kubelet.
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
