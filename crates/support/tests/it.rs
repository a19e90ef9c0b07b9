//! The tools against real Kubernetes parts.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests"
)]

#[path = "it/gathered.rs"]
mod gathered;
#[path = "it/small.rs"]
mod small;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::Instant;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, which cargo does not build for this crate's tests.
fn program() -> Option<PathBuf> {
    let program = testkit::env::tholepin();
    if program.is_none() {
        eprintln!("SKIPPED: no tholepin binary; cargo xtask test builds it");
        assert!(std::env::var_os(testkit::env::REQUIRE).is_none_or(|value| value.is_empty()));
    }
    program
}

/// Runs a command line: exit code, standard output, standard error.
async fn run(program: &Path, kubeconfig: &Path, words: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(program, kubeconfig, words).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn command(program: &Path, kubeconfig: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).env_clear().env("KUBECONFIG", kubeconfig).kill_on_drop(true);
    command
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
