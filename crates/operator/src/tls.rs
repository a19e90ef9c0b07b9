//! OpenShift's TLS profile for servers, as flags of Go programs state it.
//!
//! In: `spec.tlsSecurityProfile` of the APIServer `cluster`. Out: a [`TlsProfile`]; a [`Policy`] for our own server.
//! Never: a suite that the profile does not have.
//!
//! Suites that Go does not know (those with finite-field Diffie-Hellman, and a few with SHA-2 and CBC) are left out.

use api::tls_profile::{self, registered};
use runtime::tls::Policy;
use serde_json::Value;

use crate::cluster_state::TlsProfile;

/// The profile of an APIServer object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The part that Go programs know.
    pub profile: TlsProfile,
    /// The names of other suites; only a custom profile has some.
    pub unknown: Vec<String>,
}

/// The profile of an APIServer object. Without a profile, or with an unknown type, it is Intermediate.
///
/// # Errors
/// When a custom profile is invalid.
pub fn requested(server: &Value) -> Result<Requested, String> {
    let profile = &server["spec"]["tlsSecurityProfile"];
    let predefined = tls_profile::TlsProfile::predefined(profile["type"].as_str());
    predefined
        .map_or_else(|| custom(&profile["custom"]), |profile| Ok(known(profile.min_version, profile.suites)))
}

/// The profile Intermediate, which is the default.
#[must_use]
pub fn intermediate() -> Requested {
    let profile = tls_profile::TlsProfile::intermediate();
    known(profile.min_version, profile.suites)
}

/// The policy of a profile for a server of our own.
///
/// # Errors
/// When no part of the profile can be offered here.
pub fn policy(profile: &TlsProfile) -> Result<Policy, runtime::tls::PolicyError> {
    Policy::parse(&profile.min_version, &profile.cipher_suites)
}

fn custom(custom: &Value) -> Result<Requested, String> {
    let invalid = |mistake: String| Err(format!("apiserver cluster, spec.tlsSecurityProfile{mistake}"));
    if !custom.is_object() {
        return invalid(": the type is Custom, but custom is missing".to_owned());
    }
    let version = match custom["minTLSVersion"].as_str() {
        None | Some("") => "VersionTLS12",
        Some(text @ ("VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13")) => text,
        Some(other) => {
            let versions = "VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13";
            return invalid(format!(".custom.minTLSVersion: {other:?} is none of {versions}"));
        }
    };
    let names = custom["ciphers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(known(version, names))
}

/// The profile with these suites, in their order and each once.
fn known<'a>(min_version: &str, names: impl IntoIterator<Item = &'a str>) -> Requested {
    let (mut suites, mut unknown): (Vec<&str>, Vec<String>) = Default::default();
    for name in names {
        match registered(name) {
            Some(suite) if !suites.contains(&suite) => suites.push(suite),
            Some(_) => {}
            None => unknown.push(name.to_owned()),
        }
    }
    // Go programs cannot choose among the suites of TLS 1.3.
    if min_version == "VersionTLS13" {
        suites.clear();
    }
    let profile = TlsProfile { min_version: min_version.to_owned(), cipher_suites: suites.join(",") };
    Requested { profile, unknown }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INTERMEDIATE_SUITES: &str = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,\
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

    fn of(profile: &Value) -> Result<Requested, String> {
        requested(&json!({ "spec": { "tlsSecurityProfile": profile } }))
    }

    #[track_caller]
    fn check(profile: &Value, min_version: &str, suites: &str, unknown: &[&str]) {
        let got = of(profile).unwrap();
        let wanted = TlsProfile { min_version: min_version.to_owned(), cipher_suites: suites.to_owned() };
        assert_eq!(got.profile, wanted, "{profile}");
        assert_eq!(got.unknown, unknown, "{profile}");
    }

    /// U025, E48.
    #[test]
    fn profiles_become_values_of_go_flags() {
        for nothing in [json!(null), json!({}), json!({ "type": "" }), json!({ "type": "Quantum" })] {
            check(&nothing, "VersionTLS12", INTERMEDIATE_SUITES, &[]);
        }
        check(
            &json!({ "type": "Intermediate", "intermediate": {} }),
            "VersionTLS12",
            INTERMEDIATE_SUITES,
            &[],
        );
        check(&json!({ "type": "Modern" }), "VersionTLS13", "", &[]);
        let old = of(&json!({ "type": "Old" })).unwrap();
        assert_eq!(old.profile.min_version, "VersionTLS10");
        assert!(old.profile.cipher_suites.starts_with(INTERMEDIATE_SUITES));
        assert!(
            old.profile.cipher_suites.ends_with("TLS_RSA_WITH_AES_256_CBC_SHA,TLS_RSA_WITH_3DES_EDE_CBC_SHA")
        );
        assert_eq!((old.profile.cipher_suites.split(',').count(), old.unknown.len()), (21, 0));
        let custom = |min: &str, ciphers: &[&str]| json!({ "type": "Custom", "custom": { "minTLSVersion": min, "ciphers": ciphers } });
        let (openssl, registered) = ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384");
        let first = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        for version in ["VersionTLS10", "VersionTLS11", "VersionTLS12"] {
            check(&custom(version, &[]), version, "", &[]);
            check(
                &custom(version, &[openssl, "DHE-RSA-AES128-GCM-SHA256", first, registered]),
                version,
                &format!("{registered},{first}"),
                &["DHE-RSA-AES128-GCM-SHA256"],
            );
        }
        check(&custom("VersionTLS13", &[openssl]), "VersionTLS13", "", &[]);
        check(&json!({ "type": "Custom", "custom": {} }), "VersionTLS12", "", &[]);
    }

    #[test]
    fn invalid_profiles_are_errors() {
        let error = of(&json!({ "type": "Custom" })).unwrap_err();
        assert!(
            error.ends_with("spec.tlsSecurityProfile: the type is Custom, but custom is missing"),
            "{error}"
        );
        let odd = json!({ "type": "Custom", "custom": { "minTLSVersion": "VersionTLS14" } });
        let error = of(&odd).unwrap_err();
        assert!(
            error.contains(".custom.minTLSVersion: \"VersionTLS14\" is none of VersionTLS10, "),
            "{error}"
        );
    }

    #[test]
    fn our_own_server_takes_every_profile() {
        for kind in ["Old", "Intermediate", "Modern"] {
            let profile = of(&json!({ "type": kind })).unwrap().profile;
            assert!(policy(&profile).is_ok(), "{kind}");
        }
    }
}
