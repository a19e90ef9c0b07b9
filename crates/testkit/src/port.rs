//! Free TCP ports for programs that cannot pick one themselves and say which.
//!
//! Out: port numbers without a listener, on any address, and that this process has not handed out before.
//! Never from the range the kernel takes for outgoing connections, or a restarted server could find its port
//! taken by a client.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::bail;

/// Below Linux' default `ip_local_port_range`, above the ports of well-known services.
const RANGE: std::ops::Range<u16> = 16_384..32_768;

static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free port. Two processes that ask at the same moment start looking at different places.
///
/// # Errors
/// When every port of the range is taken.
pub fn free() -> anyhow::Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let size = RANGE.end - RANGE.start;
    let first = (RandomState::new().hash_one(std::process::id()) % u64::from(size)) as u16;
    for step in 0..size {
        let port = RANGE.start + (first + step) % size;
        if !taken.contains(&port) && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            taken.insert(port);
            return Ok(port);
        }
    }
    bail!("no free TCP port between {} and {}", RANGE.start, RANGE.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_distinct_and_outside_the_kernels_range() {
        let ports: Vec<u16> = (0..50).map(|_| free().unwrap()).collect();
        let distinct: BTreeSet<u16> = ports.iter().copied().collect();
        assert_eq!(distinct.len(), ports.len());
        for port in ports {
            assert!(RANGE.contains(&port), "{port}");
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        }
    }
}
