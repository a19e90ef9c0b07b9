use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::process_group::{Process, ProcessGroup, Spec};

fn sleeper(group: &ProcessGroup, name: &str) -> Process {
    group.spawn(Spec::new(name, "sleep").arg("1000")).unwrap()
}

fn is_alive(pid: u32) -> bool {
    // A zombie is no longer alive; who reaps it is not our business.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_drop_ends_everything_grandchildren_included() {
    let group = ProcessGroup::new().unwrap();
    let shell = group.spawn(Spec::new("shell", "sh").args(["-c", "sleep 1000 & echo $!; wait"])).unwrap();
    until("the shell says its child's id", || shell.log_tail(1).parse::<u32>().is_ok());
    let (child, grandchild) = (shell.pid(), shell.log_tail(1).parse::<u32>().unwrap());
    let dir = group.dir().to_owned();
    assert!(is_alive(child) && is_alive(grandchild) && dir.exists());

    // The process holds the group too: order does not matter.
    drop(group);
    assert!(is_alive(child));
    drop(shell);
    until("the grandchild is gone", || !is_alive(grandchild));
    assert!(!is_alive(child));
    assert!(!dir.exists());
}

#[test]
fn a_panic_ends_everything() {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let group = ProcessGroup::new().unwrap();
        let process = sleeper(&group, "sleep");
        send.send((process.pid(), group.dir().to_owned())).unwrap();
        panic!("on purpose");
    });
    let (pid, dir) = receive.recv().unwrap();
    assert!(thread.join().is_err());
    assert!(!is_alive(pid));
    assert!(!dir.exists());
}

/// Runs only as a child of the tests below, which end it in ways that leave it no time to clean up.
#[test]
#[ignore = "a part of other tests"]
fn victim() {
    let group = ProcessGroup::new().unwrap();
    let process = sleeper(&group, "sleep");
    std::fs::write(
        std::env::var("VICTIM_SAYS").unwrap(),
        format!("{}\n{}\n", process.pid(), group.dir().display()),
    )
    .unwrap();
    // A thread that forked a child ends: nothing must be killed by that.
    let of_thread = std::thread::spawn({
        let group = group.clone();
        move || sleeper(&group, "of-a-thread")
    });
    let _of_thread = of_thread.join().unwrap();
    match std::env::var("VICTIM_END").unwrap().as_str() {
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        _ => std::thread::sleep(Duration::from_secs(1000)),
    }
}

fn check_sudden_end(end: &str, signal: Option<rustix::process::Signal>) {
    let dir = tempfile::tempdir().unwrap();
    let says = dir.path().join("says");
    // A shell script that runs the tests in the background passes an ignored SIGINT on.
    let mut victim = Command::new("env")
        .arg("--default-signal=INT")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "process_group::victim"])
        .env("VICTIM_SAYS", &says)
        .env("VICTIM_END", end)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&says).unwrap_or_default();
    until("the victim says what it started", || said().lines().count() == 2);
    if let Some(signal) = signal {
        rustix::process::kill_process(rustix::process::Pid::from_child(&victim), signal).unwrap();
    }
    victim.wait().unwrap();
    let said = said();
    let mut lines = said.lines();
    let pid: u32 = lines.next().unwrap().parse().unwrap();
    let group = Path::new(lines.next().unwrap());
    until("its process is gone", || !is_alive(pid));
    until("its folder is gone", || !group.exists());
}

#[test]
fn a_sudden_end_of_the_maker_ends_everything() {
    check_sudden_end("sleep", Some(rustix::process::Signal::KILL));
    check_sudden_end("sleep", Some(rustix::process::Signal::INT));
    check_sudden_end("abort", None);
    check_sudden_end("exit", None);
}

#[test]
fn processes_are_stopped_continued_killed_and_restarted() {
    let group = ProcessGroup::new().unwrap();
    let process = sleeper(&group, "sleep");
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    process.pause().unwrap();
    until("it is stopped", || state(process.pid()) == 'T');
    assert!(process.exit().is_none());
    process.resume().unwrap();
    until("it goes on", || state(process.pid()) == 'S');

    let memory = process.memory().unwrap();
    assert!(memory.rss_kib > 0 && memory.peak_kib >= memory.rss_kib, "{memory:?}");

    let first = process.pid();
    process.kill();
    process.kill();
    assert!(process.exit().is_some());
    assert!(process.pause().is_err() && process.memory().is_err());
    process.restart().unwrap();
    assert!(process.exit().is_none());
    assert_ne!(process.pid(), first);
}

#[tokio::test]
async fn waiting_for_a_process_that_ends_shows_its_log() {
    let group = ProcessGroup::new().unwrap();
    let process = group.spawn(Spec::new("loser", "sh").args(["-c", "echo no luck; exit 3"])).unwrap();
    let error =
        process.wait_until("ready", Duration::from_secs(20), async || false).await.unwrap_err().to_string();
    assert!(error.contains("no luck") && error.contains("exit status: 3"), "{error}");

    let process = sleeper(&group, "lazy");
    let hangs = async || std::future::pending::<bool>().await;
    let error = process.wait_until("ready", Duration::from_millis(50), hangs).await.unwrap_err().to_string();
    assert!(error.contains("not ready after 50ms"), "{error}");

    let polite = group.spawn(
        Spec::new("polite", "sh").args(["-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done"]),
    );
    let polite = polite.unwrap();
    until("its trap is set", || polite.log_tail(1) == "up");
    assert_eq!(polite.terminate(Duration::from_secs(20)).await.unwrap().code(), Some(7));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = ProcessGroup::new().unwrap().spawn(Spec::new("ghost", "/no/such/program")).unwrap_err();
    assert!(format!("{error:#}").contains("/no/such/program"), "{error:#}");
}
