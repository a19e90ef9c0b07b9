//! The volumes of a pod that limit where it can run, by reference.
//!
//! In: `spec.volumes`. Out: claims and disks that the pod names. Never: what a claim has become; that may change and is
//! looked up ([`Volumes`](super::Volumes)).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use super::migration::{self, InTreePlugin};

/// A PersistentVolumeClaim by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeRef {
    /// A claim.
    Claim(ClaimKey),
    /// A generic ephemeral volume: a claim that is made for the pod.
    Ephemeral {
        /// The claim.
        claim: ClaimKey,
        /// The pod's name.
        pod: Arc<str>,
        /// The pod's uid, which the claim has to name as its controller.
        uid: Arc<str>,
    },
    /// A disk that the pod itself names.
    Inline(Inline),
}

/// A disk that a pod names itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inline {
    /// The disk, where not every pod may have it on one node.
    pub disk: Option<Disk>,
    /// The plugin whose work a CSI driver does, with the driver's handle of the volume; `None`: it has none.
    pub migrated: Option<(InTreePlugin, Option<Arc<str>>)>,
}

/// A disk of VolumeRestrictions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disk {
    /// `gcePersistentDisk`: a name, and whether it is read only.
    Gce(String, bool),
    /// `awsElasticBlockStore`: a volume id.
    Aws(String),
    /// `iscsi`: a qualified name, and whether it is read only.
    Iscsi(String, bool),
    /// `rbd`.
    Rbd {
        /// Monitors.
        monitors: Vec<String>,
        /// The pool.
        pool: String,
        /// The image.
        image: String,
        /// Whether it is read only.
        read_only: bool,
    },
}

/// The volumes of the pods on one node, each with the number of its uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedVolumes(BTreeMap<VolumeRef, usize>);

impl VolumeRef {
    /// The volumes of a pod, in its order.
    #[must_use]
    pub fn read(pod: &wire::Pod) -> Vec<Self> {
        let text = |value: &Option<String>| -> Arc<str> { value.as_deref().unwrap_or_default().into() };
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let of = |volume: &wire::Volume| {
            let claim = |name: &str| ClaimKey { namespace: text(&pod.metadata.namespace), name: name.into() };
            if let Some(source) = &volume.persistent_volume_claim {
                return Some(Self::Claim(claim(&source.claim_name)));
            }
            if volume.ephemeral.is_some() {
                let (name, uid) = (text(&pod.metadata.name), text(&pod.metadata.uid));
                let claim = claim(&format!("{name}-{}", volume.name));
                return Some(Self::Ephemeral { claim, pod: name, uid });
            }
            let (disk, migrated) = (Disk::read(volume), migration::inline(volume));
            (disk.is_some() || migrated.is_some()).then_some(Self::Inline(Inline { disk, migrated }))
        };
        volumes.filter_map(of).collect()
    }

    /// The claim, if it is one.
    #[must_use]
    pub fn claim(&self) -> Option<&ClaimKey> {
        match self {
            Self::Claim(claim) | Self::Ephemeral { claim, .. } => Some(claim),
            Self::Inline(_) => None,
        }
    }

    /// The claim, if several pods may have it.
    #[must_use]
    pub fn shared_claim(&self) -> Option<&ClaimKey> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Ephemeral { .. } | Self::Inline(_) => None,
        }
    }

    /// The disk, if it is one.
    #[must_use]
    pub fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Inline(inline) => inline.disk.as_ref(),
            Self::Claim(_) | Self::Ephemeral { .. } => None,
        }
    }
}

impl Disk {
    fn read(volume: &wire::Volume) -> Option<Self> {
        if let Some(disk) = &volume.gce_persistent_disk {
            return Some(Self::Gce(disk.pd_name.clone(), disk.read_only == Some(true)));
        }
        if let Some(disk) = &volume.aws_elastic_block_store {
            return Some(Self::Aws(disk.volume_id.clone()));
        }
        if let Some(disk) = &volume.iscsi {
            return Some(Self::Iscsi(disk.iqn.clone(), disk.read_only == Some(true)));
        }
        volume.rbd.as_ref().map(|disk| Self::Rbd {
            monitors: disk.monitors.clone(),
            // The API server's default.
            pool: disk.pool.clone().unwrap_or_else(|| "rbd".to_owned()),
            image: disk.image.clone(),
            read_only: disk.read_only == Some(true),
        })
    }
}

impl UsedVolumes {
    /// Adds the volumes of a pod that is on the node now.
    pub fn add(&mut self, volumes: &[VolumeRef]) {
        for volume in volumes {
            *self.0.entry(volume.clone()).or_default() += 1;
        }
    }

    /// Removes the volumes of a pod that left.
    pub fn remove(&mut self, volumes: &[VolumeRef]) {
        for volume in volumes {
            if let Some(uses) = self.0.get_mut(volume) {
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    self.0.remove(volume);
                }
            }
        }
    }

    /// The volumes, each once.
    pub fn iter(&self) -> impl Iterator<Item = &VolumeRef> + '_ {
        self.0.keys()
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
