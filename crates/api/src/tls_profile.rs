//! OpenShift's TLS profiles (`config.openshift.io`), as far as Go programs know their suites.
//!
//! In: a type of profile, names of suites. Out: versions and registered names, as flags of Go programs state them.
//! Never: a suite with finite-field Diffie-Hellman, or another that Go does not have.
//!
//! The profiles are those of OpenShift's API, which has them from Mozilla.

/// The suites of TLS 1.3.
const MODERN: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Older suites that Go knows, by OpenSSL's name and by the registered name.
const SUITES: [(&str, &str); 22] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
    ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    ("ECDHE-RSA-DES-CBC3-SHA", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    ("ECDHE-ECDSA-RC4-SHA", "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"),
    ("ECDHE-RSA-RC4-SHA", "TLS_ECDHE_RSA_WITH_RC4_128_SHA"),
    ("RC4-SHA", "TLS_RSA_WITH_RC4_128_SHA"),
];
/// The first of [`SUITES`] that the profile Intermediate has.
const INTERMEDIATE: usize = 6;
/// The first of [`SUITES`] that the profile Old has.
const OLD: usize = 18;

/// A profile whose content its type says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsProfile {
    /// The lowest version, as `VersionTLS12`.
    pub min_version: &'static str,
    /// The registered names of the suites, in the profile's order.
    pub suites: Vec<&'static str>,
}

impl TlsProfile {
    /// The profile of a type; Intermediate, which is the default, for none and for unknown ones. `None` for `Custom`,
    /// whose content is in the object.
    #[must_use]
    pub fn predefined(kind: Option<&str>) -> Option<Self> {
        match kind {
            Some("Custom") => None,
            Some("Old") => Some(Self::with_older("VersionTLS10", OLD)),
            Some("Modern") => Some(Self::with_older("VersionTLS13", 0)),
            _ => Some(Self::intermediate()),
        }
    }

    /// The profile Intermediate.
    #[must_use]
    pub fn intermediate() -> Self {
        Self::with_older("VersionTLS12", INTERMEDIATE)
    }

    /// The suites of TLS 1.3, and the first `count` older ones.
    fn with_older(min_version: &'static str, count: usize) -> Self {
        let older = SUITES.iter().take(count).map(|(_, registered)| *registered);
        Self { min_version, suites: MODERN.into_iter().chain(older).collect() }
    }
}

/// The registered name of a suite that Go knows, by OpenSSL's name or by its own.
#[must_use]
pub fn registered(name: &str) -> Option<&'static str> {
    let older = SUITES.iter().find(|(openssl, registered)| *openssl == name || *registered == name);
    MODERN.into_iter().find(|modern| *modern == name).or(older.map(|(_, registered)| *registered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_the_suites_that_go_knows() {
        for (kind, version, count) in [
            (Some("Old"), "VersionTLS10", 21),
            (Some("Intermediate"), "VersionTLS12", 9),
            (Some("Modern"), "VersionTLS13", 3),
            (Some("Quantum"), "VersionTLS12", 9),
            (None, "VersionTLS12", 9),
        ] {
            let profile = TlsProfile::predefined(kind).unwrap();
            assert_eq!((profile.min_version, profile.suites.len()), (version, count), "{kind:?}");
            assert!(profile.suites.iter().all(|name| registered(name) == Some(name)), "{kind:?}");
        }
        assert_eq!(TlsProfile::predefined(Some("Custom")), None);
        assert_eq!(registered("AES128-SHA"), Some("TLS_RSA_WITH_AES_128_CBC_SHA"));
        assert_eq!(registered("DHE-RSA-AES128-GCM-SHA256"), None);
    }
}
