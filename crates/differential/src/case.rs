//! A session with the answers that a kubelet gave, so that the model can be held against them without a kubelet.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sim::admit::session::Session;

/// A recorded comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The kubelet's minor version: `1.36`.
    pub kubernetes: String,
    /// The session.
    pub session: Session,
    /// The answers: to the start, then to each step.
    pub answers: Vec<Value>,
}
