//! A log that keeps the last ten records, oldest first, as a JSON array. Pure.
//!
//! In: records as JSON objects, each with its time; the array that an earlier process wrote. Out: the array, in the
//! form in which the peers dump their status. Never: more than ten records, or a change of a record already in the log.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::de::IgnoredAny;

/// How many records the log keeps; the peers keep as many.
const CAPACITY: usize = 10;

/// The last records, each a JSON object with its time in `recordTime`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingLog(VecDeque<String>);

impl RingLog {
    /// Reads what [`Self::to_json`] wrote, byte for byte. Any other text gives an empty log.
    #[must_use]
    pub fn parse(json: &str) -> Self {
        let Some(mut rest) = json.strip_prefix('[') else { return Self::default() };
        let mut ring = VecDeque::new();
        while rest != "]" {
            let mut records = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            let read = records.next().is_some_and(|record| record.is_ok());
            let (record, after) = rest.split_at(if read { records.byte_offset() } else { 0 });
            if !record.starts_with('{') || ring.len() == CAPACITY {
                return Self::default();
            }
            ring.push_back(record.to_owned());
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        Self(ring)
    }

    /// Whether the last record equals `record`, its time aside.
    #[must_use]
    pub fn ends_with(&self, record: &str) -> bool {
        let members = record.strip_suffix('}').unwrap_or(record);
        let time =
            |last: &String| last.strip_prefix(members).map(|rest| rest.trim_start_matches(',').to_owned());
        self.0.back().and_then(time).is_some_and(|time| time.starts_with("\"recordTime\":"))
    }

    /// Adds `record`, a JSON object, with `at` as its `recordTime` in RFC 3339. A full log drops its oldest record.
    pub fn push(&mut self, record: &str, at: Timestamp) {
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        let members = record.strip_suffix('}').unwrap_or(record);
        let comma = if members.len() > 1 { "," } else { "" };
        self.0.push_back(format!("{members}{comma}\"recordTime\":\"{at}\"}}"));
    }

    /// All records as one JSON array.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = "[".to_owned();
        for (index, record) in self.0.iter().enumerate() {
            json.push_str(if index == 0 { "" } else { "," });
            json.push_str(record);
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
        let mut ring = RingLog::default();
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
            all.iter().map(|record| record["recordTime"].as_str().unwrap().to_owned()).collect();
        let wanted: Vec<_> = (2..12).map(|second| format!("1970-01-01T00:00:{second:02}Z")).collect();
        assert_eq!(times, wanted);
    }

    #[test]
    fn parse_reads_to_json_byte_for_byte() {
        let mut ring = RingLog::default();
        let records = ["{}", r#"{"z":[1,{"a":"],}"}],"b":"\u003c"}"#, r#"{"nodeName":"a"}"#];
        for (second, record) in (0..).zip(records) {
            ring.push(record, Timestamp::from_second(second).unwrap());
            assert!(ring.ends_with(record), "{record}");
            assert_eq!(RingLog::parse(&ring.to_json()), ring);
        }
        assert!(!ring.ends_with("{}") && !ring.ends_with(r#"{"nodeName":"b"}"#));
        (0..20).for_each(|_| ring.push(records[1], Timestamp::UNIX_EPOCH));
        assert_eq!(RingLog::parse(&ring.to_json()), ring);
        let many = format!("[{}{{}}]", "{},".repeat(10));
        for broken in
            ["", "{}", "[", "[{}", "[{},", "[1]", "[{}]]", "[{}] ", "[{}\n]", "[{},]x", many.as_str()]
        {
            assert_eq!(RingLog::parse(broken), RingLog::default(), "{broken}");
        }
    }
}
