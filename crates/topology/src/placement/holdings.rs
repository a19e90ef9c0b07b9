//! What each container of a node holds, by ids: exclusive CPUs, zones of memory, devices by zones.
//!
//! In: containers, as hashes, with what they hold. Out: one line of text, and back. Never: two texts for the same
//! holdings, or a text that is read in part.
//!
//! # Form
//! `v1`, the key, the fingerprint, then an entry for each container, ascending by hash, all separated by one space:
//!
//! - The key says of which names hashes are: `uid` ([`ContainerHash::of_uid`]) or `name` ([`ContainerHash::of`]).
//! - The fingerprint stands for the set of containers: XXH64 (seed 0) over their whole hashes, ascending, as
//!   little-endian bytes, in 16 lower-case hex digits.
//! - An entry is `HASH=CPUS`, with `@ZONES` for memory and `+RESOURCE@ZONES*COUNT` for each kind of devices where they
//!   are not as usual. HASH is the lowest 30 bits of the container's hash, in five digits of the URL-safe base 64; CPUS
//!   is a list as the kernel writes it, ZONES are ids, ascending, joined by commas; both may be empty.
//! - As usual means: memory is in the zones of the CPUs, and all devices are close to the one zone of the CPUs.
//!
//! So a container with four CPUs of zone 0, memory and a device there is `a3Fk_=4-7`; one whose memory is in two zones
//! and that has two devices near zone 1 is `b-4Zq=8@0,1+vendor.com/nic@1*2`. Readers that know `v1` refuse all else.
//!
//! # Example
//! ```
//! use topology::cpuset::CpuSet;
//! use topology::placement::ContainerHash;
//! use topology::placement::holdings::{Holding, Holdings, HashKey};
//!
//! let container = ContainerHash::of_uid("8f3c1f0a", "main");
//! let holding = Holding { cpus: CpuSet::parse("4-7")?, ..Holding::default() };
//! let holdings = Holdings::new(HashKey::Uid, vec![(container, holding.clone())]);
//! let read = Holdings::decode(&holdings.encode())?;
//! assert_eq!(read, holdings);
//! assert_eq!(read.of(container), Some(&holding));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write as _;

use super::{ContainerHash, shorten};
use crate::cpuset::CpuSet;
use crate::fingerprint::digest;
use crate::kubelet::hint::ZoneMask;
use crate::resource::ResourceName;

/// The start of every text.
const VERSION: &str = "v1";
/// Longer texts are refused unread; 1,000 containers with CPUs are about 16 KiB.
const MAX_LEN: usize = 1 << 20;
/// The digits of hashes (RFC 4648, section 5).
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The number of digits.
const WIDTH: usize = 5;

/// Of which names hashes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashKey {
    /// A pod's UID and a container's name; an empty name stands for the pod as a whole, under pod-level managers.
    Uid,
    /// A pod's namespace and name, and a container's name.
    Name,
}

/// What one container holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Exclusive CPUs.
    pub cpus: CpuSet,
    /// The zones of its memory; `None`: those of its CPUs, or no memory is pinned on this node.
    pub memory: Option<ZoneMask>,
    /// Devices by resource and zones, ascending; empty: all are close to the one zone of its CPUs.
    pub devices: Vec<HeldDeviceGroup>,
}

/// Devices of one resource that are close to the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldDeviceGroup {
    /// The resource.
    pub resource: ResourceName,
    /// The zones that the devices are close to.
    pub zones: ZoneMask,
    /// Their number, at least 1.
    pub count: u32,
}

/// What the containers of a node hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    key: HashKey,
    fingerprint: u64,
    /// By the lowest 30 bits of the hash, ascending. Two containers may share them.
    containers: Vec<(u32, Holding)>,
}

/// Why a text is no holdings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldingsError {
    /// The text is not of this version.
    #[error("holdings {0:?}: expected \"v1\", uid or name, 16 hex digits, and entries like a3Fk_=4-7")]
    Head(String),
    /// The text is longer than the limit.
    #[error("holdings of {0} bytes; at most {MAX_LEN} are read")]
    Length(usize),
    /// An entry is malformed.
    #[error("holding {0:?}: expected HASH=CPUS, then @ZONES, then +RESOURCE@ZONES*COUNT")]
    Entry(String),
    /// Entries are not in their order, or a list is not as [`Holdings::encode`] writes it.
    #[error("holdings {0:?}: entries must be ascending, and lists canonical")]
    Order(String),
}

impl HashKey {
    /// The word in the text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uid => "uid",
            Self::Name => "name",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Uid, Self::Name].into_iter().find(|key| key.as_str() == text)
    }
}

