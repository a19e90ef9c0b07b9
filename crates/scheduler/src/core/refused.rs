//! The report about a pod that fits no node: its message, and the plugins behind it.
//!
//! In: reasons, answers of PostFilter plugins. Out: kube-scheduler's words. Never: a judgement of nodes.

use super::Refused;
use crate::pod::PodView;
use crate::reason::{EXTENDER, Reason, Refusals};

impl Refused {
    /// A pod without a nominated node, with the message and the reasons.
    pub(super) fn new((pod, message, refusals): (PodView, String, Refusals)) -> Self {
        Self {
            pod,
            message,
            refusals,
            nominated: None,
            deallocation: None,
            tried_preemption: false,
            is_error: false,
        }
    }

    /// A pod whose attempt ended in an error.
    pub(super) fn error(parts: (PodView, String, Refusals)) -> Self {
        Self { is_error: true, ..Self::new(parts) }
    }

    /// Adds why PostFilter plugins could do nothing about it, in kube-scheduler's order and words.
    pub(super) fn explain(&mut self, claims: Option<&str>, preemption: Option<&str>) {
        let claims = claims.map(str::to_owned);
        let preemption = preemption.map(|reason| format!("preemption: {reason}"));
        let reasons: Vec<String> = claims.into_iter().chain(preemption).collect();
        if !reasons.is_empty() {
            self.message = format!("{} {}", self.message, reasons.join(", "));
        }
    }

    /// Plugins that refused nodes, each once, for metrics.
    #[must_use]
    pub fn plugins(&self) -> Vec<&'static str> {
        let mut plugins: Vec<_> =
            self.refusals.iter().map(|(reason, _): (Reason, usize)| reason.plugin()).collect();
        plugins.dedup();
        plugins.extend(self.refusals.by_extenders.then_some(EXTENDER));
        plugins
    }
}
