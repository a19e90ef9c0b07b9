//! Everything that can be done to what the operator keeps, in any order: afterwards all is as it was, object by object,
//! and then nothing happens any more.
//!
//! `CHAOS=300 MINUTES=10 SEED=7 cargo test -p operator --test it -- chaos --nocapture` does that many things in that
//! time; 40 as fast as possible are the default.

use std::time::Duration;

use api::numaresources::keys::{CUSTOM, SELINUX_POLICY};
use deployer::platform::Platform;
use fakes::openshift::mco::{Mco, PoolBehaviour};
use fakes::openshift::{kubelet_config, make, pool};
use operator::desired::MANAGED_BY;
use runtime::random::Random;
use serde_json::{Value, json};
use testkit::dump::{Dump, difference};
use testkit::proxy::Fault;
use tokio::time::Instant;

use super::defects::ours;
use super::killed::comparable;
use super::openshift::{WORKER, single_numa_node};
use super::rig::{PATIENCE, Rig, SOMEBODY, Setup, number, play};
use super::seen::asked;
use super::upgrade::rest;

/// How long the operator may take after the last of it.
const CONVERGES_WITHIN: Duration = Duration::from_secs(5);

/// Marks labels and annotations that stay, since no other program owns them.
const THEIRS: &str = "chaos.example/";

/// Something that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Delete,
    Edit,
    Add,
    Empty,
    Unmark,
    Label,
    Disown,
    Adopt,
    Scale,
    Pause,
    Rollout,
    Usurp,
    Kubelets,
    Wish,
    Status,
    Fail,
    Deafen,
}

impl Deed {
    const ALL: [Self; 17] = [
        Self::Delete,
        Self::Edit,
        Self::Add,
        Self::Empty,
        Self::Unmark,
        Self::Label,
        Self::Disown,
        Self::Adopt,
        Self::Scale,
        Self::Pause,
        Self::Rollout,
        Self::Usurp,
        Self::Kubelets,
        Self::Wish,
        Self::Status,
        Self::Fail,
        Self::Deafen,
    ];
}

/// The user's objects.
fn wishes() -> [(&'static str, &'static str, Value); 2] {
    let exporters = json!({ "logLevel": "Normal", "nodeGroups": [
        { "poolName": "worker" },
        { "poolName": "infra", "annotations": { SELINUX_POLICY: CUSTOM } },
    ] });
    // The cluster has no kubelet, so no pod runs.
    let scheduler = json!({ "logLevel": "Normal", "replicas": 0 });
    [
        ("NUMAResourcesOperator", "numaresourcesoperator", exporters),
        ("NUMAResourcesScheduler", "numaresourcesscheduler", scheduler),
    ]
}

/// Without what others may add.
fn without_theirs(dump: Dump) -> Dump {
    let mut dump = comparable(dump);
    dump.retain(|name, _| !name.starts_with("Pod.") && !name.starts_with("NodeResourceTopology."));
    for (name, object) in &mut dump {
        for place in ["labels", "annotations"] {
            if let Some(all) = object["metadata"][place].as_object_mut() {
                all.retain(|key, _| !key.starts_with(THEIRS));
            }
            if object["metadata"][place].as_object().is_some_and(serde_json::Map::is_empty) {
                object["metadata"][place] = Value::Null;
            }
        }
        // Owners that are not in charge.
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["kind"] != "MachineConfigPool");
        }
        if object["metadata"]["ownerReferences"].as_array().is_some_and(Vec::is_empty) {
            object["metadata"]["ownerReferences"] = Value::Null;
        }
        // The Machine Config Operator notes there when it looked at which generation.
        if name.starts_with("KubeletConfig.") {
            object["status"] = Value::Null;
        }
        for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["observedGeneration"] = Value::Null;
        }
        // The managers of other fields may differ, but not those of ours.
        object["metadata"]["managedFields"] = Value::Null;
    }
    dump
}

