//! Watches and leases across an API server that stops responding, dies, and restarts.

use crate::lease::stand;
use crate::watch::{Mirror, maps, names, put};
use crate::{admin, connect, namespace, own, soon, until};
use runtime::lease::Error;
use runtime::watch::Metrics;

/// A watch sees every change across a restart of the server, with each way of listing.
async fn survives(flags: &[&str]) {
    let Some(plane) = own(flags).await else { return };
    let client = admin(&plane).await;
    let space = namespace(&client, "outage").await;
    let api = maps(&client, space);
    put(&api, "a").await;
    put(&api, "b").await;
    let watched = maps(&connect(plane.kubeconfig()).await.watch_client().unwrap(), space);
    let (mut mirror, _task) = Mirror::of(watched, Metrics::default());
    mirror.until(|seen| names(seen) == ["a", "b"]).await;
    put(&api, "c").await;
    mirror.until(|seen| names(seen) == ["a", "b", "c"]).await;

    let leader = stand(&plane, space, "leader").await;
    until("leading", async || leader.status.borrow().leads().then_some(())).await;
    // Frozen first: connections stay open without responses.
    plane.api_server().pause().unwrap();
    let end = soon("loss of the lease", leader.task).await.unwrap();
    assert_eq!(end, Err(Error::Lost(format!("{space}/leader"))));
    assert!(mirror.is_quiet(), "an outage is no news about objects");

    plane.api_server().restart().unwrap();
    plane.wait_ready().await.unwrap();
    api.delete("a", &Default::default()).await.unwrap();
    put(&api, "d").await;
    mirror.until(|seen| names(seen) == ["b", "c", "d"]).await;
}

#[tokio::test]
async fn a_watch_survives_a_restart_of_the_server() {
    survives(&[]).await;
}

#[tokio::test]
async fn a_watch_without_streamed_lists_survives_a_restart_too() {
    survives(&["--feature-gates=WatchList=false"]).await;
}
