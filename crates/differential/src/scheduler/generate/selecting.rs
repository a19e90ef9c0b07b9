//! Objects that select pods: Services, and the controllers that own pods.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::generate::pods::APPS;
use crate::scheduler::generate::{NAMESPACES, constraints};

/// Kinds of controllers whose selector counts, with the version of their group.
const CONTROLLERS: [(&str, &str); 3] =
    [("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")];

/// Services of some applications.
pub(super) fn services(dice: &mut Dice) -> Vec<Value> {
    let count = dice.pick(&[0, 2, 4, 6]);
    (0..count).map(|at| service(dice, at)).collect()
}

fn service(dice: &mut Dice, at: u64) -> Value {
    let mut object = json!({ "metadata": { "name": format!("s{at}"), "namespace": dice.pick(&NAMESPACES) } });
    object["spec"]["selector"] = match dice.between(0, 6) {
        0 => Value::Null,
        1 => json!({ "version": dice.pick(&["1", "2"]) }),
        2 => json!({ "app": dice.pick(&APPS), "version": dice.pick(&["1", "2"]) }),
        _ => json!({ "app": dice.pick(&APPS) }),
    };
    object
}

/// ReplicationControllers, ReplicaSets and StatefulSets: of each kind one in each namespace, now and then.
pub(super) fn controllers(dice: &mut Dice) -> [Vec<Value>; 3] {
    [false, true, true].map(|has_expressions| {
        let present: Vec<&str> = NAMESPACES.into_iter().filter(|_| dice.percent(70)).collect();
        present.into_iter().map(|namespace| controller(dice, namespace, has_expressions)).collect()
    })
}

fn controller(dice: &mut Dice, namespace: &str, has_expressions: bool) -> Value {
    let selector = match has_expressions {
        true => constraints::selector(dice),
        false => json!({ "app": dice.pick(&APPS) }),
    };
    json!({ "metadata": { "name": "owner", "namespace": namespace }, "spec": { "selector": selector } })
}

/// Makes one of them, or a Job, the owner of a pod.
pub(super) fn own(dice: &mut Dice, pod: &mut Value) {
    let (version, kind) = match dice.percent(92) {
        true => dice.pick(&CONTROLLERS),
        false => ("batch/v1", "Job"),
    };
    let is_controller = dice.percent(92);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": version, "kind": kind, "name": "owner", "uid": "owner", "controller": is_controller,
    }]);
}
