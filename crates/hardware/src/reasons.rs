//! Reasons of conditions, of problems and of events.
//!
//! In and out: nothing but names. Never: a word that docs/hardware.md does not explain, nor one there that is never
//! said.

/// An enum whose variants are words, with all of them.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$word_about:meta])* $word:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$word_about])* $word,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$word,)+];

            /// As it is written.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)+
                }
            }
        }
    };
}

words! {
    /// Reasons of conditions.
    Reason {
        /// All is as asked for; the sample operator's word.
        Reconciled,
        /// All is well, said of `Errored`; the sample operator's word.
        Ready,
        /// See the condition `Errored`; the sample operator's word.
        Errored,
        /// The cluster has no KMM.
        KMMNotInstalled,
        /// The object asks for what cannot be.
        InvalidSpec,
        /// The namespace is too long to hold a Module.
        NameTooLong,
        /// Another has nodes that this one asks for; the sample operator's word.
        ConflictingNodeSelector,
        /// No other DeviceConfig asks for its nodes.
        NoConflict,
        /// No other DeviceConfig asks for its nodes, but one could.
        NodeSelectorMayOverlap,
        /// A Module of the same name belongs to another owner.
        ForeignModule,
        /// The Module could not be written; the sample operator's word.
        ModuleFailed,
        /// Something else could not be written.
        WriteFailed,
        /// No node is matched.
        NoMatchingNodes,
        /// A node's kernel has no image.
        UnsupportedKernel,
        /// The image for a kernel has not been found.
        ImageNotAvailable,
        /// Nodes get their first version.
        Loading,
        /// Nodes get another version.
        Upgrading,
        /// Something is under way that has no word of its own.
        Progressing,
        /// Nothing has been looked at yet.
        Pending,
        /// Pods use the devices.
        WaitingForPods,
        /// Pods that were asked to go are still there.
        EvictionTimeout,
        /// Upgrades are paused.
        Paused,
        /// All nodes are kept from having the driver by their taints.
        Maintenance,
        /// The device plugin is missing somewhere.
        DevicePluginNotReady,
        /// No device plugin is asked for.
        NotAskedFor,
        /// The device plugin runs everywhere.
        Running,
        /// The device plugin does not run everywhere.
        NotRunning,
        /// A former Module has not gone yet.
        FormerModule,
        /// It is being taken away.
        Deleting,
        /// KMM does not unload the driver.
        DeletionStuck,
        /// Nothing is worse than it should be.
        AsExpected,
    }
}

words! {
    /// Reasons of the problems of nodes.
    ProblemReason {
        /// KMM does not unload the driver.
        StillLoaded,
        /// KMM does not load the driver.
        NotLoaded,
        /// Pods that were asked to go are still there.
        EvictionTimeout,
        /// Its kernel has no image.
        UnsupportedKernel,
        /// The former DeviceConfig of the node has not left it.
        WaitingForFormer,
        /// The driver is not loaded again since the machine was started.
        Rebooted,
        /// Pods use the devices.
        PodsUseDevices,
        /// The pods that use the devices are not known yet.
        PodsUnknown,
        /// Its taints keep the driver away.
        Maintenance,
    }
}

words! {
    /// Reasons of Events, beside those of conditions that turn.
    EventReason {
        /// All nodes have another version than before.
        Upgraded,
        /// Another asks for nodes of this one.
        NodeSelectorContested,
        /// A kernel without an image has been met.
        UnsupportedKernel,
        /// Pods of a node that were asked to go are still there.
        EvictionTimeout,
    }
}

#[cfg(test)]
mod tests;
