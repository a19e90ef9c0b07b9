//! `nrovalidate`.
//!
//! In: the command line, a cluster. Out: the peer's text or JSON. Never: an error for missing records of a scheduler;
//! whether its cache is in sync then follows from fingerprints and pods.
//!
//! Equal to the peer: flags, texts, exit codes (0 with any findings, 1 for an unknown validator, 2 for other failures).
//! Different: findings are ordered; ended pods are no finding; `-quiet` silences standard error too; both forms of the
//! scheduler's files are read. Without `-labels` the nodes are those of the operator's node groups, else the workers.

mod cache;
mod groups;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use runtime::client::{ClusterArgs, Connection};
use runtime::goflag::{Flag, FlagSet, Kind, Parsed, flag};
use runtime::output::{one_line, printable};
use runtime::stderr;

use super::{KUBELET, checks, found, list};
use crate::validate::check::stale::in_sync;
use crate::validate::cli::{PROGRAM, gather};
use crate::validate::evidence::{Evidence, Selector};
use crate::validate::finding::PeerFinding;

/// The time limit of a request.
const PATIENCE: Duration = Duration::from_secs(30);

const FLAGS: [Flag; 6] = [
    flag("version", Kind::Bool, "false", "print the version and exit"),
    flag("verbose", Kind::Bool, "false", "list every finding"),
    flag("json", Kind::Bool, "false", "print JSON instead of text"),
    flag("quiet", Kind::Bool, "false", "print nothing; overrides -verbose"),
    flag("what", Kind::Text, "all", "comma-separated validators to run; \"help\" lists them"),
    flag("labels", Kind::Text, "", "label selector of the nodes to look at"),
];

/// A group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Validator {
    /// The kubelets' configurations.
    K8sCfg,
    /// NodeResourceTopology objects.
    Nrt,
    /// The states of pods.
    PodSt,
    /// The scheduler's cache.
    SchedCache,
}

