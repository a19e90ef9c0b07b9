//! `cargo xtask cluster up|down`: the tests' cluster for a person.
//!
//! In: the number and shape of the nodes. Out: a cluster that stays until Ctrl-C or `down`, and the path of its
//! kubeconfig. One cluster per checkout; a file under `target/` says where it is.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::env::Rig;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use testkit::net::{self, Network};
use tokio::signal::unix::{SignalKind, signal};
use topology::policy::{Policy, Scope};

use crate::testenv;

/// How long `down` waits before it uses force.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Runs beside the exporter in manifests of the peers.
const PAUSE: &str = "gcr.io/google_containers/pause-amd64:3.0";

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Start a cluster and keep it up until Ctrl-C or `down`.
    Up(Box<Up>),
    /// End the cluster that `up` started, from any shell.
    Down,
}

#[derive(Args)]
pub(crate) struct Up {
    /// Return when the cluster is ready and leave it running.
    #[arg(short, long)]
    detach: bool,
    /// Real kubelets, each on a machine of its own.
    #[arg(long, default_value_t = 2)]
    nodes: u32,
    /// NUMA zones of a machine.
    #[arg(long, default_value_t = 2)]
    zones: u32,
    /// CPUs (threads) of a zone.
    #[arg(long, default_value_t = 16)]
    cpus_per_zone: u32,
    /// Memory of a zone, in GiB.
    #[arg(long, default_value_t = 64)]
    memory_gib_per_zone: u64,
    /// Huge pages of 2 MiB in each zone.
    #[arg(long, default_value_t = 0)]
    hugepages_2mi_per_zone: u64,
    /// Huge pages of 1 GiB in each zone.
    #[arg(long, default_value_t = 0)]
    hugepages_1gi_per_zone: u64,
    /// Two threads a core.
    #[arg(long)]
    smt: bool,
    /// Sockets of a machine.
    #[arg(long, default_value_t = 1)]
    sockets: u32,
    /// Last-level caches of a zone.
    #[arg(long, default_value_t = 1)]
    llc_per_zone: u32,
    /// topologyManagerPolicy: none, best-effort, restricted or single-numa-node.
    #[arg(long, default_value = "single-numa-node", value_parser = policy)]
    policy: Policy,
    /// topologyManagerScope: container or pod.
    #[arg(long, default_value = "container", value_parser = scope)]
    scope: Scope,
    /// reservedSystemCPUs, a CPU list.
    #[arg(long, default_value = "0")]
    reserved_cpus: String,
    /// Leave the memory manager off.
    #[arg(long)]
    no_memory_manager: bool,
    /// Without the stock kube-scheduler.
    #[arg(long)]
    no_scheduler: bool,
    /// Without the stock kube-controller-manager.
    #[arg(long)]
    no_controllers: bool,
    /// Containers are processes of this machine, in a network of the cluster's own; then it is one to install
    /// things on.
    #[arg(long)]
    containers: bool,
    /// A program that is the entry point of an image, for instance tholepin:dev=target/debug/tholepin; may be repeated.
    #[arg(long, value_name = "IMAGE=PATH", value_parser = image, requires = "containers")]
    image: Vec<(String, PathBuf)>,
    /// CustomResourceDefinitions to install beside NodeResourceTopology; may be repeated.
    #[arg(long, value_name = "FILE")]
    crds: Vec<PathBuf>,
}

/// What `down`, and a second `up`, need to know of a running cluster.
#[derive(Serialize, Deserialize)]
struct State {
    pid: i32,
    /// Process ids are used again; together with this they are not.
    started: u64,
    kubeconfig: PathBuf,
}

/// Carries it out.
pub(crate) fn run(action: Action) -> anyhow::Result<()> {
    match action {
        Action::Up(up) => {
            if let Some(state) = State::read().filter(State::is_alive) {
                bail!(
                    "a cluster is up already (process {}, kubeconfig {}); `cargo xtask cluster down` ends it",
                    state.pid,
                    state.kubeconfig.display()
                );
            }
            if up.detach { detached() } else { foreground(&up) }
        }
        Action::Down => down(),
    }
}

