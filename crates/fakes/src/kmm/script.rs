//! What the fake does, and which faults it has.

use std::collections::BTreeSet;

/// How far the fake goes on the way of section S1 to S8 of a module's life. Each is reached by writes that a
/// controller above can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing is done.
    S0,
    /// Modules have the finalizer, namespaces their label.
    S1,
    /// Modules say how many nodes match.
    S2,
    /// Images are looked for, and found.
    S3,
    /// Nodes shall have the module.
    S4,
    /// Nodes have it.
    S5,
    /// Nodes are labelled ready; events say so.
    S6,
    /// Modules say how many nodes have it.
    S7,
    /// Device plugins run.
    #[default]
    S8,
}

/// Who runs the DaemonSets of device plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plugins {
    /// The fake writes their status; there are no pods.
    #[default]
    Simulated,
    /// The stock controllers and real kubelets.
    Run,
}

/// The stage up to which the fake works, and its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// How far it goes.
    pub up_to: Stage,
    /// Images whose names contain one of these are never found.
    pub missing: BTreeSet<String>,
    /// Nodes on which worker pods never succeed: nothing is loaded there, nor unloaded.
    pub stuck: BTreeSet<String>,
    /// Nodes on which a device plugin is not ready; of those that are played.
    pub unready: BTreeSet<String>,
    /// Who runs device plugins.
    pub plugins: Plugins,
    /// Whether worker pods are made. No kubelet runs them; on stuck nodes their status shows the failure.
    pub workers: bool,
    /// Resources, and drivers of resource claims, of the devices that a driver serves: to unload it under a pod
    /// that has one is noted.
    pub devices: BTreeSet<String>,
}

impl Script {
    /// Whether it goes so far.
    pub(super) fn reaches(&self, stage: Stage) -> bool {
        self.up_to >= stage
    }

    pub(super) fn is_missing(&self, image: &str) -> bool {
        self.missing.iter().any(|part| image.contains(part.as_str()))
    }
}
