//! From the wire to `topology`'s values, and back.
//!
//! In: NodeResourceTopology objects and pods, as any program may have written them. Out: checked numbers in base units, or
//! an error that names the field. Never: a guess in favour of "it fits": what cannot be understood is left out or refused,
//! and what is left out is a [`Warning`].

use std::fmt;

use topology::quantity::{Format, Quantity, QuantityError};
use topology::resource::{ResourceName, ResourceNameError};

use crate::nrt::zone_name::ZoneNameError;

mod node;
mod pod;

pub use node::{node_topology, wire_zones};
pub use pod::pod_request;

/// An object that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError {
    /// The field, such as `zones[1].resources[0].available`.
    pub path: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A part of an object that was left out or corrected, and where. The rest is usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The field, such as `zones[2].name`.
    pub path: String,
    /// What is wrong with it and what was done.
    pub problem: Problem,
}

/// What can be wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Not a resource name.
    #[error(transparent)]
    ResourceName(#[from] ResourceNameError),
    /// Below zero.
    #[error("{0} is negative; amounts start at 0")]
    Negative(Quantity),
    /// More than a zone can have.
    #[error("{amount} is too large; the most a zone can have is {limit}")]
    TooLarge {
        /// What was stated.
        amount: Quantity,
        /// What is allowed.
        limit: Quantity,
    },
    /// Two zones with one name, or two entries for one resource.
    #[error("{0:?} is listed twice")]
    Duplicate(String),
    /// Warning: a zone no kubelet can align on.
    #[error("zone {0}: kubelets align on zones 0 to 63 only; left out")]
    OutOfReach(u32),
    /// A feature that changes what the pod needs and is not modelled.
    #[error("{0} are not supported yet")]
    Unsupported(&'static str),
    /// Warning: not a zone name; the zone or distance is left out.
    #[error("{0}; left out")]
    ZoneName(#[from] ZoneNameError),
    /// Warning: a distance that is no distance.
    #[error("{0} is not a distance (0 to 4294967295); left out")]
    Distance(i64),
    /// Warning: more is said to be free than pods may use.
    #[error("{available} is more than the allocatable {allocatable}; taken as {allocatable}")]
    AboveAllocatable {
        /// What was stated.
        available: Quantity,
        /// What is used instead.
        allocatable: Quantity,
    },
    /// Warning: an attribute's value is unknown.
    #[error("unknown value {value:?}; allowed are {allowed}; left out")]
    UnknownValue {
        /// The value, shortened.
        value: String,
        /// The values that mean something.
        allowed: &'static str,
    },
    /// Warning: the fingerprint cannot be compared with ours.
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
    /// The same, seen from the object that encloses the field.
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

/// The quantity of an amount in base units, printing as the exporters write it: decimal, suffixes only for whole thousands.
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
