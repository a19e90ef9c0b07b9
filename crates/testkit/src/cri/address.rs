//! Addresses for sandboxes: in go a range and what is taken, out comes a free IPv4 address. Nothing listens on them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The hosts of an IPv4 network, given out in turn so that an address is not reused soon.
#[derive(Debug)]
pub(super) struct Range {
    network: u32,
    /// How many addresses the network has, its own and the broadcast address included.
    size: u32,
    /// Host number that was given out last.
    last: u32,
}

impl Range {
    /// The network around `address`; a prefix is at most 30 bits long, else no host fits, and at least 8.
    pub(super) fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let size = 1u32 << (32 - u32::from(prefix.clamp(8, 30)));
        Self { network: address.to_bits() & !(size - 1), size, last: 0 }
    }

    /// The first IPv4 network of a comma-separated list as the kubelet sends it for a dual-stack node.
    pub(super) fn parse(cidrs: &str) -> Option<Self> {
        cidrs.split(',').find_map(|cidr| {
            let (address, prefix) = cidr.trim().split_once('/')?;
            let prefix = prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix))?;
            Some(Self::new(address.parse().ok()?, prefix))
        })
    }

    /// The next address not in `used`, or nothing when all are.
    pub(super) fn take(&mut self, used: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let hosts = self.size - 2;
        for step in 0..hosts {
            let host = (self.last + step) % hosts + 1;
            let address = Ipv4Addr::from_bits(self.network + host);
            if !used.contains(&address) {
                self.last = host;
                return Some(address);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_every_host_once_and_then_what_was_freed() {
        let mut range = Range::new(Ipv4Addr::new(10, 1, 2, 9), 29);
        let mut used = BTreeSet::new();
        while let Some(address) = range.take(&used) {
            assert!(used.insert(address), "{address} given out twice");
        }
        let all: Vec<Ipv4Addr> = (9..=14).map(|last| Ipv4Addr::new(10, 1, 2, last)).collect();
        assert_eq!(used.iter().copied().collect::<Vec<_>>(), all);
        used.remove(&all[3]);
        assert_eq!(range.take(&used), Some(all[3]));
    }

    #[test]
    fn goes_round_before_it_reuses() {
        let mut range = Range::new(Ipv4Addr::new(10, 0, 0, 0), 30);
        let none = BTreeSet::new();
        let taken: Vec<u8> = (0..3).map(|_| range.take(&none).expect("free").octets()[3]).collect();
        assert_eq!(taken, [1, 2, 1]);
    }

    #[test]
    fn reads_pod_cidrs() {
        let check = |text: &str, expected: Option<Ipv4Addr>| {
            let first =
                Range::parse(text).map(|mut range| range.take(&BTreeSet::new()).expect("empty range"));
            assert_eq!(first, expected, "{text:?}");
        };
        check("10.244.3.0/24", Some(Ipv4Addr::new(10, 244, 3, 1)));
        check("fd00::/64, 10.244.0.0/24", Some(Ipv4Addr::new(10, 244, 0, 1)));
        for bad in
            ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/31", "10.0.0.0/7", "10.0.0.0/-1", "x/24", "fd00::/64"]
        {
            check(bad, None);
        }
    }
}
