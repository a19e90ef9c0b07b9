//! Extended resources that classes name: pods that ask for them, on nodes with and without a device plugin.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::case::Case;
use crate::scheduler::generate::devices;
use crate::scheduler::generate::nodes::DEVICE;

/// Another extended resource, which no device plugin has.
const PORT: &str = "net.example/port";
/// The resource of the class `gpu` by its own name.
const BY_CLASS: &str = "deviceclass.resource.kubernetes.io/gpu";

/// Lets classes of a case name resources, and its pod ask for them.
pub(super) fn add(dice: &mut Dice, case: &mut Case) {
    name_resources(dice, case);
    if dice.percent(55) {
        case.pod["spec"]["resourceClaims"] = json!([]);
    }
    for at in 0..dice.pick(&[0, 0, 1, 2]) {
        let mut init = json!({
            "name": format!("init{at}"), "image": "registry.example/web:1", "imagePullPolicy": "IfNotPresent",
            "resources": { "requests": {}, "limits": {} },
        });
        if dice.percent(30) {
            init["restartPolicy"] = "Always".into();
        }
        let containers = case.pod["spec"].as_object_mut();
        let inits = containers.map(|spec| spec.entry("initContainers").or_insert(json!([])));
        inits.and_then(Value::as_array_mut).into_iter().for_each(|inits| inits.push(init.clone()));
    }
    for list in ["initContainers", "containers"] {
        for container in case.pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for (name, percent) in [(DEVICE, 55), (BY_CLASS, 20), (PORT, 15)] {
                if dice.percent(percent) {
                    ask(container, name, dice.pick(&[1, 1, 1, 2]));
                }
            }
        }
    }
    if dice.percent(6) {
        case.devices.resource_claims.push(left_behind(case));
    }
}

/// Lets classes of a case about scores name resources that all nodes have, by a device plugin or by devices.
pub(super) fn add_preferred(dice: &mut Dice, case: &mut Case) {
    devices::add_everywhere(dice, case);
    name_resources(dice, case);
    ask(&mut case.pod["spec"]["containers"][0], DEVICE, 1);
}

fn name_resources(dice: &mut Dice, case: &mut Case) {
    // With a resource that devices serve, NodeResourcesBalancedAllocation of kube-scheduler 1.36.3 panics.
    let arguments = case.configuration["profiles"][0]["pluginConfig"].as_array_mut();
    for plugin in arguments.into_iter().flatten().filter(|it| it["name"] == "NodeResourcesBalancedAllocation")
    {
        for resource in plugin["args"]["resources"].as_array_mut().into_iter().flatten() {
            if resource["name"] == DEVICE {
                resource["name"] = "memory".into();
            }
        }
    }
    let device = dice.pick(&["gpu", "gpu", "big", "any", "numa"]);
    for class in &mut case.devices.device_classes {
        match class["metadata"]["name"].as_str() {
            Some(name) if name == device => class["spec"]["extendedResourceName"] = DEVICE.into(),
            Some("net") => class["spec"]["extendedResourceName"] = PORT.into(),
            _ => {}
        }
    }
}

fn ask(container: &mut Value, name: &str, amount: u64) {
    for of in ["requests", "limits"] {
        container["resources"][of][name] = amount.to_string().into();
    }
}

/// A claim that an earlier attempt has made for the pod.
fn left_behind(case: &Case) -> Value {
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "pod", "controller": true });
    let exactly = json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1 });
    json!({
        "metadata": {
            "namespace": case.pod["metadata"]["namespace"], "name": "pod-extended-resources-x", "uid": "uid-x",
            "resourceVersion": "1", "ownerReferences": [owner],
            "annotations": { "resource.kubernetes.io/extended-resource-claim": "true" },
        },
        "spec": { "devices": { "requests": [{ "name": "container-0-request-0", "exactly": exactly }] } },
        "status": {},
    })
}
