//! Bad input for every entry point: no panic, no abort, no hang, little memory, and a reason in plain text.
//!
//! `BAD_INPUTS=5000 SEED=1 cargo test -p tholepin --test it -- bad_input --nocapture` runs that many from that seed
//! on, and prints the longest message. A failure names its seed; `BAD_INPUTS=1 SEED=N` repeats it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "bad_input/case.rs"]
mod case;
#[path = "bad_input/document.rs"]
mod document;
#[path = "bad_input/entry.rs"]
mod entry;
#[path = "bad_input/judge.rs"]
mod judge;
#[path = "bad_input/server.rs"]
mod server;
#[path = "bad_input/value.rs"]
mod value;

use self::case::Case;
use self::entry::Grammar;
use self::judge::Outcome;
use self::server::Server;

/// The longest time from the start of a run, or from SIGTERM to a daemon, to its end, without waits for a CPU.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most memory that a run may have for itself.
const MEMORY_KIB: u32 = 200 * 1024;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().expect(name))
}

/// The most and the longest of all runs.
#[derive(Default)]
struct Record {
    refused: u64,
    longest: Option<(usize, u64)>,
    slowest: Option<(Duration, u64)>,
    by_entry: BTreeMap<&'static str, u64>,
    failures: Vec<String>,
}

impl Record {
    fn add(&mut self, case: &Case, outcome: &Outcome) {
        self.refused += u64::from(outcome.code != Some(0));
        self.longest = self.longest.max(Some((outcome.stderr.len(), case.seed)));
        self.slowest = self.slowest.max(Some((outcome.took, case.seed)));
        *self.by_entry.entry(case.entry.words).or_default() += 1;
        if let Err(reason) = outcome.judge() {
            self.failures.push(format!("SEED={} {}\n{reason}", case.seed, case.describe()));
        }
    }
}

#[test]
fn no_input_breaks_a_program() {
    let (first, count) = (number("SEED", 1), number("BAD_INPUTS", 150));
    let grammar = Grammar::read();
    let server = Server::start();
    let (next, record) = (AtomicU64::new(first), Mutex::new(Record::default()));
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= first + count {
            return;
        }
        let case = Case::generate(seed, &grammar, server.port());
        let outcome = case.run();
        record.lock().unwrap().add(&case, &outcome);
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().unwrap();
    });
    let Record { refused, longest, slowest, by_entry, failures } = record.into_inner().unwrap();
    let ((bytes, wordy), (took, slow)) = (longest.unwrap(), slowest.unwrap());
    println!(
        "bad_input: {count} inputs over {} entry points from seed {first}: {refused} refused, {} failures; longest \
         message {bytes} bytes (seed {wordy}), slowest run {} ms (seed {slow})",
        by_entry.len(),
        failures.len(),
        took.as_millis()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    // Where nothing is refused, the inputs are not bad.
    assert!(refused * 2 > count, "{refused} of {count}");
}
