//! CustomResourceDefinitions, built from the types they describe.
//!
//! In: nothing. Out: typed definitions to install, and the same as YAML for `kubectl apply -f`. Never: a schema written
//! by hand, which would drift from the types.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;

use crate::hardware::{self, DeviceConfig};
use crate::numaresources::{self, NumaResourcesOperator, NumaResourcesScheduler, operator, scheduler};
use crate::{keys, nrt};
use schema::{schema, without_rules};

mod schema;

/// [`nrt_crd`] as YAML. A test keeps the two equal.
pub const NRT_CRD_YAML: &str = include_str!("../crds/noderesourcetopologies.yaml");
/// [`operator_crd`] as YAML.
pub const OPERATOR_CRD_YAML: &str = include_str!("../crds/numaresourcesoperators.yaml");
/// [`scheduler_crd`] as YAML.
pub const SCHEDULER_CRD_YAML: &str = include_str!("../crds/numaresourcesschedulers.yaml");
/// [`device_config_crd`] as YAML.
pub const DEVICE_CONFIG_CRD_YAML: &str = include_str!("../crds/deviceconfigs.yaml");

/// The approval of the API group, a link that the API server requires for groups under `k8s.io`.
const API_APPROVED: &str = "https://github.com/kubernetes/enhancements/pull/1870";

/// Category of the operator's kinds: `kubectl get numa`.
const CATEGORY: &str = "numa";
/// Category of the kinds in groups of this project: `kubectl get tholepin`.
const OWN_CATEGORY: &str = "tholepin";

/// The definition of NodeResourceTopology: both versions served, `v1alpha2` stored, no conversion webhook.
#[must_use]
pub fn nrt_crd() -> CustomResourceDefinition {
    let attribute = |name: &str| format!(".attributes[?(@.name==\"{name}\")].value");
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
                report(
                    nrt::v1alpha1::VERSION,
                    false,
                    schema::<nrt::v1alpha1::NodeResourceTopology>(),
                    &[("Policy", ".topologyPolicies[0]".to_owned())],
                ),
                report(
                    nrt::VERSION,
                    true,
                    schema::<nrt::NodeResourceTopology>(),
                    &[
                        ("Policy", attribute(keys::ATTRIBUTE_POLICY)),
                        ("Scope", attribute(keys::ATTRIBUTE_SCOPE)),
                    ],
                ),
            ],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// A version of NodeResourceTopology with columns of `kubectl get`, which the peers' definitions lack, and the age.
///
/// Zones are no column: of several values of a path the API server shows the first.
fn report(
    name: &str,
    storage: bool,
    schema: JSONSchemaProps,
    columns: &[(&str, String)],
) -> CustomResourceDefinitionVersion {
    let columns = columns.iter().map(|(name, path)| column(name, path)).chain([age()]);
    CustomResourceDefinitionVersion {
        additional_printer_columns: Some(columns.collect()),
        ..version(name, storage, schema)
    }
}

/// The definition of NUMAResourcesOperator: `v1` stored, `v1alpha1` served and deprecated.
#[must_use]
pub fn operator_crd() -> CustomResourceDefinition {
    let columns = conditions_and(&[]);
    operator_kind::<NumaResourcesOperator>(operator::KIND, operator::PLURAL, "numaresop", &columns)
}

/// The definition of NUMAResourcesScheduler: `v1` stored, `v1alpha1` served and deprecated.
#[must_use]
pub fn scheduler_crd() -> CustomResourceDefinition {
    let columns = conditions_and(&[("Scheduler", ".status.schedulerName")]);
    operator_kind::<NumaResourcesScheduler>(scheduler::KIND, scheduler::PLURAL, "numaressched", &columns)
}

