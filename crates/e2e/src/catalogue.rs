//! Every spec, by feature.
//!
//! In: nothing. Out: the specs in the order in which they run. Never: two specs with one id.

mod configuration;
mod exporters;
mod fundamentals;
mod hostlevel;
mod install;
mod introspection;
mod kubelet_changes;
mod metrics;
mod must_gather;
mod network_policy;
mod no_report;
mod node_groups;
mod nodelabel;
mod non_regression;
mod placement_resources;
mod preemption;
mod resource_accounting;
mod scheduler_cache;
mod scheduler_cache_stall;
mod scheduler_object;
mod scheduler_removal;
mod taint;
mod tls_compliance;
pub mod tmpol;
mod tolerations;
mod tools;
mod unschedulable;
mod version;
mod workload_overhead;
mod workload_placement;

use crate::spec::Spec;

/// The specs of a file.
type Specs = fn() -> Vec<Spec>;

/// Features, in the order in which they run: what changes nothing first, what restarts kubelets last.
const FEATURES: &[(&str, Specs)] = &[
    ("nonreg", non_regression::specs),
    ("nonreg", fundamentals::specs),
    ("resacct", resource_accounting::specs),
    ("hostlevel", hostlevel::specs),
    ("byres", placement_resources::specs),
    ("nodelabel", nodelabel::specs),
    ("taint", taint::specs),
    ("tmpol", tmpol::specs),
    ("unsched", unschedulable::specs),
    ("cache", scheduler_cache::specs),
    ("stall", scheduler_cache_stall::specs),
    ("overhead", workload_overhead::specs),
    ("wlplacement", workload_placement::specs),
    ("preemption", preemption::specs),
    ("netpols", network_policy::specs),
    ("introspection", introspection::specs),
    ("config", version::specs),
    ("metrics", metrics::specs),
    ("rte", exporters::specs),
    ("tools", tools::specs),
    ("tools", must_gather::specs),
    ("config", configuration::specs),
    ("schedrst", scheduler_removal::specs),
    ("nonrt", no_report::specs),
    ("install", scheduler_object::specs),
    ("install", install::specs),
    ("rtetols", tolerations::specs),
    ("tlscompliance", tls_compliance::specs),
    ("config", node_groups::specs),
    ("config", kubelet_changes::specs),
];

/// All specs.
#[must_use]
pub fn all() -> Vec<Spec> {
    let features = FEATURES.iter();
    features
        .flat_map(|(feature, specs)| specs().into_iter().map(move |spec| Spec { feature, ..spec }))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::spec::{LAST_TIER, Run};

    #[test]
    fn each_spec_has_an_id_of_its_own_a_claim_and_a_tier() {
        let mut seen = BTreeSet::new();
        for spec in all() {
            assert!(seen.insert(spec.id.clone()), "{} is there twice", spec.id);
            assert!(!spec.title.is_empty() && spec.title.len() <= 100, "{}: {:?}", spec.id, spec.title);
            assert!(spec.tier.0 <= LAST_TIER, "{}", spec.id);
        }
    }
    /// docs/e2e.md lists every spec.
    #[test]
    fn the_page_is_up_to_date() {
        const MARK: &str =
            "<!-- What follows is written by `UPDATE_DOCS=1 cargo test -p e2e --lib catalogue`. -->\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/e2e.md");
        let page = fs::read_to_string(&path).unwrap();
        let (head, found) = page.split_once(MARK).unwrap();
        let mut rows = String::from("\n| id | tier | feature | spec | labels |\n|---|---|---|---|---|\n");
        for spec in all() {
            let title = match spec.run {
                Run::Test(_) => spec.title.clone(),
                Run::Absent(reason) => format!("{}: not tried, it needs {reason}", spec.title),
            };
            let labels = spec.labels.join(", ");
            writeln!(rows, "| {} | {} | {} | {title} | {labels} |", spec.id, spec.tier.0, spec.feature)
                .unwrap();
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, format!("{head}{MARK}{rows}")).unwrap();
            return;
        }
        assert_eq!(found, rows, "UPDATE_DOCS=1 writes it anew");
    }
}
