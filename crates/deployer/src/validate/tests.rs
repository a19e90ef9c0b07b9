//! Checks on evidence made up: what a check finds, and that it finds nothing where nothing is wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{self, Selection, all, examine};
use super::evidence::{Area, Evidence};
use super::finding::{Severity, Validation, Verdict};

mod compat;
mod dumps;
pub(crate) mod fixture;
mod print;
mod seeds;

use fixture::ClusterFixture;

fn report(evidence: &Evidence) -> Validation {
    examine(evidence, &all())
}

/// What was found, a line each.
fn lines(report: &Validation) -> Vec<String> {
    report.findings.iter().map(|f| format!("{} {}: {}", f.id, f.object, f.what)).collect()
}

#[test]
fn a_healthy_cluster_has_no_findings() {
    let report = report(&ClusterFixture::healthy().evidence());
    assert_eq!(lines(&report), <[String; 0]>::default());
    assert_eq!(report.not_checked, []);
    assert_eq!((report.verdict(), report.checks_done), (Verdict::Clean, all().len()));
}

/// Every check finds what is seeded for it, with the right words; a check without a seed fails, so none can be added
/// without a proof that it works.
#[test]
fn every_check_finds_what_is_seeded_for_it() {
    let mut found = BTreeSet::new();
    for seed in seeds::all() {
        let mut world = ClusterFixture::healthy();
        (seed.plant)(&mut world);
        let report = report(&world.evidence());
        let matches = |f: &&super::Finding| {
            f.id == seed.id
                && f.object == seed.object
                && f.what.contains(seed.what)
                && f.severity == seed.severity
        };
        assert!(
            report.findings.iter().any(|finding| matches(&finding)),
            "{} {:?} {}: {:?} was not found, but {:#?}",
            seed.id,
            seed.severity,
            seed.object,
            seed.what,
            lines(&report)
        );
        found.insert(seed.id);
    }
    let ids: BTreeSet<&str> = all().iter().map(|check| check.id).collect();
    assert_eq!(ids.difference(&found).collect::<Vec<_>>(), <[&&str; 0]>::default(), "checks without a seed");
}

/// What is seeded is found by its own check, and others keep quiet unless they are named.
#[test]
fn a_seed_is_no_finding_of_other_checks() {
    for seed in seeds::all() {
        let mut world = ClusterFixture::healthy();
        (seed.plant)(&mut world);
        let report = report(&world.evidence());
        let expected: BTreeSet<&str> = seed.also.iter().copied().chain([seed.id]).collect();
        let found: BTreeSet<&str> = report.findings.iter().map(|finding| finding.id).collect();
        assert_eq!(found, expected, "{} {:?}: {:#?}", seed.id, seed.what, lines(&report));
    }
}

#[test]
fn there_are_enough_seeds_and_no_id_twice() {
    assert!(seeds::all().count() >= 60, "{}", seeds::all().count());
    let ids: Vec<&str> = all().iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len());
}

/// The severities a check says it has are those it was seen to have.
#[test]
fn severities_are_as_documented() {
    let mut seen: BTreeMap<&str, BTreeSet<Severity>> = BTreeMap::new();
    for seed in seeds::all() {
        seen.entry(seed.id).or_default().insert(seed.severity);
    }
    for check in all() {
        let words = |severity: &Severity| format!("{severity:?}").to_lowercase();
        let list = seen[check.id].iter().map(words).collect::<Vec<_>>().join(", ");
        assert_eq!(list, check.severity, "{}", check.id);
    }
}

#[test]
fn what_was_not_seen_is_not_checked() {
    for area in [
        Area::Version,
        Area::Nodes,
        Area::KubeletConfig,
        Area::Definition,
        Area::Reports,
        Area::Pods,
        Area::Workloads,
        Area::Leases,
        Area::Events,
    ] {
        let mut evidence = ClusterFixture::healthy().evidence();
        evidence.gaps.insert(area, "not allowed to look".to_owned());
        let report = report(&evidence);
        assert_eq!(report.verdict().code(), 2);
        let undone: Vec<&str> = report.not_checked.iter().flat_map(|undone| undone.checks.clone()).collect();
        let needy = all().into_iter().filter(|check| check.needs.contains(&area));
        let needy: Vec<&str> = needy.map(|check| check.id).collect();
        assert_eq!(undone, needy, "{area:?}");
        assert!(!needy.is_empty(), "{area:?} is needed by no check");
        assert_eq!(report.checks_done + needy.len(), all().len());
    }
}

#[test]
fn a_node_that_cannot_be_asked_is_named() {
    let mut evidence = ClusterFixture::healthy().evidence();
    evidence.nodes.get_mut("node-1").unwrap().kubelet = Some(Err("502: no route".to_owned()));
    let report = report(&evidence);
    assert_eq!(report.verdict(), Verdict::Incomplete);
    let [undone] = report.not_checked.as_slice() else { panic!("{:?}", report.not_checked) };
    assert_eq!((undone.object.as_deref(), undone.reason.as_str()), (Some("Node node-1"), "502: no route"));
}