#[test]
fn any_changes_are_undone() {
    let setup = Setup { controllers: true, ..Setup::on(Platform::OpenShift) };
    play("chaos", setup, async |rig: &mut Rig| {
        make(&rig.admin, &pool("infra")).await.unwrap();
        make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
        let mco = Mco::start(&rig.admin);
        mco.settled(PATIENCE).await.unwrap();
        rig.operate().await;
        for (kind, name, spec) in wishes() {
            rig.create("user", &asked(kind, name, &spec)).await;
        }
        for kind in ["operator", "scheduler"] {
            rig.until_true(kind, "Available", "", "").await;
        }
        mco.settled(PATIENCE).await.unwrap();
        rig.quiet().await;
        let wanted = without_theirs(rig.dump().await);

        let (count, seed, minutes) = (number("CHAOS", 40), number("SEED", 1), number("MINUTES", 0));
        let pause = Duration::from_secs(minutes * 60) / u32::try_from(count.max(1)).unwrap();
        let mut random = Random::seeded(seed);
        let (began, writes) = (Instant::now(), rig.writes());
        let mut usurped = Vec::new();
        for round in 0..count {
            let deed = Deed::ALL[pick(&mut random, Deed::ALL.len())];
            let what = act(rig, &mco, deed, &wanted, &mut random, &mut usurped).await;
            println!("chaos: seed {seed}, {round}: {deed:?} {what}");
            tokio::time::sleep(pause).await;
        }
        println!("chaos: {count} deeds in {:?}", began.elapsed());
        calm(rig, &mco, usurped).await;
        let last = Instant::now();
        let mut left = difference(&wanted, &without_theirs(rig.dump().await));
        while !left.is_empty() && last.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            left = difference(&wanted, &without_theirs(rig.dump().await));
        }
        assert_eq!(left, [""; 0], "seed {seed}: {}", rig.operator().log_tail(30));
        let took = last.elapsed();
        println!(
            "chaos: as it was {took:?} after the last deed, with {} writes in all",
            rig.quiet().await - writes
        );
        // A goal for a machine with nothing else to do.
        if std::env::var_os("CHAOS").is_some() {
            assert!(took < CONVERGES_WITHIN, "{took:?}");
        }
        for kind in ["operator", "scheduler"] {
            rig.until_true(kind, "Available", "", "").await;
        }
        rig.quiet().await;
        rest(rig, "chaos").await;
    });
}

fn pick(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.bits() % count as u64).unwrap()
}

/// Takes back what only its doer can take back. What comes last is healed connections.
async fn calm(rig: &Rig, mco: &Mco, usurped: Vec<(String, String)>) {
    for (kind, name) in usurped {
        let _ = rig.api(&kind).delete(&name, &Default::default()).await;
    }
    for pool in ["worker", "infra"] {
        rig.pause(pool, false).await;
        mco.set_behaviour(pool, PoolBehaviour::RollOut);
    }
    for (kind, name, spec) in wishes() {
        // As a user's `kubectl replace` does.
        rig.json_patch(kind, name, json!([{ "op": "replace", "path": "/spec", "value": spec }])).await;
    }
    make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
    rig.proxy.heal();
}

