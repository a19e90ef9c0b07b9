//! Pods: those on nodes, and the one to place.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::generate::Dice;
use crate::scheduler::generate::nodes::DEVICE;
use crate::scheduler::generate::{NAMESPACES, SCHEDULER, constraints, selecting};

/// Images of containers.
pub(super) const IMAGES: [&str; 4] = [
    "registry.example/web:1",
    "registry.example/db:2",
    "registry.example/cache:latest",
    "registry.example/batch:3",
];
/// Values of the label `app`.
pub(super) const APPS: [&str; 3] = ["web", "db", "cache"];
/// Priorities.
const PRIORITIES: [i64; 5] = [-5, 0, 0, 10, 20];

/// Pods on some of so many nodes.
pub(super) fn on_nodes(dice: &mut Dice, nodes: u64) -> Vec<Value> {
    let most = dice.pick(&[0, 0, 4, 10, 20, 40]);
    let count = dice.between(0, most);
    let mut pods: Vec<Value> = (0..count).map(|at| on_node(dice, at, nodes)).collect();
    let mut taken = BTreeSet::new();
    for pod in &mut pods {
        let node = pod["spec"]["nodeName"].to_string();
        let spec = pod["spec"].as_object_mut().into_iter().flatten();
        let lists = spec.filter(|(name, _)| name.ends_with("ontainers"));
        for container in lists.filter_map(|(_, list)| list.as_array_mut()).flatten() {
            // A node has a port once.
            let port = container["ports"][0]["hostPort"].as_u64();
            if port.is_some_and(|port| !taken.insert((node.clone(), port))) {
                container.as_object_mut().map(|container| container.remove("ports"));
            }
        }
    }
    pods
}

fn on_node(dice: &mut Dice, at: u64, nodes: u64) -> Value {
    let mut pod = bare(dice, &format!("p{at}"));
    pod["spec"]["nodeName"] = format!("n{}", dice.between(0, nodes - 1)).into();
    if dice.percent(30) {
        constraints::pod_affinity(dice, &mut pod);
    }
    if dice.percent(5) {
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    }
    pod["status"] = json!({ "phase": "Running", "startTime": format!("2026-01-01T00:00:{:02}Z", at % 60) });
    pod
}

/// A pod that waits for a nominated node. It fits nowhere and may not preempt, so that a scheduler that tries it first
/// lets it wait.
pub(super) fn nominated(dice: &mut Dice, at: u64, nodes: u64) -> Value {
    let mut pod = bare(dice, &format!("waiting{at}"));
    pod["spec"]["nodeSelector"] = json!({ "never": "there" });
    pod["spec"]["preemptionPolicy"] = "Never".into();
    pod["spec"]["priority"] = dice.pick(&[0, 10, 20, 20, 30]).into();
    if dice.percent(40) {
        constraints::pod_affinity(dice, &mut pod);
    }
    let node = format!("n{}", dice.between(0, nodes - 1));
    pod["status"] = json!({ "phase": "Pending", "nominatedNodeName": node });
    pod
}

/// The pod to place, with each kind of constraint now and then.
pub(super) fn to_place(dice: &mut Dice, nodes: u64) -> Value {
    let mut pod = bare(dice, "pod");
    // Often more important than others, so that preemption has something to do.
    if dice.percent(60) {
        pod["spec"]["priority"] = 20.into();
    }
    if dice.percent(15) {
        pod["spec"]["nodeSelector"] = json!({ "disk": dice.pick(&["ssd", "hdd"]) });
    }
    if dice.percent(55) {
        constraints::node_affinity(dice, &mut pod, nodes);
    }
    if dice.percent(40) {
        constraints::tolerations(dice, &mut pod);
    }
    if dice.percent(60) {
        constraints::spread(dice, &mut pod);
    }
    if dice.percent(60) {
        constraints::pod_affinity(dice, &mut pod);
    }
    if dice.percent(40) {
        selecting::own(dice, &mut pod);
    }
    if dice.percent(5) {
        pod["spec"]["preemptionPolicy"] = "Never".into();
    }
    if dice.percent(9) {
        features(dice, &mut pod);
    }
    pod["status"] = json!({ "phase": "Pending" });
    if dice.percent(10) {
        pod["status"]["nominatedNodeName"] = format!("n{}", dice.between(0, nodes)).into();
    }
    pod
}