impl Holdings {
    /// The holdings of these containers, in any order.
    #[must_use]
    pub fn new(key: HashKey, containers: Vec<(ContainerHash, Holding)>) -> Self {
        let fingerprint = fingerprint(containers.iter().map(|(hash, _)| *hash));
        let mut containers: Vec<_> =
            containers.into_iter().map(|(hash, holding)| (short(hash), holding)).collect();
        containers.sort_by_cached_key(order);
        Self { key, fingerprint, containers }
    }

    /// Of which names the hashes are.
    #[must_use]
    pub fn key(&self) -> HashKey {
        self.key
    }

    /// The number of containers that hold something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// Whether no container holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// Whether these are the containers, all of them and no others. Cost: a sort.
    #[must_use]
    pub fn are_of(&self, containers: impl IntoIterator<Item = ContainerHash>) -> bool {
        self.fingerprint == fingerprint(containers)
    }

    /// Whether all that is in the other is in this one, under the same key. Cost: log containers for each.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        let here = |(hash, holding): &(u32, Holding)| {
            let at = self.containers.partition_point(|(known, _)| known < hash);
            self.containers[at..]
                .iter()
                .take_while(|(known, _)| known == hash)
                .any(|(_, known)| known == holding)
        };
        self.key == other.key && other.containers.iter().all(here)
    }

    /// Whether several containers have this one's short hash, so that what it holds cannot be told.
    #[must_use]
    pub fn is_ambiguous(&self, container: ContainerHash) -> bool {
        let hash = short(container);
        let at = self.containers.partition_point(|(known, _)| *known < hash);
        self.containers[at..].iter().take_while(|(known, _)| *known == hash).nth(1).is_some()
    }

    /// What a container holds; `None` if it holds nothing, or another one has the same short hash. Cost: log
    /// containers.
    #[must_use]
    pub fn of(&self, container: ContainerHash) -> Option<&Holding> {
        let hash = short(container);
        let at = self.containers.partition_point(|(known, _)| *known < hash);
        match &self.containers[at..] {
            [(one, _), (other, _), ..] if *one == hash && *other == hash => None,
            [(one, holding), ..] if *one == hash => Some(holding),
            _ => None,
        }
    }

    /// What containers hold, by short hash.
    pub fn iter(&self) -> impl Iterator<Item = &Holding> {
        self.containers.iter().map(|(_, holding)| holding)
    }

    /// The text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("{VERSION} {} {:016x}", self.key.as_str(), self.fingerprint);
        for (hash, holding) in &self.containers {
            text.push(' ');
            text.extend((0..WIDTH).rev().map(|place| digit(*hash, place)));
            text.push('=');
            text.push_str(&holding.encode());
        }
        text
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When the text is not exactly one that [`Holdings::encode`] writes.
    pub fn decode(text: &str) -> Result<Self, HoldingsError> {
        if text.len() > MAX_LEN {
            return Err(HoldingsError::Length(text.len()));
        }
        let head = || HoldingsError::Head(shorten(text));
        let mut parts = text.split(' ');
        if parts.next() != Some(VERSION) {
            return Err(head());
        }
        let key = parts.next().and_then(HashKey::parse).ok_or_else(head)?;
        let fingerprint = parts.next().and_then(|hex| u64::from_str_radix(hex, 16).ok()).ok_or_else(head)?;
        let containers = parts.map(|entry| parse(entry).ok_or_else(|| HoldingsError::Entry(shorten(entry))));
        let holdings = Self { key, fingerprint, containers: containers.collect::<Result<_, _>>()? };
        // One text for the same holdings: readers may compare texts.
        let ascending = holdings.containers.is_sorted_by_key(order);
        if ascending && holdings.encode() == text {
            Ok(holdings)
        } else {
            Err(HoldingsError::Order(shorten(text)))
        }
    }
}

impl Holding {
    fn encode(&self) -> String {
        let mut text = self.cpus.to_string();
        // Writing to a string cannot fail.
        if let Some(zones) = self.memory {
            let _ = write!(text, "@{zones}");
        }
        for HeldDeviceGroup { resource, zones, count } in &self.devices {
            let _ = write!(text, "+{resource}@{zones}*{count}");
        }
        text
    }
}

/// The order of entries.
fn order((hash, holding): &(u32, Holding)) -> (u32, String) {
    (*hash, holding.encode())
}

fn short(hash: ContainerHash) -> u32 {
    // Only 30 bits are left.
    (hash.0 & ((1 << (6 * WIDTH)) - 1)) as u32
}

fn digit(hash: u32, place: usize) -> char {
    char::from(DIGITS[(hash >> (6 * place)) as usize & 63])
}

