//! Another client deletes the object, writes into it, or replaces the Node.

use super::*;

#[tokio::test]
async fn object_deleted_by_hand() {
    let Some(mut rig) = Rig::start("deleted").await else { return };
    let _exporter = rig.export().await;
    for times in 0..3 {
        let before = rig.object().await.uid();
        rig.nrts().delete(rig.name, &DeleteParams::default()).await.unwrap();
        let again = async || rig.nrts().get_opt(rig.name).await.unwrap().filter(|nrt| nrt.uid() != before);
        until("the object is there again", again).await;
        rig.admit(&format!("b{times}"), &[4 + times]);
        rig.arrives().await;
    }
    rig.survived_well(Writes::Exactly(7)).await;
}

/// What is ours is repaired, what is theirs stays.
#[tokio::test]
async fn object_edited_by_another_writer() {
    let Some(mut rig) = Rig::start("edited").await else { return };
    let _exporter = rig.export().await;
    let spoilt = json!({
        "metadata": { "labels": { "theirs": "kept" }, "annotations": { "topology.node.k8s.io/fingerprint": null } },
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "attributes": [{ "name": "theirs", "value": "kept" }, { "name": "topologyManagerPolicy", "value": "none" }],
        "zones": [{ "name": "node-0", "type": "Node" }],
    });
    let spoilt = rig.meddle(spoilt).await;
    let repaired = async || {
        let nrt = rig.arrives().await;
        (nrt.resource_version() != spoilt.resource_version()).then_some(nrt)
    };
    let nrt = until("repaired", repaired).await;
    assert!(nrt.topology_policies.is_empty());
    assert_eq!(attribute::get(&nrt.attributes, "topologyManagerPolicy"), Some("single-numa-node"));
    assert_eq!(attribute::get(&nrt.attributes, "theirs"), Some("kept"));
    assert_eq!(nrt.labels()["theirs"], "kept");
    assert_eq!(nrt.annotations()["topology.node.k8s.io/fingerprint"], fingerprint(&nrt));
    // Their words alone are no reason to write; the next change keeps them.
    rig.meddle(json!({ "metadata": { "labels": { "theirs": "changed" } } })).await;
    rig.admit("b", &[5]);
    assert_eq!(rig.arrives().await.labels()["theirs"], "changed");
    // One more if the watch has not told of their version yet.
    rig.survived_well(Writes::AtMost(4)).await;
}

/// Two writers who never agree cost the API server a few writes and then one in a while; health tells, and news of the
/// node are published at once all the same.
#[tokio::test]
async fn object_fought_over() {
    let Some(mut rig) = Rig::start("fought-over").await else { return };
    let _exporter = rig.export().await;
    const BURST: usize = 5;
    let mut spoilt = rig.meddle(json!({ "zones": [] })).await;
    for _ in 0..BURST {
        let changed =
            async || (rig.object().await.resource_version() != spoilt.resource_version()).then_some(());
        until("repaired", changed).await;
        spoilt = rig.meddle(json!({ "zones": [] })).await;
    }
    rig.health_says("another writer keeps changing the object").await;
    for _ in 0..20 {
        rig.meddle(json!({ "attributes": [] })).await;
    }
    rig.admit("news", &[2]);
    // One creation, the repairs, the news, and at most two of the repairs that time earns back.
    rig.survived_well(Writes::AtMost(1 + BURST + 1 + 2)).await;
}

/// The garbage collector takes the object of a Node that was replaced; the new object belongs to the new Node.
#[tokio::test]
async fn node_replaced_and_the_object_collected() {
    let Some(rig) = Rig::start("node-replaced").await else { return };
    let _exporter = rig.export().await;
    rig.nodes().delete(rig.name, &DeleteParams::default()).await.unwrap();
    let uid = rig.register_node().await;
    rig.nrts().delete(rig.name, &DeleteParams::default()).await.unwrap();
    assert_eq!(owner(&rig.arrives().await), [uid]);
    rig.survived_well(Writes::Exactly(2)).await;
}

/// The collector is slow, or has found another owner: a kubelet that starts is reason enough to look who owns the
/// object.
#[tokio::test]
async fn node_replaced_before_the_collector_looks() {
    let Some(mut rig) = Rig::start("node-renewed").await else { return };
    let _exporter = rig.export().await;
    rig.nodes().delete(rig.name, &DeleteParams::default()).await.unwrap();
    let uid = rig.register_node().await;
    rig.kubelet.restart().unwrap();
    until("owned", async || (owner(&rig.object().await) == [uid.clone()]).then_some(())).await;
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn node_missing_at_the_start() {
    let Some(mut rig) = Rig::start("node-missing").await else { return };
    rig.nodes().delete(rig.name, &DeleteParams::default()).await.unwrap();
    let _exporter = Exporter::start(&rig.flags);
    rig.health_says("[-]publish failed: there is no Node \"node-missing\"").await;
    rig.admit("b", &[5]);
    assert_eq!((rig.writes(), rig.nrts().get_opt(rig.name).await.unwrap().is_none()), (0, true));
    let uid = rig.register_node().await;
    assert_eq!(owner(&rig.arrives().await), [uid]);
    rig.is_ready().await;
    // One more if the pod was looked at only then.
    rig.survived_well(Writes::AtMost(2)).await;
}

fn owner(nrt: &NodeResourceTopology) -> Vec<String> {
    nrt.owner_references().iter().map(|owner| owner.uid.clone()).collect()
}
