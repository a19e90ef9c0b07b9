//! The command line grammar of Go's `flag` package, for entry points that stand in for Go programs.
//!
//! In: the flags of a program, and its arguments. Out: the values of the given flags, checked, and the positional rest;
//! or Go's own error text, with the usage text. Never: output, an exit, a look at the environment, or a default: the
//! caller knows which files and variables come before it.
//!
//! The grammar: `-x` and `--x` are one flag. A value follows after `=` or is the next argument, even one with dashes; a
//! boolean takes a value only after `=`. The first argument that is no flag ends the flags (so does `-`), and `--` ends
//! them and is dropped. The last of repeated flags counts, but each value is checked. `-h` and `-help` ask for the
//! usage text unless the program has flags of these names.
//!
//! ```
//! use runtime::goflag::{FlagSet, Kind, flag};
//!
//! const FLAGS: &[runtime::goflag::Flag] = &[
//!     flag("port", Kind::Int, "2112", "port of the metrics"),
//!     flag("oneshot", Kind::Bool, "false", "exit after the first update"),
//! ];
//! let set = FlagSet { program: "exporter", flags: &[FLAGS] };
//! let parsed = set.parse(["-oneshot", "--port=0x10", "rest"].map(str::to_owned)).unwrap();
//! assert_eq!((parsed.int("port"), parsed.bool("oneshot")), (Some(16), Some(true)));
//! assert_eq!(parsed.rest, ["rest"]);
//!
//! let wrong = set.parse(["-port=high".to_owned()]).unwrap_err();
//! assert!(wrong.text().starts_with("invalid value \"high\" for flag -port: parse error\n"));
//! assert_eq!(wrong.code(), 2);
//! ```

mod klog;
mod number;
#[cfg(test)]
mod tests;

pub use klog::KLOG;
pub use number::parse_int;

use api::goduration::GoDuration;
use std::collections::BTreeMap;
use std::fmt::Write;
use topology::gobool;

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean as Go's `strconv.ParseBool` reads it; see [`gobool::parse`]. A flag without a value means true.
    Bool,
    /// Any text.
    Text,
    /// Texts separated by commas; those of a flag that is given again are added (pflag's `StringSlice`).
    List,
    /// A signed number of 64 bits in Go's literal forms: `10`, `0x10`, `0o7`, `017`, `0b1`, `1_000`.
    Int,
    /// A duration in Go's text form: `250ms`, `1h30m`.
    Duration,
}

/// A flag of a program.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name, without dashes.
    pub name: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// The default as text, for the usage text only.
    pub default: &'static str,
    /// The description in the usage text.
    pub help: &'static str,
}

/// Builds a flag, so that a table has one line for each.
#[must_use]
pub const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help }
}

/// All flags of one program.
#[derive(Clone, Copy, Debug)]
pub struct FlagSet<'a> {
    /// The program's name in the usage text: `argv[0]`.
    pub program: &'a str,
    /// The flags in any number of lists and any order, such as [`KLOG`]. Names are unique over all lists.
    pub flags: &'a [&'a [Flag]],
}

/// The contents of a command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    values: BTreeMap<&'static str, Value>,
    /// The arguments after the flags.
    pub rest: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Bool(bool),
    Text(String),
    Int(i64),
    Duration(GoDuration),
}

/// The end of a program without values: it prints [`Outcome::text`] to standard error and exits with [`Outcome::code`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request for the usage text.
    Help {
        /// The usage text.
        usage: String,
    },
    /// An invalid command line.
    Wrong {
        /// The first error.
        error: Error,
        /// The usage text.
        usage: String,
    },
}

/// An error in a command line, in Go's words, which people and scripts know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An argument with three dashes, or without a name before `=`.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// A flag that the program does not have.
    #[error("flag provided but not defined: -{0}")]
    Undefined(String),
    /// A flag without its value at the end of the command line.
    #[error("flag needs an argument: -{0}")]
    Argument(&'static str),
    /// An invalid value of a boolean.
    #[error("invalid boolean value {value:?} for -{name}: parse error")]
    Boolean {
        /// The flag.
        name: &'static str,
        /// The given value.
        value: String,
    },
    /// An invalid value of any other flag.
    #[error("invalid value {value:?} for flag -{name}: {reason}")]
    Value {
        /// The flag.
        name: &'static str,
        /// The given value.
        value: String,
        /// `parse error` or `value out of range`.
        reason: &'static str,
    },
}

