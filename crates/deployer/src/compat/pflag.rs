//! The command line grammar of Go's `pflag` package, which cobra programs use.
//!
//! In: known flags, arguments. Out: checked values and positional words, or an error in pflag's words. Never: a print,
//! an exit, a default.
//!
//! The grammar: `--x=v`, `--x v`, `-Xv`, `-X v`, `-X=v`; booleans without a value can be grouped (`-JrS`) and take one
//! only after `=`. Flags and positional words mix; `--` ends the flags, `-` alone is a positional word. The last value
//! of a repeated flag counts, but each is checked.

use std::collections::BTreeMap;
use std::time::Duration;

use api::goduration::{GoDuration, GoDurationError};
use runtime::goflag::{self, Kind};
use topology::gobool;

/// A known flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    /// The name without dashes.
    pub(super) name: &'static str,
    /// The shorthand letter.
    pub(super) letter: Option<char>,
    /// The kind of value.
    pub(super) kind: Kind,
    /// The default as text.
    pub(super) default: &'static str,
    /// The help text.
    pub(super) help: &'static str,
    /// The text in the short help; `None`: not listed there.
    pub(super) brief: Option<&'static str>,
}

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The values of given flags.
    values: BTreeMap<&'static str, String>,
    /// The defaults of all flags.
    defaults: BTreeMap<&'static str, &'static str>,
    /// Positional words.
    pub(super) rest: Vec<String>,
}

/// The end of a command line without a command to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// `-h` or `--help`; not a mistake.
    #[error("pflag: help requested")]
    Help,
    /// The first mistake, in the words of pflag or cobra.
    #[error("{0}")]
    Wrong(String),
}

impl Flag {
    /// The flag as in help and errors.
    fn title(&self) -> String {
        self.letter.map_or_else(|| format!("--{}", self.name), |letter| format!("-{letter}, --{}", self.name))
    }

    /// Go's error message if the value has the wrong kind.
    fn complaint(&self, value: &str) -> Option<String> {
        let number =
            |function: &str, reason: &str| format!("strconv.{function}: parsing {value:?}: {reason}");
        match self.kind {
            Kind::Text | Kind::List => None,
            Kind::Bool => gobool::parse(value).is_none().then(|| number("ParseBool", "invalid syntax")),
            Kind::Int => goflag::parse_int(value).err().map(|reason| {
                number("ParseInt", if reason == "parse error" { "invalid syntax" } else { reason })
            }),
            Kind::Duration => GoDuration::parse(value).err().map(|error| match error {
                GoDurationError::Form(_) | GoDurationError::Range(_) => {
                    format!("time: invalid duration {value:?}")
                }
                GoDurationError::MissingUnit(_) => format!("time: missing unit in duration {value:?}"),
                GoDurationError::UnknownUnit { unit, .. } => {
                    format!("time: unknown unit {unit:?} in duration {value:?}")
                }
            }),
        }
    }
}

/// Whether the next argument is the value of this flag; unknown flags count as taking one.
pub(super) fn takes_next(flags: &[&Flag], argument: &str) -> bool {
    if argument.contains('=') {
        return false;
    }
    let boolean = |found: Option<&&Flag>| found.is_some_and(|flag| flag.kind == Kind::Bool);
    match argument.strip_prefix("--") {
        Some(name) => {
            !name.is_empty() && name != "help" && !boolean(flags.iter().find(|flag| flag.name == name))
        }
        None => {
            match argument.strip_prefix('-').map(|letters| letters.chars().collect::<Vec<_>>()).as_deref() {
                Some(['h']) => false,
                Some([letter]) => !boolean(flags.iter().find(|flag| flag.letter == Some(*letter))),
                _ => false,
            }
        }
    }
}

