//! Signals to a child process: this test binary again, in a role that an environment variable names.

use crate::soon;
use runtime::shutdown::{Tasks, on_signals};
use std::convert::Infallible;
use std::future::pending;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// The child's reaction to a signal: `drain` ends, `hang` does not.
const ROLE: &str = "RUNTIME_TEST_VICTIM";

/// The child's side of the other tests; no test by itself.
#[tokio::test]
async fn victim() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let token = on_signals().unwrap();
    let mut tasks = Tasks::new(token.clone());
    tasks.spawn("work", pending::<Result<Infallible, Infallible>>());
    tasks.spawn_draining("drain", async move {
        // libtest captures `println!`, but not what goes to the descriptor.
        std::fs::write("/dev/stdout", "started\n").unwrap();
        token.cancelled().await;
        std::fs::write("/dev/stdout", "asked to end\n").unwrap();
        if role == "hang" {
            pending::<()>().await;
        }
        Ok::<_, Infallible>(())
    });
    let ended = tasks.run(Duration::from_secs(3600)).await;
    std::process::exit(if ended.is_ok() { 0 } else { 3 });
}

fn start(role: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "shutdown::victim"]).env(ROLE, role).kill_on_drop(true);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn says(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) {
    // libtest's own header comes first, without a newline at the end.
    while !soon(wanted, lines.next_line()).await.unwrap().expect("the victim ended").ends_with(wanted) {}
}

async fn send(signal: &str, child: &Child) {
    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
}

#[tokio::test]
async fn one_signal_drains_and_ends_well() {
    for signal in ["-TERM", "-INT"] {
        let (mut child, mut lines) = start("drain");
        says(&mut lines, "started").await;
        send(signal, &child).await;
        says(&mut lines, "asked to end").await;
        assert_eq!(soon("the end", child.wait()).await.unwrap().code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let (mut child, mut lines) = start("hang");
    says(&mut lines, "started").await;
    send("-TERM", &child).await;
    says(&mut lines, "asked to end").await;
    send("-INT", &child).await;
    assert_eq!(soon("the end", child.wait()).await.unwrap().code(), Some(1));
}
