//! Rules for the DRA driver of a DeviceConfig.
//!
//! In: nothing. Out: fields, and the message of the refusal. Never: a call of the API server.

use serde_json::{Value, json};

use super::whole;

/// All fields with a DRA driver instead of the device plugin.
pub(super) fn whole_with_dra() -> Value {
    let mut spec = whole();
    let mut driver = spec["devicePlugin"].take();
    for field in ["resourceNames", "driverNames"] {
        driver.as_object_mut().unwrap().remove(field);
    }
    driver["driverName"] = "acc.vendor.example".into();
    driver["deviceClasses"] = json!([{
        "name": "acc.vendor.example", "selectors": [{"cel": {"expression": "device.driver == 'acc.vendor.example'"}}],
        "config": [{"opaque": {"driver": "acc.vendor.example", "parameters": {"any": {"thing": [1]}}}}],
    }]);
    spec.as_object_mut().unwrap().remove("devicePlugin");
    spec["dra"] = driver;
    spec
}

/// Fields and the message of the refusal; empty for a valid object.
pub(super) fn drivers() -> Vec<(Value, &'static str)> {
    let driver = |fields: Value| {
        let mut driver = json!({"driverName": "acc.example", "image": "r.example/d:1"});
        for (name, value) in fields.as_object().unwrap() {
            driver[name] = value.clone();
        }
        json!({"dra": driver})
    };
    let beside = json!({
        "dra": driver(json!({}))["dra"], "devicePlugin": {"image": "r.example/p:1", "driverNames": ["acc.example"]},
    });
    let named = |name: &str| driver(json!({"driverName": name}));
    let class = |name: &str| driver(json!({"deviceClasses": [{"name": name}]}));
    let volumes = json!([{"name": "a", "hostPath": {"path": "/etc/cdi"}}]);
    let name = "dra.driverName must be the name of the DRA driver";
    let classes = "dra.deviceClasses[].name must be the name of a DeviceClass";
    let mounts = "volumeMounts[].name must be that of an entry of dra.volumes";
    vec![
        (driver(json!({})), ""),
        (beside, "dra and devicePlugin exclude each other"),
        (named(""), name),
        (named("Acc.example"), name),
        (named("vendor.example/acc"), name),
        (class("acc"), ""),
        (class("a.vendor-1.example"), ""),
        (class("Acc"), classes),
        (class(""), classes),
        (driver(json!({"volumes": volumes})), "hostPath.path must be below /dev, /sys, /var, /opt or /run"),
        (driver(json!({"volumeMounts": [{"name": "cdi", "mountPath": "/a"}]})), mounts),
        (
            driver(
                json!({"initContainer": {"image": "a:1", "volumeMounts": [{"name": "b", "mountPath": "/a"}]}}),
            ),
            mounts,
        ),
    ]
}
