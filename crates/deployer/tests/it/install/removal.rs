//! Removing takes all that deploying made, and nothing else.

use kube::api::PostParams;

use super::objects::{find, object};
use super::*;

fn waiting() -> Settings {
    Settings { wait: true, ..quick() }
}

fn variant() -> Variant {
    // Nothing schedules pods here.
    Variant { replicas: 0, ..Variant::default() }
}

#[tokio::test]
async fn removing_leaves_the_cluster_as_it_was() {
    let Some(rig) = Rig::start().await else { return };
    let _manager = rig.control.start_controller_manager().await.unwrap();
    settled(&rig.admin).await.unwrap();
    let before = rig.dump().await;
    for round in 0..2 {
        let outcome = rig.deploy(&parts(&variant()), &waiting()).await.unwrap();
        let findings: Vec<_> =
            outcome.findings.iter().map(|(_, object, text)| format!("{object}: {text}")).collect();
        assert_eq!(findings, ["DaemonSet numa/updater: no node matches, so it has no pods"], "{round}");
        // Reports go with their definition.
        rig.make(&json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": { "name": "node-0" }, "topologyPolicies": ["None"], "zones": [],
        }))
        .await;
        // Options of another deployment do not matter: it is found by its marks.
        let removal = rig.remove(&Component::ALL, &waiting()).await.unwrap();
        assert_eq!(removal.kept, []);
        assert_eq!(removal.deleted.len(), outcome.applied.len());
        assert_same(&before, &rig.dump().await);
        let again = rig.remove(&Component::ALL, &waiting()).await.unwrap();
        assert_eq!(again, Removal::default(), "what is gone is no error");
    }
}

#[tokio::test]
async fn components_go_one_by_one_and_dry_runs_take_nothing() {
    let Some(rig) = Rig::start().await else { return };
    let _manager = rig.control.start_controller_manager().await.unwrap();
    settled(&rig.admin).await.unwrap();
    let mut before = vec![rig.dump().await];
    for number in 0..3 {
        rig.deploy(&parts(&variant())[number..=number], &waiting()).await.unwrap();
        settled(&rig.admin).await.unwrap();
        before.push(rig.dump().await);
    }
    for dry_run in [DryRun::Client, DryRun::Server] {
        let settings = Settings { dry_run: Some(dry_run), ..waiting() };
        assert_eq!(rig.remove(&Component::ALL, &settings).await.unwrap().deleted.len(), 13);
        assert_same(&before[3], &rig.dump().await);
    }
    for component in Component::ALL.into_iter().rev() {
        before.pop();
        rig.remove(&[component], &waiting()).await.unwrap();
        assert_same(before.last().unwrap(), &rig.dump().await);
    }
}

#[tokio::test]
async fn a_namespace_stays_with_what_others_put_into_it() {
    let Some(rig) = Rig::start().await else { return };
    let _manager = rig.control.start_controller_manager().await.unwrap();
    let parts = parts(&variant());
    rig.deploy(&parts, &waiting()).await.unwrap();
    let users = rig
        .make(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "users", "namespace": "numa" } }))
        .await;
    let removal = rig.remove(&Component::ALL, &waiting()).await.unwrap();
    let kept: Vec<_> = removal.kept.iter().map(|(_, object, why)| format!("{object}: {why}")).collect();
    assert_eq!(kept, ["Namespace numa: it has objects of others: ConfigMap users"]);
    let namespace = find(&parts, "Namespace numa");
    assert!(rig.get(&users).await.is_some() && rig.get(&namespace).await.is_some());
    assert!(rig.get(&find(&parts, "DaemonSet numa/updater")).await.is_none(), "the rest is gone");
    rig.remove(&Component::ALL, &Settings { force: true, ..waiting() }).await.unwrap();
    assert!(rig.get(&users).await.is_none() && rig.get(&namespace).await.is_none());
}

