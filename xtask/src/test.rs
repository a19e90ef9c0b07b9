//! `cargo xtask test`: all tests, the rig included.
//!
//! In: arguments for `cargo test`. Out: its result, and the slowest tests when the output is not a terminal. Where the
//! rig cannot run, its tests are skipped, with a warning before and after.

mod binaries;
pub(crate) mod nightly;
mod slowest;

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use slowest::{Slowest, Timed};

use crate::{cargo, testenv};

/// How many of the slowest tests are shown.
const SLOWEST: usize = 10;

/// Tests that `cargo test` runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// The argument of `cargo test` that lets other tests run after a failure.
const NO_FAIL_FAST: &str = "--no-fail-fast";

/// Seeds all property tests.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Makes the rig ready if it can be, builds the binary under test and runs the tests.
pub(crate) fn run(args: &[OsString]) -> anyhow::Result<()> {
    run_with(args, &[], &mut |_| ())
}

/// The same with more variables in the environment. With variables, `each_line` gets each line of the output.
fn run_with(
    args: &[OsString],
    env: &[(&str, OsString)],
    each_line: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let skipped = why_not();
    if let Some(reason) = &skipped {
        warn(reason);
    }
    cargo::command("build").args(["--package", "tholepin"]).status_ok()?;
    // Cargo put it beside this very program.
    let tholepin = std::env::current_exe()?.with_file_name("tholepin");
    let mut test = cargo::command("test");
    if !selects_packages(args) {
        test.arg("--workspace");
    }
    test.args(args).env(testkit::env::THOLEPIN, tholepin).envs(env.iter().map(|(name, value)| (name, value)));
    // The same run twice is the same run. Searching for more is another seed, or `cargo test` without any.
    if std::env::var_os(SEED).is_none() {
        test.env(SEED, "1");
    }
    if skipped.is_none() {
        // What was just seen to work must not be skipped by some test after all.
        test.env(testkit::env::REQUIRE, "1");
    }
    let threads = threads();
    test.env(THREADS, threads.to_string());
    let is_watched = std::io::stdout().is_terminal() && env.is_empty();
    let result = if is_watched {
        test.status_ok()
    } else if binaries::is_whole_run(args) {
        whole(test, threads, args.iter().any(|arg| arg == NO_FAIL_FAST))
    } else {
        timed(&mut test, Slowest::new(threads), each_line)
    };
    if let Some(reason) = &skipped {
        warn(reason);
    }
    result
}

/// How many tests run at a time, unless the caller says so: two for each core. Tests on the rig wait for kubelets more
/// than they compute.
fn threads() -> usize {
    let stated =
        std::env::var(THREADS).ok().and_then(|text| text.parse().ok()).filter(|threads| *threads > 0);
    stated.unwrap_or_else(|| 2 * std::thread::available_parallelism().map_or(1, usize::from))
}

/// Runs all tests: several binaries at a time, and then those in documentation.
fn whole(test: Command, threads: usize, no_fail_fast: bool) -> anyhow::Result<()> {
    let mut documentation = cargo::command("test");
    documentation.args(["--workspace", "--doc"]).args(no_fail_fast.then_some(NO_FAIL_FAST));
    documentation.envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // As many tests at a time as otherwise: each kubelet takes of the 128 inotify instances that a user has by default.
    let each = (threads / binaries::LANES).max(1);
    let (times, passed) = binaries::run(test, each, no_fail_fast)?;
    let mut slowest = Slowest::new(threads);
    slowest.add(times);
    if !passed && !no_fail_fast {
        print_top(&slowest);
        bail!("tests failed");
    }
    timed(&mut documentation, slowest, &mut |_| ())?;
    if passed { Ok(()) } else { bail!("tests failed") }
}

/// Runs `cargo test`, passes its output on, and prints the slowest tests at the end, beside those known before.
fn timed(test: &mut Command, mut slowest: Slowest, each_line: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let status = read_lines(test, &mut |line, after| {
        println!("{line}");
        slowest.read(line, after);
        each_line(line);
    })?;
    print_top(&slowest);
    if !status.success() {
        bail!("\"test\" failed ({status})");
    }
    Ok(())
}

/// Runs a command, and passes on each line that it prints, with the time since it began.
fn read_lines(command: &mut Command, each: &mut dyn FnMut(&str, Duration)) -> anyhow::Result<ExitStatus> {
    // One pipe for both, so that names of binaries and of tests stay in order.
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("running {:?}", command.get_program()))?;
    // This process holds the pipe open too.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("reading what tests print")?;
        each(&String::from_utf8_lossy(&line), began.elapsed());
    }
    Ok(child.wait()?)
}

fn print_top(slowest: &Slowest) {
    println!("\nslowest tests:");
    for test in slowest.top(SLOWEST) {
        println!("{:>8.1} s  {}", test.took.as_secs_f64(), test.name);
    }
}

/// Why the rig cannot run here, after trying to get what is missing.
fn why_not() -> Option<String> {
    use testkit::env::SkipReason;
    match testkit::env::check() {
        Ok(_) => None,
        Err(SkipReason::Missing(_)) => match testenv::ensure().and_then(|_| Ok(testkit::env::check()?)) {
            Ok(_) => None,
            Err(error) => Some(format!("{error:#}")),
        },
        // Not worth minutes of building.
        Err(reason) => Some(reason.to_string()),
    }
}

fn warn(reason: &str) {
    let line = "!".repeat(100);
    eprintln!(
        "{line}\nRIG TESTS ARE SKIPPED: nothing is tried against a real API server, scheduler or kubelet."
    );
    eprintln!("Why: {reason}\n{line}");
}

/// Whether the caller wants some packages only; `--workspace` would override that.
fn selects_packages(args: &[OsString]) -> bool {
    let words = args.iter().filter_map(|arg| arg.to_str()).take_while(|arg| *arg != "--");
    words.into_iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

trait StatusOk {
    /// Runs to the end; anything but success is an error.
    fn status_ok(&mut self) -> anyhow::Result<()>;
}

impl StatusOk for Command {
    fn status_ok(&mut self) -> anyhow::Result<()> {
        let status = self.status().with_context(|| format!("running {:?}", self.get_program()))?;
        if !status.success() {
            bail!("{:?} failed ({status})", self.get_args().next().unwrap_or(self.get_program()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_selected_before_the_dashes_only() {
        fn check(args: &str, wanted: bool) {
            let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
            assert_eq!(selects_packages(&args), wanted, "{args:?}");
        }
        check("", false);
        check("some_test -- --nocapture", false);
        check("-p testkit", true);
        check("-ptestkit", true);
        check("--package=testkit some_test", true);
        check("some_test -- -p", false);
    }
}
