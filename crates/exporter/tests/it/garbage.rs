//! A kubelet that talks nonsense, and a machine that does: the object keeps what was last known to be true, and health
//! and metrics say what is wrong.

use kube::api::ListParams;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::machine::{Machine, Tree};
use testkit::podresources::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// A control plane, a machine as files, a kubelet as told, and the flags of an exporter between them.
pub(super) struct Rig {
    pub(super) control: ControlPlane,
    pub(super) client: Client,
    tree: Tree,
    pub(super) kubelet: Server,
    port: u16,
    pub(super) flags: Vec<String>,
}

impl Rig {
    pub(super) async fn start() -> Option<Self> {
        Self::with(&ControlPlaneOptions::default()).await
    }

    pub(super) async fn with(options: &ControlPlaneOptions) -> Option<Self> {
        let rig = testkit::env::rig().ok()?;
        let control = ControlPlane::start(&rig.binaries, options).await.unwrap();
        let client = control.client().await.unwrap();
        testkit::cluster::install_crds(&client, NRT_CRD_YAML).await.unwrap();
        let dir = control.process_group().dir().to_owned();
        let tree = Machine::new().zones(2).cpus_per_zone(4).write_to(&dir.join("machine")).unwrap();
        std::fs::write(dir.join("kubelet.yaml"), "cpuManagerPolicy: static\n").unwrap();
        let kubelet = Server::start(&dir.join("kubelet"), 8).unwrap();
        kubelet.hands_out(&[1]);
        let port = testkit::port::free().unwrap();
        let flags = [
            "--hostname=node-0".to_owned(),
            format!("--podresources-socket={}", kubelet.socket().display()),
            format!("--sysfs={}", tree.sys().display()),
            format!("--kubelet-state-dir={}", kubelet.root().display()),
            format!("--kubelet-config-file={}", dir.join("kubelet.yaml").display()),
            format!("--kubeconfig={}", control.kubeconfig().display()),
            "--add-nrt-owner=false --metrics-ip=127.0.0.1 --sleep-interval=200ms".to_owned(),
            format!("--metrics-port={port}"),
        ];
        let flags: Vec<_> = flags.iter().flat_map(|flag| flag.split(' ')).map(str::to_owned).collect();
        Some(Self { control, client, tree, kubelet, port, flags })
    }

    pub(super) async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Waits until `/readyz` says this.
    async fn health_says(&self, text: &str) {
        let mut last = String::new();
        let said = until(text, async || {
            last = self.get("/readyz?verbose").await;
            last.contains(text).then_some(())
        });
        said.await;
    }
}

pub(super) const BEFORE: &str = "0 3/4/4 | 1 4/4/4";
pub(super) const AFTER: &str = "0 4/4/4 | 1 3/4/4";

#[tokio::test]
async fn nonsense_is_told_and_never_published() {
    let Some(mut rig) = Rig::start().await else { return };
    let exporter = Exporter::start(&rig.flags);
    let before = shows(&rig.client, "cpu", BEFORE).await;
    until("ready", async || rig.get("/readyz").await.starts_with("HTTP/1.0 200").then_some(())).await;
    let unchanged = async || {
        let now = shows(&rig.client, "cpu", BEFORE).await;
        assert_eq!(now.metadata.resource_version, before.metadata.resource_version);
    };

    rig.kubelet.hands_out(&[-5]);
    rig.health_says(
        "[-]scan failed: podresources list answered nonsense: default/p/c: cpu_ids: -5 is not a CPU id",
    )
    .await;
    unchanged().await;

    rig.kubelet.hands_out(&[5]);
    let meminfo = rig.tree.sys().join("devices/system/node/node1/meminfo");
    let good = std::fs::read(&meminfo).unwrap();
    std::fs::write(&meminfo, "Node 1 MemTotal: lots kB").unwrap();
    rig.health_says("node1/meminfo: MemTotal is \"lots kB\", expected a number of kB").await;
    std::fs::write(&meminfo, good).unwrap();

    let config = rig.control.process_group().dir().join("kubelet.yaml");
    std::fs::write(&config, "topologyManagerPolicy: strict").unwrap();
    rig.kubelet.stop();
    rig.kubelet.restart().unwrap();
    rig.health_says(
        "topologyManagerPolicy is \"strict\"; allowed are none, best-effort, restricted, single-numa-node",
    )
    .await;
    std::fs::write(&config, "topologyManagerPolicy: restricted").unwrap();
    rig.kubelet.stop();
    rig.kubelet.restart().unwrap();

    let restricted = async || {
        let nrt = shows(&rig.client, "cpu", AFTER).await;
        (attribute::get(&nrt.attributes, "topologyManagerPolicy") == Some("restricted")).then_some(())
    };
    until("restricted", restricted).await;
    rig.health_says("[+]scan ok").await;
    let metrics = rig.get("/metrics").await;
    for input in ["podresources", "sysfs", "kubelet_config"] {
        let line = format!("tholepin_exporter_scan_failures_total{{node=\"node-0\",input=\"{input}\"}}");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.contains(
        "rte_noderesourcetopology_writes_total{node=\"node-0\",operation=\"create\",trigger=\"reactive\"} 1"
    ));
    exporter.stop().await;
}

#[tokio::test]
async fn one_shot_ends_when_it_is_published_and_a_preview_publishes_nothing() {
    let Some(rig) = Rig::start().await else { return };
    let objects = async || {
        Api::<NodeResourceTopology>::all(rig.client.clone()).list(&ListParams::default()).await.unwrap().items
    };
    let run = async |further: &[&str]| {
        let flags: Vec<_> =
            rig.flags.iter().cloned().chain(further.iter().map(|flag| (*flag).to_owned())).collect();
        let mut exporter = Exporter::start(&flags);
        timeout(PATIENCE, &mut exporter.task).await.expect("an end").unwrap()
    };
    run(&["--oneshot", "--no-publish", "--kubeconfig=/nowhere"]).await.unwrap();
    assert!(objects().await.is_empty());
    run(&["--oneshot"]).await.unwrap();
    assert_eq!(objects().await.iter().map(|nrt| show(nrt, "cpu")).collect::<Vec<_>>(), [BEFORE]);

    for (flag, wanted) in [
        ("--kubeconfig=/nowhere", "cannot reach Kubernetes: kubeconfig /nowhere: "),
        ("--hostname=a,b", "--hostname: \"a,b\" is not allowed"),
    ] {
        let error = format!("{:#}", run(&[flag]).await.unwrap_err());
        assert!(error.starts_with(wanted), "{error}");
    }
}
