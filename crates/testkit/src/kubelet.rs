//! Real kubelets on synthetic machines, several side by side.
//!
//! In: a control plane, a [`Host`], a container runtime's socket, options. Out: a kubelet whose node is Ready, with its
//! own root folder and sockets; CPU, memory, device and topology managers are the real ones.

mod cgroups;
mod host;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use topology::policy::{Policy, Scope};

use crate::controlplane::ControlPlane;
use crate::env::Program;
use crate::machine::Tree;
use crate::net;
use crate::port;
use crate::process_group::{Process, Spec};

pub use self::cgroups::PodCgroups;
pub use self::host::Host;

/// How long a kubelet may take to make its node Ready; it takes about 2 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Hard eviction threshold for memory. The least that still exercises its part in the memory manager's arithmetic.
const EVICTION_MIB: u64 = 1;

/// The file with the KubeletConfiguration in the kubelet's root folder, named as kubeadm does.
const CONFIG: &str = "config.yaml";

/// The files in which the managers keep what they have handed out. One that another policy has written ends a kubelet.
const STATES: [&str; 2] = ["cpu_manager_state", "memory_manager_state"];

/// The taint the API server puts on new nodes and only a controller takes away.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What may be different about a kubelet.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// `topologyManagerPolicy`.
    pub policy: Policy,
    /// `topologyManagerScope`.
    pub scope: Scope,
    /// `cpuManagerPolicy: static` instead of `none`.
    pub static_cpus: bool,
    /// `memoryManagerPolicy: Static` instead of `None`.
    pub static_memory: bool,
    /// `reservedSystemCPUs`, a CPU list. The static CPU policy wants at least one.
    pub reserved_cpus: String,
    /// Memory reserved in every zone that has memory, in MiB; at least 1.
    pub reserved_mib_per_zone: u64,
    /// `maxPods`.
    pub max_pods: u32,
    /// Fields of the KubeletConfiguration to add or replace, by their names on the top level.
    pub config: Map<String, Value>,
    /// Further flags.
    pub flags: Vec<String>,
    /// Labels of the node, there before its kubelet is. A kubelet may not give itself a role.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node, there before its kubelet is.
    pub taints: Vec<Taint>,
    /// The kubelet's program, for one of another release; that of the rig if absent.
    pub program: Option<PathBuf>,
}

/// A running kubelet; dropping it kills it.
pub struct Kubelet {
    process: Process,
    root: PathBuf,
    /// The configuration it was started with first.
    base: Map<String, Value>,
    healthz: (IpAddr, u16),
    client: Client,
    host: Host,
}

/// Where a kubelet serves.
struct Ports {
    api: u16,
    healthz: u16,
}

