//! `tholepin top` in a terminal, played through tmux: what is on the screen, and what keys do.

use std::process::Command;
use std::time::Duration;

use api::crd::NRT_CRD_YAML;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use testkit::cluster::Cluster;
use testkit::env::rig;
use testkit::load::guaranteed_pod;
use tokio::time::{Instant, sleep};

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session of tmux on a server of its own, which ends with the value.
struct Terminal {
    server: String,
}

impl Terminal {
    /// Runs a command in a terminal of 100 x 30; `None`: there is no tmux, and `TERMINAL_REQUIRE_TMUX` does not ask for
    /// it.
    fn open(command: &str) -> Option<Self> {
        let terminal = Self { server: format!("tholepin-{}", std::process::id()) };
        let begun =
            terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", command]);
        if begun.is_none() {
            assert!(std::env::var_os("TERMINAL_REQUIRE_TMUX").is_none(), "tmux cannot be run");
            eprintln!("SKIPPED: tmux is not installed");
        }
        begun.map(|_| terminal)
    }

    fn tmux(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("tmux")
            .args(["-u", "-L", &self.server])
            .args(words)
            .env("TERM", "xterm-256color")
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat()).unwrap();
    }

    /// Waits until the screen is as wanted.
    async fn until(&self, what: &str, is_wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]).unwrap_or_default();
            if is_wanted(&screen) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: not on the screen:\n{screen}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn shows(&self, words: &[&str]) {
        self.until(&words.join(", "), |screen| words.iter().all(|wanted| screen.contains(wanted))).await;
    }

    /// Waits until the command has ended.
    async fn ended(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.tmux(&["has-session"]).is_some() {
            assert!(Instant::now() < deadline, "it goes on");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_from_the_cluster_to_a_pod_and_through_an_outage() {
    let Ok(rig) = rig() else { return };
    let cluster = Cluster::builder().machines([]).crds(NRT_CRD_YAML).start(&rig).await.unwrap();
    let (program, kubeconfig) =
        (env!("CARGO_BIN_EXE_tholepin"), cluster.control().kubeconfig().display().to_string());
    let words = ["hollow", "--nodes", "3", "--machine", "2x8", "--untainted", "--http-bind-address", "0"];
    let hollow = tokio::process::Command::new(program)
        .args(words)
        .args(["--kubeconfig", &kubeconfig])
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let Some(terminal) = Terminal::open(&format!("{program} top --kubeconfig {kubeconfig}")) else { return };
    terminal.shows(&["3 nodes", "hollow-0", "hollow-2", "confirmed"]).await;

    let pods = Api::<Pod>::default_namespaced(cluster.client().await.unwrap());
    let mut pod = guaranteed_pod("runs", "none", [("cpu", "3"), ("memory", "64Mi")]);
    pod.spec.get_or_insert_default().node_name = Some("hollow-1".to_owned());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    terminal.shows(&["▄4 █8"]).await;
    terminal.press(&["/", "hollow-1", "Enter"]);
    terminal
        .until("hollow-1 alone", |screen| screen.contains("hollow-1") && !screen.contains("hollow-2"))
        .await;
    terminal.press(&["Enter"]);
    terminal.shows(&["default/runs", "single-numa-node"]).await;

    // What is known stays on the screen, with its age.
    cluster.control().api_server().pause().unwrap();
    terminal.shows(&["default/runs", "no answer from the API server for"]).await;
    cluster.control().api_server().resume().unwrap();
    terminal
        .until("no outage", |screen| screen.contains("default/runs") && !screen.contains("no answer"))
        .await;
    terminal.press(&["Escape"]);
    terminal.shows(&["3 nodes"]).await;
    terminal.press(&["q"]);
    terminal.ended().await;
    drop(hollow);
}
