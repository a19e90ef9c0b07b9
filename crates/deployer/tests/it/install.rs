//! Installing and removing, on real API servers: what is there before and after, object by object.

use std::time::Duration;

use ::objects::Object;
use deployer::install::step::{Change, ObjectStep, Step, WaitState};
use deployer::install::{DryRun, Error, Outcome, Removal, Settings, deploy, diff, remove};
use deployer::part::{Component, Part};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use runtime::client::{Connection, Options};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::dump::{Dump, assert_same, difference, dump, settled};
use testkit::env::rig;
use testkit::proxy::{Fault, Proxy};
use tokio_util::sync::CancellationToken;

#[path = "install/apply.rs"]
mod apply;
#[path = "install/atomic.rs"]
mod atomic;
#[path = "install/faults.rs"]
mod faults;
#[path = "install/foreign.rs"]
mod foreign;
#[path = "install/interrupted.rs"]
mod interrupted;
#[path = "install/objects.rs"]
mod objects;
#[path = "install/removal.rs"]
mod removal;
#[path = "install/waits.rs"]
mod waits;
#[path = "install/whole.rs"]
mod whole;

use objects::{Variant, parts};

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server, and a proxy before it through which everything under test goes.
struct Rig {
    control: ControlPlane,
    proxy: Proxy,
    /// Of the deployer.
    client: Client,
    /// Of the test.
    admin: Client,
}

impl Rig {
    async fn start() -> Option<Self> {
        let rig = rig().ok()?;
        let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
        let proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
        let options = Options { kubeconfig: Some(proxy.kubeconfig().to_owned()), ..Options::default() };
        let client = Connection::open(&options).await.unwrap().client_with_timeout(PATIENCE).unwrap();
        let admin = control.client().await.unwrap();
        let rig = Self { control, proxy, client, admin };
        settled(&rig.admin).await.unwrap();
        Some(rig)
    }

    async fn deploy(&self, parts: &[Part], settings: &Settings) -> Result<Outcome, Error> {
        let mut log = Log::default();
        deploy(&self.client, parts, settings, &mut log.observe(), &CancellationToken::new()).await
    }

    async fn remove(&self, components: &[Component], settings: &Settings) -> Result<Removal, Error> {
        let mut log = Log::default();
        remove(&self.client, components, settings, &mut log.observe(), &CancellationToken::new()).await
    }

    /// The cluster's objects, by name.
    async fn dump(&self) -> Dump {
        dump(&self.admin).await.unwrap()
    }

    /// An object as it is.
    async fn get(&self, object: &Object) -> Option<Value> {
        let found = api(&self.admin, object).get_opt(object.name()).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// Creates an object as another client.
    async fn make(&self, object: &Value) -> Object {
        let object = objects::object(object.clone());
        let params = PatchParams::apply("other-client");
        let patch = Patch::Apply(object.body());
        api(&self.admin, &object).patch(object.name(), &params, &patch).await.unwrap();
        object
    }

    /// Changes an object as another client.
    async fn merge(&self, object: &Object, patch: &Value) {
        let params = PatchParams { field_manager: Some("other-client".to_owned()), ..PatchParams::default() };
        api(&self.admin, object).patch(object.name(), &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Says that pods of a workload run, in place of its controller.
    async fn status(&self, object: &Object, status: &Value) {
        let patch = json!({ "status": status });
        let params = PatchParams::default();
        api(&self.admin, object).patch_status(object.name(), &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// How many writes the deployer asked for so far.
    fn writes(&self) -> usize {
        ["PATCH", "POST", "PUT", "DELETE"].iter().map(|method| self.proxy.count(method, "")).sum()
    }
}

fn api(client: &Client, object: &Object) -> Api<DynamicObject> {
    let resource = object.kind().resource();
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Without what controllers and our own programs make, number and remember.
fn relevant(mut dump: Dump) -> Dump {
    let made = ["ControllerRevision.", "ReplicaSet.", "Pod.", "NodeResourceTopology."];
    dump.retain(|name, _| !made.iter().any(|kind| name.starts_with(kind)));
    for object in dump.values_mut() {
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("deprecated.daemonset.template.generation");
            annotations.remove("deployment.kubernetes.io/revision");
        }
    }
    dump
}

/// Steps as they were told, one line each.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn observe(&mut self) -> impl FnMut(&Step<'_>) + Send {
        |step: &Step<'_>| self.0.push(line(step))
    }
}

fn line(step: &Step<'_>) -> String {
    match step {
        Step::Began(operation, component) => format!("{operation:?} {component}"),
        Step::Ended(operation, component) => format!("{operation:?} {component} ended"),
        Step::RollingBack => "RollingBack".to_owned(),
        Step::Object(_, object, step) => match step {
            ObjectStep::Applied(change) => format!("{change:?} {object}"),
            ObjectStep::Recreating(reason) => format!("Recreating {object}: {reason}"),
            ObjectStep::Deleted => format!("Deleted {object}"),
            ObjectStep::Kept(reason) => format!("Kept {object}: {reason}"),
            ObjectStep::Warned(warning) => format!("Warned {object}: {warning}"),
            ObjectStep::Note(finding) => format!("Found {object}: {finding}"),
            ObjectStep::Failed(_, error) => format!("Failed {object}: {error}"),
            ObjectStep::Waiting(state) => format!("Waiting {object}: {state:?}"),
            ObjectStep::Diagnosis(trouble) => format!("Trouble {object}: {trouble}"),
            ObjectStep::Reached(operation) => format!("Reached {object} {operation:?}"),
            ObjectStep::RolledBack(undone) => format!("{undone:?} {object}"),
        },
    }
}

/// What became of each object.
fn changes(outcome: &Outcome) -> Vec<(String, Change)> {
    outcome.applied.iter().map(|(_, object, change)| (object.to_string(), *change)).collect()
}

/// Waits as often as wanted, but not long.
fn quick() -> Settings {
    Settings { wait_interval: Duration::from_millis(100), wait_timeout: PATIENCE, ..Settings::default() }
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
