//! The flag `-o, --output`, and data in the format that it names.
//!
//! In: the formats of a command, a value. Out: the argument with its help, the value as text; text of strangers that
//! cannot act on a terminal. Never: a write; see [`stdout`](crate::stdout).

use std::borrow::Cow;

use clap::ValueEnum;
use clap::builder::EnumValueParser;
use serde::Serialize;

use crate::yaml;

/// The formats that one command offers.
pub trait OutputFormat: ValueEnum + Send + Sync + 'static {
    /// The format without the flag, as the command line spells it.
    const DEFAULT: &'static str;
}

/// The argument `-o, --output`; its help lists the formats.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct OutputArgs<F: OutputFormat = Format> {
    /// The format that was asked for.
    #[arg(
        id = "output",
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = F::DEFAULT,
        value_parser = EnumValueParser::<F>::new(),
        hide_possible_values = true,
        help = help::<F>()
    )]
    pub format: F,
}

/// Text for people, or one of two formats for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// JSON, indented.
    Json,
    /// YAML.
    Yaml,
}

impl OutputFormat for Format {
    const DEFAULT: &'static str = "text";
}

/// A table for people, or one of two formats for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// A table.
    #[default]
    Table,
    /// The table with more columns.
    Wide,
    /// JSON, indented.
    Json,
    /// YAML.
    Yaml,
}

impl OutputFormat for TableFormat {
    const DEFAULT: &'static str = "table";
}

/// A value that the format cannot express.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The value has no JSON form.
    #[error("writing JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The value has no YAML form.
    #[error("writing YAML: {0}")]
    Yaml(#[from] yaml::Error),
}

impl Format {
    /// The value in this format, ending in a newline; `text` makes the form for people.
    ///
    /// # Errors
    /// When the value has no JSON or YAML form, such as a map whose keys are not strings.
    pub fn write<T: Serialize>(self, value: &T, text: impl FnOnce() -> String) -> Result<String, Error> {
        Ok(match self {
            Self::Text => text(),
            Self::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
            Self::Yaml => yaml::write(value)?,
        })
    }
}

impl TableFormat {
    /// The value in this format, ending in a newline; `table` makes the form for people, wide or not.
    ///
    /// # Errors
    /// When the value has no JSON or YAML form, such as a map whose keys are not strings.
    pub fn write<T: Serialize>(self, value: &T, table: impl FnOnce(bool) -> String) -> Result<String, Error> {
        match self {
            Self::Table | Self::Wide => Ok(table(self == Self::Wide)),
            Self::Json => Format::Json.write(value, String::new),
            Self::Yaml => Format::Yaml.write(value, String::new),
        }
    }
}

/// Text of strangers for a terminal: characters that act on it are replaced. Line breaks and tabs stay.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |c| acts(c) && c != '\n' && c != '\t')
}

/// The same on one line, for the name of an object.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, acts)
}

fn replaced(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(&acts) { text.replace(acts, "\u{fffd}").into() } else { text.into() }
}

/// The same with at most about this many bytes a line: the middle of a longer one is left out.
#[must_use]
pub fn shortened(text: &str, limit_bytes: usize) -> Cow<'_, str> {
    if text.len() <= limit_bytes || text.lines().all(|line| line.len() <= limit_bytes) {
        return text.into();
    }
    let short = |line: &str| {
        if line.len() <= limit_bytes {
            return line.to_owned();
        }
        let is_boundary = |at: &usize| line.is_char_boundary(*at);
        let head = (0..=limit_bytes / 4 * 3).rev().find(is_boundary).unwrap_or(0);
        let tail = (line.len() - limit_bytes / 8..line.len()).find(is_boundary).unwrap_or(line.len());
        format!("{} ... {} bytes left out ... {}", &line[..head], tail - head, &line[tail..])
    };
    text.split('\n').map(short).collect::<Vec<_>>().join("\n").into()
}

/// Whether a character moves the cursor, changes the terminal, or turns the direction of what follows.
fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// `Output format: text, json or yaml`.
fn help<F: OutputFormat>() -> String {
    let names = F::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let mut names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() {
        format!("Output format: {last}")
    } else {
        format!("Output format: {} or {last}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn the_flag_lists_its_formats_and_has_a_default() {
        let command = || OutputArgs::<Format>::augment_args(clap::Command::new("test"));
        let help = command().render_help().to_string();
        assert!(
            help.contains("-o, --output <FORMAT>  Output format: text, json or yaml [default: text]"),
            "{help}"
        );
        for (words, wanted) in [
            (&["test"][..], Format::Text),
            (&["test", "-o", "json"], Format::Json),
            (&["test", "--output=yaml"], Format::Yaml),
        ] {
            let matches = command().try_get_matches_from(words).unwrap();
            assert_eq!(OutputArgs::<Format>::from_arg_matches(&matches).unwrap().format, wanted);
        }
    }

    #[test]
    fn texts_of_strangers_cannot_act() {
        for (text, printed, on_one_line) in [
            ("n\u{e4}me-1", "n\u{e4}me-1", "n\u{e4}me-1"),
            ("a\tb\nc", "a\tb\nc", "a\u{fffd}b\u{fffd}c"),
            ("\u{1b}[31mred\r", "\u{fffd}[31mred\u{fffd}", "\u{fffd}[31mred\u{fffd}"),
            ("\u{9b}2J\u{7f}", "\u{fffd}2J\u{fffd}", "\u{fffd}2J\u{fffd}"),
            ("a\u{202e}b", "a\u{fffd}b", "a\u{fffd}b"),
        ] {
            assert_eq!((&*printable(text), &*one_line(text)), (printed, on_one_line), "{text:?}");
        }
    }

    #[test]
    fn each_format_writes_the_value() {
        let value = serde_json::json!({ "a": 1 });
        let write = |format: Format| format.write(&value, || "one\n".to_owned()).unwrap();
        assert_eq!(write(Format::Text), "one\n");
        assert_eq!(write(Format::Json), "{\n  \"a\": 1\n}\n");
        assert_eq!(write(Format::Yaml), "a: 1\n");
        let write = |format: TableFormat| format.write(&value, |wide| format!("{wide}\n")).unwrap();
        assert_eq!(write(TableFormat::Table), "false\n");
        assert_eq!(write(TableFormat::Wide), "true\n");
        assert_eq!(write(TableFormat::Json), "{\n  \"a\": 1\n}\n");
        assert_eq!(write(TableFormat::Yaml), "a: 1\n");
    }
}
