//! kube-scheduler's command line, for manifests that were written for it.
//!
//! In: arguments and environment variables of kube-scheduler. Out: [`Args`], or a text and an exit code. Never: the end
//! of the process, or a file.
//!
//! Flags are parsed as by Go's `flag` package, with one or two dashes. Flags without effect are accepted and logged
//! once. Health checks and metrics are on port 10259 over TLS, as there; every client that reaches the port may read
//! them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use runtime::goflag::{Error, FlagSet, KLOG, Outcome, Parsed};
use runtime::tls;

use crate::args::{Args, ElectionFlags, Serving};
use crate::config::HOLD_AFTER_MS;

mod table;

/// The program's name.
pub const NAME: &str = "kube-scheduler";
/// The exit code for errors.
pub const FAILURE: u8 = 1;
/// Path of the program in its image; some manifests pass it as the first argument.
const PATH: &str = "/bin/kube-scheduler";
/// The default port of health checks and metrics.
const PORT: i64 = 10259;

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
    let flags = FlagSet { program, flags: &[table::EFFECTIVE, table::WITHOUT_EFFECT, KLOG] };
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
        Ok(args) => {
            let ignored = table::WITHOUT_EFFECT.iter().map(|flag| flag.name);
            let ignored = ignored.filter(|name| parsed.has(name)).collect();
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

fn args(parsed: &Parsed, variable: &dyn Fn(&str) -> Option<String>) -> Result<Args, String> {
    let text = |name: &str| parsed.text(name).filter(|text| !text.is_empty());
    let path = |name: &str| text(name).map(PathBuf::from);
    let (http_bind_address, serving) = serving(parsed)?;
    let health = text("health-probe-bind-address").unwrap_or_default();
    let health_probe_bind_address =
        runtime::http::address(health).map_err(|error| format!("--health-probe-bind-address: {error}"))?;
    let format = text("logging-format").unwrap_or("text");
    if !["text", "json"].contains(&format) {
        return Err(format!("--logging-format: {format} is not allowed; it must be text or json"));
    }
    Ok(Args {
        config: path("config"),
        kubeconfig: path("kubeconfig"),
        leader_elect: parsed.bool("leader-elect"),
        http_bind_address,
        health_probe_bind_address,
        seed: None,
        hold_node_after: Duration::from_millis(HOLD_AFTER_MS).into(),
        verbosity: parsed.int("v").map_or(2, |level| u8::try_from(level.max(0)).unwrap_or(u8::MAX)),
        logging_format: format.to_owned(),
        pods_fingerprint_status_dir: variable("PFP_STATUS_DUMP").map(PathBuf::from),
        serving,
        election: ElectionFlags {
            lease_duration: parsed.duration("leader-elect-lease-duration"),
            renew_deadline: parsed.duration("leader-elect-renew-deadline"),
            retry_period: parsed.duration("leader-elect-retry-period"),
            resource_name: text("leader-elect-resource-name").map(str::to_owned),
            resource_namespace: text("leader-elect-resource-namespace").map(str::to_owned),
        },
    })
}

/// Address and transport of health checks and metrics.
fn serving(parsed: &Parsed) -> Result<(SocketAddr, Serving), String> {
    let text = |name: &str| parsed.text(name).unwrap_or_default();
    let port = parsed.int("secure-port").unwrap_or(PORT);
    let port = u16::try_from(port)
        .map_err(|_| format!("--secure-port: {port} is not allowed; it must be 0 to 65535"))?;
    let address = match text("bind-address") {
        "" => "0.0.0.0",
        address => address,
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("--bind-address: {address:?} is not allowed; it must be an IP address"))?;
    let (certificate, key) = (text("tls-cert-file"), text("tls-private-key-file"));
    if certificate.is_empty() != key.is_empty() {
        return Err("--tls-cert-file and --tls-private-key-file: give both or none".to_owned());
    }
    let policy = tls::Policy::parse(text("tls-min-version"), text("tls-cipher-suites"))
        .map_err(|error| format!("--tls-min-version, --tls-cipher-suites: {error}"))?;
    let address = SocketAddr::new(address, port);
    if port == 0 {
        return Ok((address, Serving::Disabled));
    }
    let settings = tls::Settings { policy, ..tls::Settings::new(certificate, key) };
    Ok((address, Serving::Tls(Box::new(settings))))
}

#[cfg(test)]
mod tests;
