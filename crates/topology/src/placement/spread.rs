//! Our own form for containers that sit in several zones at once, which the peers' form cannot express.
//!
//! In: containers with the exclusive CPUs they have in each of their zones. Out: one line of text, and back. Never: two
//! texts for the same placements, or a text that is read in part.
//!
//! # Form
//! `v1`, then for each container, ascending by hash, a space and `HASH=ZONE:CPUS+ZONE:CPUS..`: the hash
//! ([`ContainerHash`]) in 16 lower-case hex digits, its zones, ascending, and the number of exclusive CPUs in each, in
//! decimal (0 where the container has only memory or devices): `v1 029ec313dc36ba9c=0:4+1:4 3a90e1ffc72f1ae6=0:2+1:0`.
//! Readers that know `v1` refuse everything else.
//!
//! # Example
//! ```
//! use topology::placement::ContainerHash;
//! use topology::placement::spread::{Spread, decode, encode};
//! use topology::zone::ZoneId;
//!
//! let zones = vec![(ZoneId(0), 4), (ZoneId(1), 12)];
//! let placements = vec![Spread { container: ContainerHash(0x29e), zones }];
//! let text = encode(placements.clone())?;
//! assert_eq!(text, "v1 000000000000029e=0:4+1:12");
//! assert_eq!(decode(&text)?, placements);
//! # Ok::<(), topology::placement::spread::SpreadError>(())
//! ```

use std::fmt::Write as _;

use super::{ContainerHash, shorten};
use crate::zone::{MAX_ZONES, ZoneId};

/// The start of every text.
const VERSION: &str = "v1";
/// Longer texts are refused unread; 500 containers in 8 zones each are about 32 KiB.
const MAX_LEN: usize = 1 << 20;

/// One container and its zones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spread {
    /// The container.
    pub container: ContainerHash,
    /// The container's zones, ascending, each once, with its exclusive CPUs there (whole CPUs; 0 where it has only
    /// memory or devices).
    pub zones: Vec<(ZoneId, u32)>,
}

/// Why placements cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    /// The text is not of this version.
    #[error(
        "placements {0:?}: expected \"v1\" and entries like 029ec313dc36ba9c=0:4+1:4, each after one space"
    )]
    Version(String),
    /// The text is longer than the limit.
    #[error("placements of {0} bytes; at most {MAX_LEN} are read")]
    Length(usize),
    /// An entry is malformed.
    #[error("placement {0:?}: expected 16 lower-case hex digits, =, and zone:cpus between +")]
    Entry(String),
    /// A container has no zones, too many, or zones that are not ascending.
    #[error("placement of {:016x}: zones must be ascending, 1 to {MAX_ZONES} of them", .0.0)]
    Zones(ContainerHash),
    /// Containers are not ascending by hash, or two have the same hash.
    #[error("placement of {:016x}: containers must be ascending by hash, each once", .0.0)]
    Order(ContainerHash),
}

/// Writes placements, which may come in any order.
///
/// # Errors
/// [`SpreadError::Zones`] for a container without zones or with zones out of order, [`SpreadError::Order`] for two of
/// the same hash (a reader could not tell them apart).
pub fn encode(mut containers: Vec<Spread>) -> Result<String, SpreadError> {
    containers.sort_unstable();
    check(&containers)?;
    let mut text = VERSION.to_owned();
    for Spread { container, zones } in &containers {
        // Writing to a string cannot fail.
        let _ = write!(text, " {:016x}", container.0);
        for (at, (zone, cpus)) in zones.iter().enumerate() {
            let _ = write!(text, "{}{}:{cpus}", if at == 0 { '=' } else { '+' }, zone.0);
        }
    }
    Ok(text)
}

/// Reads placements, ascending by hash.
///
/// # Errors
/// When the text is not exactly one that [`encode`] writes.
pub fn decode(text: &str) -> Result<Vec<Spread>, SpreadError> {
    if text.len() > MAX_LEN {
        return Err(SpreadError::Length(text.len()));
    }
    let mut parts = text.split(' ');
    if parts.next() != Some(VERSION) {
        return Err(SpreadError::Version(shorten(text)));
    }
    let containers = parts.map(|entry| parse(entry).ok_or_else(|| SpreadError::Entry(shorten(entry))));
    let containers = containers.collect::<Result<Vec<_>, _>>()?;
    check(&containers)?;
    Ok(containers)
}

fn check(containers: &[Spread]) -> Result<(), SpreadError> {
    let fits = |zones: &[(ZoneId, u32)]| {
        (1..=MAX_ZONES).contains(&zones.len()) && zones.windows(2).all(|pair| pair[0].0 < pair[1].0)
    };
    if let Some(spread) = containers.iter().find(|spread| !fits(&spread.zones)) {
        return Err(SpreadError::Zones(spread.container));
    }
    match containers.windows(2).find(|pair| pair[0].container >= pair[1].container) {
        Some(pair) => Err(SpreadError::Order(pair[1].container)),
        None => Ok(()),
    }
}

fn parse(entry: &str) -> Option<Spread> {
    let (hash, zones) = entry.split_once('=')?;
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if hash.len() != 16 || !hash.bytes().all(is_digit) {
        return None;
    }
    let container = ContainerHash(u64::from_str_radix(hash, 16).ok()?);
    let zone = |text: &str| {
        let (zone, cpus) = text.split_once(':')?;
        Some((ZoneId(number(zone)?), number(cpus)?))
    };
    Some(Spread { container, zones: zones.split('+').map(zone).collect::<Option<_>>()? })
}

