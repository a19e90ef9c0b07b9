//! A real control plane: etcd and kube-apiserver, on request the stock scheduler and the controller manager.
//!
//! In: the programs. Out: a ready API server, clients and kubeconfig files for it. Everything is in one
//! [`ProcessGroup`] and ends with it. Nothing here waits for kubelets or touches pods.
//!
//! Without a network of its own it listens on a free port of 127.0.0.1 and creates pods without an account, so that it
//! starts quickly and needs no controllers. With one it is as strict as a real one: pods get the tokens of
//! their accounts, kubelets may change only what is theirs, the stock controllers and scheduler have their own
//! identities and only their rights, and every request is in an audit log.

mod pki;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::ByteString;
use kube::api::GetParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::audit::Audit;
use crate::env::{Binaries, Program};
use crate::net::{self, Network};
use crate::port;
use crate::process_group::{Process, ProcessGroup, Spec};
use pki::Pki;

/// How long a part may take to become ready. Far above what it takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running API server with its store.
pub struct ControlPlane {
    // Fields drop in order: the server goes before its store, both before the folder.
    api_server: Process,
    etcd: Process,
    binaries: Binaries,
    pki: Pki,
    url: String,
    token: String,
    kubeconfig: PathBuf,
    ready_in: Duration,
    network: Option<Network>,
    audit: Option<Audit>,
    process_group: ProcessGroup,
}

/// What may be different about a control plane.
#[derive(Clone, Debug, Default)]
pub struct ControlPlaneOptions {
    /// Flags added to kube-apiserver's, for instance `--runtime-config=...`.
    pub api_server_flags: Vec<String>,
    /// The network to live in. The caller must be in it too ([`net::private`]).
    pub network: Option<Network>,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver and waits until the API is ready.
    ///
    /// # Errors
    /// When a program cannot be started or is not ready in time; with the end of its log.
    pub async fn start(binaries: &Binaries, options: &ControlPlaneOptions) -> anyhow::Result<Self> {
        let began = Instant::now();
        options.network.as_ref().map_or(Ok(()), Network::expect_caller)?;
        let process_group = ProcessGroup::new()?;
        let dir = process_group.dir().join("control");
        std::fs::create_dir(&dir)?;
        let (etcd, etcd_url) = start_etcd(&process_group, binaries, &dir).await?;

        let pki = Pki::new()?;
        let token = token();
        write_files(&dir, &pki, &token)?;
        let (flags, url, audit) = match &options.network {
            None => {
                let port = port::free()?;
                (flags_on_a_port(port), format!("https://127.0.0.1:{port}"), None)
            }
            Some(_) => {
                let audit = Audit::new(&dir.join("audit"), &json!([{ "level": "Metadata" }]))?;
                (flags_in_a_network(&audit), format!("https://{}", net::API), Some(audit))
            }
        };
        let spec = Spec::new("kube-apiserver", binaries.path(Program::ApiServer))
            .arg(format!("--etcd-servers={etcd_url}"))
            .args(api_server_flags(&dir))
            .args(flags)
            .args(options.api_server_flags.clone());
        let api_server = process_group.spawn(spec)?;

        let kubeconfig = process_group.dir().join("kubeconfig");
        pki::write(&kubeconfig, &kubeconfig_text(&url, pki.ca_pem(), &json!({ "token": token })))?;
        let client = client_of(&url, &kubeconfig).await?;
        api_server.wait_until("ready", PATIENCE, async || healthy(&client, "readyz").await).await?;
        let ready_in = began.elapsed();
        let (binaries, network) = (binaries.clone(), options.network.clone());
        Ok(Self {
            api_server,
            etcd,
            binaries,
            pki,
            url,
            token,
            kubeconfig,
            ready_in,
            network,
            audit,
            process_group,
        })
    }

    /// The folder and process group that everything belongs to; spawn further processes here.
    #[must_use]
    pub fn process_group(&self) -> &ProcessGroup {
        &self.process_group
    }

