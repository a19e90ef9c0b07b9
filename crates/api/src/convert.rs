//! Conversion between objects of the API and `topology`'s values.
//!
//! In: NodeResourceTopology objects and pods of any program. Out: checked numbers in base units, or an error that names
//! the field. Never: a guess in favour of "it fits". A part that cannot be understood is refused, or left out with a
//! [`Warning`].
//!
//! ```
//! use api::convert::node_topology;
//! use api::nrt::NodeResourceTopology;
//!
//! let object: NodeResourceTopology = serde_json::from_value(serde_json::json!({
//!     "metadata": { "name": "worker-0" },
//!     "zones": [{ "name": "node-0", "type": "Node", "resources": [
//!         { "name": "cpu", "capacity": "16", "allocatable": "14", "available": "10" },
//!     ] }],
//! }))?;
//! let (topology, warnings) = node_topology(&object)?;
//! assert_eq!(topology.zones[0].resources[0].available, 10_000); // thousandths of a CPU
//! assert!(warnings.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use topology::quantity::{Format, Quantity, QuantityError};
use topology::resource::{ResourceName, ResourceNameError};

use crate::nrt::zone_name::ZoneNameError;

mod kubelet;
mod node;
mod pod;

pub use kubelet::kubelet_report;
pub use node::{node_topology, wire_zones};
pub use pod::{allocated_request, charged_request, pod_request, whole_pod_request};

/// An object that cannot be used, because of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError {
    /// The field, such as `zones[1].resources[0].available`.
    pub path: String,
    /// The problem.
    pub problem: Problem,
}

/// A part of an object that was left out or corrected. The rest is usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The field, such as `zones[2].name`.
    pub path: String,
    /// The problem and its consequence.
    pub problem: Problem,
}

/// A problem with the value of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Text that is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Text that is no resource name.
    #[error(transparent)]
    ResourceName(#[from] ResourceNameError),
    /// Text that is no list of CPUs.
    #[error(transparent)]
    Cpus(#[from] topology::cpuset::CpuSetError),
    /// Text that says no cores.
    #[error(transparent)]
    Siblings(#[from] topology::siblings::SiblingsError),
    /// Text that says nothing of what containers hold.
    #[error(transparent)]
    Holdings(#[from] topology::placement::holdings::HoldingsError),
    /// An amount below zero.
    #[error("{0} is negative; amounts start at 0")]
    Negative(Quantity),
    /// An amount above the limit for a zone.
    #[error("{amount} is too large; the most a zone can have is {limit}")]
    TooLarge {
        /// The stated amount.
        amount: Quantity,
        /// The limit.
        limit: Quantity,
    },
    /// Two zones of one name, or two entries for one resource.
    #[error("{0:?} is listed twice")]
    Duplicate(String),
    /// Warning: a zone that kubelets cannot align on.
    #[error("zone {0}: kubelets align on zones 0 to 63 only; left out")]
    OutOfReach(u32),
    /// Warning: an invalid zone name; the zone or distance is left out.
    #[error("{0}; left out")]
    ZoneName(#[from] ZoneNameError),
    /// Warning: a number that is no distance.
    #[error("{0} is not a distance (0 to 4294967295); left out")]
    Distance(i64),
    /// Warning: more available than allocatable.
    #[error("{available} is more than the allocatable {allocatable}; taken as {allocatable}")]
    AboveAllocatable {
        /// The stated amount.
        available: Quantity,
        /// The amount used instead.
        allocatable: Quantity,
    },
    /// Warning: an attribute with an unknown value.
    #[error("unknown value {value:?}; allowed are {allowed}; left out")]
    UnknownValue {
        /// The value, shortened.
        value: String,
        /// The known values.
        allowed: &'static str,
    },
    /// Warning: a fingerprint that cannot be compared.
    #[error("{0}; left out")]
    Fingerprint(#[from] topology::fingerprint::FingerprintError),
}

impl Problem {
    fn at(self, path: impl Into<String>) -> ConvertError {
        ConvertError { path: path.into(), problem: self }
    }

    fn unknown(value: &str, allowed: &'static str) -> Self {
        Self::UnknownValue { value: value.chars().take(64).collect(), allowed }
    }
}

impl ConvertError {
    /// The same error, with the path of the enclosing object before it.
    fn within(mut self, parent: &str) -> Self {
        self.path.insert_str(0, parent);
        self
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for ConvertError {}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// A requested amount in base units ([`ResourceName::base_units`]), rounded up: never ask for less.
#[must_use]
pub fn amount(name: ResourceName, quantity: Quantity) -> i64 {
    if name == ResourceName::CPU { quantity.milli_value() } else { quantity.value() }
}

/// An available amount in base units ([`ResourceName::base_units`]), rounded down: never promise more.
#[must_use]
pub fn amount_available(name: ResourceName, quantity: Quantity) -> i64 {
    if name == ResourceName::CPU { quantity.floor_milli() } else { quantity.floor_value() }
}

/// The quantity of an amount in base units, in the form that exporters write: decimal, with suffixes for whole
/// thousands only.
#[must_use]
pub fn quantity(name: ResourceName, amount: i64) -> Quantity {
    if name == ResourceName::CPU {
        Quantity::from_milli(amount, Format::DecimalSI)
    } else {
        Quantity::from_i64(amount, Format::DecimalSI)
    }
}

#[cfg(test)]
mod tests;
