//! TLS profiles as fields of a kubelet's configuration.
//!
//! In: a `tlsSecurityProfile`, `Null` where none is stated. Out: `tlsMinVersion` and `tlsCipherSuites`, by the names
//! that kubelets know. Never: a suite that kubelets refuse.

use api::tls_profile::{TlsProfile, registered};
use serde_json::{Map, Value, json};

/// The fields that a profile asks for.
pub(super) fn fields(profile: &Value) -> Map<String, Value> {
    let custom = &profile["custom"];
    let (version, suites) = match TlsProfile::predefined(profile["type"].as_str()) {
        Some(TlsProfile { min_version, suites }) => (min_version, suites),
        None => {
            let names = custom["ciphers"].as_array().into_iter().flatten().filter_map(Value::as_str);
            (
                custom["minTLSVersion"].as_str().unwrap_or("VersionTLS12"),
                names.filter_map(registered).collect(),
            )
        }
    };
    let fields = [("tlsMinVersion", json!(version)), ("tlsCipherSuites", json!(suites))];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
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
        check(json!({ "type": "Old" }), "VersionTLS10", 21);
        let custom = |ciphers: &[&str]| json!({ "type": "Custom", "custom": { "minTLSVersion": "VersionTLS11", "ciphers": ciphers } });
        let names = ["AES128-SHA", "TLS_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"];
        check(custom(&names), "VersionTLS11", 2);
    }
}
