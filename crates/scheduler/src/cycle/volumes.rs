//! The volume plugins for one pod, made ready (kube-scheduler's PreFilter).
//!
//! In: a pod's volumes, the objects of storage. Out: whether a node fits, by VolumeRestrictions, NodeVolumeLimits,
//! VolumeBinding and VolumeZone, in this order. Never: any cost for a pod without volumes.

use crate::node::{Node, NodeView};
use crate::plugins::Plugins;
use crate::plugins::node_volume_limits::Limits;
use crate::plugins::volume_binding::PodClaims;
use crate::plugins::volume_restrictions::Restrictions;
use crate::plugins::volume_zone::Zones;
use crate::pod::Spec;
use crate::reason::Reason;
use crate::volumes::Volumes;

/// What the plugins look at.
#[derive(Clone, Debug, Default)]
pub struct VolumeState<'a> {
    restrictions: Option<Restrictions<'a>>,
    limits: Option<Limits<'a>>,
    claims: Option<PodClaims<'a>>,
    zones: Option<Zones<'a>>,
}

/// A pod that has to wait for its volumes, whatever the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// The plugin that says so.
    pub plugin: &'static str,
    /// The message, in kube-scheduler's words.
    pub message: String,
}

impl<'a> VolumeState<'a> {
    /// Whether no volume can refuse a node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.restrictions.is_none() && self.limits.is_none() && self.claims.is_none() && self.zones.is_none()
    }

    /// Looks up the volumes of a spec, as far as the profile checks them.
    ///
    /// # Errors
    /// The first plugin that refuses the pod.
    pub fn new(spec: &'a Spec, plugins: &Plugins, volumes: &'a Volumes) -> Result<Self, NotReady> {
        let (before, filters) = (plugins.pre_filters, plugins.filters);
        let mut state = Self::default();
        if spec.volumes.is_empty() {
            return Ok(state);
        }
        let of = |plugin| move |message| NotReady { plugin, message };
        if before.volume_restrictions || filters.volume_restrictions {
            let restrictions = Restrictions::new(spec, volumes).map_err(of("VolumeRestrictions"))?;
            state.restrictions = restrictions.filter(|_| filters.volume_restrictions);
        }
        if filters.node_volume_limits {
            state.limits = Limits::new(spec, volumes);
        }
        if before.volume_binding || filters.volume_binding {
            let claims = PodClaims::new(spec, volumes).map_err(of("VolumeBinding"))?;
            state.claims = claims.filter(|_| filters.volume_binding);
        }
        if before.volume_zone || filters.volume_zone {
            let zones = Zones::new(spec, volumes).map_err(of("VolumeZone"))?;
            state.zones = zones.filter(|_| filters.volume_zone);
        }
        Ok(state)
    }

    /// Counts that another pod comes to a node (1), or leaves it (-1).
    pub(super) fn shift(&mut self, other: &Spec, more: i64) {
        if let Some(restrictions) = &mut self.restrictions {
            restrictions.shift(other, more);
        }
    }

    /// Whether a node with these totals fits.
    ///
    /// # Errors
    /// The first [`Reason`] against it.
    pub fn filter(&self, totals: &Node, view: &NodeView) -> Result<(), Reason> {
        if let Some(restrictions) = &self.restrictions {
            restrictions.filter(&totals.volumes)?;
        }
        if let Some(limits) = &self.limits {
            limits.filter(&totals.volumes, &view.name)?;
        }
        if let Some(claims) = &self.claims {
            claims.filter(view)?;
        }
        self.zones.as_ref().map_or(Ok(()), |zones| zones.filter(&view.labels))
    }

    /// The claims that VolumeBinding looks at.
    #[must_use]
    pub fn claims(&self) -> Option<&PodClaims<'a>> {
        self.claims.as_ref()
    }
}
