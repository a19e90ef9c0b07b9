//! The NUMA zones of each container, as text for attributes of an NRT object.
//!
//! In: containers, as hashes of their names, and their zones. Out: the peers' form, for containers that sit in one zone
//! each ([`vectors`], on numbers written in [`leb89`]); our own form, for containers over any zones ([`spread`]); what
//! containers hold by ids ([`holdings`]); and the same read back. Never: a name (readers bring the names and hash
//! them), a text that its reader would understand differently, or a panic, whatever the text.
//!
//! # Example
//! ```
//! use topology::placement::{ContainerHash, vectors};
//! use topology::zone::ZoneId;
//!
//! let first = ContainerHash::of("default", "pod-a", "c1");
//! let second = ContainerHash::of("default", "pod-b", "c1");
//! let written = vectors::encode(vec![(first, ZoneId(0)), (second, ZoneId(1))], 2)?;
//! assert_eq!(written.metadata, "npv0v001::ve=leb89::cc=2::nn=2::bn=0");
//!
//! let texts: Vec<_> = written.zones.iter().map(|(zone, text)| (*zone, text.as_str())).collect();
//! assert_eq!(vectors::decode(&written.metadata, &texts, &[first, second])?, [ZoneId(0), ZoneId(1)]);
//! # Ok::<(), topology::placement::vectors::VectorError>(())
//! ```

pub mod holdings;
pub mod leb89;
pub mod spread;
pub mod vectors;

use xxhash_rust::xxh64::Xxh64;

/// The hash of one container: XXH64 (seed 0) over namespace, NUL, pod, NUL, container, as raw bytes. The peers identify
/// containers by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerHash(pub u64);

impl ContainerHash {
    /// Hashes a container's namespace, pod and name.
    #[must_use]
    pub fn of(namespace: &str, pod: &str, container: &str) -> Self {
        Self::over(&[namespace, "\0", pod, "\0", container])
    }

    /// Hashes a pod's UID and a container's name: XXH64 (seed 0) over UID, NUL, container. No two pods share a UID.
    #[must_use]
    pub fn of_uid(uid: &str, container: &str) -> Self {
        Self::over(&[uid, "\0", container])
    }

    fn over(parts: &[&str]) -> Self {
        let mut digest = Xxh64::new(0);
        parts.iter().for_each(|part| digest.update(part.as_bytes()));
        Self(digest.digest())
    }
}

/// The start of a text, so that messages stay short whatever the input.
fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_hashes_equal_the_peers() {
        for (namespace, pod, container, hash) in [
            ("", "", "", 11_145_182_160_106_660_097),
            ("ns", "pod", "cnt", 9_468_815_510_407_277_218),
            ("ns-0", "pod-1", "container-1", 0x8549_cb51_4748_dc15),
            ("ns-0", "pod-1", "container-2", 0xecdb_2719_b5d8_52d1),
        ] {
            let found = ContainerHash::of(namespace, pod, container);
            assert_eq!(found, ContainerHash(hash), "{namespace}/{pod}/{container}");
        }
    }
}
