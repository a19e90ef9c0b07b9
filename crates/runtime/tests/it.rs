//! The parts of `runtime` that talk to an API server, against a real one; signals, with a real process; TLS, with real
//! clients.
//!
//! Needs the rig's etcd and kube-apiserver; where they are missing, the tests that need them say so and pass.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do; only `#[test]` itself is exempt"
)]

#[path = "it/client.rs"]
mod client;
#[path = "it/events.rs"]
mod events;
#[path = "it/lease.rs"]
mod lease;
#[path = "it/outage.rs"]
mod outage;
#[path = "it/shutdown.rs"]
mod shutdown;
#[path = "it/tls.rs"]
mod tls;
#[path = "it/watch.rs"]
mod watch;

use runtime::client::{Connection, Options};
use std::path::Path;
use std::time::Duration;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

/// The control plane shared by tests that leave it running; each works in a namespace of its own.
async fn shared() -> Option<&'static ControlPlane> {
    static SHARED: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
    SHARED.get_or_init(|| own(&[])).await.as_ref()
}

/// A control plane for one test, with these flags added to the API server's.
async fn own(flags: &[&str]) -> Option<ControlPlane> {
    let rig = testkit::env::rig().ok()?;
    let api_server_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    let options = ControlPlaneOptions { api_server_flags, ..ControlPlaneOptions::default() };
    Some(ControlPlane::start(&rig.binaries, &options).await.unwrap())
}

async fn connect(kubeconfig: &Path) -> Connection {
    let options = Options { kubeconfig: Some(kubeconfig.to_owned()), ..Options::default() };
    Connection::open(&options).await.unwrap()
}

/// A strict client of the administrator.
async fn admin(plane: &ControlPlane) -> kube::Client {
    connect(plane.kubeconfig()).await.client_with_timeout(Duration::from_secs(10)).unwrap()
}

/// Makes a namespace of this name and returns the name.
async fn namespace(client: &kube::Client, name: &'static str) -> &'static str {
    let api: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client.clone());
    let mut object = k8s_openapi::api::core::v1::Namespace::default();
    object.metadata.name = Some(name.to_owned());
    api.create(&Default::default(), &object).await.unwrap();
    name
}

/// Waits until `ask` has an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for a future that should not take long.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: still not after {PATIENCE:?}"))
}
