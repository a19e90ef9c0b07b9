//! Taints because of which KMM unloads a driver from a node.
//!
//! In: a node, a Module's tolerations. Out: the first taint that is not tolerated. Never: a look at pods; KMM unloads a
//! driver whether pods use it or not.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::cluster_state::{CORDON_TAINT, Node};

/// The taint of a cordoned node.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taints that KMM always tolerates (`NoSchedule`).
const PRESSURE: [&str; 3] = [
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
];

/// The key of the first taint, or of a cordon, that keeps the driver away.
#[must_use]
pub fn untolerated(node: &Node, tolerations: &[Toleration]) -> Option<String> {
    let tolerated = |taint: &Taint| {
        let itself = taint.effect == "NoSchedule"
            && (taint.key == CORDON_TAINT || PRESSURE.contains(&taint.key.as_str()));
        itself || tolerations.iter().any(|one| tolerates(one, taint))
    };
    taints(node).find(|taint| !tolerated(taint)).map(|taint| taint.key)
}

/// Whether pods with these tolerations are not kept away by the cordon taint, whatever its value.
#[must_use]
pub fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let taint = Taint { key: CORDON_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    tolerations.iter().any(|one| tolerates(one, &taint))
}

/// The taints of a node that keep pods away. A cordon counts before it has become a taint.
fn taints(node: &Node) -> impl Iterator<Item = Taint> {
    let cordon = Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let cordoned = node.unschedulable && !node.taints.iter().any(|taint| taint.key == UNSCHEDULABLE);
    let hard = |taint: &Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    node.taints.iter().filter(move |taint| hard(taint)).cloned().chain(cordoned.then_some(cordon))
}

/// Whether a toleration matches a taint, as in the scheduler (`ToleratesTaint`).
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, effect, operator) =
        (text(&toleration.key), text(&toleration.effect), text(&toleration.operator));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    match operator.as_str() {
        "Exists" => key.is_empty() || key == taint.key,
        "" | "Equal" => {
            key == taint.key && text(&toleration.value) == taint.value.clone().unwrap_or_default()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn taints_are_tolerated_as_by_the_scheduler() {
        let taint: Taint =
            serde_json::from_value(json!({ "key": "a", "value": "x", "effect": "NoSchedule" })).unwrap();
        let check = |toleration: Value, wanted: bool| {
            let read: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&read, &taint), wanted, "{toleration}");
        };
        check(json!({ "operator": "Exists" }), true);
        check(json!({ "key": "a", "operator": "Exists" }), true);
        check(json!({ "key": "a", "operator": "Exists", "effect": "NoSchedule" }), true);
        check(json!({ "key": "a", "operator": "Exists", "effect": "NoExecute" }), false);
        check(json!({ "key": "b", "operator": "Exists" }), false);
        check(json!({ "key": "a", "value": "x" }), true);
        check(json!({ "key": "a", "operator": "Equal", "value": "y" }), false);
        check(json!({ "key": "a", "operator": "Other", "value": "x" }), false);
    }
}
