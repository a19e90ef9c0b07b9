//! Shared devices: one device under several ids, `<id>::<n>`.
//!
//! In: a device's id, and the number of its shares. Out: the ids the kubelet knows, and the device behind each. Never:
//! more ids than shares.

/// Separates a device's id from the number of a share.
const MARK: &str = "::";

/// The ids under which the kubelet knows a device, one for each share; the device's own id when it is not shared.
pub fn ids(device: &str, replicas: u32) -> impl Iterator<Item = String> {
    (0..replicas).map(move |n| if replicas == 1 { device.to_owned() } else { format!("{device}{MARK}{n}") })
}

/// The device behind an id; none when no share has this id.
#[must_use]
pub fn device(id: &str, replicas: u32) -> Option<&str> {
    if replicas == 1 {
        return Some(id);
    }
    let (device, n) = id.rsplit_once(MARK)?;
    let number: u32 = n.parse().ok()?;
    // `+1` and `01` parse as numbers too, and are ids of no share.
    (number < replicas && number.to_string() == n).then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_ids_round_trip() {
        for replicas in [1, 2, 11] {
            for device in ["a", "0000:3b:00.0"] {
                let all: Vec<_> = ids(device, replicas).collect();
                assert_eq!(all.len(), replicas as usize);
                assert!(all.iter().all(|id| super::device(id, replicas) == Some(device)), "{all:?}");
            }
        }
        assert_eq!(ids("a", 1).collect::<Vec<_>>(), ["a"]);
        assert_eq!(ids("a", 2).collect::<Vec<_>>(), ["a::0", "a::1"]);
        for id in ["a", "a::2", "a::-1", "a::+1", "a::01", "a::", "a:1", "::", ""] {
            assert_eq!(device(id, 2), None, "{id}");
        }
    }
}
