//! NodeResourceTopology (`topology.node.k8s.io`): the NUMA zones of a node, as an exporter publishes them.
//!
//! In: objects of any exporter, read leniently (unknown fields are ignored, amounts may be numbers or text). Out: typed
//! objects with one stable JSON form, without empty optional lists. Never: a check of the numbers; amounts stay text
//! until [`crate::convert`] reads them.
//!
//! The doc comments of fields are the descriptions in the CRD ([`crate::crd`]).

#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Visitor};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};
#[cfg(feature = "convert")]
use topology::quantity::{Quantity, QuantityError};

use crate::kind::kind;
use crate::null::null_as_default;

pub mod attribute;
pub mod v1alpha1;
#[cfg(feature = "convert")]
pub mod zone_name;

/// The API group.
pub const GROUP: &str = "topology.node.k8s.io";
/// The kind, as objects state it.
pub const KIND: &str = "NodeResourceTopology";
/// The resource name in URLs and RBAC rules.
pub const PLURAL: &str = "noderesourcetopologies";
/// The stored version, which [`NodeResourceTopology`] has.
pub const VERSION: &str = "v1alpha2";
/// Group and version, as objects carry them.
pub const API_VERSION: &str = "topology.node.k8s.io/v1alpha2";
/// The type of zones that are NUMA nodes. Comparison is case-sensitive, as in the Go scheduler.
pub const ZONE_TYPE_NODE: &str = "Node";

/// The NUMA zones of one node and what pods can still get from them. The object has the name of the node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeResourceTopology {
    /// Standard object metadata.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub metadata: ObjectMeta,
    /// Alignment policy and scope of the kubelet in one word; only the first entry counts. Deprecated: use the
    /// attributes topologyManagerPolicy and topologyManagerScope.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub topology_policies: Vec<String>,
    /// The zones of the node.
    #[serde(deserialize_with = "null_as_default")]
    pub zones: Vec<Zone>,
    /// Facts about the node as a whole, such as the kubelet's alignment settings and the pod fingerprint.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
}

/// A part of the node that shares resources, normally a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// Name of the zone, unique in the node: `node-` and the number the kernel gives the NUMA node.
    pub name: String,
    /// What the zone is; `Node` for a NUMA node.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the zone that encloses this one, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// Distances from this zone to all zones, itself included.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<Cost>,
    /// Facts about the zone.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// Resources of the zone.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
}

/// Distance to a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Name of the zone the distance is to.
    pub name: String,
    /// The distance as the firmware states it; 10 is local.
    pub value: i64,
}

/// A fact as a name and a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Attribute {
    /// Name of the attribute.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl NodeResourceTopology {
    /// Reads an object of either version.
    ///
    /// # Errors
    /// When a field is missing or has another type.
    pub fn from_json(mut object: serde_json::Value) -> serde_json::Result<Self> {
        if object.get("apiVersion").and_then(serde_json::Value::as_str) != Some(v1alpha1::API_VERSION) {
            return serde_json::from_value(object);
        }
        // An object stored as the newer version may lack a field that the older version requires.
        if let Some(fields) = object.as_object_mut() {
            fields.entry("topologyPolicies").or_insert_with(|| Vec::<serde_json::Value>::new().into());
        }
        serde_json::from_value::<v1alpha1::NodeResourceTopology>(object).map(Self::from)
    }
}

/// How much of a resource a zone has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Name of the resource, as in pod requests.
    pub name: String,
    /// What the zone has in all.
    pub capacity: Amount,
    /// What pods may use of it.
    pub allocatable: Amount,
    /// What of that no running pod holds for itself.
    pub available: Amount,
}

/// An amount as text, such as `16Gi` or `2500m`. The text is not checked; with the feature `convert`, `Amount::parse`
/// reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Amount(pub String);

#[cfg(feature = "convert")]
impl Amount {
    /// The amount as a quantity. White space around it is ignored, as in Go.
    ///
    /// # Errors
    /// When the text is not a quantity.
    pub fn parse(&self) -> Result<Quantity, QuantityError> {
        Quantity::parse(self.0.trim())
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self("0".to_owned())
    }
}

#[cfg(feature = "convert")]
impl From<Quantity> for Amount {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;

        impl Visitor<'_> for AnyScalar {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a number or a text such as \"16Gi\"")
            }

            fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }
        }

        deserializer.deserialize_any(AnyScalar)
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

/// The pattern that Kubernetes' own schema generator sets for quantities.
#[cfg(feature = "schema")]
const QUANTITY_PATTERN: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

impl Serialize for NodeResourceTopology {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct(KIND, 6)?;
        object.serialize_field("apiVersion", API_VERSION)?;
        object.serialize_field("kind", KIND)?;
        object.serialize_field("metadata", &self.metadata)?;
        if !self.topology_policies.is_empty() {
            object.serialize_field("topologyPolicies", &self.topology_policies)?;
        }
        object.serialize_field("zones", &self.zones)?;
        if !self.attributes.is_empty() {
            object.serialize_field("attributes", &self.attributes)?;
        }
        object.end()
    }
}

kind!(NodeResourceTopology, ClusterResourceScope, GROUP, VERSION, API_VERSION, KIND, PLURAL);

#[cfg(test)]
mod tests;
