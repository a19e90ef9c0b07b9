//! Random cases against the real plugins, and a comparison that has to find what is wrong.

use std::sync::Mutex;

use serde_json::json;
use testkit::env::Program;
use testkit::oracle::Oracle;

use super::compare::{ask, difference};
use super::generate::case;
use super::placement::place;
use super::search::{Options, search};

/// A short search; with `CASES` and `SEED` a long one.
#[test]
fn kube_schedulers_own_plugins_agree() {
    let Ok(rig) = testkit::env::rig() else { return };
    let number = |name: &str, or| std::env::var(name).map_or(or, |text| text.parse().expect(name));
    let options = Options { seed: number("SEED", 36), first: 0, cases: number("CASES", 400), workers: 2 };
    let failures = Mutex::new(Vec::new());
    let failed = |failure: &_| failures.lock().unwrap().push(format!("{failure:#?}"));
    let program = rig.binaries.path(Program::SchedulerOracle);
    let tally = search(&options, program, &|_| {}, &failed).unwrap();
    println!(
        "scheduler: {} cases of seed {}, {} unexplained; {} pods placed, {} refused",
        tally.cases, options.seed, tally.unexplained, tally.placed, tally.refused
    );
    assert_eq!(tally.unexplained, 0, "{:#?}", failures.lock().unwrap());
    assert!(tally.placed > 50 && tally.refused > 50, "{tally:#?}");
    for filter in [
        "NodeAffinity",
        "TaintToleration",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "InterPodAffinity",
        "PodTopologySpread",
        "DynamicResources",
    ] {
        assert!(
            tally.filters[filter].refused > 0 && tally.filters[filter].passed > 0,
            "{filter}: {tally:#?}"
        );
    }
    assert!(tally.scores.values().filter(|count| count.differing > 0).count() >= 7, "{tally:#?}");
}

/// A comparison that could not fail would be worth nothing: each plugin is missed where our side lacks it.
#[test]
fn a_core_without_a_plugin_is_found() {
    let Ok(rig) = testkit::env::rig() else { return };
    let mut oracle = Oracle::start(rig.binaries.path(Program::SchedulerOracle)).unwrap();
    let cases: Vec<_> = (0..150).map(|number| case(36, number)).collect();
    let answers: Vec<_> = cases.iter().map(|case| ask(&mut oracle, case).unwrap()).collect();
    for (point, plugin) in [
        ("filter", "NodeUnschedulable"),
        ("filter", "TaintToleration"),
        ("filter", "NodeAffinity"),
        ("filter", "NodePorts"),
        ("filter", "NodeResourcesFit"),
        ("filter", "VolumeRestrictions"),
        ("filter", "NodeVolumeLimits"),
        ("filter", "VolumeBinding"),
        ("filter", "VolumeZone"),
        ("filter", "PodTopologySpread"),
        ("filter", "InterPodAffinity"),
        ("filter", "DynamicResources"),
        ("score", "TaintToleration"),
        ("score", "NodeResourcesFit"),
        ("score", "ImageLocality"),
        ("score", "InterPodAffinity"),
    ] {
        let differs = cases.iter().zip(&answers).any(|(case, answer)| {
            let mut case = case.clone();
            case.configuration["profiles"][0]["plugins"][point] = json!({ "disabled": [{ "name": plugin }] });
            difference(answer, &place(&case, 1).unwrap()).is_some()
        });
        assert!(differs, "{plugin} at {point}");
    }
}
