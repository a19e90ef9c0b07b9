//! The command lines of the programs that the exporter replaces.
//!
//! In: the arguments of a peer, and the [`Environment`] of the process. Out: a [`Plan`] with the [`Settings`], or
//! output and exit code ([`Ending`]). Never: the node, the API server, an exit of the process: all of that is the
//! caller's.
//!
//! `rte` is for resource-topology-exporter, `nfd` for nfd-topology-updater. [`crate::args`] is the exporter's own.

pub mod environment;
pub mod extra;
mod nfd;
pub mod notify_file;
mod rte;

use std::path::PathBuf;
use std::time::Duration;

use runtime::goflag::{FlagSet, Outcome, Parsed};

use crate::settings::Settings;

pub use environment::Environment;

/// Time between scans for releases while pods hold resources; no peer has a flag for it. See [`crate::schedule`].
const RELEASE: Duration = Duration::from_secs(1);

/// A program that the exporter replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// resource-topology-exporter 0.25, alone or as the operand of numaresources-operator.
    Rte,
    /// nfd-topology-updater 0.20.
    Nfd,
}

/// The meaning of a command line.
#[derive(Debug)]
pub enum Start {
    /// Run with these settings.
    Run(Box<Plan>),
    /// Print and exit.
    End(Ending),
}

/// How to run.
#[derive(Debug)]
pub struct Plan {
    /// The settings.
    pub settings: Settings,
    /// The verbosity, as klog's `-v`.
    pub verbosity: u8,
    /// Text for standard output before the start; may be empty.
    pub stdout: String,
    /// Messages for the log, once it is set up.
    pub notes: Vec<Note>,
}

/// How to exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
    /// The exit code.
    pub code: u8,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Information.
    Info(String),
    /// A probable mistake.
    Warning(String),
}

impl Note {
    /// Writes the note to the log.
    pub fn log(&self) {
        match self {
            Self::Info(text) => tracing::info!("{text}"),
            Self::Warning(text) => tracing::warn!("{text}"),
        }
    }
}

/// A reason why a command line, variable or file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A value that is not allowed.
    #[error("{at}: {value} is not allowed; it must be {allowed}")]
    Value {
        /// The file and key, flag or variable.
        at: String,
        /// The value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// A file that cannot be read, or is not YAML.
    #[error("{file}: {reason}")]
    File {
        /// The path of the file.
        file: String,
        /// The cause.
        reason: String,
    },
    /// A file outside of the directories that only administrators can write to.
    #[error("{path} is outside of the directories that configuration is read from: {allowed}")]
    Outside {
        /// The path, after symbolic links.
        path: String,
        /// The allowed directories.
        allowed: String,
    },
    /// A required value that is missing.
    #[error("{what}: {remedy}")]
    Missing {
        /// The missing value.
        what: String,
        /// How to provide it.
        remedy: String,
    },
    /// Two listeners that want one port.
    #[error("{0}")]
    Ports(String),
    /// Excess arguments.
    #[error("unexpected arguments {0:?}; {1}")]
    Arguments(Vec<String>, &'static str),
}

impl Problem {
    pub(crate) fn value(
        at: impl Into<String>,
        value: impl std::fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Value { at: at.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

impl Peer {
    /// The peer whose program has this name, without its directory.
    #[must_use]
    pub fn named(program: &str) -> Option<Self> {
        match program {
            "resource-topology-exporter" | "rte" => Some(Self::Rte),
            "nfd-topology-updater" => Some(Self::Nfd),
            _ => None,
        }
    }

    /// The name of the program, with which its version line begins.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Rte => "resource-topology-exporter",
            Self::Nfd => "nfd-topology-updater",
        }
    }

    /// The exit code of errors other than wrong flags.
    #[must_use]
    pub fn failure(self) -> u8 {
        match self {
            Self::Rte => 255,
            Self::Nfd => 1,
        }
    }

    /// Parses the arguments that follow the program's name. `program` is the name in the usage text.
    #[must_use]
    pub fn start(self, program: &str, arguments: Vec<String>, env: &Environment) -> Start {
        match self {
            Self::Rte => rte::start(program, arguments, env),
            Self::Nfd => nfd::start(program, arguments, env),
        }
        .unwrap_or_else(Start::End)
    }

    /// Exits with the problems, a line each.
    fn unusable(self, problems: &[Problem]) -> Ending {
        let stderr = problems.iter().map(|problem| format!("error: {problem}\n")).collect();
        Ending { stderr, code: self.failure(), ..Ending::default() }
    }

    fn version(self) -> String {
        format!("{} {}\n", self.program(), env!("CARGO_PKG_VERSION"))
    }
}

/// Parses flags, or exits as Go programs do.
fn flags(set: FlagSet<'_>, arguments: Vec<String>) -> Result<Parsed, Ending> {
    set.parse(arguments).map_err(|outcome| ended(&outcome))
}

fn ended(outcome: &Outcome) -> Ending {
    Ending { stderr: outcome.text(), code: outcome.code(), ..Ending::default() }
}

/// A klog verbosity as `log::init` takes it.
fn verbosity(level: i64) -> u8 {
    u8::try_from(level.max(0)).unwrap_or(u8::MAX)
}

/// The name of the node, if it is a valid Kubernetes object name. As in the kubelet, the host's own name is used in
/// lower case.
pub(crate) fn node_name(wanted: Option<&str>, env: &Environment) -> Option<String> {
    let name = match wanted {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => env.host.to_lowercase(),
    };
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|first| inner(*first))
            && bytes.last().is_some_and(|last| inner(*last))
            && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
    };
    (name.len() <= 253 && name.split('.').all(label)).then_some(name)
}

/// The allowed names for [`node_name`].
pub(crate) const NODE_NAME: &str = "lower-case letters, digits, `-` and `.`, at most 253";

/// The directory of `PFP_STATUS_DUMP`, if it exists.
pub(crate) fn status_dump(env: &Environment) -> Option<PathBuf> {
    env.variable("PFP_STATUS_DUMP").map(PathBuf::from).filter(|dir| env.is_dir(dir))
}
