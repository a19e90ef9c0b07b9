//! The command line grammar of Go's `flag` package, for entry points that stand in for Go programs.
//!
//! In: the flags a program knows, and its arguments. Out: the values that were given, checked, and the positional rest;
//! or Go's own words for what is wrong, with the usage text. Never: prints, exits, reads the environment, or fills in a
//! default: whoever asks knows which files and variables come before it.
//!
//! The grammar: `-x` and `--x` are one flag; a value follows after `=` or is the next argument, whatever that looks like;
//! a boolean takes a value only after `=`. The first argument that is no flag ends the flags (so does `-`), and `--` ends
//! them and is dropped. Of a flag given twice the last value counts, but each is checked. `-h` and `-help` ask for the
//! usage text unless the program has flags of these names.

mod klog;
mod number;
#[cfg(test)]
mod tests;

pub use klog::KLOG;
pub use number::parse_int;

use api::goduration::GoDuration;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a flag's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As Go's `strconv.ParseBool` reads it: `1`, `t`, `T`, `TRUE`, `true`, `True`, and the like for false. Alone: true.
    Bool,
    /// Anything.
    Text,
    /// 64 bits with sign, in Go's literal forms: `10`, `0x10`, `0o7`, `017`, `0b1`, `1_000`.
    Int,
    /// Go's text form: `250ms`, `1h30m`.
    Duration,
}

/// A flag a program knows.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// For the usage text only, in the text form of its kind.
    pub default: &'static str,
    /// What it does, for the usage text.
    pub help: &'static str,
}

/// A flag in one line of a table.
#[must_use]
pub const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help }
}

/// All flags of one program.
#[derive(Clone, Copy, Debug)]
pub struct FlagSet<'a> {
    /// The name the usage text starts with: `argv[0]`.
    pub program: &'a str,
    /// The flags, in as many lists as is handy, in any order; [`KLOG`] is one of them. A name is there once.
    pub flags: &'a [&'a [Flag]],
}

/// What a command line said.
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

/// Why there are no values: the process prints [`Outcome::text`] to standard error and exits with [`Outcome::code`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The usage text was asked for.
    Help {
        /// The usage text.
        usage: String,
    },
    /// The command line is wrong.
    Wrong {
        /// In what way.
        error: Error,
        /// The usage text.
        usage: String,
    },
}

/// What is wrong with a command line, in Go's words, which people and scripts know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Three dashes, or no name before `=`.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// The program has no such flag.
    #[error("flag provided but not defined: -{0}")]
    Undefined(String),
    /// The last argument is a flag without its value.
    #[error("flag needs an argument: -{0}")]
    Argument(&'static str),
    /// The value of a boolean is none.
    #[error("invalid boolean value {value:?} for -{name}: parse error")]
    Boolean {
        /// The flag.
        name: &'static str,
        /// What was given.
        value: String,
    },
    /// The value of any other flag is not of its kind.
    #[error("invalid value {value:?} for flag -{name}: {reason}")]
    Value {
        /// The flag.
        name: &'static str,
        /// What was given.
        value: String,
        /// `parse error` or `value out of range`.
        reason: &'static str,
    },
}

impl FlagSet<'_> {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    /// The first argument that is wrong, or the wish for help.
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

    /// Takes one flag, and its value from the `rest` of the arguments where it needs one.
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
        parsed.values.insert(flag.name, flag.read(value).map_err(|error| self.wrong(error))?);
        Ok(())
    }

    fn wrong(&self, error: Error) -> Outcome {
        Outcome::Wrong { error, usage: self.usage() }
    }

    /// The usage text in the form Go gives it: the flags by name, each with its kind, its help and its default.
    pub fn usage(&self) -> String {
        let mut flags: Vec<_> = self.flags.iter().copied().flatten().collect();
        flags.sort_by_key(|flag| flag.name);
        let mut text = format!("Usage of {}:\n", self.program);
        for flag in flags {
            let (kind, zero) = match flag.kind {
                Kind::Bool => ("", "false"),
                Kind::Text => (" string", ""),
                Kind::Int => (" int", "0"),
                Kind::Duration => (" duration", "0s"),
            };
            // A boolean of one letter leaves room for its help on the same line.
            let gap = if kind.is_empty() && flag.name.len() == 1 { "\t" } else { "\n    \t" };
            let help = flag.help.replace('\n', "\n    \t");
            // Writing to a string cannot fail.
            let _ = write!(text, "  -{}{kind}{gap}{help}", flag.name);
            let _ = match flag.kind {
                _ if flag.default == zero => Ok(()),
                Kind::Text => write!(text, " (default {:?})", flag.default),
                _ => write!(text, " (default {})", flag.default),
            };
            text.push('\n');
        }
        text
    }
}

/// A boolean in the forms that Go's `strconv.ParseBool` takes.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

impl Flag {
    fn read(&self, value: String) -> Result<Value, Error> {
        let name = self.name;
        let wrong = |value: &str, reason| Error::Value { name, value: value.to_owned(), reason };
        match self.kind {
            Kind::Text => Ok(Value::Text(value)),
            Kind::Bool => match parse_bool(&value) {
                Some(truth) => Ok(Value::Bool(truth)),
                None => Err(Error::Boolean { name, value }),
            },
            Kind::Int => number::parse_int(&value).map(Value::Int).map_err(|reason| wrong(&value, reason)),
            // Go hides what is wrong with a duration, even its range.
            Kind::Duration => {
                GoDuration::parse(&value).map(Value::Duration).map_err(|_| wrong(&value, "parse error"))
            }
        }
    }
}

impl Parsed {
    /// The value of a [`Kind::Text`] flag, if it was given.
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
