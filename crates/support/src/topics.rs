//! `lstopics` and `mkginkgolabelfilter`: topics of features as JSON, and a label filter from such a list.
//!
//! In: for the filter, JSON of bounded size. Out: JSON; `feature: containsAny {a,b}`. Never: a filter from invalid
//! input.

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use api::features::Topics;

use crate::call::{self, Call};

/// Largest input, far above any list of topics.
const LIMIT_BYTES: u64 = 1 << 20;

/// Prints the topics.
///
/// # Errors
/// When standard output cannot be written.
pub fn list(call: &Call) -> anyhow::Result<ExitCode> {
    if let Err(code) = call.flags(&[], false) {
        return Ok(code);
    }
    call::print(&(Topics::own().to_json() + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a filter for the list on standard input.
///
/// # Errors
/// When the input is not a list of topics, or a topic has characters that a filter does not allow.
pub fn filter(call: &Call) -> anyhow::Result<ExitCode> {
    if let [word] = call.arguments.as_slice()
        && matches!(word.as_str(), "-h" | "--h" | "-help" | "--help")
    {
        call::print(&format!(
            "Reads the topics of features as JSON from standard input and prints the label filter of Ginkgo \
             that selects their tests.\nExample: {} for\n  {{\"active\":[\"cache\",\"stall\"]}}\nprints\n  {}",
            call.program,
            of(r#"{"active":["cache","stall"]}"#.as_bytes())?,
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(code) = call.flags(&[], false) {
        return Ok(code);
    }
    call::print(&of(std::io::stdin().lock())?)?;
    Ok(ExitCode::SUCCESS)
}

fn of(input: impl Read) -> anyhow::Result<String> {
    // As the Go tool: one object counts, whatever follows.
    let mut values = serde_json::Deserializer::from_reader(input.take(LIMIT_BYTES)).into_iter::<Topics>();
    let topics = values.next().context("standard input: no topics")?;
    let topics = topics.context("standard input: topics cannot be read")?;
    for topic in &topics.active {
        if topic.is_empty() || topic.contains(['{', '}', ',', ' ']) {
            bail!("standard input: topic {topic:?} must not be empty or contain {{, }}, comma or space");
        }
    }
    Ok(format!("feature: containsAny {{{}}}\n", topics.active.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_follow_from_lists() {
        let check = |text: &str, wanted: Result<&str, &str>| {
            let made = of(text.as_bytes()).map_err(|error| format!("{error:#}"));
            match (made, wanted) {
                (Ok(made), Ok(wanted)) => assert_eq!(made, wanted, "{text}"),
                (Err(made), Err(wanted)) => assert!(made.contains(wanted), "{text}: {made}"),
                (made, _) => panic!("{text}: {made:?}"),
            }
        };
        check(r#"{"active":["a","b","c"]}"#, Ok("feature: containsAny {a,b,c}\n"));
        check(r#"{"metadata":{"version":"v1.2.3"},"active":["a"]} {"#, Ok("feature: containsAny {a}\n"));
        check(r#"{"active":null}"#, Ok("feature: containsAny {}\n"));
        check("", Err("no topics"));
        check("active", Err("cannot be read"));
        check(r#"{"active":"a"}"#, Err("cannot be read"));
        check(r#"{"active":["a,b"]}"#, Err("\"a,b\""));
        let own = of(Topics::own().to_json().as_bytes()).unwrap();
        assert!(own.starts_with("feature: containsAny {config,nonreg,"), "{own}");
    }
}
