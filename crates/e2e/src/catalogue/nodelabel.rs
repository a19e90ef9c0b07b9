//! Labels of nodes and zones together: a pod goes where both fit.

use serde_json::json;

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Devices, Scheduler};
use crate::padding::Left;
use crate::pods::PodPlan;
use crate::spec::{Result, Spec};
use crate::undo::Target;

/// The label.
const KEY: &str = "e2e.tholepin.dev/size";

/// How a pod names the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Selector,
    Required,
    Preferred,
}

pub(super) fn specs() -> Vec<Spec> {
    let rows = [
        ("47598", "a node selector and zones: the node that fits both", By::Selector),
        ("47597", "a required affinity and zones: the node that fits both", By::Required),
        ("49843", "a preferred affinity and zones: the node whose zones fit", By::Preferred),
    ];
    let spec = |(id, title, by)| {
        Spec::new(id, 2, title, move |f| labelled(f, by)).labels(&["scheduler", "disruptive"]).needs([
            Scheduler,
            Devices,
            Aligning(2),
        ])
    };
    rows.into_iter().map(spec).collect()
}

impl By {
    fn apply(self, plan: PodPlan) -> PodPlan {
        let expression = |values: &[&str]| json!({ "key": KEY, "operator": "In", "values": values });
        plan.spec(|spec| {
            let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
            match self {
                Self::Selector => {
                    spec.node_selector.get_or_insert_default().insert(KEY.to_owned(), "medium".to_owned());
                }
                Self::Required => {
                    let terms =
                        affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
                    for term in &mut terms.node_selector_terms {
                        let more = serde_json::from_value(expression(&["large", "medium"]));
                        term.match_expressions.get_or_insert_default().extend(more);
                    }
                }
                Self::Preferred => {
                    let term = json!([{
                        "weight": 1, "preference": { "matchExpressions": [expression(&["large", "medium"])] },
                    }]);
                    affinity.preferred_during_scheduling_ignored_during_execution =
                        serde_json::from_value(term).ok();
                }
            }
        })
    }
}

async fn labelled(f: Fixture, by: By) -> Result {
    let target = f.target()?.name.clone();
    let amounts = f.amounts("16 16Gi")?;
    f.require_zones(&amounts)?;
    let pointer = format!("/metadata/labels/{}", KEY.replace('/', "~1"));
    for node in f.others() {
        f.changes().set(&Target::node(&node.name), &pointer, Some("medium".into())).await?;
    }
    f.pad(f.others(), Left(&[f.amounts("12 12Gi")?])).await?;
    if by != By::Preferred {
        let early = f.create(by.apply(f.pod("early").guaranteed(&amounts))).await?;
        f.unschedulable(&early).await?;
        f.delete(&early).await?;
    }
    f.changes().set(&Target::node(&target), &pointer, Some("medium".into())).await?;
    let before = f.free(&target).await?;
    let pods = f.deployment(by.apply(f.pod("p").guaranteed(&amounts)), 1).await?.running(1).await?;
    for pod in &pods {
        f.runs_on(pod, &target).await?;
    }
    f.accounted(&target, &before, &pods).await?;
    // What is required of a node counts while a pod is scheduled, and not afterwards.
    f.changes().set(&Target::node(&target), &pointer, None).await?;
    for pod in &pods {
        f.running(pod).await?;
    }
    f.accounted(&target, &before, &pods).await
}