#[test]
fn checks_are_selected_by_name() {
    let select = |only: &[&str], skip: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|id| (*id).to_owned()).collect();
        Selection { only: owned(only), skip: owned(skip), pre: false }.checks()
    };
    let ids = |only, skip| select(only, skip).unwrap().iter().map(|check| check.id).collect::<Vec<_>>();
    assert_eq!(ids(&["report-stale", "crd-missing"], &[]), ["crd-missing", "report-stale"]);
    assert_eq!(ids(&["report-stale", "crd-missing"], &["crd-missing"]), ["report-stale"]);
    assert_eq!(ids(&[], &["crd-missing"]).len(), all().len() - 1);
    let error = select(&["nonsense"], &[]).unwrap_err().to_string();
    assert!(error.starts_with("there is no check \"nonsense\"; known are server-version, "), "{error}");
}

#[test]
fn findings_are_in_the_order_people_count_in() {
    let mut names = ["node-10", "node-2", "a-10-b", "a-9-b", "node", "node-02"];
    names.sort_by_key(|name| check::natural(name));
    assert_eq!(names, ["a-9-b", "a-10-b", "node", "node-2", "node-02", "node-10"]);
}

#[test]
fn only_selected_nodes_are_looked_at() {
    let mut world = ClusterFixture::healthy();
    world.configure("node-1", "topologyManagerPolicy", "none");
    let mut evidence = world.evidence();
    evidence.selector = Some("kubernetes.io/hostname=node-0".parse().unwrap());
    let found = lines(&report(&evidence));
    assert!(!found.iter().any(|line| line.starts_with("topology-manager-policy")), "{found:?}");
    // The report and the kubelet of node-1 do not agree, selected or not.
    evidence.selector = Some("kubernetes.io/hostname=node-1".parse().unwrap());
    let found = lines(&report(&evidence));
    assert!(found.iter().any(|line| line.starts_with("topology-manager-policy Node node-1")), "{found:?}");
}

/// `docs/validate.md` has a row for each check, with its own words.
#[test]
fn the_documentation_has_every_check() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/validate.md");
    let rows: Vec<String> = all()
        .iter()
        .map(|c| {
            format!(
                "| <a id=\"{0}\"></a>`{0}` | {1} | {2} | {3} | {4} |",
                c.id, c.severity, c.about, c.why, c.fix
            )
        })
        .collect();
    let text = std::fs::read_to_string(&path).unwrap();
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with("| <a id=")).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let head = "| check | severity | what has to be true | why it matters | how to put it right |\n|---|---|---|---|---|\n";
        let (before, rest) = text.split_once(head).unwrap();
        let after =
            rest.lines().skip_while(|line| line.starts_with("| <a id=")).collect::<Vec<_>>().join("\n");
        std::fs::write(&path, format!("{before}{head}{}\n{after}\n", rows.join("\n"))).unwrap();
        return;
    }
    assert_eq!(found, rows, "UPDATE_DOCS=1 writes the rows anew");
}

#[test]
fn before_an_installation_only_nodes_and_kubelets_count() {
    let before = |id: &str| all().into_iter().find(|check| check.id == id).unwrap().holds_before();
    for (id, wanted) in [
        ("cpu-manager-policy", true),
        ("version-skew", true),
        ("crd-missing", false),
        ("exporter-absent", false),
        ("pod-never-fits", false),
    ] {
        assert_eq!(before(id), wanted, "{id}");
    }
    let mut world = ClusterFixture::healthy();
    world.objects.retain(|key, _| key.starts_with("Node "));
    let checks = Selection { pre: true, ..Selection::default() }.checks().unwrap();
    let report = examine(&world.evidence(), &checks);
    assert_eq!(
        (report.verdict(), report.checks_done, report.passed.len()),
        (Verdict::Clean, checks.len(), checks.len())
    );
}

#[test]
fn findings_about_pods_of_other_namespaces_are_left_out() {
    let mut world = ClusterFixture::healthy();
    for namespace in ["a", "b"] {
        world.add(fixture::pod(namespace, namespace, None, "unheard-of", "2", "Pending"));
    }
    world.configure("*", "cpuManagerReconcilePeriod", "30s");
    let mut report = report(&world.evidence());
    let all = report.findings.len();
    report.keep_namespace("a");
    let objects: Vec<&str> = report.findings.iter().map(|finding| finding.object.as_str()).collect();
    assert_eq!(objects.len(), all - 1, "{objects:?}");
    assert!(objects.contains(&"Pod a/a") && objects.contains(&"Node node-0"), "{objects:?}");
}