/// As on OpenShift, where one namespace has both.
#[tokio::test]
async fn the_last_one_out_removes_the_namespace() {
    let Some(rig) = Rig::start().await else { return };
    let _manager = rig.control.start_controller_manager().await.unwrap();
    settled(&rig.admin).await.unwrap();
    let before = rig.dump().await;
    let map = |name: &str| {
        object(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "both" } }),
        )
    };
    let namespace =
        || object(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "both" } }));
    let shared = [
        Part::new(Component::Exporter, [namespace(), map("a")]),
        Part::new(Component::Scheduler, [namespace(), map("b")]),
    ];
    for orders in [[0, 1], [1, 0]] {
        for part in orders {
            rig.deploy(&shared[part..=part], &quick()).await.unwrap();
        }
        let outcome = rig.deploy(&shared, &quick()).await.unwrap();
        assert!(
            outcome.applied.iter().all(|(_, _, change)| *change == Change::Unchanged),
            "{:?}",
            changes(&outcome)
        );
        // The first to be removed is the first that came, so that the namespace has its mark.
        let components = orders.map(|part| shared[part].component());
        let removal = rig.remove(&components[..1], &waiting()).await.unwrap();
        let kept: Vec<_> = removal.kept.iter().map(|(_, object, why)| format!("{object}: {why}")).collect();
        assert_eq!(kept, [format!("Namespace both: {} is in it", components[1])]);
        assert_eq!(rig.remove(&components[1..], &waiting()).await.unwrap().kept, []);
        assert_same(&before, &rig.dump().await);

        for part in orders {
            rig.deploy(&shared[part..=part], &quick()).await.unwrap();
        }
        let removal = rig.remove(&Component::ALL, &waiting()).await.unwrap();
        assert_eq!((removal.kept, removal.deleted.len()), (vec![], 3));
        assert_same(&before, &rig.dump().await);
    }
}

#[tokio::test]
async fn a_failure_stops_neither_the_rest_nor_the_other_components() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&variant());
    rig.deploy(&parts, &quick()).await.unwrap();
    rig.proxy.fail("DELETE", "/serviceaccounts/scheduler", 1, Fault::Status(403));
    rig.proxy.fail("GET", "/clusterroles?", 1, Fault::Status(403));
    let mut log = Log::default();
    let stop = CancellationToken::new();
    let error = remove(&rig.client, &Component::ALL, &quick(), &mut log.observe(), &stop).await.unwrap_err();
    let Error::Several(errors) = &error else { panic!("{error}") };
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let want = [
        "listing ClusterRole objects: 403 Forbidden: as the test wants it",
        "deleting ServiceAccount numa-scheduler/scheduler: 403 Forbidden: as the test wants it",
    ];
    assert_eq!(texts, want);
    let told = format!("Failed ServiceAccount numa-scheduler/scheduler: {}", want[1]);
    assert!(log.0.contains(&told), "{:?}", log.0);
    assert!(rig.get(&find(&parts, "DaemonSet numa/updater")).await.is_none());
    until("the definition is gone", async || rig.get(&parts[0].objects()[0]).await.is_none()).await;
}

/// Definitions that are not the report's, which only programs write.
#[tokio::test]
async fn a_definition_with_objects_stays() {
    let Some(rig) = Rig::start().await else { return };
    let definition = object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "groups.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Group", "plural": "groups", "singular": "group", "listKind": "GroupList" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    }));
    let with = [Part::new(Component::Scheduler, [definition.clone()])];
    rig.deploy(&with, &quick()).await.unwrap();
    let group = object(json!({ "apiVersion": "example.com/v1", "kind": "Group",
        "metadata": { "name": "users", "namespace": "default" } }));
    let groups = api(&rig.admin, &group);
    let body = serde_json::from_value(group.body().clone()).unwrap();
    until("served", async || groups.create(&PostParams::default(), &body).await.is_ok()).await;

    let why = "objects of this kind exist";
    let without = [Part::new(Component::Scheduler, [])];
    let outcome = rig.deploy(&without, &quick()).await.unwrap();
    assert_eq!(outcome.kept.len(), 1);
    assert_eq!((outcome.kept[0].2.as_str(), outcome.pruned.len()), (why, 0));
    let removal = rig.remove(&Component::ALL, &quick()).await.unwrap();
    assert_eq!(removal.kept[0].2, why);
    groups.delete("users", &Default::default()).await.unwrap();
    rig.remove(&Component::ALL, &waiting()).await.unwrap();
    assert!(rig.get(&definition).await.is_none());
}
