//! The commands of the pages.
//!
//! In: the text of README and quick start. Out: each command of their blocks and of the table of ways to install, with
//! where it can run. Never: a command passed over; one that is not known here is an error, and so is a block.

use std::path::Path;

use anyhow::{Context as _, bail};

const README: &str = "README.md";
const QUICK_START: &str = "docs/quick-start.md";
/// The table with the ways to install.
const WAYS: &str = "| with | command |";

/// A page and its blocks.
pub(super) struct Page {
    name: &'static str,
    text: String,
}

/// A fenced block.
pub(super) struct Block<'t> {
    /// The word behind the fence.
    pub(super) language: &'t str,
    /// The number of its first line.
    line: usize,
    pub(super) text: String,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    page: &'static str,
    line: usize,
    /// As a shell reads it.
    pub(super) text: String,
    pub(super) how: How,
}

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// In the clone.
    Here,
    /// In the clone, when it is asked for: it takes the better part of an hour.
    OnRequest,
    /// On the rig, as it is.
    Rig,
    /// It makes the cluster, or brings the image there: the rig does the same.
    Played,
    /// For another kind of cluster than the one that is played.
    NotHere,
    /// Removes what the command before it has made, so that the next way to install finds an empty cluster.
    Undo,
}

impl How {
    /// Whether it comes after the cluster is there.
    pub(super) fn wants_cluster(self) -> bool {
        !matches!(self, Self::Here | Self::OnRequest)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Here => "clone",
            Self::OnRequest => "asked",
            Self::Rig => "rig",
            Self::Played => "played",
            Self::NotHere => "not here",
            Self::Undo => "undo",
        }
    }

    /// By the words of a command.
    fn of(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(match (words.next()?, words.next()?) {
            ("cargo", "xtask") if text.starts_with("cargo xtask test") => Self::OnRequest,
            ("cargo", _) | ("tholepin", "simulate") => Self::Here,
            ("kind", _) => Self::Played,
            ("ctr" | "kubeadm", _) => Self::NotHere,
            ("tholepin" | "kubectl" | "helm", _) => Self::Rig,
            _ => return None,
        })
    }
}

impl Page {
    /// README and quick start.
    pub(super) fn all(root: &Path) -> anyhow::Result<[Self; 2]> {
        let page = |name: &'static str| {
            let text = std::fs::read_to_string(root.join(name)).with_context(|| name.to_owned())?;
            anyhow::Ok(Self { name, text })
        };
        Ok([page(README)?, page(QUICK_START)?])
    }

    pub(super) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    open = Some(Block { language, line: number + 2, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.text.extend([line, "\n"]),
                (None, None) => {}
            }
        }
        blocks
    }

    fn command(&self, line: usize, text: String) -> anyhow::Result<Command> {
        let how = How::of(&text);
        let how =
            how.with_context(|| format!("{}:{line}: nobody has said where {text:?} runs", self.name))?;
        Ok(Command { page: self.name, line, text, how })
    }

    /// The commands of the blocks, a heredoc with its command.
    fn in_blocks(&self) -> anyhow::Result<Vec<Command>> {
        let mut found = Vec::new();
        for block in self.blocks() {
            let Block { language, line, text } = block;
            let shown = text.strip_prefix("$ ").and_then(|rest| rest.lines().next());
            match (language, shown) {
                ("yaml" | "mermaid", _) => {}
                ("", Some(shown)) => found.push(self.command(line, shown.to_owned())?),
                ("" | "sh", _) => {
                    for (at, text) in split(&text) {
                        found.push(self.command(line + at, text)?);
                    }
                }
                _ => bail!("{}:{line}: nobody has said what a block {language:?} is", self.name),
            }
        }
        Ok(found)
    }

    /// The commands of the table, each with its undoing.
    fn ways(&self) -> anyhow::Result<Vec<Command>> {
        let lines = self.text.lines().enumerate().skip_while(|(_, line)| *line != WAYS);
        let mut found = Vec::new();
        for (number, row) in lines.skip(2).take_while(|(_, row)| row.starts_with('|')) {
            let code =
                row.split('`').nth(1).with_context(|| format!("{}:{}: no command", self.name, number + 1))?;
            let command = self.command(number + 1, code.replace("\\|", "|"))?;
            let undo = Command { text: undo(&command.text)?, how: How::Undo, ..command.clone() };
            found.extend([command, undo]);
        }
        Ok(found)
    }
}

