//! The operator ties each exporter to its own node: the token of one node's exporter writes no other node's report.

use deployer::platform::Platform;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Patch, PatchParams};
use runtime::client::{Connection, Options, is_forbidden};
use serde_json::{Value, json};
use testkit::account::Account;

use super::rig::{NAMESPACE, PATIENCE, Rig, Setup, play, until};
use super::seen::Seen;

#[test]
fn an_exporter_writes_the_report_of_its_own_node_only() {
    play("own node", Setup::on(Platform::Kubernetes), async |rig: &mut Rig| {
        rig.operate().await;
        let group = json!({ "poolName": "workers", "nodeSelector": {} });
        rig.ask_for_exporters(&json!({ "nodeGroups": [group] })).await;
        until("the policy", async || {
            rig.get("ValidatingAdmissionPolicy", "numaresources-exporter-own-node").await.is_some()
        })
        .await;
        rig.quiet().await;
        let account = Account::of(&rig.control, NAMESPACE, "rte").await.unwrap();
        let open = async |pod: &Pod| {
            let kubeconfig = Some(account.kubeconfig(Some(pod)).await.unwrap());
            let connection = Connection::open(&Options { kubeconfig, ..Options::default() }).await.unwrap();
            connection.client_with_timeout(PATIENCE).unwrap()
        };
        let [here, there] = ["here", "there"].map(async |node| account.pod(node, node).await.unwrap());
        let (here, there) = (open(&here.await).await, open(&there.await).await);
        until("the policy is in force", async || !writes(&there, "here").await).await;
        assert!(writes(&here, "here").await && writes(&there, "there").await);
        assert!(!writes(&here, "there").await && !writes(&there, "here").await);
        // Their conditions likewise.
        assert!(tells(&here, "here").await && !tells(&here, "there").await);
        // With the request the policy goes.
        rig.delete("NUMAResourcesOperator", "numaresourcesoperator").await;
        until("the policy goes", async || {
            rig.get("ValidatingAdmissionPolicy", "numaresources-exporter-own-node").await.is_none()
        })
        .await;
    });
}

/// Whether the report of a node may be written.
async fn writes(client: &Client, node: &str) -> bool {
    let report = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": { "name": node }, "zones": [],
    });
    let api = Seen { admin: client.clone(), log: None }.api("NodeResourceTopology");
    allowed(api.patch(node, &PatchParams::apply("test"), &Patch::Apply(report)).await)
}

/// Whether a condition of a pod may be written.
async fn tells(client: &Client, pod: &str) -> bool {
    let status = json!({ "status": { "conditions": [{ "type": "Tried", "status": "True" }] } });
    let api = Seen { admin: client.clone(), log: None }.api("Pod");
    allowed(api.patch_status(pod, &PatchParams::default(), &Patch::<Value>::Strategic(status)).await)
}

fn allowed<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => {
            assert!(is_forbidden(&error), "{error}");
            false
        }
    }
}
