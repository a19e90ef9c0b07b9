use std::path::Path;
use std::time::Duration;

use tonic::transport::Endpoint;

use super::wire::registration_client::RegistrationClient;
use super::*;
use crate::socket::Identity;
use crate::watch::Hub;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(30);

fn info() -> Info {
    Info {
        kind: Kind::DraPlugin,
        name: "dra.test.dev".to_owned(),
        endpoint: Some("/plugins/dra.sock".into()),
        versions: vec!["v1.DRAPlugin".to_owned()],
    }
}

async fn appears(path: &Path) {
    let there = async {
        while tokio::net::UnixStream::connect(path).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap();
}

/// Waits until the status is one of these.
pub(crate) async fn wait_until(updates: &mut watch::Receiver<Status>, wanted: impl FnMut(&Status) -> bool) {
    tokio::time::timeout(PATIENCE, updates.wait_for(wanted)).await.unwrap().unwrap();
}

#[test]
fn names_are_users_at_a_host() {
    for (plugin, name) in [
        ("dra.test.dev", "dra.test.dev@localhost-reg.sock"),
        ("test.dev/nic", "test.dev_nic@localhost-reg.sock"),
        ("a@b%c/../d", "a_b_c_.._d@localhost-reg.sock"),
    ] {
        assert_eq!(socket_name(plugin), name);
    }
}

#[tokio::test]
async fn a_kubelet_asks_and_says_what_became_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let paths = SocketPaths { folder: folder.path().to_owned(), socket: socket_name("dra.test.dev") };
    let status = watch::Sender::new(Status::Unseen);
    let mut updates = status.subscribe();
    let (there, running) = (paths.path(), paths.clone());
    let running = tokio::spawn(async move { run(&running, info(), status, &Hub::default()).await });
    appears(&there).await;

    let channel = Endpoint::from_shared(format!("unix://{}", there.display())).unwrap().connect().await;
    let mut kubelet = RegistrationClient::new(channel.unwrap());
    let answer = kubelet.get_info(wire::InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((answer.r#type.as_str(), answer.name.as_str()), ("DRAPlugin", "dra.test.dev"));
    assert_eq!((answer.endpoint.as_str(), answer.supported_versions.len()), ("/plugins/dra.sock", 1));
    assert_eq!(*updates.borrow_and_update(), Status::Asked);
    let answer = wire::RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(answer).await.unwrap();
    assert_eq!(*updates.borrow_and_update(), Status::Registered);
    let answer = wire::RegistrationStatus { plugin_registered: false, error: "no".to_owned() };
    kubelet.notify_registration_status(answer).await.unwrap();
    assert_eq!(*updates.borrow_and_update(), Status::Refused("no".to_owned()));

    // Taken away, it comes back; ended, it does not.
    std::fs::remove_file(&there).unwrap();
    appears(&there).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!there.exists());
}

#[tokio::test]
async fn a_socket_that_another_process_serves_is_left_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let paths = SocketPaths { folder: folder.path().to_owned(), socket: socket_name("dra.test.dev") };
    let start = || {
        let (paths, status) = (paths.clone(), watch::Sender::new(Status::Unseen));
        let updates = status.subscribe();
        (tokio::spawn(async move { run(&paths, info(), status, &Hub::default()).await }), updates)
    };
    let (first, _) = start();
    appears(&paths.path()).await;
    let before = Identity::of(&paths.path());
    let (second, mut updates) = start();
    wait_until(&mut updates, |status| matches!(status, Status::Away(_))).await;
    assert_eq!(Identity::of(&paths.path()), before);
    first.abort();
    wait_until(&mut updates, |status| *status == Status::Unseen).await;
    appears(&paths.path()).await;
    assert_ne!(Identity::of(&paths.path()), before);
    second.abort();
}
