//! The pod fingerprint: 64 bits that say which set of pods a report describes.
//!
//! In: namespaces and names of pods, as a multiset. Out: a [`Fingerprint`] that is the same for the same pods in any
//! order, and its text (`pfp0v001` and 16 hex digits), bit for bit that of the peers. Never: a security property, nor a
//! difference between a pod and its successor of the same name.

pub mod status;

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh64::{Xxh64, xxh64};

/// Marks a text as a fingerprint.
const PREFIX: &str = "pfp0";
/// The only version there is.
const VERSION: &str = "v001";
/// Prefix and version; below this length nothing can be said about a text.
const HEAD: usize = PREFIX.len() + VERSION.len();
/// Texts shorter than this are malformed whatever they begin with.
const MIN_LEN: usize = 16;

/// Which pods of a node enter the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// `all`: every pod the kubelet reports. What a missing method attribute means.
    #[default]
    All,
    /// `with-exclusive-resources`: only pods that hold exclusive CPUs, memory or devices.
    WithExclusiveResources,
}

impl Method {
    /// Parses the spelling used in attributes and flags, exactly.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "all" => Some(Self::All),
            "with-exclusive-resources" => Some(Self::WithExclusiveResources),
            _ => None,
        }
    }

    /// The spelling used in attributes and flags.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::WithExclusiveResources => "with-exclusive-resources",
        }
    }
}

/// The hash of one pod. Compute it once per pod and keep it: signing a set then reads no strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodHash(pub u64);

impl PodHash {
    /// Hashes a pod's namespace and name, as raw bytes.
    #[must_use]
    pub fn of(namespace: &str, name: &str) -> Self {
        Self(xxh64(name.as_bytes(), xxh64(namespace.as_bytes(), 0)))
    }
}

/// A fingerprint of version `v001`.
///
/// # Example
/// ```
/// use topology::fingerprint::Fingerprint;
///
/// let pods = [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")];
/// let fingerprint = Fingerprint::of_names(pods);
/// assert_eq!(fingerprint.to_string(), "pfp0v001b92008c14168b3a6");
/// assert_eq!(Fingerprint::of_names(pods.into_iter().rev()), fingerprint, "in any order");
/// assert_eq!(Fingerprint::parse("pfp0v001b92008c14168b3a6"), Ok(fingerprint));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

/// Why a text is not the fingerprint it is compared with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// The text is not a fingerprint.
    #[error("{0:?} is not a pod fingerprint: expected pfp0v001 and 16 lower-case hex digits")]
    Malformed(String),
    /// The text is a fingerprint of another version.
    #[error("pod fingerprint version {0:?} is not supported; expected v001")]
    IncompatibleVersion(String),
    /// The text is the fingerprint of other pods; only [`Fingerprint::check`] reports this.
    #[error("pod fingerprint is {computed}, not {expected:?}")]
    Mismatch {
        /// The fingerprint that was expected, shortened.
        expected: String,
        /// The fingerprint of these pods.
        computed: Fingerprint,
    },
}

/// Checks whether fingerprints of a version can be compared with ours: only the same version can.
///
/// # Errors
/// [`FingerprintError::Malformed`] when the text does not have the four bytes of a version,
/// [`FingerprintError::IncompatibleVersion`] when it is another version.
pub fn check_version(version: &str) -> Result<(), FingerprintError> {
    if version.len() != VERSION.len() {
        return Err(FingerprintError::Malformed(shorten(version)));
    }
    if version != VERSION {
        return Err(FingerprintError::IncompatibleVersion(version.to_owned()));
    }
    Ok(())
}

/// XXH64 (seed 0) over hashes in their order, as little-endian bytes.
pub(crate) fn digest(hashes: impl IntoIterator<Item = u64>) -> u64 {
    let mut digest = Xxh64::new(0);
    hashes.into_iter().for_each(|hash| digest.update(&hash.to_le_bytes()));
    digest.digest()
}

impl Fingerprint {
    /// Signs a multiset of pods: a pod that is listed twice counts twice. Sorts `pods` in place and allocates nothing,
    /// so a scheduler can try many subsets. Cost: a sort, then 8 bytes hashed per pod.
    #[must_use]
    pub fn of(pods: &mut [PodHash]) -> Self {
        pods.sort_unstable();
        Self(digest(pods.iter().map(|pod| pod.0)))
    }

    /// Signs pods given as (namespace, name). Allocates; cost: as [`Fingerprint::of`], and a hash per name.
    #[must_use]
    pub fn of_names<'a>(pods: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut hashes: Vec<_> =
            pods.into_iter().map(|(namespace, name)| PodHash::of(namespace, name)).collect();
        Self::of(&mut hashes)
    }

    /// Reads the text form. Checks go in the peers' order: length, prefix, version, digits. (They compare the digits as
    /// text, so upper-case ones never match there; here such a text is malformed.)
    ///
    /// # Errors
    /// [`FingerprintError`] tells a malformed text from another version.
    pub fn parse(text: &str) -> Result<Self, FingerprintError> {
        let malformed = || FingerprintError::Malformed(shorten(text));
        let digits = digits(text)?;
        let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 16 || !digits.bytes().all(is_digit) {
            return Err(malformed());
        }
        u64::from_str_radix(digits, 16).map(Self).map_err(|_| malformed())
    }

    /// Compares with an expected fingerprint, as text, in the peers' order: length, prefix, version, digits. (So a text
    /// with upper-case or too few digits is a mismatch here, while [`Self::parse`] calls it malformed.)
    ///
    /// # Errors
    /// [`FingerprintError`]; of its kinds, only a mismatch is expected in normal operation.
    pub fn check(self, expected: &str) -> Result<(), FingerprintError> {
        if digits(expected)? == format!("{:016x}", self.0) {
            return Ok(());
        }
        Err(FingerprintError::Mismatch { expected: shorten(expected), computed: self })
    }
}

/// The text after prefix and version.
fn digits(text: &str) -> Result<&str, FingerprintError> {
    let malformed = || FingerprintError::Malformed(shorten(text));
    if text.len() < MIN_LEN || !text.starts_with(PREFIX) {
        return Err(malformed());
    }
    check_version(text.get(PREFIX.len()..HEAD).ok_or_else(malformed)?)?;
    text.get(HEAD..).ok_or_else(malformed)
}

/// The start of a text, so that messages stay short whatever the input.
fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{VERSION}{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests;
