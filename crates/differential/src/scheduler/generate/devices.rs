//! Devices: classes, slices, claims, and the claims of pods.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::case::Case;
use crate::scheduler::generate::NAMESPACES;
use crate::scheduler::generate::nodes::ZONE;

/// A driver with devices of one node.
const GPU: &str = "gpu.example";
/// A driver with devices of several nodes.
const NET: &str = "net.example";
/// Classes with their selectors.
const CLASSES: [(&str, &str); 5] = [
    ("gpu", r#"device.driver == "gpu.example""#),
    ("net", r#"device.driver == "net.example""#),
    ("big", r#"device.driver == "gpu.example" && device.attributes["gpu.example"].model == "big""#),
    ("any", "true"),
    // Some devices have no such attribute, so that there is an error.
    ("numa", r#"device.attributes["shared.example"].numa == 0"#),
];
/// Selectors of requests.
const SELECTORS: [&str; 13] = [
    r#"device.attributes["gpu.example"].index >= 1"#,
    r#"device.attributes["gpu.example"].model.startsWith("b")"#,
    r#"has(device.attributes["shared.example"].numa) && device.attributes["shared.example"].numa == 1"#,
    r#"device.capacity["gpu.example"].memory.compareTo(quantity("40Gi")) >= 0"#,
    r#"device.capacity["gpu.example"].memory.isLessThan(quantity("60Gi"))"#,
    r#"device.attributes["gpu.example"].version.isGreaterThan(semver("1.2.0"))"#,
    r#""net.example" in device.attributes || device.attributes["gpu.example"].ecc"#,
    r#"cel.bind(gpu, device.attributes["gpu.example"], !gpu.ecc || gpu.index in [0, 2])"#,
    r#"device.attributes.exists(domain, domain == "gpu.example")"#,
    r#"device.attributes["gpu.example"].all(name, name != "extra")"#,
    r#"device.allowMultipleAllocations"#,
    r#"has(device.attributes["other.example"].x) ? false : device.driver.matches("^(gpu|net)[.]")"#,
    r#"device.driver.endsWith("example") && size(device.driver) == 11"#,
];
/// Keys of taints.
const TAINTS: [&str; 2] = ["broken", "reserved"];

/// Adds devices to a case, and claims to its pods.
pub(super) fn add(dice: &mut Dice, case: &mut Case) {
    for (name, selector) in CLASSES {
        if dice.percent(97) {
            case.devices.device_classes.push(class(dice, name, selector));
        }
    }
    let names: Vec<Value> = case.nodes.iter().map(|node| node["metadata"]["name"].clone()).collect();
    for name in &names {
        if dice.percent(80) {
            case.devices.resource_slices.extend(node_pool(dice, name.as_str().unwrap_or_default()));
        }
    }
    if dice.percent(45) {
        case.devices.resource_slices.extend(net_pool(dice, &names));
    }
    for at in 0..case.pods.len() {
        if dice.percent(25) {
            let claim = taken_claim(dice, case, at);
            case.devices.resource_claims.extend(claim);
        }
    }
    let mut references = Vec::new();
    let mut statuses = Vec::new();
    for at in 0..dice.pick(&[1, 1, 1, 2]) {
        let name = format!("own{at}");
        let mut claim = waiting_claim(dice, &case.pod, &name);
        let is_made = dice.percent(40);
        if is_made {
            let uid = if dice.percent(95) { "pod" } else { "other" };
            let owner =
                json!({ "apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": uid, "controller": true });
            claim["metadata"]["ownerReferences"] = json!([owner]);
            references.push(json!({ "name": format!("r{at}"), "resourceClaimTemplateName": "t" }));
            if dice.percent(96) {
                statuses.push(json!({ "name": format!("r{at}"), "resourceClaimName": name }));
            }
        } else {
            references.push(json!({ "name": format!("r{at}"), "resourceClaimName": name }));
        }
        if dice.percent(20) {
            allocate(dice, case, &mut claim);
        }
        if dice.percent(97) {
            case.devices.resource_claims.push(claim);
        }
    }
    case.pod["spec"]["resourceClaims"] = references.into();
    case.pod["status"]["resourceClaimStatuses"] = statuses.into();
}

/// Adds all classes to a case, and devices to all nodes.
pub(super) fn add_everywhere(dice: &mut Dice, case: &mut Case) {
    case.devices.device_classes = CLASSES.map(|(name, selector)| class(dice, name, selector)).to_vec();
    for node in &case.nodes {
        case.devices
            .resource_slices
            .extend(node_pool(dice, node["metadata"]["name"].as_str().unwrap_or_default()));
    }
}

/// Adds devices to a case, and a claim to its pod that most nodes can serve, some of them better.
pub(super) fn add_preferred(dice: &mut Dice, case: &mut Case) {
    add_everywhere(dice, case);
    let ask = |name: &str, class: &str, count: u64| {
        json!({ "name": name, "deviceClassName": class, "allocationMode": "ExactCount", "count": count,
                "tolerations": [{ "operator": "Exists" }] })
    };
    let asks = json!([ask("s0", "big", dice.between(1, 2)), ask("s1", "big", 1), ask("s2", "gpu", 1)]);
    let meta = json!({
        "namespace": case.pod["metadata"]["namespace"], "name": "own0", "uid": "uid-own0", "resourceVersion": "1",
    });
    case.devices.resource_claims.push(json!({
        "metadata": meta, "spec": { "devices": { "requests": [{ "name": "q0", "firstAvailable": asks }] } },
        "status": {},
    }));
    case.pod["spec"]["resourceClaims"] = json!([{ "name": "r0", "resourceClaimName": "own0" }]);
}

fn class(dice: &mut Dice, name: &str, selector: &str) -> Value {
    let mut spec = json!({ "selectors": [{ "cel": { "expression": selector } }] });
    if dice.percent(30) {
        spec["config"] = json!([{ "opaque": { "driver": GPU, "parameters": { "mode": name } } }]);
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// The slices of a node's own devices.
fn node_pool(dice: &mut Dice, node: &str) -> Vec<Value> {
    let pool = format!("{GPU}-{node}");
    let generation = dice.between(1, 2);
    let has_counters = dice.percent(25);
    let count = dice.pick(&[1, 1, 1, 2]);
    let slice_count = count + u64::from(has_counters);
    // A driver that is about to publish more.
    let stated = if dice.percent(4) { slice_count + 1 } else { slice_count };
    let slice = |name: String, spec: Value, generation: u64| {
        let mut spec = spec;
        spec["driver"] = GPU.into();
        spec["nodeName"] = node.into();
        spec["pool"] = json!({ "name": pool, "generation": generation, "resourceSliceCount": stated });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let mut slices = Vec::new();
    for part in 0..count {
        let per_slice = dice.between(1, 3);
        let devices: Vec<Value> = (0..per_slice)
            .map(|at| {
                // Names are unique in a pool, but for broken drivers.
                let name = if dice.percent(1) { "d0".to_owned() } else { format!("d{}", part * 3 + at) };
                device(dice, &name, part * 3 + at, has_counters)
            })
            .collect();
        slices.push(slice(format!("{node}-{part}"), json!({ "devices": devices }), generation));
    }
    if has_counters {
        let counters = json!({ "memory": { "value": dice.pick(&["40Gi", "80Gi", "120Gi"]) }, "slots": { "value": "4" } });
        let sets = json!([{ "name": "board", "counters": counters }]);
        slices.push(slice(format!("{node}-counters"), json!({ "sharedCounters": sets }), generation));
    }
    if generation == 2 && dice.percent(30) {
        let old = device(dice, "old", 9, false);
        slices.push(slice(format!("{node}-old"), json!({ "devices": [old] }), 1));
    }
    slices
}

fn device(dice: &mut Dice, name: &str, index: u64, has_counters: bool) -> Value {
    let mut attributes = json!({
        "model": { "string": dice.pick(&["big", "small", "big"]) }, "index": { "int": index },
        "ecc": { "bool": dice.percent(50) }, "version": { "version": dice.pick(&["1.2.0", "1.10.3", "1.2.0-rc.1"]) },
    });
    if dice.percent(85) {
        attributes["shared.example/numa"] = json!({ "int": dice.between(0, 1) });
    }
    if dice.percent(20) {
        attributes["extra"] = json!({ "string": "x" });
    }
    let mut memory = json!({ "value": dice.pick(&["20Gi", "40Gi", "80Gi"]) });
    let is_shared = dice.percent(25);
    if is_shared && dice.percent(60) {
        memory["requestPolicy"] = match dice.between(0, 1) {
            0 => json!({ "default": "10Gi", "validRange": { "min": "5Gi", "max": "40Gi", "step": "5Gi" } }),
            _ => json!({ "default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"] }),
        };
    }
    let mut device = json!({ "name": name, "attributes": attributes, "capacity": { "memory": memory } });
    if is_shared {
        device["allowMultipleAllocations"] = true.into();
    }
    if has_counters && dice.percent(80) {
        let mut counters = json!({ "memory": { "value": dice.pick(&["20Gi", "40Gi", "60Gi"]) } });
        if dice.percent(50) {
            counters["slots"] = json!({ "value": dice.pick(&["1", "2", "4"]) });
        }
        if dice.percent(1) {
            counters["unknown"] = json!({ "value": "1" });
        }
        device["consumesCounters"] = json!([{ "counterSet": "board", "counters": counters }]);
    }
    if dice.percent(15) {
        let effect = dice.pick(&["NoSchedule", "NoExecute", "None"]);
        device["taints"] =
            json!([{ "key": dice.pick(&TAINTS), "value": dice.pick(&["", "a"]), "effect": effect }]);
    }
    if dice.percent(4) {
        device["bindingConditions"] = json!(["ready"]);
        device["bindingFailureConditions"] = json!(["failed"]);
        device["bindsToNode"] = dice.percent(50).into();
    }
    device
}

/// The slices of devices that several nodes reach.
fn net_pool(dice: &mut Dice, nodes: &[Value]) -> Vec<Value> {
    let per_device = dice.percent(40);
    let term = |zone: &str| {
        let expression = json!({ "key": ZONE, "operator": "In", "values": [zone] });
        json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] })
    };
    let count = dice.pick(&[1, 2]);
    let slices = (0..count).map(|part| {
        let devices: Vec<Value> = (0..dice.between(1, 3))
            .map(|at| {
                let attributes = json!({ "speed": { "int": dice.pick(&[10, 100]) }, "shared.example/numa": { "int": 0 } });
                let mut device = json!({ "name": format!("port{}", part * 3 + at), "attributes": attributes });
                if per_device {
                    match dice.between(0, 2) {
                        0 => device["allNodes"] = true.into(),
                        1 => device["nodeName"] = nodes[dice.between(0, nodes.len() as u64 - 1) as usize].clone(),
                        _ => device["nodeSelector"] = term(dice.pick(&["a", "b"])),
                    }
                }
                device
            })
            .collect();
        let mut spec = json!({
            "driver": NET, "pool": { "name": "fabric", "generation": 1, "resourceSliceCount": count }, "devices": devices,
        });
        match dice.between(0, 1) {
            _ if per_device => spec["perDeviceNodeSelection"] = true.into(),
            0 => spec["allNodes"] = true.into(),
            _ => spec["nodeSelector"] = term(dice.pick(&["a", "b", "c"])),
        }
        json!({ "metadata": { "name": format!("fabric-{part}") }, "spec": spec })
    });
    slices.collect()
}

/// A claim that a pod on a node has.
fn taken_claim(dice: &mut Dice, case: &mut Case, pod: usize) -> Option<Value> {
    let meta = case.pods[pod]["metadata"].clone();
    let mut claim = json!({
        "metadata": {
            "namespace": meta["namespace"], "name": format!("of-{}", meta["name"].as_str().unwrap_or_default()),
            "uid": format!("claim-{}", meta["uid"].as_str().unwrap_or_default()), "resourceVersion": "1",
        },
        "spec": { "devices": { "requests": [request(dice, 0)] } },
    });
    if !allocate(dice, case, &mut claim) {
        return None;
    }
    claim["status"]["reservedFor"] =
        json!([{ "resource": "pods", "name": meta["name"], "uid": meta["uid"] }]);
    Some(claim)
}

/// Gives a claim a device of the case, and perhaps users. Returns whether there is one.
fn allocate(dice: &mut Dice, case: &Case, claim: &mut Value) -> bool {
    let mut choices = Vec::new();
    for slice in &case.devices.resource_slices {
        let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
        choices.extend(devices.map(|device| (slice, device)));
    }
    if choices.is_empty() {
        return false;
    }
    let (slice, device) = dice.pick(&choices);
    let mut result = json!({
        "request": "q0", "driver": slice["spec"]["driver"], "pool": slice["spec"]["pool"]["name"],
        "device": device["name"],
    });
    if device["allowMultipleAllocations"] == true {
        result["shareID"] = format!("00000000-0000-4000-8000-{:012}", dice.between(0, 999_999)).into();
        result["consumedCapacity"] = json!({ "memory": dice.pick(&["5Gi", "10Gi", "20Gi"]) });
    } else if dice.percent(8) {
        result["adminAccess"] = true.into();
    }
    let mut allocation = json!({ "devices": {} });
    if let Some(node) = slice["spec"]["nodeName"].as_str() {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
        allocation["nodeSelector"] = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
    }
    let mut status = json!({});
    if !device["bindingConditions"].is_null() {
        result["bindingConditions"] = device["bindingConditions"].clone();
        result["bindingFailureConditions"] = device["bindingFailureConditions"].clone();
        let condition = |name: &str| json!({ "type": name, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let conditions = match dice.between(0, 2) {
            0 => json!([condition("ready")]),
            1 => json!([condition("failed")]),
            _ => json!([]),
        };
        status["devices"] = json!([{
            "driver": result["driver"], "pool": result["pool"], "device": result["device"], "conditions": conditions,
        }]);
    }
    allocation["devices"]["results"] = json!([result]);
    status["allocation"] = allocation;
    if dice.percent(30) {
        let uid = dice.pick(&["pod", "stranger"]);
        status["reservedFor"] = json!([{ "resource": "pods", "name": uid, "uid": uid }]);
    }
    claim["status"] = status;
    claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    true
}

/// A claim without devices, of the pod to place.
fn waiting_claim(dice: &mut Dice, pod: &Value, name: &str) -> Value {
    let namespace =
        if dice.percent(98) { pod["metadata"]["namespace"].clone() } else { NAMESPACES[0].into() };
    let requests: Vec<Value> = (0..dice.pick(&[1, 1, 2, 2, 3])).map(|at| request(dice, at)).collect();
    let mut devices = json!({});
    let mut constraints = Vec::new();
    for _ in 0..dice.pick(&[0, 0, 1, 1, 2]) {
        let kind = dice.pick(&["matchAttribute", "distinctAttribute"]);
        let attribute =
            dice.pick(&["shared.example/numa", "gpu.example/model", "gpu.example/index", "gpu.example/ecc"]);
        let mut constraint = json!({ kind: attribute });
        if dice.percent(40) {
            constraint["requests"] = json!(["q0"]);
        }
        constraints.push(constraint);
    }
    if !constraints.is_empty() {
        devices["constraints"] = constraints.into();
    }
    if dice.percent(25) {
        let mut config = json!({ "opaque": { "driver": GPU, "parameters": { "a": 1 } } });
        if dice.percent(60) {
            config["requests"] = json!([dice.pick(&["q0", "q1", "q0/s1"])]);
        }
        devices["config"] = json!([config]);
    }
    devices["requests"] = requests.into();
    let mut meta = json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
    });
    if dice.percent(2) {
        meta["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    }
    json!({ "metadata": meta, "spec": { "devices": devices }, "status": {} })
}

fn request(dice: &mut Dice, at: u64) -> Value {
    let name = format!("q{at}");
    if dice.percent(30) {
        let asks: Vec<Value> = (0..dice.between(1, 3))
            .map(|at| {
                let mut ask = ask(dice);
                ask["name"] = format!("s{at}").into();
                ask
            })
            .collect();
        return json!({ "name": name, "firstAvailable": asks });
    }
    let mut ask = ask(dice);
    if dice.percent(6) {
        ask["adminAccess"] = dice.percent(80).into();
    }
    json!({ "name": name, "exactly": ask })
}

fn ask(dice: &mut Dice) -> Value {
    let class = dice.pick(&["gpu", "gpu", "gpu", "gpu", "big", "net", "any", "numa"]);
    let mut ask = json!({ "deviceClassName": class });
    if dice.percent(12) {
        ask["allocationMode"] = "All".into();
    } else {
        ask["allocationMode"] = "ExactCount".into();
        ask["count"] = dice.pick(&[1, 1, 1, 2, 3]).into();
    }
    if class == "gpu" && dice.percent(45) {
        ask["selectors"] = json!([{ "cel": { "expression": dice.pick(&SELECTORS) } }]);
    }
    if dice.percent(30) {
        let mut toleration = match dice.between(0, 1) {
            0 => json!({ "key": dice.pick(&TAINTS), "operator": "Exists" }),
            _ => json!({ "key": dice.pick(&TAINTS), "operator": "Equal", "value": "a" }),
        };
        if dice.percent(65) {
            toleration["effect"] = dice.pick(&["NoSchedule", "NoExecute"]).into();
        }
        ask["tolerations"] = json!([toleration]);
    }
    if dice.percent(25) {
        let mut amounts = json!({ "memory": dice.pick(&["1Gi", "7Gi", "10Gi", "30Gi", "50Gi"]) });
        if dice.percent(5) {
            amounts = json!({ "unknown": "1" });
        }
        ask["capacity"] = json!({ "requests": amounts });
    }
    ask
}
