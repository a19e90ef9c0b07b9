//! Every check there is, and doing them.
//!
//! In: [`Evidence`] and a [`Selection`]. Out: a [`Report`]. Never: a check done on what was not seen.
//!
//! A check is one small function, listed in one of the tables below it. `docs/validate.md` has a row for each; a test keeps
//! the two in step, and another one proves that each check can find something and can find nothing.

use std::collections::BTreeMap;

use super::evidence::{Area, Evidence};
use super::finding::{Finding, Findings, Report, Undone};

mod cluster;
mod exporter;
mod kubelet;
mod options;
mod pods;
mod report;
mod reserved;
mod scheduler;
pub(super) mod stale;

/// One thing that is looked at.
#[derive(Debug)]
pub struct Check {
    /// Its name, for flags and documentation.
    pub id: &'static str,
    /// What has to be true, in a few words.
    pub about: &'static str,
    /// The severities its findings can have, for documentation.
    pub severity: &'static str,
    /// What has to have been seen.
    pub needs: &'static [Area],
    /// Why a finding matters.
    pub why: &'static str,
    /// How to put it right.
    pub fix: &'static str,
    /// The check itself.
    pub run: fn(&Evidence, &mut Findings<'_>),
}

/// All checks, in the order in which they are reported.
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

/// Which checks to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these; empty: all.
    pub only: Vec<String>,
    /// Not these.
    pub skip: Vec<String>,
}

/// A name that no check has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no check {id:?}; known are {known}")]
pub struct UnknownCheck {
    /// The name.
    pub id: String,
    /// The names there are.
    pub known: String,
}

impl Selection {
    /// The checks it selects, in order.
    ///
    /// # Errors
    /// When it names one that does not exist.
    pub fn checks(&self) -> Result<Vec<&'static Check>, UnknownCheck> {
        let mut checks = all();
        for id in self.only.iter().chain(&self.skip) {
            if !checks.iter().any(|check| check.id == id) {
                let known = checks.iter().map(|check| check.id).collect::<Vec<_>>().join(", ");
                return Err(UnknownCheck { id: id.clone(), known });
            }
        }
        let named = |list: &[String], check: &Check| list.iter().any(|id| id == check.id);
        checks
            .retain(|check| (self.only.is_empty() || named(&self.only, check)) && !named(&self.skip, check));
        Ok(checks)
    }
}

/// Does checks.
#[must_use]
pub fn examine(evidence: &Evidence, checks: &[&'static Check]) -> Report {
    let mut report = Report::default();
    let mut missing: BTreeMap<Area, Vec<&'static str>> = BTreeMap::new();
    let hint = kubelet_hint(evidence);
    for check in checks {
        let gap = check.needs.iter().find(|area| evidence.gaps.contains_key(area));
        match gap {
            Some(area) => missing.entry(*area).or_default().push(check.id),
            None => {
                report.findings.extend(run(check, evidence, hint));
                report.checks_done += 1;
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

/// Does one check.
pub(super) fn run(check: &'static Check, evidence: &Evidence, hint: &str) -> Vec<Finding> {
    let hint = if check.needs.contains(&Area::KubeletConfig) { hint } else { "" };
    let mut findings = Findings::new(check, hint);
    (check.run)(evidence, &mut findings);
    findings.into_found()
}

fn undone(
    evidence: &Evidence,
    checks: &[&'static Check],
    missing: BTreeMap<Area, Vec<&'static str>>,
) -> Vec<Undone> {
    let reason = |area: &Area| evidence.gaps.get(area).cloned().unwrap_or_default();
    let mut list: Vec<Undone> = missing
        .into_iter()
        .map(|(area, checks)| Undone { area, object: None, reason: reason(&area), checks })
        .collect();
    let needy = |check: &&&Check| check.needs.contains(&Area::KubeletConfig);
    let ids: Vec<&str> = checks.iter().filter(needy).map(|check| check.id).collect();
    if ids.is_empty() || evidence.gaps.contains_key(&Area::KubeletConfig) {
        return list;
    }
    for node in evidence.workers() {
        let reason = match &node.kubelet {
            Some(Ok(_)) => continue,
            Some(Err(reason)) => reason.clone(),
            None => "its configuration was not seen".to_owned(),
        };
        let (area, object) = (Area::KubeletConfig, Some(node.title()));
        list.push(Undone { area, object, reason, checks: ids.clone() });
    }
    list
}

/// Where a kubelet's settings are made, on platforms with a place of their own for them.
fn kubelet_hint(evidence: &Evidence) -> &'static str {
    if evidence.platform.is_some_and(crate::platform::Platform::is_openshift) {
        "on OpenShift this is set in a KubeletConfig or PerformanceProfile object of the node's pool"
    } else {
        ""
    }
}

/// Orders `node-2` before `node-10`.
pub(super) fn natural(text: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut word = String::new();
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        if !next.is_ascii_digit() {
            word.push(next);
            continue;
        }
        let mut number = u64::from(next.to_digit(10).unwrap_or(0));
        while let Some(digit) = rest.peek().and_then(|next| next.to_digit(10)) {
            number = number.saturating_mul(10).saturating_add(u64::from(digit));
            rest.next();
        }
        // The word before it decides first.
        parts.push((0, std::mem::take(&mut word)));
        parts.push((number, String::new()));
    }
    parts.push((0, word));
    parts
}