/// Something that only some kubelets can do.
fn features(dice: &mut Dice, pod: &mut Value) {
    if dice.percent(60) {
        let exits = json!({ "operator": "In", "values": [42] });
        pod["spec"]["containers"][0]["restartPolicy"] = "Never".into();
        pod["spec"]["containers"][0]["restartPolicyRules"] =
            json!([{ "action": "RestartAllContainers", "exitCodes": exits }]);
    }
    if dice.percent(60) {
        pod["spec"]["hostNetwork"] = true.into();
        pod["spec"]["hostUsers"] = false.into();
    }
}

/// Budgets for pods with some label.
pub(super) fn budgets(dice: &mut Dice) -> Vec<Value> {
    (0..dice.pick(&[0, 1, 3])).map(|at| budget(dice, at)).collect()
}

fn budget(dice: &mut Dice, at: u64) -> Value {
    json!({
        "metadata": { "name": format!("b{at}"), "namespace": dice.pick(&NAMESPACES) },
        "spec": { "selector": constraints::selector(dice) },
        "status": { "disruptionsAllowed": dice.pick(&[0, 0, 1, 2]) },
    })
}

/// A pod with containers only.
fn bare(dice: &mut Dice, name: &str) -> Value {
    let mut labels = Map::new();
    if dice.percent(85) {
        labels.insert("app".to_owned(), dice.pick(&APPS).into());
    }
    if dice.percent(40) {
        labels.insert("version".to_owned(), dice.pick(&["1", "2"]).into());
    }
    let containers: Vec<Value> = (0..dice.pick(&[1, 1, 1, 2, 3])).map(|at| container(dice, at)).collect();
    let mut pod = json!({
        "metadata": {
            "name": name, "uid": name, "namespace": dice.pick(&NAMESPACES), "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": SCHEDULER, "restartPolicy": "Always", "priority": dice.pick(&PRIORITIES),
            "preemptionPolicy": "PreemptLowerPriority", "containers": containers,
        },
    });
    if dice.percent(15) {
        let mut init = container(dice, 7);
        if dice.percent(50) {
            init["restartPolicy"] = "Always".into();
        }
        pod["spec"]["initContainers"] = json!([init]);
    }
    let has_huge_pages = pod["spec"].to_string().contains("hugepages");
    if pod["spec"]["containers"][1].is_null() && !has_huge_pages && dice.percent(12) {
        // At least what the containers ask for together.
        let amounts = json!({ "cpu": dice.pick(&["8", "9"]), "memory": dice.pick(&["6Gi", "7Gi"]) });
        pod["spec"]["resources"] = json!({ "requests": amounts });
    }
    if dice.percent(8) {
        pod["spec"]["overhead"] = json!({ "cpu": "100m", "memory": "64Mi" });
    }
    pod
}

fn container(dice: &mut Dice, at: u64) -> Value {
    let mut requests = json!({});
    if dice.percent(80) {
        requests["cpu"] = dice.pick(&["50m", "100m", "500m", "1", "1500m", "2", "4"]).into();
    }
    if dice.percent(75) {
        requests["memory"] = dice.pick(&["64Mi", "200Mi", "1Gi", "2000M", "3Gi"]).into();
    }
    if dice.percent(8) {
        requests["ephemeral-storage"] = dice.pick(&["1Gi", "4Gi"]).into();
    }
    let mut limits = json!({});
    for (name, percent, amount) in [(DEVICE, 8, "1"), ("hugepages-2Mi", 4, "4Mi")] {
        if dice.percent(percent) {
            requests[name] = amount.into();
            limits[name] = amount.into();
        }
    }
    let mut container = json!({
        "name": format!("c{at}"), "image": dice.pick(&IMAGES), "imagePullPolicy": "IfNotPresent",
        "resources": { "requests": requests, "limits": limits },
    });
    if dice.percent(25) {
        let port = dice.pick(&[80, 443]);
        let mut mapped = json!({
            "containerPort": port, "hostPort": port, "protocol": dice.pick(&["TCP", "TCP", "UDP"]),
        });
        if dice.percent(30) {
            mapped["hostIP"] = dice.pick(&["10.0.0.1", "127.0.0.1", "0.0.0.0"]).into();
        }
        container["ports"] = json!([mapped]);
    }
    container
}