impl FlagSet<'_> {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    /// The first invalid argument, or a request for help.
    pub fn parse(&self, arguments: impl IntoIterator<Item = String>) -> Result<Parsed, Outcome> {
        let mut arguments = arguments.into_iter();
        let mut parsed = Parsed::default();
        loop {
            let Some(argument) = arguments.next() else { return Ok(parsed) };
            let dashes = argument.bytes().take(2).take_while(|&byte| byte == b'-').count();
            if argument == "--" {
                break;
            }
            if dashes == 0 || argument == "-" {
                parsed.rest.push(argument);
                break;
            }
            self.flag(&argument, dashes, &mut arguments, &mut parsed)?;
        }
        parsed.rest.extend(arguments);
        Ok(parsed)
    }

    /// Reads one flag, and its value from the `rest` of the arguments where it needs one.
    fn flag(
        &self,
        argument: &str,
        dashes: usize,
        rest: &mut impl Iterator<Item = String>,
        parsed: &mut Parsed,
    ) -> Result<(), Outcome> {
        let body = &argument[dashes..];
        if body.starts_with(['-', '=']) {
            return Err(self.wrong(Error::Syntax(argument.to_owned())));
        }
        let (name, value) = body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
        let Some(flag) = self.flags.iter().copied().flatten().find(|flag| flag.name == name) else {
            return Err(match name {
                "h" | "help" => Outcome::Help { usage: self.usage() },
                _ => self.wrong(Error::Undefined(name.to_owned())),
            });
        };
        let value = match (value, flag.kind) {
            (Some(value), _) => value.to_owned(),
            (None, Kind::Bool) => "true".to_owned(),
            (None, _) => rest.next().ok_or_else(|| self.wrong(Error::Argument(flag.name)))?,
        };
        let mut value = flag.read(value).map_err(|error| self.wrong(error))?;
        if let (Kind::List, Value::Text(more), Some(Value::Text(before))) =
            (flag.kind, &value, parsed.values.get(flag.name))
        {
            value = Value::Text(format!("{before},{more}"));
        }
        parsed.values.insert(flag.name, value);
        Ok(())
    }

    fn wrong(&self, error: Error) -> Outcome {
        Outcome::Wrong { error, usage: self.usage() }
    }

    /// The usage text in Go's form: the flags by name, each with kind, help and default.
    pub fn usage(&self) -> String {
        let mut flags: Vec<_> = self.flags.iter().copied().flatten().collect();
        flags.sort_by_key(|flag| flag.name);
        let mut text = format!("Usage of {}:\n", self.program);
        for flag in flags {
            let (kind, zero) = match flag.kind {
                Kind::Bool => ("", "false"),
                Kind::Text => (" string", ""),
                Kind::List => (" strings", ""),
                Kind::Int => (" int", "0"),
                Kind::Duration => (" duration", "0s"),
            };
            // The help of a boolean with one letter stands on the same line.
            let gap = if kind.is_empty() && flag.name.len() == 1 { "\t" } else { "\n    \t" };
            let help = flag.help.replace('\n', "\n    \t");
            // Writing to a string cannot fail.
            let _ = write!(text, "  -{}{kind}{gap}{help}", flag.name);
            let _ = match flag.kind {
                _ if flag.default == zero => Ok(()),
                Kind::Text | Kind::List => write!(text, " (default {:?})", flag.default),
                _ => write!(text, " (default {})", flag.default),
            };
            text.push('\n');
        }
        text
    }
}

impl Flag {
    fn read(&self, value: String) -> Result<Value, Error> {
        let name = self.name;
        let wrong = |value: &str, reason| Error::Value { name, value: value.to_owned(), reason };
        match self.kind {
            Kind::Text | Kind::List => Ok(Value::Text(value)),
            Kind::Bool => match gobool::parse(&value) {
                Some(truth) => Ok(Value::Bool(truth)),
                None => Err(Error::Boolean { name, value }),
            },
            Kind::Int => number::parse_int(&value).map(Value::Int).map_err(|reason| wrong(&value, reason)),
            // Go hides the reason for durations, even an excess of the range.
            Kind::Duration => {
                GoDuration::parse(&value).map(Value::Duration).map_err(|_| wrong(&value, "parse error"))
            }
        }
    }
}

impl Parsed {
    /// The value of a [`Kind::Text`] or [`Kind::List`] flag, if it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name) {
            Some(Value::Text(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of a [`Kind::Bool`] flag, if it was given.
    pub fn bool(&self, name: &str) -> Option<bool> {
        match self.values.get(name) {
            Some(Value::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    /// The value of a [`Kind::Int`] flag, if it was given.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.values.get(name) {
            Some(Value::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The value of a [`Kind::Duration`] flag, if it was given.
    pub fn duration(&self, name: &str) -> Option<GoDuration> {
        match self.values.get(name) {
            Some(Value::Duration(value)) => Some(*value),
            _ => None,
        }
    }

    /// Whether the flag was given, of whatever kind.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The names of the flags that were given, in order.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }
}

impl Outcome {
    /// What Go programs print to standard error: the error if there is one, then the usage text.
    pub fn text(&self) -> String {
        match self {
            Self::Help { usage } => usage.clone(),
            Self::Wrong { error, usage } => format!("{error}\n{usage}"),
        }
    }

    /// The exit code of Go programs: 0 for help, 2 for an error.
    pub fn code(&self) -> u8 {
        match self {
            Self::Help { .. } => 0,
            Self::Wrong { .. } => 2,
        }
    }
}
