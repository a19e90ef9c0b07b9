//! Which TLS versions and cipher suites are offered, by the names Go programs and OpenShift's profiles use.
//!
//! In: the text of two settings. Out: a policy, and notes on parts of them without effect. Never: more than was
//! requested, or a version older than TLS 1.2, which the library does not have.
//!
//! As in Go, suites of TLS 1.3 cannot be chosen: all three are offered with 1.3. Suites that Go has but the library
//! lacks (those with CBC, RC4, 3DES or without forward secrecy) are accepted while others remain, so that the profiles
//! of clusters work unchanged.

use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// The suites of TLS 1.3, under the names of the standard; the library's names differ.
const TLS13_SUITES: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The suites that Go's `crypto/tls` knows and the library does not have.
const UNSUPPORTED_SUITES: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// What a listener offers; by default TLS 1.2 and 1.3 with every suite the library has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether TLS 1.2 is off.
    tls13_only: bool,
    /// The requested suites of TLS 1.2; all if empty.
    suites: Vec<CipherSuite>,
    /// Settings without effect, each a line to log.
    pub notes: Vec<String>,
}

impl Policy {
    /// Reads a minimum version (`VersionTLS10` to `VersionTLS13`) and a list of cipher suites: IANA names with commas
    /// between them. Empty texts mean the defaults; names are trimmed and empty names ignored.
    ///
    /// As in RTE, `VersionTLS13` offers 1.3 alone and ignores the suites, and suites without a version mean 1.2 and
    /// later. Unlike in RTE, `VersionTLS10` and `VersionTLS11` mean 1.2: the older versions are broken, and no scraper
    /// needs them.
    ///
    /// # Errors
    /// For an unknown name, and when no requested suite is supported.
    pub fn parse(min_version: &str, cipher_suites: &str) -> Result<Self, Error> {
        let mut policy = Self::default();
        match min_version {
            "" | "VersionTLS12" => {}
            "VersionTLS10" | "VersionTLS11" => {
                policy.notes.push(format!("tls minimum version {min_version} means VersionTLS12 here"));
            }
            "VersionTLS13" => {
                policy.tls13_only = true;
                if !cipher_suites.is_empty() {
                    policy.notes.push("tls cipher suites cannot be chosen with VersionTLS13".to_owned());
                }
                return Ok(policy);
            }
            other => return Err(Error::Version(other.to_owned())),
        }
        policy.choose(cipher_suites)?;
        Ok(policy)
    }

    fn choose(&mut self, list: &str) -> Result<(), Error> {
        let names: Vec<_> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (mut modern, mut absent) = (false, Vec::new());
        for name in &names {
            match (suite(name), TLS13_SUITES.contains(name), UNSUPPORTED_SUITES.contains(name)) {
                (Some(suite), ..) => self.suites.push(suite),
                (_, true, _) => modern = true,
                (_, _, true) => absent.push(*name),
                _ => return Err(Error::Suite((*name).to_owned())),
            }
        }
        match (self.suites.is_empty(), modern) {
            (true, false) => return Err(Error::NoSuite(names.join(","))),
            // As in Go: without a suite for 1.2, no client can use 1.2.
            (true, true) => self.tls13_only = true,
            _ => {}
        }
        if !absent.is_empty() {
            self.notes.push(format!("tls cipher suites not supported and left out: {}", absent.join(",")));
        }
        Ok(())
    }

    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        if self.tls13_only { vec![&TLS13] } else { vec![&TLS13, &TLS12] }
    }

    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| !is_tls12(suite) || self.suites.contains(&suite.suite()));
        }
        provider
    }
}

/// A suite of TLS 1.2 by its name. Kubernetes still accepts older names for two of them.
fn suite(name: &str) -> Option<CipherSuite> {
    let whole = match name.strip_suffix("_CHACHA20_POLY1305") {
        Some(_) => format!("{name}_SHA256"),
        None => name.to_owned(),
    };
    let mut suites =
        ring::ALL_CIPHER_SUITES.iter().filter(|suite| is_tls12(suite)).map(SupportedCipherSuite::suite);
    suites.find(|suite| suite.as_str() == Some(&whole))
}

/// Whether the suite is one of TLS 1.2.
fn is_tls12(suite: &SupportedCipherSuite) -> bool {
    suite.tls13().is_none()
}

/// Every name that has an effect.
fn supported() -> String {
    let tls12 = ring::ALL_CIPHER_SUITES.iter().filter(|suite| is_tls12(suite));
    let names = tls12.filter_map(|suite| suite.suite().as_str());
    TLS13_SUITES.into_iter().chain(names).collect::<Vec<_>>().join(", ")
}

