//! Extenders: other programs that have a say in where pods go.
//!
//! In: settings, and a [`Call`] that reaches the program. Out: whether a pod concerns it, and its answers, checked by
//! whether they may be passed over. Never: I/O. Source: kube-scheduler 1.36 `extender.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use topology::resource::ResourceName;
use topology::score;

use crate::node;
use crate::pod::PodView;

/// The highest score that an extender gives to a node (`MaxExtenderPriority`).
const MAX_SCORE: i64 = 10;

/// The way to an extender. A call blocks the attempt that needs it, as in kube-scheduler.
pub trait Call: Debug + Send {
    /// Which of these nodes fit the pod.
    ///
    /// # Errors
    /// When there is no valid answer.
    fn filter(&self, pod: &PodView, nodes: &[Arc<str>]) -> Result<Filtered, CallError>;

    /// Scores of nodes, 0 to 10.
    ///
    /// # Errors
    /// When there is no valid answer.
    fn prioritize(&self, pod: &PodView, nodes: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>, CallError>;

    /// Which of these candidates remain, each with the victims that remain.
    ///
    /// # Errors
    /// When there is no valid answer.
    fn preempt(
        &self,
        pod: &PodView,
        candidates: &[NodeVictims],
    ) -> Result<BTreeMap<Arc<str>, MetaVictims>, CallError>;
}

/// The reason for which there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call failed, or its answer is not valid.
    #[error("{0}")]
    Failed(String),
    /// This process ends. No decision may rest on what was not asked.
    #[error("the scheduler ends")]
    Stopped,
}

/// The nodes that fit, of those in a call, and the reasons against others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// The nodes that fit.
    pub fits: BTreeSet<Arc<str>>,
    /// Nodes that may fit once pods leave them.
    pub failed: BTreeMap<Arc<str>, String>,
    /// Nodes that do not fit whatever leaves them.
    pub unresolvable: BTreeMap<Arc<str>, String>,
}

/// The victims on a node.
#[derive(Clone, Debug)]
pub struct NodeVictims {
    /// The node.
    pub node: Arc<str>,
    /// The victims, the most important first.
    pub pods: Vec<PodView>,
    /// Victims whose budgets do not allow their disruption.
    pub violations: usize,
}

/// Victims on a node by their uids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaVictims {
    /// The victims.
    pub pods: Vec<Arc<str>>,
    /// Victims whose budgets do not allow their disruption.
    pub violations: usize,
}

/// The resources whose pods concern an extender; none: all pods do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed(pub Vec<ResourceName>);

/// An extender.
#[derive(Debug)]
pub struct Extender {
    /// The pods that concern it.
    pub managed: Managed,
    /// Whether it filters.
    pub filters: bool,
    /// The factor of its scores; `None`: it does not score.
    pub weight: Option<i64>,
    /// Whether it judges candidates for preemption.
    pub preempts: bool,
    /// Whether pods are placed without it while it fails.
    pub ignorable: bool,
    /// The way to it.
    pub call: Box<dyn Call>,
}

impl Managed {
    /// Whether a pod asks for one of them.
    #[must_use]
    pub fn concern(&self, pod: &PodView) -> bool {
        let asks = |name: &ResourceName| node::amount(&pod.spec.needs.totals, *name) > 0;
        self.0.is_empty() || self.0.iter().any(asks)
    }
}

impl Extender {
    /// An answer; `None` if the extender failed and may be passed over.
    ///
    /// # Errors
    /// The failure, if it may not.
    pub fn check<T>(&self, answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(CallError::Failed(_)) if self.ignorable => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it filters nodes for a pod.
    #[must_use]
    pub fn filters_for(&self, pod: &PodView) -> bool {
        self.filters && self.managed.concern(pod)
    }

    /// What a score adds to the total of a node.
    #[must_use]
    pub fn scaled(&self, points: i64) -> i64 {
        let weight = self.weight.unwrap_or_default();
        points.saturating_mul(weight).saturating_mul(score::MAX_SCORE / MAX_SCORE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An extender that is never called.
    #[derive(Debug)]
    struct Silent;

    impl Call for Silent {
        fn filter(&self, _: &PodView, _: &[Arc<str>]) -> Result<Filtered, CallError> {
            unreachable!()
        }

        fn prioritize(&self, _: &PodView, _: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>, CallError> {
            unreachable!()
        }

        fn preempt(
            &self,
            _: &PodView,
            _: &[NodeVictims],
        ) -> Result<BTreeMap<Arc<str>, MetaVictims>, CallError> {
            unreachable!()
        }
    }

    fn extender(ignorable: bool, managed: &[&str]) -> Extender {
        let managed = Managed(managed.iter().map(|name| ResourceName::new(name).unwrap()).collect());
        Extender {
            managed,
            filters: true,
            weight: Some(3),
            preempts: false,
            ignorable,
            call: Box::new(Silent),
        }
    }

    #[test]
    fn a_failure_may_be_passed_over_but_the_end_of_the_process_may_not() {
        let failed = || Err::<u8, _>(CallError::Failed("x".to_owned()));
        assert_eq!(extender(true, &[]).check(Ok(7)), Ok(Some(7)));
        assert_eq!(extender(true, &[]).check(failed()), Ok(None));
        assert_eq!(extender(false, &[]).check(failed()), failed().map(Some));
        assert_eq!(extender(true, &[]).check(Err::<u8, _>(CallError::Stopped)), Err(CallError::Stopped));
    }

    #[test]
    fn pods_concern_it_by_their_resources_and_scores_are_scaled() {
        let pod = json!({ "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "v.example/a": "1" }, "limits": { "v.example/a": "1" } } },
        ] } });
        let pod = PodView::read(&serde_json::from_value(pod).unwrap());
        for (managed, concerned) in
            [(&[][..], true), (&["v.example/b", "v.example/a"], true), (&["v.example/b"], false)]
        {
            assert_eq!(extender(false, managed).filters_for(&pod), concerned, "{managed:?}");
        }
        assert_eq!(extender(false, &[]).scaled(4), 120);
    }
}
