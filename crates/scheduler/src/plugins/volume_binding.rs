//! VolumeBinding: claims get volumes that the pod's node reaches.
//!
//! In: the claims of a pod, and a node. Out: whether the node reaches all volumes, and for claims that wait for a pod
//! the volumes chosen there and those to provision. Never: a write (`shell/outbox`), or a score: kube-scheduler scores
//! with the gate `StorageCapacityScoring` only, which is off.
//!
//! Source: kube-scheduler 1.36 `volumebinding`, `FindMatchingVolume` of component-helpers. Of equally large volumes the
//! first by name is chosen, where kube-scheduler takes the first of a Go map. Cost for each node: claims that wait x
//! volumes of their class, and capacities of the class where one is provisioned.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::node::NodeView;
use crate::pod::Spec;
use crate::reason::Reason;
use crate::volumes::Volumes;
use crate::volumes::reference::{ClaimKey, VolumeRef};
use crate::volumes::views::{ClaimView, VolumeView};

/// The provisioner that stands for none.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// `VolumeBindingArgs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args {
    /// `bindTimeoutSeconds`.
    pub bind_timeout_s: u64,
}

/// The claims of one pod.
#[derive(Clone, Debug)]
pub struct PodClaims<'a> {
    volumes: &'a Volumes,
    bound: Vec<&'a ClaimView>,
    /// Those that wait for a pod, the smallest first, so that it takes the smallest volume.
    waiting: Vec<&'a ClaimView>,
    /// Those that wait and have a node selected.
    selected: Vec<&'a ClaimView>,
}

/// What claims that wait for a pod get on one node.
#[derive(Clone, Debug, Default)]
pub struct Found<'a> {
    /// Claims with the volumes chosen for them.
    pub chosen: Vec<(&'a ClaimView, &'a VolumeView)>,
    /// Claims for which volumes are to be provisioned.
    pub provisioned: Vec<&'a ClaimView>,
}

/// All reasons of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflicts(u8);

impl Default for Args {
    fn default() -> Self {
        Self { bind_timeout_s: 600 }
    }
}

impl<'a> PodClaims<'a> {
    /// Looks up the claims of a pod; `None`: it has none.
    ///
    /// # Errors
    /// The message about a claim for which the pod has to wait.
    pub fn new(spec: &'a Spec, volumes: &'a Volumes) -> Result<Option<Self>, String> {
        let mut claims = Self { volumes, bound: Vec::new(), waiting: Vec::new(), selected: Vec::new() };
        let mut all = Vec::new();
        for volume in &spec.volumes {
            if let Some(key) = volume.claim() {
                all.push(usable(volume, key, volumes)?);
            }
        }
        if all.is_empty() {
            return Ok(None);
        }
        for claim in all {
            let waits = || volumes.class(&claim.class).is_some_and(|class| class.waits);
            if claim.is_bound {
                claims.bound.push(claim);
            } else if claim.volume.is_none() && !claim.class.is_empty() && waits() {
                let is_selected = volumes.selected_node(claim).is_some();
                (if is_selected { &mut claims.selected } else { &mut claims.waiting }).push(claim);
            } else {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
        }
        claims.waiting.sort_by_key(|claim| claim.size());
        Ok(Some(claims))
    }

    /// Whether the pod's claims have volumes that a node reaches, or can get some.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, node: &NodeView) -> Result<(), Reason> {
        self.find(node).map(drop)
    }

