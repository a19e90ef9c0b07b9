//! The same call again changes nothing; another one changes what is different, and nothing else.

use super::objects::{find, names};
use super::*;

#[tokio::test]
async fn the_same_again_changes_nothing_and_something_else_only_that() {
    let Some(rig) = Rig::start().await else { return };
    let first = parts(&Variant::default());
    let all = |change: Change| -> Vec<(String, Change)> {
        names(&first).into_iter().map(|name| (name, change)).collect()
    };

    // Looking leaves no trace.
    let empty = rig.dump().await;
    let texts = |parts: Vec<Part>| {
        let client = rig.client.clone();
        async move { diff(&client, &parts, &quick(), &CancellationToken::new()).await.unwrap() }
    };
    assert_eq!(texts(first.clone()).await.len(), names(&first).len());
    let dry = Settings { dry_run: Some(DryRun::Server), ..quick() };
    let outcome = rig.deploy(&first, &dry).await.unwrap();
    assert_eq!(
        (changes(&outcome), outcome.warnings, outcome.findings),
        (all(Change::Created), vec![], vec![])
    );
    assert_same(&empty, &rig.dump().await);
    let writes = rig.writes();
    let dry_client = Settings { dry_run: Some(DryRun::Client), ..quick() };
    assert_eq!(changes(&rig.deploy(&first, &dry_client).await.unwrap()), all(Change::Created));
    assert_eq!(rig.writes(), writes, "only reads");

    let outcome = rig.deploy(&first, &quick()).await.unwrap();
    assert_eq!((changes(&outcome), outcome.warnings), (all(Change::Created), vec![]));
    let deployed = rig.dump().await;
    for settings in [quick(), dry.clone(), dry_client.clone()] {
        let outcome = rig.deploy(&first, &settings).await.unwrap();
        assert_eq!((changes(&outcome), outcome.pruned), (all(Change::Unchanged), vec![]), "{settings:?}");
        assert_same(&deployed, &rig.dump().await);
    }
    assert_eq!(texts(first.clone()).await, <[String; 0]>::default());

    // What others state besides stays; what they state of ours does not.
    let map = find(&first, "ConfigMap numa/updater");
    rig.merge(
        &map,
        &json!({ "metadata": { "labels": { "mine": "1" } }, "data": { "text": "theirs", "more": "1" } }),
    )
    .await;
    let second = parts(&Variant { text: "two", ..Variant::default() });
    for settings in [&dry_client, &dry, &quick()] {
        let outcome = rig.deploy(&second, settings).await.unwrap();
        let changed: Vec<_> =
            changes(&outcome).into_iter().filter(|(_, c)| *c != Change::Unchanged).collect();
        assert_eq!(changed, [(map.to_string(), Change::Configured)], "{settings:?}");
    }
    let live = rig.get(&map).await.unwrap();
    assert_eq!(live["data"], json!({ "text": "two", "more": "1" }));
    assert_eq!(live["metadata"]["labels"]["mine"], "1");

    // A diff is what would be.
    let third = parts(&Variant { text: "three", config: true, ..Variant::default() });
    let differences = texts(third).await;
    assert_eq!(differences.len(), 1);
    assert!(differences[0].contains("\n-  text: two\n+  text: three\n"), "{}", differences[0]);
    assert!(differences[0].starts_with("--- cluster/ConfigMap numa/updater\n+++ "));
    assert!(!differences[0].contains("managedFields"));
}

