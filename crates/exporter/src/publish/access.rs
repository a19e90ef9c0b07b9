//! What we are allowed to do with the object, as far as the server has said no. Pure: time goes in as a value.
//!
//! Nobody is asked beforehand: a role is what it is when a call is made, and the answer to the call is the one that counts. A
//! refusal is remembered for a while, so that each write does not cost two calls: not for long at first, as the role may be
//! on its way while we start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::settings::Mode;

/// How long a first refusal is believed; each further one twice as long, up to the most.
pub(super) const BELIEVED_MIN: Duration = Duration::from_secs(10);
pub(super) const BELIEVED_MAX: Duration = Duration::from_secs(600);

/// What RBAC calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Get,
    Create,
    Patch,
    Update,
}

/// How the object is read when no watch tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As everybody does.
    Get,
    /// By a patch that changes nothing, whose answer is the object: all that nfd-topology-updater's role has.
    EmptyPatch,
}

/// The refusals so far.
#[derive(Debug, Default)]
pub(super) struct Access {
    refused: BTreeMap<Verb, Refusal>,
}

/// A verb that was refused whenever it was tried lately.
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

impl Reading {
    /// The permission it needs.
    pub(super) fn verb(self) -> Verb {
        match self {
            Self::Get => Verb::Get,
            Self::EmptyPatch => Verb::Patch,
        }
    }
}

impl Access {
    /// The server refused this. True if it had not the last time.
    pub(super) fn refuse(&mut self, verb: Verb, now: Instant) -> bool {
        let refusal = self.refused.entry(verb).or_insert(Refusal { times: 0, until: now });
        let factor = 1_u32.checked_shl(refusal.times).unwrap_or(u32::MAX);
        refusal.until = now + BELIEVED_MIN.saturating_mul(factor).min(BELIEVED_MAX);
        refusal.times += 1;
        refusal.times == 1
    }

    /// The server let us do this.
    pub(super) fn allow(&mut self, verb: Verb) {
        self.refused.remove(&verb);
    }

    /// Nothing is left that may be tried, so everything may be tried again.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.refused.values_mut().for_each(|refusal| refusal.until = now);
    }

    /// How to write: as wanted, or the nearest to it that has not been refused.
    pub(super) fn writing(&self, wanted: Mode, now: Instant) -> Option<Mode> {
        // Patch and apply are one permission.
        let (patches, other) = match wanted {
            Mode::Patch | Mode::Apply => (wanted, Mode::Update),
            Mode::Update => (Mode::Update, Mode::Patch),
        };
        [patches, other].into_iter().find(|mode| self.may(verb(*mode), now))
    }

    /// How to read.
    pub(super) fn reading(&self, now: Instant) -> Option<Reading> {
        if self.may(Verb::Get, now) {
            return Some(Reading::Get);
        }
        self.may(Verb::Patch, now).then_some(Reading::EmptyPatch)
    }

    /// Whether it has not been refused lately.
    pub(super) fn may(&self, verb: Verb, now: Instant) -> bool {
        self.refused.get(&verb).is_none_or(|refusal| refusal.until <= now)
    }
}

/// The permission a mode needs for an object that is there.
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
            (&[][..], Patch, Some(Patch), Some(Reading::Get)),
            (&[Verb::Patch], Patch, Some(Update), Some(Reading::Get)),
            (&[Verb::Patch], Apply, Some(Update), Some(Reading::Get)),
            (&[Verb::Update], Update, Some(Patch), Some(Reading::Get)),
            (&[Verb::Update, Verb::Get], Update, Some(Patch), Some(Reading::EmptyPatch)),
            (&[Verb::Get], Apply, Some(Apply), Some(Reading::EmptyPatch)),
            (&[Verb::Get, Verb::Patch], Patch, Some(Update), None),
            (&[Verb::Update, Verb::Patch], Patch, None, Some(Reading::Get)),
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
        access.doubt(now);
        assert!(access.may(Verb::Patch, now));
        access.allow(Verb::Patch);
        assert!(access.refuse(Verb::Patch, now), "it had worked meanwhile");
    }
}
