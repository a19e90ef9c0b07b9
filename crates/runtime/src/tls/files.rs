//! The files of a listener: certificate, key, and the authorities of its clients.
//!
//! In: paths. Out: the parsed contents, and a digest that changes with them. Never: a key in an error, a read without
//! bound, or a wait on a path that is no plain file.

use super::{ClientAuth, Settings};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Limit for a file, above the bundle of a distribution with all its comments.
const LARGEST: u64 = 2 << 20;

/// The contents of all files at one moment, perhaps in the middle of a change. Their use shows whether they match.
pub(super) struct Contents {
    certificate: Result<Vec<u8>, Error>,
    key: Result<Vec<u8>, Error>,
    authorities: Option<Result<Vec<u8>, Error>>,
}

/// A certificate chain with its key. Without `Debug`, which would show the key.
pub(super) struct Pair {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// A file does not exist.
    #[error("{}: no such file", .0.display())]
    Missing(PathBuf),
    /// A file cannot be read, or its contents are invalid.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The certificate and the key do not match, or are of an unsupported kind.
    #[error("certificate {} and key {}: {reason}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl Contents {
    /// Reads all files. Blocks while the file system does.
    pub(super) fn read(settings: &Settings) -> Self {
        Self {
            certificate: read(&settings.certificate),
            key: read(&settings.key),
            authorities: match &settings.clients {
                Some(ClientAuth::File(path)) => Some(read(path)),
                Some(ClientAuth::System | ClientAuth::PerRequest) | None => None,
            },
        }
    }

    /// A digest of the contents.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.certificate, &self.key, &self.authorities).hash(&mut hasher);
        hasher.finish()
    }

    /// Certificate and key, if both files exist.
    pub(super) fn pair(&self, settings: &Settings) -> Result<Pair, Error> {
        let certificate = self.certificate.as_ref().map_err(Clone::clone)?;
        let key = self.key.as_ref().map_err(Clone::clone)?;
        let chain = certificates(&settings.certificate, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| wrong(&settings.key, reason(&error, "private key")))?;
        Ok(Pair { chain, key })
    }

    /// The clients' authorities, if they come from a file.
    pub(super) fn authorities(&self, settings: &Settings) -> Result<Option<RootCertStore>, Error> {
        let (Some(contents), Some(ClientAuth::File(path))) = (&self.authorities, &settings.clients) else {
            return Ok(None);
        };
        let mut store = RootCertStore::empty();
        for certificate in certificates(path, contents.as_ref().map_err(Clone::clone)?)? {
            store.add(certificate).map_err(|error| wrong(path, error))?;
        }
        Ok(Some(store))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |error: io::Error| match error.kind() {
        // A parent that is no directory means a missing file too.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Missing(path.to_owned()),
        _ => wrong(path, error),
    };
    // Checked first, because opening a pipe waits for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(wrong(path, "not a file"));
    }
    let mut contents = Vec::new();
    File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut contents)).map_err(failed)?;
    if contents.len() as u64 > LARGEST {
        return Err(wrong(path, format!("larger than {LARGEST} bytes")));
    }
    Ok(contents)
}

/// All certificates of a PEM file; at least one.
fn certificates(path: &Path, contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_slice_iter(contents).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| wrong(path, reason(&error, "certificate")))?;
    if found.is_empty() {
        return Err(wrong(path, "no certificate in PEM form"));
    }
    Ok(found)
}

fn wrong(path: &Path, reason: impl ToString) -> Error {
    Error::File { path: path.to_owned(), reason: reason.to_string() }
}

/// The reason in words of this module; the library's own texts may quote the contents.
fn reason(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => format!("{what} without its end line; half written?"),
        pem::Error::NoItemsFound => format!("no {what} in PEM form"),
        _ => "malformed PEM".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(folder: &Path) -> Settings {
        let clients = Some(ClientAuth::File(folder.join("ca.crt")));
        Settings { clients, ..Settings::new(folder.join("tls.crt"), folder.join("tls.key")) }
    }

    #[test]
    fn files_are_read_or_named() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        let half = &key[..key.len() / 2];
        // certificate, key, authorities: what is wrong with the pair, and with the authorities
        let table: &[([&str; 3], &str, &str)] = &[
            ([&certificate, &key, &certificate], "", ""),
            ([&key, &key, &key], "tls.crt: no certificate in PEM form", "ca.crt: no certificate in PEM form"),
            (
                [&certificate, half, ""],
                "tls.key: private key without its end line; half written?",
                "ca.crt: no certi",
            ),
            ([&certificate, "nonsense", &certificate], "tls.key: no private key in PEM form", ""),
            (
                ["-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "", &certificate],
                "tls.crt: malformed",
                "",
            ),
        ];
        for (contents, of_pair, of_authorities) in table {
            for (name, text) in ["tls.crt", "tls.key", "ca.crt"].iter().zip(contents) {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let read = Contents::read(&settings);
            let pair = read.pair(&settings).map(drop);
            let authorities = read.authorities(&settings).map(drop);
            for (got, want) in [(pair, of_pair), (authorities, of_authorities)] {
                let got = got.map_or_else(|error| error.to_string(), |()| String::new());
                let got =
                    got.strip_prefix(&format!("{}/", folder.path().display())).unwrap_or(&got).to_owned();
                assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{contents:?}: {got}");
            }
        }
    }

    #[test]
    fn non_files_are_refused_and_absent_paths_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(read(&at("none")), Err(Error::Missing(at("none"))));
        assert_eq!(read(&at("none/none")), Err(Error::Missing(at("none/none"))));
        std::fs::write(at("file"), "x").unwrap();
        assert_eq!(read(&at("file/none")), Err(Error::Missing(at("file/none"))));
        assert_eq!(read(folder.path()), Err(wrong(folder.path(), "not a file")));
        std::os::unix::fs::symlink(at("gone"), at("dangling")).unwrap();
        assert_eq!(read(&at("dangling")), Err(Error::Missing(at("dangling"))));
        File::create(at("huge")).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(read(&at("huge")), Err(wrong(&at("huge"), "larger than 2097152 bytes")));
    }

    #[test]
    fn digests_change_with_the_contents() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let mut seen = Vec::new();
        let mut look = || {
            let digest = Contents::read(&settings).digest();
            let new = !seen.contains(&digest);
            seen.push(digest);
            new
        };
        assert!(look() && !look());
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            std::fs::write(folder.path().join(name), "same").unwrap();
            assert!(look() && !look(), "{name}");
        }
    }
}
