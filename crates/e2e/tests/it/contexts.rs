//! Two clusters are tested at the same time: one whose kubelets have every policy, one with a single node.
//!
//! In: two rigs, each in a network of its own, reached through a port of this machine. Out: nothing; the test fails
//! where a cluster is not tested on its own terms. Never: a cluster that waits for the other.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use kube::config::Kubeconfig;
use serde_json::Value;
use testkit::kubelet::KubeletOptions;
use testkit::net;
use tokio::sync::oneshot;
use topology::policy::{Policy, Scope};

use super::rig::{IMAGES, Rig, command, play_kubelets, programs, run};

/// A cluster that is being played.
struct Played {
    /// Its kubeconfig, valid outside of its network.
    kubeconfig: PathBuf,
    /// Dropped, it ends the cluster.
    _end: oneshot::Sender<()>,
}

#[test]
#[ignore = "`cargo xtask nightly e2e-contexts` runs it"]
fn two_clusters_at_a_time() {
    let Some((_, program)) = programs() else { return };
    let kubelet = |policy| KubeletOptions { policy, scope: Scope::Container, ..KubeletOptions::default() };
    let mixed = [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode].map(kubelet);
    let alone = kubelet(Policy::SingleNumaNode);
    std::thread::scope(|threads| {
        let [mixed, alone] = [mixed.to_vec(), vec![alone]].map(|kubelets| {
            let (started, cluster) = mpsc::channel();
            threads.spawn(move || play(kubelets, &started));
            cluster
        });
        let [mixed, alone] = [mixed, alone].map(|cluster| cluster.recv().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let both = folder.path().join("kubeconfig");
        merge(&both, [("mixed", &mixed.kubeconfig), ("alone", &alone.kubeconfig)]);
        // A pod for each node, and one that has to wait.
        assert_eq!(on_both(&program, &both, "test"), [5, 2]);
        let [mixed, alone] = on_both(&program, &both, "e2e --tier-up-to=1");
        assert!(mixed > 0 && alone > 0);
    });
}

/// Plays a cluster until the other end of what it sends is dropped.
fn play(kubelets: Vec<KubeletOptions>, started: &mpsc::Sender<Played>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    play_kubelets(kubelets, async |rig: Rig| {
        let kubeconfig = rig.cluster.control().kubeconfig_at(&url).unwrap();
        let (_end, ended) = oneshot::channel();
        started.send(Played { kubeconfig, _end }).unwrap();
        tokio::select! {
            _ = ended => {}
            stopped = net::forward(listener) => drop(stopped.unwrap()),
        }
    });
}

/// One kubeconfig with several contexts.
fn merge<const N: usize>(into: &Path, contexts: [(&str, &PathBuf); N]) {
    let mut all = Kubeconfig::default();
    for (name, file) in contexts {
        let mut one = Kubeconfig::read_from(file).unwrap();
        one.clusters.iter_mut().for_each(|cluster| name.clone_into(&mut cluster.name));
        one.auth_infos.iter_mut().for_each(|user| name.clone_into(&mut user.name));
        for named in &mut one.contexts {
            name.clone_into(&mut named.name);
            let context = named.context.as_mut().unwrap();
            name.clone_into(&mut context.cluster);
            context.user = Some(name.to_owned());
        }
        one.current_context = None;
        all = all.merge(one).unwrap();
    }
    std::fs::write(into, serde_json::to_string(&all).unwrap()).unwrap();
}

/// Runs a command on both clusters, where nothing may fail: how many specs have passed on each.
fn on_both(program: &Path, kubeconfig: &Path, words: &str) -> [u64; 2] {
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(["--context=mixed", "--context=alone", "--output=json"]);
    words.extend(IMAGES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(run(command(program, kubeconfig, &words)));
    println!("{}", ended.stderr);
    let documents: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(documents.len(), 2);
    assert_eq!(ended.code, Some(0), "{}", words[0]);
    std::array::from_fn(|index| passed(&documents[index], words[0], ["mixed", "alone"][index]))
}

/// How many specs have passed on a cluster; those that were skipped are told.
fn passed(document: &Value, command: &str, context: &str) -> u64 {
    assert_eq!(document["context"], context);
    for spec in document["specs"].as_array().unwrap() {
        if spec["ending"] == "skipped" {
            println!("{context}: {} is skipped: {}", spec["id"], spec["reason"]);
        }
    }
    let counts = &document["counts"];
    let seconds = document["seconds"].as_f64().unwrap();
    println!(
        "contexts: {command} on {context}: {} passed, {} skipped, 0 failed in {seconds:.0} s",
        counts["passed"], counts["skipped"]
    );
    counts["passed"].as_u64().unwrap()
}
