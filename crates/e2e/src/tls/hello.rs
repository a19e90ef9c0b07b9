//! A client's first message of TLS, and what the server says to it.
//!
//! In: versions and suites. Out: the bytes of a ClientHello; the version and suite of the ServerHello, or the alert.
//! Never: a secret, or a library's opinion on which versions exist: old ones are what servers must refuse.
//!
//! Layouts: RFC 8446, section 4; the older ones are the same up to the extensions.

use anyhow::Context as _;

/// Versions as they are on the wire.
pub const TLS10: u16 = 0x0301;
/// TLS 1.1.
pub const TLS11: u16 = 0x0302;
/// TLS 1.2.
pub const TLS12: u16 = 0x0303;
/// TLS 1.3.
pub const TLS13: u16 = 0x0304;
/// Bytes before the body of a record: kind, version, length.
pub const RECORD_HEADER: usize = 5;

const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const SUPPORTED_VERSIONS: u16 = 43;
/// X25519, which all servers have, and two curves besides.
const GROUPS: [u16; 3] = [0x001d, 0x0017, 0x0018];
/// ECDSA, RSA-PSS, RSA and Ed25519, with old hashes for old versions.
const SIGNATURES: [u16; 11] =
    [0x0403, 0x0503, 0x0603, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601, 0x0203, 0x0201];

/// A client's first message.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'a> {
    /// The versions that the client has, best first.
    pub versions: &'a [u16],
    /// The suites that it has.
    pub suites: &'a [u16],
}

/// The server's first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on with these.
    Chosen {
        /// The version.
        version: u16,
        /// The suite.
        suite: u16,
    },
    /// It does not.
    Refused {
        /// The number of the alert.
        alert: u8,
    },
}

/// The length of a record's body.
#[must_use]
pub fn length(header: [u8; RECORD_HEADER]) -> usize {
    usize::from(u16::from_be_bytes([header[3], header[4]]))
}

/// Versions in words.
#[must_use]
pub fn names(versions: &[u16]) -> String {
    let name = |version: &u16| format!("1.{}", version.saturating_sub(TLS10));
    versions.iter().map(name).collect::<Vec<_>>().join(" and ")
}

impl ClientHello<'_> {
    /// The record.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let newest = self.versions.iter().copied().max().unwrap_or(TLS12);
        let mut body = newest.min(TLS12).to_be_bytes().to_vec();
        // Nothing is encrypted, so nothing has to be random.
        body.extend([7; 32]);
        // No session, the suites, no compression.
        body.push(0);
        body.extend(sized(&words(self.suites)));
        body.extend([1, 0]);
        body.extend(sized(&self.extensions(newest)));
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend(sized(&body));
        let mut record = vec![HANDSHAKE];
        record.extend(TLS10.to_be_bytes());
        record.extend(sized(&message));
        record
    }

    fn extensions(&self, newest: u16) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |number: u16, content: &[u8]| {
            all.extend(number.to_be_bytes());
            all.extend(sized(content));
        };
        add(10, &sized(&words(&GROUPS)));
        // Points are not compressed.
        add(11, &[1, 0]);
        add(13, &sized(&words(&SIGNATURES)));
        // The keys of a session depend on its handshake.
        add(23, &[]);
        if newest >= TLS13 {
            let versions = words(self.versions);
            let count = u8::try_from(versions.len()).unwrap_or(u8::MAX);
            add(SUPPORTED_VERSIONS, &[&[count][..], &versions].concat());
            // The base point of the curve is a public key as good as any.
            let mut key = [0; 32];
            key[0] = 9;
            let share = [&GROUPS[0].to_be_bytes()[..], &sized(&key)].concat();
            add(51, &sized(&share));
        }
        all
    }
}

impl Answer {
    /// The answer in the server's first record.
    ///
    /// # Errors
    /// When it is no TLS.
    pub fn parse(header: [u8; RECORD_HEADER], body: &[u8]) -> anyhow::Result<Self> {
        match (header[0], body) {
            (ALERT, [_, alert, ..]) => Ok(Self::Refused { alert: *alert }),
            (HANDSHAKE, [SERVER_HELLO, _, _, _, hello @ ..]) => {
                Self::chosen(hello).context("the server's hello is cut short")
            }
            _ => anyhow::bail!("the answer is no TLS: record {header:?}"),
        }
    }

