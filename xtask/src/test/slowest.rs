//! Which tests take longest.
//!
//! In: the lines of `cargo test` as they come. Out: the slowest tests with their times. Never: an unstable
//! option of the test harness: times come from what it prints, and from the order in which it starts tests.
//!
//! The harness starts the tests of a binary in the order of their names, as many at once as there are threads,
//! and prints a line when one ends. So the test at place `n` starts when `n - threads + 1` others have ended.

use std::time::Duration;

/// A test and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) took: Duration,
    /// Binary and test, as `cargo test` names them.
    pub(super) name: String,
}

/// Reads the lines of `cargo test`.
#[derive(Debug)]
pub(super) struct Slowest {
    threads: usize,
    /// The package of the last unit tests: its integration tests come right after them.
    package: String,
    /// The binary whose tests run, and when they began.
    binary: String,
    began: Duration,
    /// Tests of this binary in the order in which they ended.
    ended: Vec<(String, Duration)>,
    all: Vec<Timed>,
}

impl Slowest {
    /// For a harness with so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            package: String::new(),
            binary: String::new(),
            began: Duration::ZERO,
            ended: Vec::new(),
            all: Vec::new(),
        }
    }

    /// For one binary, by its name in the list.
    pub(super) fn of(threads: usize, binary: String) -> Self {
        Self { binary, ..Self::new(threads) }
    }

    /// The times of all tests.
    pub(super) fn into_all(self) -> Vec<Timed> {
        self.all
    }

    /// Adds times that were taken elsewhere.
    pub(super) fn add(&mut self, times: Vec<Timed>) {
        self.all.extend(times);
    }

    /// Reads a line that came at this time, counted from any moment.
    pub(super) fn read(&mut self, line: &str, now: Duration) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Running", "unittests", .., path] => {
                self.package = name_of(path);
                self.binary = self.package.clone();
            }
            ["Running", .., path] => self.binary = format!("{} {}", self.package, name_of(path)),
            ["Doc-tests", name] => self.binary = format!("{name} (doc)"),
            ["running", _, "tests" | "test"] => {
                self.began = now;
                self.ended.clear();
            }
            ["test", "result:", ..] => self.close(),
            ["test", name, rest @ ..] if has_ended(rest) => {
                self.ended.push(((*name).to_owned(), now));
            }
            _ => {}
        }
    }

    /// The slowest tests, the slowest first.
    pub(super) fn top(&self, count: usize) -> Vec<Timed> {
        let mut all = self.all.clone();
        all.sort_by(|one, other| other.took.cmp(&one.took).then_with(|| one.name.cmp(&other.name)));
        all.truncate(count);
        all
    }

    fn close(&mut self) {
        let mut names: Vec<&str> = self.ended.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        for (name, end) in &self.ended {
            let place = names.partition_point(|other| *other < name.as_str());
            let start = match place.checked_sub(self.threads) {
                None => self.began,
                Some(before) => self.ended.get(before).map_or(self.began, |(_, end)| *end),
            };
            let name = format!("{} {name}", self.binary);
            self.all.push(Timed { took: end.saturating_sub(start), name });
        }
        self.ended.clear();
    }
}

/// Whether the rest of a line is `... ok` or another result; before it there may be ` - should panic`.
fn has_ended(words: &[&str]) -> bool {
    let result = words.iter().position(|word| *word == "...").and_then(|at| words.get(at + 1));
    result.is_some_and(|word| ["ok", "FAILED", "ignored,", "ignored"].contains(word))
}

/// `exporter` of `(target/debug/deps/exporter-0123456789abcdef)`.
fn name_of(path: &str) -> String {
    let file = path.trim_matches(['(', ')']).rsplit('/').next().unwrap_or_default();
    file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_from_the_order_of_starts() {
        let mut slowest = Slowest::new(2);
        for (second, line) in [
            (0, "     Running unittests src/lib.rs (target/debug/deps/api-0123456789abcdef)"),
            (1, "running 4 tests"),
            // a and b start at 1, c when b ends, d when a ends.
            (3, "test b ... ok"),
            (4, "test a - should panic ... ok"),
            (4, "test a - prints ... of its own"),
            (9, "test d ... FAILED"),
            (10, "test c ... ok"),
            (10, "test result: FAILED. 3 passed; 1 failed"),
            (10, "     Running tests/it.rs (target/debug/deps/it-0123456789abcdef)"),
            (10, "running 1 test"),
            (16, "test e ... ok"),
            (16, "test result: ok. 1 passed; 0 failed"),
        ] {
            slowest.read(line, Duration::from_secs(second));
        }
        let timed = |took, name: &str| Timed { took: Duration::from_secs(took), name: name.to_owned() };
        assert_eq!(slowest.top(3), [timed(7, "api c"), timed(6, "api it e"), timed(5, "api d")]);
    }
}
