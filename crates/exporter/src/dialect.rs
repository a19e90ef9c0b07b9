//! The command lines of the programs we stand in for.
//!
//! In: the arguments of a peer, and what lies around the process ([`Surroundings`]). Out: a [`Plan`] with the [`Settings`] that
//! they come to, or what to print and the exit code ([`Ending`]). Never: the node, the API server, a process that ends: all of
//! that is the caller's.
//!
//! `rte` is resource-topology-exporter's, `nfd` nfd-topology-updater's. Ours is [`crate::args`].

pub mod extra;
mod nfd;
pub mod notify_file;
mod rte;
pub mod surroundings;

use std::path::PathBuf;
use std::time::Duration;

use runtime::goflag::{FlagSet, Outcome, Parsed};

use crate::settings::Settings;

pub use surroundings::Surroundings;

/// Time between looks for releases while pods hold something; no peer has a flag for it. See [`crate::pace`].
const RELEASE: Duration = Duration::from_secs(1);

/// A program we stand in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// resource-topology-exporter 0.25, alone or as the operand of numaresources-operator.
    Rte,
    /// nfd-topology-updater 0.20.
    Nfd,
}

/// What a command line comes to.
#[derive(Debug)]
pub enum Start {
    /// Run.
    Run(Box<Plan>),
    /// Print and end.
    End(Ending),
}

/// What to do.
#[derive(Debug)]
pub struct Plan {
    /// How to run.
    pub settings: Settings,
    /// As klog's `-v`.
    pub verbosity: u8,
    /// What standard output is to show first; may be empty.
    pub stdout: String,
    /// What the log is to say once there is one.
    pub notes: Vec<Note>,
}

/// How to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// The exit code.
    pub code: u8,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Worth knowing.
    Info(String),
    /// Probably not what was meant.
    Warning(String),
}

impl Note {
    /// Logs it.
    pub fn log(&self) {
        match self {
            Self::Info(text) => tracing::info!("{text}"),
            Self::Warning(text) => tracing::warn!("{text}"),
        }
    }
}

/// Something that makes a command line, variable or file unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A value that is none of those allowed.
    #[error("{at}: {value} is not allowed; it must be {allowed}")]
    Value {
        /// File and key, flag or variable.
        at: String,
        /// What it says.
        value: String,
        /// What it may say.
        allowed: String,
    },
    /// A file that cannot be read, or is not YAML.
    #[error("{file}: {reason}")]
    File {
        /// Its path.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A file in a place where anybody could have put it.
    #[error("{path} is outside of the directories that configuration is read from: {allowed}")]
    Outside {
        /// Where it is, after symbolic links.
        path: String,
        /// Where it may be.
        allowed: String,
    },
    /// Something that has to be said and was not.
    #[error("{what}: {remedy}")]
    Missing {
        /// What.
        what: String,
        /// How to say it.
        remedy: String,
    },
    /// More arguments than have a meaning.
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

impl Dialect {
    /// The dialect of a program with this name, without its directory.
    #[must_use]
    pub fn named(program: &str) -> Option<Self> {
        match program {
            "resource-topology-exporter" | "rte" => Some(Self::Rte),
            "nfd-topology-updater" => Some(Self::Nfd),
            _ => None,
        }
    }

    /// The name it is known by, which its version line begins with.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Rte => "resource-topology-exporter",
            Self::Nfd => "nfd-topology-updater",
        }
    }

    /// The exit code of an error that is not one of the command line's grammar.
    #[must_use]
    pub fn failure(self) -> u8 {
        match self {
            Self::Rte => 255,
            Self::Nfd => 1,
        }
    }

    /// Understands the arguments that follow the program's name, which is `program` in the usage text.
    #[must_use]
    pub fn start(self, program: &str, arguments: Vec<String>, around: &Surroundings) -> Start {
        match self {
            Self::Rte => rte::start(program, arguments, around),
            Self::Nfd => nfd::start(program, arguments, around),
        }
        .unwrap_or_else(Start::End)
    }

    /// Ends with the problems, a line each.
    fn unusable(self, problems: &[Problem]) -> Ending {
        let stderr = problems.iter().map(|problem| format!("error: {problem}\n")).collect();
        Ending { stderr, code: self.failure(), ..Ending::default() }
    }

    fn version(self) -> String {
        format!("{} {}\n", self.program(), env!("CARGO_PKG_VERSION"))
    }
}

/// Reads flags, or ends as Go programs do.
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

/// The name of the node, if it can be one: a Kubernetes object name. The host's own is taken as the kubelet takes it: in
/// lower case.
pub(crate) fn node_name(wanted: Option<&str>, around: &Surroundings) -> Option<String> {
    let name = match wanted {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => around.host.to_lowercase(),
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

/// What [`node_name`] wants.
pub(crate) const NODE_NAME: &str = "lower-case letters, digits, `-` and `.`, at most 253";

/// Where `PFP_STATUS_DUMP` wants statuses, if that is a directory.
pub(crate) fn status_dump(around: &Surroundings) -> Option<PathBuf> {
    around.variable("PFP_STATUS_DUMP").map(PathBuf::from).filter(|dir| around.is_dir(dir))
}
