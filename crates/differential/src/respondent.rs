//! Who answers a session: the kubelet's own packages, or real kubelets.
//!
//! In: a session. Out: answers in one JSON form ([`sim::admit::verdict`]): to the start, then to each step. Never: a
//! comparison.

use serde_json::Value;
use sim::admit::session::{Session, Step};
use testkit::oracle::Oracle;

/// Which respondent. Not every machine that an oracle can be told of can be shown to a real kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespondentKind {
    /// The kubelet's own packages: anything goes.
    Oracle,
    /// Real kubelets on the rig, with our device plugin.
    Kubelets,
}

/// Something that runs the kubelet of a session and says what it did.
pub trait Respondent {
    /// The answers to a session, the start's first. There are fewer where the kubelet refused to start.
    ///
    /// # Errors
    /// When it fails itself: no answer says anything of the kubelet then.
    fn answers(&mut self, session: &Session) -> anyhow::Result<Vec<Value>>;
}

impl Respondent for Oracle {
    fn answers(&mut self, session: &Session) -> anyhow::Result<Vec<Value>> {
        let steps = session.steps.iter().map(Step::request);
        self.requests(&std::iter::once(session.request()).chain(steps).collect::<Vec<_>>())
    }
}
