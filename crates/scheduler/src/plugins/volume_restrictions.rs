//! VolumeRestrictions: disks and claims that not every pod may have at a time.
//!
//! In: the volumes of a pod, those of the pods of a node, and claims in use. Out: whether they get in each other's way.
//! Never: a volume of a kind that any number of pods may have.
//!
//! Source: kube-scheduler 1.36 `volumerestrictions`. A pod of another namespace does not stand for the claim of the
//! same name there. Cost: disks of the pod x volumes of the node.

use std::collections::BTreeSet;

use crate::pod::Spec;
use crate::reason::Reason;
use crate::volumes::Volumes;
use crate::volumes::reference::{ClaimKey, Disk, UsedVolumes, VolumeRef};

/// The claims of one pod that one pod may have at a time, and its disks.
#[derive(Clone, Debug, Default)]
pub struct Restrictions<'a> {
    disks: Vec<&'a Disk>,
    exclusive: BTreeSet<&'a ClaimKey>,
    /// Uses of those claims by pods on nodes.
    uses: i64,
}

impl<'a> Restrictions<'a> {
    /// Looks up the claims of a pod. `None`: nothing is restricted.
    ///
    /// # Errors
    /// The message about a claim that does not exist.
    pub fn new(spec: &'a Spec, volumes: &Volumes) -> Result<Option<Self>, String> {
        let mut exclusive = BTreeSet::new();
        for key in spec.volumes.iter().filter_map(VolumeRef::shared_claim) {
            let claim = volumes.claim(key).ok_or_else(|| super::volume_binding::not_found(key))?;
            if claim.is_for_one_pod() {
                exclusive.insert(key);
            }
        }
        let disks: Vec<&Disk> = spec.volumes.iter().filter_map(VolumeRef::disk).collect();
        let uses = exclusive.iter().map(|key| i64::from(volumes.is_used(key))).sum();
        Ok((!disks.is_empty() || uses > 0).then_some(Self { disks, exclusive, uses }))
    }

    /// Counts that another pod comes to a node (1), or leaves it (-1).
    pub fn shift(&mut self, other: &Spec, more: i64) {
        let claims = other.volumes.iter().filter_map(VolumeRef::shared_claim);
        for _ in claims.filter(|key| self.exclusive.contains(key)) {
            self.uses += more;
        }
    }

    /// Whether the pod may be beside these volumes.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, used: &UsedVolumes) -> Result<(), Reason> {
        let conflicts =
            |disk: &&Disk| used.iter().filter_map(VolumeRef::disk).any(|other| disk.conflicts(other));
        if self.disks.iter().any(conflicts) {
            return Err(Reason::DiskConflict);
        }
        if self.uses > 0 { Err(Reason::ClaimInUse) } else { Ok(()) }
    }
}

impl Disk {
    /// Whether two pods may not have these on one node.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Gce(name, reads), Self::Gce(other, other_reads))
            | (Self::Iscsi(name, reads), Self::Iscsi(other, other_reads)) => {
                name == other && !(*reads && *other_reads)
            }
            (Self::Aws(id), Self::Aws(other)) => id == other,
            (
                Self::Rbd { monitors, pool, image, read_only },
                Self::Rbd { monitors: others, pool: other_pool, image: other_image, read_only: other_reads },
            ) => {
                pool == other_pool
                    && image == other_image
                    && !(*read_only && *other_reads)
                    && monitors.iter().any(|monitor| others.contains(monitor))
            }
            _ => false,
        }
    }
}
