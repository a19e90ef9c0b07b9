//! Values of selectors.
//!
//! In: parts of a device, results of operations. Out: what two values are to each other. Never: a copy of the device.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use topology::quantity::Quantity;

use crate::devices::semver::Semver;
use crate::devices::views::Attribute;

/// The fields of the variable `device`.
pub(super) const DEVICE_FIELDS: [&str; 4] = ["driver", "attributes", "capacity", "allowMultipleAllocations"];

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Quantity(Quantity),
    Semver(Semver),
    List(Rc<Vec<Value<'a>>>),
    Map(Rc<Vec<(Value<'a>, Value<'a>)>>),
    /// The variable `device`.
    Device,
    /// `device.attributes`, by domain.
    Attributes,
    /// `device.capacity`, by domain.
    Capacity,
    /// The attributes of a domain; `None`: of one that the device does not have.
    AttributesOf(Option<&'a BTreeMap<String, Attribute>>),
    /// The capacities of a domain.
    CapacityOf(Option<&'a BTreeMap<String, Quantity>>),
}

impl<'a> Value<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// The value of an attribute.
    pub(super) fn attribute(attribute: &'a Attribute) -> Self {
        match attribute {
            Attribute::Bool(value) => Self::Bool(*value),
            Attribute::Int(value) => Self::Int(*value),
            Attribute::Text(value) => Self::text(value),
            Attribute::Version(_, Some(version)) => Self::Semver(version.clone()),
            Attribute::Version(_, None) | Attribute::Unsupported => Self::Null,
        }
    }

    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::List(_) => "list",
            Self::Map(_)
            | Self::Attributes
            | Self::Capacity
            | Self::AttributesOf(_)
            | Self::CapacityOf(_) => "map",
            Self::Device => "kubernetes.DRADevice",
        }
    }

    /// Whether two values are equal; values of different types are not, but for numbers.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Quantity(one), Self::Quantity(other)) => one == other,
            (Self::Semver(one), Self::Semver(other)) => one == other,
            (Self::List(one), Self::List(other)) => {
                one.len() == other.len() && one.iter().zip(other.iter()).all(|(a, b)| a.equals(b))
            }
            (Self::Map(one), Self::Map(other)) => {
                let has =
                    |key: &Self, value: &Self| other.iter().any(|(k, v)| k.equals(key) && v.equals(value));
                one.len() == other.len() && one.iter().all(|(key, value)| has(key, value))
            }
            _ => self.number_order(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two values; `None`: they have none.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            _ => self.number_order(other),
        }
    }

    fn number_order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Uint(one), Self::Uint(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Self::Uint(one), Self::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            _ => self.as_double()?.partial_cmp(&other.as_double()?),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "CEL compares numbers of different types as doubles")]
    fn as_double(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Uint(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }
}