impl Command {
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// The first line, for a table.
    pub(super) fn shown(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// All commands: those of the blocks page by page, and after them those that only show an output. Then the ways to
/// install, which need the program and the image that the quick start makes.
pub(super) fn of(pages: &[Page]) -> anyhow::Result<Vec<Command>> {
    let mut found = Vec::new();
    for page in pages {
        found.extend(page.in_blocks()?);
    }
    // A page may show what the program prints before it says how to install it.
    found.sort_by_key(|command| command.text.starts_with("tholepin simulate"));
    for page in pages {
        found.extend(page.ways()?);
    }
    Ok(found)
}

/// The commands of a block, with the offsets of their lines. Words after `    #` are for people.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut end: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        match (end, found.last_mut()) {
            (Some(word), Some((_, command))) => {
                command.extend([line, "\n"]);
                end = end.filter(|_| line != word);
            }
            _ if line.trim().is_empty() => {}
            _ => {
                let heredoc = line.split_once("<<").map(|(_, word)| word.trim_matches('\''));
                let line = line.split_once("    #").map_or(line, |(command, _)| command.trim_end());
                found.push((at, if heredoc.is_some() { format!("{line}\n") } else { line.to_owned() }));
                end = heredoc;
            }
        }
    }
    found
}

/// The command that removes what a way to install has made.
fn undo(way: &str) -> anyhow::Result<String> {
    Ok(match way.split_once(" | kubectl apply ") {
        Some((render, _)) => format!("{render} | kubectl delete --wait -f -"),
        None if way.starts_with("tholepin deploy") => "tholepin remove --wait".to_owned(),
        None if way.starts_with("helm install tholepin ") => {
            "helm uninstall tholepin --namespace tholepin --wait\n\
             kubectl delete namespace tholepin\n\
             kubectl delete customresourcedefinition noderesourcetopologies.topology.node.k8s.io"
                .to_owned()
        }
        None => bail!("nobody has said what removes {way:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::root;

    #[test]
    fn each_command_of_the_pages_is_found_and_known() {
        let pages = Page::all(&root()).unwrap();
        let found = of(&pages).unwrap();
        let shown: Vec<_> = found.iter().map(|one| (one.how, one.shown())).collect();
        for wanted in [
            (How::Here, "cargo run --release -- simulate"),
            (How::OnRequest, "cargo xtask test"),
            (How::Here, "tholepin simulate"),
            (How::Here, "cargo xtask image"),
            (How::Played, "kind create cluster --config kind.yaml"),
            (How::Rig, "kubectl apply -f - <<'END'"),
            (How::Rig, "tholepin render operator | kubectl apply --server-side -f -"),
            (How::Undo, "tholepin render operator | kubectl delete --wait -f -"),
        ] {
            assert!(shown.contains(&wanted), "{wanted:?} is not in {shown:#?}");
        }
        // The heredoc is a part of its command.
        assert!(shown.iter().all(|(_, text)| !text.contains("apiVersion")), "{shown:#?}");
        let ways = shown.iter().filter(|(how, _)| *how == How::Undo).count();
        assert_eq!((ways, shown.len()), (4, 27), "{shown:#?}");
    }

    #[test]
    fn blocks_part_into_commands() {
        let text = "a b    # why\n\nc <<'END'\nx    # y\nEND\nd\n";
        let wanted = [(0, "a b"), (2, "c <<'END'\nx    # y\nEND\n"), (5, "d")];
        assert_eq!(split(text), wanted.map(|(at, text)| (at, text.to_owned())));
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let error = |text: &str| {
            let page = Page { name: README, text: text.to_owned() };
            of(&[page]).unwrap_err().to_string()
        };
        assert_eq!(
            error("```\nmake install\n```\n"),
            "README.md:2: nobody has said where \"make install\" runs"
        );
        assert_eq!(error("\n```rust\n```\n"), "README.md:3: nobody has said what a block \"rust\" is");
        let way = format!("{WAYS}\n|---|---|\n| x | `kubectl create` |\n");
        assert_eq!(error(&way), "nobody has said what removes \"kubectl create\"");
    }
}
