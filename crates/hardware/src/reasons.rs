//! Reasons of conditions, problems and events.
//!
//! In: nothing. Out: enums whose variants are the words of the API. Never: a reason that docs/hardware.md does not
//! explain, or one there that is never used.

use strum::{AsRefStr, VariantArray};

/// Reasons of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, AsRefStr, VariantArray)]
pub enum Reason {
    /// Everything is as desired; the sample operator's word.
    Reconciled,
    /// `Errored` is false; the sample operator's word.
    Ready,
    /// See the condition `Errored`; the sample operator's word.
    Errored,
    /// The cluster has no KMM.
    KMMNotInstalled,
    /// The spec cannot be applied.
    InvalidSpec,
    /// The namespace is too long to hold a Module.
    NameTooLong,
    /// Another DeviceConfig has nodes that this one asks for; the sample operator's word.
    ConflictingNodeSelector,
    /// No other DeviceConfig asks for its nodes.
    NoConflict,
    /// No other DeviceConfig asks for its nodes, but one could.
    NodeSelectorMayOverlap,
    /// A Module of the same name belongs to another owner.
    ForeignModule,
    /// The Module could not be written; the sample operator's word.
    ModuleFailed,
    /// Another object could not be written.
    WriteFailed,
    /// No node matches.
    NoMatchingNodes,
    /// A node's kernel has no image.
    UnsupportedKernel,
    /// The image for a kernel has not been found.
    ImageNotAvailable,
    /// Nodes get their first version.
    Loading,
    /// Nodes get another version.
    Upgrading,
    /// Changes are under way that have no reason of their own.
    Progressing,
    /// The nodes have not been looked at yet.
    Pending,
    /// Pods use the devices.
    WaitingForPods,
    /// Evicted pods still run after the timeout.
    EvictionTimeout,
    /// Upgrades are paused.
    Paused,
    /// The taints of all nodes keep the driver away.
    Maintenance,
    /// The device plugin is missing on some nodes.
    DevicePluginNotReady,
    /// The spec has no device plugin.
    NotAskedFor,
    /// The device plugin runs on all nodes.
    Running,
    /// The device plugin does not run on all nodes.
    NotRunning,
    /// A former Module still exists.
    FormerModule,
    /// The DeviceConfig is being deleted.
    Deleting,
    /// KMM does not unload the driver.
    DeletionStuck,
    /// No degradation.
    AsExpected,
}

/// Reasons of the problems of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, AsRefStr, VariantArray)]
pub enum ProblemReason {
    /// KMM does not unload the driver.
    StillLoaded,
    /// KMM does not load the driver.
    NotLoaded,
    /// Evicted pods still run after the timeout.
    EvictionTimeout,
    /// The kernel of the node has no image.
    UnsupportedKernel,
    /// The former DeviceConfig of the node has not released it.
    WaitingForFormer,
    /// The driver is not loaded again after a reboot.
    Rebooted,
    /// Pods use the devices.
    PodsUseDevices,
    /// The pods that use the devices are not known yet.
    PodsUnknown,
    /// Taints of the node keep the driver away.
    Maintenance,
}

/// Reasons of events, beside those of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, AsRefStr, VariantArray)]
pub enum EventReason {
    /// All nodes have a new version.
    Upgraded,
    /// Another DeviceConfig asks for nodes of this one.
    NodeSelectorContested,
    /// A node has a kernel without an image.
    UnsupportedKernel,
    /// Evicted pods of a node still run after the timeout.
    EvictionTimeout,
}

#[cfg(test)]
mod tests;
