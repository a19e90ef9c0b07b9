//! A cluster for the controller of DeviceConfigs: KMM's definitions and rules, what it is shipped with, and the
//! operator as a process with exactly the rights of its account, behind a proxy. One for all scenarios, which come one
//! after the other.
//!
//! In: what is to be played. Out: a [`Lab`] to play it in. Never: kubelets, controllers of Kubernetes.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use deployer::platform::Platform;
use fakes::kmm;
use fakes::openshift::{self, Flavour};
use hardware::{manifests, rbac};
use kube::Client;
use kube::api::{Api, DynamicObject};
use objects::ObjectKind;
use testkit::audit::Request;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env;
use testkit::net::Network;
use tokio::runtime::Runtime;

pub(crate) use super::super::rig::Rig as Lab;
use super::super::rig::{Subject, apply, control, tholepin};
use super::super::scenario::{Scenario, asked_in_all};
use super::super::seen::api_of;
use super::within_rights::{PLAYED, note};

/// The cluster that scenarios share; gone after one that failed.
static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

/// The cluster, and the threads that work in its network.
struct Shared {
    // First, so that what it holds ends while its runtime still runs.
    lab: Lab,
    runtime: Runtime,
    network: Network,
}

/// Plays `body` in the shared cluster, with the operator running; afterwards what the operator asked for is noted.
pub(crate) fn play(name: &'static str, body: impl AsyncFnOnce(&mut Lab) + Send) {
    let scenario = Scenario::begin(&PLAYED);
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    let mut slot = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let began = std::time::Instant::now();
    let mut shared = slot.take().unwrap_or_else(|| Shared::start(&rig, program));
    let Shared { lab, runtime, network } = &mut shared;
    let ready = began.elapsed();
    network
        .namespaces()
        .run(|| {
            runtime.block_on(async {
                body(lab).await;
                note(scenario, lab);
            });
        })
        .unwrap();
    println!("{name}: {:?}, after {ready:?} for the cluster", began.elapsed() - ready);
    // A failed test does not get here, and the next one has a new cluster.
    *slot = Some(shared);
}

/// Ends the shared cluster's operator, and the cluster; says what was asked there.
pub(crate) fn over() -> Vec<Request> {
    let mut slot = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut shared) = slot.take() else { return Vec::new() };
    let Shared { lab, runtime, network } = &mut shared;
    let inside = || {
        runtime.block_on(async {
            lab.stop().await;
            asked_in_all(&lab.control, manifests::NAMESPACE, manifests::CONTROLLER.name).await
        })
    };
    network.namespaces().run(inside).unwrap()
}

impl Shared {
    fn start(rig: &env::Rig, program: PathBuf) -> Self {
        let network = Network::new().unwrap();
        let inside = || {
            // Its threads are where this one is.
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let lab = runtime.block_on(start(rig, &control(&network, true), program, Platform::Kubernetes));
            (lab, runtime)
        };
        let (lab, runtime) = network.namespaces().run(inside).unwrap();
        Self { lab, runtime, network }
    }
}

/// Makes a cluster one for DeviceConfigs: the objects that the operator is shipped with for them, in their order, but
/// for its Deployment.
pub(crate) async fn install(client: &Client, platform: Platform) {
    let definition = serde_json::to_string(&api::crd::device_config_crd()).unwrap();
    testkit::cluster::install_crds(client, &definition).await.unwrap();
    let mut options = manifests::options();
    options.common.platform = platform;
    apply(client, &manifests::objects(&options), false).await;
}

/// Objects of a kind that is not among the types.
pub(crate) fn objects(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let plural = format!("{}s", kind.to_lowercase());
    api_of(client, &ObjectKind::new(group, version, kind, &plural), namespace)
}

/// DeviceConfigs.
pub(crate) fn configs(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    objects(client, "hardware.tholepin.dev/v1alpha1", "DeviceConfig", namespace)
}

/// A cluster of a platform in which the operator runs.
pub(crate) async fn start(
    rig: &env::Rig,
    options: &ControlPlaneOptions,
    program: PathBuf,
    platform: Platform,
) -> Lab {
    let control = ControlPlane::start(&rig.binaries, options).await.unwrap();
    let admin = control.client().await.unwrap();
    if platform == Platform::OpenShift {
        openshift::install(&admin, Flavour::OpenShift, "4.99.3").await.unwrap();
    }
    kmm::install(&admin).await.unwrap();
    kmm::watch_over(&admin).await.unwrap();
    install(&admin, platform).await;
    let subject = Subject {
        platform,
        namespace: manifests::NAMESPACE,
        account: manifests::CONTROLLER.name,
        rules: rbac::rules(platform),
        flags: &["--controllers=deviceconfig", "--driver-patience=2s", "--binding-patience=300ms"],
    };
    let mut lab = Lab::of(control, subject, program).await;
    lab.operate().await;
    lab
}