    /// Where the API is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig file of a user who may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The bearer token of a user who may do everything.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        &self.token
    }

    /// From the first fork to a ready API.
    #[must_use]
    pub fn ready_in(&self) -> Duration {
        self.ready_in
    }

    /// The API server's process.
    #[must_use]
    pub fn api_server(&self) -> &Process {
        &self.api_server
    }

    /// The store's process.
    #[must_use]
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// The programs this control plane was started from.
    #[must_use]
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The network it lives in, if that is its own.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Every request so far. Only a control plane with a network of its own keeps a log of them.
    #[must_use]
    pub fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// A client of a user who may do everything.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.client_with(&self.kubeconfig).await
    }

    /// A client of the user of a kubeconfig.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client_with(&self, kubeconfig: &Path) -> anyhow::Result<Client> {
        client_of(&self.url, kubeconfig).await
    }

    /// What [`ControlPlane::client`] is made of, for changes before making one.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn config(&self) -> anyhow::Result<Config> {
        config_of(&self.kubeconfig).await
    }

    /// Waits until the API is ready, for after a restart.
    ///
    /// # Errors
    /// When it is not ready in time.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        self.api_server.wait_until("ready", PATIENCE, async || healthy(&client, "readyz").await).await
    }

    /// The certificate of the authority that signs all identities here.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.process_group.dir().join("control/ca.crt")
    }

    /// A certificate and its key for any server on this machine.
    #[must_use]
    pub fn server_files(&self) -> (PathBuf, PathBuf) {
        let dir = self.process_group.dir().join("control");
        (dir.join("server.crt"), dir.join("server.key"))
    }

    /// Writes a kubeconfig whose client certificate makes it `user`, member of `group`, for the authorizers to judge.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig_for(&self, user: &str, group: &str) -> anyhow::Result<PathBuf> {
        let pair = self.pki.client(user, group)?;
        let who = json!({
            "client-certificate-data": bytes(&pair.certificate),
            "client-key-data": bytes(&pair.key),
        });
        self.kubeconfig_named(user, &who)
    }

    /// Writes a kubeconfig with this bearer token; `name` is for the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig_with_token(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        self.kubeconfig_named(name, &json!({ "token": token }))
    }

    /// Writes an administrator's kubeconfig that reaches the API at another URL on this machine.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig_at(&self, url: &str) -> anyhow::Result<PathBuf> {
        let path = self.process_group.dir().join("kubeconfig-outside");
        pki::write(&path, &kubeconfig_text(url, self.pki.ca_pem(), &json!({ "token": self.token })))?;
        Ok(path)
    }

    fn kubeconfig_named(&self, name: &str, who: &serde_json::Value) -> anyhow::Result<PathBuf> {
        let file_safe = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "_");
        let path = self.process_group.dir().join(format!("kubeconfig-{file_safe}"));
        pki::write(&path, &kubeconfig_text(&self.url, self.pki.ca_pem(), who))?;
        Ok(path)
    }

    /// Writes a configuration file for a scheduler: defaults, no leader election, and a client that is not throttled
    /// (the default of 50 requests per second would be what a comparison measures).
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn scheduler_config(&self) -> anyhow::Result<PathBuf> {
        let defaults = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        });
        self.scheduler_config_of("scheduler", defaults)
    }

    /// Writes a configuration file for a scheduler with its own profiles, but with this cluster's client and without
    /// leader election, as [`ControlPlane::scheduler_config`] has them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn scheduler_config_of(&self, name: &str, mut config: serde_json::Value) -> anyhow::Result<PathBuf> {
        config["clientConnection"] =
            json!({ "kubeconfig": self.identity(Program::Scheduler)?, "qps": 5000, "burst": 5000 });
        config["leaderElection"] = json!({ "leaderElect": false });
        let path = self.process_group.dir().join(format!("control/{name}.json"));
        pki::write(&path, &config.to_string())?;
        Ok(path)
    }

    /// Starts the stock kube-scheduler with [`ControlPlane::scheduler_config`] and waits until it schedules.
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time.
    pub async fn start_scheduler(&self) -> anyhow::Result<Process> {
        self.start_scheduler_with(&[]).await
    }

    /// As [`ControlPlane::start_scheduler`], with further flags, for instance `--feature-gates=...`.
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time.
    pub async fn start_scheduler_with(&self, flags: &[String]) -> anyhow::Result<Process> {
        let flags = [&["--config".to_owned(), text_of(&self.scheduler_config()?)], flags].concat();
        self.start_component(Program::Scheduler, &flags, "readyz").await
    }

    /// Starts another scheduler that is built on kube-scheduler, and waits until it schedules.
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time.
    pub async fn start_scheduler_program(&self, program: &Path, config: &Path) -> anyhow::Result<Process> {
        let spec = Spec::new("other-scheduler", program).args(["--config".to_owned(), text_of(config)]);
        self.start_serving(spec, "healthz").await
    }

    /// Starts the stock kube-controller-manager (Deployments, DaemonSets, garbage collection, node taints, ...).
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time.
    pub async fn start_controller_manager(&self) -> anyhow::Result<Process> {
        self.start_controllers(&["*"]).await
    }

    /// Starts the stock kube-controller-manager with these controllers alone.
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time.
    pub async fn start_controllers(&self, names: &[&str]) -> anyhow::Result<Process> {
        let flags = [
            format!("--controllers={}", names.join(",")),
            "--kubeconfig".to_owned(),
            text_of(&self.identity(Program::ControllerManager)?),
            "--leader-elect=false".to_owned(),
            // Each controller as an account of its own, which has only its rights.
            format!("--use-service-account-credentials={}", self.network.is_some()),
            format!(
                "--service-account-private-key-file={}",
                self.process_group.dir().join("control/sa.key").display()
            ),
            format!("--root-ca-file={}", self.ca_file().display()),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        self.start_component(Program::ControllerManager, &flags, "healthz").await
    }

    /// What a component shows to the API server.
    fn identity(&self, component: Program) -> anyhow::Result<PathBuf> {
        if self.network.is_none() {
            return Ok(self.kubeconfig.clone());
        }
        let user = format!("system:{component}");
        self.kubeconfig_for(&user, &user)
    }

    async fn start_component(
        &self,
        program: Program,
        flags: &[String],
        health: &str,
    ) -> anyhow::Result<Process> {
        let spec = Spec::new(program.name(), self.binaries.path(program)).args(flags.iter().cloned());
        self.start_serving(spec, health).await
    }

    /// Starts a program with the flags of a secure port, and waits until that port says that it is healthy.
    async fn start_serving(&self, spec: Spec, health: &str) -> anyhow::Result<Process> {
        let port = port::free()?;
        let spec = spec
            .args(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
            .args(serving_flags(&self.process_group.dir().join("control")));
        let process = self.process_group.spawn(spec)?;
        let client = client_of(&format!("https://127.0.0.1:{port}"), &self.kubeconfig).await?;
        process.wait_until("ready", PATIENCE, async || healthy(&client, health).await).await?;
        Ok(process)
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor tokens belong into a log.
        f.debug_struct("ControlPlane")
            .field("url", &self.url)
            .field("dir", &self.process_group.dir())
            .finish_non_exhaustive()
    }
}

async fn start_etcd(
    process_group: &ProcessGroup,
    binaries: &Binaries,
    dir: &Path,
) -> anyhow::Result<(Process, String)> {
    let (clients, peers) = (port::free()?, port::free()?);
    let url = format!("http://127.0.0.1:{clients}");
    let peer_url = format!("http://127.0.0.1:{peers}");
    let spec = Spec::new("etcd", binaries.path(Program::Etcd)).args([
        // Durability across a power cut is worth nothing here and costs most of the time.
        "--unsafe-no-fsync".to_owned(),
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=default={peer_url}"),
        "--log-level=warn".to_owned(),
    ]);
    let etcd = process_group.spawn(spec)?;
    let listening = async || tokio::net::TcpStream::connect(("127.0.0.1", clients)).await.is_ok();
    etcd.wait_until("listening", PATIENCE, listening).await?;
    Ok((etcd, url))
}

/// Everything the API server reads at its start.
fn write_files(dir: &Path, pki: &Pki, token: &str) -> anyhow::Result<()> {
    let server = pki.server()?;
    pki::write(&dir.join("server.crt"), &server.certificate)?;
    pki::write(&dir.join("server.key"), &server.key)?;
    pki::write(&dir.join("ca.crt"), pki.ca_pem())?;
    let to_kubelets = pki.client("kube-apiserver", "system:masters")?;
    pki::write(&dir.join("to-kubelets.crt"), &to_kubelets.certificate)?;
    pki::write(&dir.join("to-kubelets.key"), &to_kubelets.key)?;
    pki::write(&dir.join("tokens.csv"), &format!("{token},admin,admin,system:masters\n"))?;
    pki::write_signing_key(dir)
}

fn api_server_flags(dir: &Path) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    let mut flags = vec![
        format!("--cert-dir={}", dir.display()),
        format!("--client-ca-file={}", file("ca.crt")),
        // Kubelets accept only clients with a certificate of this authority (`kubectl logs` comes this way).
        format!("--kubelet-client-certificate={}", file("to-kubelets.crt")),
        format!("--kubelet-client-key={}", file("to-kubelets.key")),
        // No DNS knows the nodes' names.
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
    ];
    flags.extend(serving_flags(dir));
    flags
}

