//! LEB89: whole numbers in 89 printable characters, as the peers' placement vectors write them.
//!
//! In: a number, or a text. Out: the other. Never: a character that JSON, XML or a shell would have to escape; a
//! wrapped number; a panic on any text.
//!
//! The alphabet is `!` to `~` without `"`, `&`, `<`, `>` and `\`. Its first 64 characters end a number, the other 25
//! continue one. A number below 64 is one ending character. For any other number 64 is subtracted first: the rest
//! modulo 64 is the ending character, and the quotient stands before it in base 25, most significant digit first.
//!
//! # Example
//! ```
//! use topology::placement::leb89::{read, write};
//!
//! let mut text = String::new();
//! [42, 64, 1663].into_iter().for_each(|number| write(&mut text, number));
//! assert_eq!(text, "Of!~e");
//! assert_eq!(read(&text).collect::<Result<Vec<_>, _>>(), Ok(vec![42, 64, 1663]));
//! ```

/// The number of characters that end a number.
const ENDS: u32 = 64;
/// The number of characters that continue a number.
const CONTINUES: u32 = 25;
/// Characters left out of the printable range, ascending.
const LEFT_OUT: [u8; 5] = [b'"', b'&', b'<', b'>', b'\\'];

/// A text that is not a sequence of numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Leb89Error {
    /// A byte that is not in the alphabet.
    #[error("byte {byte:#04x} at {at} is not one of ! to ~ without \" & < > \\")]
    Byte {
        /// The byte.
        byte: u8,
        /// The byte's position in the text.
        at: usize,
    },
    /// The text ends inside a number.
    #[error("the text ends inside a number")]
    Cut,
    /// A number beyond 32 bits.
    #[error("the number that ends at {at} has more than 32 bits")]
    TooLarge {
        /// The position of its last byte.
        at: usize,
    },
}

/// Appends a number to a text.
pub fn write(text: &mut String, value: u32) {
    let Some(rest) = value.checked_sub(ENDS) else { return text.push(symbol(value)) };
    let (mut quotient, mut digits) = (rest / ENDS, [0; 8]);
    let mut count = 0;
    for digit in &mut digits {
        *digit = quotient % CONTINUES;
        quotient /= CONTINUES;
        count += 1;
        if quotient == 0 {
            break;
        }
    }
    for digit in digits[..count].iter().rev() {
        text.push(symbol(ENDS + digit));
    }
    text.push(symbol(rest % ENDS));
}

/// The numbers of a text, one by one; ends after the first error. Accepts needless leading zeros, as the peers' decoder
/// does.
pub fn read(text: &str) -> impl Iterator<Item = Result<u32, Leb89Error>> {
    let mut bytes = text.bytes().enumerate();
    let mut broken = false;
    std::iter::from_fn(move || {
        let number = if broken { None } else { next(&mut bytes) };
        broken = matches!(number, Some(Err(_)));
        number
    })
}

fn next(bytes: &mut impl Iterator<Item = (usize, u8)>) -> Option<Result<u32, Leb89Error>> {
    let mut quotient: Option<u32> = None;
    for (at, byte) in bytes {
        let Some(index) = index(byte) else { return Some(Err(Leb89Error::Byte { byte, at })) };
        let larger = |value: u32, base: u32, digit: u32| {
            value.checked_mul(base).and_then(|n| n.checked_add(digit)).ok_or(Leb89Error::TooLarge { at })
        };
        let step = match (index.checked_sub(ENDS), quotient) {
            (None, None) => return Some(Ok(index)),
            (None, Some(quotient)) => {
                return Some(larger(quotient, ENDS, index).and_then(|n| larger(n, 1, ENDS)));
            }
            (Some(digit), quotient) => larger(quotient.unwrap_or(0), CONTINUES, digit),
        };
        match step {
            Ok(value) => quotient = Some(value),
            Err(error) => return Some(Err(error)),
        }
    }
    quotient.map(|_| Err(Leb89Error::Cut))
}

/// The character of an index below 89.
fn symbol(index: u32) -> char {
    let mut byte = b'!' + index as u8;
    for gap in LEFT_OUT {
        byte += u8::from(byte >= gap);
    }
    char::from(byte)
}

/// The index of a character.
fn index(byte: u8) -> Option<u32> {
    if !byte.is_ascii_graphic() || LEFT_OUT.contains(&byte) {
        return None;
    }
    let before = LEFT_OUT.iter().filter(|gap| **gap < byte).count();
    Some(u32::from(byte - b'!') - before as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: u32) -> String {
        let mut text = String::new();
        write(&mut text, value);
        text
    }

    #[test]
    fn numbers_are_written_as_the_peers_do() {
        for (value, text) in [
            (0, "!"),
            (1, "#"),
            (63, "e"),
            (64, "f!"),
            (65, "f#"),
            (127, "fe"),
            (128, "g!"),
            (1663, "~e"),
            (1664, "gf!"),
            (40_063, "~~e"),
            (40_064, "gff!"),
        ] {
            assert_eq!(written(value), text);
            assert_eq!(read(text).collect::<Vec<_>>(), [Ok(value)], "{text}");
        }
    }

    #[test]
    fn the_alphabet_has_89_characters_and_maps_both_ways() {
        let alphabet: String = (0..ENDS + CONTINUES).map(symbol).collect();
        assert_eq!(alphabet.len(), 89);
        assert!(alphabet.starts_with("!#$%'()*") && alphabet.ends_with("yz{|}~"), "{alphabet}");
        for byte in 0..=u8::MAX {
            assert_eq!(
                index(byte),
                alphabet.bytes().position(|b| b == byte).map(|at| at as u32),
                "{byte:#x}"
            );
        }
    }

    #[test]
    fn malformed_texts_report_the_position() {
        for (text, error) in [
            ("!\"", Leb89Error::Byte { byte: b'"', at: 1 }),
            ("f ", Leb89Error::Byte { byte: b' ', at: 1 }),
            ("\u{e9}", Leb89Error::Byte { byte: 0xc3, at: 0 }),
            ("f", Leb89Error::Cut),
            ("!gg", Leb89Error::Cut),
            ("~~~~~~~", Leb89Error::TooLarge { at: 6 }),
            ("~~~~~~e", Leb89Error::TooLarge { at: 6 }),
        ] {
            assert_eq!(read(text).last(), Some(Err(error)), "{text}");
        }
        assert_eq!(read("").count(), 0);
        assert_eq!(read("ff!").collect::<Vec<_>>(), [Ok(64)]);
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_round_trip(values in proptest::collection::vec(any::<u32>(), 0..8)) {
            let mut text = String::new();
            values.iter().for_each(|value| write(&mut text, *value));
            prop_assert_eq!(read(&text).collect::<Result<Vec<_>, _>>(), Ok(values));
        }

        #[test]
        fn any_text_yields_numbers_then_at_most_one_error(text in any::<String>(), ascii in "[!-~]{0,24}") {
            for text in [text, ascii] {
                let numbers: Vec<_> = read(&text).collect();
                prop_assert!(numbers.len() <= text.len());
                prop_assert!(numbers.iter().rev().skip(1).all(Result::is_ok));
            }
        }
    }
}
