//! Whole numbers as Go's `strconv.ParseInt` reads them with base 0.
//!
//! In: text. Out: a signed number of 64 bits, or one of Go's two error texts. Never: white space, fractions or
//! exponents.

const SYNTAX: &str = "parse error";
const RANGE: &str = "value out of range";

/// Reads an optional sign, an optional prefix (`0x`, `0o`, `0b`, or a bare `0` for octal) and digits, which single
/// underscores may separate from each other and from the prefix.
///
/// # Errors
/// `parse error` or `value out of range`, as Go's flag parser says it.
pub fn parse_int(text: &str) -> Result<i64, &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let bytes = unsigned.as_bytes();
    let (base, skip) = match bytes {
        [] => return Err(SYNTAX),
        [b'0', b'b' | b'B', _, ..] => (2, 2),
        [b'0', b'o' | b'O', _, ..] => (8, 2),
        [b'0', b'x' | b'X', _, ..] => (16, 2),
        [b'0', ..] => (8, 1),
        _ => (10, 0),
    };
    let mut magnitude = 0_u64;
    // An underscore may follow a digit or a prefix, but not a sign.
    let mut after_digit = skip > 0;
    for &byte in &bytes[skip..] {
        if byte == b'_' {
            if !after_digit {
                return Err(SYNTAX);
            }
            after_digit = false;
            continue;
        }
        let digit = char::from(byte).to_digit(base).ok_or(SYNTAX)?;
        after_digit = true;
        let more = magnitude.checked_mul(base.into()).and_then(|more| more.checked_add(digit.into()));
        magnitude = more.ok_or(RANGE)?;
    }
    if !after_digit {
        return Err(SYNTAX);
    }
    let value = if text.starts_with('-') { -i128::from(magnitude) } else { magnitude.into() };
    i64::try_from(value).map_err(|_| RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        let table = [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("+12", Ok(12)),
            ("-12", Ok(-12)),
            ("0x10", Ok(16)),
            ("-0XfF", Ok(-255)),
            ("0b101", Ok(5)),
            ("0o17", Ok(15)),
            ("017", Ok(15)),
            ("1_000", Ok(1000)),
            ("0x_f", Ok(15)),
            ("0_7", Ok(7)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(RANGE)),
            ("-9223372036854775809", Err(RANGE)),
            ("99999999999999999999", Err(RANGE)),
        ];
        for (text, want) in table {
            assert_eq!(parse_int(text), want, "{text:?}");
        }
        let wrong = [
            "", "-", "+-1", "_1", "1_", "1__0", "0x", "0x_", "08", "0b2", "0_", "1.5", "1e3", " 1", "ten",
            "１",
        ];
        for text in wrong {
            assert_eq!(parse_int(text), Err(SYNTAX), "{text:?}");
        }
    }
}
