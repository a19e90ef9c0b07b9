//! From the Go operator to ours in the middle of its work: nothing that stays is made anew, what it forgot goes, what
//! others made stays.
//!
//! `REST=60 cargo test -p operator --test it -- upgrade --nocapture` watches it rest that many seconds; 5 are the
//! default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use deployer::platform::Platform;
use fakes::openshift::mco::Mco;
use fakes::openshift::{kubelet_config, make, pool};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use runtime::client::{Connection, Options, is_conflict, is_not_found};
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::dump::Dump;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::go_operator::{self, MANAGER, Owners};
use super::openshift::{WORKER, single_numa_node};
use super::rig::{NAMESPACE, PATIENCE, Rig, SOMEBODY, Setup, number, play, until};
use super::workloads::Workloads;

/// What an object is called: its kind and its name.
type Names = Vec<(String, String)>;

fn names(objects: &[Value]) -> Names {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    objects.iter().map(|object| (text(&object["kind"]), text(&object["metadata"]["name"]))).collect()
}

async fn uids(rig: &Rig, names: &Names) -> BTreeMap<(String, String), Value> {
    let mut uids = BTreeMap::new();
    for (kind, name) in names {
        let object = rig.get(kind, name).await.unwrap_or_else(|| panic!("{kind} {name} is gone"));
        uids.insert((kind.clone(), name.clone()), object["metadata"]["uid"].clone());
    }
    uids
}

/// Objects of others: beside ours, with names like ours, of kinds like ours.
fn foreign() -> Vec<Value> {
    let within = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    let template = json!({
        "metadata": { "labels": { "app": "other" } },
        "spec": { "containers": [{ "name": "c", "image": "pause" }] },
    });
    vec![
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": within("numaresourcesoperator-other"), "data": { "a": "1" } }),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": within("numaresourcesoperator-theirs"),
            "spec": { "selector": { "matchLabels": { "app": "other" } }, "template": template },
        }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": within("rte-helper") }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "rte-viewer" },
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }],
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": within("theirs"),
            "spec": { "podSelector": {}, "policyTypes": ["Ingress"] },
        }),
    ]
}

