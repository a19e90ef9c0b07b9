//! TLS for what a process serves.
//!
//! In: files of a certificate and a key, and a profile. Out: types that say so; the listener follows.

use std::path::PathBuf;

/// What a TLS listener needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}
