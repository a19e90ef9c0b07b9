//! Resource claims (DRA) by which pods have devices.
//!
//! In: ResourceClaims. Out: the claims of each pod, with the drivers of their devices. Never: the node of a pod, or the
//! owner of a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claim::Id;
use super::index::Index;

/// The API group of ResourceClaims.
pub const GROUP: &str = "resource.k8s.io";
/// The plural of ResourceClaims.
pub const PLURAL: &str = "resourceclaims";

/// A ResourceClaim with devices that pods may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClaim {
    /// The drivers of the devices.
    pub drivers: BTreeSet<Arc<str>>,
    /// The pods, by UID.
    pub pods: BTreeMap<Box<str>, Id>,
}

/// ResourceClaims, by name and by the UIDs of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimsInUse {
    all: BTreeMap<Id, DeviceClaim>,
    by_pod: Index<Box<str>, Id>,
}

/// Whether this is the name of a DRA driver; names of extended resources have a slash.
#[must_use]
pub fn is_driver(name: &str) -> bool {
    !name.contains('/')
}

impl ClaimsInUse {
    /// The claims of the pod with this UID.
    pub fn of(&self, pod: &str) -> impl Iterator<Item = (&Id, &DeviceClaim)> + use<'_> {
        self.by_pod.of(pod).filter_map(|claim| self.all.get_key_value(claim))
    }

    /// Replaces a claim; `None`: no pod has a device by it. Returns the affected pods.
    pub fn put(&mut self, id: Id, claim: Option<DeviceClaim>) -> BTreeSet<Id> {
        if self.all.get(&id) == claim.as_ref() {
            return BTreeSet::new();
        }
        let before = self.all.remove(&id);
        for uid in before.iter().flat_map(|before| before.pods.keys()) {
            self.by_pod.remove(uid, &id);
        }
        for uid in claim.iter().flat_map(|claim| claim.pods.keys()) {
            self.by_pod.insert(uid.clone(), id.clone());
        }
        let pods = before.iter().chain(&claim).flat_map(|claim| claim.pods.values().cloned()).collect();
        self.all.extend(claim.map(|claim| (id, claim)));
        pods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(driver: &str, pods: &[&str]) -> Option<DeviceClaim> {
        let pods = pods.iter().map(|pod| (format!("uid-{pod}").into(), Id::new("x", pod)));
        Some(DeviceClaim { drivers: [driver.into()].into(), pods: pods.collect() })
    }

    fn ids(names: &[&str]) -> BTreeSet<Id> {
        names.iter().map(|name| Id::new("x", name)).collect()
    }

    #[test]
    fn pods_have_the_devices_of_their_claims() {
        let mut claims = ClaimsInUse::default();
        let [one, two] = ["one", "two"].map(|name| Id::new("x", name));
        for (claim, now, affected) in [
            (&one, holding("a.example", &["p", "q"]), ids(&["p", "q"])),
            (&one, holding("a.example", &["p", "q"]), ids(&[])),
            (&two, holding("b.example", &["p"]), ids(&["p"])),
            (&one, holding("a.example", &["q", "r"]), ids(&["p", "q", "r"])),
            (&two, holding("c.example", &["p"]), ids(&["p"])),
        ] {
            assert_eq!(claims.put(claim.clone(), now.clone()), affected, "{claim} {now:?}");
        }
        let drivers = |claims: &ClaimsInUse, uid: &str| -> Vec<Arc<str>> {
            claims.of(uid).flat_map(|(_, holding)| holding.drivers.iter().cloned()).collect()
        };
        assert_eq!(drivers(&claims, "uid-p"), ["c.example".into()]);
        assert_eq!(drivers(&claims, "uid-r"), ["a.example".into()]);
        assert_eq!(drivers(&claims, "uid-none"), []);
        for claim in [one, two] {
            assert!(!claims.put(claim.clone(), None).is_empty());
            assert!(claims.put(claim, None).is_empty());
        }
        assert_eq!(claims, ClaimsInUse::default(), "removed claims leave nothing");
    }

    #[test]
    fn drivers_have_no_slash_in_their_names() {
        assert!(is_driver("acc.vendor.example") && !is_driver("vendor.example/acc"));
    }
}
