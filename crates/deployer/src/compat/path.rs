//! Finding the command in the arguments.
//!
//! In: the arguments. Out: the command with its ancestors and parsed flags, or an error in cobra's words. Never: a run.

use super::pflag::{self, Error, Flag, Parsed};
use super::table::{Command, ROOT};

/// A command with its ancestors; the program is first.
#[derive(Clone, Debug)]
pub(super) struct Path(pub Vec<&'static Command>);

impl Path {
    /// The command itself.
    pub(super) fn command(&self) -> &'static Command {
        self.0.last().copied().unwrap_or(&ROOT)
    }

    /// The full name: `deployer render api`.
    pub(super) fn title(&self) -> String {
        self.0.iter().map(|command| command.name).collect::<Vec<_>>().join(" ")
    }

    /// The command's own flags, including those that its children inherit.
    pub(super) fn own(&self) -> impl Iterator<Item = &'static Flag> {
        let command = self.command();
        command.flags.iter().chain(command.inherited)
    }

    /// Flags inherited from ancestors.
    pub(super) fn inherited(&self) -> impl Iterator<Item = &'static Flag> + '_ {
        self.0[..self.0.len().saturating_sub(1)].iter().flat_map(|command| command.inherited)
    }

    /// All flags.
    pub(super) fn flags(&self) -> Vec<&'static Flag> {
        self.own().chain(self.inherited()).collect()
    }

    /// Finds the command; the second value has the words without its name.
    pub(super) fn find(words: &[String]) -> (Self, Vec<String>) {
        let mut path = Self(vec![&ROOT]);
        let mut words = words.to_vec();
        while let Some((at, child)) = path.next(&words) {
            words.remove(at);
            path.0.push(child);
        }
        (path, words)
    }

    /// The index of the first word that is neither a flag nor a flag's value.
    fn first_word(&self, words: &[String]) -> Option<usize> {
        let flags = self.flags();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            match word.as_str() {
                "--" => return None,
                "" | "-" => {}
                flag if flag.starts_with('-') => at += usize::from(pflag::takes_next(&flags, flag)),
                _ => return Some(at),
            }
            at += 1;
        }
        None
    }

    /// The index of the first word and the child that it names.
    fn next(&self, words: &[String]) -> Option<(usize, &'static Command)> {
        let at = self.first_word(words)?;
        self.command().children.iter().find(|child| child.name == words[at]).map(|child| (at, child))
    }

    /// Finds the command and parses its flags. Only `help` takes further words.
    ///
    /// # Errors
    /// When a word is no command or a flag is wrong. `-h` is [`Error::Help`].
    pub(super) fn read(words: &[String]) -> (Self, Result<Parsed, Error>) {
        let (path, rest) = Self::find(words);
        let parsed = path.parse(rest);
        (path, parsed)
    }

    fn parse(&self, rest: Vec<String>) -> Result<Parsed, Error> {
        // Cobra reports an unknown first word before errors in flags.
        if self.0.len() == 1
            && let Some(at) = self.first_word(&rest)
        {
            return Err(self.unknown(&rest[at]));
        }
        let parsed = pflag::parse(&self.flags(), rest)?;
        match parsed.rest.first() {
            Some(word) if self.command().name != "help" => Err(self.unknown(word)),
            _ => Ok(parsed),
        }
    }

    fn unknown(&self, word: &str) -> Error {
        let likely = |command: &&Command| {
            command.name.to_lowercase().starts_with(&word.to_lowercase()) || distance(command.name, word) <= 2
        };
        // Cobra suggests only top-level commands.
        let children = if self.0.len() == 1 { self.command().children } else { &[] };
        let mut names: String =
            children.iter().filter(likely).map(|command| format!("\n\t{}", command.name)).collect();
        if !names.is_empty() {
            names = format!("\n\nDid you mean this?{names}\n");
        }
        Error::Wrong(format!("unknown command {word:?} for {:?}{names}", self.title()))
    }
}

/// Levenshtein distance, ignoring letter case.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|text| text.to_lowercase().chars().take(64).collect::<Vec<char>>());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