fn foreground(up: &Up) -> anyhow::Result<()> {
    testenv::ensure()?;
    let rig = testkit::env::check()?;
    if up.containers {
        // From here, so that the machine's programs reach it.
        let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        return net::private(async |network| {
            Box::pin(until_ended(stay_up(up, &rig, Some((network, door))))).await
        })?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(until_ended(stay_up(up, &rig, None)))
}

/// Returns when the cluster is asked to end.
async fn until_ended(cluster: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = async {
        tokio::select! {
            _ = interrupt.recv() => {},
            _ = terminate.recv() => {},
            _ = hangup.recv() => {},
        }
    };
    tokio::select! {
        cluster = cluster => cluster,
        () = ended => {
            eprintln!("ending the cluster");
            Ok(())
        }
    }
}

/// Comes back only with an error; dropped, it ends the cluster.
async fn stay_up(up: &Up, rig: &Rig, private: Option<(Network, TcpListener)>) -> anyhow::Result<()> {
    let began = Instant::now();
    eprintln!("starting a control plane and {} nodes", up.nodes);
    let machine = up.machine();
    let mut builder = Cluster::builder()
        .machines((0..up.nodes).map(|_| machine.clone()))
        .kubelet(up.kubelet())
        .crds(api::crd::NRT_CRD_YAML)
        .scheduler(!up.no_scheduler)
        .controller_manager(!up.no_controllers);
    for file in &up.crds {
        builder =
            builder.crds(fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?);
    }
    let (network, door) = private.unzip();
    if let Some(network) = network {
        builder = builder.installable(network, up.images());
    }
    let cluster = builder.start(rig).await?;
    eprintln!("ready in {:.1} s", began.elapsed().as_secs_f64());
    for node in cluster.nodes() {
        let kubelet = node.kubelet();
        eprintln!(
            "{}: state {}  sysfs {}",
            node.name(),
            kubelet.root_dir().display(),
            kubelet.machine().sys().display()
        );
    }
    let control = cluster.control();
    let kubeconfig = match &door {
        Some(door) => control.kubeconfig_at(&format!("https://{}", door.local_addr()?))?,
        None => control.kubeconfig().to_owned(),
    };
    let _state = Written::new(&State::of_this_process(&kubeconfig)?)?;
    say_up(&kubeconfig);
    eprintln!("Ctrl-C here or `cargo xtask cluster down` anywhere ends it.");
    match door {
        Some(door) => match net::forward(door).await? {},
        None => std::future::pending().await,
    }
}

/// Starts itself again in a session of its own and waits until that one is up.
fn detached() -> anyhow::Result<()> {
    testenv::ensure()?;
    testkit::env::check()?;
    let log = state_dir()?.join("cluster.log");
    let out = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    let args = std::env::args_os().skip(1).filter(|arg| arg != "-d" && arg != "--detach");
    // Spawned, it leads no process group, so setsid becomes the program itself: the id stays.
    let mut child = Command::new("setsid")
        .arg(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .context("starting the cluster in the background")?;
    eprintln!("starting a cluster in the background; its log is {}", log.display());
    loop {
        if let Some(exit) = child.try_wait()? {
            bail!("no cluster ({exit}):\n{}", fs::read_to_string(&log).unwrap_or_default().trim_end());
        }
        if let Some(state) = State::read().filter(|state| state.pid.cast_unsigned() == child.id()) {
            say_up(&state.kubeconfig);
            eprintln!("`cargo xtask cluster down` ends it.");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn down() -> anyhow::Result<()> {
    let Some(state) = State::read().filter(State::is_alive) else {
        eprintln!("no cluster is up");
        return Ok(());
    };
    let pid = Pid::from_raw(state.pid).context("the state file names no process")?;
    kill_process(pid, Signal::TERM).context("asking the cluster to end")?;
    let asked = Instant::now();
    while state.is_alive() {
        if asked.elapsed() > END_WITHIN {
            eprintln!("it does not end by itself after {END_WITHIN:?}; killing it");
            kill_process(pid, Signal::KILL).context("killing the cluster")?;
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("the cluster is down");
    Ok(())
}

/// The only line on standard output is the path, for scripts.
fn say_up(kubeconfig: &Path) {
    println!("{}", kubeconfig.display());
    eprintln!("export KUBECONFIG={}", kubeconfig.display());
}

impl Up {
    fn machine(&self) -> Machine {
        let mut machine = Machine::new()
            .zones(self.zones)
            .cpus_per_zone(self.cpus_per_zone)
            .memory_mib_per_zone(self.memory_gib_per_zone << 10)
            .smt(self.smt)
            .sockets(self.sockets)
            .llc_per_zone(self.llc_per_zone);
        for (page_kib, pages) in
            [(2 << 10, self.hugepages_2mi_per_zone), (1 << 20, self.hugepages_1gi_per_zone)]
        {
            if pages > 0 {
                machine = machine.hugepages_per_zone(page_kib, pages);
            }
        }
        machine
    }

    /// Those asked for, the machine's own tools, and the pause image that peers' manifests name.
    fn images(&self) -> Images {
        let ours = Images::new().with("tools", Image::tools()).with(PAUSE, Image::pause());
        self.image.iter().fold(ours, |images, (name, path)| images.with(name, Image::program(path)))
    }

    fn kubelet(&self) -> KubeletOptions {
        KubeletOptions {
            policy: self.policy,
            scope: self.scope,
            static_memory: !self.no_memory_manager,
            reserved_cpus: self.reserved_cpus.clone(),
            ..KubeletOptions::default()
        }
    }
}

impl State {
    fn of_this_process(kubeconfig: &Path) -> anyhow::Result<Self> {
        let pid = std::process::id().cast_signed();
        let started = started(pid).context("this process is not in /proc")?;
        Ok(Self { pid, started, kubeconfig: kubeconfig.to_owned() })
    }

    fn read() -> Option<Self> {
        serde_json::from_slice(&fs::read(state_dir().ok()?.join("cluster.json")).ok()?).ok()
    }

    fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// The state file, for as long as the cluster is up.
struct Written(PathBuf);

impl Written {
    fn new(state: &State) -> anyhow::Result<Self> {
        let path = state_dir()?.join("cluster.json");
        // Renamed into place: a reader never sees half of it.
        let half = path.with_extension("part");
        fs::write(&half, serde_json::to_vec_pretty(state)?)
            .with_context(|| format!("writing {}", half.display()))?;
        fs::rename(&half, &path).with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn state_dir() -> anyhow::Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = xtask.parent().unwrap_or(xtask).join("target/xtask");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}

/// When a process started, in clock ticks after boot (field 22 of `/proc/<pid>/stat`); `None` once it is gone.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" { None } else { fields.nth(18)?.parse().ok() }
}

fn image(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("wanted is IMAGE=PATH")?;
    let path = fs::canonicalize(path).map_err(|error| format!("{path}: {error}"))?;
    Ok((name.to_owned(), path))
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text)
        .ok_or_else(|| "allowed are none, best-effort, restricted and single-numa-node".to_owned())
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| "allowed are container and pod".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let state = State::of_this_process(Path::new("kubeconfig")).unwrap();
        assert!(state.is_alive());
        assert!(!State { started: state.started + 1, ..state }.is_alive());
    }

    #[test]
    fn a_dead_process_has_no_start() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        // Not reaped yet: running at first, a zombie later.
        while started(pid).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert_eq!(started(pid), None);
    }
}
