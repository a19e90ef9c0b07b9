//! PodDisruptionBudgets, as preemption heeds them.
//!
//! In: `PodDisruptionBudget` objects. Out: whether a budget covers a pod, and how many disruptions it allows. Never: a
//! disruption that is forbidden; preemption only prefers other victims.
//!
//! Source: kube-scheduler 1.36 `defaultpreemption` `filterPodsWithPDBViolation`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::policy::v1 as wire;

use crate::namespace::NamespaceSelection;
use crate::pod::PodView;
use crate::selection::{self, PodSelector};

/// The fields of a PodDisruptionBudget that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The pods that the budget covers; `None`: none, as for a selector that is missing, empty or invalid.
    selector: Option<PodSelector>,
    /// `status.disruptionsAllowed`.
    allowed: i32,
    /// Names of `status.disruptedPods`, whose disruption the API server has counted already.
    disrupted: BTreeSet<String>,
}

impl BudgetView {
    /// Reads a budget.
    #[must_use]
    pub fn read(budget: &wire::PodDisruptionBudget) -> Self {
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let namespace = text(budget.metadata.namespace.as_ref());
        let stated = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = stated.filter(|selector| !selection::selects_all(selector)).and_then(|selector| {
            PodSelector::new(true).and(NamespaceSelection::one(&namespace), Some(selector)).ok()
        });
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Self {
            name: text(budget.metadata.name.as_ref()),
            namespace,
            selector,
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Disruptions that the budget allows.
    #[must_use]
    pub fn allowed(&self) -> i32 {
        self.allowed
    }

    /// Whether the disruption of this pod would count. A pod without labels is covered by no budget.
    #[must_use]
    pub fn covers(&self, pod: &PodView) -> bool {
        !pod.labels.is_empty()
            && !self.disrupted.contains(&*pod.name)
            && pod.namespace == self.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn budgets_cover_pods_as_in_kube_scheduler() {
        let web = json!({"matchLabels": {"app": "web"}});
        let exists = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        let near = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
        for (selector, namespace, labels, covers) in [
            (web.clone(), "ns", json!({"app": "web"}), true),
            (web.clone(), "ns", json!({"app": "db"}), false),
            (web.clone(), "other", json!({"app": "web"}), false),
            (web.clone(), "ns", json!({}), false),
            (exists, "ns", json!({"app": "db"}), true),
            (near, "ns", json!({"app": "db"}), false),
            (json!({}), "ns", json!({"app": "web"}), false),
            (Value::Null, "ns", json!({"app": "web"}), false),
        ] {
            let budget = |disrupted: Value| {
                let object = json!({
                    "metadata": {"namespace": "ns", "name": "b"},
                    "spec": {"selector": selector},
                    "status": {
                        "disruptionsAllowed": 2, "disruptedPods": disrupted, "currentHealthy": 0,
                        "desiredHealthy": 0, "expectedPods": 0,
                    },
                });
                BudgetView::read(&serde_json::from_value(object).unwrap())
            };
            let object = json!({"metadata": {"namespace": namespace, "name": "p", "labels": labels}});
            let pod = PodView::read(&serde_json::from_value(object).unwrap());
            assert_eq!(budget(json!({})).covers(&pod), covers, "{selector} {namespace} {labels}");
            assert_eq!(budget(json!({})).allowed(), 2);
            assert!(!budget(json!({"p": "2026-01-01T00:00:00Z"})).covers(&pod), "counted already");
        }
    }
}
