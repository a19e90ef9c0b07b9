//! A cluster: a control plane, and a kubelet with a container runtime for each machine.
//!
//! In: machines and options. Out: nodes that are Ready. Dropping it stops everything and leaves nothing behind.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, LogParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value};

use crate::audit::Request;
use crate::controlplane::{ControlPlane, ControlPlaneOptions};
use crate::cri::{self, CriServer, Images, Programs};
use crate::env::{Program, Rig};
use crate::kubelet::{Host, Kubelet, KubeletOptions};
use crate::machine::Machine;
use crate::net::{self, Network};
use crate::networkpolicy::{NetworkPolicies, PolicyNode};
use crate::process_group::{Process, Spec};

/// How long the API server may take to serve a new kind.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// How long the controllers may take to make the default service account.
const ACCOUNT_WITHIN: Duration = Duration::from_secs(60);

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in order: kubelets before their runtimes, everything before the API server.
    _policies: Option<NetworkPolicies>,
    nodes: Vec<ClusterNode>,
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    control: ControlPlane,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct ClusterNode {
    kubelet: Kubelet,
    cri: CriServer,
}

/// A cluster being described.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    machines: Vec<(Machine, Option<KubeletOptions>)>,
    kubelet: KubeletOptions,
    control: ControlPlaneOptions,
    cri: cri::Options,
    network: Option<Network>,
    images: Images,
    scheduler: bool,
    controller_manager: bool,
    network_policies: bool,
    crds: Vec<String>,
}

impl Cluster {
    /// Describes a cluster without nodes, to begin with.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The control plane.
    #[must_use]
    pub fn control(&self) -> &ControlPlane {
        &self.control
    }

    /// The nodes, `node-0` first.
    #[must_use]
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// The stock scheduler, if the builder asked for one.
    #[must_use]
    pub fn scheduler(&self) -> Option<&Process> {
        self.scheduler.as_ref()
    }

    /// The stock controller manager, if the builder asked for one.
    #[must_use]
    pub fn controller_manager(&self) -> Option<&Process> {
        self.controller_manager.as_ref()
    }

    /// A client of a user who may do everything.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.control.client().await
    }

    /// Requests so far that were denied for lack of a right; only an installable cluster knows of them. Kubelets
    /// are left out: the Node authorizer denies them a pod that has just gone, which is no fault.
    ///
    /// # Errors
    /// When there is no audit log, or it cannot be read.
    pub fn denied(&self) -> anyhow::Result<Vec<Request>> {
        let audit = self.control.audit().context("no audit log: the cluster is not an installable one")?;
        let mut denied = audit.denied()?;
        denied.retain(|request| !request.user.username.starts_with("system:node:"));
        Ok(denied)
    }

    /// What a container has said so far, as `kubectl logs` shows it; `container` may be empty if there is only one.
    ///
    /// # Errors
    /// When the pod is not there or has not started.
    pub async fn logs(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<String> {
        let container = (!container.is_empty()).then(|| container.to_owned());
        let params = LogParams { container, ..LogParams::default() };
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        pods.logs(pod, &params).await.with_context(|| format!("logs of {namespace}/{pod}"))
    }

    /// Starts a further process that ends with the cluster.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, spec: Spec) -> anyhow::Result<Process> {
        self.control.process_group().spawn(spec)
    }

    /// Installs CustomResourceDefinitions and waits until their kinds are served.
    ///
    /// # Errors
    /// When the text is not that, or the API server refuses it.
    pub async fn install_crds(&self, text: &str) -> anyhow::Result<()> {
        install_crds(&self.client().await?, text).await
    }
}

impl ClusterNode {
    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        self.kubelet.name()
    }

    /// Its kubelet.
    #[must_use]
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// Its container runtime.
    #[must_use]
    pub fn cri(&self) -> &CriServer {
        &self.cri
    }

    /// Restarts the machine: all containers end, the kubelet's managers forget what they have handed out, and the
    /// kubelet starts with these fields over the configuration that it was started with first. Waits until it is ready.
    ///
    /// # Errors
    /// When the files cannot be written, or the kubelet is not ready in time; with the end of its log.
    pub async fn reboot(&self, config: &Map<String, Value>) -> anyhow::Result<()> {
        self.kubelet.stop();
        self.cri.power_off();
        self.kubelet.reset(config)?;
        self.kubelet.restart().await
    }

    /// Where the podresources API of its kubelet is served.
    #[must_use]
    pub fn podresources_socket(&self) -> PathBuf {
        self.kubelet.podresources_socket()
    }

    fn for_policies(&self) -> Option<PolicyNode> {
        Some(PolicyNode { address: self.kubelet.host().address()?, networks: self.cri.pod_networks()? })
    }
}

impl Builder {
    /// Adds nodes on these machines.
    #[must_use]
    pub fn machines(mut self, machines: impl IntoIterator<Item = Machine>) -> Self {
        self.machines.extend(machines.into_iter().map(|machine| (machine, None)));
        self
    }

    /// Adds a node whose kubelet has options of its own.
    #[must_use]
    pub fn node(mut self, machine: Machine, kubelet: KubeletOptions) -> Self {
        self.machines.push((machine, Some(kubelet)));
        self
    }

    /// Options of all kubelets that have none of their own.
    #[must_use]
    pub fn kubelet(mut self, options: KubeletOptions) -> Self {
        self.kubelet = options;
        self
    }

