//! NodeResourceTopology in its older version `v1alpha1`, which is served but not stored.
//!
//! In and out: objects of older clients. The API server converts between versions by changing `apiVersion` only, so
//! writers of this version must supply `topologyPolicies` and lose the attributes of the node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::{GROUP, KIND, PLURAL, Zone};
use crate::kind::kind;
use crate::null::null_as_default;

/// The name of this version.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as objects carry them.
pub const API_VERSION: &str = "topology.node.k8s.io/v1alpha1";

/// The NUMA zones of one node and what pods can still get from them. The object has the name of the node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeResourceTopology {
    /// Standard object metadata.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub metadata: ObjectMeta,
    /// Alignment policy and scope of the kubelet in one word; only the first entry counts.
    #[serde(deserialize_with = "null_as_default")]
    pub topology_policies: Vec<String>,
    /// The zones of the node.
    #[serde(deserialize_with = "null_as_default")]
    pub zones: Vec<Zone>,
}

impl From<NodeResourceTopology> for super::NodeResourceTopology {
    fn from(old: NodeResourceTopology) -> Self {
        Self {
            metadata: old.metadata,
            topology_policies: old.topology_policies,
            zones: old.zones,
            attributes: Vec::new(),
        }
    }
}

impl Serialize for NodeResourceTopology {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct(KIND, 5)?;
        object.serialize_field("apiVersion", API_VERSION)?;
        object.serialize_field("kind", KIND)?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("topologyPolicies", &self.topology_policies)?;
        object.serialize_field("zones", &self.zones)?;
        object.end()
    }
}

kind!(NodeResourceTopology, ClusterResourceScope, GROUP, VERSION, API_VERSION, KIND, PLURAL);
