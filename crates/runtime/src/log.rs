//! Logging: one subscriber for the process, on standard error.
//!
//! In: a format and a verbosity. Out: a handle that changes the level while the process runs. Never: writes to
//! standard output, which is for data; more than one line for an event.
//!
//! Verbosity follows klog's `-v=N`, so that peers' manifests keep working: 0 to 3 is `info`, 4 and 5 is
//! `debug`, 6 and more is `trace`. (klog prints its plain lines from 0 on, and no peer has a quieter setting;
//! for that use directives.) The variable `THOLEPIN_LOG` overrides with directives, for example
//! `warn,scheduler=debug`.

mod line;

use std::io::IsTerminal;

use line::Lines;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// The environment variable whose directives win over `-v`.
pub const VARIABLE: &str = "THOLEPIN_LOG";

/// Libraries whose messages `watch` and `client` already report once, or that log every packet. Trace shows them all.
const QUIET: &str = "kube_client=off,kube_runtime=off,hyper_util=warn,h2=warn,tower=warn,rustls=warn";

/// The form of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: time, level, module, message, fields.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Changes the level of the running process.
#[derive(Debug, Clone)]
pub struct Handle {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Handle {
    /// Applies `text`: a klog number (`4`), a level (`debug`) or directives (`info,scheduler=trace`).
    ///
    /// # Errors
    /// When `text` is none of these; the level does not change.
    pub fn set(&self, text: &str) -> Result<(), Error> {
        let filter = parse(text)?;
        self.filter.reload(filter).map_err(|error| Error::Gone(error.to_string()))
    }

    /// The directives in force.
    pub fn current(&self) -> String {
        self.filter.with_current(ToString::to_string).unwrap_or_default()
    }
}

/// Installs the process's subscriber.
///
/// # Errors
/// When `THOLEPIN_LOG` is malformed, or logging was set up before.
pub fn init(format: Format, verbosity: u8) -> Result<Handle, Error> {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let filter = if wanted.is_empty() { parse(&verbosity.to_string())? } else { parse(&wanted)? };
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(move || Lines(format));
    let lines = match format {
        Format::Json => lines.json().flatten_event(true).boxed(),
        Format::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            lines.with_ansi(colour).boxed()
        }
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    subscriber.try_init().map_err(|_| Error::Twice)?;
    Ok(Handle { filter: handle })
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(Error::Format(other.to_owned())),
        }
    }
}

fn parse(text: &str) -> Result<EnvFilter, Error> {
    let text = text.trim();
    let malformed = |reason: String| Error::Level { text: text.to_owned(), reason };
    if text.is_empty() {
        return Err(malformed("it is empty".to_owned()));
    }
    let directives = match text.parse::<u8>() {
        Ok(0..=3) => format!("info,{QUIET}"),
        Ok(4..=5) => format!("debug,{QUIET}"),
        Ok(_) => "trace".to_owned(),
        // The user's directives come last: of two for one target the later wins.
        Err(_) if text.eq_ignore_ascii_case("trace") => text.to_owned(),
        Err(_) => format!("{QUIET},{text}"),
    };
    // A bare word that is no level would silently become the name of a module.
    let first = text.split(',').next().unwrap_or_default();
    let bare = text.parse::<u8>().is_err() && !first.contains(['=', '[', ':']);
    if bare && first.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
        return Err(malformed("the first word is not a level".to_owned()));
    }
    EnvFilter::builder().parse(directives).map_err(|error| malformed(error.to_string()))
}

/// Logging cannot be set up as requested.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a number, nor a level, nor directives.
    #[error(
        "log level {text:?}: {reason}; want a number, off|error|warn|info|debug|trace, \
         or directives such as info,scheduler=debug"
    )]
    Level {
        /// The given text.
        text: String,
        /// The reason.
        reason: String,
    },
    /// An unknown format.
    #[error("log format {0:?}: want text or json")]
    Format(String),
    /// There is already a subscriber.
    #[error("logging was set up twice")]
    Twice,
    /// The subscriber is gone, so its level cannot change.
    #[error("log level cannot be changed: {0}")]
    Gone(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter;

    #[test]
    fn levels_are_parsed() {
        let table = [
            ("0", LevelFilter::INFO),
            ("2", LevelFilter::INFO),
            ("3", LevelFilter::INFO),
            ("4", LevelFilter::DEBUG),
            ("6", LevelFilter::TRACE),
            ("10", LevelFilter::TRACE),
            ("warn", LevelFilter::WARN),
            (" debug\n", LevelFilter::DEBUG),
            ("info,scheduler=trace", LevelFilter::TRACE),
        ];
        for (text, want) in table {
            let filter = parse(text).unwrap();
            assert_eq!(filter.max_level_hint(), Some(want), "{text:?}");
        }
        for text in ["", "verbose", "-1", "info,scheduler=loud"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn libraries_are_quiet_until_asked_for() {
        assert!(parse("4").unwrap().to_string().contains("kube_client=off"));
        assert!(!parse("6").unwrap().to_string().contains("kube_client"));
        let asked = parse("info,kube_client=debug").unwrap().to_string();
        assert!(asked.contains("kube_client=debug") && !asked.contains("kube_client=off"), "{asked}");
    }

    #[test]
    fn formats_are_parsed() {
        assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("want text or json"));
    }
}
