//! Zone names: `node-` and the NUMA id in decimal, without padding.
//!
//! In: a name or an id. Out: the other. Only the spelling of exporters is accepted, so two names never mean one zone
//! (Go's helper also accepts `node-+5` and `node-007`).

use topology::zone::ZoneId;

const PREFIX: &str = "node-";

/// A text that is no zone name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("zone name {0:?} is not of the form node-N")]
pub struct ZoneNameError(String);

/// The name of a zone.
#[must_use]
pub fn format(id: ZoneId) -> String {
    format!("{PREFIX}{}", id.0)
}

/// Reads a zone name.
///
/// # Errors
/// When the name is not `node-` and a number, exactly as [`format()`] writes it.
pub fn parse(name: &str) -> Result<ZoneId, ZoneNameError> {
    let digits = name.strip_prefix(PREFIX).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    digits
        .filter(|d| *d == "0" || !d.starts_with('0'))
        .and_then(|d| d.parse().ok())
        .map(ZoneId)
        .ok_or_else(|| ZoneNameError(name.chars().take(64).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (id, name) in
            [(0, "node-0"), (7, "node-7"), (65_535, "node-65535"), (u32::MAX, "node-4294967295")]
        {
            assert_eq!((format(ZoneId(id)).as_str(), parse(name)), (name, Ok(ZoneId(id))));
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for name in [
            "",
            "node-",
            "node--1",
            "cell-1",
            "Node-1",
            "NODE-2",
            "node_3",
            "node 4",
            "node-5-1",
            "node6",
            "--node-7",
            "node-+5",
            "node-007",
            "node-00",
            "node- 1",
            "node-1 ",
            "node-4294967296",
            "node-\u{661}",
        ] {
            assert_eq!(parse(name), Err(ZoneNameError(name.to_owned())), "{name:?}");
        }
    }
}