/// Parses a decimal number without leading zeros or a sign.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread(hash: u64, zones: &[(u32, u32)]) -> Spread {
        let zones = zones.iter().map(|(zone, cpus)| (ZoneId(*zone), *cpus)).collect();
        Spread { container: ContainerHash(hash), zones }
    }

    #[test]
    fn encoding_is_canonical() {
        let two = vec![spread(0x3a90_e1ff_c72f_1ae6, &[(0, 2), (8, 0)]), spread(0x29e, &[(0, 4), (1, 12)])];
        for (containers, text) in [
            (vec![], "v1"),
            (two, "v1 000000000000029e=0:4+1:12 3a90e1ffc72f1ae6=0:2+8:0"),
            (vec![spread(u64::MAX, &[(u32::MAX, u32::MAX)])], "v1 ffffffffffffffff=4294967295:4294967295"),
        ] {
            assert_eq!(encode(containers.clone()).as_deref(), Ok(text));
            let mut sorted = containers;
            sorted.sort();
            assert_eq!(decode(text), Ok(sorted));
        }
    }

    #[test]
    fn ambiguous_placements_are_not_written() {
        for zones in [&[][..], &[(1, 1), (0, 1)], &[(1, 1), (1, 2)]] {
            assert_eq!(
                encode(vec![spread(5, zones)]),
                Err(SpreadError::Zones(ContainerHash(5))),
                "{zones:?}"
            );
        }
        let many: Vec<_> = (0..65).map(|zone| (zone, 1)).collect();
        assert_eq!(encode(vec![spread(5, &many)]), Err(SpreadError::Zones(ContainerHash(5))));
        let twice = vec![spread(5, &[(0, 1)]), spread(4, &[(0, 1)]), spread(5, &[(1, 1)])];
        assert_eq!(encode(twice), Err(SpreadError::Order(ContainerHash(5))));
    }

    #[test]
    fn malformed_texts_are_refused() {
        let entry = |text: &str| SpreadError::Entry(text.to_owned());
        for (text, error) in [
            ("", SpreadError::Version(String::new())),
            ("v2", SpreadError::Version("v2".to_owned())),
            ("v10", SpreadError::Version("v10".to_owned())),
            (" v1", SpreadError::Version(" v1".to_owned())),
            ("v1 ", entry("")),
            ("v1  000000000000029e=0:4", entry("")),
            ("v1 000000000000029e=0:4 ", entry("")),
            ("v1 29e=0:4", entry("29e=0:4")),
            ("v1 000000000000029E=0:4", entry("000000000000029E=0:4")),
            ("v1 +00000000000029e=0:4", entry("+00000000000029e=0:4")),
            ("v1 000000000000029e", entry("000000000000029e")),
            ("v1 000000000000029e=", entry("000000000000029e=")),
            ("v1 000000000000029e=0", entry("000000000000029e=0")),
            ("v1 000000000000029e=0:4+", entry("000000000000029e=0:4+")),
            ("v1 000000000000029e=0:04", entry("000000000000029e=0:04")),
            ("v1 000000000000029e=+1:4", entry("000000000000029e=+1:4")),
            ("v1 000000000000029e=0:-4", entry("000000000000029e=0:-4")),
            ("v1 000000000000029e=0:4294967296", entry("000000000000029e=0:4294967296")),
            ("v1 000000000000029e=0:\u{664}", entry("000000000000029e=0:\u{664}")),
            ("v1 000000000000029e=1:4+0:4", SpreadError::Zones(ContainerHash(0x29e))),
            ("v1 000000000000029e=1:4+1:4", SpreadError::Zones(ContainerHash(0x29e))),
            ("v1 000000000000029e=0:4 000000000000029e=1:4", SpreadError::Order(ContainerHash(0x29e))),
            ("v1 000000000000029e=0:4 000000000000029d=1:4", SpreadError::Order(ContainerHash(0x29d))),
        ] {
            assert_eq!(decode(text), Err(error), "{text:?}");
        }
        let long = "v1 ".repeat(MAX_LEN / 2);
        assert_eq!(decode(&long), Err(SpreadError::Length(long.len())));
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_round_trip(
            containers in proptest::collection::btree_map(
                any::<u64>(),
                proptest::collection::btree_map(any::<u32>(), any::<u32>(), 1..9),
                0..20,
            ),
        ) {
            let spread = |(hash, zones): (u64, std::collections::BTreeMap<u32, u32>)| {
                spread(hash, &zones.into_iter().collect::<Vec<_>>())
            };
            let sorted: Vec<_> = containers.into_iter().map(spread).collect();
            let reversed = sorted.iter().rev().cloned().collect();
            let text = encode(reversed).unwrap();
            prop_assert_eq!(decode(&text), Ok(sorted));
        }

        #[test]
        fn decoded_texts_are_canonical(text in "v1( [0-9a-f]{16}=[0-9]{1,2}:[0-9](\\+[0-9]:[0-9]{1,2})?){0,3}|.*") {
            if let Ok(containers) = decode(&text) {
                prop_assert_eq!(encode(containers), Ok(text));
            }
        }
    }
}
