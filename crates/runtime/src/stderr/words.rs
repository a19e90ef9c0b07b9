//! Errors in the words of this program, where a library would speak to programmers.
//!
//! In: the text of an error. Out: the same with what is allowed. Never: another meaning.

use std::borrow::Cow;

/// What libraries say of values, and what people are told.
const WORDS: [(&str, &str); 4] = [
    ("invalid digit found in string", "it must be a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "it must be a number"),
];
/// Layers of libraries, which stand before the cause of a failed call and say no more than it.
const LAYERS: [&str; 4] =
    ["ServiceError: ", "client error (Connect): ", "client error (SendRequest): ", "tcp connect error: "];
/// How Rust writes a range in clap's errors: `70000 is not in 1..=65535`.
const RANGE: &str = " is not in ";
/// What Rust adds to errors of the system: ` (os error 2)`.
const OS_ERROR: &str = " (os error ";

/// The text in words for people.
pub(super) fn plain(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    for (theirs, ours) in WORDS {
        if text.contains(theirs) {
            text = text.replace(theirs, ours).into();
        }
    }
    for layer in LAYERS {
        if text.contains(layer) {
            text = text.replace(layer, "").into();
        }
    }
    without_os_error(&with_range(&text))
}

/// `70000 is not in 1..=65535` becomes `allowed are 1 to 65535`.
fn with_range(text: &str) -> String {
    let ranged = || {
        let (before, rest) = text.split_once(RANGE)?;
        let (from, rest) = rest.split_once("..=")?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
        let (to, after) = rest.split_at(end);
        let kept = before.rfind(' ').map_or("", |space| &before[..=space]);
        let is_number = !from.is_empty() && from.chars().all(|c| c.is_ascii_digit() || c == '-');
        (is_number && !to.is_empty()).then(|| format!("{kept}allowed are {from} to {to}{after}"))
    };
    ranged().unwrap_or_else(|| text.to_owned())
}

fn without_os_error(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OS_ERROR) {
        kept += before;
        match after.split_once(')') {
            Some((number, after)) if number.chars().all(|c| c.is_ascii_digit()) => rest = after,
            _ => {
                kept += OS_ERROR;
                rest = after;
            }
        }
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn people_are_told_what_is_allowed() {
        for (theirs, ours) in [
            ("'--n <N>': invalid digit found in string", "'--n <N>': it must be a whole number"),
            ("'--p <P>': 70000 is not in 1..=65535\n\nmore", "'--p <P>': allowed are 1 to 65535\n\nmore"),
            ("0 is not in 1..=64", "allowed are 1 to 64"),
            ("/a: No such file or directory (os error 2)", "/a: No such file or directory"),
            ("a (os error 2): b (os error 13)", "a: b"),
            (
                "the API server: ServiceError: client error (Connect): client error (Connect): tcp connect error: \
                 Connection refused (os error 111)",
                "the API server: Connection refused",
            ),
            ("a (os error x) b", "a (os error x) b"),
            ("it is not in order", "it is not in order"),
            ("x is not in a..=b", "x is not in a..=b"),
            ("", ""),
        ] {
            assert_eq!(plain(theirs), ours);
        }
    }
}
