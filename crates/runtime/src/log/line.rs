//! One event, one line of bounded length, whatever strangers have put into it.
//!
//! In: the bytes of an event, as a formatter made them. Out: the same on standard error. Never: a line break or a NUL
//! inside an event, which could pass for another line; half of a JSON object.

use std::io::{self, Write};

use serde_json::Value;

use super::Format;
use crate::output::shortened;

/// The longest line, in bytes. A line may have more when all of its many fields are short.
const LIMIT_BYTES: usize = 8 << 10;

/// Standard error, line by line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines(pub(super) Format);

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(&line(event, self.0))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The line of an event. Costs a look at each byte; only an event that is changed is copied more than once.
fn line(event: &[u8], format: Format) -> Vec<u8> {
    let body = event.strip_suffix(b"\n").unwrap_or(event);
    let mut line = match format {
        Format::Json if body.len() > LIMIT_BYTES => json(body),
        // JSON escapes control characters by itself.
        Format::Json => body.to_vec(),
        Format::Text => text(body),
    };
    line.push(b'\n');
    line
}

fn text(body: &[u8]) -> Vec<u8> {
    // Escape stays: the formatter writes colours with it, and escapes those of others.
    let acts = |byte: &u8| *byte < b' ' && *byte != b'\t' && *byte != 0x1b || *byte == 0x7f;
    if body.len() <= LIMIT_BYTES && !body.iter().any(acts) {
        return body.to_vec();
    }
    let text = String::from_utf8_lossy(body).replace('\n', "\\n");
    let text: String =
        text.chars().map(|c| if c.is_ascii() && acts(&(c as u8)) { '\u{fffd}' } else { c }).collect();
    shortened(&text, LIMIT_BYTES).into_owned().into_bytes()
}

/// The same object with shorter strings.
fn json(body: &[u8]) -> Vec<u8> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(body) else { return body.to_vec() };
    for value in fields.values_mut() {
        if let Value::String(text) = value {
            *text = shortened(text, LIMIT_BYTES / 4).into_owned();
        }
    }
    Value::Object(fields).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_short_line() {
        let check = |format, event: &str, wanted: &str| {
            assert_eq!(String::from_utf8(line(event.as_bytes(), format)).unwrap(), wanted, "{event:?}");
        };
        check(Format::Text, "INFO a b=1\n", "INFO a b=1\n");
        check(Format::Text, "\u{1b}[32mINFO\u{1b}[0m ü\t1\n", "\u{1b}[32mINFO\u{1b}[0m ü\t1\n");
        check(Format::Text, "WARN a\nERROR forged\n", "WARN a\\nERROR forged\n");
        check(Format::Text, "a\0b\rc\u{7f}\n", "a\u{fffd}b\u{fffd}c\u{fffd}\n");
        check(Format::Json, "{\"a\":1}\n", "{\"a\":1}\n");
        let long = "ü".repeat(100_000);
        let text = line(format!("WARN {long} end\n").as_bytes(), Format::Text);
        assert!(text.len() < LIMIT_BYTES + 100 && text.ends_with(b"end\n") && text.starts_with(b"WARN "));
        let json = line(format!("{{\"level\":\"WARN\",\"reason\":\"{long}\"}}\n").as_bytes(), Format::Json);
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["level"], "WARN");
        assert!(json["reason"].as_str().unwrap().len() < LIMIT_BYTES);
    }
}