impl Default for KubeletOptions {
    /// Single-NUMA-node, container scope, static CPU and memory managers, CPU 0 and 256 MiB of each zone reserved.
    fn default() -> Self {
        Self {
            policy: Policy::SingleNumaNode,
            scope: Scope::Container,
            static_cpus: true,
            static_memory: true,
            reserved_cpus: "0".to_owned(),
            reserved_mib_per_zone: 256,
            max_pods: 250,
            config: Map::new(),
            flags: Vec::new(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            program: None,
        }
    }
}

impl KubeletOptions {
    /// The same on a node of OpenShift's control plane: with its roles, and the taint that keeps pods away.
    #[must_use]
    pub fn master(mut self) -> Self {
        for role in ["control-plane", "master"] {
            self.labels.insert(format!("node-role.kubernetes.io/{role}"), String::new());
        }
        self.taints.push(Taint {
            key: "node-role.kubernetes.io/master".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
        self
    }
}

impl Kubelet {
    /// Starts a kubelet on `host`, with its containers run behind the socket `cri`. Returns before the node is Ready:
    /// [`Kubelet::wait_ready`] waits.
    ///
    /// # Errors
    /// When its files cannot be written or it cannot be started.
    pub async fn start(
        control: &ControlPlane,
        host: Host,
        options: &KubeletOptions,
        cri: &Path,
    ) -> anyhow::Result<Self> {
        let (name, dir, root) = (host.name(), host.dir(), host.root());
        let ports = Ports::new(&host)?;
        let base = configuration(control, &host, options, cri, &ports)?;
        let config_file = root.join(CONFIG);
        write_config(&config_file, &base)?;
        let client = control.client().await?;
        announce(&client, name, options).await?;
        // The Node authorizer lets a kubelet see only what concerns its own node.
        let kubeconfig = control.kubeconfig_for(&format!("system:node:{name}"), "system:nodes")?;
        let program = options.program.as_deref().unwrap_or(control.binaries().path(Program::Kubelet));
        let spec = Spec::new(format!("kubelet-{name}"), program)
            .within(host.namespaces())
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--config={}", config_file.display()))
            .arg(format!("--root-dir={}", host.seen_root().display()))
            .arg(format!("--cert-dir={}", dir.join("pki").display()))
            .arg(format!("--hostname-override={name}"))
            .args(host.address().map(|address| format!("--node-ip={address}")))
            .args(options.flags.clone());
        let process = control.process_group().spawn(spec)?;
        Ok(Self { process, root, base, healthz: (host.reached_at(), ports.healthz), host, client })
    }

    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        self.host.name()
    }

    /// The machine it runs on.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The process, for pausing, killing and memory.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The folder with the kubelet's state: `cpu_manager_state`, `memory_manager_state`, `device-plugins/` and more.
    #[must_use]
    pub fn root_dir(&self) -> &Path {
        &self.root
    }

    /// The machine's files; their `sys` is what a node agent takes for `/sys`.
    #[must_use]
    pub fn machine(&self) -> &Tree {
        self.host.machine()
    }

    /// Makes stand-ins for the cgroups of its pods in the machine's `sys`, until the result is dropped.
    ///
    /// # Errors
    /// When they cannot be made, or the kernel has no watch left.
    pub fn show_cgroups(&self) -> anyhow::Result<PodCgroups> {
        PodCgroups::follow(&self.root, &self.machine().sys())
    }

    /// Where the podresources API is served.
    #[must_use]
    pub fn podresources_socket(&self) -> PathBuf {
        self.root.join("pod-resources/kubelet.sock")
    }

    /// Where device plugins register.
    #[must_use]
    pub fn device_plugin_socket(&self) -> PathBuf {
        self.root.join("device-plugins/kubelet.sock")
    }

    /// Waits until the kubelet is healthy, has started its managers, serves podresources and its node is Ready,
    /// then takes the not-ready taint away if no controller has.
    ///
    /// # Errors
    /// When it ends or is not ready in time; with the end of its log.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let served = async |socket: PathBuf| tokio::net::UnixStream::connect(socket).await.is_ok();
        let ready = async || {
            self.is_healthy().await
                && served(self.podresources_socket()).await
                // The last of the managers; one before it that refuses the state it finds ends a kubelet that
                // was healthy.
                && served(self.device_plugin_socket()).await
                && nodes.get_opt(self.name()).await.ok().flatten().is_some_and(|node| is_ready(&node))
        };
        self.process.wait_until("Ready", PATIENCE, ready).await?;
        remove_not_ready_taint(&nodes, self.name()).await
    }

    /// The file with the KubeletConfiguration.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.join(CONFIG)
    }

    /// Adds or replaces fields of the configuration file, by their names on the top level. The kubelet takes
    /// notice when it starts again.
    ///
    /// # Errors
    /// When the file cannot be read or replaced.
    pub fn configure(&self, changes: &Map<String, Value>) -> anyhow::Result<()> {
        let path = self.config_file();
        let mut config: Map<String, Value> = serde_json::from_str(&fs::read_to_string(&path)?)?;
        config.extend(changes.clone());
        write_config(&path, &config)
    }

