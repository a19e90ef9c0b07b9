//! The proxy fails the requests it was asked to fail, and passes the others.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::proxy::{Fault, Proxy};

const PATIENCE: Duration = Duration::from_secs(30);

async fn through(proxy: &Proxy) -> Api<ConfigMap> {
    let file = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_secs(2));
    Api::default_namespaced(Client::try_from(config).unwrap())
}

fn value(map: ConfigMap) -> String {
    map.data.unwrap_or_default().remove("v").unwrap_or_default()
}

#[tokio::test]
async fn any_write_may_be_the_one_that_fails() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
    let maps = through(&proxy).await;
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".to_owned());
    proxy.fail_after(2, "WRITE", "", 1, Fault::Status(500));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let set = async |path: &str| {
        let patch = Patch::Merge(json!({ "data": { "v": path } }));
        maps.patch("m", &PatchParams::default(), &patch).await
    };
    assert_eq!(proxy.struck(), 0);
    set("second").await.unwrap();
    maps.get("m").await.unwrap();
    set("third").await.unwrap_err();
    set("fourth").await.unwrap();
    assert_eq!((proxy.struck(), proxy.count("WRITE", "")), (1, 4));
    assert!(proxy.seen()[3].fault.is_some() && !proxy.seen()[2].is_write());
}

#[tokio::test]
async fn requests_pass_or_fail_as_told() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let mut proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
    let (there, maps) = (Api::default_namespaced(control.client().await.unwrap()), through(&proxy).await);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".to_owned());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let post = proxy.seen().pop().unwrap();
    assert_eq!((post.method.as_str(), post.content_type.as_str()), ("POST", "application/json"));
    assert!(post.path.starts_with("/api/v1/namespaces/default/configmaps?") && post.body_bytes > 0);

    let set = async |v: &str| {
        let patch = Patch::Merge(json!({ "data": { "v": v } }));
        maps.patch("m", &PatchParams::default(), &patch).await
    };
    // The caller's answer, and whether the write happened.
    for (fault, wanted, happens) in [
        (Fault::Status(409), "Conflict", false),
        (Fault::TooMany(7), "TooManyRequests", false),
        (Fault::Silence, "", false),
        (Fault::Mute, "", true),
        (Fault::Cut(0), "", true),
        (Fault::Cut(10), "", true),
    ] {
        set("before").await.unwrap();
        proxy.fail("PATCH", "configmaps/m", 1, fault);
        let error = set("after").await.unwrap_err();
        if let kube::Error::Api(status) = &error {
            assert_eq!(status.reason, wanted, "{fault:?}");
        } else {
            assert_eq!(wanted, "", "{fault:?}: {error}");
        }
        assert_eq!(value(there.get("m").await.unwrap()) == "after", happens, "{fault:?}");
        assert_eq!(proxy.seen().pop().unwrap().fault, Some(fault));
    }

    const ANSWER: &str = r#"{"metadata":{"name":"m"},"data":{"v":"never"}}"#;
    proxy.fail("PATCH", "configmaps", 1, Fault::Answer(ANSWER));
    assert_eq!(value(set("answered").await.unwrap()), "never");
    assert_ne!(value(there.get("m").await.unwrap()), "answered");

    proxy.fail("PATCH", "configmaps", 1, Fault::Late);
    set("late").await.unwrap_err();
    assert_ne!(value(there.get("m").await.unwrap()), "late");
    proxy.heal();
    let began = std::time::Instant::now();
    while value(there.get("m").await.unwrap()) != "late" {
        assert!(began.elapsed() < PATIENCE);
    }

    proxy.fail("PATCH", "configmaps", 1, Fault::LateAnswer);
    let (answer, ()) = tokio::join!(set("answered late"), async {
        while value(there.get("m").await.unwrap()) != "answered late" {}
        proxy.heal();
    });
    answer.unwrap();

    proxy.down();
    maps.get("m").await.unwrap_err();
    proxy.up().unwrap();
    maps.get("m").await.unwrap();
}

#[tokio::test]
async fn watches_end_as_told() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
    let maps = through(&proxy).await;
    for expire in [false, true] {
        let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        // Its arrival shows that the watch runs.
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("m-{expire}"));
        maps.create(&PostParams::default(), &map).await.unwrap();
        while !matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))) {}
        if expire {
            proxy.expire_watches()
        } else {
            proxy.drop_watches()
        }
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        match last {
            Some(Ok(WatchEvent::Error(status))) => assert!(expire && status.code == 410),
            // A connection that broke ends the stream, with or without an error.
            None | Some(Err(_)) => assert!(!expire),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(proxy.count("WATCH", "configmaps"), 2);
    proxy.fail("WATCH", "configmaps", 1, Fault::Twice);
    let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let mut names = Vec::new();
    while names.len() < 4 {
        let Some(Ok(WatchEvent::Added(map))) = events.next().await else { continue };
        names.extend(map.metadata.name.filter(|name| name.starts_with("m-")));
    }
    names.sort_unstable();
    assert_eq!(names, ["m-false", "m-false", "m-true", "m-true"]);
}
