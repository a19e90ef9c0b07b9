//! Every way to write, onto nothing, onto our own object and onto what other exporters left.

use exporter::rbac::{self, Needs};
use exporter::settings::{Mode, OwnerKind, PodName, Publishing};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::controlplane::ControlPlaneOptions;

use super::access::{OBJECT, PATCHING, counted, make_node, owners};
use super::garbage::{AFTER, BEFORE, Rig};
use super::*;

/// The object as nfd-topology-updater leaves it, or resource-topology-exporter with its timing on.
fn left_by(peer: &str, namespace_uid: &str) -> Value {
    let zone = json!({ "name": "node-0", "type": "Node" });
    match peer {
        "node-feature-discovery-topology-updater" => json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": OBJECT,
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": namespace_uid }],
            },
            "topologyPolicies": ["SingleNUMANodePodLevel"],
            "attributes": [{ "name": "topologyManagerPolicy", "value": "single-numa-node" }],
            "zones": [zone],
        }),
        _ => json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": OBJECT,
                "annotations": {
                    "k8stopoawareschedwg/rte-update": "periodic",
                    "k8stopoawareschedwg/sleep-duration": "10s",
                    "k8stopoawareschedwg/update-interval": "10s",
                    "topology.node.k8s.io/fingerprint": "pfp0v0010000000000000000",
                },
            },
            "attributes": [{ "name": "nodeTopologyPodsFingerprint", "value": "pfp0v0010000000000000000" }],
            "zones": [zone],
        }),
    }
}

/// Nothing of another exporter is left in it, everything of third parties is, and it has this one owner.
fn check_pure(nrt: &NodeResourceTopology, foreign: bool, owner: &(String, String), case: &str) {
    assert!(nrt.topology_policies.is_empty(), "{case}");
    assert_eq!(owners(nrt), std::slice::from_ref(owner), "{case}");
    assert_eq!(attribute::get(&nrt.attributes, "topologyManagerPolicy"), Some("none"), "{case}");
    let policies = nrt.attributes.iter().filter(|a| a.name == "topologyManagerPolicy").count();
    assert_eq!(policies, 1, "{case}");
    assert_eq!(nrt.annotations()["topology.node.k8s.io/fingerprint"], fingerprint(nrt), "{case}");
    assert!(!nrt.annotations().keys().any(|key| key.ends_with("sleep-duration")), "{case}");
    let kept = (attribute::get(&nrt.attributes, "theirs"), nrt.labels().get("theirs").map(String::as_str));
    let wanted = foreign.then_some("kept");
    assert_eq!(kept, (wanted, wanted), "{case}");
}

