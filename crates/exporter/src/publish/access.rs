//! The permissions for the object, as far as the server has refused some. Pure: time goes in as a value.
//!
//! Permissions are not queried beforehand: a role may change, and only the answer to the call itself counts. A refusal
//! is remembered for a while, so that a write does not cost two calls each time. The first time it is short, as the
//! role may be created while the exporter starts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::settings::Mode;

/// How long a first refusal is remembered; each further one twice as long, up to the maximum.
pub(super) const REFUSAL_MIN: Duration = Duration::from_secs(10);
pub(super) const REFUSAL_MAX: Duration = Duration::from_secs(600);

/// The verb in RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Get,
    Create,
    Patch,
    Update,
}

/// How the object is read without a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadMethod {
    /// An ordinary get.
    Get,
    /// A patch that changes nothing, whose answer is the object: the only way with nfd-topology-updater's role.
    EmptyPatch,
}

/// The refusals so far.
#[derive(Debug, Default)]
pub(super) struct Access {
    refused: BTreeMap<Verb, Refusal>,
}

/// A verb that was refused at each recent attempt.
#[derive(Debug)]
struct Refusal {
    times: u32,
    until: Instant,
}

impl Verb {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Update => "update",
        }
    }
}

impl ReadMethod {
    /// The permission that the method needs.
    pub(super) fn verb(self) -> Verb {
        match self {
            Self::Get => Verb::Get,
            Self::EmptyPatch => Verb::Patch,
        }
    }
}

impl Access {
    /// Notes a refusal. True if the verb was not refused the last time.
    pub(super) fn refuse(&mut self, verb: Verb, now: Instant) -> bool {
        let refusal = self.refused.entry(verb).or_insert(Refusal { times: 0, until: now });
        let factor = 1_u32.checked_shl(refusal.times).unwrap_or(u32::MAX);
        refusal.until = now + REFUSAL_MIN.saturating_mul(factor).min(REFUSAL_MAX);
        refusal.times += 1;
        refusal.times == 1
    }

    /// Notes a success.
    pub(super) fn allow(&mut self, verb: Verb) {
        self.refused.remove(&verb);
    }

    /// Makes every verb available again, because none is left.
    pub(super) fn retry_all(&mut self, now: Instant) {
        self.refused.values_mut().for_each(|refusal| refusal.until = now);
    }

    /// The mode to write in: the wanted one, or the nearest one that has not been refused.
    pub(super) fn writing(&self, wanted: Mode, now: Instant) -> Option<Mode> {
        // Patch and apply are one permission.
        let (patches, other) = match wanted {
            Mode::Patch | Mode::Apply => (wanted, Mode::Update),
            Mode::Update => (Mode::Update, Mode::Patch),
        };
        [patches, other].into_iter().find(|mode| self.may(verb(*mode), now))
    }

    /// The method to read with.
    pub(super) fn reading(&self, now: Instant) -> Option<ReadMethod> {
        if self.may(Verb::Get, now) {
            return Some(ReadMethod::Get);
        }
        self.may(Verb::Patch, now).then_some(ReadMethod::EmptyPatch)
    }

    /// Whether the verb has not been refused recently.
    pub(super) fn may(&self, verb: Verb, now: Instant) -> bool {
        self.refused.get(&verb).is_none_or(|refusal| refusal.until <= now)
    }
}

/// The permission that a mode needs for an existing object.
fn verb(mode: Mode) -> Verb {
    match mode {
        Mode::Patch | Mode::Apply => Verb::Patch,
        Mode::Update => Verb::Update,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_has_a_stand_in() {
        use Mode::{Apply, Patch, Update};
        let now = Instant::now();
        for (refused, wanted, mode, reading) in [
            (&[][..], Patch, Some(Patch), Some(ReadMethod::Get)),
            (&[Verb::Patch], Patch, Some(Update), Some(ReadMethod::Get)),
            (&[Verb::Patch], Apply, Some(Update), Some(ReadMethod::Get)),
            (&[Verb::Update], Update, Some(Patch), Some(ReadMethod::Get)),
            (&[Verb::Update, Verb::Get], Update, Some(Patch), Some(ReadMethod::EmptyPatch)),
            (&[Verb::Get], Apply, Some(Apply), Some(ReadMethod::EmptyPatch)),
            (&[Verb::Get, Verb::Patch], Patch, Some(Update), None),
            (&[Verb::Update, Verb::Patch], Patch, None, Some(ReadMethod::Get)),
        ] {
            let mut access = Access::default();
            for verb in refused {
                assert!(access.refuse(*verb, now), "news");
            }
            let got = (access.writing(wanted, now), access.reading(now));
            assert_eq!(got, (mode, reading), "{refused:?} {wanted:?}");
        }
    }

    #[test]
    fn a_refusal_is_news_once_and_believed_for_longer_and_longer() {
        let (mut access, mut now) = (Access::default(), Instant::now());
        for (time, seconds) in [10, 20, 40, 80, 160, 320, 600, 600].into_iter().enumerate() {
            assert_eq!(access.refuse(Verb::Patch, now), time == 0);
            let until = now + Duration::from_secs(seconds);
            assert!(
                !access.may(Verb::Patch, until - Duration::from_secs(1)) && access.may(Verb::Patch, until)
            );
            now = until;
        }
        access.refuse(Verb::Patch, now);
        access.retry_all(now);
        assert!(access.may(Verb::Patch, now));
        access.allow(Verb::Patch);
        assert!(access.refuse(Verb::Patch, now), "it had worked meanwhile");
    }
}
