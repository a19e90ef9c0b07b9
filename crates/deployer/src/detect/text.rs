//! What is known about a cluster, as text and JSON. Never: why something is not known.
//!
//! The forms are the Go `deployer`'s: what nobody knows is `Unknown` or empty.

use std::fmt;
use std::str::FromStr;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use super::{Answer, Cluster, Given};
use crate::platform::{Error, Platform, Version};

/// `Kubernetes:v1.36.3`; what is not known is `Unknown`, or empty if it is the version.
impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let platform = self.platform.get().map_or_else(|_| UNKNOWN.to_owned(), ToString::to_string);
        let version = self.version.get().map_or_else(|_| String::new(), ToString::to_string);
        write!(f, "{platform}:{version}")
    }
}

const UNKNOWN: &str = "Unknown";

impl Serialize for Cluster {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Cluster", 2)?;
        fields.serialize_field("platform", &Words { answer: &self.platform, unknown: UNKNOWN })?;
        fields.serialize_field("version", &Words { answer: &self.version, unknown: "" })?;
        fields.end()
    }
}

struct Words<'a, T> {
    answer: &'a Answer<T>,
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
impl FromStr for Given {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, version) = text.split_once(':').unwrap_or((text, ""));
        let platform: Platform = kind.parse()?;
        let version = if version.is_empty() { None } else { Some(version.parse::<Version>()?) };
        Ok(Self { platform: Some(platform), version })
    }
}
