//! Templates of objects: the few constructs of Go's `text/template` that upstream's cases use.
//!
//! In: text, the index of an object, and how many there are. Out: the text with values in place. `{{.Index}}`,
//! `{{.Count}}` and `{{Function A B}}` are known, with the functions that `scheduler_perf` adds for whole numbers;
//! everything else is an error.

use anyhow::{Context as _, bail};

/// Which of how many objects a template is rendered for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) index: usize,
    pub(super) count: usize,
}

/// The text with every `{{...}}` replaced.
pub(super) fn render(text: &str, position: Position) -> anyhow::Result<String> {
    let (mut rendered, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, behind) = after.split_once("}}").context("a template has {{ without }}")?;
        rendered.push_str(before);
        rendered.push_str(&value(action, position)?.to_string());
        rest = behind;
    }
    rendered.push_str(rest);
    Ok(rendered)
}

/// Whether rendering depends on the position.
pub(super) fn is_template(text: &str) -> bool {
    text.contains("{{")
}

fn value(action: &str, position: Position) -> anyhow::Result<i64> {
    let words: Vec<&str> = action.split_whitespace().collect();
    let [function, operands @ ..] = words.as_slice() else { bail!("a template has an empty {{{{}}}}") };
    if operands.is_empty() {
        return operand(function, position);
    }
    let numbers: Vec<i64> =
        operands.iter().map(|word| operand(word, position)).collect::<anyhow::Result<_>>()?;
    let result = match (*function, numbers.as_slice()) {
        ("AddInt", numbers) => numbers.iter().try_fold(0_i64, |sum, number| sum.checked_add(*number)),
        ("MultiplyInt", numbers) => numbers.iter().try_fold(1_i64, |all, number| all.checked_mul(*number)),
        ("SubtractInt", [a, b]) => a.checked_sub(*b),
        ("DivideInt", [a, b]) => a.checked_div(*b),
        ("Mod", [a, b]) => a.checked_rem(*b),
        _ => bail!("the template construct {{{{{action}}}}} is not supported"),
    };
    result.with_context(|| format!("{{{{{action}}}}} divides by zero or is too large"))
}

fn operand(word: &str, position: Position) -> anyhow::Result<i64> {
    match word {
        ".Index" => Ok(i64::try_from(position.index)?),
        ".Count" => Ok(i64::try_from(position.count)?),
        _ => word.parse().ok().with_context(|| format!("the template construct {word} is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_constructs_are_rendered_and_others_refused() {
        let cases = [
            ("name: pod", Some("name: pod")),
            ("name: pod-{{.Index}}-of-{{ .Count }}", Some("name: pod-7-of-10")),
            ("zone: {{ Mod .Index 3 }}", Some("zone: 1")),
            ("cpu: {{DivideInt 30000 .Count}}m", Some("cpu: 3000m")),
            ("a: {{AddInt .Index 1 2}} b: {{SubtractInt .Count .Index}}", Some("a: 10 b: 3")),
            ("a: {{MultiplyInt .Index 2}}", Some("a: 14")),
            ("a: {{DivideInt 1 0}}", None),
            ("a: {{Mod 1}}", None),
            ("a: {{AddFloat .Index 0.5}}", None),
            ("a: {{range .Index}}", None),
            ("a: {{.Name}}", None),
            ("a: {{.Index", None),
            ("a: {{}}", None),
        ];
        for (text, expected) in cases {
            let rendered = render(text, Position { index: 7, count: 10 });
            assert_eq!(rendered.ok().as_deref(), expected, "{text}");
        }
    }
}
