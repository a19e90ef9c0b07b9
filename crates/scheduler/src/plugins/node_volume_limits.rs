//! NodeVolumeLimits: a node takes so many volumes of a CSI driver.
//!
//! In: the volumes of a pod, those of the pods of a node, attachments, and the limits of the node's CSINode. Out:
//! whether the pod's volumes are too many. Never: a volume that counts twice.
//!
//! Source: kube-scheduler 1.36 `nodevolumelimits`, without the gate `VolumeLimitScaling`, which is off. Cost: volumes
//! of the pod and, if they are attached and the node has limits, volumes and attachments of the node.

use std::collections::{BTreeMap, BTreeSet};

use crate::pod::Spec;
use crate::reason::Reason;
use crate::volumes::Volumes;
use crate::volumes::migration::{self, InTreePlugin};
use crate::volumes::reference::{ClaimKey, UsedVolumes, VolumeRef};
use crate::volumes::views::{ClaimView, CsiNodeView};

/// The volumes of one pod that may be attached.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    refs: &'a [VolumeRef],
    volumes: &'a Volumes,
}

/// A volume of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attached<'a> {
    driver: &'a str,
    handle: Handle<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handle<'a> {
    Volume(&'a str),
    /// A claim that has no volume yet.
    Claim(&'a ClaimKey),
}

/// Why a volume cannot be counted.
enum Problem {
    NoClaim,
    /// The claim is not the pod's, or the volume cannot be translated.
    Unreadable,
}

impl<'a> Limits<'a> {
    /// The volumes of a pod; `None`: none can be attached.
    #[must_use]
    pub fn new(spec: &'a Spec, volumes: &'a Volumes) -> Option<Self> {
        let may_attach = |volume: &VolumeRef| match volume {
            VolumeRef::Claim(_) | VolumeRef::Ephemeral { .. } => true,
            VolumeRef::Inline(inline) => inline.migrated.is_some(),
        };
        spec.volumes.iter().any(may_attach).then_some(Self { refs: &spec.volumes, volumes })
    }

    /// Whether a node with these volumes can take those of the pod as well.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, used: &UsedVolumes, node: &str) -> Result<(), Reason> {
        let csi_node = self.volumes.csi_node(node);
        let mut new = BTreeSet::new();
        for volume in self.refs {
            new.extend(self.attached(volume, csi_node).map_err(|_| Reason::VolumeUnreadable)?);
        }
        let Some(limits) = csi_node.map(|node| &node.limits).filter(|limits| !limits.is_empty()) else {
            return Ok(());
        };
        if new.is_empty() {
            return Ok(());
        }
        let mut there = BTreeSet::new();
        for volume in used.iter() {
            match self.attached(volume, csi_node) {
                Ok(attached) => there.extend(attached),
                Err(Problem::NoClaim) => {}
                Err(Problem::Unreadable) => return Err(Reason::VolumeUnreadable),
            }
        }
        new.retain(|volume| !there.contains(volume));
        for attachment in self.volumes.attachments(node).filter(|attachment| !attachment.driver.is_empty()) {
            let volume = attachment.volume.as_ref().and_then(|name| self.volumes.volume(name));
            let csi = volume.and_then(|volume| volume.csi.as_ref());
            let driver = &*attachment.driver;
            there.extend(csi.map(|(_, handle)| Attached { driver, handle: Handle::Volume(handle) }));
        }
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        for volume in &new {
            *counts.entry(volume.driver).or_default() += 1;
        }
        let is_over = |(driver, more): (&&str, &i64)| {
            let count = there.iter().filter(|volume| volume.driver == *driver).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            limits.get(*driver).is_some_and(|limit| count.saturating_add(*more) > *limit)
        };
        if counts.iter().any(is_over) { Err(Reason::TooManyVolumes) } else { Ok(()) }
    }

    /// The volume of a driver behind a volume of a pod, if it is one.
    fn attached<'b>(
        &'b self,
        volume: &'b VolumeRef,
        csi_node: Option<&CsiNodeView>,
    ) -> Result<Option<Attached<'b>>, Problem> {
        let key = match volume {
            VolumeRef::Inline(inline) => {
                let Some((plugin, handle)) = inline.migrated.as_ref().filter(|_| csi_node.is_some()) else {
                    return Ok(None);
                };
                let handle = handle.as_ref().ok_or(Problem::Unreadable)?;
                return Ok(Some(Attached { driver: plugin.driver(), handle: Handle::Volume(handle) }));
            }
            VolumeRef::Claim(claim) | VolumeRef::Ephemeral { claim, .. } => claim,
        };
        let claim = self.volumes.claim(key).ok_or(Problem::NoClaim)?;
        if let VolumeRef::Ephemeral { uid, .. } = volume
            && claim.controller.as_ref() != Some(uid)
        {
            return Err(Problem::Unreadable);
        }
        Ok(self.of_claim(claim, csi_node))
    }

    fn of_claim<'b>(&'b self, claim: &'b ClaimView, csi_node: Option<&CsiNodeView>) -> Option<Attached<'b>> {
        let Some(volume) = claim.volume.as_ref().and_then(|name| self.volumes.volume(name)) else {
            return self.of_class(claim, csi_node);
        };
        if let Some((driver, handle)) = &volume.csi {
            // What has no name counts for nothing.
            let is_named = !driver.is_empty() && !handle.is_empty();
            return is_named.then_some(Attached { driver, handle: Handle::Volume(handle) });
        }
        let (migrated, _) = volume.migrated.as_ref().filter(|_| csi_node.is_some())?;
        let handle = migrated.handle.as_ref().filter(|handle| !handle.is_empty())?;
        Some(Attached { driver: migrated.plugin.driver(), handle: Handle::Volume(handle) })
    }

    /// A volume that is still to be made.
    fn of_class<'b>(&'b self, claim: &'b ClaimView, csi_node: Option<&CsiNodeView>) -> Option<Attached<'b>> {
        let class = self.volumes.class(&claim.class).filter(|_| !claim.class.is_empty())?;
        let driver = match InTreePlugin::named(&class.provisioner) {
            Some(plugin) => csi_node.map(|_| plugin.driver())?,
            None if migration::stays_in_tree(&class.provisioner) => return None,
            None => &class.provisioner,
        };
        (!driver.is_empty()).then_some(Attached { driver, handle: Handle::Claim(&claim.key) })
    }
}
