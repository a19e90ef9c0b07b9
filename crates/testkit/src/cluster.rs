//! A cluster: a control plane, and a kubelet with a container runtime for each machine.
//!
//! In: machines and options. Out: nodes that are Ready. Dropping it stops everything and leaves nothing behind.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};

use crate::controlplane::{ControlPlane, ControlPlaneOptions};
use crate::cri::{self, CriServer};
use crate::env::Rig;
use crate::kubelet::{Kubelet, KubeletOptions};
use crate::machine::Machine;
use crate::nest::{Process, Spec};

/// How long the API server may take to serve a new kind.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in order: kubelets before their runtimes, everything before the API server.
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
    scheduler: bool,
    controller_manager: bool,
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

    /// Starts a further process that ends with the cluster.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, spec: Spec) -> anyhow::Result<Process> {
        self.control.nest().spawn(spec)
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

    /// Where the podresources API of its kubelet is served.
    #[must_use]
    pub fn podresources_socket(&self) -> PathBuf {
        self.kubelet.podresources_socket()
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
        let control = ControlPlane::start(&rig.binaries, &self.control).await?;
        let client = control.client().await?;
        for text in &self.crds {
            install_crds(&client, text).await?;
        }
        let mut cluster = Cluster { nodes: Vec::new(), scheduler: None, controller_manager: None, control };
        let control = &cluster.control;
        for (number, (machine, own)) in self.machines.iter().enumerate() {
            let name = format!("node-{number}");
            let dir = control.nest().dir().join(&name);
            std::fs::create_dir(&dir)?;
            // 10.88.0.0/16 in slices for 256 nodes; more of them share.
            let pod_cidr = (Ipv4Addr::new(10, 88, number as u8, 0), 24);
            let cri = CriServer::start(&dir, cri::Options { pod_cidr, ..self.cri.clone() })?;
            let options = own.as_ref().unwrap_or(&self.kubelet);
            let kubelet = Kubelet::start(control, &name, machine, options, cri.socket()).await?;
            cluster.nodes.push(ClusterNode { kubelet, cri });
        }
        // The kubelets are starting meanwhile.
        if self.scheduler {
            cluster.scheduler = Some(control.start_scheduler().await?);
        }
        if self.controller_manager {
            cluster.controller_manager = Some(control.start_controller_manager().await?);
        }
        futures::future::try_join_all(cluster.nodes.iter().map(|node| node.kubelet.wait_ready())).await?;
        Ok(cluster)
    }
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
