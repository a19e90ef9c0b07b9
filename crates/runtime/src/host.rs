//! The names of the host and of this process.
//!
//! In: files in `/proc`. Out: strings for lease identities and event sources. Never: an error; a machine without these
//! files still gets a usable, unique name.

use crate::random::Random;

/// The kernel's host name (in a pod: the pod's name), or `localhost` where it is empty.
pub fn name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match kernel.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// `<hostname>_<uuid>`, unique for each start of a process: the form of client-go's lease holders.
pub fn identity() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    match kernel.trim() {
        "" => format!("{}_{:016x}", name(), Random::from_entropy().bits()),
        uuid => format!("{}_{uuid}", name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_carry_the_host_and_differ() {
        let (one, two) = (identity(), identity());
        assert!(one.starts_with(&format!("{}_", name())), "{one}");
        assert_ne!(one, two);
    }
}
