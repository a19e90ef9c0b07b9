//! From an empty cluster to a pod on one NUMA node, and back to an empty cluster: what we ship, as processes, with the
//! rights it ships with.
//!
//! `INTERRUPTIONS=20 SEED=7 cargo test -p deployer --test it -- whole --nocapture` interrupts that many deployments and
//! removals; 2 are the default.

use std::collections::BTreeSet;

use deployer::manifests;
use deployer::options::Options as Choices;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, PostParams};
use runtime::random::Random;
use testkit::audit::Request;
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::machine::Machine;
use testkit::quiescence::until_quiescent;
use testkit::{env, load, net};
use tokio::time::Instant;

use super::interrupted::{How, number};
use super::*;

fn waiting() -> Settings {
    Settings { wait: true, ..quick() }
}

fn choices() -> Choices {
    let mut choices = Choices::default();
    choices.images.tholepin = "tholepin:test".to_owned();
    choices
}

#[test]
fn from_nothing_to_an_aligned_pod_and_back() {
    let Ok(rig) = env::rig() else { return };
    let Some(program) = env::tholepin() else {
        eprintln!("SKIPPED: no tholepin binary; cargo xtask test builds it");
        assert!(std::env::var_os("TESTKIT_REQUIRE_RIG").is_none_or(|value| value.is_empty()));
        return;
    };
    net::private(async |network| {
        let images = Images::new()
            .with("tholepin:test", Image::program(program.clone()))
            .with("tholepin:next", Image::program(program))
            .with("pause", Image::pause());
        let machines = [2, 4].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        let cluster = Cluster::builder().machines(machines).installable(network, images);
        let cluster = cluster.start(&rig).await.unwrap();
        let client = cluster.client().await.unwrap();
        settled(&client).await.unwrap();
        let before = dump(&client).await.unwrap();
        for round in 0..2 {
            let took = there_and_back(&client).await;
            println!("round {round}: from an empty cluster to an aligned pod that runs: {took:?}");
            assert_same(&before, &dump(&client).await.unwrap());
        }
        upgraded(&client).await;
        assert_same(&before, &dump(&client).await.unwrap());
        interrupted(&client, &before).await;
        every_right_is_used(cluster.control()).await;
        let denied = cluster.denied().unwrap();
        // Controllers still look after namespaces that are going.
        let of_ours = |line: &String| !line.starts_with("system:serviceaccount:kube-system:");
        let denied: Vec<_> = denied.iter().map(ToString::to_string).filter(of_ours).collect();
        assert_eq!(denied, [""; 0]);
    })
    .unwrap();
}