/// Reads arguments.
///
/// # Errors
/// The first wrong argument, or [`Error::Help`].
pub(super) fn parse(flags: &[&Flag], arguments: impl IntoIterator<Item = String>) -> Result<Parsed, Error> {
    let mut arguments = arguments.into_iter();
    let defaults = flags.iter().map(|flag| (flag.name, flag.default)).collect();
    let mut parsed = Parsed { defaults, ..Parsed::default() };
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            parsed.rest.extend(arguments);
            break;
        }
        match (argument.strip_prefix("--"), argument.strip_prefix('-')) {
            (Some(body), _) => long(flags, body, &mut arguments, &mut parsed)?,
            (None, Some(group)) if !group.is_empty() => letters(flags, group, &mut arguments, &mut parsed)?,
            _ => parsed.rest.push(argument),
        }
    }
    Ok(parsed)
}

fn long(
    flags: &[&Flag],
    body: &str,
    rest: &mut impl Iterator<Item = String>,
    parsed: &mut Parsed,
) -> Result<(), Error> {
    if body.starts_with(['-', '=']) {
        return Err(Error::Wrong(format!("bad flag syntax: --{body}")));
    }
    let (name, value) =
        body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value.to_owned())));
    let Some(flag) = flags.iter().find(|flag| flag.name == name) else {
        let unknown = Error::Wrong(format!("unknown flag: --{name}"));
        return Err(if name == "help" { Error::Help } else { unknown });
    };
    let value = match (value, flag.kind) {
        (Some(value), _) => value,
        (None, Kind::Bool) => "true".to_owned(),
        (None, _) => rest.next().ok_or_else(|| Error::Wrong(format!("flag needs an argument: --{name}")))?,
    };
    parsed.set(flag, value)
}

fn letters(
    flags: &[&Flag],
    mut group: &str,
    rest: &mut impl Iterator<Item = String>,
    parsed: &mut Parsed,
) -> Result<(), Error> {
    while let Some(letter) = group.chars().next() {
        let after = &group[letter.len_utf8()..];
        let Some(flag) = flags.iter().find(|flag| flag.letter == Some(letter)) else {
            let unknown = Error::Wrong(format!("unknown shorthand flag: '{letter}' in -{group}"));
            return Err(if letter == 'h' { Error::Help } else { unknown });
        };
        let missing = || Error::Wrong(format!("flag needs an argument: '{letter}' in -{group}"));
        let value = match after.strip_prefix('=').filter(|value| !value.is_empty()) {
            Some(value) => value.to_owned(),
            None if flag.kind == Kind::Bool => {
                parsed.set(flag, "true".to_owned())?;
                group = after;
                continue;
            }
            None if !after.is_empty() => after.to_owned(),
            None => rest.next().ok_or_else(missing)?,
        };
        return parsed.set(flag, value);
    }
    Ok(())
}

impl Parsed {
    fn set(&mut self, flag: &Flag, value: String) -> Result<(), Error> {
        if let Some(reason) = flag.complaint(&value) {
            let title = flag.title();
            return Err(Error::Wrong(format!("invalid argument {value:?} for {title:?} flag: {reason}")));
        }
        self.values.insert(flag.name, value);
        Ok(())
    }

    /// The value of a flag as text, if given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value of a [`Kind::Text`] flag, or its default; empty for a flag that the command does not have.
    pub(super) fn text_or_default(&self, name: &str) -> &str {
        self.text(name).or_else(|| self.defaults.get(name).copied()).unwrap_or_default()
    }

    /// The value of a [`Kind::Bool`] flag; false for a flag that the command does not have.
    pub(super) fn bool(&self, name: &str) -> bool {
        gobool::parse(self.text_or_default(name)).unwrap_or_default()
    }

    /// The value of a [`Kind::Int`] flag.
    pub(super) fn int(&self, name: &str) -> i64 {
        goflag::parse_int(self.text_or_default(name)).unwrap_or_default()
    }

    /// The value of a [`Kind::Duration`] flag; `None` when negative.
    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        GoDuration::parse(self.text_or_default(name)).unwrap_or_default().to_std()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [Flag; 5] = [
        flag("platform", Some('P'), Kind::Text),
        flag("replicas", Some('R'), Kind::Int),
        flag("json", Some('J'), Kind::Bool),
        flag("raw", Some('r'), Kind::Bool),
        flag("wait-interval", Some('E'), Kind::Duration),
    ];

