//! [`ClusterInfo`] as text and JSON, and [`PlatformSpec`] from text.
//!
//! In: answers. Out: the Go `deployer`'s forms, where an unknown platform is `Unknown` and an unknown version is empty.
//! Never: the reason of a missing answer.

use std::fmt;
use std::str::FromStr;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

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
        let mut fields = serializer.serialize_struct("Cluster", 2)?;
        fields.serialize_field("platform", &Words { answer: &self.platform, unknown: UNKNOWN })?;
        fields.serialize_field("version", &Words { answer: &self.version, unknown: "" })?;
        fields.end()
    }
}

struct Words<'a, T> {
    answer: &'a Detection<T>,
    unknown: &'static str,
}

impl<T: fmt::Display> Serialize for Words<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let word = |value: Option<&T>| value.map_or_else(|| self.unknown.to_owned(), ToString::to_string);
        let detected = self.answer.detected.as_ref().and_then(|detected| detected.as_ref().ok());
        let mut fields = serializer.serialize_struct("Answer", 3)?;
        fields.serialize_field("autoDetected", &word(detected))?;
        fields.serialize_field("userSupplied", &word(self.answer.given.as_ref()))?;
        fields.serialize_field("discovered", &word(self.answer.get().ok()))?;
        fields.end()
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