#[tokio::test]
async fn what_is_no_longer_wanted_goes_when_the_rest_is_there() {
    let Some(rig) = Rig::start().await else { return };
    rig.deploy(&parts(&Variant::default()), &quick()).await.unwrap();
    let with = rig.dump().await;
    // An object of others with one of our labels.
    rig.make(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "foreign", "namespace": "numa", "labels": { "app.kubernetes.io/component": "exporter" },
    } }))
    .await;

    let without = parts(&Variant { config: false, ..Variant::default() });
    // Another component's deployment prunes nothing of this one's.
    let outcome = rig.deploy(&without[2..], &quick()).await.unwrap();
    assert_eq!(outcome.pruned, []);
    let mut log = Log::default();
    let stop = CancellationToken::new();
    let outcome = deploy(&rig.client, &without, &quick(), &mut log.observe(), &stop).await.unwrap();
    let pruned: Vec<String> = outcome.pruned.iter().map(|(_, object)| object.to_string()).collect();
    assert_eq!(pruned, ["ConfigMap numa/updater"]);
    assert_eq!(log.0.last().unwrap(), "Deleted ConfigMap numa/updater", "last of all: {:?}", log.0);
    let gone = difference(&with, &rig.dump().await);
    assert_eq!(gone.len(), 2, "{gone:?}");
}

#[tokio::test]
async fn what_cannot_be_changed_is_made_anew() {
    let Some(rig) = Rig::start().await else { return };
    rig.deploy(&parts(&Variant::default()), &quick()).await.unwrap();
    let other = parts(&Variant { role: "other", ..Variant::default() });
    let binding = find(&other, "ClusterRoleBinding numa-updater");
    let uid = rig.get(&binding).await.unwrap()["metadata"]["uid"].clone();
    for dry_run in [Some(DryRun::Client), Some(DryRun::Server), None] {
        let mut log = Log::default();
        let settings = Settings { dry_run, ..quick() };
        let stop = CancellationToken::new();
        let outcome = deploy(&rig.client, &other, &settings, &mut log.observe(), &stop).await.unwrap();
        let changed: Vec<_> =
            changes(&outcome).into_iter().filter(|(_, c)| *c != Change::Unchanged).collect();
        assert_eq!(changed, [(binding.to_string(), Change::Recreated)], "{dry_run:?}");
        let told = "Recreating ClusterRoleBinding numa-updater: roleRef cannot be changed".to_owned();
        assert!(log.0.contains(&told), "{:?}", log.0);
        let live = rig.get(&binding).await.unwrap();
        assert_eq!(live["metadata"]["uid"] == uid, dry_run.is_some());
        let role = if dry_run.is_some() { "numa-updater" } else { "numa-other" };
        assert_eq!(live["roleRef"]["name"], role);
    }
    // Not among the fields that are known to be so: the API server says it.
    let valued = |value: i32| {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "numa" },
            "value": 1000, "preemptionPolicy": if value == 0 { "Never" } else { "PreemptLowerPriority" },
        });
        vec![Part::new(Component::Scheduler, [objects::object(class)])]
    };
    rig.deploy(&valued(1), &quick()).await.unwrap();
    let outcome = rig.deploy(&valued(0), &quick()).await.unwrap();
    assert_eq!(changes(&outcome), [("PriorityClass numa".to_owned(), Change::Recreated)]);
}

#[tokio::test]
async fn warnings_of_the_api_server_are_told() {
    let Some(rig) = Rig::start().await else { return };
    let mut variant = parts(&Variant::default());
    let mut body = find(&variant, "Deployment numa-scheduler/scheduler").body().clone();
    // Anything it takes and warns of will do.
    body["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "1" }]);
    body["spec"]["template"]["metadata"]["annotations"] =
        json!({ "scheduler.alpha.kubernetes.io/critical-pod": "" });
    variant[2] =
        Part::new(Component::Scheduler, [find(&variant, "Namespace numa-scheduler"), objects::object(body)]);
    for dry_run in [Some(DryRun::Server), None] {
        let outcome = rig.deploy(&variant, &Settings { dry_run, ..quick() }).await.unwrap();
        let warned: Vec<_> =
            outcome.warnings.iter().map(|(_, object, text)| format!("{object}: {text}")).collect();
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(
            warned[0].starts_with("Deployment numa-scheduler/scheduler: ")
                && warned[0].contains("critical-pod")
        );
    }
}
