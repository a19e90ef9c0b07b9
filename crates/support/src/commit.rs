//! `verify-commit`: whether commits are signed off by their authors.
//!
//! In: a JSON object for each commit on standard input, one per line. Out: the commits checked; problems on standard
//! error; exit code 1 when a line cannot be read, 2 when a commit is not signed off. Never: an end at the first invalid
//! commit.

use std::io::{BufRead, Read as _};
use std::process::ExitCode;

use runtime::stderr;
use serde::Deserialize;

use crate::call::{self, Call};

/// Largest input, far above all commits of a change.
const LIMIT_BYTES: u64 = 64 << 20;
/// Authors that do not sign; part of the name is enough.
const UNSIGNED: [&str; 3] = ["red-hat-konflux", "Chai Bot", "ocp-telco-ci-gitlab-ci"];
/// An author that signs with the name alone.
const DEPENDABOT: &str = "dependabot[bot]";

/// A commit, as the repository's script writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Commit {
    /// The hash.
    commit: String,
    /// The author's name.
    author: String,
    /// The author's address, as `<name@host>`.
    author_email: String,
    /// The part of the address before `@`, as `<name>`.
    author_email_local: String,
    /// All lines of `Signed-off-by`.
    dco_sign_tag: String,
    /// All lines of `Co-authored-by`.
    dco_coauthor_tag: String,
}

/// Runs the tool.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(call: &Call) -> anyhow::Result<ExitCode> {
    if let Err(code) = call.flags(&[], false) {
        return Ok(code);
    }
    let mut commits = Vec::new();
    for (number, line) in std::io::stdin().lock().take(LIMIT_BYTES).lines().enumerate() {
        let read = line.map_err(|error| error.to_string()).and_then(|line| read(&line));
        match read {
            Ok(commit) => commits.extend(commit),
            Err(error) => {
                stderr::line(format_args!("error decoding git commit: line {}: {error}", number + 1));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    let mut wrong = 0;
    for commit in &commits {
        match check(commit) {
            Ok(how) => call::print(&format!("commit {}: {how}\n", commit.commit))?,
            Err(reasons) => {
                stderr::line(format_args!("invalid commit {}: {}", commit.commit, reasons.join("; ")));
                wrong += 1;
            }
        }
    }
    call::print(&format!("commits: {}, invalid: {wrong}\n", commits.len()))?;
    Ok(ExitCode::from(if wrong == 0 { 0 } else { 2 }))
}

fn read(line: &str) -> Result<Option<Commit>, String> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    serde_json::from_str(line).map(Some).map_err(|error| error.to_string())
}

fn check(commit: &Commit) -> Result<&'static str, Vec<String>> {
    let Commit { author, author_email, .. } = commit;
    if UNSIGNED.iter().any(|name| author.contains(name)) {
        return Ok("of an author that signs nothing");
    }
    let mut wrong = Vec::new();
    if format!("<{author}>") == commit.author_email_local {
        wrong.push("the author's name is only that of the address".to_owned());
    }
    let name = if author == DEPENDABOT { author.clone() } else { format!("{author} {author_email}") };
    let (signed, co_authored) = (format!("Signed-off-by: {name}"), format!("Co-authored-by: {name}"));
    let how = if commit.dco_sign_tag.contains(&signed) {
        "signed off by its author"
    } else if !commit.dco_sign_tag.is_empty() && commit.dco_coauthor_tag.contains(&co_authored) {
        "signed off, with its author as one of several"
    } else {
        let found = if commit.dco_sign_tag.is_empty() { "nothing" } else { commit.dco_sign_tag.as_str() };
        wrong.push(format!("sign-off: expected {signed:?}, found {found:?}"));
        ""
    };
    if wrong.is_empty() { Ok(how) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_sign_their_commits() {
        let of = |author: &str, sign: &str, co: &str| Commit {
            author: author.to_owned(),
            author_email: "<a@b>".to_owned(),
            author_email_local: "<a>".to_owned(),
            dco_sign_tag: sign.to_owned(),
            dco_coauthor_tag: co.to_owned(),
            ..Commit::default()
        };
        let check = |author: &str, sign: &str, co: &str, good: bool| {
            assert_eq!(super::check(&of(author, sign, co)).is_ok(), good, "{author} {sign} {co}");
        };
        check("An Author", "Signed-off-by: An Author <a@b>", "", true);
        check("An Author", "Signed-off-by: X <x@y> Signed-off-by: An Author <a@b>", "", true);
        check("An Author", "Signed-off-by: X <x@y>", "Co-authored-by: An Author <a@b>", true);
        check("An Author", "", "Co-authored-by: An Author <a@b>", false);
        check("An Author", "Signed-off-by: An Author <c@d>", "", false);
        check("An Author", "", "", false);
        check("a", "Signed-off-by: a <a@b>", "", false);
        check("dependabot[bot]", "Signed-off-by: dependabot[bot] <support@x>", "", true);
        check("dependabot[bot]", "", "", false);
        check("red-hat-konflux[bot]", "", "", true);
    }

    #[test]
    fn commits_are_read() {
        let commit = read(r#"{"commit":"1","author":"A","authorEmail":"<a@b>","dcoSignTag":"S"}"#);
        let commit = commit.unwrap().unwrap();
        assert_eq!((commit.author.as_str(), commit.author_email.as_str()), ("A", "<a@b>"));
        assert_eq!(commit.dco_sign_tag, "S");
        assert!(read(" ").unwrap().is_none());
        assert!(read("commit").is_err());
        assert!(read("{").is_err());
    }
}
