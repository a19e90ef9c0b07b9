use super::*;
use node::podresources::{Client, Error};

const PATIENT: Duration = Duration::from_secs(30);

fn server() -> (tempfile::TempDir, Server, Client) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("kubelet"), 4).unwrap();
    let client = Client::new(&server.socket(), PATIENT).unwrap();
    (dir, server, client)
}

#[tokio::test]
async fn it_answers_what_it_was_told_and_fails_as_it_was_told() {
    let (_dir, server, client) = server();
    assert_eq!(client.allocatable().await.unwrap().cpus.to_string(), "0-3");
    server.admit(pod("a", &[1])).unwrap();
    server.admit(pod("b", &[2])).unwrap();
    server.release("a").unwrap();
    for fault in [Fault::Exhausted, Fault::Cut(0), Fault::Cut(20), Fault::Garbage] {
        server.fail(fault.clone());
        assert!(matches!(client.list().await, Err(Error::Status { .. })), "{fault:?}");
        server.fail(Fault::None);
        // The first call after a broken connection may find it so.
        let pods = match client.list().await {
            Ok(pods) => pods,
            Err(_) => client.list().await.unwrap(),
        };
        assert_eq!(pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["b"], "{fault:?}");
    }
    for file in [ADMITTED, ENDED] {
        assert!(server.root().join(file).exists());
    }
}

#[tokio::test]
async fn a_filled_list_has_exactly_the_wanted_size() {
    let (_dir, server, client) = server();
    server.admit(pod("a", &[1])).unwrap();
    for bytes in [1000, 16 << 20, (16 << 20) + 1] {
        server.release("filler").unwrap();
        server.admit_filler(bytes).unwrap();
        assert_eq!(server.state().list.encoded_len(), bytes);
        assert_eq!(client.list().await.is_ok(), bytes <= node::podresources::MAX_ANSWER_BYTES, "{bytes}");
    }
}

#[tokio::test]
async fn it_dies_with_its_connections_and_comes_back() {
    let (_dir, mut server, client) = server();
    client.list().await.unwrap();
    server.stop();
    assert!(server.socket().exists());
    assert!(client.list().await.is_err());
    server.restart().unwrap();
    client.list().await.unwrap();
}
