//! The call of a tool, and the shared parts of the tools: flags, connections, output.
//!
//! In: a command line. Out: flags, clients, lines on standard error. Never: the work of a tool.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use runtime::client::{ClusterArgs, Connection};
use runtime::goflag::{Flag, FlagSet, Kind, Parsed};
use runtime::stderr;
pub use runtime::stdout::print;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name under which the tool was called.
    pub program: String,
    /// The arguments after the name.
    pub arguments: Vec<String>,
}

/// The flag of all tools that access a cluster.
pub const KUBECONFIG: [Flag; 1] = [Flag {
    name: "kubeconfig",
    kind: Kind::Text,
    default: "",
    help: "kubeconfig file; default: KUBECONFIG, ~/.kube/config, then the pod's service account",
}];

impl Call {
    /// Parses the flags. Other arguments are an error unless `rest` allows them.
    ///
    /// # Errors
    /// The exit code, after help or an error message was printed.
    pub fn flags(&self, flags: &[&[Flag]], rest: bool) -> Result<Parsed, ExitCode> {
        let set = FlagSet { program: &self.program, flags };
        match set.parse(self.arguments.iter().cloned()) {
            Ok(parsed) if rest || parsed.rest.is_empty() => Ok(parsed),
            Ok(parsed) => {
                stderr::print(format_args!(
                    "unexpected argument: {}\n{}",
                    parsed.rest.join(" "),
                    set.usage()
                ));
                Err(ExitCode::from(2))
            }
            Err(outcome) => {
                stderr::print(outcome.text());
                Err(ExitCode::from(outcome.code()))
            }
        }
    }
}

/// Connects to the cluster of `-kubeconfig`, or of the usual places.
///
/// # Errors
/// When no usable configuration is found.
pub async fn connect(tool: &str, flags: &Parsed) -> anyhow::Result<Connection> {
    let kubeconfig = flags.text("kubeconfig").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cluster = ClusterArgs { kubeconfig, ..ClusterArgs::default() };
    Ok(Connection::open(&cluster.options(tool)).await?)
}

/// As [`connect`], with a client for short calls.
///
/// # Errors
/// As [`connect`].
pub async fn client(tool: &str, flags: &Parsed) -> anyhow::Result<Client> {
    Ok(connect(tool, flags).await?.client_with_timeout(REQUEST_TIMEOUT)?)
}

/// Prints a line on standard error, with the time in the format of Go's `log` package, in UTC.
pub fn log(text: &str) {
    stderr::line(format_args!("{} {text}", Timestamp::now().strftime("%Y/%m/%d %H:%M:%S")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_arguments_are_refused() {
        let call = |words: &[&str]| Call {
            program: "x".to_owned(),
            arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        assert!(call(&["-kubeconfig", "k"]).flags(&[&KUBECONFIG], false).is_ok());
        assert!(call(&["--kubeconfig=k", "more"]).flags(&[&KUBECONFIG], true).is_ok());
        for words in [&["more"][..], &["-what"], &["-h"]] {
            assert!(call(words).flags(&[&KUBECONFIG], false).is_err(), "{words:?}");
        }
    }
}
