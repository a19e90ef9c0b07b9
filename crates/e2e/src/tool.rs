//! Tools of our own program, run as people run them: as a process.
//!
//! In: words, standard input, variables. Out: exit code and both outputs. Never: a tool that outlives its wait, or that
//! looks at another cluster than the one under test.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::fixture::Fixture;
use crate::spec::Result;

/// How a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// What a tool gets besides its words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// Standard input.
    pub input: &'a str,
    /// Variables of the environment.
    pub variables: &'a [(&'a str, &'a str)],
}

/// Runs a program to its end.
async fn run(program: &Path, words: &[&str], given: Given<'_>) -> Result<Said> {
    let mut command = Command::new(program);
    command.args(words).envs(given.variables.iter().copied()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // A tool may end without having read it.
        _ = input.write_all(given.input.as_bytes()).await;
    }
    let output = child.wait_with_output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

impl Said {
    /// The last line on standard error.
    #[must_use]
    pub fn last(&self) -> &str {
        self.stderr.trim_end().lines().last().unwrap_or_default()
    }
}

impl Fixture {
    /// Runs a tool of this very program.
    ///
    /// # Errors
    /// When it cannot be started, or does not end in time.
    pub async fn tool(&self, words: &[&str], given: Given<'_>) -> Result<Said> {
        let program = std::env::current_exe().context("the path of this program")?;
        let limit = self.cluster().settings.patience;
        let ended = tokio::time::timeout(limit, run(&program, words, given)).await;
        let what = words.first().copied().unwrap_or_default();
        ended.with_context(|| format!("{what} has not ended within {} s", limit.as_secs()))?
    }

    /// The same, for a tool that is told the cluster by flags.
    ///
    /// # Errors
    /// As [`Fixture::tool`].
    pub async fn cluster_tool(&self, words: &[&str]) -> Result<Said> {
        let access = &self.cluster().settings.access;
        let kubeconfig = access.kubeconfig.as_ref().map(|file| file.display().to_string());
        let flags = [("--kubeconfig", kubeconfig.as_deref()), ("--context", access.context.as_deref())];
        let flags = flags.into_iter().filter_map(|(flag, value)| Some([flag, value?])).flatten();
        let words: Vec<&str> = words.iter().copied().chain(flags).collect();
        self.tool(&words, Given::default()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_gets_words_input_and_variables() {
        let given = Given { input: "in", variables: &[("A_VARIABLE", "set")] };
        let script = "cat; echo \" $1 $A_VARIABLE\"; echo first >&2; echo last >&2; exit 3";
        let said = run(Path::new("/bin/sh"), &["-c", script, "sh", "word"], given).await.unwrap();
        assert_eq!((said.code, said.stdout.as_str(), said.last()), (Some(3), "in word set\n", "last"));
        let none = run(Path::new("/nonexistent"), &[], Given::default()).await.unwrap_err();
        assert!(none.to_string().contains("/nonexistent"), "{none}");
    }
}
