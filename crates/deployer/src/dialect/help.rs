//! Help texts in cobra's layout.
//!
//! There are two: `deployer CMD --help` tells everything, `deployer help CMD` what most people need, which is what the peer's
//! README shows.

use std::fmt::Write as _;

use runtime::goflag::Kind;

use super::path::Path;
use super::pflag::Flag;
use super::table::{Command, Entry};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Everything.
    Full,
    /// What most people need.
    Brief,
}

const HELP: Entry = Entry {
    flag: Flag { name: "help", letter: Some('h'), kind: Kind::Bool, default: "false", help: "" },
    brief: Some(""),
};

/// Longer names move the column of texts.
const NARROWEST: usize = 11;

/// What a command does and how it is used.
#[must_use]
pub(super) fn help(path: &Path, length: Length) -> String {
    format!("{}\n\n{}", path.command().about, usage(path, length))
}

/// How a command is used.
#[must_use]
pub(super) fn usage(path: &Path, length: Length) -> String {
    let command = path.command();
    let title = path.title();
    let mut text = "Usage:\n".to_owned();
    if command.verb.is_some() {
        let words = if command.name == "help" { " [command]" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {title}{words} [flags]");
    }
    if !command.children.is_empty() {
        let _ = writeln!(text, "  {title} [command]\n\nAvailable Commands:");
        text.push_str(&children(command, length));
    }
    let own: Vec<Entry> = path.own().copied().collect();
    let _ = write!(text, "\nFlags:\n{}", flags(own, length, Some(command.name)));
    let inherited: Vec<Entry> = path.inherited().copied().collect();
    if !inherited.is_empty() {
        let _ = write!(text, "\nGlobal Flags:\n{}", flags(inherited, length, None));
    }
    if !command.children.is_empty() {
        let _ = writeln!(text, "\nUse \"{title} [command] --help\" for more information about a command.");
    }
    text
}

fn children(command: &Command, length: Length) -> String {
    let width = command.children.iter().map(|child| child.name.len()).max().unwrap_or(0).max(NARROWEST);
    let shown = command.children.iter().filter(|child| child.brief || length == Length::Full);
    shown.map(|child| format!("  {:<width$} {}\n", child.name, child.about)).collect()
}

/// Flags by name, their texts in one column; with `-h` if they are those `of` a command.
fn flags(mut entries: Vec<Entry>, length: Length, of: Option<&str>) -> String {
    if length == Length::Brief {
        // A command's own flags are few.
        let brief =
            |entry: &Entry| entry.brief.map(|help| Entry { flag: Flag { help, ..entry.flag }, ..*entry });
        let global = of.is_none() || of == Some("deployer");
        entries = entries.iter().filter_map(|entry| brief(entry).or((!global).then_some(*entry))).collect();
    }
    let about = of.map(|name| format!("help for {name}"));
    entries.extend(of.map(|_| HELP));
    entries.sort_by_key(|entry| entry.flag.name);
    let line = |entry: &Entry| {
        let flag = entry.flag;
        let letter = flag.letter.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let kind = match flag.kind {
            Kind::Bool => "",
            Kind::Text => " string",
            Kind::Int => " int",
            Kind::Duration => " duration",
        };
        let help =
            if flag.name == HELP.flag.name { about.clone().unwrap_or_default() } else { described(&flag) };
        (format!("  {letter}--{}{kind}", flag.name), help)
    };
    let lines: Vec<(String, String)> = entries.iter().map(line).collect();
    let width = lines.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    lines.iter().map(|(left, right)| format!("{left:<width$}   {right}\n")).collect()
}

/// Its help, and its default unless that is the zero of its kind.
fn described(flag: &Flag) -> String {
    let default = match flag.kind {
        _ if matches!(flag.default, "" | "false" | "0" | "0s") => String::new(),
        Kind::Text => format!(" (default {:?})", flag.default),
        _ => format!(" (default {})", flag.default),
    };
    format!("{}{default}", flag.help)
}
