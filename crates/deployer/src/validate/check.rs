//! The list of checks, and running them.
//!
//! In: [`Evidence`] and a [`Selection`]. Out: a [`Validation`]. Never: a check without evidence.
//!
//! Each check is one function in one of the tables. `docs/validate.md` has a row for each, which a test compares.
//! Another test proves that each check has findings in a broken cluster and none in a healthy one.

use std::collections::BTreeMap;

use anyhow::bail;

use super::evidence::{Area, Evidence, Node};
use super::finding::{Finding, NotChecked, PeerFinding, Severity, Validation};
use crate::docs;

mod cluster;
mod exporter;
mod kubelet;
mod options;
pub(crate) mod pods;
mod report;
mod reserved;
mod scheduler;
pub(crate) mod stale;

/// The evidence for checks of a kubelet's configuration.
const KUBELET: &[Area] = &[Area::Nodes, Area::KubeletConfig];

/// One check.
#[derive(Debug)]
pub struct Check {
    /// The name, for flags and documentation.
    pub id: &'static str,
    /// The condition that should hold, in a few words.
    pub about: &'static str,
    /// The severities its findings can have, for documentation.
    pub severity: &'static str,
    /// The evidence that the check needs.
    pub needs: &'static [Area],
    /// The consequence of a finding.
    pub why: &'static str,
    /// The remedy.
    pub fix: &'static str,
    /// The function.
    pub run: fn(&Evidence, &mut Findings<'_>),
}

impl Check {
    /// Whether it is about what has to be right before anything is installed.
    #[must_use]
    pub fn holds_before(&self) -> bool {
        let is_there = |area: &Area| matches!(area, Area::Version | Area::Nodes | Area::KubeletConfig);
        self.needs.iter().all(is_there)
    }

    /// The place of its description.
    #[must_use]
    pub fn link(&self) -> String {
        link(self.id)
    }
}

/// The place where the check with this id is described.
pub(super) fn link(id: &str) -> String {
    docs::link("validate", id)
}

/// Collects the findings of one check.
#[derive(Debug)]
pub struct Findings<'a> {
    check: &'a Check,
    /// Appended to every remedy of this check.
    hint: &'a str,
    found: Vec<Finding>,
}

impl Findings<'_> {
    /// Adds a finding with the check's consequence and remedy.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        object: impl Into<String>,
        what: impl Into<String>,
    ) -> &mut Finding {
        let fix = [self.check.fix, self.hint].join(if self.hint.is_empty() { "" } else { "; " });
        let (object, what) = (object.into(), what.into());
        let finding =
            Finding { id: self.check.id, severity, object, what, why: self.check.why, fix, item: None };
        self.found.push(finding);
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    /// Adds a finding about a node's kubelet, also in the peers' form: component, setting, expected and detected value.
    fn kubelet(&mut self, severity: Severity, node: &Node, what: impl Into<String>, words: [&str; 4]) {
        self.add(severity, node.title(), what).item = Some(PeerFinding::new(&node.name, "kubelet", words));
    }

    /// An [`Severity::Error`].
    pub(super) fn error(&mut self, object: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        self.add(Severity::Error, object, what)
    }

    /// A [`Severity::Warning`].
    pub(super) fn warning(&mut self, object: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        self.add(Severity::Warning, object, what)
    }

    /// An [`Severity::Info`].
    pub(super) fn info(&mut self, object: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        self.add(Severity::Info, object, what)
    }
}

/// All checks, in the order of reports.
#[must_use]
pub fn all() -> Vec<&'static Check> {
    let tables: [&[Check]; 9] = [
        &cluster::TABLE,
        &kubelet::TABLE,
        &reserved::TABLE,
        &options::TABLE,
        &report::TABLE,
        &stale::TABLE,
        &exporter::TABLE,
        &scheduler::TABLE,
        &pods::TABLE,
    ];
    tables.into_iter().flatten().collect()
}

/// A selection of checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Selection {
    /// Run only these checks
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Leave out these checks
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Run only the checks that hold before anything is installed: those of nodes and kubelets
    #[arg(long)]
    pub pre: bool,
}

