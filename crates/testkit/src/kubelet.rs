//! Real kubelets on synthetic machines, several side by side.
//!
//! In: a control plane, a [`Machine`], a container runtime's socket, options. Out: a kubelet whose node is Ready, with its
//! own root folder and sockets; CPU, memory, device and topology managers are the real ones. Nothing of the host changes:
//! each kubelet lives in a private mount namespace, where the machine's files lie over those of the host, as do
//! stand-ins for the sysctls that a kubelet would set and for the folders whose paths it has built in.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use topology::policy::{Policy, Scope};

use crate::controlplane::ControlPlane;
use crate::env::Program;
use crate::machine::{Layout, Machine, Tree};
use crate::nest::{Process, Spec};
use crate::port;

/// How long a kubelet may take to make its node Ready; it takes about 2 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Hard eviction threshold for memory. The least that still exercises its part in the memory manager's arithmetic.
const EVICTION_MIB: u64 = 1;

/// The taint the API server puts on new nodes and only a controller takes away.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What a kubelet sets at its start unless it finds it so (kubelet, `setupKernelTunables`).
const SYSCTLS: [(&str, &str); 6] = [
    ("proc/sys/vm/overcommit_memory", "1"),
    ("proc/sys/vm/panic_on_oom", "0"),
    ("proc/sys/kernel/panic", "10"),
    ("proc/sys/kernel/panic_on_oops", "1"),
    ("proc/sys/kernel/keys/root_maxkeys", "1000000"),
    ("proc/sys/kernel/keys/root_maxbytes", "25000000"),
];

/// Runs in the private mount namespace: pairs of files up to `--`, then the root folder, then the program. The device
/// plugin folder is built in at `/var/lib/kubelet`, the links to container logs in `/var/log`.
const ENTER: &str = r#"
set -e
while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done
root=$2; shift 2
exec 3<"$root"
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/kubelet
mount --bind /proc/self/fd/3 /var/lib/kubelet
exec 3<&-
exec "$@"
"#;

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
}

/// A running kubelet; dropping it kills it.
pub struct Kubelet {
    process: Process,
    name: String,
    tree: Tree,
    root: PathBuf,
    healthz: u16,
    client: Client,
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
        }
    }
}

impl Kubelet {
    /// Starts a kubelet for node `name` on `machine`, with its containers run behind the socket `cri`. Returns before the
    /// node is Ready: [`Kubelet::wait_ready`] waits.
    ///
    /// # Errors
    /// When the machine cannot exist, its files cannot be written, or the kubelet cannot be started.
    pub async fn start(
        control: &ControlPlane,
        name: &str,
        machine: &Machine,
        options: &KubeletOptions,
        cri: &Path,
    ) -> anyhow::Result<Self> {
        let dir = control.nest().dir().join(name);
        let root = dir.join("kubelet");
        fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        let tree = machine.write_to(&dir.join("machine")).with_context(|| format!("machine of {name}"))?;
        let healthz = port::free()?;
        let config = configuration(control, &machine.layout()?, options, cri, &dir, healthz)?;
        let config_file = dir.join("kubelet.json");
        fs::write(&config_file, format!("{:#}\n", Value::Object(config)))?;
        // The Node authorizer lets a kubelet see only what concerns its own node.
        let kubeconfig = control.kubeconfig_for(&format!("system:node:{name}"), "system:nodes")?;

        let mut spec =
            Spec::new(format!("kubelet-{name}"), "unshare").args(["--mount", "sh", "-c", ENTER, "enter"]);
        for (over, real) in mounts(&tree)? {
            spec = spec.arg(text(&over)).arg(text(&real));
        }
        let spec = spec
            .args(["--", &text(&root), &text(control.binaries().path(Program::Kubelet))])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--config={}", config_file.display()))
            .arg(format!("--root-dir={}", root.display()))
            .arg(format!("--cert-dir={}", dir.join("pki").display()))
            .arg(format!("--hostname-override={name}"))
            .args(options.flags.clone());
        let process = control.nest().spawn(spec)?;
        Ok(Self { process, name: name.to_owned(), tree, root, healthz, client: control.client().await? })
    }

    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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
        &self.tree
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

    /// Waits until the kubelet is healthy, serves podresources and its node is Ready, then takes the not-ready taint away
    /// if no controller has.
    ///
    /// # Errors
    /// When it ends or is not ready in time; with the end of its log.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let ready = async || {
            self.is_healthy().await
                && tokio::net::UnixStream::connect(self.podresources_socket()).await.is_ok()
                && nodes.get_opt(&self.name).await.ok().flatten().is_some_and(|node| is_ready(&node))
        };
        self.process.wait_until("Ready", PATIENCE, ready).await?;
        remove_not_ready_taint(&nodes, &self.name).await
    }

    /// The file with the KubeletConfiguration.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.with_file_name("kubelet.json")
    }

    /// Adds or replaces fields of the configuration file, by their names on the top level. The kubelet takes notice when it
    /// starts again.
    ///
    /// # Errors
    /// When the file cannot be read or replaced.
    pub fn configure(&self, changes: &Map<String, Value>) -> anyhow::Result<()> {
        let path = self.config_file();
        let mut config: Map<String, Value> = serde_json::from_str(&fs::read_to_string(&path)?)?;
        config.extend(changes.clone());
        // As a whole, so that nobody reads half of it.
        let new = path.with_extension("new");
        fs::write(&new, format!("{:#}\n", Value::Object(config)))?;
        fs::rename(&new, &path).with_context(|| format!("replacing {}", path.display()))
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
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.healthz)).await?;
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
        f.debug_struct("Kubelet").field("name", &self.name).field("root", &self.root).finish_non_exhaustive()
    }
}

fn configuration(
    control: &ControlPlane,
    layout: &Layout,
    options: &KubeletOptions,
    cri: &Path,
    dir: &Path,
    healthz: u16,
) -> anyhow::Result<Map<String, Value>> {
    let zones: Vec<u32> =
        layout.zones.iter().filter(|zone| zone.memory_kib > 0).map(|zone| zone.id).collect();
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
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", cri.display()),
        // Everywhere, because the API server calls the node's address; only certificates of our authority get in.
        "address": "0.0.0.0",
        "port": port::free()?,
        "healthzPort": healthz,
        "tlsCertFile": certificate,
        "tlsPrivateKeyFile": key,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": false },
            "x509": { "clientCAFile": control.ca_file() },
        },
        "authorization": { "mode": "AlwaysAllow" },
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
    config.extend(options.config.clone());
    Ok(config)
}

/// `(stand-in, real)`: the machine's files, and sysctls that already have the values a kubelet wants.
fn mounts(tree: &Tree) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mut all = tree.mounts();
    // A kernel without huge pages has no such folder, and a kubelet does without.
    all.retain(|(_, real)| !real.ends_with("hugepages") || real.exists());
    for (path, value) in SYSCTLS {
        let (over, real) = (tree.root().join(path), Path::new("/").join(path));
        if real.exists() {
            fs::create_dir_all(over.parent().unwrap_or(tree.root()))?;
            fs::write(&over, format!("{value}\n"))?;
            all.push((over, real));
        }
    }
    Ok(all)
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

fn text(path: &Path) -> String {
    path.display().to_string()
}
