//! Random changes of a text.

use runtime::random::Random;

/// The longest input.
const MAX_BYTES: usize = 20_000;

/// Pieces that parsers take for something special.
const PIECES: [&str; 45] = [
    "0",
    "-1",
    "1",
    "63",
    "64",
    "1023",
    "8191",
    "8192",
    "8191",
    "8192",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e309",
    "1.5",
    "NaN",
    "-",
    ",",
    "--",
    ",,",
    "0-8191",
    ":",
    "\"",
    "'",
    "{}",
    "[]",
    "null",
    "true",
    "\"\"",
    "\n",
    "\0",
    "\u{feff}",
    "ä",
    "𝒳",
    " ",
    "%",
    "Ki",
    "m",
    "n",
    "Ei",
    "&a",
    "*a",
    "---\n",
];

/// One of the texts, changed in one to eight places.
pub(super) fn mutate(random: &mut Random, corpus: &[String]) -> String {
    let mut text: Vec<u8> = pick(random, corpus).bytes().collect();
    for _ in 0..=random.below(8) {
        change(random, &mut text, corpus);
    }
    text.truncate(MAX_BYTES);
    String::from_utf8_lossy(&text).into_owned()
}

fn index(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound.max(1) as u64)).unwrap_or(0)
}

fn pick<'a>(random: &mut Random, corpus: &'a [String]) -> &'a str {
    &corpus[index(random, corpus.len())]
}

/// A range of the text: a number, a word between separators, or any.
fn range(random: &mut Random, text: &[u8]) -> std::ops::Range<usize> {
    let start = index(random, text.len());
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.' || *byte == b'/';
    let word = text[start.min(text.len())..].iter().take_while(|byte| is_word(byte)).count();
    let len = if word > 0 && random.below(2) == 0 { word } else { index(random, 12) };
    start.min(text.len())..(start + len).min(text.len())
}

fn change(random: &mut Random, text: &mut Vec<u8>, corpus: &[String]) {
    let at = range(random, text);
    match random.below(8) {
        0 => {
            if let Some(byte) = text.get_mut(at.start) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => drop(text.drain(at)),
        2 | 3 => drop(text.splice(at, PIECES[index(random, PIECES.len())].bytes())),
        4 => {
            let copy = text[at.clone()].to_vec();
            drop(text.splice(at.start..at.start, copy));
        }
        5 => {
            let other = pick(random, corpus).as_bytes();
            let piece = other[range(random, other)].to_vec();
            drop(text.splice(at, piece));
        }
        6 => {
            let line = |from: usize| {
                text[from..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |l| from + l + 1)
            };
            let (from, to) = (line(at.start), line(line(at.start).min(text.len())));
            if random.below(2) == 0 {
                drop(text.drain(from..to));
            } else {
                let copy = text[from..to].to_vec();
                drop(text.splice(from..from, copy));
            }
        }
        _ => {
            let digit = text[at.start..].iter().position(u8::is_ascii_digit).map(|offset| at.start + offset);
            if let Some(byte) = digit.and_then(|at| text.get_mut(at)) {
                *byte = b'0' + u8::try_from(random.below(10)).unwrap_or(0);
            }
        }
    }
}
