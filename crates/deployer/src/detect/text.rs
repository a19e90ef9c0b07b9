//! [`ClusterInfo`] as text and JSON, and [`PlatformSpec`] from text.
//!
//! In: answers. Out: the Go `deployer`'s forms, where an unknown platform is `Unknown` and an unknown version is empty.
//! Never: the reason of a missing answer.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::{ClusterInfo, Detection, PlatformSpec};
use crate::platform::{Error, Platform, Version};

/// `Kubernetes:v1.36.3`; an unknown platform is `Unknown`, an unknown version is empty.
impl fmt::Display for ClusterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let platform = self.platform.get().map_or_else(|_| UNKNOWN.to_owned(), ToString::to_string);
        let version = self.version.get().map_or_else(|_| String::new(), ToString::to_string);
        write!(f, "{platform}:{version}")
    }
}

const UNKNOWN: &str = "Unknown";

impl Serialize for ClusterInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [platform, version] = [self.platform.words(UNKNOWN), self.version.words("")];
        Words { platform, version }.serialize(serializer)
    }
}

#[derive(Serialize)]
struct Words {
    platform: Answer,
    version: Answer,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    auto_detected: String,
    user_supplied: String,
    discovered: String,
}

impl<T: fmt::Display> Detection<T> {
    fn words(&self, unknown: &str) -> Answer {
        let word = |value: Option<&T>| value.map_or_else(|| unknown.to_owned(), ToString::to_string);
        let found = self.get().ok();
        let (given, detected) = if matches!(self, Self::Given(_)) { (found, None) } else { (None, found) };
        Answer { auto_detected: word(detected), user_supplied: word(given), discovered: word(found) }
    }
}

/// `KIND` or `KIND:VERSION`, such as `openshift` or `kubernetes:v1.36`.
impl FromStr for PlatformSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, version) = text.split_once(':').unwrap_or((text, ""));
        let platform: Platform = kind.parse()?;
        let version = if version.is_empty() { None } else { Some(version.parse::<Version>()?) };
        Ok(Self { platform: Some(platform), version })
    }
}
