//! How wide lines of Rust are.
//!
//! In: a file's text. Out: columns of each line, without what stands inside of text literals: a literal cannot always
//! be broken, and one with the words of another program should not be. Comments count in full.

/// What a position of the text is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Code,
    LineComment,
    /// So many comments are open.
    BlockComment(u32),
    Text,
    /// A raw text with so many `#`.
    RawText(usize),
}

/// Columns of each line.
pub(super) fn columns(text: &str) -> Vec<usize> {
    let chars: Vec<char> = text.chars().collect();
    let (mut columns, mut width, mut part, mut at) = (Vec::new(), 0, Part::Code, 0);
    while let Some(&char) = chars.get(at) {
        if char == '\n' {
            columns.push(width);
            width = 0;
            at += 1;
            if part == Part::LineComment {
                part = Part::Code;
            }
            continue;
        }
        let (next, length) = step(part, &chars[at..]);
        let is_literal = |part| matches!(part, Part::Text | Part::RawText(_));
        if !(is_literal(part) && is_literal(next)) {
            width += length;
        }
        part = next;
        at += length;
    }
    columns.push(width);
    columns
}

/// The part after the next characters, and how many those are; never across the end of a line.
fn step(part: Part, rest: &[char]) -> (Part, usize) {
    let is = |text: &str| text.chars().eq(rest.iter().copied().take(text.chars().count()));
    match part {
        Part::LineComment => (part, 1),
        Part::BlockComment(depth) if is("/*") => (Part::BlockComment(depth + 1), 2),
        Part::BlockComment(depth) if is("*/") => {
            (if depth > 1 { Part::BlockComment(depth - 1) } else { Part::Code }, 2)
        }
        Part::BlockComment(_) => (part, 1),
        Part::Text if is("\\") && rest.get(1).is_some_and(|char| *char != '\n') => (part, 2),
        Part::Text if is("\"") => (Part::Code, 1),
        Part::Text => (part, 1),
        Part::RawText(hashes) if is(&format!("\"{}", "#".repeat(hashes))) => (Part::Code, 1 + hashes),
        Part::RawText(_) => (part, 1),
        Part::Code if is("//") => (Part::LineComment, 2),
        Part::Code if is("/*") => (Part::BlockComment(1), 2),
        Part::Code if is("\"") => (Part::Text, 1),
        Part::Code if is("r\"") || is("r#") => {
            let hashes = rest[1..].iter().take_while(|char| **char == '#').count();
            let is_text = rest.get(1 + hashes) == Some(&'"');
            if is_text { (Part::RawText(hashes), 2 + hashes) } else { (part, 1) }
        }
        // Literals of a quote; a lifetime has no second quote.
        Part::Code if is("'\"'") => (part, 3),
        Part::Code if is("'\\") => (part, 3),
        Part::Code => (part, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_count_and_comments_do() {
        for (text, wanted) in [
            ("let a = 1;", vec![10]),
            ("a(\"xyz\");", vec![6]),
            ("a(\"x\\\"z\", 1);", vec![9]),
            ("r#\"a\"b\"# // c", vec![10]),
            ("'\"' + '\\'' // \"x\"", vec![17]),
            ("/* \"a\n/* */ b */ c\nd", vec![5, 12, 1]),
            ("\"a\nbcd\" + 1", vec![1, 5]),
            ("'a, \"b\"", vec![6]),
            ("for r in x {", vec![12]),
        ] {
            assert_eq!(columns(text), wanted, "{text}");
        }
    }
}
