//! Conditions: how it is, in the words of the Go operator.
//!
//! In: a [`State`] and what else is said ([`Extra`]), conditions as they were, a time. Out: conditions. Never: a clock, nor a new
//! time where nothing has turned.
//!
//! The Go operator writes two of its reasons never, and `observedGeneration` only on what is true. Here reasons are those of
//! the state, and every condition says which generation it is about, so that `kubectl wait` and others can rely on it.

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// All is as it was asked for.
pub const AVAILABLE: &str = "Available";
/// A newer operator may take over.
pub const UPGRADEABLE: &str = "Upgradeable";
/// It is on its way to what was asked for.
pub const PROGRESSING: &str = "Progressing";
/// It cannot be as it was asked for.
pub const DEGRADED: &str = "Degraded";

/// The conditions that every object has, in their order.
const BASE: [&str; 4] = [AVAILABLE, UPGRADEABLE, PROGRESSING, DEGRADED];

/// A reason: something the operator does failed.
pub const INTERNAL_ERROR: &str = "InternalError";

/// The longest message that the API server takes.
const LONGEST_BYTES: usize = 32_768;

/// How it is with what an object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All is as it was asked for.
    Available,
    /// It is on its way.
    Progressing(Why),
    /// It cannot be.
    Degraded(Why),
}

/// Why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// As one word for programs.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A condition beside those of the state. Its reason is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Its name.
    pub name: &'static str,
    /// Whether it holds; `None`: nobody knows.
    pub holds: Option<bool>,
    /// For people.
    pub message: String,
}

impl State {
    /// On its way.
    pub fn progressing(reason: &str, message: impl Into<String>) -> Self {
        Self::Progressing(Why { reason: reason.to_owned(), message: message.into() })
    }

    /// It cannot be.
    pub fn degraded(reason: &str, message: impl Into<String>) -> Self {
        Self::Degraded(Why { reason: reason.to_owned(), message: message.into() })
    }

    /// Those of [`BASE`] that hold, with why.
    fn of(&self, name: &str) -> Option<Why> {
        let plain = || Why { reason: name.to_owned(), message: String::new() };
        match (self, name) {
            (Self::Available, AVAILABLE | UPGRADEABLE) => Some(plain()),
            (Self::Progressing(why), PROGRESSING) | (Self::Degraded(why), DEGRADED) => Some(why.clone()),
            _ => None,
        }
    }
}

impl Extra {
    /// Known to hold or not to hold.
    #[must_use]
    pub fn known(name: &'static str, holds: bool, message: String) -> Self {
        Self { name, holds: Some(holds), message }
    }

    /// Not known.
    #[must_use]
    pub fn unknown(name: &'static str) -> Self {
        Self { name, holds: None, message: String::new() }
    }
}

/// The conditions of an object of this generation: those of the state, `extras`, then whatever others have put beside them.
///
/// The time of one changes only when its status does.
#[must_use]
pub fn conditions(
    state: &State,
    extras: &[Extra],
    old: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let base = BASE.into_iter().map(|name| {
        let why = state.of(name);
        let status = if why.is_some() { "True" } else { "False" };
        let why = why.unwrap_or_else(|| Why { reason: name.to_owned(), message: String::new() });
        (name, status, why)
    });
    let extras = extras.iter().map(|extra| {
        let status = match extra.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        (extra.name, status, Why { reason: extra.name.to_owned(), message: extra.message.clone() })
    });
    let mut conditions: Vec<Condition> = Vec::new();
    for (name, status, why) in base.chain(extras) {
        let before = old.iter().find(|condition| condition.type_ == name && condition.status == status);
        conditions.push(Condition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: if why.reason.is_empty() { name.to_owned() } else { why.reason },
            message: shortened(why.message),
            observed_generation: generation,
            last_transition_time: before
                .map_or_else(|| Time(seconds(now)), |condition| condition.last_transition_time.clone()),
        });
    }
    let others = old.iter().filter(|other| conditions.iter().all(|ours| ours.type_ != other.type_));
    let others: Vec<Condition> = others.cloned().collect();
    conditions.extend(others);
    conditions
}

/// Which conditions have another status than before, with how they are now. For events and metrics.
pub fn turned<'a>(old: &'a [Condition], new: &'a [Condition]) -> impl Iterator<Item = &'a Condition> {
    new.iter().filter(|new| {
        old.iter().find(|old| old.type_ == new.type_).is_none_or(|old| old.status != new.status)
    })
}

/// Objects have times in whole seconds.
fn seconds(now: Timestamp) -> Timestamp {
    now.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor)).unwrap_or(now)
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
