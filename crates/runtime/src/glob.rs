//! Shell-style patterns as Go's `filepath.Match` reads them.
//!
//! In: a pattern and a name. Out: whether the pattern matches the whole name. Never: files, or an error: a malformed
//! pattern matches nothing.
//!
//! `*` matches any characters but `/`, `?` matches one of them. `[a-z_]` and `[^a-z_]` match one character inside or
//! outside a set. `\` takes the next character literally, also in a set. A bare `-` or `]` where a set expects a
//! character is malformed.

use std::iter::Peekable;
use std::str::Chars;

/// One part of a pattern.
enum Part {
    Star,
    Question,
    Literal(char),
    /// Ranges with both ends included; true if the set is negated.
    Set(Vec<(char, char)>, bool),
}

/// Whether `pattern` matches all of `name`.
///
/// ```
/// use runtime::glob::matches;
///
/// assert!(matches("kube-*", "kube-system"));
/// assert!(!matches("kube-*", "my-kube-system"));
/// assert!(!matches("*", "a/b"), "a slash is matched by a slash only");
/// ```
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some(parts) = parse(pattern) else { return false };
    let name: Vec<char> = name.chars().collect();
    let (mut part, mut at) = (0, 0);
    // The part and the end of the last `*`. Backtracking to the last one is enough: it can take all that an earlier
    // could.
    let mut star: Option<(usize, usize)> = None;
    loop {
        match (parts.get(part), name.get(at)) {
            (None, None) => return true,
            (Some(Part::Star), _) => {
                star = Some((part, at));
                part += 1;
                continue;
            }
            (Some(wanted), Some(&is)) if wanted.accepts(is) => {
                (part, at) = (part + 1, at + 1);
                continue;
            }
            _ => {}
        }
        match star {
            Some((of, until)) if name.get(until).is_some_and(|&is| is != '/') => {
                star = Some((of, until + 1));
                (part, at) = (of + 1, until + 1);
            }
            _ => return false,
        }
    }
}

/// Whether a pattern is well-formed. A malformed one matches nothing.
#[must_use]
pub fn is_valid(pattern: &str) -> bool {
    parse(pattern).is_some()
}

impl Part {
    fn accepts(&self, is: char) -> bool {
        match self {
            Self::Star | Self::Question => is != '/',
            Self::Literal(wanted) => is == *wanted,
            Self::Set(ranges, negated) => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&is)) != *negated
            }
        }
    }
}

fn parse(pattern: &str) -> Option<Vec<Part>> {
    let mut rest = pattern.chars().peekable();
    let mut parts = Vec::new();
    while let Some(next) = rest.next() {
        parts.push(match next {
            '*' => Part::Star,
            '?' => Part::Question,
            '[' => set(&mut rest)?,
            '\\' => Part::Literal(rest.next()?),
            other => Part::Literal(other),
        });
    }
    Some(parts)
}

/// Parses a set after its `[`, up to and with its `]`.
fn set(rest: &mut Peekable<Chars<'_>>) -> Option<Part> {
    let negated = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    while ranges.is_empty() || rest.next_if_eq(&']').is_none() {
        let low = member(rest)?;
        let high = if rest.next_if_eq(&'-').is_some() { member(rest)? } else { low };
        ranges.push((low, high));
    }
    Some(Part::Set(ranges, negated))
}

/// Parses one character of a set.
fn member(rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns() {
        let table = [
            // Literals match as a whole.
            ("", "", true),
            ("", "a", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("abc", "Abc", false),
            // Stars and question marks, which stop at a slash.
            ("*", "", true),
            ("*", "kube-system", true),
            ("kube-*", "kube-", true),
            ("kube-*", "kube", false),
            ("*-system", "kube-system", true),
            ("*-s*m", "kube-system", true),
            ("*a*ab", "aab", true),
            ("**", "a", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "\u{e4}", true),
            ("*", "a/b", false),
            ("a?b", "a/b", false),
            ("a*b", "a/b", false),
            ("*/*", "a/b", true),
            // Sets.
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[^a-c]x", "dx", true),
            ("[^a-c]x", "ax", false),
            ("[!a]", "a", true),
            ("[abc-e]", "d", true),
            ("[c-a]", "b", false),
            ("[\\]a]", "]", true),
            ("[a\\-z]", "-", true),
            ("pod-[0-9]*", "pod-7x", true),
            // Escapes.
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\bc", "abc", true),
        ];
        for (pattern, name, wanted) in table {
            assert_eq!(matches(pattern, name), wanted, "{pattern:?} on {name:?}");
            assert!(is_valid(pattern), "{pattern:?}");
        }
    }

    #[test]
    fn malformed_patterns_match_nothing() {
        for pattern in
            ["[", "[]", "[]a]", "[^]", "[a", "[a-", "[a-]", "[-a]", "[-]", "\\", "a\\", "[\\", "*[", "a[b-]*"]
        {
            assert!(!is_valid(pattern), "{pattern:?}");
            for name in ["", "a", "[", "]", "-", "\\", "ab", pattern] {
                assert!(!matches(pattern, name), "{pattern:?} on {name:?}");
            }
        }
    }

    /// The definition, exponential in time.
    fn reference(parts: &[Part], name: &[char]) -> bool {
        match (parts.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((Part::Star, parts)), rest) => {
                reference(parts, name)
                    || rest.is_some_and(|(first, name_rest)| {
                        *first != '/' && reference_from_star(parts, name_rest)
                    })
            }
            (Some((part, parts)), Some((first, name))) => part.accepts(*first) && reference(parts, name),
            (Some(_), None) => false,
        }
    }

    fn reference_from_star(parts: &[Part], name: &[char]) -> bool {
        reference(parts, name)
            || name
                .split_first()
                .is_some_and(|(first, rest)| *first != '/' && reference_from_star(parts, rest))
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in r"[ab*?/\[\]^\\-]{0,9}", name in "[ab/-]{0,9}") {
            let characters: Vec<char> = name.chars().collect();
            let wanted = parse(&pattern).is_some_and(|parts| reference(&parts, &characters));
            prop_assert_eq!(matches(&pattern, &name), wanted);
        }

        #[test]
        fn nothing_panics(pattern in any::<String>(), name in any::<String>()) {
            let _ = matches(&pattern, &name);
        }

        #[test]
        fn escaped_is_literal(name in "[a*?\\[\\]^-]{0,9}", other in "[a*?\\[\\]^-]{0,9}") {
            let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert!(matches(&escaped, &name));
            prop_assert_eq!(matches(&escaped, &other), name == other);
        }
    }
}
