//! A search: sessions of one seed, each compared, on as many respondents as there are workers.
//!
//! In: a seed, a number of admissions, how a respondent is made. Out: a [`Tally`] and the differences, made small.
//! Never: a result that depends on the number of workers, but for the sessions begun beyond the wanted number.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use sim::admit::model::{Model, registration};
use sim::admit::session::{Session, Step};
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::profile::Minor;

use crate::compare::{Difference, compare};
use crate::generate::session;
use crate::minimise::minimise;
use crate::respondent::{Respondent, RespondentKind};
use crate::tally::Tally;

/// Differences that are made small; more are counted only.
const MAX_FAILURES: usize = 8;

/// Real kubelets for each CPU: they wait most of the time.
const KUBELETS_PER_CPU: usize = 4;

/// Sessions by which a difference of real kubelets is made small; each takes up to a minute.
const KUBELET_ATTEMPTS: usize = 24;

/// The time between two calls of `progress`.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all sessions.
    pub seed: u64,
    /// The number of the first session.
    pub first: u64,
    /// Compare at least so many admissions.
    pub admissions: u64,
    /// The version of the kubelets.
    pub minor: Minor,
    /// Who answers the sessions.
    pub respondent: RespondentKind,
    /// Respondents at a time.
    pub workers: usize,
    /// Make a difference small with at most so many sessions.
    pub attempts: usize,
    /// Run at most so many steps of each session.
    pub steps: usize,
}

impl Options {
    /// A search with as many respondents as this machine bears.
    #[must_use]
    pub fn new(respondent: RespondentKind, minor: Minor, seed: u64, admissions: u64) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, Into::into);
        let (workers, attempts) = match respondent {
            RespondentKind::Oracle => (cpus, usize::MAX),
            RespondentKind::Kubelets => (cpus * KUBELETS_PER_CPU, KUBELET_ATTEMPTS),
        };
        Self { seed, first: 0, admissions, minor, respondent, workers, attempts, steps: usize::MAX }
    }
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

/// Searches. `respondent` makes one for each worker; `progress` is told the tally every ten seconds, `failed` each
/// failure as soon as it is made small.
///
/// # Errors
/// When a respondent cannot be made, fails, or answers something that cannot be read.
pub fn search<R: Respondent>(
    options: &Options,
    respondent: &(dyn Fn() -> anyhow::Result<R> + Sync),
    progress: &(dyn Fn(&Tally) + Sync),
    failed: &(dyn Fn(&Failure) + Sync),
) -> anyhow::Result<(Tally, Vec<Failure>)> {
    let shared = Shared {
        options,
        next: AtomicU64::new(options.first),
        stop: AtomicBool::new(false),
        broken: AtomicBool::new(false),
        found: Mutex::new((Tally::default(), Vec::new())),
        failed,
    };
    let shared = &shared;
    std::thread::scope(|scope| {
        let (ends, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
                progress(&shared.found.lock().unwrap_or_else(PoisonError::into_inner).0);
            }
        });
        let work = move || shared.work(&mut respondent()?);
        let workers: Vec<_> = (0..options.workers.max(1)).map(|_| scope.spawn(work)).collect();
        let done = workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("a worker panicked"),
        });
        drop(ends);
        done
    })?;
    let found = shared.found.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(found.clone())
}

/// What workers share.
struct Shared<'a> {
    options: &'a Options,
    next: AtomicU64,
    stop: AtomicBool,
    /// A respondent failed: nothing is worth going on with.
    broken: AtomicBool,
    found: Mutex<(Tally, Vec<Failure>)>,
    failed: &'a (dyn Fn(&Failure) + Sync),
}

impl Shared<'_> {
    fn work(&self, respondent: &mut dyn Respondent) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let mut session = session(self.options.respondent, self.options.seed, number, self.options.minor);
            session.steps.truncate(self.options.steps);
            session.steps.truncate(steps_that_end(&session, self.options.minor)?);
            let mut tally = Tally::default();
            let difference = run(respondent, &session, self.options.minor, &mut tally);
            let difference = difference.inspect_err(|_| {
                self.stop.store(true, Ordering::Relaxed);
                self.broken.store(true, Ordering::Relaxed);
            });
            let difference = difference.map_err(|error| error.context(format!("session {number}")))?;
            tally.mismatches += u64::from(difference.is_some());
            if self.merge(tally)
                && let Some(found) = difference
            {
                let failure = self.small(respondent, number, session, found)?;
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
        found.1.len() < MAX_FAILURES
    }

    fn small(
        &self,
        respondent: &mut dyn Respondent,
        number: u64,
        session: Session,
        difference: Difference,
    ) -> anyhow::Result<Failure> {
        let minor = self.options.minor;
        let mut left = self.options.attempts;
        let small = minimise(&session, |candidate| {
            left = left.saturating_sub(1);
            let goes_on = left > 0 && !self.broken.load(Ordering::Relaxed);
            goes_on && matches!(run(respondent, candidate, minor, &mut Tally::default()), Ok(Some(_)))
        });
        Ok(match run(respondent, &small, minor, &mut Tally::default())? {
            Some(difference) => Failure { number, session: small, difference, came_back: true },
            None => Failure { number, session, difference, came_back: false },
        })
    }
}

/// The steps before the first one with which a kubelet would never come to an end.
fn steps_that_end(session: &Session, minor: Minor) -> anyhow::Result<usize> {
    let all = session.steps.len();
    let Ok(mut model) = Model::start(session, minor)? else { return Ok(all) };
    for (at, step) in session.steps.iter().enumerate() {
        let ends = match step {
            Step::Admit { pod } => model.admit(pod, &Lowest)?.reason != ENDLESS,
            Step::Remove { uid } => {
                model.remove(uid);
                true
            }
            // Of a pod that was rejected.
            Step::Resize { pod } => {
                drop(model.resize(pod));
                true
            }
            Step::Restart { plugins } => {
                let restarted = model.restart(registration(*plugins), &Lowest);
                restarted.rejected.iter().all(|pod| pod.reason != ENDLESS)
            }
        };
        if !ends {
            return Ok(at);
        }
    }
    Ok(all)
}

/// The word of the model for a pod that a kubelet never decides about.
const ENDLESS: &str = "Endless";

/// Asks the respondent and the model about one session.
fn run(
    respondent: &mut dyn Respondent,
    session: &Session,
    minor: Minor,
    tally: &mut Tally,
) -> anyhow::Result<Option<Difference>> {
    compare(session, &respondent.answers(session)?, minor, tally)
}

/// Writes what differs, under this name.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(differing: &impl Serialize, name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_string_pretty(differing)?)?;
    Ok(path)
}
