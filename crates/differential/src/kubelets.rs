//! Real kubelets that answer sessions: each session is one kubelet's life on the rig.
//!
//! In: the rig, the program of a release, sessions. Out: what each kubelet did, read from pod statuses and from its
//! checkpoints, in the oracle's form. Never: an answer that was computed here.
//!
//! All kubelets share one control plane. Pods are bound by `spec.nodeName`, each after the kubelet's decision about the
//! one before it, so the order is certain.

mod checkpoints;
mod plugin;
mod pod;
mod session_run;

use std::cmp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use kube::Client;
use serde_json::Value;
use sim::admit::session::Session;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::Rig;
use testkit::oracle::Release;
use tokio::runtime::Runtime;

use crate::respondent::Respondent;

/// A control plane for kubelets that come and go.
pub struct Kubelets {
    control: ControlPlane,
    client: Client,
    release: Release,
    /// The kubelet of another release than the rig's.
    program: Option<PathBuf>,
    begun: AtomicU64,
    // The last to go: the others end in it.
    runtime: Runtime,
}

/// One kubelet at a time.
#[derive(Clone)]
pub struct RealKubelet(Arc<Kubelets>);

impl Kubelets {
    /// Starts the control plane, for kubelets of a release. Another one than the rig's is built if it is nowhere.
    ///
    /// # Errors
    /// When the API server serves no kubelet of this release, there is no such kubelet, or something does not start.
    pub fn start(rig: &Rig, release: Release) -> anyhow::Result<Arc<Self>> {
        let served = Release::default();
        let program = match release.cmp(&served) {
            cmp::Ordering::Less => Some(release.kubelet(&mut |_| {})?),
            cmp::Ordering::Equal => None,
            cmp::Ordering::Greater => bail!("the API server is {served}: it serves no newer kubelet"),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (control, client) = runtime.block_on(async {
            let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await?;
            let client = control.client().await?;
            anyhow::Ok((control, client))
        })?;
        Ok(Arc::new(Self { control, client, release, program, begun: AtomicU64::new(0), runtime }))
    }

    /// Something that runs one session after the other.
    #[must_use]
    pub fn respondent(self: &Arc<Self>) -> RealKubelet {
        RealKubelet(self.clone())
    }
}

impl Respondent for RealKubelet {
    fn answers(&mut self, session: &Session) -> anyhow::Result<Vec<Value>> {
        let name = format!("kubelet-{}", self.0.begun.fetch_add(1, Ordering::Relaxed));
        let answers = self.0.runtime.block_on(session_run::run(&self.0, &name, session));
        answers.with_context(|| name)
    }
}
