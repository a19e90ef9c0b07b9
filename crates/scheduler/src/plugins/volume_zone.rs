//! VolumeZone: the zones in the labels of volumes.
//!
//! In: the claims of a pod, their volumes' labels, and a node's. Out: whether the node is in the zones of all volumes.
//! Never: a generic ephemeral volume, which kube-scheduler does not look at here either.
//!
//! Source: kube-scheduler 1.36 `volumezone`. Cost: labels of zones of the pod's volumes.

use std::collections::BTreeSet;

use crate::affinity::Labels;
use crate::pod::Spec;
use crate::reason::Reason;
use crate::volumes::Volumes;
use crate::volumes::migration::{OLD_REGION, OLD_ZONE, REGION, SEPARATOR, ZONE};
use crate::volumes::reference::VolumeRef;
use crate::volumes::views::VolumeView;

/// Labels of places, each with the one that has taken its place.
const PLACES: [(&str, &str); 4] = [(OLD_ZONE, ZONE), (OLD_REGION, REGION), (ZONE, ZONE), (REGION, REGION)];

/// The zones and regions of one pod's volumes.
#[derive(Clone, Debug)]
pub struct Zones<'a>(Vec<((&'static str, &'static str), BTreeSet<&'a str>)>);

impl<'a> Zones<'a> {
    /// Looks up the volumes of a pod; `None`: they are in no zone.
    ///
    /// # Errors
    /// The message about a claim or volume for which the pod has to wait.
    pub fn new(spec: &Spec, volumes: &'a Volumes) -> Result<Option<Self>, String> {
        let mut zones = Vec::new();
        for key in spec.volumes.iter().filter_map(VolumeRef::shared_claim) {
            if key.name.is_empty() {
                return Err("PersistentVolumeClaim had no name".to_owned());
            }
            let claim = volumes.claim(key).ok_or_else(|| super::volume_binding::not_found(key))?;
            if let Some(name) = &claim.volume {
                let volume = volumes.volume(name);
                let volume = volume.ok_or_else(|| format!("persistentvolume {name:?} not found"))?;
                zones.extend(zones_of(volume));
                continue;
            }
            if claim.class.is_empty() {
                return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
            }
            let class = volumes.class(&claim.class);
            let not_found = || format!("storageclass.storage.k8s.io {:?} not found", claim.class);
            if !class.ok_or_else(not_found)?.waits {
                return Err("PersistentVolume had no name".to_owned());
            }
        }
        Ok((!zones.is_empty()).then_some(Self(zones)))
    }

    /// Whether a node with these labels is in all zones. A node without any label of a place is.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, labels: &Labels) -> Result<(), Reason> {
        if !PLACES.iter().any(|(key, _)| labels.contains_key(*key)) {
            return Ok(());
        }
        let is_in = |((key, new_key), zones): &((&str, &str), BTreeSet<&str>)| {
            let place = labels.get(*key).or_else(|| labels.get(*new_key));
            place.is_some_and(|place| zones.contains(place.as_str()))
        };
        if self.0.iter().all(is_in) { Ok(()) } else { Err(Reason::VolumeZone) }
    }
}

/// The places in a volume's labels. A list with an empty part counts for nothing.
fn zones_of(volume: &VolumeView) -> impl Iterator<Item = ((&'static str, &'static str), BTreeSet<&str>)> {
    PLACES.into_iter().filter_map(|places| {
        let zones: BTreeSet<&str> = volume.labels.get(places.0)?.split(SEPARATOR).map(str::trim).collect();
        (!zones.contains("")).then_some((places, zones))
    })
}