    /// Options of the control plane.
    #[must_use]
    pub fn control(mut self, options: ControlPlaneOptions) -> Self {
        self.control = options;
        self
    }

    /// Options of the container runtimes; each node gets a range of pod addresses of its own all the same.
    #[must_use]
    pub fn cri(mut self, options: cri::Options) -> Self {
        self.cri = options;
        self
    }

    /// Runs the stock scheduler.
    #[must_use]
    pub fn scheduler(mut self, on: bool) -> Self {
        self.scheduler = on;
        self
    }

    /// Runs the stock controller manager.
    #[must_use]
    pub fn controller_manager(mut self, on: bool) -> Self {
        self.controller_manager = on;
        self
    }

    /// Makes it a cluster that things can be installed on: in this network, where the caller must be too
    /// ([`crate::net::private`]), with containers of these images as processes, and the stock controllers and
    /// scheduler.
    #[must_use]
    pub fn installable(mut self, network: Network, images: Images) -> Self {
        self.network = Some(network);
        self.images = images;
        self.scheduler(true).controller_manager(true)
    }

    /// Puts NetworkPolicy objects in force between the pods of an installable cluster. What they do not allow is
    /// answered with "no route to host", after a second.
    #[must_use]
    pub fn network_policies(mut self, on: bool) -> Self {
        self.network_policies = on;
        self
    }

    /// Installs CustomResourceDefinitions (YAML or JSON) before the nodes join.
    #[must_use]
    pub fn crds(mut self, text: impl Into<String>) -> Self {
        self.crds.push(text.into());
        self
    }

    /// Starts everything and waits until every node is Ready.
    ///
    /// # Errors
    /// When a part cannot be started or is not ready in time; with the end of its log. Nothing stays behind then.
    pub async fn start(self, rig: &Rig) -> anyhow::Result<Cluster> {
        let mut options = self.control;
        // In whatever order the two were said.
        options.network = self.network.or(options.network);
        let control = ControlPlane::start(&rig.binaries, &options).await?;
        let client = control.client().await?;
        for text in &self.crds {
            install_crds(&client, text).await?;
        }
        let mut cluster = Cluster {
            _policies: None,
            nodes: Vec::new(),
            scheduler: None,
            controller_manager: None,
            control,
        };
        let control = &cluster.control;
        for (number, (machine, own)) in self.machines.iter().enumerate() {
            let name = format!("node-{number}");
            let dir = control.process_group().dir().join(&name);
            std::fs::create_dir(&dir)?;
            let network = control.network().map(|network| (network, net::node_address(number)));
            let host = Host::new(&dir, &name, machine, network)?;
            let programs = control.network().map(|network| Programs {
                images: self.images.clone(),
                host: host.namespaces().clone(),
                network: network.clone(),
                streaming: rig.binaries.path(Program::CriStreaming).to_owned(),
                processes: control.process_group().clone(),
            });
            let pod_cidr = pod_range(number);
            let cri = CriServer::start(&dir, cri::Options { pod_cidr, programs, ..self.cri.clone() })?;
            let options = own.as_ref().unwrap_or(&self.kubelet);
            let kubelet = Kubelet::start(control, host, options, cri.socket()).await?;
            cluster.nodes.push(ClusterNode { kubelet, cri });
        }
        // The kubelets are starting meanwhile.
        if self.scheduler {
            cluster.scheduler = Some(control.start_scheduler().await?);
        }
        if self.controller_manager {
            cluster.controller_manager = Some(control.start_controller_manager().await?);
        }
        if self.network_policies {
            let nodes = cluster.nodes.iter().filter_map(ClusterNode::for_policies).collect();
            cluster._policies = Some(NetworkPolicies::enforce(&client, nodes));
        }
        futures::future::try_join_all(cluster.nodes.iter().map(|node| node.kubelet.wait_ready())).await?;
        if let (Some(controllers), Some(_)) = (&cluster.controller_manager, cluster.control.network()) {
            // Pods are refused before their account is there.
            let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
            let made = async || accounts.get("default").await.is_ok();
            controllers.wait_until("making accounts", ACCOUNT_WITHIN, made).await?;
        }
        Ok(cluster)
    }
}

/// 10.88.0.0/16 in slices for 256 nodes; more of them share.
fn pod_range(node: usize) -> (Ipv4Addr, u8) {
    (Ipv4Addr::new(10, 88, node as u8, 0), 24)
}

/// Installs CustomResourceDefinitions, one or more documents of YAML or JSON, and waits until their kinds are served.
///
/// # Errors
/// When the text is not that, or the API server refuses it.
pub async fn install_crds(client: &Client, text: &str) -> anyhow::Result<()> {
    let crds: Vec<CustomResourceDefinition> =
        serde_saphyr::from_multiple(text).context("reading CustomResourceDefinitions")?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        let params = PatchParams::apply("testkit").force();
        api.patch(&name, &params, &Patch::Apply(&crd)).await.with_context(|| format!("installing {name}"))?;
        let served = await_condition(api.clone(), &name, conditions::is_crd_established());
        let served = tokio::time::timeout(ESTABLISHED_WITHIN, served).await;
        served.with_context(|| format!("{name} was not served within {ESTABLISHED_WITHIN:?}"))??;
    }
    Ok(())
}