/// The objects as they are, without what controllers note in a status.
fn only(dump: &Dump, names: &Names) -> Dump {
    let is_one = |key: &str| {
        let (kind, rest) = key.split_once(' ').unwrap();
        names.iter().any(|(of, name)| {
            kind.split('.').next() == Some(of.as_str()) && rest.rsplit('/').next() == Some(name.as_str())
        })
    };
    dump.iter().filter(|(key, _)| is_one(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The Go operator's cluster.
async fn left(rig: &Rig) -> Owners {
    make(&rig.admin, &pool("infra")).await.unwrap();
    make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
    let uid = |object: Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    rig.create(MANAGER, &go_operator::definition()).await;
    let owners = Owners {
        operator: uid(rig.create("user", &go_operator::operator()).await),
        scheduler: uid(rig.create("user", &go_operator::scheduler()).await),
        kubelet_config: uid(rig.get("KubeletConfig", "numa").await.unwrap()),
    };
    for object in go_operator::kept(&owners).iter().chain(&go_operator::stale(&owners)) {
        rig.create(MANAGER, object).await;
    }
    for object in foreign() {
        rig.create(SOMEBODY, &object).await;
    }
    // Another program relies on it.
    rig.merge("ServiceAccount", "rte", &json!({ "metadata": { "labels": { "theirs": "1" } } })).await;
    owners
}

#[test]
fn objects_of_the_go_operator_are_taken_over_in_place() {
    let setup = Setup::on(Platform::OpenShift);
    play("upgrade", setup, async |rig: &mut Rig| {
        let owners = left(rig).await;
        rig.node("master-0", &[("node-role.kubernetes.io/control-plane", "")]).await;
        let mco = Mco::start(&rig.admin);
        mco.settled(PATIENCE).await.unwrap();
        let _workloads = Workloads::start(&rig.admin);
        let kept = names(&go_operator::kept(&owners));
        let stale = names(&go_operator::stale(&owners));
        let theirs = names(&foreign());
        let before = (uids(rig, &kept).await, only(&rig.dump().await, &theirs));

        let (running, written) = running_go_exporters_write_until_they_are_replaced(rig).await;
        let began = Instant::now();
        // Its scheduler's image is in no list of trusted digests: it runs, so it stays.
        rig.operate().await;
        for (kind, name) in &stale {
            until(&format!("{kind} {name}"), async || rig.get(kind, name).await.is_none()).await;
        }
        mco.settled(PATIENCE).await.unwrap();
        for kind in ["operator", "scheduler"] {
            rig.until_true(kind, "Available", "", "").await;
        }
        // Once more with all that is there now.
        let so_far = written.load(Ordering::Relaxed);
        until("writes", async || running.is_finished() || written.load(Ordering::Relaxed) > so_far + 1).await;
        assert!(!running.is_finished(), "{:?}", running.await);
        running.abort();
        println!("upgrade: {} times a Go exporter wrote its object and its pod's status", so_far + 2);
        let writes = rig.quiet().await;
        println!("upgrade: taken over in {:?} with {writes} writes", began.elapsed());
        assert_eq!(uids(rig, &kept).await, before.0, "nothing is made anew");
        testkit::dump::assert_same(&before.1, &only(&rig.dump().await, &theirs));
        taken_over(rig, &kept).await;

        rest(rig, "upgrade").await;
        // Another process finds the same.
        let settled = rig.dump().await;
        rig.stop().await;
        let writes = rig.writes();
        rig.operate().await;
        until("each controller has looked", async || {
            rig.metric("tholepin_operator_reconciles_total").await >= 3.0
        })
        .await;
        rig.quiet().await;
        assert_eq!(rig.writes(), writes, "{:?}", rig.proxy.seen().iter().rfind(|seen| seen.is_write()));
        testkit::dump::assert_same(&settled, &rig.dump().await);
        rig.print_events("upgrade").await;
    });
}

/// A Go exporter that still runs: it reads its object and its pod, and writes both whole, all the time. It ends at the
/// first refusal. Returns how often it has written so far.
async fn running_go_exporters_write_until_they_are_replaced(rig: &Rig) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    const NAME: &str = "go-exporter";
    let account = Account::of(&rig.control, NAMESPACE, "rte").await.unwrap();
    let pod = account.pod(NAME, "master-0").await.unwrap();
    let kubeconfig = Some(account.kubeconfig(Some(&pod)).await.unwrap());
    let connection = Connection::open(&Options { kubeconfig, ..Options::default() }).await.unwrap();
    let client = connection.client_with_timeout(PATIENCE).unwrap();
    let reports: Api<NodeResourceTopology> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    // The operator writes too: a conflict is no refusal.
    let allowed = |result: kube::Result<()>| match result {
        Err(error) if !is_conflict(&error) && !is_not_found(&error) => panic!("{error}"),
        _ => {}
    };
    let running = tokio::spawn(async move {
        let fresh = json!({ "metadata": { "name": "master-0" }, "zones": [] });
        loop {
            let params = PostParams::default();
            let mut report = match reports.get_opt("master-0").await.unwrap() {
                Some(report) => report,
                None => {
                    let fresh = serde_json::from_value(fresh.clone()).unwrap();
                    reports.create(&params, &fresh).await.unwrap()
                }
            };
            let number = count.load(Ordering::Relaxed).to_string();
            report.annotations_mut().insert("written".to_owned(), number);
            allowed(reports.replace("master-0", &params, &report).await.map(drop));
            let pod = pods.get(NAME).await.unwrap();
            allowed(pods.replace_status(NAME, &params, &pod).await.map(drop));
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    until("its first writes", async || running.is_finished() || written.load(Ordering::Relaxed) > 1).await;
    (running, written)
}

/// Everything that stays is ours now, says what we say, and nothing else.
async fn taken_over(rig: &Rig, kept: &Names) {
    // The operator has no right to grant what the Go scheduler needs: that one keeps the role it had.
    let is_ours = |(kind, name): &&(String, String)| {
        name != "topology-aware-scheduler" || !kind.starts_with("ClusterRole")
    };
    for (kind, name) in kept.iter().filter(is_ours) {
        let object = rig.get(kind, name).await.unwrap();
        assert_eq!(
            object["metadata"]["labels"][operator::desired::MANAGED_BY],
            operator::desired::MANAGER,
            "{kind} {name}"
        );
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let of = |manager: &str| {
            entries.iter().find(|entry| entry["manager"] == manager && entry["subresource"].is_null())
        };
        let ours = &of(operator::desired::MANAGER).unwrap()["fieldsV1"];
        let theirs = of(MANAGER).and_then(|entry| entry["fieldsV1"].as_object()).into_iter().flatten();
        for (field, of_theirs) in theirs.filter(|(field, _)| *field != "f:metadata") {
            assert!(within(of_theirs, &ours[field]), "{kind} {name}: {of_theirs} is more than {ours}");
        }
    }
    let account = rig.get("ServiceAccount", "rte").await.unwrap();
    assert_eq!(account["metadata"]["labels"]["theirs"], "1");
    let role = rig.get("ClusterRole", "rte").await.unwrap();
    assert!(role["rules"].to_string().contains("patch"), "the exporter patches (B-03): {role}");
    // Go exporters that still run write with `update`, their conditions too.
    for kind in ["ClusterRole", "Role"] {
        let rules = rig.get(kind, "rte").await.unwrap()["rules"].to_string();
        assert!(rules.contains("update"), "{kind}: {rules}");
    }
    // Immutable: it is what it was.
    let set = rig.get("DaemonSet", "numaresourcesoperator-worker").await.unwrap();
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({ "name": "resource-topology" }));
    let containers = set["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1, "ours needs no other container: {containers:?}");
    let definition = rig.get("CustomResourceDefinition", "noderesourcetopologies.topology.node.k8s.io").await;
    assert_eq!(definition.unwrap()["metadata"]["ownerReferences"], Value::Null);
}

/// Whether all these fields are among those.
fn within(fields: &Value, others: &Value) -> bool {
    let all = fields.as_object().into_iter().flatten();
    others.is_object()
        && all.filter(|(name, _)| *name != ".").all(|(name, below)| within(below, &others[name]))
}

/// Nothing is looked at and nothing is written.
pub(crate) async fn rest(rig: &Rig, name: &str) {
    let seconds = number("REST", 5);
    let rounds = rig.metric("tholepin_operator_reconciles_total").await;
    let writes = rig.writes();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = rig.metric("tholepin_operator_reconciles_total").await;
    println!(
        "{name}: in {seconds} s at rest {} reconciles, {} writes",
        after - rounds,
        rig.writes() - writes
    );
    assert_eq!((after, rig.writes()), (rounds, writes));
    assert!(rounds > 0.0);
}
