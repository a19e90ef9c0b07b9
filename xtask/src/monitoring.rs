//! What is known about metrics and alerts, against what programs serve: pages, expressions, Prometheus' own tool.
//!
//! In: the specimens of all programs, the alerts and the dashboard of the manifests. Out: nothing but the tables of
//! docs/metrics.md and docs/alerts.md. Never: a list of metrics written by hand.

mod expressions;
mod pages;
mod promtool;
mod promtool_cases;

use std::collections::BTreeMap;

use deployer::manifests::monitoring::Alert;
use deployer::manifests::{exporter, monitoring, scheduler};
use deployer::options::Options;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use testkit::exposition::{Family, families};

/// A program with its families.
struct Program {
    name: &'static str,
    /// Names of registered families, without prefixes; an exposition leaves out those without samples.
    registered: Vec<String>,
    families: BTreeMap<String, Family>,
}

/// All programs, in the order of the page.
fn programs() -> Vec<Program> {
    let program = |name, registry: &Registry| {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        // The one way to see families without samples.
        let debug = format!("{registry:?}");
        let names = debug.split("Descriptor {").skip(1).filter_map(|rest| {
            let (_, rest) = rest.split_once("name: \"")?;
            Some(rest.split_once('"')?.0.to_owned())
        });
        Program { name, registered: names.collect(), families: families(&text) }
    };
    vec![
        program("exporter", &::exporter::metrics::specimen().unwrap()),
        program("scheduler", &::scheduler::metrics::specimen()),
        program("operator", &::operator::reconcile::metrics::specimen().unwrap()),
        program("hardware", &::hardware::metrics::specimen()),
        program("device plugin", &::deviceplugin::metrics::specimen()),
        program("hollow", &::hollow::metrics::specimen()),
    ]
}

/// All alerts, by the manifests that have them.
fn alerts() -> Vec<(&'static str, Vec<Alert>)> {
    let options = Options::default();
    vec![
        ("exporter", exporter::alerts::alerts(&monitoring::job(exporter::account(&options)))),
        ("scheduler", scheduler::alerts::alerts(&monitoring::job(scheduler::account(&options)))),
        ("operator", ::operator::manifests::monitoring::alerts()),
        ("hardware", ::hardware::manifests::alerts()),
    ]
}

/// The page would lack a family without a sample.
#[test]
fn each_registered_family_has_a_sample_and_a_meaning() {
    for Program { name, registered, families } in programs() {
        assert!(!registered.is_empty(), "{name}");
        for wanted in registered {
            let shown = |family: &String| family.contains(&wanted);
            assert!(families.keys().any(shown), "{name}: {wanted} has no sample in the specimen");
        }
        for (family, known) in families {
            // Kubernetes' own metrics begin with their stability.
            let help = known.help.trim_start_matches('[');
            assert!(help.starts_with(char::is_alphanumeric), "{name}: {family}");
        }
    }
}

/// One name means the same in all programs.
#[test]
fn families_of_one_name_are_alike() {
    let mut seen: BTreeMap<String, Family> = BTreeMap::new();
    for Program { name, families, .. } in programs() {
        for (family, known) in families {
            let before = seen.entry(family.clone()).or_insert_with(|| known.clone());
            assert_eq!(*before, known, "{name}: {family}");
        }
    }
}