impl Validator {
    /// All validators, in the peer's order.
    pub const ALL: [Self; 4] = [Self::K8sCfg, Self::Nrt, Self::PodSt, Self::SchedCache];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The validators that the value of `-what` names; `None` asks for their list.
///
/// # Errors
/// In the peer's words, when there is no such validator.
pub(in crate::validate) fn selected(text: &str) -> Result<Option<BTreeSet<Validator>>, String> {
    let words: Vec<&str> = text.split(',').collect();
    if text.is_empty() || words.iter().any(|word| word.eq_ignore_ascii_case("help")) {
        return Ok(None);
    }
    if words.iter().any(|word| word.eq_ignore_ascii_case("all")) {
        return Ok(Some(Validator::ALL.into()));
    }
    let one = |word: &&str| {
        let name = word.trim().to_lowercase();
        let known = Validator::ALL.into_iter().find(|validator| validator.name() == name);
        known.ok_or_else(|| format!("failed to parse args: unknown validator: {name}"))
    };
    words.iter().map(one).collect::<Result<_, _>>().map(Some)
}

/// The findings of the validators.
pub(in crate::validate) fn items(evidence: &Evidence, what: &BTreeSet<Validator>) -> Vec<PeerFinding> {
    let mut items = Vec::new();
    for validator in what {
        match validator {
            Validator::K8sCfg => k8scfg(evidence, &mut items),
            Validator::Nrt => nrt(evidence, &mut items),
            Validator::PodSt => podst(evidence, &mut items),
            Validator::SchedCache => schedcache(evidence, &mut items),
        }
    }
    items
}

fn k8scfg(evidence: &Evidence, items: &mut Vec<PeerFinding>) {
    let mut found = found(evidence, checks(&KUBELET));
    for node in evidence.workers().into_iter().filter(|node| node.settings().is_none()) {
        found.push(PeerFinding::new(
            &node.name,
            "kubelet",
            ["configuration", "", "any value", "no configuration"],
        ));
    }
    found.sort_by(|a, b| a.node.cmp(&b.node));
    items.append(&mut found);
}

fn nrt(evidence: &Evidence, items: &mut Vec<PeerFinding>) {
    let kind = api::nrt::KIND;
    let (nodes, objects) = (evidence.workers().len(), evidence.reports.len());
    if evidence.definition.is_none() {
        items.push(PeerFinding::new("", "cluster", [kind, "installed", "true", "false"]));
    } else if objects == 0 {
        items.push(PeerFinding::new("", "cluster", [kind, "items", "> 0", "0"]));
    } else if objects != nodes {
        items.push(PeerFinding::new(
            "",
            "cluster",
            [kind, "items", &nodes.to_string(), &objects.to_string()],
        ));
    }
}

fn podst(evidence: &Evidence, items: &mut Vec<PeerFinding>) {
    for node in evidence.workers() {
        let here = evidence.pods.values().filter(|pod| pod.node.as_deref() == Some(node.name.as_str()));
        // Succeeded pods are fine.
        for pod in here.filter(|pod| !matches!(pod.phase.as_str(), "Running" | "Succeeded")) {
            items.push(PeerFinding::new(&node.name, "kubelet", ["pod", &pod.key(), "Running", &pod.phase]));
        }
    }
}

fn schedcache(evidence: &Evidence, items: &mut Vec<PeerFinding>) {
    for node in evidence.workers() {
        let unsync = match (evidence.caches.get(&node.name), evidence.reports.get(&node.name)) {
            (Some(clean), _) => !clean,
            (None, Some(report)) => report
                .read
                .as_ref()
                .is_ok_and(|(topology, _)| in_sync(evidence, &report.object, topology) == Some(false)),
            (None, None) => false,
        };
        if unsync {
            items.push(PeerFinding::new(&node.name, "cluster", ["scheduler", "cache", "clean", "unsync"]));
        }
    }
}

/// The peer's text; `verbose` lists every finding.
pub(in crate::validate) fn text(items: &[PeerFinding], verbose: bool) -> String {
    if items.is_empty() {
        return "PASSED>>: cluster configuration looks ok!\n".to_owned();
    }
    let list = if verbose { list(items) } else { String::new() };
    format!("FAILED>>: cluster configuration does NOT look ok!\n{list}")
}

/// The peer's JSON.
pub(in crate::validate) fn json(items: &[PeerFinding]) -> String {
    super::json("succeeded", items)
}

/// Runs the command; `program` is its name in messages, `arguments` are the words after the name.
/// Failures are printed on standard error and have the peer's exit codes.
#[expect(clippy::print_stdout, reason = "the findings are this command's output")]
pub async fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let flags = match (FlagSet { program, flags: &[&FLAGS] }).parse(arguments) {
        Ok(flags) => flags,
        Err(outcome) => {
            stderr::print(outcome.text());
            return ExitCode::from(outcome.code());
        }
    };
    let is = |name| flags.bool(name).unwrap_or(false);
    if is("version") {
        println!("{program} {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let what = match selected(flags.text("what").unwrap_or("all")) {
        Ok(Some(what)) => what,
        Ok(None) => {
            stderr::line(format_args!("available validators: {}", names(&Validator::ALL.into())));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            stderr::line(error);
            return ExitCode::from(1);
        }
    };
    match inspect(&flags, &what).await {
        Ok(_) if is("quiet") => {}
        Ok(items) if is("json") => print!("{}", json(&items)),
        Ok(items) => print!("{}", printable(&text(&items, is("verbose")))),
        Err(error) => {
            stderr::line(format_args!("Error while trying to validate cluster: {error:#}"));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn names(validators: &BTreeSet<Validator>) -> String {
    validators.iter().map(|validator| validator.name()).collect::<Vec<_>>().join(",")
}

async fn inspect(flags: &Parsed, what: &BTreeSet<Validator>) -> anyhow::Result<Vec<PeerFinding>> {
    let quiet = flags.bool("quiet").unwrap_or(false);
    let labels = flags.text("labels").filter(|labels| !labels.is_empty());
    let selector = labels.map(str::parse::<Selector>).transpose()?;
    if !quiet {
        stderr::line(format_args!("INFO>>>>: enabled validators: {}", names(what)));
    }
    let mut ids = Vec::new();
    for validator in what {
        match validator {
            Validator::K8sCfg => ids.extend(KUBELET),
            Validator::Nrt => ids.push("report-missing"),
            Validator::PodSt => ids.extend(["worker-nodes", "scheduler-absent"]),
            Validator::SchedCache => ids.push("report-stale"),
        }
    }
    let options = ClusterArgs::default().options(PROGRAM);
    let mut evidence = gather(&options, &checks(&ids)).await?;
    evidence.selector = selector;
    let client = Connection::open(&options).await?.client_with_timeout(PATIENCE)?;
    if evidence.selector.is_none() {
        evidence.chosen = groups::nodes(&client, &evidence).await?;
    }
    if let Some(reason) = evidence.gaps.values().next() {
        anyhow::bail!("{reason}");
    }
    let nodes: Vec<String> = evidence.workers().into_iter().map(|node| node.name.clone()).collect();
    if !quiet {
        stderr::line(format_args!("INFO>>>>: inspecting nodes: {}", one_line(&nodes.join(","))));
    }
    if what.contains(&Validator::SchedCache) {
        let (caches, notes) = cache::read(&client, &nodes).await;
        evidence.caches = caches;
        notes
            .iter()
            .filter(|_| !quiet)
            .for_each(|note| stderr::line(format_args!("INFO>>>>: {}", one_line(note))));
    }
    Ok(items(&evidence, what))
}
