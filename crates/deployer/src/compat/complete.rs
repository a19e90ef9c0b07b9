//! Completion of the peer's command line in shells.
//!
//! In: the tables. Out: scripts, and answers to scripts of the peer, which call `deployer __complete WORDS` at each
//! key.

use clap::{Arg, ArgAction, ValueHint};
use clap_complete::Shell;
use runtime::goflag::Kind;

use super::Ending;
use super::path::Path;
use super::pflag::{Flag, takes_next};
use super::table::{Command, ROOT};

/// "Do not offer files", in cobra's numbers.
const NO_FILES: u8 = 4;
/// "Offer files".
const FILES: u8 = 0;

/// The script for a shell.
pub(super) fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut mirror(&ROOT), ROOT.name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The completions of the last word, one in each line, then cobra's directive for the shell.
pub(super) fn answer(words: &[String], descriptions: bool) -> Ending {
    let (unfinished, before) =
        words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let (path, rest) = Path::find(before);
    let mut lines = Vec::new();
    let mut directive = NO_FILES;
    let mut offer = |word: String, about: &str| {
        if word.starts_with(unfinished) {
            lines.push(if descriptions { format!("{word}\t{about}\n") } else { format!("{word}\n") });
        }
    };
    let flags = path.flags();
    let awaits = rest.last().is_some_and(|word| word.starts_with('-') && takes_next(&flags, word));
    if awaits {
        // The value of a flag; only files can be completed.
        directive = FILES;
    } else if unfinished.starts_with('-') {
        flags.iter().for_each(|flag| offer(format!("--{}", flag.name), flag.help));
        offer("--help".to_owned(), &format!("help for {}", path.command().name));
    } else {
        let children = if path.command().name == "help" { ROOT.children } else { path.command().children };
        children.iter().for_each(|child| offer(child.name.to_owned(), child.about));
    }
    lines.push(format!(":{directive}\n"));
    Ending { stdout: lines.concat(), ..Ending::default() }
}

/// The commands for the library that writes the scripts.
fn mirror(command: &Command) -> clap::Command {
    let arguments = |flags: &'static [Flag], global: bool| {
        flags.iter().map(move |flag| {
            let argument =
                Arg::new(flag.name).long(flag.name).short(flag.letter).help(flag.help).global(global);
            let is_file = flag.name.ends_with("file") || flag.name == "kubeconfig";
            let hint = if is_file { ValueHint::FilePath } else { ValueHint::Unknown };
            match flag.kind {
                Kind::Bool => argument.action(ArgAction::SetTrue),
                _ => argument.action(ArgAction::Set).value_hint(hint),
            }
        })
    };
    clap::Command::new(command.name)
        .about(command.about)
        .disable_help_subcommand(true)
        .args(arguments(command.flags, false))
        .args(arguments(command.inherited, true))
        .subcommands(command.children.iter().map(mirror))
}
