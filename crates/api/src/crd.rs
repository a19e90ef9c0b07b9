//! CustomResourceDefinitions, built from the types they describe.
//!
//! In: nothing. Out: typed definitions to install, and the same as YAML for people. Never: a schema written by hand beside
//! the types, which would drift from them.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::{keys, nrt};

/// [`nrt_crd`] as YAML, for `kubectl apply -f`. A test keeps the two the same.
pub const NRT_CRD_YAML: &str = include_str!("../crds/noderesourcetopologies.yaml");

/// The enhancement that approved the group; the API server wants the link for groups under `k8s.io`.
const API_APPROVED: &str = "https://github.com/kubernetes/enhancements/pull/1870";

/// The definition of NodeResourceTopology: both versions served, the newer one stored, no conversion webhook.
#[must_use]
pub fn nrt_crd() -> CustomResourceDefinition {
    let annotations = BTreeMap::from([(keys::ANNOTATION_API_APPROVED.to_owned(), API_APPROVED.to_owned())]);
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", nrt::PLURAL, nrt::GROUP)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: nrt::GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: nrt::KIND.to_owned(),
                list_kind: Some(format!("{}List", nrt::KIND)),
                plural: nrt::PLURAL.to_owned(),
                short_names: Some(vec!["node-res-topo".to_owned()]),
                singular: Some("noderesourcetopology".to_owned()),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Cluster".to_owned(),
            versions: vec![
                version(nrt::v1alpha1::VERSION, false, schema::<nrt::v1alpha1::NodeResourceTopology>()),
                version(nrt::VERSION, true, schema::<nrt::NodeResourceTopology>()),
            ],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// A served version without subresources.
fn version(name: &str, storage: bool, schema: JSONSchemaProps) -> CustomResourceDefinitionVersion {
    CustomResourceDefinitionVersion {
        name: name.to_owned(),
        served: true,
        storage,
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        ..CustomResourceDefinitionVersion::default()
    }
}

/// The structural schema of a type, with the three fields every object has.
fn schema<T: JsonSchema>() -> JSONSchemaProps {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let generator = settings.with_transform(RecursiveTransform(join_lines)).into_generator();
    let schema = generator.into_root_schema_for::<T>();
    // A schema that does not fit would be a defect of the types; the snapshot test sees every one of them.
    let mut props: JSONSchemaProps = serde_json::from_value(schema.to_value()).unwrap_or_default();
    props.title = None;
    let property = |kind: &str, description: &str| JSONSchemaProps {
        type_: Some(kind.to_owned()),
        description: (!description.is_empty()).then(|| description.to_owned()),
        ..JSONSchemaProps::default()
    };
    let properties = props.properties.get_or_insert_default();
    properties
        .insert("apiVersion".to_owned(), property("string", "Group and version of this object's schema."));
    properties.insert("kind".to_owned(), property("string", "Kind of this object."));
    // The API server knows what metadata is and wants no more said.
    properties.insert("metadata".to_owned(), property("object", ""));
    props
}

/// Doc comments are broken into lines for readers of the code; readers of the schema want sentences.
fn join_lines(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

#[cfg(test)]
mod tests;