/// Rights that the programs need only where something fails or is told otherwise, and the tests that use them: crate,
/// module, function.
const USED_ELSEWHERE: [(&str, &str); 33] = [
    (
        "topology.node.k8s.io/noderesourcetopologies[]: get",
        "exporter faults/apiserver answer_lost_after_the_object_was_changed",
    ),
    (
        "topology.node.k8s.io/noderesourcetopologies[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    ("/nodes[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    // A binding that was not answered is looked up.
    ("/pods[]: get", "scheduler faults every_pod_gets_its_place_once_whatever_fails"),
    ("/pods[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("events.k8s.io/events[]: patch", "runtime events repeated_events_are_one_object_with_a_count"),
    // Namespaces, and objects that select pods.
    ("/namespaces[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("/services[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    (
        "/replicationcontrollers[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    ("apps/replicasets[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("apps/statefulsets[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    // Preemption.
    ("/pods[]: delete", "scheduler preemption a_zone_is_freed_by_evicting_the_pod_that_no_budget_keeps"),
    (
        "policy/poddisruptionbudgets[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    // Gangs, which no cluster has by default.
    (
        "scheduling.k8s.io/podgroups[]: list",
        "scheduler gangs gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler",
    ),
    (
        "scheduling.k8s.io/podgroups[]: watch",
        "scheduler gangs gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler",
    ),
    (
        "scheduling.k8s.io/podgroups/status[]: patch",
        "scheduler gangs gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler",
    ),
    // Volumes.
    (
        "/persistentvolumeclaims[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    ("/persistentvolumes[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    (
        "storage.k8s.io/csidrivers[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/csinodes[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/csistoragecapacities[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/storageclasses[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/volumeattachments[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "/persistentvolumes[]: patch",
        "scheduler volumes a_pod_goes_where_its_volume_is_once_the_claim_is_bound",
    ),
    (
        "/persistentvolumeclaims[]: patch",
        "scheduler volumes a_claim_that_cannot_be_provisioned_is_tried_again",
    ),
    // Devices.
    (
        "resource.k8s.io/deviceclasses[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "resource.k8s.io/resourceclaims[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "resource.k8s.io/resourceslices[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "resource.k8s.io/resourceclaims[]: create",
        "scheduler claims devices_serve_extended_resources_that_classes_name",
    ),
    (
        "resource.k8s.io/resourceclaims[]: delete",
        "scheduler claims devices_serve_extended_resources_that_classes_name",
    ),
    (
        "resource.k8s.io/resourceclaims[]: patch",
        "scheduler claims no_two_claims_get_one_device_and_pods_follow_their_claims",
    ),
    (
        "resource.k8s.io/resourceclaims/status[]: patch",
        "scheduler claims no_two_claims_get_one_device_and_pods_follow_their_claims",
    ),
    (
        "resource.k8s.io/resourceclaims/binding[]: patch",
        "scheduler claims no_two_claims_get_one_device_and_pods_follow_their_claims",
    ),
];

/// All programs have ended: watches are in the log when they are over. Each rule of each role was used, here or in the
/// test that is named for it.
async fn every_right_is_used(control: &ControlPlane) {
    let parts = manifests::parts(&choices(), &Component::ALL).unwrap();
    let objects: Vec<_> = parts.iter().flat_map(Part::objects).collect();
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object.kind().kind == kind);
    let accounts: Vec<String> = of_kind("ServiceAccount")
        .map(|account| {
            format!("system:serviceaccount:{}:{}", account.namespace().unwrap_or_default(), account.name())
        })
        .collect();
    let asked = || -> Vec<Request> {
        let mut all = control.audit().unwrap().requests().unwrap();
        all.retain(|request| accounts.contains(&request.user.username));
        all
    };
    until_quiescent(5, Duration::from_millis(100), async || Ok(asked().len())).await.unwrap();
    let requests = asked();
    let (mut any, mut named) = (Vec::new(), Vec::new());
    for request in &requests {
        for rule in request.rules() {
            any.push(rule.clone());
            named.push(PolicyRule { resource_names: Some(vec![request.name().to_owned()]), ..rule });
        }
    }
    let rules = ["ClusterRole", "Role"]
        .into_iter()
        .flat_map(of_kind)
        .flat_map(|role| serde_json::from_value::<Vec<PolicyRule>>(role.body()["rules"].clone()).unwrap());
    let (mut granted, mut unused) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules {
        let used = if rule.resource_names.is_some() { &named } else { &any };
        unused.extend(api::rbac::missing(used, std::slice::from_ref(&rule)));
        granted.extend(api::rbac::missing(&[], &[rule]));
    }
    println!("rights: {} requests of {} accounts, unused: {unused:?}", requests.len(), accounts.len());
    let elsewhere = BTreeSet::from(USED_ELSEWHERE.map(|(right, _)| right.to_owned()));
    // A right for failures may have been needed here too.
    let never_used: Vec<_> = unused.difference(&elsewhere).collect();
    assert!(never_used.is_empty(), "no test uses {never_used:?}");
    let not_granted: Vec<_> = elsewhere.difference(&granted).collect();
    assert!(not_granted.is_empty(), "no role grants {not_granted:?}");
    println!("needed here too: {:?}", elsewhere.difference(&unused).collect::<Vec<_>>());
    for (right, test) in USED_ELSEWHERE {
        let [of, module, function] = test.split(' ').collect::<Vec<_>>()[..] else { panic!("{test}") };
        let path = format!("{}/../{of}/tests/it/{module}.rs", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{right}: {path}: {error}"));
        assert!(text.contains(&format!("fn {function}(")), "{right}: no {function} in {path}");
    }
}

/// Deploys, runs a pod, removes. Says how long the first two took.
async fn there_and_back(client: &Client) -> Duration {
    let parts = manifests::parts(&choices(), &Component::ALL).unwrap();
    let began = Instant::now();
    let (mut log, stop) = (Log::default(), CancellationToken::new());
    let outcome = deploy(client, &parts, &waiting(), &mut log.observe(), &stop).await;
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {:#?}", log.0));
    println!("deployed in {:?}", began.elapsed());
    assert_eq!((outcome.warnings, outcome.findings), (vec![], vec![]), "{:#?}", log.0);
    aligned_pod(client).await;
    let took = began.elapsed();
    waiting_pod(client).await;
    let again = deploy(client, &parts, &waiting(), &mut |_: &Step<'_>| {}, &stop).await.unwrap();
    assert!(again.applied.iter().all(|(_, _, change)| *change == Change::Unchanged), "{:?}", changes(&again));
    let removal = remove(client, &Component::ALL, &waiting(), &mut |_: &Step<'_>| {}, &stop).await.unwrap();
    assert_eq!(removal.kept, []);
    assert_eq!(removal.deleted.len(), outcome.applied.len());
    took
}

/// A pod that only fits aligned, placed by our scheduler, until it runs; then it is deleted.
async fn aligned_pod(client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = load::guaranteed_pod("aligned", "topo-aware-scheduler", [("cpu", "6"), ("memory", "64Mi")]);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until("running", async || {
        let status = pods.get("aligned").await.unwrap().status.unwrap_or_default();
        assert_ne!(status.phase.as_deref(), Some("Failed"), "{status:?}");
        status.phase.as_deref() == Some("Running")
    })
    .await;
    pods.delete("aligned", &DeleteParams::default()).await.unwrap();
    until("gone", async || pods.get_opt("aligned").await.unwrap().is_none()).await;
}

/// A pod that fits nowhere: it is told so.
async fn waiting_pod(client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = load::guaranteed_pod("waiting", "topo-aware-scheduler", [("cpu", "600"), ("memory", "64Mi")]);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until("a reason", async || {
        let status = pods.get("waiting").await.unwrap().status.unwrap_or_default();
        status.conditions.iter().flatten().any(|one| one.type_ == "PodScheduled" && one.status == "False")
    })
    .await;
    pods.delete("waiting", &DeleteParams::default()).await.unwrap();
    until("gone", async || pods.get_opt("waiting").await.unwrap().is_none()).await;
}

/// Pods come all the time, one after the other, while everything is replaced by another version.
async fn upgraded(client: &Client) {
    let (old, mut choices) = (choices(), choices());
    choices.images.tholepin = "tholepin:next".to_owned();
    let [old, new] = [old, choices].map(|choices| manifests::parts(&choices, &Component::ALL).unwrap());
    let stop = CancellationToken::new();
    deploy(client, &old, &waiting(), &mut |_: &Step<'_>| {}, &stop).await.unwrap();
    let over = CancellationToken::new();
    let arrivals = async {
        let mut times = Vec::new();
        // One more when all is done.
        while !over.is_cancelled() {
            let began = Instant::now();
            aligned_pod(client).await;
            times.push(began.elapsed());
        }
        aligned_pod(client).await;
        times
    };
    let upgrade = async {
        let began = Instant::now();
        let outcome = deploy(client, &new, &waiting(), &mut |_: &Step<'_>| {}, &stop).await.unwrap();
        over.cancel();
        let configured = outcome.applied.iter().filter(|(_, _, change)| *change == Change::Configured);
        let kinds: Vec<_> = configured.map(|(_, object, _)| object.kind().kind.clone()).collect();
        assert_eq!(kinds, ["DaemonSet", "Deployment"]);
        began.elapsed()
    };
    let (times, took) = tokio::join!(arrivals, upgrade);
    let longest = times.iter().max().copied().unwrap_or_default();
    println!(
        "upgraded in {took:?}; {} pods came and went meanwhile, the slowest in {longest:?}",
        times.len()
    );
    remove(client, &Component::ALL, &waiting(), &mut |_: &Step<'_>| {}, &stop).await.unwrap();
}

/// Deployments and removals that are stopped after a while, then done again.
async fn interrupted(client: &Client, before: &Dump) {
    let (count, seed) = (number("INTERRUPTIONS", 2), number("SEED", 1));
    let mut random = Random::seeded(seed);
    let parts = manifests::parts(&choices(), &Component::ALL).unwrap();
    let went = async |result: Result<Outcome, Error>| result.unwrap();
    let unstopped = CancellationToken::new();
    went(deploy(client, &parts, &waiting(), &mut |_: &Step<'_>| {}, &unstopped).await).await;
    let deployed = relevant(dump(client).await.unwrap());
    let mut there = true;
    for round in 0..count {
        let how = How::any(&mut random);
        // Long enough for every part of it to be hit.
        let after = Duration::from_millis(random.bits() % 4000);
        println!("seed {seed}, round {round}: {how:?} after {after:?}, removing: {there}");
        let (client, stop) = (client.clone(), CancellationToken::new());
        let (work, token) = (client.clone(), stop.clone());
        let mut task = if there {
            tokio::spawn(async move {
                remove(&work, &Component::ALL, &waiting(), &mut |_: &Step<'_>| {}, &token).await.map(drop)
            })
        } else {
            let parts = parts.clone();
            tokio::spawn(async move {
                deploy(&work, &parts, &waiting(), &mut |_: &Step<'_>| {}, &token).await.map(drop)
            })
        };
        if tokio::time::timeout(after, &mut task).await.is_err() {
            how.stop(&stop, &task);
            let _ = tokio::time::timeout(PATIENCE, task).await.expect("an end in time");
        }
        if there {
            remove(&client, &Component::ALL, &waiting(), &mut |_: &Step<'_>| {}, &unstopped).await.unwrap();
            assert_same(before, &dump(&client).await.unwrap());
        } else {
            deploy(&client, &parts, &waiting(), &mut |_: &Step<'_>| {}, &unstopped).await.unwrap();
            assert_same(&deployed, &relevant(dump(&client).await.unwrap()));
            aligned_pod(&client).await;
        }
        there = !there;
    }
    remove(client, &Component::ALL, &waiting(), &mut |_: &Step<'_>| {}, &unstopped).await.unwrap();
    assert_same(before, &dump(client).await.unwrap());
    println!(
        "whole: {count} interrupted deployments and removals with pods, the cluster as before (seed {seed})"
    );
}
