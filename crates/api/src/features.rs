//! The features of this program as topics of the Go operator's test suites, which build Ginkgo label filters from them.
//!
//! In: nothing. Out: the list, typed or as JSON. Never: a topic of a feature that does not exist.

use serde::{Deserialize, Serialize};

use crate::null::null_as_default;

/// The version of the list: a semantic version, which its readers require (some builds of the Go operator leave it
/// empty).
pub const VERSION: &str = "v5.0.0";

/// The topics, in the Go operator's order, without its `mgselinuxcollect` and `preemption`, which are not implemented
/// yet.
pub const TOPICS: [&str; 24] = [
    "config",
    "nonreg",
    "hostlevel",
    "resacct",
    "cache",
    "stall",
    "schedrst",
    "rtetols",
    "overhead",
    "wlplacement",
    "unsched",
    "nonrt",
    "taint",
    "nodelabel",
    "byres",
    "tmpol",
    "schedattrwatch",
    "ngpoolname",
    "nganns",
    "metrics",
    "nrtcrdanns",
    "netpols",
    "introspection",
    "tlscompliance",
];

/// A list of topics in its JSON form. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topics {
    /// Metadata of the list.
    pub metadata: Metadata,
    /// The topics, in order.
    #[serde(deserialize_with = "null_as_default")]
    pub active: Vec<String>,
}

/// Metadata of a list of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The version of the list.
    pub version: String,
}

impl Topics {
    /// The topics of this program.
    #[must_use]
    pub fn own() -> Self {
        let metadata = Metadata { version: VERSION.to_owned() };
        Self { metadata, active: TOPICS.map(str::to_owned).into() }
    }

    /// One line of JSON, without a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Texts always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_back() {
        let own = Topics::own();
        assert_eq!(serde_json::from_str::<Topics>(&own.to_json()).unwrap(), own);
        assert!(
            own.to_json().starts_with(r#"{"metadata":{"version":"v5.0.0"},"active":["config","nonreg","#)
        );
        let mut once = own.active.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), TOPICS.len(), "a topic appears twice");
        // Semantic: v, three numbers.
        let numbers: Vec<_> = VERSION.strip_prefix('v').unwrap().split('.').map(str::parse::<u32>).collect();
        assert!(numbers.len() == 3 && numbers.iter().all(Result::is_ok), "{VERSION}");
    }

    #[test]
    fn lists_of_others_are_read() {
        for (text, active) in
            [("{}", &[][..]), (r#"{"active":null}"#, &[]), (r#"{"active":["a","b"],"more":1}"#, &["a", "b"])]
        {
            assert_eq!(serde_json::from_str::<Topics>(text).unwrap().active, active, "{text}");
        }
    }
}
