//! A node for one case, and what is true of it.

use std::path::Path;
use std::sync::MutexGuard;

use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::machine::Machine;
use testkit::podresources::Server;
use testkit::process_group::ProcessGroup;
use testkit::proxy::Proxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use super::*;

const CPUS_PER_ZONE: i64 = 4;

/// One API server for all cases: starting it takes longer than most of them. It ends with the process.
static CONTROL: OnceCell<ControlPlane> = OnceCell::const_new();

/// A node: its kubelet, its machine as files, its way to the API server, and what has been seen of its object.
pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    pub(crate) process_group: ProcessGroup,
    pub(crate) proxy: Proxy,
    pub(crate) kubelet: Server,
    pub(crate) flags: Vec<String>,
    port: u16,
    seen: Arc<Mutex<Vec<NodeResourceTopology>>>,
    /// What has been true, in order; the last is true now.
    truths: Vec<String>,
    /// Versions that others wrote.
    foreign: Vec<String>,
    // Last, because the kubelet and the exporter have files in it.
    dir: tempfile::TempDir,
}

/// How many writes a case may have cost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writes {
    /// Exactly so many.
    Exactly(usize),
    /// Not more than so many.
    AtMost(usize),
}

impl Rig {
    /// A node of this name, which no other case has, and its Node object. `None` where the rig cannot run.
    pub(crate) async fn start(name: &'static str) -> Option<Self> {
        let rig = testkit::env::rig().ok()?;
        let start = async || {
            let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
            let client = control.client().await.unwrap();
            testkit::cluster::install_crds(&client, NRT_CRD_YAML).await.unwrap();
            control
        };
        Some(Self::on(CONTROL.get_or_init(start).await, name).await)
    }

    /// The same on a control plane of one's own.
    pub(crate) async fn on(control: &ControlPlane, name: &'static str) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter("warn,exporter=debug,kube_client=off")
            .with_test_writer()
            .try_init();
        let dir = tempfile::tempdir().unwrap();
        let (client, process_group) = (control.client().await.unwrap(), control.process_group().clone());
        let tree = Machine::new().zones(2).cpus_per_zone(CPUS_PER_ZONE as u32);
        let tree = tree.write_to(&dir.path().join("machine")).unwrap();
        let kubelet = Server::start(&dir.path().join("kubelet"), 2 * CPUS_PER_ZONE).unwrap();
        kubelet.admit(pod("a", &[1])).unwrap();
        let config = dir.path().join("kubelet/config.yaml");
        std::fs::write(&config, "cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\n")
            .unwrap();
        let proxy = Proxy::start(control, dir.path()).await.unwrap();
        let port = testkit::port::free().unwrap();
        let flags = [
            format!("--hostname={name}"),
            format!("--podresources-socket=unix://{}", kubelet.socket().display()),
            format!("--sysfs={}", tree.sys().display()),
            format!("--kubelet-state-dir={}", kubelet.root().display()),
            format!("--kubelet-config-file={}", config.display()),
            format!("--kubeconfig={}", proxy.kubeconfig().display()),
            format!("--metrics-port={port}"),
            "--metrics-ip=127.0.0.1".to_owned(),
            "--release-interval=0".to_owned(),
            "--sleep-interval=10m".to_owned(),
        ];
        let (flags, seen, foreign) = (flags.into(), Arc::default(), Vec::new());
        let mut rig = Self {
            name,
            client,
            process_group,
            proxy,
            kubelet,
            flags,
            port,
            seen,
            truths: Vec::new(),
            foreign,
            dir,
        };
        rig.register_node().await;
        rig.watch_object();
        rig.is_true_now();
        rig
    }

    /// Runs an exporter and waits until it has published.
    pub(crate) async fn export(&self) -> Exporter {
        let exporter = Exporter::start(&self.flags);
        self.arrives().await;
        self.is_ready().await;
        exporter
    }

    /// Waits until no more calls reach the kubelet: all follow-up scans are done.
    pub(crate) async fn is_quiet(&self) {
        let (mut calls, mut since) = (self.kubelet.calls(), Instant::now());
        let quiet = async || {
            if self.kubelet.calls() != calls {
                (calls, since) = (self.kubelet.calls(), Instant::now());
            }
            (since.elapsed() > Duration::from_secs(2)).then_some(())
        };
        until("quiet", quiet).await;
    }

    /// A place for files of the case.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn nrts(&self) -> Api<NodeResourceTopology> {
        Api::all(self.client.clone())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates the Node object and returns its UID.
    pub(crate) async fn register_node(&self) -> String {
        let mut node = Node::default();
        node.metadata.name = Some(self.name.to_owned());
        self.nodes().create(&PostParams::default(), &node).await.unwrap().uid().unwrap()
    }

    /// A pod gets these CPUs.
    pub(crate) fn admit(&mut self, name: &str, cpu_ids: &[i64]) {
        self.kubelet.admit(pod(name, cpu_ids)).unwrap();
        self.is_true_now();
    }

    /// A pod has ended.
    pub(crate) fn release(&mut self, name: &str) {
        self.kubelet.release(name).unwrap();
        self.is_true_now();
    }

    /// What the kubelet's list says now is true and may be seen.
    pub(crate) fn is_true_now(&mut self) {
        self.truths.push(truth(&self.kubelet.pods()));
    }

    /// What is true now.
    pub(crate) fn truth(&self) -> &str {
        self.truths.last().unwrap()
    }