    fn chosen(hello: &[u8]) -> Option<Self> {
        let mut rest = Reader(hello);
        let legacy = rest.word()?;
        rest.take(32)?;
        let session = usize::from(*rest.take(1)?.first()?);
        rest.take(session)?;
        let suite = rest.word()?;
        rest.take(1)?;
        let mut version = legacy;
        // Old servers send no extensions.
        let mut extensions = Reader(rest.word().map_or(Some(&[][..]), |length| rest.take(length.into()))?);
        while let Some(number) = extensions.word() {
            let length = extensions.word()?;
            let mut content = Reader(extensions.take(length.into())?);
            if number == SUPPORTED_VERSIONS {
                version = content.word()?;
            }
        }
        Some(Self::Chosen { version, suite })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The content after its length in two bytes. All of it is shorter than 64 KiB.
fn sized(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], content].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::crypto::ring;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::server::ServerConnection;
    use rustls::version::{TLS12 as LIB12, TLS13 as LIB13};
    use rustls::{ServerConfig, SupportedProtocolVersion};

    use super::*;
    use crate::tls::profile;

    /// What a real server says.
    fn answer(
        server: &[&'static SupportedProtocolVersion],
        suites: &[u16],
        hello: &ClientHello<'_>,
    ) -> Answer {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| suites.is_empty() || suites.contains(&suite.suite().into()));
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(server)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        connection.read_tls(&mut &*hello.bytes()).unwrap();
        let _ = connection.process_new_packets();
        let mut said = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut said).unwrap();
        }
        let header: [u8; RECORD_HEADER] = said[..RECORD_HEADER].try_into().unwrap();
        Answer::parse(header, &said[RECORD_HEADER..][..length(header)]).unwrap()
    }

    #[test]
    fn a_server_chooses_among_what_is_offered_or_refuses() {
        const GCM256: u16 = 0xc02c;
        const CHACHA: u16 = 0xcca9;
        let all = profile::all();
        let chosen = |version, suite| Answer::Chosen { version, suite };
        let (both, new): (&[_], &[_]) = (&[&LIB13, &LIB12], &[&LIB13]);
        let refused = |answer: Answer| matches!(answer, Answer::Refused { .. });
        let ask =
            |server: &[&'static SupportedProtocolVersion], has: &[u16], versions: &[u16], suites: &[u16]| {
                answer(server, has, &ClientHello { versions, suites })
            };
        assert_eq!(ask(both, &[0x1301, CHACHA], &[TLS13, TLS12], &all), chosen(TLS13, 0x1301));
        assert_eq!(ask(both, &[0x1301, CHACHA], &[TLS12], &all), chosen(TLS12, CHACHA));
        assert_eq!(ask(both, &[], &[TLS12], &[GCM256]), chosen(TLS12, GCM256));
        assert_eq!(ask(new, &[], &[TLS13], &[0x1302]), chosen(TLS13, 0x1302));
        // protocol_version and handshake_failure
        assert_eq!(ask(both, &[], &[TLS11], &all), Answer::Refused { alert: 70 });
        assert_eq!(ask(new, &[], &[TLS12], &all), Answer::Refused { alert: 70 });
        assert!(refused(ask(both, &[CHACHA], &[TLS12], &[GCM256])));
        assert!(refused(ask(both, &[], &[TLS12], &[0xc013, 0x002f])));
    }

    #[test]
    fn what_is_no_tls_is_an_error() {
        for (header, body) in [
            (*b"HTTP/", &b"1.1 400 Bad Request"[..]),
            ([HANDSHAKE, 3, 3, 0, 4], &[SERVER_HELLO, 0, 0, 9][..]),
            ([HANDSHAKE, 3, 3, 0, 4], &[CLIENT_HELLO, 0, 0, 9][..]),
            ([ALERT, 3, 3, 0, 0], &[][..]),
        ] {
            assert!(Answer::parse(header, body).is_err(), "{header:?}");
        }
    }
}
