//! The binary as others call it: names, exit codes, what goes to which output.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/admit.rs"]
mod admit;
#[path = "it/attack.rs"]
mod attack;
#[path = "it/bad_input.rs"]
mod bad_input;
#[path = "it/commands.rs"]
mod commands;
#[path = "it/deployer.rs"]
mod deployer;
#[path = "it/documents.rs"]
mod documents;
#[path = "it/invocations.rs"]
mod invocations;
#[path = "it/lifecycle.rs"]
mod lifecycle;
#[path = "it/monitoring.rs"]
mod monitoring;
#[path = "it/quick_start.rs"]
mod quick_start;
#[path = "it/readme.rs"]
mod readme;
#[path = "it/recording.rs"]
mod recording;
#[path = "it/status.rs"]
mod status;
#[path = "it/terminal.rs"]
mod terminal;
#[path = "it/web.rs"]
mod web;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::cluster::ClusterNode;

/// The binary under this name, in a directory of its own.
struct Installed {
    program: PathBuf,
    _dir: tempfile::TempDir,
}

impl Installed {
    fn under(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tholepin"), &program).unwrap();
        Self { program, _dir: dir }
    }
}

/// The flags with which an exporter reads a node of the rig.
fn exporter_flags(node: &ClusterNode) -> String {
    let kubelet = node.kubelet();
    format!(
        "--hostname={} --podresources-socket=unix://{} --sysfs={} --kubelet-config-file={} --kubelet-state-dir={}",
        node.name(),
        node.podresources_socket().display(),
        kubelet.machine().sys().display(),
        kubelet.config_file().display(),
        kubelet.root_dir().display(),
    )
}

/// Exit code and both outputs, with nothing of our environment.
fn run(program: &Path, arguments: &[&str]) -> (i32, String, String) {
    told(Command::new(program).args(arguments).env_clear().env("NODE_NAME", "n1").output().unwrap())
}

/// The same with words and exactly these variables.
fn run_in(program: &Path, words: &str, environment: &[(&str, &str)]) -> (i32, String, String) {
    let environment = environment.iter().copied();
    let output = Command::new(program).args(words.split_whitespace()).env_clear().envs(environment).output();
    told(output.unwrap())
}

/// The same without standing still, from the caller's thread: its network is the child's.
async fn run_async(program: &Path, words: &str, environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(program);
    command.args(words.split_whitespace()).env_clear().envs(environment.iter().copied());
    told(command.output().await.unwrap())
}

fn told(Output { status, stdout, stderr }: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn it_stands_in_for_others_by_its_name_or_as_a_subcommand() {
    for (name, program) in [
        ("resource-topology-exporter", "resource-topology-exporter"),
        ("rte", "resource-topology-exporter"),
        ("nfd-topology-updater", "nfd-topology-updater"),
    ] {
        let wanted = (0, format!("{program} {VERSION}\n"), String::new());
        assert_eq!(run(&Installed::under(name).program, &["--version"]), wanted, "{name}");
        let tholepin = Installed::under("tholepin");
        assert_eq!(run(&tholepin.program, &[name, "-version"]), wanted, "tholepin {name}");
    }
    let (code, stdout, _) = run(&Installed::under("tholepin").program, &["--version"]);
    assert_eq!((code, stdout), (0, format!("tholepin {VERSION}\n")));
}

#[test]
fn exit_codes_are_those_of_the_program_it_stands_in_for() {
    for (name, arguments, code, wanted) in [
        ("rte", &["--help"][..], 0, "Usage of "),
        ("rte", &["--nonsense"], 2, "flag provided but not defined: -nonsense"),
        ("rte", &["--dump-config=/tmp/x"], 2, "invalid value \"/tmp/x\" for flag -dump-config"),
        ("rte", &["a", "b"], 255, "error: unexpected arguments [\"b\"]"),
        (
            "rte",
            &[],
            255,
            "error: the conditions need the name of the exporter's pod: set the variables REFERENCE_NAMESPACE",
        ),
        // Beyond the command line: there is no cluster.
        ("rte", &["--podreadiness=false", "--kubeconfig=/missing"], 255, "error: cannot reach Kubernetes"),
        ("nfd-topology-updater", &["-h"], 0, "Usage of "),
        ("nfd-topology-updater", &["more"], 2, "error: unexpected arguments [\"more\"]"),
        ("nfd-topology-updater", &[], 1, "set the variable NODE_ADDRESS"),
        (
            "nfd-topology-updater",
            &["-kubelet-config-uri=file:///c", "-kubeconfig=/missing"],
            1,
            "error: cannot reach Kubernetes",
        ),
        ("tholepin", &["exporter", "--nonsense"], 2, "unexpected argument '--nonsense'"),
        (
            "tholepin",
            &["exporter", "--kubelet-config-uri", "x"],
            1,
            "error: --kubelet-config-uri: \"x\" is not allowed",
        ),
    ] {
        let (is, stdout, stderr) = run(&Installed::under(name).program, arguments);
        assert!(
            is == code && stdout.is_empty() && stderr.contains(wanted),
            "{name} {arguments:?}: {is} {stdout} {stderr}"
        );
    }
}

#[test]
fn dumps_are_data() {
    let rte = Installed::under("rte");
    let (code, stdout, stderr) = run(&rte.program, &["--dump-config=.andexit"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("global:\n  verbose: 2\nnrtUpdater:\n  hostname: n1\n"), "{stdout}");
    // The dump comes although the start fails afterwards.
    assert_eq!(run(&rte.program, &["--dump-config=-"]).1, stdout);
    let (_, stdout, stderr) =
        run(&rte.program, &["--dump-config=.log", "--podreadiness=false", "--kubeconfig=/missing"]);
    assert!(stdout.is_empty() && stderr.contains("  hostname: n1"), "{stdout} {stderr}");
}