#[tokio::test]
async fn every_mode_creates_updates_takes_over_and_keeps_what_is_foreign() {
    let Some(rig) = Rig::start().await else { return };
    let nrts = Api::<NodeResourceTopology>::all(rig.client.clone());
    let node = ("Node".to_owned(), make_node(&rig.client).await.uid().unwrap());
    let default = Api::<Namespace>::all(rig.client.clone()).get("default").await.unwrap();
    let space = ("Namespace".to_owned(), default.uid().unwrap());
    for (mode, verb) in [(Mode::Patch, "PATCH"), (Mode::Update, "PUT"), (Mode::Apply, "APPLY")] {
        for peer in ["", "resource-topology-exporter", "node-feature-discovery-topology-updater"] {
            let case = format!("{mode:?} after {peer:?}");
            eprintln!("{case}");
            rig.kubelet.hands_out(&[1]);
            let mut settings = settings(&rig.flags);
            settings.publishing = Some(Publishing { mode, ..PATCHING });
            if !peer.is_empty() {
                let left = left_by(peer, &space.1);
                let params = PatchParams::apply(peer).force();
                nrts.patch(OBJECT, &params, &Patch::Apply(&left)).await.unwrap();
                let theirs = json!({
                    "metadata": { "labels": { "theirs": "kept" } },
                    "attributes": [left["attributes"][0], { "name": "theirs", "value": "kept" }],
                });
                nrts.patch(OBJECT, &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
            }
            let exporter = Exporter::with(settings.clone());
            let pure = async |wanted: &str| {
                let nrt = shows(&rig.client, "cpu", wanted).await;
                check_pure(&nrt, !peer.is_empty(), &node, &case);
                nrt
            };
            let first = pure(BEFORE).await;
            let about = format!("verb=\"{verb}\"");
            let before = counted(&rig.client, &["noderesourcetopologies", &about]).await;
            rig.kubelet.hands_out(&[5]);
            let then = pure(AFTER).await;
            assert_eq!(then.uid(), first.uid(), "{case}");
            assert_eq!(counted(&rig.client, &["noderesourcetopologies", &about]).await, before + 1, "{case}");
            exporter.stop().await;

            // Another owner replaces the one before.
            settings.publishing = Some(Publishing { mode, owner: OwnerKind::Namespace, ..PATCHING });
            settings.readiness = Some(PodName { namespace: "default".to_owned(), name: "us".to_owned() });
            let exporter = Exporter::with(settings);
            let owned = async || {
                let nrt = nrts.get(OBJECT).await.unwrap();
                (owners(&nrt) != std::slice::from_ref(&node)).then_some(nrt)
            };
            let nrt = until("another owner", owned).await;
            check_pure(&nrt, !peer.is_empty(), &space, &case);
            exporter.stop().await;
            nrts.delete(OBJECT, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// OpenShift has this admission plugin on: who may not delete an object may not change its owners either.
#[tokio::test]
async fn where_owners_may_not_be_changed_all_else_is_kept_true() {
    let flag = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned();
    let options = ControlPlaneOptions { api_server_flags: vec![flag], ..ControlPlaneOptions::default() };
    let Some(rig) = Rig::with(&options).await else { return };
    let node = ("Node".to_owned(), make_node(&rig.client).await.uid().unwrap());
    let account = Account::create(&rig.control, "numa", "exporter").await.unwrap();
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Node, conditions: false, configz: false };
    account.allow(rbac::rules(needs, "numa").cluster, vec![]).await.unwrap();
    let pod = account.pod("us", OBJECT).await.unwrap();
    let mut settings = settings(&rig.flags);
    settings.publishing = Some(PATCHING);
    settings.kubeconfig = Some(account.kubeconfig(Some(&pod)).await.unwrap());
    let nrts = Api::<NodeResourceTopology>::all(rig.client.clone());
    let left = left_by("node-feature-discovery-topology-updater", "u0");
    nrts.create(&PostParams::default(), &serde_json::from_value(left).unwrap()).await.unwrap();
    let exporter = Exporter::with(settings);
    let nrt = shows(&rig.client, "cpu", BEFORE).await;
    assert_eq!(owners(&nrt), [("Namespace".to_owned(), "u0".to_owned())]);
    assert!(nrt.topology_policies.is_empty());
    // What it creates itself has the owner it should.
    nrts.delete(OBJECT, &DeleteParams::default()).await.unwrap();
    let again = async || nrts.get_opt(OBJECT).await.unwrap().filter(|new| new.uid() != nrt.uid());
    assert_eq!(owners(&until("the object is there again", again).await), [node]);
    exporter.stop().await;
}

/// The peer's switch for timing, and what becomes of it when it is turned off again.
#[tokio::test]
async fn timing_is_told_and_causes_no_write() {
    let Some(rig) = Rig::start().await else { return };
    let mut settings = settings(&rig.flags);
    settings.publishing = Some(Publishing { timing: true, owner: OwnerKind::Leave, ..PATCHING });
    let exporter = Exporter::with(settings.clone());
    let nrt = shows(&rig.client, "cpu", BEFORE).await;
    assert_eq!(nrt.annotations()["k8stopoawareschedwg/sleep-duration"], "0s");
    assert_eq!(nrt.annotations()["k8stopoawareschedwg/update-interval"], "0s");
    rig.kubelet.hands_out(&[5]);
    let nrt = shows(&rig.client, "cpu", AFTER).await;
    let interval = &nrt.annotations()["k8stopoawareschedwg/update-interval"];
    assert!(["0s", "200ms"].contains(&interval.as_str()), "{interval}");
    // Several timers later the object is the same.
    let scans = async || {
        let text = rig.get("/metrics").await;
        let line =
            text.lines().find(|line| line.starts_with("tholepin_exporter_scan_seconds_count")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let now = scans().await;
    until("more scans", async || (scans().await > now + 3).then_some(())).await;
    let nrts = Api::<NodeResourceTopology>::all(rig.client.clone());
    assert_eq!(nrts.get(OBJECT).await.unwrap().resource_version(), nrt.resource_version());
    exporter.stop().await;

    settings.publishing = Some(Publishing { owner: OwnerKind::Leave, ..PATCHING });
    let exporter = Exporter::with(settings);
    let gone = async || {
        let nrt = nrts.get(OBJECT).await.unwrap();
        (!nrt.annotations().contains_key("k8stopoawareschedwg/sleep-duration")).then_some(())
    };
    until("no timing", gone).await;
    exporter.stop().await;
}