/// Does it to something; says to what.
async fn act(
    rig: &Rig,
    mco: &Mco,
    deed: Deed,
    wanted: &Dump,
    random: &mut Random,
    usurped: &mut Vec<(String, String)>,
) -> String {
    let all = ours(wanted);
    let (kind, name, _) = &all[pick(random, all.len())];
    let text = format!("{kind} {name}");
    let pool = ["worker", "infra"][pick(random, 2)];
    match deed {
        Deed::Delete => drop(rig.api(kind).delete(name, &Default::default()).await),
        Deed::Edit => return format!("{text} {}", edit(rig, kind, name, random).await),
        Deed::Add | Deed::Empty => return format!("{text} {}", change(rig, deed, kind, name).await),
        Deed::Unmark => {
            let path = format!("/metadata/labels/{}", MANAGED_BY.replace('/', "~1"));
            rig.json_patch(kind, name, json!([{ "op": "remove", "path": path }])).await;
        }
        Deed::Label => {
            let patch = json!({ "metadata": {
                "labels": { format!("{THEIRS}{}", pick(random, 5)): "1" },
                "annotations": { format!("{THEIRS}{}", pick(random, 5)): "1" },
            } });
            try_merge(rig, kind, name, &patch).await;
        }
        Deed::Disown => {
            try_merge(rig, kind, name, &json!({ "metadata": { "ownerReferences": null } })).await;
        }
        Deed::Adopt => return format!("{text} {}", adopt(rig, kind, name, random).await),
        Deed::Scale => {
            let patch = json!({ "spec": { "replicas": 2 } });
            let params = kube::api::PatchParams::default();
            let patch = kube::api::Patch::Merge(&patch);
            let deployment = rig.api("Deployment");
            let done = deployment.patch_scale("secondary-scheduler", &params, &patch).await.is_ok();
            return format!("secondary-scheduler {done}");
        }
        Deed::Pause => {
            rig.pause(pool, random.bits().is_multiple_of(2)).await;
            return pool.to_owned();
        }
        Deed::Rollout => {
            let told = [PoolBehaviour::RollOut, PoolBehaviour::Hold, PoolBehaviour::Degrade][pick(random, 3)];
            mco.set_behaviour(pool, told);
            return format!("{pool} {told:?}");
        }
        Deed::Usurp => return format!("{text} {}", usurp(rig, kind, name, wanted, usurped).await),
        Deed::Kubelets => {
            let scope = ["pod", "container"][pick(random, 2)];
            make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node(scope))).await.unwrap();
            return scope.to_owned();
        }
        Deed::Wish => return wish(rig, random).await,
        Deed::Status => {
            let (kind, name, _) = &wishes()[pick(random, 2)];
            rig.status(kind, name, &json!({ "conditions": [], "relatedObjects": [] })).await;
            return name.to_string();
        }
        Deed::Fail => {
            let faults = [
                Fault::Status(500),
                Fault::Status(409),
                Fault::Status(503),
                Fault::TooMany(1),
                Fault::Cut(20),
            ];
            let (fault, times) = (faults[pick(random, faults.len())], pick(random, 8) as u32);
            rig.proxy.fail(["WRITE", "GET", "WATCH"][pick(random, 3)], "", times, fault);
            return format!("{fault:?} {times} times");
        }
        Deed::Deafen => match random.bits() % 2 {
            0 => rig.proxy.drop_watches(),
            _ => rig.proxy.expire_watches(),
        },
    }
    text
}

async fn try_merge(rig: &Rig, kind: &str, name: &str, patch: &Value) -> bool {
    let params = kube::api::PatchParams {
        field_manager: Some(SOMEBODY.to_owned()),
        ..kube::api::PatchParams::default()
    };
    rig.api(kind).patch(name, &params, &kube::api::Patch::Merge(patch)).await.is_ok()
}

/// Changes any value outside of the metadata.
async fn edit(rig: &Rig, kind: &str, name: &str, random: &mut Random) -> String {
    let Some(object) = rig.get(kind, name).await else { return "is not there".to_owned() };
    let mut leaves = Vec::new();
    for (field, value) in object.as_object().unwrap() {
        if !matches!(field.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
            collect(value, &format!("/{field}"), &mut leaves);
        }
    }
    if leaves.is_empty() {
        return "says nothing".to_owned();
    }
    let (path, value) = &leaves[pick(random, leaves.len())];
    let other = match value {
        Value::Bool(is) => json!(!is),
        Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
        Value::String(text) => json!(format!("{text}x")),
        other => other.clone(),
    };
    let patch = json!([{ "op": "replace", "path": path, "value": other }]);
    let allowed = rig.json_patch(kind, name, patch).await;
    format!("{path} {}", if allowed { "" } else { "(refused)" })
}

fn collect(value: &Value, path: &str, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), leaves);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                collect(value, &format!("{path}/{at}"), leaves);
            }
        }
        leaf => leaves.push((path.to_owned(), leaf.clone())),
    }
}

