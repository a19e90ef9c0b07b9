//! Who we are on this machine: the host's name and a unique name for this process.
//!
//! In: the kernel's own files. Out: strings for lease identities and event sources. Never: fails; a machine
//! without these files still gets a usable, unique name.

use crate::random::Random;

/// The host's name as the kernel knows it (in a pod: the pod's name), `localhost` where it says nothing.
pub fn name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match kernel.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// `<hostname>_<uuid>`: unique for each start of a process, the form of client-go's lease holders.
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
