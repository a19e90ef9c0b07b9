//! The test binaries of the workspace, several at a time.
//!
//! In: what cargo says that it has built. Out: the output of each binary as a whole, in the order in which they end,
//! and the times of their tests. Never: a binary that waits for the last test of another one.
//!
//! `cargo test` runs one binary after the other, and at the end of each a few long tests leave processors idle. Tests
//! on the rig are in few binaries, so these begin first, and the short unit tests fill what is left.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde::Deserialize;

use super::slowest::Slowest;
use super::{THREADS, Timed, read_lines};

/// Binaries that run at a time.
pub(super) const LANES: usize = 2;

/// A message of cargo, as far as it counts here.
#[derive(Debug, Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    path: PathBuf,
    /// The directory of its package, in which it runs.
    package: PathBuf,
    /// The name in the list of slow tests.
    name: String,
    /// As `cargo test` announces it.
    title: String,
    is_integration: bool,
}

/// Builds the tests of the workspace and runs all but those in documentation. `test`: the command `cargo test` with its
/// environment. Returns the times of the tests, and whether all passed.
pub(super) fn run(
    mut test: Command,
    threads: usize,
    no_fail_fast: bool,
) -> anyhow::Result<(Vec<Timed>, bool)> {
    let mut binaries: Vec<Binary> = Vec::new();
    let variables: Vec<_> =
        test.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    test.args(["--no-run", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let mut child = test.spawn().context("running cargo")?;
    for line in BufReader::new(child.stdout.take().context("a pipe")?).lines() {
        binaries.extend(binary(&line.context("reading what cargo prints")?));
    }
    if !child.wait()?.success() {
        return Ok((Vec::new(), false));
    }
    binaries.sort_by_key(|binary| !binary.is_integration);
    let queue = Mutex::new(VecDeque::from(binaries));
    let (times, failed) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let lane = || -> anyhow::Result<()> {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(binary) = next.filter(|_| no_fail_fast || !failed.load(Ordering::Relaxed)) else {
                return Ok(());
            };
            let (times_of_one, passed) = run_one(&binary, &variables, threads)?;
            failed.fetch_or(!passed, Ordering::Relaxed);
            times.lock().unwrap_or_else(PoisonError::into_inner).extend(times_of_one);
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("a thread panicked"),
        })
    })?;
    Ok((times.into_inner().unwrap_or_else(PoisonError::into_inner), !failed.into_inner()))
}

/// The test binary that a line of cargo is about.
fn binary(line: &str) -> Option<Binary> {
    let message: Message = serde_json::from_str(line).ok()?;
    let (target, path) = (message.target?, message.executable?);
    message.profile.filter(|profile| profile.test)?;
    let package = message.manifest_path?.parent()?.to_owned();
    let crate_name = package.file_name()?.to_str()?.to_owned();
    let is_integration = target.kind.iter().any(|kind| kind == "test");
    let source = target.src_path.strip_prefix(&package).unwrap_or(&target.src_path).display();
    let unit = if is_integration { "" } else { "unittests " };
    let title = format!("     Running {unit}{source} ({})", path.display());
    let name = if target.name == crate_name { crate_name } else { format!("{crate_name} {}", target.name) };
    Some(Binary { path, package, name, title, is_integration })
}

/// Runs one, and prints what it said once it has ended.
fn run_one(
    binary: &Binary,
    variables: &[(std::ffi::OsString, std::ffi::OsString)],
    threads: usize,
) -> anyhow::Result<(Vec<Timed>, bool)> {
    println!("     Starting {}", binary.name);
    let mut command = Command::new(&binary.path);
    command.current_dir(&binary.package).envs(variables.iter().cloned());
    command.env("CARGO_MANIFEST_DIR", &binary.package).env(THREADS, threads.to_string());
    command.stdin(Stdio::null());
    let mut slowest = Slowest::of(threads, binary.name.clone());
    let mut output = format!("{}\n", binary.title);
    let status = read_lines(&mut command, &mut |line, after| {
        slowest.read(line, after);
        output.push_str(line);
        output.push('\n');
    })?;
    if !status.success() {
        output.push_str(&format!("error: {} failed ({status})\n", binary.name));
    }
    // At once, so that outputs do not mix.
    std::io::stdout().lock().write_all(output.as_bytes())?;
    Ok((slowest.into_all(), status.success()))
}

/// Whether these arguments of `cargo test` select all tests and say nothing else that counts here.
pub(super) fn is_whole_run(args: &[std::ffi::OsString]) -> bool {
    args.iter().all(|arg| arg == super::NO_FAIL_FAST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn test_binaries_are_found_among_cargos_messages() {
        let message = |kind: &str, name: &str, source: &str, test: bool| {
            json!({
                "reason": "compiler-artifact", "manifest_path": "/w/crates/api/Cargo.toml",
                "target": { "name": name, "kind": [kind], "src_path": format!("/w/crates/api/{source}") },
                "profile": { "test": test }, "executable": format!("/t/{name}-1"),
            })
            .to_string()
        };
        let found = |line: &str| binary(line).map(|binary| (binary.name, binary.title));
        let (lib, it) =
            (message("lib", "api", "src/lib.rs", true), message("test", "it", "tests/it.rs", true));
        let title = |text: &str| text.to_owned();
        assert_eq!(found(&lib), Some((title("api"), title("     Running unittests src/lib.rs (/t/api-1)"))));
        assert_eq!(found(&it), Some((title("api it"), title("     Running tests/it.rs (/t/it-1)"))));
        assert_eq!(found(&message("bin", "api", "src/main.rs", false)), None);
        for other in [r#"{"reason":"build-finished","success":true}"#, "   Compiling api", ""] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_selection_of_tests_is_left_to_cargo() {
        for (args, wanted) in [(vec![], true), (vec!["--no-fail-fast"], true), (vec!["-p", "api"], false)] {
            let args: Vec<std::ffi::OsString> = args.into_iter().map(Into::into).collect();
            assert_eq!(is_whole_run(&args), wanted, "{args:?}");
        }
    }
}
