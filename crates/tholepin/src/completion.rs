//! Completion of command lines: scripts for shells, and the answers that kubectl asks its plugins for.
//!
//! In: a shell, or the words so far. Out: a script, or candidates. Never: a request to a cluster.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_complete::engine::complete;

/// The name of the plugin for kubectl, and how people call it.
const PLUGIN: (&str, &str) = ("kubectl-tholepin", "kubectl tholepin");
/// The name under which kubectl 1.26 and later asks for candidates.
const ANSWERER: &str = "kubectl_complete-tholepin";
/// What kubectl is told of files: they are candidates only where there are no others (Cobra's directives).
const NO_FILES: &str = ":4";
const FILES: &str = ":0";

/// The name in usages, if the program was called as a plugin.
pub(crate) fn plugin_name(words: &[OsString]) -> Option<&'static str> {
    (own_name(words)? == PLUGIN.0).then_some(PLUGIN.1)
}

/// Whether kubectl asks for candidates.
pub(crate) fn is_asked(words: &[OsString]) -> bool {
    own_name(words) == Some(ANSWERER)
}

fn own_name(words: &[OsString]) -> Option<&str> {
    Path::new(words.first()?).file_name()?.to_str()
}

/// The candidates for the last word, a line each with what it stands for, and a last line about files.
pub(crate) fn answer(mut command: Command, words: &[OsString]) -> std::io::Result<String> {
    let last = words.len().saturating_sub(1);
    let candidates = complete(&mut command, words.to_vec(), last, std::env::current_dir().ok().as_deref())?;
    let shown = candidates.iter().filter(|candidate| !candidate.is_hide_set());
    let mut text = String::new();
    for candidate in shown {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(
            text,
            "{}\t{}",
            candidate.get_value().display(),
            help.lines().next().unwrap_or_default()
        );
    }
    let directive = if text.is_empty() { FILES } else { NO_FILES };
    let _ = writeln!(text, "{directive}");
    Ok(text)
}

/// The script of a shell.
pub(crate) fn script(shell: Shell, command: &mut Command) -> String {
    // A writer that fails makes the generator panic, and pipes are closed early.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "tholepin", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn kubectl_gets_candidates_with_their_meaning() {
        // the words so far -> a line of the answer, the last line
        for (line, wanted, directive) in [
            ("/bin/kubectl_complete-tholepin val", "validate\tDiagnose", NO_FILES),
            ("kubectl_complete-tholepin validate --off", "--offline\tDirectory", NO_FILES),
            ("kubectl_complete-tholepin deploy sch", "scheduler\t", NO_FILES),
            ("kubectl_complete-tholepin test --pull-policy x", "", FILES),
        ] {
            let words = words(line);
            assert!(is_asked(&words));
            let answer = answer(Cli::command(), &words).unwrap();
            assert!(answer.lines().any(|line| line.starts_with(wanted)), "{line}: {answer}");
            assert_eq!(answer.lines().last(), Some(directive), "{line}: {answer}");
            assert!(!answer.contains("pause"), "{line}: {answer}");
        }
    }

    #[test]
    fn a_plugin_is_called_by_its_name_in_kubectl() {
        assert_eq!(plugin_name(&words("/usr/bin/kubectl-tholepin status")), Some("kubectl tholepin"));
        assert_eq!(plugin_name(&words("tholepin status")), None);
        assert!(!is_asked(&words("kubectl-tholepin status")));
    }
}
