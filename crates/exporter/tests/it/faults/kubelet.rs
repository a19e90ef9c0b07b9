//! The kubelet is away, slow, busy, or talks nonsense.

use super::*;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn socket_gone_and_back_with_another_inode() {
    let Some(mut rig) = Rig::start("socket-gone").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.stop();
    std::fs::remove_file(rig.kubelet.socket()).unwrap();
    rig.health_says("[-]scan failed: podresources ").await;
    rig.health_says("No such file or directory").await;
    rig.health_says("[+]publish ok").await;
    rig.admit("b", &[5]);
    rig.kubelet.restart().unwrap();
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn socket_left_behind_by_a_killed_kubelet() {
    let Some(mut rig) = Rig::start("socket-dead").await else { return };
    let _exporter = rig.export().await;
    for (name, cpu) in [("b", 5), ("c", 6)] {
        rig.kubelet.stop();
        // The timer finds the change; no event reports it.
        rig.admit(name, &[cpu]);
        rig.health_says("[-]scan failed: podresources ").await;
        rig.kubelet.restart().unwrap();
        rig.arrives().await;
    }
    rig.survived_well(Writes::AtMost(3)).await;
}

#[tokio::test]
async fn socket_there_only_long_after_the_start() {
    let Some(mut rig) = Rig::start("socket-late").await else { return };
    rig.kubelet.stop();
    std::fs::remove_dir_all(rig.kubelet.root().join("pod-resources")).unwrap();
    let _exporter = Exporter::start(&rig.flags);
    rig.health_says("[-]scan failed: podresources ").await;
    assert!(!rig.get("/readyz").await.starts_with("HTTP/1.0 200"));
    std::fs::create_dir(rig.kubelet.root().join("pod-resources")).unwrap();
    rig.kubelet.restart().unwrap();
    rig.is_ready().await;
    rig.survived_well(Writes::Exactly(1)).await;
}

/// A list that took long is old when it comes; what happened meanwhile is found by one more look.
#[tokio::test]
async fn answers_take_three_seconds() {
    let Some(mut rig) = Rig::start("kubelet-slow").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.fail(KubeletFault::Slow(Duration::from_secs(3)));
    let before = rig.kubelet.calls();
    rig.admit("b", &[5]);
    until("asked", async || (rig.kubelet.calls() > before).then_some(())).await;
    rig.admit("c", &[6]);
    rig.survived_well(Writes::AtMost(3)).await;
}

#[tokio::test]
async fn no_answer_until_the_deadline() {
    let Some(mut rig) = Rig::start("kubelet-silent").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.fail(KubeletFault::Silent);
    rig.admit("b", &[5]);
    rig.health_says("[-]scan failed: the kubelet did not answer list within 10s").await;
    rig.kubelet.fail(KubeletFault::None);
    rig.survived_well(Writes::Exactly(2)).await;
}

/// gRPC says how long a message will be, and the connection ends before.
#[tokio::test]
async fn answer_half_written() {
    let Some(mut rig) = Rig::start("answer-cut").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.admit_filler(200_000).unwrap();
    until("the long list is read", async || {
        rig.get("/readyz?verbose").await.contains("[+]scan ok").then_some(())
    })
    .await;
    rig.kubelet.fail(KubeletFault::Cut(100_000));
    rig.admit("b", &[5]);
    rig.health_says("[-]scan failed: podresources list failed: ").await;
    rig.kubelet.fail(KubeletFault::None);
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn connections_reset() {
    let Some(mut rig) = Rig::start("kubelet-reset").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.fail(KubeletFault::Cut(0));
    rig.admit("b", &[5]);
    rig.health_says("[-]scan failed: podresources list failed: ").await;
    rig.kubelet.fail(KubeletFault::None);
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn answer_of_exactly_16_mib_is_taken() {
    let Some(mut rig) = Rig::start("answer-16mib").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.set(vec![pod("a", &[1]), pod("b", &[5])]);
    rig.kubelet.admit_filler(16 * MIB).unwrap();
    rig.is_true_now();
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn answer_above_16_mib_is_refused() {
    let Some(mut rig) = Rig::start("answer-17mib").await else { return };
    let _exporter = rig.export().await;
    let before = rig.object().await;
    rig.kubelet.set(vec![pod("a", &[1]), pod("b", &[5])]);
    rig.kubelet.admit_filler(16 * MIB + 1).unwrap();
    rig.health_says("[-]scan failed: podresources list failed: ").await;
    rig.health_says("16777216").await;
    assert_eq!(rig.object().await.resource_version(), before.resource_version());
    rig.release("filler");
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn asked_too_often() {
    let Some(mut rig) = Rig::start("exhausted").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.fail(KubeletFault::Exhausted);
    let before = rig.kubelet.calls();
    rig.admit("b", &[5]);
    rig.health_says("[-]scan failed: podresources list failed: rejected by rate limit").await;
    until("asked again", async || (rig.kubelet.calls() >= before + 4).then_some(())).await;
    rig.kubelet.fail(KubeletFault::None);
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn bytes_that_are_no_grpc() {
    let Some(mut rig) = Rig::start("garbage").await else { return };
    let _exporter = rig.export().await;
    rig.kubelet.fail(KubeletFault::Garbage);
    rig.admit("b", &[5]);
    rig.health_says("[-]scan failed: podresources list failed: ").await;
    rig.kubelet.fail(KubeletFault::None);
    rig.survived_well(Writes::Exactly(2)).await;
}

/// One impossible value refuses the whole list.
#[tokio::test]
async fn nonsense_ids() {
    let Some(mut rig) = Rig::start("nonsense").await else { return };
    let _exporter = rig.export().await;
    for (ids, wanted) in [
        (&[2, -5][..], "default/b/c: cpu_ids: -5 is not a CPU id"),
        (&[1 << 40], "default/b/c: cpu_ids: 1099511627776 is not a CPU id"),
    ] {
        rig.kubelet.admit(pod("b", ids)).unwrap();
        rig.health_says(&format!("[-]scan failed: podresources list answered nonsense: {wanted}")).await;
        rig.kubelet.set(vec![pod("a", &[1])]);
    }
    rig.admit("b", &[5]);
    rig.survived_well(Writes::Exactly(2)).await;
}

/// A kubelet that has just started lists nothing, then pod after pod.
#[tokio::test]
async fn list_empty_after_a_restart() {
    let Some(mut rig) = Rig::start("empty-list").await else { return };
    rig.admit("b", &[5]);
    let _exporter = rig.export().await;
    let pods = rig.kubelet.pods();
    let looked = async |rig: &Rig| {
        let before = rig.kubelet.calls();
        until("looked", async || (rig.kubelet.calls() >= before + 4).then_some(())).await;
    };
    // A kubelet that runs has not lost its pods: the list is empty once it has ended.
    rig.kubelet.stop();
    rig.kubelet.set(Vec::new());
    rig.kubelet.restart().unwrap();
    looked(&rig).await;
    rig.kubelet.admit(pods[0].clone()).unwrap();
    looked(&rig).await;
    rig.kubelet.admit(pods[1].clone()).unwrap();
    rig.admit("c", &[6]);
    rig.survived_well(Writes::Exactly(2)).await;
}
