//! Conditions on the exporter's own pod, with the rights of the peers' roles and with our own.

use exporter::rbac;
use exporter::settings::{OwnerKind, PodName, Publishing};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use testkit::account::Account;

use super::access::{OBJECT, PATCHING, counted, rule};
use super::garbage::Rig;
use super::*;

const GOOD: [&str; 2] = ["PodresourcesFetched|True||", "NodeTopologyUpdated|True||"];
const SCAN_FAILED: &str = "PodresourcesFetched|False|ScanFailed|failed to scan pod resources";
const UPDATE_FAILED: &str =
    "NodeTopologyUpdated|False|UpdateFailed|failed to update noderesourcetopology object";

/// `type|status|reason|message` of our two conditions.
fn conditions(pod: &Pod) -> Vec<String> {
    let all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ours = all.filter(|c| ["PodresourcesFetched", "NodeTopologyUpdated"].contains(&c.type_.as_str()));
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut shown: Vec<_> = ours
        .map(|c| [c.type_.clone(), c.status.clone(), text(&c.reason), text(&c.message)].join("|"))
        .collect();
    shown.sort_by_key(|line| !line.starts_with("Podresources"));
    shown
}

async fn wait_for(account: &Account<'_>, wanted: [&str; 2]) -> Pod {
    let mut last = Vec::new();
    let says = async || {
        let pod = account.pods().get("us").await.unwrap();
        last = conditions(&pod);
        (last == wanted).then_some(pod)
    };
    until(&format!("{wanted:?}"), says).await
}

#[tokio::test]
async fn conditions_follow_scans_and_writes() {
    let Some(rig) = Rig::start().await else { return };
    let patch = rbac::conditions().to_vec();
    let update = vec![rule("pods: get"), rule("pods/status: update")];
    for (space, rules, verb) in [("patching", patch, "PATCH"), ("updating", update, "PUT")] {
        rig.kubelet.hands_out(&[1]);
        let account = Account::create(&rig.control, space, "exporter").await.unwrap();
        account
            .allow(vec![rule("noderesourcetopologies: get list watch create patch")], rules)
            .await
            .unwrap();
        let pod = account.pod("us", OBJECT).await.unwrap();
        let mut settings = settings(&rig.flags);
        settings.kubeconfig = Some(account.kubeconfig(Some(&pod)).await.unwrap());
        settings.readiness = Some(PodName { namespace: space.to_owned(), name: "us".to_owned() });
        settings.publishing = Some(Publishing { owner: OwnerKind::Leave, ..PATCHING });
        let exporter = Exporter::with(settings.clone());
        let good = wait_for(&account, GOOD).await;

        rig.kubelet.hands_out(&[-5]);
        wait_for(&account, [SCAN_FAILED, GOOD[1]]).await;
        rig.kubelet.hands_out(&[1]);
        let again = wait_for(&account, GOOD).await;
        let since = |pod: &Pod, kind: &str| {
            let all = pod.status.clone().unwrap_or_default().conditions.unwrap_or_default();
            all.into_iter().find(|c| c.type_ == kind).and_then(|c| c.last_transition_time)
        };
        assert_eq!(since(&again, "NodeTopologyUpdated"), since(&good, "NodeTopologyUpdated"));

        let crds = Api::<CustomResourceDefinition>::all(rig.client.clone());
        let name = "noderesourcetopologies.topology.node.k8s.io";
        crds.delete(name, &DeleteParams::default()).await.unwrap();
        wait_for(&account, [GOOD[0], UPDATE_FAILED]).await;
        until("gone", async || crds.get_opt(name).await.unwrap().is_none().then_some(())).await;
        testkit::cluster::install_crds(&rig.client, NRT_CRD_YAML).await.unwrap();
        let last = wait_for(&account, GOOD).await;
        exporter.stop().await;

        // A restart finds everything as it should be and writes nothing.
        let writes = ["subresource=\"status\"", "resource=\"pods\"", &format!("verb=\"{verb}\"")];
        let before = counted(&rig.client, &writes).await;
        assert!(before > 0, "{space}: this is how it writes");
        let reads = ["resource=\"pods\"", "verb=\"GET\"", "code=\"200\""];
        let looked = counted(&rig.client, &reads).await;
        let exporter = Exporter::with(settings.clone());
        until("two readings", async || (counted(&rig.client, &reads).await >= looked + 2).then_some(()))
            .await;
        exporter.stop().await;
        assert_eq!(account.pods().get("us").await.unwrap().resource_version(), last.resource_version());
        assert_eq!(counted(&rig.client, &writes).await, before);
    }
}

/// As the peer has it: what is not to be published has not failed to be.
#[tokio::test]
async fn without_publishing_both_conditions_are_good() {
    let Some(rig) = Rig::start().await else { return };
    let account = Account::create(&rig.control, "numa", "exporter").await.unwrap();
    account.allow(vec![], rbac::conditions().to_vec()).await.unwrap();
    let pod = account.pod("us", OBJECT).await.unwrap();
    let mut settings = settings(&rig.flags);
    settings.kubeconfig = Some(account.kubeconfig(Some(&pod)).await.unwrap());
    settings.readiness = Some(PodName { namespace: "numa".to_owned(), name: "us".to_owned() });
    settings.publishing = None;
    let exporter = Exporter::with(settings);
    wait_for(&account, GOOD).await;
    exporter.stop().await;
}
