//! Why a pod cannot be placed, as data.
//!
//! In: what admission found. Out: a value that events, logs, the CLI and the simulator render the same way. The short
//! form starts with the texts of the NodeResourceTopologyMatch plugin, since dashboards and tests look for those
//! prefixes.
//!
//! # Example
//! ```
//! use topology::reason::{Constraint, Misfit, Part};
//! use topology::resource::ResourceName;
//!
//! let constraint = Constraint::Short { resource: ResourceName::CPU, requested: 1_500, most: 1_000 };
//! let misfit = Misfit { part: Part::Container, container: 0, constraint };
//! assert_eq!(misfit.part.text(), "cannot align container");
//! assert_eq!(misfit.constraint.to_string(), "cpu: 1500m requested, at most 1 free in one zone");
//! ```

use std::fmt;

use crate::request::ContainerKind;
use crate::resource::ResourceName;

/// The part of a pod that could not be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The pod as a whole (pod scope).
    Pod,
    /// A regular container.
    Container,
    /// An init container that runs to completion.
    InitContainer,
    /// An init container that keeps running.
    Sidecar,
}

/// The first constraint that admission found unsatisfiable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Constraint {
    /// No zone has enough of this resource.
    Short {
        /// The resource.
        resource: ResourceName,
        /// The requested amount, in base units.
        requested: i64,
        /// The largest amount in any zone, in base units.
        most: i64,
    },
    /// Each resource fits some zone, but no zone fits all of them.
    NoCommonZone,
    /// The kubelet hands out whole cores only, and too few are free, or the CPUs fill none (`SMTAlignmentError`).
    WholeCores,
    /// The kubelet aligns this resource but no zone lists it.
    NotListed {
        /// The resource.
        resource: ResourceName,
    },
}

/// Why the kubelet would reject a pod with `TopologyAffinityError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Misfit {
    /// The part that could not be aligned.
    pub part: Part,
    /// Index into the pod's containers; 0 for the pod as a whole.
    pub container: usize,
    /// The first failing constraint.
    pub constraint: Constraint,
}

impl Part {
    /// The part that stands for a container of this kind.
    #[must_use]
    pub fn of(kind: ContainerKind) -> Self {
        match kind {
            ContainerKind::Init => Self::InitContainer,
            ContainerKind::Sidecar => Self::Sidecar,
            ContainerKind::App => Self::Container,
        }
    }

    /// The NodeResourceTopologyMatch plugin's text for the part.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Pod => "cannot align pod",
            Self::Container => "cannot align container",
            Self::InitContainer => "cannot align init container",
            Self::Sidecar => "cannot align sidecar container",
        }
    }
}

impl fmt::Display for Constraint {
    /// Writes amounts in the resource's own units: `cpu: 12 requested, at most 8 free in one zone`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { resource, requested, most } => write!(
                f,
                "{resource}: {} requested, at most {} free in one zone",
                Amount(*resource, *requested),
                Amount(*resource, (*most).max(0))
            ),
            Self::NoCommonZone => f.write_str("no zone has all resources at once"),
            Self::WholeCores => f.write_str("cpu: not enough whole cores"),
            Self::NotListed { resource } => write!(f, "{resource}: no zone lists it"),
        }
    }
}

/// An amount in base units that prints in whole units, or in thousandths of a CPU.
#[derive(Clone, Copy)]
pub struct Amount(pub ResourceName, pub i64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.0.base_units();
        if self.1 % units == 0 { write!(f, "{}", self.1 / units) } else { write!(f, "{}m", self.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_print_with_units() {
        let cpu = ResourceName::CPU;
        for (constraint, text) in [
            (
                Constraint::Short { resource: cpu, requested: 12_000, most: 8_000 },
                "cpu: 12 requested, at most 8 free in one zone",
            ),
            (
                Constraint::Short { resource: cpu, requested: 500, most: -1_000 },
                "cpu: 500m requested, at most 0 free in one zone",
            ),
            (Constraint::NotListed { resource: ResourceName::MEMORY }, "memory: no zone lists it"),
            (Constraint::NoCommonZone, "no zone has all resources at once"),
        ] {
            assert_eq!(constraint.to_string(), text);
        }
    }
}
