//! The PodGroup definition that scheduler-plugins' controller watches.
//!
//! In: nothing. Out: the CustomResourceDefinition of `scheduling.sigs.k8s.io/v1alpha1`. Never: a PodGroup.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps, JSONSchemaPropsOrBool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::meta::{cluster, labels};

/// The API group.
pub const GROUP: &str = "scheduling.sigs.k8s.io";
/// The approval that the API server demands for groups under `k8s.io`.
const APPROVED: &str = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50";

/// The CustomResourceDefinition.
#[must_use]
pub fn definition() -> CustomResourceDefinition {
    let schema = object([
        ("apiVersion", of_type("string")),
        ("kind", of_type("string")),
        ("metadata", of_type("object")),
        ("spec", spec()),
        ("status", status()),
    ]);
    let version = CustomResourceDefinitionVersion {
        name: "v1alpha1".to_owned(),
        served: true,
        storage: true,
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        ..CustomResourceDefinitionVersion::default()
    };
    let names = CustomResourceDefinitionNames {
        kind: "PodGroup".to_owned(),
        list_kind: Some("PodGroupList".to_owned()),
        plural: "podgroups".to_owned(),
        singular: Some("podgroup".to_owned()),
        short_names: Some(["pg", "pgs"].map(str::to_owned).to_vec()),
        ..CustomResourceDefinitionNames::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta {
            annotations: Some(labels([(api::keys::ANNOTATION_API_APPROVED, APPROVED)])),
            ..cluster(&format!("podgroups.{GROUP}"))
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names,
            scope: "Namespaced".to_owned(),
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

fn spec() -> JSONSchemaProps {
    let quantities = JSONSchemaPropsOrBool::Schema(Box::new(of_type("string")));
    object([
        ("minMember", JSONSchemaProps { minimum: Some(1.0), ..integer() }),
        ("scheduleTimeoutSeconds", integer()),
        ("minResources", JSONSchemaProps { additional_properties: Some(quantities), ..of_type("object") }),
    ])
}

fn status() -> JSONSchemaProps {
    let count = || {
        let zero = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON(0.into());
        JSONSchemaProps { default: Some(zero), ..integer() }
    };
    object([
        ("phase", of_type("string")),
        ("occupiedBy", of_type("string")),
        ("scheduled", count()),
        ("running", count()),
        ("succeeded", count()),
        ("failed", count()),
        ("scheduleStartTime", JSONSchemaProps { format: Some("date-time".to_owned()), ..of_type("string") }),
    ])
}

fn object<const N: usize>(properties: [(&str, JSONSchemaProps); N]) -> JSONSchemaProps {
    let properties = properties.map(|(name, schema)| (name.to_owned(), schema)).into();
    JSONSchemaProps { properties: Some(properties), ..of_type("object") }
}

fn integer() -> JSONSchemaProps {
    JSONSchemaProps { format: Some("int32".to_owned()), ..of_type("integer") }
}

fn of_type(kind: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(kind.to_owned()), ..JSONSchemaProps::default() }
}