    /// Makes the configuration file what it was at first, with these fields over it: objects are merged, all else is
    /// replaced. The managers forget what they have handed out, so the kubelet has to be stopped.
    ///
    /// # Errors
    /// When a file cannot be replaced or removed.
    pub(crate) fn reset(&self, over: &Map<String, Value>) -> anyhow::Result<()> {
        let mut config = self.base.clone();
        merge(&mut config, over);
        write_config(&self.config_file(), &config)?;
        for name in STATES {
            let path = self.root.join(name);
            match fs::remove_file(&path) {
                // A manager without a policy has none.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Kills the kubelet as `kill -9` does, starts it again on the same machine and state, and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready again in time.
    pub async fn restart(&self) -> anyhow::Result<()> {
        self.process.restart()?;
        self.wait_ready().await
    }

    /// Kills the kubelet. The Node object stays, as it does when a machine dies.
    pub fn stop(&self) {
        self.process.kill();
    }

    /// Asks the new process itself: what the API server says of the node may be from before a restart.
    async fn is_healthy(&self) -> bool {
        let ask = async {
            let mut stream = tokio::net::TcpStream::connect(self.healthz).await?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        ask.await.is_ok_and(|answer| answer.split_whitespace().nth(1) == Some("200"))
    }
}

impl fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelet")
            .field("name", &self.name())
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

fn configuration(
    control: &ControlPlane,
    host: &Host,
    options: &KubeletOptions,
    cri: &Path,
    ports: &Ports,
) -> anyhow::Result<Map<String, Value>> {
    let dir = host.dir();
    let zones: Vec<u32> =
        host.layout().zones.iter().filter(|zone| zone.memory_kib > 0).map(|zone| zone.id).collect();
    let per_zone = options.reserved_mib_per_zone;
    // The memory manager wants exactly kube-reserved + system-reserved + hard eviction spread over the zones.
    let Some(kube_mib) = (per_zone * zones.len() as u64).checked_sub(EVICTION_MIB) else {
        bail!("reserved_mib_per_zone is {per_zone}: allowed are {EVICTION_MIB} and more");
    };
    let reserved: Vec<Value> = zones
        .iter()
        .map(|zone| json!({ "numaNode": zone, "limits": { "memory": format!("{per_zone}Mi") } }))
        .collect();
    let (certificate, key) = control.server_files();
    // In a network of its own a kubelet lets in whom the API server does: pods' accounts, with their rights.
    let asks = control.network().is_some();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", cri.display()),
        // Everywhere, because the API server calls the node's address; only certificates of our authority get in.
        "address": "0.0.0.0",
        "port": ports.api,
        "healthzPort": ports.healthz,
        "healthzBindAddress": host.reached_at(),
        "tlsCertFile": certificate,
        "tlsPrivateKeyFile": key,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": asks },
            "x509": { "clientCAFile": control.ca_file() },
        },
        "authorization": { "mode": if asks { "Webhook" } else { "AlwaysAllow" } },
        // The host's cgroups, iptables, sysctls and out-of-memory order are none of a test's business.
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": false,
        "oomScoreAdj": 0,
        "failSwapOn": false,
        "failCgroupV1": false,
        "podLogsDir": dir.join("logs"),
        "volumePluginDir": dir.join("volume-plugins"),
        "evictionHard": { "memory.available": format!("{EVICTION_MIB}Mi"), "nodefs.available": "0%" },
        "cpuManagerPolicy": if options.static_cpus { "static" } else { "none" },
        "memoryManagerPolicy": if options.static_memory { "Static" } else { "None" },
        "topologyManagerPolicy": options.policy.as_str(),
        "topologyManagerScope": options.scope.as_str(),
        "reservedSystemCPUs": options.reserved_cpus,
        "kubeReserved": { "memory": format!("{kube_mib}Mi") },
        "reservedMemory": if options.static_memory { reserved } else { Vec::new() },
        "maxPods": options.max_pods,
    });
    let Value::Object(mut config) = config else { bail!("a KubeletConfiguration is an object") };
    if host.address().is_some() {
        // The machine's own name servers are not reached from its network.
        config.insert("resolvConf".to_owned(), json!(""));
        config.insert("clusterDNS".to_owned(), json!([net::NAMES]));
        config.insert("clusterDomain".to_owned(), json!("cluster.local"));
    }
    config.extend(options.config.clone());
    Ok(config)
}

/// As a whole: a reader never sees half of it.
fn write_config(path: &Path, config: &Map<String, Value>) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, format!("{:#}\n", Value::Object(config.clone())))?;
    fs::rename(&new, path).with_context(|| format!("replacing {}", path.display()))
}

fn merge(config: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (name, value) in over {
        match (config.get_mut(name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            _ => drop(config.insert(name.clone(), value.clone())),
        }
    }
}

/// Makes the Node of a kubelet that is to find one.
async fn announce(client: &Client, name: &str, options: &KubeletOptions) -> anyhow::Result<()> {
    let KubeletOptions { labels, taints, .. } = options;
    if labels.is_empty() && taints.is_empty() {
        return Ok(());
    }
    let node = Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { taints: Some(taints.clone()), ..NodeSpec::default() }),
        ..Node::default()
    };
    let made = Api::all(client.clone()).create(&PostParams::default(), &node).await;
    made.map(drop).with_context(|| format!("making the node {name}"))
}

impl Ports {
    /// The usual ones on a host with an address of its own.
    fn new(host: &Host) -> anyhow::Result<Self> {
        if host.address().is_some() {
            return Ok(Self { api: 10_250, healthz: 10_248 });
        }
        Ok(Self { api: port::free()?, healthz: port::free()? })
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn remove_not_ready_taint(nodes: &Api<Node>, name: &str) -> anyhow::Result<()> {
    loop {
        let mut node = nodes.get(name).await?;
        let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) else { return Ok(()) };
        let before = taints.len();
        taints.retain(|taint| taint.key != NOT_READY);
        if taints.len() == before {
            return Ok(());
        }
        match nodes.replace(&node.name_any(), &PostParams::default(), &node).await {
            // The kubelet writes to the same object.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("removing the not-ready taint of {name}"));
            }
            Ok(_) => return Ok(()),
        }
    }
}