    /// Waits until the object says what is true now.
    pub(crate) async fn arrives(&self) -> NodeResourceTopology {
        let nrts = self.nrts();
        let wanted = async || {
            let nrt = nrts.get_opt(self.name).await.ok().flatten()?;
            (said(&nrt) == *self.truth()).then_some(nrt)
        };
        until(&format!("{}: {}", self.name, self.truth()), wanted).await
    }

    /// The object as it is; there must be one.
    pub(crate) async fn object(&self) -> NodeResourceTopology {
        self.nrts().get(self.name).await.unwrap()
    }

    /// Another client writes into the object.
    pub(crate) async fn meddle(&mut self, patch: serde_json::Value) -> NodeResourceTopology {
        let patch = Patch::Merge(&patch);
        let nrt = self.nrts().patch(self.name, &PatchParams::default(), &patch).await.unwrap();
        self.foreign.extend(nrt.resource_version());
        nrt
    }

    /// How many requests to write the object have come through the proxy, whatever became of them.
    pub(crate) fn writes(&self) -> usize {
        ["POST", "PATCH", "PUT"].iter().map(|method| self.proxy.count(method, OBJECTS)).sum()
    }

    /// The time between each of them and the next.
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        let writes = self.proxy.seen().into_iter().filter(|seen| {
            matches!(seen.method.as_str(), "POST" | "PATCH" | "PUT") && seen.path.contains(OBJECTS)
        });
        let times: Vec<_> = writes.map(|seen| seen.at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// Waits until at least so many have come.
    pub(crate) async fn tries(&self, wanted: usize) {
        until("another try to write", async || (self.writes() >= wanted).then_some(())).await;
    }

    /// The answers of metrics and health; empty while they are not served.
    pub(crate) async fn get(&self, path: &str) -> String {
        let ask = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        ask.await.unwrap_or_default()
    }

    /// Waits until `/readyz` is content.
    pub(crate) async fn is_ready(&self) {
        let ready = async || self.get("/readyz").await.starts_with("HTTP/1.0 200").then_some(());
        until("ready", ready).await;
    }

    /// Waits until `/readyz` says this.
    pub(crate) async fn health_says(&self, text: &str) {
        let mut last = String::new();
        let began = Instant::now();
        while !last.contains(text) {
            assert!(began.elapsed() < PATIENCE, "{text:?} is not in {last:?} after {PATIENCE:?}");
            last = self.get("/readyz?verbose").await;
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the newest state and judges all there were: none was untrue, none older than one before it, and they
    /// cost no more writes than they may.
    pub(crate) async fn survived(&self, writes: Writes) {
        let last = self.arrives().await;
        until("the last state is seen", async || {
            self.seen()
                .iter()
                .any(|nrt| nrt.metadata.resource_version == last.metadata.resource_version)
                .then_some(())
        })
        .await;
        let mut now = 0;
        for nrt in self.seen().iter().filter(|nrt| !self.foreign.contains(&nrt.resource_version().unwrap())) {
            let said = said(nrt);
            let later = self.truths[now..].iter().position(|truth| *truth == said);
            assert!(
                later.is_some(),
                "{}: {said:?} was seen; from {now} on were true: {:#?}",
                self.name,
                self.truths
            );
            now += later.unwrap_or_default();
        }
        assert_eq!(&said(&last), self.truth(), "{}", self.name);
        match (writes, self.writes()) {
            (Writes::Exactly(wanted), came) => {
                assert_eq!(came, wanted, "{}: writes\n{}", self.name, self.log())
            }
            (Writes::AtMost(most), came) => {
                assert!(came <= most, "{}: {came} writes, not {most}\n{}", self.name, self.log());
            }
        }
    }

    /// As [`Rig::survived`], while the exporter runs on and is well.
    pub(crate) async fn survived_well(&self, writes: Writes) {
        self.arrives().await;
        self.health_says("[+]scan ok").await;
        self.health_says("[+]publish ok").await;
        self.survived(writes).await;
    }

    /// What came through the proxy, one request a line.
    fn log(&self) -> String {
        let line = |record: testkit::proxy::RequestRecord| {
            format!("{} {} {:?}\n", record.method, record.path, record.fault)
        };
        self.proxy.seen().into_iter().map(line).collect()
    }

    /// Notes every state of the object, past the proxy.
    fn watch_object(&self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let (api, seen) = (raw(&self.client), Arc::clone(&self.seen));
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, config));
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::Apply(nrt) | watcher::Event::InitApply(nrt)) = event {
                    let nrt = valid(nrt);
                    seen.lock().unwrap().push(nrt);
                }
            }
        });
    }

    fn seen(&self) -> MutexGuard<'_, Vec<NodeResourceTopology>> {
        self.seen.lock().unwrap()
    }
}

/// What an object says: what is available in each zone, and of which pods.
fn said(nrt: &NodeResourceTopology) -> String {
    format!("{} {}", show(nrt, "cpu"), fingerprint(nrt))
}

/// What an object should say of these pods: counted anew, without any code of the exporter.
fn truth(pods: &[testkit::podresources::wire::PodResources]) -> String {
    let held = || pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.cpu_ids);
    let zone = |zone: i64| {
        let taken = held().filter(|cpu| **cpu / CPUS_PER_ZONE == zone).count() as i64;
        format!("{zone} {}/{CPUS_PER_ZONE}/{CPUS_PER_ZONE}", CPUS_PER_ZONE - taken)
    };
    let holders =
        pods.iter().filter(|pod| pod.containers.iter().any(|container| !container.cpu_ids.is_empty()));
    let names = holders.map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    format!("{} | {} {}", zone(0), zone(1), Fingerprint::of_names(names))
}