impl Selection {
    /// The selected checks, in the order of reports.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn checks(&self) -> anyhow::Result<Vec<&'static Check>> {
        let mut checks = all();
        for id in self.only.iter().chain(&self.skip) {
            if !checks.iter().any(|check| check.id == id) {
                let known = checks.iter().map(|check| check.id).collect::<Vec<_>>().join(", ");
                bail!("there is no check {id:?}; known are {known}");
            }
        }
        let named = |list: &[String], check: &Check| list.iter().any(|id| id == check.id);
        checks.retain(|check| self.only.is_empty() || named(&self.only, check));
        checks.retain(|check| !named(&self.skip, check) && (!self.pre || check.holds_before()));
        Ok(checks)
    }
}

/// Runs checks.
#[must_use]
pub fn examine(evidence: &Evidence, checks: &[&'static Check]) -> Validation {
    let mut report = Validation::default();
    let mut missing: BTreeMap<Area, Vec<&'static str>> = BTreeMap::new();
    let hint = kubelet_hint(evidence);
    let workers = evidence.workers();
    let is_unknown = |node: &&Node| !matches!(node.kubelet, Some(Ok(_)));
    let no_kubelet = !workers.is_empty() && workers.iter().all(is_unknown);
    for check in checks {
        let gap = check.needs.iter().find(|area| evidence.gaps.contains_key(area));
        match gap {
            Some(area) => missing.entry(*area).or_default().push(check.id),
            None => {
                let found = run(check, evidence, hint);
                // Of a check of kubelets that saw none, nothing was done.
                let is_done = !(no_kubelet && is_about_kubelets(check));
                report.checks_done += usize::from(is_done);
                if is_done && found.is_empty() {
                    report.passed.push(check.id);
                }
                report.findings.extend(found);
            }
        }
    }
    report.not_checked = undone(evidence, checks, missing);
    let place = |finding: &Finding| checks.iter().position(|check| check.id == finding.id);
    report.findings.sort_by(|a, b| {
        let key = |finding: &Finding| (finding.severity, place(finding));
        let natural = |finding: &Finding| natural(&finding.object);
        key(a).cmp(&key(b)).then_with(|| natural(a).cmp(&natural(b))).then_with(|| a.what.cmp(&b.what))
    });
    report
}

/// Runs one check.
pub(super) fn run(check: &'static Check, evidence: &Evidence, hint: &str) -> Vec<Finding> {
    let hint = if is_about_kubelets(check) { hint } else { "" };
    let mut findings = Findings { check, hint, found: Vec::new() };
    (check.run)(evidence, &mut findings);
    findings.found
}

/// Whether a check needs the configuration of each kubelet.
fn is_about_kubelets(check: &Check) -> bool {
    check.needs.contains(&Area::KubeletConfig)
}

fn undone(
    evidence: &Evidence,
    checks: &[&'static Check],
    missing: BTreeMap<Area, Vec<&'static str>>,
) -> Vec<NotChecked> {
    let reason = |area: &Area| evidence.gaps.get(area).cloned().unwrap_or_default();
    let mut list: Vec<NotChecked> = missing
        .into_iter()
        .map(|(area, checks)| NotChecked { area, object: None, reason: reason(&area), checks })
        .collect();
    let ids: Vec<&str> =
        checks.iter().filter(|check| is_about_kubelets(check)).map(|check| check.id).collect();
    if ids.is_empty() || evidence.gaps.contains_key(&Area::KubeletConfig) {
        return list;
    }
    for node in evidence.workers() {
        let reason = match &node.kubelet {
            Some(Ok(_)) => continue,
            Some(Err(reason)) => reason.clone(),
            None => "the kubelet's configuration is not in the evidence".to_owned(),
        };
        let (area, object) = (Area::KubeletConfig, Some(node.title()));
        list.push(NotChecked { area, object, reason, checks: ids.clone() });
    }
    list
}

/// A hint for remedies on platforms that have their own objects for kubelet settings.
fn kubelet_hint(evidence: &Evidence) -> &'static str {
    if evidence.platform.is_some_and(crate::platform::Platform::is_openshift) {
        "on OpenShift set this in a KubeletConfig or PerformanceProfile object of the node's pool"
    } else {
        ""
    }
}

/// A sort key that orders `node-2` before `node-10`.
pub(super) fn natural(text: &str) -> Vec<(u64, String)> {
    let characters: Vec<char> = text.chars().collect();
    let parts = characters.chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let key = |part: String| {
        let is_number = part.starts_with(|first: char| first.is_ascii_digit());
        if is_number { (part.parse().unwrap_or(u64::MAX), String::new()) } else { (0, part) }
    };
    parts.map(|part| key(part.iter().collect())).collect()
}
