//! Resource claims (DRA) by which pods have devices.
//!
//! In: ResourceClaims by which pods may have devices. Out: for each pod its claims, and of which drivers their devices
//! are. Never: where a pod runs, or whose a driver is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claim::Id;

/// The group of ResourceClaims, and what they are called there.
pub const GROUP: &str = "resource.k8s.io";
/// See [`GROUP`].
pub const PLURAL: &str = "resourceclaims";

/// A ResourceClaim that was given devices, and that pods may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClaim {
    /// The drivers of the devices.
    pub drivers: BTreeSet<Arc<str>>,
    /// The pods, by their UIDs.
    pub pods: BTreeMap<Box<str>, Id>,
}

/// All of them, by name and by the UIDs of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimsInUse {
    all: BTreeMap<Id, DeviceClaim>,
    by: BTreeMap<Box<str>, BTreeSet<Id>>,
}

/// Whether devices of this name are given by claims: drivers have no slash in their names, extended resources have one.
#[must_use]
pub fn is_driver(name: &str) -> bool {
    !name.contains('/')
}

impl ClaimsInUse {
    /// The claims of a pod.
    pub fn of(&self, pod: &str) -> impl Iterator<Item = (&Id, &DeviceClaim)> + use<'_> {
        let claims = self.by.get(pod).into_iter().flatten();
        claims.filter_map(|claim| self.all.get_key_value(claim))
    }

    /// Records a claim; `None`: no pod has a device by it. Returns the pods that are affected.
    pub fn put(&mut self, id: Id, claim: Option<DeviceClaim>) -> BTreeSet<Id> {
        let before = self.all.remove(&id);
        if before == claim {
            self.all.extend(claim.map(|same| (id, same)));
            return BTreeSet::new();
        }
        for uid in before.iter().flat_map(|before| before.pods.keys()) {
            if let Some(claims) = self.by.get_mut(uid) {
                claims.remove(&id);
                if claims.is_empty() {
                    self.by.remove(uid);
                }
            }
        }
        for uid in claim.iter().flat_map(|claim| claim.pods.keys()) {
            self.by.entry(uid.clone()).or_default().insert(id.clone());
        }
        let pods = before.iter().chain(&claim).flat_map(|one| one.pods.values().cloned()).collect();
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
    fn pods_have_what_their_claims_were_given() {
        let mut claims = ClaimsInUse::default();
        let [one, two] = ["one", "two"].map(|name| Id::new("x", name));
        for (claim, now, concerned) in [
            (&one, holding("a.example", &["p", "q"]), ids(&["p", "q"])),
            (&one, holding("a.example", &["p", "q"]), ids(&[])),
            (&two, holding("b.example", &["p"]), ids(&["p"])),
            (&one, holding("a.example", &["q", "r"]), ids(&["p", "q", "r"])),
            (&two, holding("c.example", &["p"]), ids(&["p"])),
        ] {
            assert_eq!(claims.put(claim.clone(), now.clone()), concerned, "{claim} {now:?}");
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
        assert_eq!(claims, ClaimsInUse::default(), "nothing stays of those that are gone");
    }

    #[test]
    fn names_tell_drivers_from_resources() {
        assert!(is_driver("acc.vendor.example") && !is_driver("vendor.example/acc"));
    }
}
