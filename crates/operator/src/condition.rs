//! Conditions of users' objects, in the words of the Go operator.
//!
//! In: a [`State`], further conditions ([`Extra`]), the former conditions, a time. Out: conditions. Never: a clock, or
//! a new transition time where no status changed.
//!
//! The Go operator never writes two of its reasons, and writes `observedGeneration` only on true conditions. Here
//! reasons are those of the state, and every condition has its generation, so that `kubectl wait` can rely on it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition: everything is as requested.
pub const AVAILABLE: &str = "Available";
/// A condition: a newer operator may take over.
pub const UPGRADEABLE: &str = "Upgradeable";
/// A condition: changes are under way.
pub const PROGRESSING: &str = "Progressing";
/// A condition: the request cannot be met.
pub const DEGRADED: &str = "Degraded";

/// The conditions of every object, in their order.
const BASE: [&str; 4] = [AVAILABLE, UPGRADEABLE, PROGRESSING, DEGRADED];

/// A reason: an action of the operator failed.
pub const INTERNAL_ERROR: &str = "InternalError";

/// The message of a request that is available as it was before.
const EARLIER: &str = "what was asked for before works on";

/// The longest message that the API server accepts.
const LONGEST_BYTES: usize = 32_768;

/// The state of what a user's object requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Everything is as requested.
    Available,
    /// Changes are under way, for this reason (one word) and with this message.
    Progressing(String, String),
    /// The request cannot be met, for this reason (one word) and with this message.
    Degraded(String, String),
    /// The same, while what an earlier request asked for works on.
    Refused(String, String),
}

/// A condition beside those of the state. Its reason is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Its name.
    pub name: &'static str,
    /// Whether it holds; `None`: unknown.
    pub holds: Option<bool>,
    /// A text for people.
    pub message: String,
}

impl State {
    /// Changes are under way.
    pub fn progressing(reason: &str, message: impl Into<String>) -> Self {
        Self::Progressing(reason.to_owned(), message.into())
    }

    /// The same state where what an earlier request asked for works on.
    #[must_use]
    pub fn while_earlier_works(self) -> Self {
        match self {
            Self::Degraded(reason, message) => Self::Refused(reason, message),
            other => other,
        }
    }

    /// The request cannot be met.
    pub fn degraded(reason: &str, message: impl Into<String>) -> Self {
        Self::Degraded(reason.to_owned(), message.into())
    }
}

impl Extra {
    /// A condition that is known to hold or not to hold.
    #[must_use]
    pub fn known(name: &'static str, holds: bool, message: String) -> Self {
        Self { name, holds: Some(holds), message }
    }

    /// An unknown condition.
    #[must_use]
    pub fn unknown(name: &'static str) -> Self {
        Self { name, holds: None, message: String::new() }
    }
}

/// The conditions of an object of this generation: those of the state, `extras`, then those that other programs wrote.
///
/// The time of a condition changes only with its status.
#[must_use]
pub fn conditions(
    state: &State,
    extras: &[Extra],
    old: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let base = BASE.into_iter().map(|name| match (state, name) {
        (State::Available, AVAILABLE | UPGRADEABLE) => (name, "True", name, ""),
        (State::Refused(..), AVAILABLE) => (name, "True", name, EARLIER),
        (State::Progressing(reason, message), PROGRESSING)
        | (State::Degraded(reason, message) | State::Refused(reason, message), DEGRADED) => {
            (name, "True", reason.as_str(), message.as_str())
        }
        _ => (name, "False", name, ""),
    });
    let extras = extras.iter().map(|Extra { name, holds, message }| {
        let status = holds.map_or("Unknown", |holds| if holds { "True" } else { "False" });
        (*name, status, *name, message.as_str())
    });
    // Objects have times in whole seconds.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let condition = |(name, status, reason, message): (&str, &str, &str, &str)| {
        let before = old.iter().find(|condition| condition.type_ == name && condition.status == status);
        Condition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: if reason.is_empty() { name } else { reason }.to_owned(),
            message: shortened(message.to_owned()),
            observed_generation: generation,
            last_transition_time: before
                .map_or_else(|| now.clone(), |condition| condition.last_transition_time.clone()),
        }
    };
    let mut conditions: Vec<Condition> = base.chain(extras).map(condition).collect();
    let is_known = |other: &&Condition| conditions.iter().any(|known| known.type_ == other.type_);
    let others: Vec<Condition> = old.iter().filter(|other| !is_known(other)).cloned().collect();
    conditions.extend(others);
    conditions
}

/// At most what the API server takes.
fn shortened(mut message: String) -> String {
    if message.len() > LONGEST_BYTES {
        let end = (0..=LONGEST_BYTES - 3).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests;
