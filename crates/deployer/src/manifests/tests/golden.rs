//! The manifests of each kind of cluster and program as files, so that a change of one is seen and read.

use super::*;

/// Compares with the file, or writes it.
#[track_caller]
pub(super) fn compare(file: &str, wanted: &str) {
    testkit::golden::compare(env!("CARGO_MANIFEST_DIR"), file, wanted);
}

fn check(name: &str, options: &Options, component: Component) {
    compare(
        &format!("{name}.yaml"),
        &text::render_objects(parts(options, &[component]).unwrap().iter().flat_map(Part::objects)).unwrap(),
    );
}

#[test]
fn every_cluster_and_program_is_as_in_its_file() {
    for cluster in CLUSTERS {
        let place = cluster.0.to_string().to_lowercase();
        for updater in UPDATERS {
            let options = options(cluster, updater, Scheduler::Plugin);
            let name = format!("{place}-updater-{updater:?}").to_lowercase();
            check(&name, &options, Component::Exporter);
        }
        for (scheduler, updater) in
            [(Scheduler::Tholepin, Updater::Tholepin), (Scheduler::Plugin, Updater::Rte)]
        {
            let options = options(cluster, updater, scheduler);
            let name = format!("{place}-scheduler-{scheduler:?}").to_lowercase();
            check(&name, &options, Component::Scheduler);
        }
        let options = options(cluster, Updater::Tholepin, Scheduler::Tholepin);
        let page = text::render_objects(&web::objects(&options, web::NAME)).unwrap();
        compare(&format!("{place}-web.yaml"), &page);
    }
}

/// With all that the peer makes under its names, and the namespace once. Of two constraints that the peer makes on
/// OpenShift, one.
#[test]
fn the_peers_objects_are_all_there() {
    let count = |platform: usize, updater, change: Change| {
        let mut options = options(CLUSTERS[platform], updater, Scheduler::Plugin);
        change(&mut options);
        1 + objects(&options).len()
    };
    assert_eq!(count(0, Updater::Rte, |_| {}), 30);
    assert_eq!(count(0, Updater::Rte, |options| options.updater.config = Some("a: b".to_owned())), 31);
    assert_eq!(count(1, Updater::Rte, |_| {}), 32);
    assert_eq!(count(1, Updater::Rte, |options| options.updater.custom_selinux_policy = false), 31);
    assert_eq!(count(2, Updater::Rte, |_| {}), 31);
    assert_eq!(count(0, Updater::Nfd, |_| {}), 25);
    // And constraints, which the peer forgets.
    assert_eq!(count(1, Updater::Nfd, |_| {}), 26);
}