    const fn flag(name: &'static str, letter: Option<char>, kind: Kind) -> Flag {
        Flag { name, letter, kind, default: "", help: "", brief: None }
    }

    fn read(words: &str) -> Result<String, String> {
        let flags: Vec<&Flag> = FLAGS.iter().collect();
        let parsed = parse(&flags, words.split_whitespace().map(str::to_owned));
        let parsed = parsed.map_err(|error| error.to_string())?;
        let values = parsed.values.iter().map(|(name, value)| format!("{name}={value}"));
        Ok(values.chain(parsed.rest).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn flags_are_read_and_refused_as_pflag_does() {
        for (words, wanted) in [
            ("", Ok("")),
            ("-P a", Ok("platform=a")),
            ("-Pa", Ok("platform=a")),
            ("-P=a", Ok("platform=a")),
            ("-P=", Ok("platform==")),
            ("--platform a", Ok("platform=a")),
            ("--platform=a=b", Ok("platform=a=b")),
            ("--platform=", Ok("platform=")),
            ("--platform --json", Ok("platform=--json")),
            ("-P a -P b", Ok("platform=b")),
            ("render -J api -r", Ok("json=true raw=true render api")),
            ("-Jr", Ok("json=true raw=true")),
            ("-JrPx", Ok("json=true platform=x raw=true")),
            ("-J=false", Ok("json=false")),
            ("--json=F", Ok("json=F")),
            ("--json false", Ok("json=true false")),
            ("-- -J", Ok("-J")),
            ("- -J", Ok("json=true -")),
            ("-R -1", Ok("replicas=-1")),
            ("-R0x10", Ok("replicas=0x10")),
            ("-h", Err("pflag: help requested")),
            ("-Jh", Err("pflag: help requested")),
            ("--help", Err("pflag: help requested")),
            ("--x", Err("unknown flag: --x")),
            ("--x=1", Err("unknown flag: --x")),
            ("-xyz", Err("unknown shorthand flag: 'x' in -xyz")),
            ("-Jyz", Err("unknown shorthand flag: 'y' in -yz")),
            ("---x", Err("bad flag syntax: ---x")),
            ("--=x", Err("bad flag syntax: --=x")),
            ("--platform", Err("flag needs an argument: --platform")),
            ("-JP", Err("flag needs an argument: 'P' in -P")),
            (
                "-R abc",
                Err(
                    r#"invalid argument "abc" for "-R, --replicas" flag: strconv.ParseInt: parsing "abc": invalid syntax"#,
                ),
            ),
            (
                "-R 9223372036854775808",
                Err(
                    r#"invalid argument "9223372036854775808" for "-R, --replicas" flag: strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
                ),
            ),
            (
                "--json=maybe",
                Err(
                    r#"invalid argument "maybe" for "-J, --json" flag: strconv.ParseBool: parsing "maybe": invalid syntax"#,
                ),
            ),
            (
                "-E x",
                Err(r#"invalid argument "x" for "-E, --wait-interval" flag: time: invalid duration "x""#),
            ),
            (
                "-E 1",
                Err(
                    r#"invalid argument "1" for "-E, --wait-interval" flag: time: missing unit in duration "1""#,
                ),
            ),
            (
                "-E 1d",
                Err(
                    r#"invalid argument "1d" for "-E, --wait-interval" flag: time: unknown unit "d" in duration "1d""#,
                ),
            ),
        ] {
            assert_eq!(read(words), wanted.map(str::to_owned).map_err(str::to_owned), "{words}");
        }
    }

    #[test]
    fn unknown_flags_take_the_next_word_as_value() {
        let flags: Vec<&Flag> = FLAGS.iter().collect();
        for (argument, wanted) in [
            ("-P", true),
            ("-Pa", false),
            ("-J", false),
            ("-x", true),
            ("-h", false),
            ("--platform", true),
            ("--platform=a", false),
            ("--json", false),
            ("--x", true),
            ("--help", false),
            ("--", false),
            ("word", false),
        ] {
            assert_eq!(takes_next(&flags, argument), wanted, "{argument}");
        }
    }
}
