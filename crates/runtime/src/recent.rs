//! The last records of something, oldest first, as a JSON array in a file. Pure.
//!
//! In: records as JSON objects, with their times; what the file says already. Out: the array, as the peers dump theirs. Never: more
//! than ten, nor a record changed that is there already.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::de::IgnoredAny;

/// How many records are kept; the peers' number.
const KEPT: usize = 10;

/// The last records, each as JSON with its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring(VecDeque<String>);

impl Ring {
    /// What [`Self::to_json`] said, to the byte; nothing of what is no such array.
    #[must_use]
    pub fn parse(json: &str) -> Self {
        let Some(mut rest) = json.strip_prefix('[') else { return Self::default() };
        let mut ring = VecDeque::new();
        while rest != "]" {
            let mut records = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            let read = records.next().is_some_and(|record| record.is_ok());
            let (record, after) = rest.split_at(if read { records.byte_offset() } else { 0 });
            if !record.starts_with('{') || ring.len() == KEPT {
                return Self::default();
            }
            ring.push_back(record.to_owned());
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        Self(ring)
    }

    /// Whether the last record is this one, whenever it was made.
    #[must_use]
    pub fn ends_with(&self, record: &str) -> bool {
        let members = record.strip_suffix('}').unwrap_or(record);
        let time =
            |last: &String| last.strip_prefix(members).map(|rest| rest.trim_start_matches(',').to_owned());
        self.0.back().and_then(time).is_some_and(|time| time.starts_with("\"recordTime\":"))
    }

    /// Adds a record, which is a JSON object; the oldest makes room. `recordTime` is in RFC 3339.
    pub fn push(&mut self, status: &str, at: Timestamp) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        let members = status.strip_suffix('}').unwrap_or(status);
        let comma = if members.len() > 1 { "," } else { "" };
        self.0.push_back(format!("{members}{comma}\"recordTime\":\"{at}\"}}"));
    }

    /// All of them as an array.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = "[".to_owned();
        for (at, status) in self.0.iter().enumerate() {
            json.push_str(if at == 0 { "" } else { "," });
            json.push_str(status);
        }
        json.push(']');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_are_kept_oldest_first() {
        let mut ring = Ring::default();
        assert_eq!(ring.to_json(), "[]");
        ring.push("{}", "2024-02-03T04:05:06Z".parse().unwrap());
        ring.push(r#"{"nodeName":"a"}"#, "2024-02-03T04:05:06.012345678Z".parse().unwrap());
        assert_eq!(
            ring.to_json(),
            r#"[{"recordTime":"2024-02-03T04:05:06Z"},{"nodeName":"a","recordTime":"2024-02-03T04:05:06.012345678Z"}]"#
        );
        for second in 0..12 {
            ring.push("{}", Timestamp::from_second(second).unwrap());
        }
        let all: Vec<serde_json::Value> = serde_json::from_str(&ring.to_json()).unwrap();
        let times: Vec<_> =
            all.iter().map(|status| status["recordTime"].as_str().unwrap().to_owned()).collect();
        let wanted: Vec<_> = (2..12).map(|second| format!("1970-01-01T00:00:{second:02}Z")).collect();
        assert_eq!(times, wanted);
    }
    #[test]
    fn what_was_written_is_read_to_the_byte() {
        let mut ring = Ring::default();
        let records = ["{}", r#"{"z":[1,{"a":"],}"}],"b":"\u003c"}"#, r#"{"nodeName":"a"}"#];
        for (second, record) in (0..).zip(records) {
            ring.push(record, Timestamp::from_second(second).unwrap());
            assert!(ring.ends_with(record), "{record}");
            assert_eq!(Ring::parse(&ring.to_json()), ring);
        }
        assert!(!ring.ends_with("{}") && !ring.ends_with(r#"{"nodeName":"b"}"#));
        (0..20).for_each(|_| ring.push(records[1], Timestamp::UNIX_EPOCH));
        assert_eq!(Ring::parse(&ring.to_json()), ring);
        let many = format!("[{}{{}}]", "{},".repeat(10));
        for broken in
            ["", "{}", "[", "[{}", "[{},", "[1]", "[{}]]", "[{}] ", "[{}\n]", "[{},]x", many.as_str()]
        {
            assert_eq!(Ring::parse(broken), Ring::default(), "{broken}");
        }
    }
}