/// The definition of DeviceConfig, `v1alpha1`, with its status subresource and printer columns.
#[must_use]
pub fn device_config_crd() -> CustomResourceDefinition {
    let mut schema = schema::<DeviceConfig>();
    if let Some(status) = schema.properties.as_mut().and_then(|properties| properties.get_mut("status")) {
        without_rules(status);
    }
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", hardware::PLURAL, hardware::GROUP)),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: hardware::GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: hardware::KIND.to_owned(),
                list_kind: Some(format!("{}List", hardware::KIND)),
                plural: hardware::PLURAL.to_owned(),
                short_names: Some(vec![hardware::SHORT_NAME.to_owned()]),
                singular: Some(hardware::KIND.to_lowercase()),
                categories: Some(vec![OWN_CATEGORY.to_owned()]),
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                additional_printer_columns: Some(device_config_columns()),
                subresources: Some(status_subresource()),
                ..version(hardware::VERSION, true, schema)
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// The columns of `kubectl get deviceconfigs`: the phase, and the reason why an object is not ready.
fn device_config_columns() -> Vec<CustomResourceColumnDefinition> {
    let of = |kind: &str, field: &str| format!(".status.conditions[?(@.type==\"{kind}\")].{field}");
    let columns = [
        ("Ready", "string", of(hardware::keys::READY, "status"), 0),
        ("Phase", "string", ".status.phase".to_owned(), 0),
        ("Reason", "string", of(hardware::keys::READY, "reason"), 0),
        ("Version", "string", ".spec.driverVersion".to_owned(), 0),
        ("Desired", "integer", ".status.nodes.desired".to_owned(), 0),
        ("Available", "integer", ".status.nodes.available".to_owned(), 0),
        ("Age", "date", ".metadata.creationTimestamp".to_owned(), 0),
        ("Module", "string", ".status.module.name".to_owned(), 1),
        ("Message", "string", of(hardware::keys::READY, "message"), 1),
    ];
    let column =
        |(name, type_, json_path, priority): (&str, &str, String, i32)| CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path,
            priority: (priority > 0).then_some(priority),
            ..CustomResourceColumnDefinition::default()
        };
    columns.map(column).to_vec()
}

/// The status subresource, which is written separately.
fn status_subresource() -> CustomResourceSubresources {
    CustomResourceSubresources {
        status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
        ..CustomResourceSubresources::default()
    }
}

/// The definition of a kind of the operator's API. Both versions have the same schema, so the API server converts
/// nothing and no field is lost in either version.
fn operator_kind<T: JsonSchema>(
    kind: &str,
    plural: &str,
    short: &str,
    columns: &[CustomResourceColumnDefinition],
) -> CustomResourceDefinition {
    let mut schema = schema::<T>();
    if let Some(status) = schema.properties.as_mut().and_then(|properties| properties.get_mut("status")) {
        without_rules(status);
    }
    let version = |name: &str, storage: bool| CustomResourceDefinitionVersion {
        additional_printer_columns: Some(columns.to_vec()),
        subresources: Some(status_subresource()),
        ..version(name, storage, schema.clone())
    };
    let old = numaresources::OLD_VERSION;
    let warning =
        format!("{}/{old} {kind} is deprecated; use {}", numaresources::GROUP, numaresources::VERSION);
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{}", numaresources::GROUP)),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: numaresources::GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.to_owned(),
                list_kind: Some(format!("{kind}List")),
                plural: plural.to_owned(),
                short_names: Some(vec![short.to_owned()]),
                singular: Some(kind.to_lowercase()),
                categories: Some(vec![CATEGORY.to_owned()]),
            },
            scope: "Cluster".to_owned(),
            versions: vec![
                CustomResourceDefinitionVersion {
                    deprecated: Some(true),
                    deprecation_warning: Some(warning),
                    ..version(old, false)
                },
                version(numaresources::VERSION, true),
            ],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// The columns of `kubectl get`: the given texts, the main conditions, the reason of `Degraded` (with `-o wide`), and
/// the age.
fn conditions_and(texts: &[(&str, &str)]) -> Vec<CustomResourceColumnDefinition> {
    let of = |kind: &str, field: &str| format!(".status.conditions[?(@.type==\"{kind}\")].{field}");
    let mut columns: Vec<_> = texts.iter().map(|(name, path)| column(name, path)).collect();
    columns.extend(["Available", "Progressing", "Degraded"].map(|kind| column(kind, &of(kind, "status"))));
    for (name, field) in [("Reason", "reason"), ("Message", "message")] {
        columns.push(CustomResourceColumnDefinition {
            priority: Some(1),
            ..column(name, &of("Degraded", field))
        });
    }
    columns.push(age());
    columns
}

/// A column of text.
fn column(name: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        json_path: json_path.to_owned(),
        type_: "string".to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// The column of the age, which tables without columns of their own have by themselves.
fn age() -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        type_: "date".to_owned(),
        ..column("Age", ".metadata.creationTimestamp")
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

#[cfg(test)]
mod tests;
