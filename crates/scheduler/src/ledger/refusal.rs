//! The reason for which the ledger refuses a pod.
//!
//! In: what a check found. Out: a value that reasons of nodes are made of. Never: a judgement.

use std::fmt;

use topology::reason::Misfit;

/// The reason for which the ledger refuses a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kubelet would reject the pod, in at least one possible world.
    Misfit(Misfit),
    /// The state of the node's zones is not known for certain.
    Stale(Doubt),
}

/// What is not known of a node's zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// The node is new, and an exporter may be about to report.
    Awaited,
    /// The report was deleted or cannot be read.
    ReportLost,
    /// No report matched the pods of the node yet.
    Unexplained,
    /// The kubelet has rejected a pod that should have fitted, and no report has come since.
    Contradicted,
    /// Pods of the node may be in several zones, and the verdict depends on it.
    UnknownZones,
    /// Too many pods are on their way, in an order that is not known.
    UnknownOrder,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Awaited => "the first report is awaited",
            Self::ReportLost => "the report is gone or cannot be read",
            Self::Unexplained => "no report matches the pods there yet",
            Self::Contradicted => {
                "the kubelet rejected a pod that should fit, and the next report is awaited"
            }
            Self::UnknownZones => "the zones of pods there are not known",
            Self::UnknownOrder => "the order of pods on their way is not known",
        })
    }
}
