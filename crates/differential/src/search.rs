//! A search: sessions of one seed, each compared, on as many oracles as there are workers.
//!
//! In: a seed, a number of admissions, the oracle's program. Out: a [`Tally`] and the differences, made small. Never: a
//! result that depends on the number of workers, but for how many sessions beyond the wanted number were begun.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sim::admit::session::{Session, Step};
use testkit::oracle::Oracle;
use topology::kubelet::profile::Minor;

use crate::compare::{Difference, compare};
use crate::generate::session;
use crate::minimise::minimise;
use crate::tally::Tally;

/// Differences that are made small; more are counted only.
const MAX_FAILURES: usize = 8;

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all sessions.
    pub seed: u64,
    /// The number of the first session.
    pub first: u64,
    /// Compare at least so many admissions.
    pub admissions: u64,
    /// The version of the oracle.
    pub minor: Minor,
    /// The oracle's program.
    pub program: PathBuf,
    /// Oracles at a time.
    pub workers: usize,
}

/// A session in which model and kubelet differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The session's number.
    pub number: u64,
    /// The session, made small if the difference came back.
    pub session: Session,
    /// The difference in it.
    pub difference: Difference,
    /// Whether the difference came back when the same kubelet was asked again.
    pub came_back: bool,
}

/// Searches. `progress` is told the tally after each session, `failed` each failure as soon as it is made small.
///
/// # Errors
/// When an oracle cannot be started, ends early, or answers something that cannot be read.
pub fn search(
    options: &Options,
    progress: &(dyn Fn(&Tally) + Sync),
    failed: &(dyn Fn(&Failure) + Sync),
) -> anyhow::Result<(Tally, Vec<Failure>)> {
    let shared = Shared {
        options,
        next: AtomicU64::new(options.first),
        stop: AtomicBool::new(false),
        found: Mutex::new((Tally::default(), Vec::new())),
        progress,
        failed,
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.workers.max(1)).map(|_| scope.spawn(|| shared.work())).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("a worker panicked"),
        })
    })?;
    Ok(shared.found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What workers share.
struct Shared<'a> {
    options: &'a Options,
    next: AtomicU64,
    stop: AtomicBool,
    found: Mutex<(Tally, Vec<Failure>)>,
    progress: &'a (dyn Fn(&Tally) + Sync),
    failed: &'a (dyn Fn(&Failure) + Sync),
}

impl Shared<'_> {
    fn work(&self) -> anyhow::Result<()> {
        let mut oracle = Oracle::start(&self.options.program)?;
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let session = session(self.options.seed, number, self.options.minor);
            let mut tally = Tally::default();
            let difference = run(&mut oracle, &session, self.options.minor, &mut tally);
            let difference = difference.inspect_err(|_| self.stop.store(true, Ordering::Relaxed));
            let difference = difference.map_err(|error| error.context(format!("session {number}")))?;
            tally.mismatches += u64::from(difference.is_some());
            if self.merge(tally)
                && let Some(difference) = difference
            {
                let failure = self.small(&mut oracle, number, session, difference)?;
                (self.failed)(&failure);
                self.found.lock().unwrap_or_else(PoisonError::into_inner).1.push(failure);
            }
        }
        Ok(())
    }

    /// Adds to the tally. Returns whether more differences are to be made small.
    fn merge(&self, tally: Tally) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.0.add(tally);
        if found.0.admissions >= self.options.admissions {
            self.stop.store(true, Ordering::Relaxed);
        }
        (self.progress)(&found.0);
        found.1.len() < MAX_FAILURES
    }

    fn small(
        &self,
        oracle: &mut Oracle,
        number: u64,
        session: Session,
        difference: Difference,
    ) -> anyhow::Result<Failure> {
        let minor = self.options.minor;
        let small = minimise(&session, |candidate| {
            matches!(run(oracle, candidate, minor, &mut Tally::default()), Ok(Some(_)))
        });
        Ok(match run(oracle, &small, minor, &mut Tally::default())? {
            Some(difference) => Failure { number, session: small, difference, came_back: true },
            None => Failure { number, session, difference, came_back: false },
        })
    }
}

/// Asks the oracle and the model about one session.
fn run(
    oracle: &mut Oracle,
    session: &Session,
    minor: Minor,
    tally: &mut Tally,
) -> anyhow::Result<Option<Difference>> {
    compare(session, &ask(oracle, session)?, minor, tally)
}

/// The oracle's answers to a session, the start's first.
///
/// # Errors
/// When the oracle has ended, or an answer is no JSON.
pub fn ask(oracle: &mut Oracle, session: &Session) -> anyhow::Result<Vec<Value>> {
    let steps = session.steps.iter().map(Step::request);
    oracle.requests(&std::iter::once(session.request()).chain(steps).collect::<Vec<_>>())
}

/// Writes a failure's session, for `tholepin admit --session`.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(failure: &Failure, folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("session-{}.json", failure.number));
    std::fs::write(&path, serde_json::to_string_pretty(&failure.session)?)?;
    Ok(path)
}
