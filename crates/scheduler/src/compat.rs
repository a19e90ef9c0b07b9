//! kube-scheduler's command line, for manifests that were written for it.
//!
//! In: arguments and environment variables of kube-scheduler. Out: [`Args`], or a text and an exit code. Never: the end
//! of the process, or a file.
//!
//! Flags are parsed as by Go's `flag` package, with one or two dashes. Flags without effect are accepted and logged
//! once; values that would have to have one are refused.

use std::path::PathBuf;
use std::time::Duration;

use runtime::goflag::{Error, FlagSet, KLOG, Outcome, Parsed};

use crate::args::{Args, ElectionFlags};
use crate::config::HOLD_AFTER_MS;
use gates::Gates;

mod gates;
mod refused;
mod serving;
mod table;

/// The program's name.
pub const NAME: &str = "kube-scheduler";
/// The exit code for errors.
pub const FAILURE: u8 = 1;
/// Path of the program in its image; some manifests pass it as the first argument.
const PATH: &str = "/bin/kube-scheduler";

/// The meaning of a command line.
#[derive(Debug)]
pub enum Start {
    /// Run the scheduler.
    Run(Box<Plan>),
    /// Print a text and exit: to standard output if the code is 0, else to standard error.
    End {
        /// The text.
        text: String,
        /// The exit code.
        code: u8,
    },
}

/// A scheduler to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The arguments, as of our own command line.
    pub args: Args,
    /// Flags that were given and have no effect, for the log.
    pub ignored: Vec<&'static str>,
}

impl Plan {
    /// Logs the flags that have no effect.
    pub fn log_ignored(&self) {
        if !self.ignored.is_empty() {
            tracing::info!(flags = self.ignored.join(" "), "these flags have no effect here");
        }
    }
}

/// Whether a word is the program's name, alone or as the path in its image.
#[must_use]
pub fn named(word: &str) -> bool {
    word == NAME || word == PATH
}

/// Parses the arguments after the program's name. `program` is the name in the usage text; `variable` looks up
/// environment variables.
#[must_use]
pub fn start(program: &str, arguments: Vec<String>, variable: &dyn Fn(&str) -> Option<String>) -> Start {
    let mut arguments = arguments;
    if arguments.first().is_some_and(|first| named(first)) {
        arguments.remove(0);
    }
    let flags = FlagSet {
        program,
        flags: &[table::EFFECTIVE, table::SERVING, table::WITHOUT_EFFECT, table::REFUSED, KLOG],
    };
    let parsed = match flags.parse(arguments) {
        Ok(parsed) => parsed,
        Err(Outcome::Help { usage }) => return Start::End { text: usage, code: 0 },
        Err(Outcome::Wrong { error, .. }) => return wrong(&complaint(&error)),
    };
    if parsed.bool("version") == Some(true) {
        return Start::End { text: format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")), code: 0 };
    }
    if let Some(first) = parsed.rest.first() {
        return wrong(&format!("unexpected argument {first:?}: only flags are allowed"));
    }
    match args(&parsed, variable) {
        Ok((args, gates)) => {
            let ignored = table::WITHOUT_EFFECT.iter().map(|flag| flag.name);
            let gates = gates.has_others.then_some("feature-gates");
            let ignored = ignored.filter(|name| parsed.has(name)).chain(gates).collect();
            Start::Run(Box::new(Plan { args, ignored }))
        }
        Err(problem) => wrong(&problem),
    }
}

fn wrong(problem: &str) -> Start {
    Start::End { text: format!("error: {problem}\n"), code: FAILURE }
}

fn complaint(error: &Error) -> String {
    match error {
        Error::Undefined(name) => format!("unknown flag: --{name}; --help lists the known flags"),
        other => other.to_string(),
    }
}

fn args(parsed: &Parsed, variable: &dyn Fn(&str) -> Option<String>) -> Result<(Args, Gates), String> {
    let text = |name: &str| parsed.text(name).filter(|text| !text.is_empty());
    let path = |name: &str| text(name).map(PathBuf::from);
    refused::check(parsed)?;
    let (http_bind_address, serving) = serving::read(parsed)?;
    let health = text("health-probe-bind-address").unwrap_or_default();
    let health_probe_bind_address =
        runtime::http::address(health).map_err(|error| format!("--health-probe-bind-address: {error}"))?;
    let format = text("logging-format").unwrap_or("text");
    if !["text", "json"].contains(&format) {
        return Err(format!("--logging-format: {format} is not allowed; it must be text or json"));
    }
    let gates = gates::read(text("feature-gates").unwrap_or_default())?;
    let args = Args {
        config: path("config"),
        kubeconfig: path("kubeconfig"),
        leader_elect: parsed.bool("leader-elect"),
        http_bind_address,
        health_probe_bind_address,
        seed: None,
        delete_rejected_pods: false,
        hold_node_after: Duration::from_millis(HOLD_AFTER_MS).into(),
        verbosity: parsed.int("v").map_or(2, |level| u8::try_from(level.max(0)).unwrap_or(u8::MAX)),
        logging_format: format.to_owned(),
        pods_fingerprint_status_dir: variable("PFP_STATUS_DUMP").map(PathBuf::from),
        is_kube_scheduler: true,
        write_config_to: path("write-config-to"),
        max_wait: parsed.duration("pod-max-in-unschedulable-pods-duration"),
        serving,
        election: ElectionFlags {
            lease_duration: parsed.duration("leader-elect-lease-duration"),
            renew_deadline: parsed.duration("leader-elect-renew-deadline"),
            retry_period: parsed.duration("leader-elect-retry-period"),
            resource_name: text("leader-elect-resource-name").map(str::to_owned),
            resource_namespace: text("leader-elect-resource-namespace").map(str::to_owned),
        },
        gang_scheduling: gates.gang_scheduling,
    };
    Ok((args, gates))
}

#[cfg(test)]
mod tests;
