//! Shared devices: one device under several ids, `<id>::<n>`.
//!
//! In: a device's id, how often it is shared. Out: the ids the kubelet knows, and the way back. Never: more ids than shares.

/// What stands between a device's id and the number of a share.
const MARK: &str = "::";

/// The ids under which the kubelet knows a device.
pub fn ids(device: &str, replicas: u32) -> impl Iterator<Item = String> {
    (0..replicas).map(move |n| if replicas == 1 { device.to_owned() } else { format!("{device}{MARK}{n}") })
}

/// The device behind an id; none when no share is called so.
#[must_use]
pub fn device(id: &str, replicas: u32) -> Option<&str> {
    if replicas == 1 {
        return Some(id);
    }
    let (device, n) = id.rsplit_once(MARK)?;
    let number: u32 = n.parse().ok()?;
    // `+1` and `01` are numbers too, and nobody's.
    (number < replicas && number.to_string() == n).then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_leads_back_and_no_other_does() {
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
