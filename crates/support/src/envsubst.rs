//! `envsubst`: replaces variables in text.
//!
//! In: standard input, line by line, and the environment. Out: the text with `${NAME}` and the expressions below
//! replaced. Never: a change of a bare `$NAME`, or a partly replaced line.
//!
//! | expression | result |
//! |---|---|
//! | `${v}` | the value; unchanged if `v` is not set |
//! | `${#v}` | the number of bytes of the value |
//! | `${v^}` `${v^^}` `${v,}` `${v,,}` | the first letter, or all, in upper or lower case |
//! | `${v:n}` `${v:n:m}` | from the n-th byte on, at most m; n below zero counts from the end |
//! | `${v#p}` `${v##p}` `${v%p}` `${v%%p}` | without the shortest or longest match of the pattern at its start or end |
//! | `${v/a/b}` `${v//a/b}` `${v/#a/b}` `${v/%a/b}` | with b for the first a, for all, for one at the start or end |
//! | `${v-d}` `${v=d}` | d if `v` is not set |
//! | `${v:-d}` `${v:=d}` | d if `v` is not set or empty |
//! | `${v+d}` `${v:+d}` | d if `v` is set (and not empty), else nothing |
//! | `$${` | `${`, whatever follows |
//!
//! Arguments may contain expressions. In an argument `\` makes the next character literal. In the Go tool no variable
//! is ever unset, since `${v}` counts as the value of an unset one. Here defaults work, and other expressions of an
//! unset variable stay unchanged.

mod expression;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, BufWriter, Read as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use crate::call::Call;

/// The longest line accepted.
const LIMIT_BYTES: u64 = 16 << 20;

/// An invalid expression in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Byte offset in the line at which the expression begins.
    pub at: usize,
    /// The problem.
    pub reason: &'static str,
}

/// Runs the tool.
///
/// # Errors
/// When a line is malformed or too long, or input or output fails.
pub fn run(call: &Call) -> anyhow::Result<ExitCode> {
    if let Err(code) = call.flags(&[], false) {
        return Ok(code);
    }
    let lookup = |name: &str| std::env::var(name).ok();
    match all(io::stdin().lock(), &lookup) {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        ended => ended.map(|()| ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn all(mut input: impl BufRead, lookup: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        let read = input.by_ref().take(LIMIT_BYTES + 1).read_line(&mut line);
        read.with_context(|| format!("standard input, line {number}"))?;
        if line.is_empty() {
            break;
        }
        if line.len() as u64 > LIMIT_BYTES {
            bail!("standard input, line {number}: longer than {LIMIT_BYTES} bytes");
        }
        let text = line.strip_suffix('\n').unwrap_or(&line);
        let replaced = replace(text, lookup).map_err(|Malformed { at, reason }| {
            anyhow::anyhow!("standard input, line {number}, byte {}: {reason}", at + 1)
        })?;
        writeln!(output, "{replaced}")?;
    }
    Ok(output.flush()?)
}

/// Replaces the expressions of a line. `lookup` returns the value of a variable, `None` if it is not set.
///
/// # Errors
/// The first invalid expression.
pub fn replace(line: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Malformed> {
    let mut replaced = String::new();
    let mut at = 0;
    while let Some(step) = line.get(at..).and_then(|rest| rest.find('$')) {
        let dollar = at + step;
        replaced.push_str(&line[at..dollar]);
        let rest = &line[dollar..];
        if rest.starts_with("$${") {
            replaced.push_str("${");
            at = dollar + 3;
        } else if rest.starts_with("${") {
            let (value, end) = expression::evaluate(line, dollar, lookup, 0)?;
            replaced.push_str(&value);
            at = end;
        } else {
            replaced.push('$');
            at = dollar + 1;
        }
    }
    replaced.push_str(line.get(at..).unwrap_or_default());
    Ok(replaced)
}
