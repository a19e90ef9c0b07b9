//! The Go operator's definitions, as far as known: both versions with their own schemas, no conversion, no columns, and
//! the name checked in the newer version only.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The schema of an object with fields, some of them required.
fn fields(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn text() -> Value {
    json!({"type": "string"})
}

fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

fn log_level() -> Value {
    json!({"type": "string", "enum": ["", "Normal", "Debug", "Trace", "TraceAll"], "default": "Normal"})
}

fn name() -> Value {
    fields(json!({"namespace": text(), "name": text()}), &[])
}

fn selector() -> Value {
    let values = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"});
    let mut expressions =
        list(fields(json!({"key": text(), "operator": text(), "values": values}), &["key", "operator"]));
    expressions["x-kubernetes-list-type"] = json!("atomic");
    let mut selector = fields(json!({"matchLabels": texts(), "matchExpressions": expressions}), &[]);
    selector["x-kubernetes-map-type"] = json!("atomic");
    selector
}

fn conditions() -> Value {
    let time = json!({"type": "string", "format": "date-time"});
    let condition = json!({
        "lastTransitionTime": time,
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {
            "type": "string", "minLength": 1, "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "status": words(&["True", "False", "Unknown"]),
        "type": {"type": "string", "maxLength": 316},
    });
    list(fields(condition, &["lastTransitionTime", "message", "reason", "status", "type"]))
}

fn related() -> Value {
    let reference = json!({"group": text(), "resource": text(), "namespace": text(), "name": text()});
    list(fields(reference, &["group", "name", "resource"]))
}

fn old_config() -> Value {
    json!({
        "podsFingerprinting": words(&["Disabled", "Enabled", "EnabledExclusiveResources"]),
        "infoRefreshMode": words(&["Periodic", "Events", "PeriodicAndEvents"]),
        "infoRefreshPeriod": text(),
    })
}

fn new_config() -> Value {
    let seconds = json!({"type": "integer", "format": "int64"});
    let toleration = json!({
        "key": text(), "operator": text(), "value": text(), "effect": text(), "tolerationSeconds": seconds,
    });
    let mut config = old_config();
    config["infoRefreshPause"] = words(&["Disabled", "Enabled"]);
    config["tolerations"] = list(fields(toleration, &[]));
    config
}

fn pools(config: Value) -> Value {
    let condition = json!({
        "lastTransitionTime": {"type": "string", "format": "date-time", "nullable": true},
        "message": text(), "reason": text(), "status": text(), "type": text(),
    });
    let conditions = list(fields(condition, &["lastTransitionTime", "status", "type"]));
    list(fields(json!({"name": text(), "conditions": conditions, "config": fields(config, &[])}), &["name"]))
}

/// A definition with both versions, each `(spec, status)`; the newer one requires the object name.
fn definition(
    kind: &str,
    short: &str,
    only: &str,
    old: (Value, Value),
    new: (Value, Value),
) -> CustomResourceDefinition {
    let plural = format!("{only}s");
    let version = |name: &str, storage: bool, (spec, status): (Value, Value)| {
        let fields = json!({
            "apiVersion": text(), "kind": text(), "metadata": {"type": "object"}, "spec": spec, "status": status,
        });
        json!({
            "name": name, "served": true, "storage": storage, "deprecated": !storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        })
    };
    let mut newer = version("v1", true, new);
    newer["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([{
        "rule": format!("has(self.metadata.name) && self.metadata.name == '{only}'"),
        "message": format!("the object name must be '{only}'."),
    }]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.nodetopology.openshift.io"),
            "annotations": {"controller-gen.kubebuilder.io/version": "v0.17.3"},
        },
        "spec": {
            "group": "nodetopology.openshift.io", "scope": "Cluster",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": only, "shortNames": [short]},
            "versions": [newer, version("v1alpha1", false, old)],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// NUMAResourcesOperator.
pub(crate) fn operator_peer() -> CustomResourceDefinition {
    let spec = |group: Value| {
        let spec = json!({
            "nodeGroups": list(fields(group, &[])), "imageSpec": text(), "logLevel": log_level(), "podExcludes": list(name()),
        });
        fields(spec, &[])
    };
    let old = json!({
        "machineConfigPoolSelector": selector(), "disablePodsFingerprinting": {"type": "boolean"},
        "config": fields(old_config(), &[]),
    });
    let old_status = json!({
        "daemonsets": list(name()), "machineconfigpools": pools(old_config()), "conditions": conditions(),
    });
    let new = json!({
        "machineConfigPoolSelector": selector(), "poolName": text(), "annotations": texts(),
        "config": fields(new_config(), &[]),
    });
    let group = json!({"daemonsets": name(), "config": fields(new_config(), &[]), "selector": text()});
    let new_status = json!({
        "daemonsets": list(name()), "machineconfigpools": pools(new_config()), "conditions": conditions(),
        "nodeGroups": list(fields(group, &["config", "daemonsets", "selector"])), "relatedObjects": related(),
    });
    definition(
        "NUMAResourcesOperator",
        "numaresop",
        "numaresourcesoperator",
        (spec(old), fields(old_status, &[])),
        (spec(new), fields(new_status, &[])),
    )
}

/// NUMAResourcesScheduler.
pub(crate) fn scheduler_peer() -> CustomResourceDefinition {
    let old = json!({
        "imageSpec": text(), "schedulerName": text(), "logLevel": log_level(), "cacheResyncPeriod": text(),
    });
    let weight = json!({"type": "integer", "format": "int64"});
    let strategy = json!({
        "type": words(&["MostAllocated", "BalancedAllocation", "LeastAllocated"]),
        "resources": list(fields(json!({"name": text(), "weight": weight}), &["name"])),
    });
    let mut new = old.clone();
    new["cacheResyncDebug"] = words(&["Disabled", "DumpJSONFile"]);
    new["schedulerInformer"] = words(&["Shared", "Dedicated"]);
    new["cacheResyncDetection"] = words(&["Relaxed", "Aggressive"]);
    new["scoringStrategy"] = fields(strategy, &[]);
    new["preemptionMode"] = words(&["Enabled", "Disabled"]);
    new["replicas"] = json!({"type": "integer", "format": "int32"});
    let old_status = json!({"deployment": name(), "schedulerName": text(), "conditions": conditions()});
    let mut new_status = old_status.clone();
    new_status["cacheResyncPeriod"] = text();
    new_status["relatedObjects"] = related();
    definition(
        "NUMAResourcesScheduler",
        "numaressched",
        "numaresourcesscheduler",
        (fields(old, &["imageSpec"]), fields(old_status, &[])),
        (fields(new, &["imageSpec"]), fields(new_status, &[])),
    )
}