/// Adds something, or empties something.
async fn change(rig: &Rig, deed: Deed, kind: &str, name: &str) -> String {
    let add = deed == Deed::Add;
    let patch = match (kind, add) {
        ("ConfigMap", true) => json!({ "data": { "extra": "1" }, "binaryData": { "more": "AAAA" } }),
        ("ConfigMap", false) => json!({ "data": null }),
        ("Role" | "ClusterRole", true) => {
            json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] })
        }
        ("Role" | "ClusterRole", false) => json!({ "rules": null }),
        ("RoleBinding" | "ClusterRoleBinding", true) => {
            json!({ "subjects": [{ "kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io" }] })
        }
        ("RoleBinding" | "ClusterRoleBinding", false) => json!({ "subjects": null }),
        ("ServiceAccount", _) => json!({ "automountServiceAccountToken": !add }),
        ("NetworkPolicy", true) => json!({ "spec": { "egress": [{}], "policyTypes": ["Egress"] } }),
        ("NetworkPolicy", false) => json!({ "spec": { "podSelector": { "matchLabels": null } } }),
        ("Service", true) => {
            json!({ "spec": { "sessionAffinity": "ClientIP", "selector": { "more": "1" } } })
        }
        ("Service", false) => json!({ "spec": { "selector": null } }),
        ("DaemonSet" | "Deployment", true) => json!({ "spec": { "minReadySeconds": 3, "template": {
            "metadata": { "annotations": { "more": "1" }, "labels": { "more": "1" } },
            "spec": { "hostPID": true, "dnsPolicy": "None", "dnsConfig": { "nameservers": ["10.0.0.1"] } },
        } } }),
        ("DaemonSet" | "Deployment", false) => {
            json!({ "spec": { "template": { "spec": { "volumes": null, "nodeSelector": null, "affinity": null } } } })
        }
        ("SecurityContextConstraints", _) => json!({ "users": if add { json!(["x"]) } else { json!([]) } }),
        ("MachineConfig", _) => json!({ "spec": { "fips": add } }),
        (_, _) => json!({ "spec": { "names": { "shortNames": ["x"] } } }),
    };
    if try_merge(rig, kind, name, &patch).await { String::new() } else { "(refused)".to_owned() }
}

/// Adds an owner: besides us, or one that does not exist and takes the object with it.
async fn adopt(rig: &Rig, kind: &str, name: &str, random: &mut Random) -> String {
    let Some(object) = rig.get(kind, name).await else { return "is not there".to_owned() };
    let pool = rig.get("MachineConfigPool", "worker").await.unwrap();
    let there = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
        "uid": pool["metadata"]["uid"],
    });
    let nobody = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    let mut owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let what = match pick(random, 3) {
        0 => {
            owners.push(there);
            "with another"
        }
        1 => {
            owners = vec![there];
            "to another"
        }
        _ => {
            owners = vec![nobody];
            "to nobody"
        }
    };
    let done = try_merge(rig, kind, name, &json!({ "metadata": { "ownerReferences": owners } })).await;
    format!("{what} {done}")
}

/// Replaces an object by one of another owner.
pub(super) async fn usurp(
    rig: &Rig,
    kind: &str,
    name: &str,
    wanted: &Dump,
    usurped: &mut Vec<(String, String)>,
) -> String {
    // The definition is shared, and a pool's content is not for others to bring.
    if matches!(kind, "CustomResourceDefinition") {
        return "not this".to_owned();
    }
    let key = wanted.keys().find(|key| key.starts_with(&format!("{kind}.")) && key.ends_with(name)).unwrap();
    let mut theirs = wanted[key].clone();
    let namespace = theirs["metadata"]["namespace"].clone();
    theirs["metadata"] = json!({ "name": name, "namespace": namespace });
    theirs.as_object_mut().unwrap().remove("status");
    if kind == "Service" {
        theirs["spec"].as_object_mut().unwrap().retain(|field, _| !field.starts_with("clusterIP"));
    }
    let params = kube::api::PostParams { field_manager: Some(SOMEBODY.to_owned()), ..Default::default() };
    // The operator may be quicker.
    for _ in 0..20 {
        let _ = rig.api(kind).delete(name, &Default::default()).await;
        if rig.api(kind).create(&params, &serde_json::from_value(theirs.clone()).unwrap()).await.is_ok() {
            usurped.push((kind.to_owned(), name.to_owned()));
            return "taken".to_owned();
        }
    }
    "not taken".to_owned()
}

/// Users change their minds.
async fn wish(rig: &Rig, random: &mut Random) -> String {
    let (kind, name, _) = &wishes()[pick(random, 2)];
    let level = ["Normal", "Debug", "Trace", "TraceAll"][pick(random, 4)];
    rig.merge(kind, name, &json!({ "spec": { "logLevel": level } })).await;
    format!("{name} {level}")
}
