//! Validations as text, JSON and YAML.
//!
//! In: a [`Validation`]. Out: text. Never: a finding left out, or a name of an object that acts on a terminal.

use std::fmt::Write as _;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use runtime::output::{OutputFormat, one_line};
use serde::Serialize;

use super::check::{Check, all, link};
use super::finding::{Finding, NotChecked, Severity, Validation, Verdict};

/// Formats of a validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text: equal findings grouped, each with consequence and remedy.
    #[default]
    Text,
    /// A table with a row for each finding.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl OutputFormat for Format {
    const DEFAULT: &'static str = "text";
}

/// The form for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    verdict: Verdict,
    errors: usize,
    warnings: usize,
    infos: usize,
    #[serde(flatten)]
    report: &'a Validation,
}

/// The greatest number of objects that are named in a group of findings.
const MAX_NAMED: usize = 5;

/// The validation in this format.
///
/// # Errors
/// When the value cannot be serialized; a validation always can.
pub fn render(report: &Validation, format: Format) -> anyhow::Result<String> {
    let document = Document {
        verdict: report.verdict(),
        errors: report.count(Severity::Error),
        warnings: report.count(Severity::Warning),
        infos: report.count(Severity::Info),
        report,
    };
    Ok(match format {
        Format::Text => text(report),
        Format::Wide => wide(report),
        Format::Json => serde_json::to_string_pretty(&document)? + "\n",
        Format::Yaml => runtime::yaml::write(&document)?,
    })
}

/// The checks with what they want, in this format.
///
/// # Errors
/// When the value cannot be serialized; a list always can.
pub fn list(checks: &[&Check], format: Format) -> anyhow::Result<String> {
    let listed: Vec<Listed<'_>> = checks.iter().map(|check| Listed::of(check)).collect();
    Ok(match format {
        Format::Text | Format::Wide => {
            let mut table = Table::new();
            table.load_style(NOTHING);
            table.set_header(["CHECK", "SEVERITY", "WHAT HAS TO BE TRUE"]);
            table.add_rows(checks.iter().map(|check| [check.id, check.severity, check.about]));
            table.trim_fmt() + "\n"
        }
        Format::Json => serde_json::to_string_pretty(&listed)? + "\n",
        Format::Yaml => runtime::yaml::write(&listed)?,
    })
}

/// A check in a list.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    severity: &'a str,
    about: &'a str,
    why: &'a str,
    fix: &'a str,
    link: String,
}

impl<'a> Listed<'a> {
    fn of(check: &'a Check) -> Self {
        let Check { id, severity, about, why, fix, .. } = check;
        Self { id, severity, about, why, fix, link: check.link() }
    }
}

fn word(severity: Severity) -> String {
    format!("{severity:?}").to_uppercase()
}

fn text(report: &Validation) -> String {
    let mut text = String::new();
    for group in groups(&report.findings) {
        let Some(first) = group.first() else { continue };
        let objects: Vec<&str> = group.iter().map(|finding| finding.object.as_str()).collect();
        let objects = named(&objects);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{:<8}{objects}: {}\n        why: {}\n        fix: {}\n        see: {}\n\n",
            word(first.severity),
            one_line(&first.what),
            first.why,
            one_line(&first.fix),
            link(first.id)
        );
    }
    for undone in not_checked(&report.not_checked) {
        let _ = writeln!(text, "{undone}\n");
    }
    text + &summary(report) + "\n"
}

/// A line for each check that was done and found nothing.
#[must_use]
pub fn passed(report: &Validation) -> String {
    let passed = all().into_iter().filter(|check| report.passed.contains(&check.id));
    passed.map(|check| format!("OK      {} ({})\n", check.about, check.id)).collect()
}

fn wide(report: &Validation) -> String {
    let mut text = String::new();
    if !report.findings.is_empty() {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(["SEVERITY", "CHECK", "OBJECT", "WHAT", "FIX"]);
        for finding in &report.findings {
            let row = [&word(finding.severity), finding.id, &finding.object, &finding.what, &finding.fix];
            table.add_row(row.map(|text| one_line(text).into_owned()));
        }
        text = table.trim_fmt() + "\n\n";
    }
    for undone in not_checked(&report.not_checked) {
        text += &undone;
        text.push('\n');
    }
    text + &summary(report) + "\n"
}

/// Groups of findings that differ only in their object, in the order of the first of each.
fn groups(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let alike =
        |a: &Finding, b: &Finding| (a.id, a.severity, &a.what, &a.fix) == (b.id, b.severity, &b.what, &b.fix);
    for finding in findings {
        // Equal findings are near each other, but findings about two kinds of nodes can alternate.
        let known = groups
            .iter_mut()
            .rev()
            .take(64)
            .find(|group| group.first().is_some_and(|first| alike(first, finding)));
        match known {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// `Node a, b, c and 4 more`, with the kind once.
pub(crate) fn named(objects: &[&str]) -> String {
    let kind =
        objects.first().and_then(|object| object.split_once(' ')).map(|(kind, _)| kind).unwrap_or_default();
    let bare = |object: &&str| match object.split_once(' ') {
        Some((of, name)) if of == kind => one_line(name).into_owned(),
        _ => one_line(object).into_owned(),
    };
    let shown: Vec<String> = objects.iter().take(MAX_NAMED).map(bare).collect();
    let kind = if kind.is_empty() { String::new() } else { format!("{kind} ") };
    let more = objects.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{kind}{}{more}", shown.join(", "))
}

/// Lines about missing evidence; objects that lack it for one reason share one.
fn not_checked(list: &[NotChecked]) -> Vec<String> {
    let mut groups: Vec<(&NotChecked, Vec<&str>)> = Vec::new();
    for undone in list {
        let object = undone.object.as_deref();
        match groups
            .iter_mut()
            .find(|(first, _)| (&first.reason, &first.checks) == (&undone.reason, &undone.checks))
        {
            Some((_, objects)) => objects.extend(object),
            None => groups.push((undone, object.into_iter().collect())),
        }
    }
    let line = |(undone, objects): (&NotChecked, Vec<&str>)| {
        let objects = if objects.is_empty() { String::new() } else { format!("{}: ", named(&objects)) };
        let reason = one_line(&undone.reason);
        format!("NOT CHECKED  {objects}{reason}\n        checks: {}", undone.checks.join(", "))
    };
    groups.into_iter().map(line).collect()
}

/// The summary in one line.
#[must_use]
pub fn summary(report: &Validation) -> String {
    let count = |severity, one: &str| {
        let number = report.count(severity);
        if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
    };
    let counts =
        [count(Severity::Error, "error"), count(Severity::Warning, "warning"), count(Severity::Info, "info")];
    let verdict = match report.verdict() {
        Verdict::Clean => "no problems found",
        Verdict::Findings => "problems found",
        Verdict::Incomplete => "some checks could not be done",
    };
    let done = report.checks_done;
    let checks = if done == 1 { "check" } else { "checks" };
    format!("{verdict}: {} ({done} {checks} done)", counts.join(", "))
}