fn fingerprint(containers: impl IntoIterator<Item = ContainerHash>) -> u64 {
    let mut hashes: Vec<_> = containers.into_iter().map(|container| container.0).collect();
    hashes.sort_unstable();
    digest(hashes)
}

fn parse(entry: &str) -> Option<(u32, Holding)> {
    let (hash, rest) = entry.split_once('=')?;
    if hash.len() != WIDTH {
        return None;
    }
    let digit = |b: u8| DIGITS.iter().position(|digit| *digit == b).and_then(|at| u32::try_from(at).ok());
    let hash = hash.bytes().try_fold(0, |sum, b| Some(sum << 6 | digit(b)?))?;
    let mut parts = rest.split('+');
    let own = parts.next()?;
    let (cpus, memory) = match own.split_once('@') {
        Some((cpus, memory)) => (cpus, Some(ZoneMask::parse(memory)?)),
        None => (own, None),
    };
    let devices = parts.map(|part| {
        let (resource, rest) = part.split_once('@')?;
        let (near, count) = rest.split_once('*')?;
        let count = count.parse().ok().filter(|count| *count > 0)?;
        Some(HeldDeviceGroup {
            resource: ResourceName::new(resource).ok()?,
            zones: ZoneMask::parse(near)?,
            count,
        })
    });
    let devices: Vec<_> = devices.collect::<Option<_>>()?;
    let ascending = devices.is_sorted_by(|one, next| (one.resource, one.zones) < (next.resource, next.zones));
    ascending.then_some((hash, Holding { cpus: CpuSet::parse(cpus).ok()?, memory, devices }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn mask(ids: &[u32]) -> ZoneMask {
        ids.iter().copied().collect()
    }

    fn held(name: &str, ids: &[u32], count: u32) -> HeldDeviceGroup {
        HeldDeviceGroup { resource: ResourceName::new(name).unwrap(), zones: mask(ids), count }
    }

    #[test]
    fn the_form_is_as_documented() {
        let nic = "vendor.com/nic";
        let usual = Holding { cpus: set("4-7"), ..Holding::default() };
        let spread =
            Holding { cpus: set("8"), memory: Some(mask(&[0, 1])), devices: vec![held(nic, &[1], 2)] };
        let released = Holding { cpus: set("2"), memory: Some(ZoneMask::EMPTY), devices: vec![] };
        let only_devices =
            Holding { devices: vec![held(nic, &[], 1), held(nic, &[0, 3], 4)], ..Holding::default() };
        for (key, containers, text) in [
            // XXH64 of no bytes, as its specification has it.
            (HashKey::Uid, vec![], "v1 uid ef46db3751d8e999"),
            (HashKey::Name, vec![(5, usual.clone())], "v1 name 89be0b2dd5c2593d AAAAF=4-7"),
            (
                HashKey::Uid,
                vec![(u64::MAX, spread), (64, released), (0, only_devices)],
                "v1 uid c171fb0ee767422c AAAAA=+vendor.com/nic@*1+vendor.com/nic@0,3*4 AAABA=2@ \
                 _____=8@0,1+vendor.com/nic@1*2",
            ),
        ] {
            let containers = containers.into_iter().map(|(hash, held)| (ContainerHash(hash), held)).collect();
            let holdings = Holdings::new(key, containers);
            assert_eq!(holdings.encode(), text);
            assert_eq!(Holdings::decode(text), Ok(holdings));
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        let head = |text: &str| HoldingsError::Head(text.to_owned());
        let entry = |text: &str| HoldingsError::Entry(text.to_owned());
        let order = |text: &str| HoldingsError::Order(text.to_owned());
        let start = "v1 uid 0000000000000000";
        for (rest, error) in [
            (" ", entry("")),
            (" AAAAA", entry("AAAAA")),
            (" AAAA=1", entry("AAAA=1")),
            (" AAAA!=1", entry("AAAA!=1")),
            (" AAAAA=3-1", entry("AAAAA=3-1")),
            (" AAAAA=1@x", entry("AAAAA=1@x")),
            (" AAAAA=1@64", entry("AAAAA=1@64")),
            (" AAAAA=1@1,0", entry("AAAAA=1@1,0")),
            (" AAAAA=1+nic@0", entry("AAAAA=1+nic@0")),
            (" AAAAA=1+vendor.com/nic@0*0", entry("AAAAA=1+vendor.com/nic@0*0")),
            (" AAAAA=1+v.com/b@0*1+v.com/a@0*1", entry("AAAAA=1+v.com/b@0*1+v.com/a@0*1")),
        ] {
            assert_eq!(Holdings::decode(&format!("{start}{rest}")), Err(error), "{rest:?}");
        }
        for text in
            ["", "v2 uid 0000000000000000", "v1 pod 0000000000000000", "v1 uid", "v1 uid x", "v1  uid 0"]
        {
            assert_eq!(Holdings::decode(text), Err(head(text)), "{text:?}");
        }
        for text in
            ["v1 uid 0", "v1 uid 0000000000000000 AAAAA=1,0", "v1 uid 0000000000000000 AAAAB=1 AAAAA=1"]
        {
            assert_eq!(Holdings::decode(text), Err(order(text)), "{text:?}");
        }
        let long = "v1 ".repeat(MAX_LEN / 2);
        assert_eq!(Holdings::decode(&long), Err(HoldingsError::Length(long.len())));
    }

    #[test]
    fn containers_with_the_same_short_hash_are_told_as_unknown() {
        let holding = |cpus| Holding { cpus: set(cpus), ..Holding::default() };
        let twins = [ContainerHash(7), ContainerHash(7 + (1 << 40))];
        let all = vec![(twins[0], holding("1")), (twins[1], holding("2")), (ContainerHash(8), holding("3"))];
        let holdings = Holdings::decode(&Holdings::new(HashKey::Uid, all).encode()).unwrap();
        assert_eq!(twins.map(|twin| holdings.of(twin)), [None, None]);
        assert_eq!(holdings.of(ContainerHash(8)), Some(&holding("3")));
        assert_eq!(holdings.of(ContainerHash(9)), None);
        assert!(holdings.are_of([ContainerHash(8), twins[1], twins[0]]));
        assert!(!holdings.are_of([ContainerHash(8), twins[0], twins[0]]), "the whole hash counts");
        let fewer = vec![(twins[1], holding("2")), (ContainerHash(8), holding("3"))];
        assert!(holdings.contains(&Holdings::new(HashKey::Uid, fewer.clone())));
        assert!(!holdings.contains(&Holdings::new(HashKey::Name, fewer)));
        assert!(!holdings.contains(&Holdings::new(HashKey::Uid, vec![(twins[1], holding("3"))])));
        assert!(!Holdings::new(HashKey::Uid, vec![]).contains(&holdings));
    }

    /// 128 CPUs, four of them reserved, 110 pods with a CPU each: no list of holdings is longer on such a node.
    #[test]
    fn a_full_node_stays_within_its_budget() {
        let one = |pod: u32| {
            let hash = ContainerHash::of_uid(&format!("00000000-0000-4000-8000-{pod:012}"), "main");
            (hash, Holding { cpus: CpuSet::from_ids([pod + 18]).unwrap(), ..Holding::default() })
        };
        let text = Holdings::new(HashKey::Uid, (0..110).map(one).collect()).encode();
        assert!(text.len() <= 1_150, "{} bytes", text.len());
    }

    fn holding() -> impl Strategy<Value = Holding> {
        let zones = || proptest::collection::btree_set(0_u32..64, 0..4);
        let devices = proptest::collection::btree_map((0_usize..3, zones()), 1_u32..9, 0..3);
        let cpus = proptest::collection::btree_set(0_u32..300, 0..9);
        (cpus, proptest::option::of(zones()), devices).prop_map(|(cpus, memory, devices)| {
            let names =
                ["vendor.com/a", "vendor.com/b", "vendor.com/c"].map(|n| ResourceName::new(n).unwrap());
            let mask = |ids: std::collections::BTreeSet<u32>| ids.into_iter().collect::<ZoneMask>();
            let mut devices: Vec<_> = devices
                .into_iter()
                .map(|((name, ids), count)| HeldDeviceGroup {
                    resource: names[name],
                    zones: mask(ids),
                    count,
                })
                .collect();
            devices.sort_unstable();
            Holding { cpus: CpuSet::from_ids(cpus).unwrap(), memory: memory.map(mask), devices }
        })
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_round_trip(
            containers in proptest::collection::vec((any::<u64>(), holding()), 0..20),
            by_uid in any::<bool>(),
        ) {
            let containers = containers.into_iter().map(|(hash, held)| (ContainerHash(hash), held)).collect();
            let holdings = Holdings::new(if by_uid { HashKey::Uid } else { HashKey::Name }, containers);
            prop_assert_eq!(Holdings::decode(&holdings.encode()), Ok(holdings));
        }

        #[test]
        fn decoded_texts_are_canonical(
            text in "v1 (uid|name) [0-9a-f]{16}( [A-Za-z_-]{5}=[0-9,-]{0,5}(@[0-9,-]{0,3})?(\\+v.com/d@[0-9]\\*[0-9])?){0,3}|.*",
        ) {
            if let Ok(holdings) = Holdings::decode(&text) {
                prop_assert_eq!(holdings.encode(), text);
            }
        }
    }
}