/// An invalid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An unknown version.
    #[error("tls minimum version {0:?}: want VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13")]
    Version(String),
    /// An unknown suite.
    #[error("tls cipher suite {0:?} is unknown; supported are {list}", list = supported())]
    Suite(String),
    /// Known suites of which none is supported.
    #[error("tls cipher suites {0:?}: none is supported; supported are {list}", list = supported())]
    NoSuite(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECDSA: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    const RSA: &str = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
    const CHACHA: &str = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

    /// What is offered: versions, suites of 1.2 in the library's order, number of notes; or how the error begins.
    fn offered(min_version: &str, cipher_suites: &str) -> String {
        let policy = match Policy::parse(min_version, cipher_suites) {
            Ok(policy) => policy,
            Err(error) => return error.to_string().split(';').next().unwrap_or_default().to_owned(),
        };
        let all = policy.provider().cipher_suites;
        assert_eq!(
            all.iter().filter(|suite| !is_tls12(suite)).count(),
            TLS13_SUITES.len(),
            "1.3 is always whole"
        );
        let tls12: Vec<_> =
            all.iter().filter(|suite| is_tls12(suite)).filter_map(|s| s.suite().as_str()).collect();
        let tls12 = match tls12.len() {
            6 => "all".to_owned(),
            _ => tls12.join(","),
        };
        match policy.versions().len() {
            1 => format!("1.3; {} notes", policy.notes.len()),
            _ => format!("1.2 {tls12}; {} notes", policy.notes.len()),
        }
    }

    #[test]
    fn policies_are_read_as_rte_reads_them() {
        let both = format!("1.2 {ECDSA},{RSA}; 0 notes");
        let cbc = "TLS_RSA_WITH_AES_128_CBC_SHA";
        let table: &[(&str, String, &str)] = &[
            ("", String::new(), "1.2 all; 0 notes"),
            ("VersionTLS12", String::new(), "1.2 all; 0 notes"),
            ("VersionTLS12", format!("{RSA},{ECDSA}"), &both),
            ("VersionTLS12", format!(" {RSA} ,, {ECDSA}, "), &both),
            ("", format!("{ECDSA},{RSA}"), &both),
            ("", " , ".to_owned(), "1.2 all; 0 notes"),
            ("VersionTLS13", String::new(), "1.3; 0 notes"),
            ("VersionTLS13", RSA.to_owned(), "1.3; 1 notes"),
            ("VersionTLS13", "nonsense".to_owned(), "1.3; 1 notes"),
            ("VersionTLS11", RSA.to_owned(), &format!("1.2 {RSA}; 1 notes")),
            ("VersionTLS10", String::new(), "1.2 all; 1 notes"),
            ("", format!("{RSA},{cbc}"), &format!("1.2 {RSA}; 1 notes")),
            ("", format!("{RSA},TLS_AES_128_GCM_SHA256"), &format!("1.2 {RSA}; 0 notes")),
            ("VersionTLS12", "TLS_AES_128_GCM_SHA256".to_owned(), "1.3; 0 notes"),
            ("", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305".to_owned(), &format!("1.2 {CHACHA}; 0 notes")),
            ("", cbc.to_owned(), "tls cipher suites \"TLS_RSA_WITH_AES_128_CBC_SHA\": none is supported"),
            ("", format!("{RSA},TLS_NULL"), "tls cipher suite \"TLS_NULL\" is unknown"),
            (
                "",
                "TLS13_AES_128_GCM_SHA256".to_owned(),
                "tls cipher suite \"TLS13_AES_128_GCM_SHA256\" is unknown",
            ),
            (
                "VersionTLS14",
                String::new(),
                "tls minimum version \"VersionTLS14\": want VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
            ),
        ];
        for (version, suites, want) in table {
            assert_eq!(offered(version, suites), *want, "{version:?} {suites:?}");
        }
    }

    #[test]
    fn errors_list_what_is_supported() {
        let text = Policy::parse("", "x").unwrap_err().to_string();
        assert!(
            text.contains(&TLS13_SUITES.join(", ")) && text.contains(ECDSA) && !text.contains("CBC"),
            "{text}"
        );
        assert_eq!(text.matches("TLS_").count(), 9, "{text}");
    }

    #[test]
    fn names_are_in_one_list_only() {
        for name in UNSUPPORTED_SUITES {
            assert!(suite(name).is_none() && !TLS13_SUITES.contains(&name), "{name}");
        }
    }
}
