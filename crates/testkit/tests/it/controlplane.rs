use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta, PostParams};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::{Program, rig};

#[tokio::test]
async fn a_control_plane_starts_serves_and_survives_the_servers_restart() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    println!("ready in {:?}", control.ready_in());
    let client = control.client().await.unwrap();
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.git_version, Program::ApiServer.wanted());

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("kept".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();

    control.api_server().restart().unwrap();
    control.wait_ready().await.unwrap();
    assert!(maps.get("kept").await.is_ok(), "etcd kept it");

    // Everything is in one folder.
    assert!(control.kubeconfig().starts_with(control.process_group().dir()));
    for part in ["control/etcd", "logs/etcd.log", "logs/kube-apiserver.log"] {
        assert!(control.process_group().dir().join(part).exists(), "{part}");
    }
    let dir = control.process_group().dir().to_owned();
    drop(control);
    assert!(!dir.exists());
}

#[tokio::test]
async fn identities_are_judged_by_the_authorizers() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let file = control.kubeconfig_for("somebody", "nobodies").unwrap();
    let read = kube::config::Kubeconfig::read_from(&file).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let error = Api::<Namespace>::all(client).list(&Default::default()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("somebody") && text.contains("forbidden"), "{text}");
}

#[tokio::test]
async fn stock_scheduler_and_controllers_run() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let (scheduler, controllers) =
        tokio::join!(control.start_scheduler(), control.start_controller_manager());
    let (scheduler, controllers) = (scheduler.unwrap(), controllers.unwrap());
    assert!(scheduler.memory().unwrap().rss_kib > 1024);
    assert!(controllers.exit().is_none());
    // The controller manager makes this in every namespace.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(control.client().await.unwrap(), "default");
    let made =
        kube::runtime::wait::await_condition(accounts, "default", |object: Option<&_>| object.is_some());
    tokio::time::timeout(Duration::from_secs(30), made).await.unwrap().unwrap();
}
