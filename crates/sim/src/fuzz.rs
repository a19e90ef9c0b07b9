//! Changed inputs for every parser that a scheduler, an exporter or `tholepin admit` feeds: no panic, no hang.
//!
//! In: texts that are right, changed at random by a seed. Out: nothing but the number of inputs; a failure prints its
//! input. An input that a parser accepts is changed further, so the search does not stay at what is refused at once.
//! `FUZZ_SECONDS=600 cargo xtask test -p sim --lib -- fuzz:: --nocapture` runs each parser that long, several at a time
//! (`SEED` chooses other inputs); without it, each runs a few hundred inputs.

mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use runtime::random::Random;

use self::mutate::mutate;
use self::targets::TARGETS;

/// One parser.
struct Target {
    name: &'static str,
    /// Right inputs.
    seeds: &'static [&'static str],
    /// Reads an input. Returns whether it was accepted.
    read: fn(&str) -> bool,
}

/// Accepted inputs that are kept beside the seeds.
const MAX_CORPUS: usize = 200;
/// Inputs of each parser where no time is given.
const INPUTS: u64 = 300;
/// The longest time of the processor for one input. Other load on the machine does not count.
const PATIENCE: Duration = Duration::from_secs(5);

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

/// The processor's time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Target {
    /// Runs changed inputs until the time is over. Returns their number and that of accepted ones.
    fn run(&self, seed: u64, time: Option<Duration>) -> Result<(u64, u64), String> {
        let mut random = Random::seeded(seed);
        let mut corpus: Vec<String> = self.seeds.iter().map(|seed| (*seed).to_owned()).collect();
        for seed in &corpus {
            self.check(seed).and_then(|accepted| {
                accepted.then_some(()).ok_or_else(|| format!("{} refuses a right input:\n{seed}", self.name))
            })?;
        }
        let (began, mut inputs, mut accepted) = (Instant::now(), 0, 0);
        while time.map_or(inputs < INPUTS, |time| began.elapsed() < time) {
            let input = mutate(&mut random, &corpus);
            inputs += 1;
            if self.check(&input)? {
                accepted += 1;
                let seeds = self.seeds.len();
                if corpus.len() < seeds + MAX_CORPUS {
                    corpus.push(input);
                } else {
                    let at = seeds + usize::try_from(random.below(MAX_CORPUS as u64)).unwrap_or(0);
                    corpus[at] = input;
                }
            }
        }
        Ok((inputs, accepted))
    }

    fn check(&self, input: &str) -> Result<bool, String> {
        let began = cpu_time();
        let accepted = catch_unwind(AssertUnwindSafe(|| (self.read)(input)))
            .map_err(|_| format!("{} panics at {input:?}", self.name))?;
        let took = cpu_time().saturating_sub(began);
        if took > PATIENCE {
            return Err(format!("{} takes {took:?} for {input:?}", self.name));
        }
        Ok(accepted)
    }
}

/// The variable that says which target a process is for.
const TARGET: &str = "FUZZ_TARGET";

/// Runs one target in a process of its own, since a process keeps the resource names that it has seen, up to a bound.
fn run_apart(target: &Target) -> Result<(u64, u64), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program);
    child.args(["--exact", "fuzz::no_input_breaks_a_parser", "--nocapture"]).env(TARGET, target.name);
    let output = child.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().find_map(|line| line.strip_prefix(target.name)?.strip_prefix(": "));
    let numbers = counts.and_then(|counts| {
        let (inputs, accepted) = counts.split_once(" inputs, ")?;
        Some((inputs.parse().ok()?, accepted.split(' ').next()?.parse().ok()?))
    });
    numbers.filter(|_| output.status.success()).ok_or_else(|| {
        format!("{}: {}\n{text}{}", target.name, output.status, String::from_utf8_lossy(&output.stderr))
    })
}

#[test]
fn no_input_breaks_a_parser() {
    let (seed, seconds) = (number("SEED", 1), number("FUZZ_SECONDS", 0));
    let time = (seconds > 0).then(|| Duration::from_secs(seconds));
    if let Ok(name) = std::env::var(TARGET) {
        let target = TARGETS.iter().find(|target| target.name == name).unwrap();
        let (inputs, accepted) = target.run(seed, time).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}: {inputs} inputs, {accepted} accepted");
        return;
    }
    let (next, inputs, accepted) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = if time.is_some() { run_apart(target) } else { target.run(seed, None) };
            let (of_target, right) = run.unwrap_or_else(|failure| panic!("{failure}"));
            println!("{}: {of_target} inputs, {right} accepted", target.name);
            inputs.fetch_add(of_target, Ordering::Relaxed);
            accepted.fetch_add(right, Ordering::Relaxed);
        }
    };
    // Several for each core, so that 10 minutes for each parser are half an hour.
    let workers = thread::available_parallelism().map_or(1, |cores| 4 * cores.get());
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let (inputs, accepted) = (inputs.into_inner(), accepted.into_inner());
    println!(
        "fuzz: {} parsers, {inputs} inputs from seed {seed}, {accepted} accepted, no failure",
        TARGETS.len()
    );
    assert!(accepted > 0 && accepted < inputs);
}
