//! The last statuses of a node, oldest first. Pure.
//!
//! In: statuses as JSON, with their times. Out: a JSON array of them as the peers dump it. Never: more than ten.

use std::collections::VecDeque;

use jiff::Timestamp;

/// How many statuses are kept; the peers' number.
const KEPT: usize = 10;

/// The last statuses, each as JSON with its time.
#[derive(Debug, Default)]
pub(super) struct Ring(VecDeque<String>);

impl Ring {
    /// Adds a status, which is a JSON object; the oldest makes room. `recordTime` is in RFC 3339.
    pub(super) fn push(&mut self, status: &str, at: Timestamp) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        let members = status.strip_suffix('}').unwrap_or(status);
        let comma = if members.len() > 1 { "," } else { "" };
        self.0.push_back(format!("{members}{comma}\"recordTime\":\"{at}\"}}"));
    }

    /// All of them as an array.
    pub(super) fn to_json(&self) -> String {
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
}
