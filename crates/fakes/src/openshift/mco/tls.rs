//! TLS profiles as fields of a kubelet's configuration.
//!
//! In: a `tlsSecurityProfile`, `Null` where none is stated. Out: `tlsMinVersion` and `tlsCipherSuites`, by the names
//! that kubelets know. Never: a suite that kubelets refuse.

use serde_json::{Map, Value, json};

const MODERN: &str = "TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256";

/// Older suites, by OpenSSL's name and by the name that kubelets know. The first [`INTERMEDIATE`] are Intermediate's.
const SUITES: [(&str, &str); 17] = [
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
];
const INTERMEDIATE: usize = 6;

/// The fields that a profile asks for.
pub(super) fn fields(profile: &Value) -> Map<String, Value> {
    let modern = || MODERN.split(' ').map(str::to_owned);
    let older = |count: usize| SUITES.iter().take(count).map(|(_, name)| (*name).to_owned());
    let custom = &profile["custom"];
    let (version, suites): (&str, Vec<String>) = match profile["type"].as_str() {
        Some("Old") => ("VersionTLS10", modern().chain(older(SUITES.len())).collect()),
        Some("Modern") => ("VersionTLS13", modern().collect()),
        Some("Custom") => {
            let names = custom["ciphers"].as_array().into_iter().flatten().filter_map(Value::as_str);
            (custom["minTLSVersion"].as_str().unwrap_or("VersionTLS12"), names.filter_map(known).collect())
        }
        _ => ("VersionTLS12", modern().chain(older(INTERMEDIATE)).collect()),
    };
    let fields = [("tlsMinVersion", json!(version)), ("tlsCipherSuites", json!(suites))];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// The kubelets' name of a suite of a custom profile.
fn known(name: &str) -> Option<String> {
    let older =
        || SUITES.iter().find(|(theirs, ours)| *theirs == name || *ours == name).map(|(_, ours)| *ours);
    MODERN.split(' ').find(|modern| *modern == name).or_else(older).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_fields_of_kubelets() {
        let check = |profile: Value, version: &str, suites: usize| {
            let fields = fields(&profile);
            let has = fields["tlsCipherSuites"].as_array().unwrap().len();
            assert_eq!((fields["tlsMinVersion"].as_str(), has), (Some(version), suites), "{profile}");
        };
        check(Value::Null, "VersionTLS12", 9);
        check(json!({ "type": "Intermediate" }), "VersionTLS12", 9);
        check(json!({ "type": "Modern" }), "VersionTLS13", 3);
        check(json!({ "type": "Old" }), "VersionTLS10", 20);
        let custom = |ciphers: &[&str]| json!({ "type": "Custom", "custom": { "minTLSVersion": "VersionTLS11", "ciphers": ciphers } });
        let names = ["AES128-SHA", "TLS_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"];
        check(custom(&names), "VersionTLS11", 2);
    }
}
