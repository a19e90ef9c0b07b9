//! A search: cases of one seed, each compared, on as many oracles as there are workers.
//!
//! In: a seed, a number of cases, the oracle's program. Out: a [`Tally`] and the differences, made small. Never: a
//! result that depends on the number of workers.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use testkit::oracle::Oracle;

use crate::scheduler::case::Case;
use crate::scheduler::compare::{Difference, compare};
use crate::scheduler::generate::case;
use crate::scheduler::minimise::minimise;
use crate::scheduler::tally::Tally;

/// Differences that are made small; more are counted only.
const MAX_FAILURES: u64 = 8;

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all cases.
    pub seed: u64,
    /// The number of the first case.
    pub first: u64,
    /// How many cases.
    pub cases: u64,
    /// Oracles at a time.
    pub workers: usize,
}

/// A case in which the schedulers differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number.
    pub number: u64,
    /// The case, made small.
    pub case: Case,
    /// The difference in it.
    pub difference: Difference,
}

/// Searches; `failed` is told each failure as soon as it is made small, `progress` the counts after each case.
///
/// # Errors
/// When an oracle cannot be started, or a case cannot be read.
pub fn search(
    options: &Options,
    program: &Path,
    progress: &(dyn Fn(&Tally) + Sync),
    failed: &(dyn Fn(&Failure) + Sync),
) -> anyhow::Result<Tally> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let work = || -> anyhow::Result<()> {
        let mut oracle = Oracle::start(program)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.cases {
                return Ok(());
            }
            let number = options.first + number;
            let case = case(options.seed, number);
            let mut tally = Tally::default();
            let difference = compare(&mut oracle, &case, number, &mut tally);
            let difference = difference.map_err(|error| error.context(format!("case {number}")));
            let difference = difference.inspect_err(|_| next.store(options.cases, Ordering::Relaxed))?;
            tally.unexplained = u64::from(difference.is_some());
            let is_shown = {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.add(tally);
                progress(&found);
                found.unexplained <= MAX_FAILURES
            };
            if let Some(difference) = difference.filter(|_| is_shown) {
                failed(&small(&mut oracle, number, &case, difference));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.workers.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("a worker panicked"),
        })
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn small(oracle: &mut Oracle, number: u64, case: &Case, difference: Difference) -> Failure {
    let mut compared = |case: &Case| compare(oracle, case, number, &mut Tally::default()).ok().flatten();
    let case = minimise(case, |candidate| compared(candidate).is_some());
    let difference = compared(&case).unwrap_or(difference);
    Failure { number, case, difference }
}
