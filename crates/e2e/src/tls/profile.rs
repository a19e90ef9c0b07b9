//! What OpenShift's TLS profiles have.
//!
//! In: the profile of an APIServer object. Out: the oldest version and the suites, as numbers on the wire. Never: what
//! a program makes of it: this is what programs are compared with.

use anyhow::{Context as _, bail};
use api::tls_profile::{TlsProfile, registered};
use serde_json::Value;

use super::hello::{TLS10, TLS11, TLS12, TLS13};
use crate::spec::Result;

/// Numbers of suites by their registered names; the first three are those of TLS 1.3.
const SUITES: [(&str, u16); 25] = [
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", 0xc023),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", 0xc027),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", 0xc009),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", 0xc013),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", 0xc00a),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", 0xc014),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", 0x009c),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", 0x009d),
    ("TLS_RSA_WITH_AES_128_CBC_SHA256", 0x003c),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", 0x002f),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", 0x0035),
    ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", 0x000a),
    ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", 0xc012),
    ("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", 0xc007),
    ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", 0xc011),
    ("TLS_RSA_WITH_RC4_128_SHA", 0x0005),
];
const MODERN: usize = 3;

/// Versions by the names of flags and profiles.
const VERSIONS: [(&str, u16); 4] =
    [("VersionTLS10", TLS10), ("VersionTLS11", TLS11), ("VersionTLS12", TLS12), ("VersionTLS13", TLS13)];

/// What a cluster wants of TLS servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The oldest version.
    pub min_version: u16,
    /// The suites, in ascending order.
    pub suites: Vec<u16>,
}

/// The numbers of all suites that are known here.
#[must_use]
pub fn all() -> Vec<u16> {
    SUITES.iter().map(|(_, number)| *number).collect()
}

/// The number of a version.
///
/// # Errors
/// When there is none of that name.
pub fn version(name: &str) -> Result<u16> {
    let found = VERSIONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).with_context(|| format!("{name:?} is no version of TLS"))
}

/// The number of a suite by either of its names; `None`: it is not one that Go programs and we have.
fn suite(name: &str) -> Option<u16> {
    let name = registered(name)?;
    SUITES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

impl Profile {
    /// The profile that an APIServer object states; `Null` is Intermediate.
    ///
    /// # Errors
    /// When its type or version is unknown.
    pub fn of(stated: &Value) -> Result<Self> {
        let profile = match stated["type"].as_str() {
            None | Some("") => TlsProfile::intermediate(),
            Some("Custom") => return Self::custom(&stated["custom"]),
            Some(kind @ ("Old" | "Intermediate" | "Modern")) => {
                TlsProfile::predefined(Some(kind)).context("the profile's content is its own")?
            }
            Some(other) => bail!("TLS profile {other:?} is unknown"),
        };
        let suites = profile.suites.iter().filter_map(|name| suite(name));
        Ok(Self::sorted(version(profile.min_version)?, suites))
    }

    fn custom(custom: &Value) -> Result<Self> {
        let names = custom["ciphers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let oldest = custom["minTLSVersion"].as_str().filter(|name| !name.is_empty());
        Ok(Self::sorted(version(oldest.unwrap_or("VersionTLS12"))?, names.filter_map(suite)))
    }

    /// The profile that a program's flags state.
    ///
    /// # Errors
    /// When they name a version or suite that is none.
    pub fn of_flags(min_version: &str, suites: &str) -> Result<Self> {
        let names = suites.split(',').filter(|name| !name.is_empty());
        let number = |name| suite(name).with_context(|| format!("{name:?} is no suite of TLS"));
        let suites = names.map(number).collect::<Result<Vec<_>>>()?;
        Ok(Self::sorted(version(min_version)?, suites.into_iter()))
    }

    fn sorted(min_version: u16, suites: impl Iterator<Item = u16>) -> Self {
        let mut suites: Vec<u16> = suites.collect();
        suites.sort_unstable();
        suites.dedup();
        Self { min_version, suites }
    }

    /// Whether a program that is told so keeps the profile. It cannot choose among suites of TLS 1.3.
    #[must_use]
    pub fn is_kept_by(&self, told: &Self) -> bool {
        self.min_version == told.min_version && (self.min_version >= TLS13 || self.suites == told.suites)
    }

    /// Suites before TLS 1.3 that the profile does not have.
    #[must_use]
    pub fn others(&self) -> Vec<u16> {
        let older = SUITES.iter().skip(MODERN).map(|(_, number)| *number);
        older.filter(|number| !self.suites.contains(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn profiles_have_versions_and_suites() {
        let custom = json!({ "type": "Custom", "custom": {
            "minTLSVersion": "VersionTLS11", "ciphers": ["AES128-SHA", "TLS_AES_128_GCM_SHA256", "DHE-none"],
        } });
        for (stated, oldest, suites, others) in [
            (Value::Null, TLS12, 9, 16),
            (json!({ "type": "Intermediate" }), TLS12, 9, 16),
            (json!({ "type": "Modern" }), TLS13, 3, 22),
            (json!({ "type": "Old" }), TLS10, 21, 4),
            (custom, TLS11, 2, 21),
        ] {
            let profile = Profile::of(&stated).unwrap();
            let counts = (profile.min_version, profile.suites.len(), profile.others().len());
            assert_eq!(counts, (oldest, suites, others), "{stated}");
        }
        let numbers: BTreeSet<u16> = all().into_iter().collect();
        assert_eq!(numbers.len(), SUITES.len(), "each suite has a number of its own");
        assert!(SUITES.iter().all(|(name, number)| suite(name) == Some(*number)));
        assert!(Profile::of(&json!({ "type": "New" })).is_err());
        assert!(Profile::of(&json!({ "type": "Custom", "custom": { "minTLSVersion": "1.2" } })).is_err());
    }

    #[test]
    fn flags_say_what_profiles_say() {
        let modern = Profile::of(&json!({ "type": "Modern" })).unwrap();
        let suites = "TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384";
        assert_eq!(Profile::of_flags("VersionTLS13", suites).unwrap(), modern);
        assert_ne!(Profile::of_flags("VersionTLS12", suites).unwrap(), modern);
        let usual = Profile::of(&Value::Null).unwrap();
        assert!(modern.is_kept_by(&Profile::of_flags("VersionTLS13", "").unwrap()));
        assert!(!usual.is_kept_by(&Profile::of_flags("VersionTLS12", "").unwrap()));
        assert!(!usual.is_kept_by(&Profile { min_version: TLS13, ..usual.clone() }));
        assert!(Profile::of_flags("", suites).is_err());
        assert!(Profile::of_flags("VersionTLS13", "TLS_NULL").is_err());
    }
}
