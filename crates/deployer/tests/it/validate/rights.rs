//! What may be looked at, and what is said where that is too little.

use deployer::validate::cli::{self, Args};
use runtime::client::ClusterArgs;
use testkit::account::Account;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_named_and_the_documented_ones_are_enough() {
    let describe = |builder: Builder| builder.node(Machine::new(), KubeletOptions::default());
    let Some(installed) = Installed::start(describe).await else { return };
    installed.is_fine().await;
    let control = installed.cluster.control();

    let enough = Account::create(control, "readers", "enough").await.unwrap();
    enough.allow(source::rules(), Vec::new()).await.unwrap();
    let kubeconfig = enough.kubeconfig(None).await.unwrap();
    let report = examine(&evidence(&kubeconfig).await, &all());
    assert_eq!((lines(&report), report.not_checked.len()), (Vec::new(), 0));

    for (area, verb, group, full) in source::RIGHTS {
        let name = format!("no-{}", full.replace('/', ""));
        let account = Account::create(control, "readers", &name).await.unwrap();
        let is_it = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
            rule.resources == Some(vec![full.to_owned()]) && rule.api_groups == Some(vec![group.to_owned()])
        };
        account
            .allow(source::rules().into_iter().filter(|rule| !is_it(rule)).collect(), Vec::new())
            .await
            .unwrap();
        let kubeconfig = account.kubeconfig(None).await.unwrap();
        let report = examine(&evidence(&kubeconfig).await, &all());
        let undone = report.not_checked.iter().find(|undone| undone.area == area);
        assert!(undone.is_some(), "{full}: {:?}", report.not_checked);
        let undone = undone.unwrap();
        assert!(undone.reason.starts_with(&format!("not allowed to {verb} {full}")), "{}", undone.reason);
        assert_eq!(report.verdict().code(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_there_is_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let text = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "c", "user": { "token": "t" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }] });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let code = cli::run(Args {
        cluster: ClusterArgs { kubeconfig: Some(kubeconfig), ..<_>::default() },
        ..Args::default()
    })
    .await
    .unwrap();
    assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::from(2)));
}
