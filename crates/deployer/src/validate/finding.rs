//! Findings of checks, and the result of all checks.
//!
//! In: findings. Out: [`Validation`], in an order that depends only on its content. Never: a judgement.

use serde::Serialize;

use super::evidence::Area;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pods are rejected, misplaced or never scheduled.
    Error,
    /// A part does not work as intended, or will stop working.
    Warning,
    /// Information; does not affect the exit code.
    Info,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's id.
    pub id: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The object, such as `Node worker-1`.
    pub object: String,
    /// The problem.
    pub what: String,
    /// The consequence.
    pub why: &'static str,
    /// The remedy.
    pub fix: String,
    /// The finding in the terms of `deployer validate` and `nrovalidate`, if they have this check.
    #[serde(skip)]
    pub item: Option<PeerFinding>,
}

/// A finding of the peers: a setting with its expected and its detected value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerFinding {
    /// The node; empty for the cluster.
    pub node: String,
    /// `cluster` or `kubelet`.
    pub area: &'static str,
    /// The part, such as `CPU manager`.
    pub component: String,
    /// The setting, such as `policy`.
    pub setting: String,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub detected: String,
}

/// Missing evidence, and the checks that could not be done completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotChecked {
    /// The area of evidence.
    pub area: Area,
    /// The object without evidence; `None`: all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The reason.
    pub reason: String,
    /// Ids of the checks.
    pub checks: Vec<&'static str>,
}

/// The result of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// Findings, by severity.
    pub findings: Vec<Finding>,
    /// Missing evidence.
    pub not_checked: Vec<NotChecked>,
    /// The number of completed checks.
    pub checks_done: usize,
    /// Completed checks without a finding.
    pub passed: Vec<&'static str>,
}

/// The verdict, which is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All checks were done and there is no error or warning. Exit code 0.
    Clean = 0,
    /// There are errors or warnings. Exit code 1.
    Findings = 1,
    /// Some checks could not be done. Exit code 2, even with findings.
    Incomplete = 2,
}

impl Finding {
    /// Adds the peers' form, about the cluster.
    pub fn cluster(&mut self, words: [&str; 4]) {
        self.item = Some(PeerFinding::new("", "cluster", words));
    }
}

impl PeerFinding {
    /// A finding about a node, with component, setting, expected and detected value.
    #[must_use]
    pub fn new(node: &str, area: &'static str, words: [&str; 4]) -> Self {
        let [component, setting, expected, detected] = words.map(str::to_owned);
        Self { node: node.to_owned(), area, component, setting, expected, detected }
    }
}

impl Validation {
    /// The verdict, which is the exit code.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.not_checked.is_empty() {
            Verdict::Incomplete
        } else if self.findings.iter().any(|finding| finding.severity != Severity::Info) {
            Verdict::Findings
        } else {
            Verdict::Clean
        }
    }

    /// Leaves out findings about pods of other namespaces.
    pub fn keep_namespace(&mut self, namespace: &str) {
        let of_pod = |object: &str| {
            object.strip_prefix("Pod ").and_then(|pod| pod.split_once('/')).map(|(of, _)| of == namespace)
        };
        self.findings.retain(|finding| of_pod(&finding.object) != Some(false));
    }

    /// The number of findings of a severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

impl Verdict {
    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}
