//! A node, as far as DeviceConfigs are concerned.
//!
//! In: labels, taints and kernel of a node. Out: [`Node`]. Never: a decision.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use crate::claim::Labels;

/// The taint by which new pods are kept from a node that is about to change. Modules tolerate it.
pub const CORDON_TAINT: &str = "hardware.tholepin.dev/changing";

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// There is a map of labels, be it empty.
    pub has_labels: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// It is cordoned.
    pub unschedulable: bool,
    /// The version of its kernel.
    pub kernel: Arc<str>,
    /// Which start of the machine this is.
    pub boot: String,
    /// `resourceVersion`.
    pub version: String,
    /// When its fence was first seen here, if it has one: later than it was put up, and to the point, where `timeAdded`
    /// knows seconds.
    pub fence_seen: Option<Timestamp>,
}

impl Node {
    /// The taint that keeps pods away while the driver changes.
    #[must_use]
    pub fn fence(&self) -> Option<&Taint> {
        self.taints.iter().find(|taint| taint.key == CORDON_TAINT)
    }

    /// The claim that it names.
    pub(crate) fn fenced_for(&self) -> Option<&str> {
        self.fence()?.value.as_deref()
    }
}