/// For a server that shares the machine's network with others.
fn flags_on_a_port(port: u16) -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // Nothing reaches the API through the `kubernetes` service here, and it refuses loopback endpoints.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // Pods can be created without a controller manager that makes the default service accounts.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]
}

/// For a server that pods use too.
fn flags_in_a_network(audit: &Audit) -> Vec<String> {
    let mut flags = vec![
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={}", net::GATEWAY),
        // As that of the service: nothing translates between the two.
        "--secure-port=443".to_owned(),
        format!("--service-cluster-ip-range={}", net::SERVICES),
        // Webhooks and aggregated servers are reached at their pods' addresses: service addresses lead nowhere.
        "--enable-aggregator-routing=true".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
    ];
    flags.extend(audit.flags());
    flags
}

fn serving_flags(dir: &Path) -> [String; 2] {
    [
        format!("--tls-cert-file={}", dir.join("server.crt").display()),
        format!("--tls-private-key-file={}", dir.join("server.key").display()),
    ]
}

/// A kubeconfig is YAML, and JSON is YAML.
fn kubeconfig_text(url: &str, ca_pem: &str, who: &serde_json::Value) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testkit",
        "clusters": [{
            "name": "testkit",
            "cluster": { "server": url, "certificate-authority-data": bytes(ca_pem) },
        }],
        "contexts": [{ "name": "testkit", "context": { "cluster": "testkit", "user": "testkit" } }],
        "users": [{ "name": "testkit", "user": who }],
    });
    format!("{config:#}\n")
}

async fn config_of(kubeconfig: &Path) -> anyhow::Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// A client with the trust and identity of a kubeconfig, talking to `url`.
async fn client_of(url: &str, kubeconfig: &Path) -> anyhow::Result<Client> {
    let mut config = config_of(kubeconfig).await?;
    config.cluster_url = url.parse().with_context(|| format!("URL {url}"))?;
    Ok(Client::try_from(config)?)
}

async fn healthy(client: &Client, path: &str) -> bool {
    let Ok(request) = kube::core::Request::new("").get(path, &GetParams::default()) else { return false };
    client.request_text(request).await.is_ok()
}

/// Unguessable enough for a server that only this machine reaches: hashes under random keys.
fn token() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

/// Serializes as kubeconfig files want it: base64.
fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}
