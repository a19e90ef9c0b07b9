//! What people do with a pod: run commands in it, reach its ports, read its logs. By a plain client, through the API
//! server and the kubelet.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, AttachParams, AttachedProcess, LogParams};
use kube::client::Body;
use serde_json::json;
use testkit::cluster::Cluster;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{PATIENCE, api, create_pod, pod_until, says, statuses};

/// Commands that run at the same time.
const AT_ONCE: usize = 20;

/// Seconds that no other process on this machine sleeps.
const UNIQUE: u32 = 86_399_000;

/// What a command said, and its exit code or the reason why there is none.
pub(super) type Outcome = (String, String, Result<i32, String>);

pub(super) async fn commands_run_in_a_container(cluster: &Cluster) {
    let container = json!({
        "name": "main", "image": "tools:1", "command": ["sleep", "1000"], "workingDir": "/tmp",
        "env": [{ "name": "FOO", "value": "a b" }], "securityContext": { "runAsUser": 1000 },
    });
    create_pod(cluster, "shell", json!({ "containers": [container] })).await;
    ready(cluster, "shell").await;
    let pods = api::<Pod>(cluster).await;
    let look = "hostname; pwd; echo $FOO; id -u; tr '\\0' ' ' </proc/1/cmdline; echo; echo bad >&2; exit 3";
    let said = run(&pods, "shell", &["sh", "-c", look], "").await;
    assert_eq!(said, ("shell\n/tmp\na b\n1000\nsleep 1000 \n".to_owned(), "bad\n".to_owned(), Ok(3)));
    assert_eq!(run(&pods, "shell", &["sort"], "b\na\n").await, ("a\nb\n".to_owned(), String::new(), Ok(0)));
    for (program, reason) in [
        ("no-such", "exec: \"no-such\": executable file not found in $PATH"),
        ("/no/such", "exec: \"/no/such\": stat /no/such: no such file or directory"),
    ] {
        let (_, _, end) = run(&pods, "shell", &[program], "").await;
        assert!(end.as_ref().is_err_and(|message| message.ends_with(reason)), "{end:?}");
    }
    at_once(&pods).await;
}

/// All say something before any of them is told to end.
async fn at_once(pods: &Api<Pod>) {
    let begin = async |number: usize| {
        let script = format!("echo {number}; read line; echo $line; exit {number}");
        let params = AttachParams::default().stdin(true).stderr(false);
        let mut process = pods.exec("shell", ["sh", "-c", &script], &params).await.unwrap();
        let mut stdout = process.stdout().unwrap();
        let expected = format!("{number}\n");
        let mut first = vec![0; expected.len()];
        stdout.read_exact(&mut first).await.unwrap();
        assert_eq!(first, expected.as_bytes());
        (process, stdout)
    };
    let running = futures::future::join_all((1..=AT_ONCE).map(begin)).await;
    let end = async |number: usize, (mut process, mut stdout): (AttachedProcess, _)| {
        let mut stdin = process.stdin().unwrap();
        stdin.write_all(format!("end {number}\n").as_bytes()).await.unwrap();
        let mut rest = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stdout, &mut rest).await.unwrap();
        let status = process.take_status().unwrap().await.unwrap();
        assert_eq!((rest, outcome(status)), (format!("end {number}\n"), Ok(number as i32)));
    };
    let ends = running.into_iter().enumerate().map(|(index, running)| end(index + 1, running));
    futures::future::join_all(ends).await;
}

pub(super) async fn an_image_without_a_shell_runs_its_program(cluster: &Cluster) {
    let container = json!({
        "name": "main", "image": "program:1", "env": [{ "name": "PROGRAM", "value": "serve" }],
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    });
    create_pod(cluster, "web", json!({ "containers": [container] })).await;
    ready(cluster, "web").await;
    let pods = api::<Pod>(cluster).await;
    let program = Path::new("/").join(std::env::current_exe().unwrap().file_name().unwrap());
    let list = ["--list", "--ignored", "--exact", "containers::program::main"];
    let (said, _, end) = run(&pods, "web", &[&[program.to_str().unwrap()][..], &list].concat(), "").await;
    assert_eq!(end, Ok(0));
    assert!(said.starts_with("containers::program::main: test\n"), "{said}");
    ports_are_reached(&pods).await;
}

async fn ports_are_reached(pods: &Api<Pod>) {
    let get = async |path: &str| {
        let mut forward = pods.portforward("web", &[8080]).await.unwrap();
        let mut stream = forward.take_stream(8080).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    };
    let answers = tokio::join!(get("/ready"), get("/else"), get("/ready"));
    assert_eq!(answers.0, "HTTP/1.1 200 OK");
    assert_eq!(answers.1, "HTTP/1.1 404 Not Found");
    assert_eq!(answers.2, "HTTP/1.1 200 OK");
    let mut forward = pods.portforward("web", &[8081]).await.unwrap();
    let error = forward.take_error(8081).unwrap().await.unwrap();
    assert!(error.contains("failed to connect to localhost:8081"), "{error}");
}

