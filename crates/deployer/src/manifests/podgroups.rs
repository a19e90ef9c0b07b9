//! The PodGroup definition that scheduler-plugins' controller watches.
//!
//! In: nothing. Out: the CustomResourceDefinition of `scheduling.sigs.k8s.io/v1alpha1`. Never: a PodGroup.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use objects::{Object, ObjectKind};
use serde_json::json;

/// The API group.
pub const GROUP: &str = "scheduling.sigs.k8s.io";
/// The approval that the API server demands for groups under `k8s.io`.
const APPROVED: &str = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50";

/// The CustomResourceDefinition.
#[must_use]
pub fn definition() -> Object {
    let (text, integer) = (json!({ "type": "string" }), json!({ "type": "integer", "format": "int32" }));
    let count = json!({ "type": "integer", "format": "int32", "default": 0 });
    let spec = json!({
        "minMember": { "type": "integer", "format": "int32", "minimum": 1.0 },
        "scheduleTimeoutSeconds": integer,
        "minResources": { "type": "object", "additionalProperties": text },
    });
    let status = json!({
        "phase": text,
        "occupiedBy": text,
        "scheduled": count,
        "running": count,
        "succeeded": count,
        "failed": count,
        "scheduleStartTime": { "type": "string", "format": "date-time" },
    });
    let schema = json!({ "type": "object", "properties": {
        "apiVersion": text,
        "kind": text,
        "metadata": { "type": "object" },
        "spec": { "type": "object", "properties": spec },
        "status": { "type": "object", "properties": status },
    } });
    let names = json!({
        "kind": "PodGroup",
        "listKind": "PodGroupList",
        "plural": "podgroups",
        "singular": "podgroup",
        "shortNames": ["pg", "pgs"],
    });
    let schema = json!({ "openAPIV3Schema": schema });
    let body = json!({
        "metadata": {
            "name": format!("podgroups.{GROUP}"),
            "annotations": { api::keys::ANNOTATION_API_APPROVED: APPROVED },
        },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": schema }],
        },
    });
    Object::typed(ObjectKind::of::<CustomResourceDefinition>(), &body)
}
