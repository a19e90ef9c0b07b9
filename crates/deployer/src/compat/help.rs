//! Help texts in cobra's layout.
//!
//! In: a command. Out: its help. `deployer CMD --help` has all flags; `deployer help CMD` has the common ones, as in
//! the peer's README. Never: a write.

use std::fmt::Write as _;

use runtime::goflag::Kind;

use super::path::Path;
use super::pflag::Flag;
use super::table::Command;

/// The length of a help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelpLength {
    /// All flags.
    Full,
    /// The common flags.
    Brief,
}

const HELP: Flag =
    Flag { name: "help", letter: Some('h'), kind: Kind::Bool, default: "false", help: "", brief: Some("") };

/// The least width of the column of names.
const NARROWEST: usize = 11;

/// The description and usage of a command.
pub(super) fn help(path: &Path, length: HelpLength) -> String {
    format!("{}\n\n{}", path.command().about, usage(path, length))
}

/// The usage of a command.
pub(super) fn usage(path: &Path, length: HelpLength) -> String {
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
    let own: Vec<Flag> = path.own().copied().collect();
    let _ = write!(text, "\nFlags:\n{}", flags(own, length, Some(command.name)));
    let inherited: Vec<Flag> = path.inherited().copied().collect();
    if !inherited.is_empty() {
        let _ = write!(text, "\nGlobal Flags:\n{}", flags(inherited, length, None));
    }
    if !command.children.is_empty() {
        let _ = writeln!(text, "\nUse \"{title} [command] --help\" for more information about a command.");
    }
    text
}

fn children(command: &Command, length: HelpLength) -> String {
    let width = command.children.iter().map(|child| child.name.len()).max().unwrap_or(0).max(NARROWEST);
    let shown = command.children.iter().filter(|child| child.brief || length == HelpLength::Full);
    shown.map(|child| format!("  {:<width$} {}\n", child.name, child.about)).collect()
}

/// Flags sorted by name, with texts in one column; `of` names the command whose flags include `-h`.
fn flags(mut flags: Vec<Flag>, length: HelpLength, of: Option<&str>) -> String {
    if length == HelpLength::Brief {
        // A command's own flags are always shown.
        let brief = |flag: &Flag| flag.brief.map(|help| Flag { help, ..*flag });
        let global = of.is_none() || of == Some("deployer");
        flags = flags.iter().filter_map(|flag| brief(flag).or((!global).then_some(*flag))).collect();
    }
    let about = of.map(|name| format!("help for {name}"));
    flags.extend(of.map(|_| HELP));
    flags.sort_by_key(|flag| flag.name);
    let line = |flag: &Flag| {
        let letter = flag.letter.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let kind = match flag.kind {
            Kind::Bool => "",
            Kind::Text => " string",
            Kind::List => " strings",
            Kind::Int => " int",
            Kind::Duration => " duration",
        };
        let help = if flag.name == HELP.name { about.clone().unwrap_or_default() } else { described(flag) };
        (format!("  {letter}--{}{kind}", flag.name), help)
    };
    let lines: Vec<(String, String)> = flags.iter().map(line).collect();
    let width = lines.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    lines.iter().map(|(left, right)| format!("{left:<width$}   {right}\n")).collect()
}

/// The help of a flag, and its default unless that is the zero value.
fn described(flag: &Flag) -> String {
    let default = match flag.kind {
        _ if matches!(flag.default, "" | "false" | "0" | "0s") => String::new(),
        Kind::Text => format!(" (default {:?})", flag.default),
        _ => format!(" (default {})", flag.default),
    };
    format!("{}{default}", flag.help)
}