    /// The volumes for claims that wait.
    ///
    /// # Errors
    /// The [`Reason`] against the node.
    pub fn find(&self, node: &NodeView) -> Result<Found<'a>, Reason> {
        let mut conflicts = self.unreached(node)?;
        let mut found = Found::default();
        conflicts.0 |= self.find_unbound(node, &mut found).0;
        if conflicts == Conflicts::default() { Ok(found) } else { Err(Reason::VolumeBinding(conflicts)) }
    }

    fn unreached(&self, node: &NodeView) -> Result<Conflicts, Reason> {
        let csi_node = self.volumes.csi_node(&node.name);
        for claim in &self.bound {
            let Some(volume) = claim.volume.as_ref().and_then(|name| self.volumes.volume(name)) else {
                return Ok(Conflicts::NO_VOLUME);
            };
            if !volume.reaches(&node.labels, csi_node).ok_or(Reason::VolumeUnreadable)? {
                return Ok(Conflicts::AFFINITY);
            }
        }
        Ok(Conflicts::default())
    }

    fn find_unbound(&self, node: &NodeView, found: &mut Found<'a>) -> Conflicts {
        let is_here = |claim: &&ClaimView| self.volumes.selected_node(claim) == Some(&node.name);
        if !self.selected.iter().all(is_here) {
            return Conflicts::NO_MATCH;
        }
        let mut taken = BTreeSet::new();
        let mut provisioned = self.selected.clone();
        for claim in &self.waiting {
            match self.matching(claim, node, &taken) {
                Some(volume) => {
                    taken.insert(&volume.name);
                    found.chosen.push((claim, volume));
                }
                None => provisioned.push(claim),
            }
        }
        for claim in provisioned {
            let conflict = self.unprovisionable(claim, node);
            if conflict != Conflicts::default() {
                return conflict;
            }
            found.provisioned.push(claim);
        }
        Conflicts::default()
    }

    /// The volume that is for a claim, or the smallest that can be. Without one that the node reaches there is none.
    fn matching(
        &self,
        claim: &ClaimView,
        node: &NodeView,
        taken: &BTreeSet<&Arc<str>>,
    ) -> Option<&'a VolumeView> {
        let mut smallest: Option<&VolumeView> = None;
        for volume in self.volumes.of_class(&claim.class).filter(|volume| !taken.contains(&volume.name)) {
            let owner = self.volumes.claim_of(volume);
            if owner.is_some_and(|owner| !owner.names(claim)) || !volume.suits(claim) {
                continue;
            }
            if owner.is_some() {
                return volume.is_near(&node.labels).then_some(volume);
            }
            if smallest.is_none_or(|smallest| volume.size() < smallest.size())
                && volume.is_free_for(claim)
                && volume.is_near(&node.labels)
            {
                smallest = Some(volume);
            }
        }
        smallest
    }

    /// What keeps a volume from being provisioned for a claim and node.
    fn unprovisionable(&self, claim: &ClaimView, node: &NodeView) -> Conflicts {
        let Some(class) = self.volumes.class(&claim.class) else { return Conflicts::NO_MATCH };
        if class.provisioner.is_empty()
            || *class.provisioner == *NO_PROVISIONER
            || !class.allows(&node.labels)
        {
            return Conflicts::NO_MATCH;
        }
        let Some(bytes) = claim.bytes().filter(|_| self.volumes.tracks_capacity(&class.provisioner)) else {
            return Conflicts::default();
        };
        let has = self.volumes.capacities(&class.name).any(|capacity| capacity.has(bytes, &node.labels));
        if has { Conflicts::default() } else { Conflicts::NO_SPACE }
    }
}

/// The claim of a volume, if a pod can use it (`podHasPVCs`).
fn usable<'a>(volume: &VolumeRef, key: &ClaimKey, volumes: &'a Volumes) -> Result<&'a ClaimView, String> {
    let ephemeral = match volume {
        VolumeRef::Ephemeral { pod, uid, .. } => Some((pod, uid)),
        VolumeRef::Claim(_) | VolumeRef::Inline(_) => None,
    };
    let name = &key.name;
    let Some(claim) = volumes.claim(key) else {
        return Err(match ephemeral {
            Some(_) => {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                )
            }
            None => not_found(key),
        });
    };
    if claim.is_lost {
        let volume = claim.volume.as_deref().unwrap_or_default();
        return Err(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    if claim.is_leaving {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    match ephemeral {
        Some((pod, uid)) if claim.controller.as_ref() != Some(uid) => {
            let namespace = &key.namespace;
            Err(format!("PVC {key} was not created for pod {namespace}/{pod} (pod is not owner)"))
        }
        _ => Ok(claim),
    }
}

/// The message about a claim that does not exist.
pub(super) fn not_found(claim: &ClaimKey) -> String {
    format!("persistentvolumeclaim {:?} not found", claim.name)
}

impl Conflicts {
    /// No volume for a claim, and none can be provisioned.
    pub const NO_MATCH: Self = Self(1);
    /// A bound volume that the node does not reach.
    pub const AFFINITY: Self = Self(2);
    /// A volume would be too large for what is free.
    pub const NO_SPACE: Self = Self(4);
    /// A claim's volume does not exist.
    pub const NO_VOLUME: Self = Self(8);

    /// Each of them by itself.
    pub fn each(self) -> impl Iterator<Item = Self> {
        [Self::NO_MATCH, Self::AFFINITY, Self::NO_SPACE, Self::NO_VOLUME]
            .into_iter()
            .filter(move |one| self.0 & one.0 != 0)
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |one: Self| match one {
            Self::AFFINITY => "node(s) didn't match PersistentVolume's node affinity",
            Self::NO_SPACE => "node(s) did not have enough free storage",
            Self::NO_VOLUME => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            _ => "node(s) didn't find available persistent volumes to bind",
        };
        let texts: Vec<&str> = self.each().map(text).collect();
        f.write_str(&texts.join(", "))
    }
}
