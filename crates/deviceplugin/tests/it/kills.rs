//! The kubelet is killed again and again while pods come and go: no device is allocated twice, and none is lost.
//!
//! `KILLS=50 cargo test -p deviceplugin --test it -- kills --nocapture` sets the number of kills; the default is three.
//!
//! The kubelet runs without static CPUs and memory. Killed between two writes of an allocation, those managers refuse
//! their own state for ever ("the expected machine state is different from the real one", "current set of available
//! CPUs doesn't match", seen on 1.36.3), until an administrator removes the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use testkit::cri::State;
use testkit::kubelet::KubeletOptions;
use tokio::time::sleep;

use crate::rig::{NIC, Rig, listed, until};

const DEVICES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_killed_under_load_allocates_no_device_twice() {
    let kills: usize = std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    let kubelet = KubeletOptions { static_cpus: false, static_memory: false, ..KubeletOptions::default() };
    let Some(rig) = Rig::with(|builder| builder.kubelet(kubelet)).await else { return };
    let devices: Vec<String> = (0..DEVICES).map(|number| format!("dev-{number} {}", number % 2)).collect();
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let plugin = rig.plugin(&listed(NIC, &devices, ""));
    rig.node_has(NIC, "8", "8").await;
    let rig = Arc::new(rig);
    let (over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = tokio::spawn(load(Arc::clone(&rig), Arc::clone(&over), Arc::clone(&made)));
    for kill in 0..kills {
        // Under load: pods are created, and some hold devices; checked again after each kill.
        let before = made.load(Ordering::Relaxed);
        until("load", async || {
            let held = check(&rig).await;
            (made.load(Ordering::Relaxed) > before + 1 && held > 0).then_some(())
        })
        .await;
        let held = check(&rig).await;
        rig.cluster.nodes()[0].kubelet().restart().await.unwrap();
        rig.offers(NIC, DEVICES).await;
        check(&rig).await;
        eprintln!(
            "kill {}: {} pods so far, {held} devices were held",
            kill + 1,
            made.load(Ordering::Relaxed)
        );
    }
    over.store(true, Ordering::Relaxed);
    load.await.unwrap();
    // None is lost: all devices can be allocated at once when no pod has any.
    for pod in rig.pods().list(&ListParams::default()).await.unwrap() {
        rig.let_go(&pod.metadata.name.unwrap()).await;
    }
    let mut number = 0;
    until("all devices at once", async || {
        // The kubelet may take a moment to release a pod that was deleted by force; a lost device never comes back.
        number += 1;
        let names = [format!("x-{number}"), format!("y-{number}")];
        for name in &names {
            rig.pod(name, &[(NIC, 4)]).await;
        }
        let phases = until("admission", async || {
            let phases = [rig.state(&names[0]).await.0, rig.state(&names[1]).await.0];
            phases.iter().all(|phase| phase != "Pending" && !phase.is_empty()).then_some(phases)
        })
        .await;
        if phases == ["Running", "Running"] {
            return Some(());
        }
        for name in &names {
            rig.let_go(name).await;
        }
        None
    })
    .await;
    assert_eq!(check(&rig).await, DEVICES);
    plugin.stop().await;
}

/// Creates pods of one or two devices that stay for a moment; a few at a time.
async fn load(rig: Arc<Rig>, over: Arc<AtomicBool>, made: Arc<AtomicUsize>) {
    let mut number = 0_usize;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        rig.pod(&format!("p-{number}"), &[(NIC, 1 + u32::from(number.is_multiple_of(3)))]).await;
        made.fetch_add(1, Ordering::Relaxed);
        if let Some(old) = number.checked_sub(5).filter(|old| *old > 0) {
            let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            // Rejected pods exist too until they are deleted.
            let _ = rig.pods().delete(&format!("p-{old}"), &force).await;
        }
        // This sets the rate of the load; nothing is waited for.
        sleep(Duration::from_millis(150)).await;
    }
}

/// Counts the owners of devices again, by podresources and by what containers were started with. Returns how many
/// devices are held.
async fn check(rig: &Rig) -> usize {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for (pod, ids) in rig.held(NIC).await {
        for id in ids {
            let number = id.strip_prefix("dev-").and_then(|number| number.parse::<usize>().ok());
            assert!(number.is_some_and(|number| number < DEVICES), "{id} is no device");
            if let Some(other) = owners.insert(id.clone(), pod.clone()) {
                assert_eq!(other, pod, "{id} is held by {other} and {pod}");
            }
        }
    }
    let held = owners.len();
    // The kubelet's record is one thing, what containers got another. The kubelet may give away devices of pods that
    // are gone from the API server by force before it has ended their containers.
    let there = pods(rig).await;
    let snapshot = rig.cluster.nodes()[0].cri().snapshot();
    let stay = pods(rig).await;
    let mut in_containers: BTreeMap<String, String> = BTreeMap::new();
    for sandbox in snapshot.sandboxes.iter().filter(|one| there.contains(&one.uid) && stay.contains(&one.uid))
    {
        for container in sandbox.containers.iter().filter(|container| container.state == State::Running) {
            let ids = String::from_utf8(container.env["EXAMPLE_COM_NIC_DEVICES"].clone()).unwrap();
            for id in ids.split(',') {
                if let Some(other) = in_containers.insert(id.to_owned(), sandbox.name.clone()) {
                    assert_eq!(other, sandbox.name, "containers of {other} and {} have {id}", sandbox.name);
                }
            }
        }
    }
    held
}

/// The UIDs of the pods in the API server.
async fn pods(rig: &Rig) -> BTreeSet<String> {
    let pods = rig.pods().list(&ListParams::default()).await.unwrap();
    pods.into_iter().filter_map(|pod| pod.metadata.uid).collect()
}