pub(super) async fn logs_are_read_as_a_client_asks(cluster: &Cluster) {
    let script = "for i in 1 2 3 4 5; do echo line $i; done; until [ -e /tmp/go ]; do sleep 0.1; done; \
                  echo late; exec sleep 1000";
    let container = json!({ "name": "main", "image": "tools:1", "command": ["sh", "-c", script] });
    create_pod(cluster, "teller", json!({ "containers": [container] })).await;
    says(cluster, "teller", "line 5").await;
    let pods = api::<Pod>(cluster).await;
    let last = LogParams { tail_lines: Some(2), ..LogParams::default() };
    assert_eq!(pods.logs("teller", &last).await.unwrap(), "line 4\nline 5\n");
    // API servers count whole seconds, so what is said next must not fall into the same one.
    let stamped = LogParams { timestamps: true, ..last.clone() };
    let stamp = pods.logs("teller", &stamped).await.unwrap();
    let stamp: Timestamp = stamp.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let after = Timestamp::from_second(stamp.as_second() + 1).unwrap();
    until("the next second", || Timestamp::now() >= after).await;
    let follow = LogParams { follow: true, tail_lines: Some(1), ..LogParams::default() };
    let mut lines = pods.log_stream("teller", &follow).await.unwrap().lines();
    assert_eq!(lines.try_next().await.unwrap().unwrap(), "line 5");
    assert_eq!(run(&pods, "teller", &["touch", "/tmp/go"], "").await.2, Ok(0));
    let next = tokio::time::timeout(PATIENCE, lines.try_next()).await;
    assert_eq!(next.unwrap().unwrap().unwrap(), "late");
    let since = LogParams { since_time: Some(after), ..LogParams::default() };
    assert_eq!(pods.logs("teller", &since).await.unwrap(), "late\n");
    of_the_one_before(cluster, &pods).await;
}

/// It fails once, and then runs.
async fn of_the_one_before(cluster: &Cluster, pods: &Api<Pod>) {
    let script = "[ -e /work/ran ] && echo second && exec sleep 1000; touch /work/ran; echo first; exit 1";
    let container = json!({
        "name": "main", "image": "tools:1", "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "work", "mountPath": "/work" }],
    });
    let volumes = json!([{ "name": "work", "emptyDir": {} }]);
    create_pod(cluster, "again", json!({ "containers": [container], "volumes": volumes })).await;
    says(cluster, "again", "second").await;
    let previous = LogParams { previous: true, ..LogParams::default() };
    assert_eq!(pods.logs("again", &previous).await.unwrap(), "first\n");
}

/// What cannot be is refused with a reason.
pub(super) async fn containers_without_a_process_refuse(cluster: &Cluster) {
    let container = json!({ "name": "main", "image": "registry:5000/pause:3" });
    create_pod(cluster, "idle", json!({ "containers": [container] })).await;
    ready(cluster, "idle").await;
    // Clients for people show the body; kube's own method keeps the number only.
    let request = kube::core::Request::new("/api/v1/namespaces/default/pods");
    let mut request = request.exec("idle", ["true"], &AttachParams::default()).unwrap();
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let client = cluster.client().await.unwrap();
    let answer = client.send(request.map(Body::from)).await.unwrap();
    assert_eq!(answer.status(), 500);
    let body = answer.into_body().collect_bytes().await.unwrap();
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains("container main has no process: its image is one that runs nothing"), "{body}");
}

/// Ends the cluster while a command runs and a connection is open.
pub(super) async fn nothing_is_left(cluster: Cluster) {
    let pods = api::<Pod>(&cluster).await;
    let seconds = (UNIQUE + std::process::id()).to_string();
    let process = pods.exec("shell", ["sleep", &seconds], &AttachParams::default()).await.unwrap();
    let forward = pods.portforward("web", &[8080]).await.unwrap();
    until("the command runs", || runs_with(&seconds)).await;
    let dir = cluster.control().process_group().dir().to_owned();
    let words = dir.display().to_string();
    assert!(runs_with(&words), "no process names the cluster's folder");
    drop(cluster);
    until("the command has ended", || !runs_with(&seconds)).await;
    until("the cluster's programs have ended", || !runs_with(&words)).await;
    until("threads of commands have ended", || !has_thread("exec")).await;
    assert!(!dir.exists());
    drop((process, forward));
}

/// Runs a command to its end.
pub(super) async fn run(pods: &Api<Pod>, pod: &str, words: &[&str], input: &str) -> Outcome {
    let params = AttachParams::default().stdin(!input.is_empty());
    let mut process = pods.exec(pod, words.iter().copied(), &params).await.unwrap();
    if let Some(mut stdin) = process.stdin() {
        stdin.write_all(input.as_bytes()).await.unwrap();
        stdin.shutdown().await.unwrap();
    }
    let (mut stdout, mut stderr) = (process.stdout().unwrap(), process.stderr().unwrap());
    let (mut out, mut err) = (String::new(), String::new());
    let both = async { tokio::try_join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err)) };
    tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap();
    let status = process.take_status().unwrap().await.unwrap();
    (out, err, outcome(status))
}

/// The exit code, or why there is none.
fn outcome(status: Status) -> Result<i32, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    match code.and_then(|cause| cause.message?.parse().ok()) {
        Some(code) => Ok(code),
        None => Err(status.message.unwrap_or_default()),
    }
}

pub(super) async fn ready(cluster: &Cluster, pod: &str) {
    pod_until(cluster, pod, |pod| statuses(pod).iter().any(|c| c.ready)).await;
}

/// Whether a process of this machine has these words in its command line.
fn runs_with(words: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(words)
    })
}

/// Whether a thread of this process has this name.
fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.into_iter().any(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    })
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
