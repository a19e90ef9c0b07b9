//! Why a pod cannot be placed, as data.
//!
//! In: what admission found. Out: a value that events, logs, the CLI and the simulator render the same way. The short
//! form starts with the texts of the NodeResourceTopologyMatch plugin, since dashboards and tests look for those
//! prefixes.
//!
//! # Example
//! ```
//! use topology::kubelet::hint::ZoneMask;
//! use topology::reason::{Constraint, Misfit, Part};
//! use topology::resource::ResourceName;
//!
//! let constraint =
//!     Constraint::Short { resource: ResourceName::CPU, requested: 1_500, most: 1_000, zones: ZoneMask::of(3) };
//! let misfit = Misfit { part: Part::Container, container: 0, constraint };
//! assert_eq!(misfit.to_string(), "cannot align container: cpu: requested 1500m, most in one zone 1 (zone 3)");
//! ```

use std::fmt;

use crate::kubelet::hint::ZoneMask;
use crate::quantity::{Format, Quantity};
use crate::request::{ContainerKind, PodNeeds};
use crate::resource::{ResourceKind, ResourceName};

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
    /// No zone has enough of this resource, or no set of so many zones as the amount takes.
    Short {
        /// The resource.
        resource: ResourceName,
        /// The requested amount, in base units.
        requested: i64,
        /// The largest amount in any of them, in base units.
        most: i64,
        /// The zones that have it; none if they have no ids below 64, or there are none.
        zones: ZoneMask,
    },
    /// Zones have the memory, and pods that are there hold them in other groups (kubelet memorymanager).
    Grouped,
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

impl Misfit {
    /// The text with the name of the container: `cannot align container "c": cpu: requested 9, most in one zone 8 (zone
    /// 1)`. `needs`: the pod that does not fit.
    #[must_use]
    pub fn text(&self, needs: &PodNeeds) -> String {
        let container = needs.containers.get(self.container).filter(|_| self.part != Part::Pod);
        match container {
            Some(container) => format!("{} {:?}: {}", self.part.text(), container.name, self.constraint),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part.text(), self.constraint)
    }
}

impl fmt::Display for Constraint {
    /// Writes amounts in the resource's own units: `cpu: requested 12, most in one zone 8 (zone 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { resource, requested, most, zones } => {
                let (requested, most) = (Amount(*resource, *requested), Amount(*resource, (*most).max(0)));
                write!(f, "{resource}: requested {requested}, most in ")?;
                match zones.len() {
                    0 => write!(f, "one zone {most}"),
                    1 => write!(f, "one zone {most} (zone {zones})"),
                    count => write!(f, "{count} zones {most} (zones {zones})"),
                }
            }
            Self::Grouped => f.write_str("memory: its zones are in other groups, by the pods there"),
            Self::NoCommonZone => f.write_str("no zone has all resources at once"),
            Self::WholeCores => f.write_str("cpu: not enough whole cores"),
            Self::NotListed { resource } => write!(f, "{resource}: no zone lists it"),
        }
    }
}

/// An amount in base units that prints in whole units, in thousandths of a CPU, or as memory (`2Gi`).
#[derive(Clone, Copy)]
pub struct Amount(pub ResourceName, pub i64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.kind() == ResourceKind::Memory {
            return Quantity::from_i64(self.1, Format::BinarySI).fmt(f);
        }
        let units = self.0.base_units();
        if self.1 % units == 0 { write!(f, "{}", self.1 / units) } else { write!(f, "{}m", self.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_print_with_units() {
        let short = |requested, most, zones: &[u32]| Constraint::Short {
            resource: ResourceName::CPU,
            requested,
            most,
            zones: zones.iter().copied().collect(),
        };
        for (constraint, text) in [
            (short(12_000, 8_000, &[1]), "cpu: requested 12, most in one zone 8 (zone 1)"),
            (short(500, -1_000, &[]), "cpu: requested 500m, most in one zone 0"),
            (short(20_000, 18_000, &[0, 1]), "cpu: requested 20, most in 2 zones 18 (zones 0,1)"),
            (Constraint::NotListed { resource: ResourceName::MEMORY }, "memory: no zone lists it"),
            (Constraint::NoCommonZone, "no zone has all resources at once"),
        ] {
            assert_eq!(constraint.to_string(), text);
        }
    }
}
