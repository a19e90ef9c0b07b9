//! Processes without a kubelet. They need root.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::*;

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn plan(dir: &Path, script: &str) -> Plan {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    Plan {
        namespaces: Namespaces::default(),
        at: dir.to_owned(),
        image: Image::tools(),
        config: ContainerConfig { command: words, ..ContainerConfig::default() },
        sandbox: PodSandboxConfig { hostname: "somewhere".to_owned(), ..PodSandboxConfig::default() },
        log: Some(dir.join("log")),
    }
}

/// A folder for one test, or nothing where containers cannot be.
fn folder() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: not root");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

fn start(plan: Plan) -> (Process, mpsc::Receiver<i32>) {
    let (say, code) = mpsc::channel();
    let process = Process::start(plan, move |code| say.send(code).unwrap()).unwrap();
    (process, code)
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie is no longer alive; who reaps it is not our business.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn codes_and_words_come_out() {
    let check = |script: &str, code: i32, said: &[&str]| {
        let Some(dir) = folder() else { return };
        let (_process, ended) = start(plan(dir.path(), script));
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), code, "{script}");
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        let texts: Vec<&str> = log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect();
        assert_eq!(texts, said, "{script}");
    };
    check("hostname; echo $$; echo $HOSTNAME $HOME", 0, &["somewhere", "1", "somewhere /"]);
    check("exit 7", 7, &[]);
    check("exec 2>&-; sh -c 'kill -9 $$'; echo $?", 0, &["137"]);
    check(
        "for x in /proc/1/exe /home /root /opt /var /work; do [ -e $x ] && echo $x; done; exit 0",
        0,
        &["/proc/1/exe"],
    );
}

#[test]
fn commands_run_beside_it_and_end_with_it() {
    let Some(dir) = folder() else { return };
    let (process, ended) = start(plan(dir.path(), "sleep 1000 & echo up; wait"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exec = |words: &[&str], limit: Option<Duration>| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        runtime.block_on(process.exec_sync(words, limit))
    };
    let output = exec(&["sh", "-c", "hostname; echo bad >&2; exit 4"], Some(PATIENCE)).unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        (output.code, text(&output.stdout), text(&output.stderr)),
        (4, "somewhere\n".into(), "bad\n".into())
    );
    assert!(exec(&["sleep", "1000"], Some(Duration::from_millis(50))).unwrap().is_none());
    let fails = |words: &[&str]| exec(words, None).unwrap_err().to_string();
    assert_eq!(fails(&["no-such"]), "exec: \"no-such\": executable file not found in $PATH");
    assert_eq!(fails(&["/usr"]), "exec: \"/usr\": permission denied");

    let children = format!("/proc/{0}/task/{0}/children", process.pid());
    let child = || std::fs::read_to_string(&children).unwrap_or_default().trim().parse::<u32>().ok();
    until("it has a child", || child().is_some());
    let child = child().unwrap();
    process.signal(Signal::KILL);
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), 137);
    assert!(!is_alive(child));
    assert!(exec(&["true"], None).is_err());
}

#[test]
fn a_command_has_its_streams_and_goes_with_its_handle() {
    let Some(dir) = folder() else { return };
    let (process, _ended) = start(plan(dir.path(), "sleep 1000 & wait"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exec = |script: &str, streams: Streams| {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        runtime.block_on(process.exec(words, streams)).unwrap()
    };
    let mut sorts = exec("sort; exit 5", Streams { stdin: true, stdout: true, stderr: false });
    let [stdin, stdout] = sorts.take_streams().try_into().unwrap();
    std::fs::File::from(stdin).write_all(b"b\na\n").unwrap();
    let mut said = String::new();
    std::fs::File::from(stdout).read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), runtime.block_on(sorts.ended())), ("a\nb\n", 5));

    let nothing = Streams { stdin: false, stdout: false, stderr: false };
    let mut quiet = exec("cat; echo a; echo b >&2", nothing);
    assert_eq!((quiet.take_streams().len(), runtime.block_on(quiet.ended())), (0, 0));

    let mut sleeps = exec("echo $PPID; exec sleep 1000", Streams { stdout: true, ..nothing });
    let mut pipe = std::fs::File::from(sleeps.take_streams().remove(0));
    drop(sleeps);
    // The end comes when no process has the pipe open any more.
    pipe.read_to_string(&mut String::new()).unwrap();
}

#[test]
fn what_cannot_be_started_is_named() {
    let check = |change: fn(&mut Plan), expected: &str| {
        let Some(dir) = folder() else { return };
        let mut plan = plan(dir.path(), "");
        change(&mut plan);
        let error = Process::start(plan, |_| ()).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    };
    check(|plan| plan.config.command = vec!["no-such".to_owned()], "starting \"no-such\"");
    check(
        |plan| {
            plan.config.command = Vec::new();
            plan.image.command = Vec::new();
        },
        "neither the image nor the pod has a command",
    );
    let mount = |plan: &mut Plan| {
        let (host_path, container_path) = ("/no/such".to_owned(), "/x".to_owned());
        plan.config.mounts.push(crate::cri::api::Mount { host_path, container_path, ..Default::default() });
    };
    check(mount, "mounting /no/such at /x");
}

/// Runs only as a child of the test below, which ends it without a warning.
#[test]
#[ignore = "a part of another test"]
fn victim() {
    let dir = std::env::var("VICTIM_DIR").unwrap();
    let (process, ended) = start(plan(Path::new(&dir), "sleep 1000 & wait"));
    std::fs::write(Path::new(&dir).join("pid"), format!("{}\n", process.pid())).unwrap();
    let _ = ended.recv();
}

#[test]
fn it_does_not_outlive_its_maker() {
    let Some(dir) = folder() else { return };
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "cri::process::tests::victim"])
        .env("VICTIM_DIR", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(dir.path().join("pid")).unwrap_or_default();
    until("the victim says what it started", || said().ends_with('\n'));
    let pid = said().trim().parse().unwrap();
    assert!(is_alive(pid));
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("its container is gone", || !is_alive(pid));
}
