//! A node, reduced to the fields that DeviceConfigs need.
//!
//! In: labels, taints and kernel of a node. Out: [`Node`]. Never: a decision.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use crate::claim::Labels;

pub use api::hardware::keys::CORDON_TAINT;

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `metadata.labels`.
    pub labels: Labels,
    /// The object has a map of labels, even an empty one.
    pub has_labels: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`: the node is cordoned.
    pub unschedulable: bool,
    /// The version of the kernel.
    pub kernel: Arc<str>,
    /// The boot ID of the machine.
    pub boot: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// The time at which this process first saw the cordon taint; `timeAdded` is earlier, and has seconds only.
    pub cordon_taint_seen: Option<Timestamp>,
}

impl Node {
    /// The cordon taint, if the node has it.
    #[must_use]
    pub fn cordon_taint(&self) -> Option<&Taint> {
        self.taints.iter().find(|taint| taint.key == CORDON_TAINT)
    }

    /// The claim that the cordon taint names.
    pub(crate) fn cordon_taint_claim(&self) -> Option<&str> {
        self.cordon_taint()?.value.as_deref()
    }
}
