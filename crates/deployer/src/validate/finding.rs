//! What a check has to say, and how much of it there is.
//!
//! In: calls of checks. Out: [`Report`], in an order that depends on nothing but its content. Never: an opinion.

use serde::Serialize;

use super::check::Check;
use super::evidence::Area;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pods are rejected, misplaced or never placed.
    Error,
    /// Something does not work as intended, or will stop working.
    Warning,
    /// Worth knowing; not counted as a finding by the exit code.
    Info,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's id.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, such as `Node worker-1`.
    pub object: String,
    /// What is wrong.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// How to put it right.
    pub fix: String,
    /// The same in the terms of `deployer validate` and `nrovalidate`, for checks they have too.
    #[serde(skip)]
    pub item: Option<Item>,
}

/// A finding of the peers: a setting with its expected and its detected value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
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

/// Something that could not be looked at, and the checks that were not (or not completely) done for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// What was to be looked at.
    pub area: Area,
    /// The one object it is about; none: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Why it could not be looked at.
    pub reason: String,
    /// Ids of the checks.
    pub checks: Vec<&'static str>,
}

/// All there is to say about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub not_checked: Vec<Undone>,
    /// How many checks were done completely.
    pub checks_done: usize,
}

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything was checked; nothing worse than an [`Severity::Info`] was found. Exit code 0.
    Clean,
    /// Errors or warnings were found. Exit code 1.
    Findings,
    /// Something could not be checked. Exit code 2, whatever else was found.
    Incomplete,
}

/// Where checks put what they find.
#[derive(Debug)]
pub struct Findings<'a> {
    check: &'a Check,
    /// Said after every fix of this check.
    hint: &'a str,
    found: Vec<Finding>,
}

impl<'a> Findings<'a> {
    /// Of one check; `hint` is added to what is said about putting things right.
    #[must_use]
    pub fn new(check: &'a Check, hint: &'a str) -> Self {
        Self { check, hint, found: Vec::new() }
    }

    /// Adds a finding with the check's own words for why and how.
    pub fn add(
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

    /// An [`Severity::Error`].
    pub fn error(&mut self, object: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        self.add(Severity::Error, object, what)
    }

    /// A [`Severity::Warning`].
    pub fn warning(&mut self, object: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        self.add(Severity::Warning, object, what)
    }

    /// An [`Severity::Info`].
    pub fn info(&mut self, object: impl Into<String>, what: impl Into<String>) -> &mut Finding {
        self.add(Severity::Info, object, what)
    }

    /// What was found.
    #[must_use]
    pub fn into_found(self) -> Vec<Finding> {
        self.found
    }
}

impl Finding {
    /// Says the same in the peers' terms, about a node's kubelet.
    pub fn kubelet(&mut self, node: &str, component: &str, setting: &str, expected: &str, detected: &str) {
        let [node, component, setting, expected, detected] =
            [node, component, setting, expected, detected].map(str::to_owned);
        self.item = Some(Item { node, area: "kubelet", component, setting, expected, detected });
    }

    /// Says the same in the peers' terms, about the cluster.
    pub fn cluster(&mut self, component: &str, setting: &str, expected: &str, detected: &str) {
        let [component, setting, expected, detected] =
            [component, setting, expected, detected].map(str::to_owned);
        let node = String::new();
        self.item = Some(Item { node, area: "cluster", component, setting, expected, detected });
    }

    /// Puts another advice in place of the check's own.
    pub fn fix(&mut self, fix: impl Into<String>) -> &mut Self {
        self.fix = fix.into();
        self
    }
}

impl Report {
    /// What the exit code says.
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

    /// How many findings there are of a severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

impl Verdict {
    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Findings => 1,
            Self::Incomplete => 2,
        }
    }
}
