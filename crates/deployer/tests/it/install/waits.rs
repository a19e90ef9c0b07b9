//! Waits: their objects, time limits and progress.

use testkit::cluster::Cluster;
use testkit::machine::Machine;

use super::objects::find;
use super::*;

const CRD: &str = "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io";

fn waiting() -> Settings {
    Settings { wait: true, ..quick() }
}

fn numbers(kind: &str, count: i32) -> Value {
    match kind {
        "DaemonSet" => json!({
            "observedGeneration": 1, "currentNumberScheduled": count, "desiredNumberScheduled": 2, "numberMisscheduled": 0,
            "numberReady": count, "updatedNumberScheduled": 2, "numberAvailable": count,
        }),
        _ => json!({
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": count, "availableReplicas": count,
        }),
    }
}

/// The test sets the status of workloads, because no controller runs.
#[tokio::test]
async fn waits_for_workloads_report_progress() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    let (set, deployment) =
        (find(&parts, "DaemonSet numa/updater"), find(&parts, "Deployment numa-scheduler/scheduler"));
    let (told, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let (client, deployed) = (rig.client.clone(), parts.clone());
    let deploying = tokio::spawn(async move {
        let mut observer = |step: &Step<'_>| told.send(line(step)).unwrap();
        deploy(&client, &deployed, &waiting(), &mut observer, &CancellationToken::new()).await
    });
    let mut seen = Vec::new();
    let mut tells = async |wanted: String| {
        while seen.last() != Some(&wanted) {
            seen.push(tokio::time::timeout(PATIENCE, steps.recv()).await.expect(&wanted).unwrap());
        }
    };
    tells(format!("Waiting {set}: {:?}", WaitState::Unobserved)).await;
    for ready in [0, 1, 2] {
        rig.status(&set, &numbers("DaemonSet", ready)).await;
        if ready < 2 {
            let state = WaitState::DaemonSet { desired: 2, updated: 2, ready };
            tells(format!("Waiting {set}: {state:?}")).await;
        }
    }
    tells(format!("Reached {set} Deploy")).await;
    tells(format!("Waiting {deployment}: {:?}", WaitState::Unobserved)).await;
    rig.status(&deployment, &numbers("Deployment", 1)).await;
    tells("Deploy scheduler ended".to_owned()).await;
    deploying.await.unwrap().unwrap();
    let place = |line: &str| seen.iter().position(|seen| seen == line).unwrap();
    assert!(place("Deploy exporter ended") < place("Deploy scheduler"), "one after the other");
}

#[tokio::test]
async fn an_end_of_patience_says_how_far_it_got_and_why() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    let set = find(&parts, "DaemonSet numa/updater");
    // However long the definition takes: the short patience is for the DaemonSet alone.
    rig.deploy(&parts, &quick()).await.unwrap();
    let definition = find(&parts, CRD);
    until("the kind is served", async || {
        let conditions = rig.get(&definition).await.unwrap()["status"]["conditions"].clone();
        conditions
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["type"] == "Established" && one["status"] == "True")
    })
    .await;
    let settings = Settings { wait_timeout: Duration::from_millis(400), ..waiting() };
    let error = rig.deploy(&parts, &settings).await.unwrap_err();
    let want = "DaemonSet numa/updater is not ready after 400ms: the controller has not observed it";
    assert_eq!(error.to_string(), want);

    rig.status(&set, &numbers("DaemonSet", 1)).await;
    let pod = rig
        .make(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "updater-x", "namespace": "numa", "labels": { "app": "updater" } },
            "spec": { "containers": [{ "name": "main", "image": "any" }] },
        }))
        .await;
    rig.status(
        &pod,
        &json!({ "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 0, "image": "any", "imageID": "",
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } },
        }] }),
    )
    .await;
    let mut log = Log::default();
    let stop = CancellationToken::new();
    let error = deploy(&rig.client, &parts, &settings, &mut log.observe(), &stop).await.unwrap_err();
    let trouble = "pod updater-x: container main: ImagePullBackOff: no such image";
    let want = format!(
        "DaemonSet numa/updater is not ready after 400ms: of 2 pods 2 are up to date and 1 are ready; {trouble}"
    );
    assert_eq!(error.to_string(), want);
    assert!(log.0.contains(&format!("Trouble {set}: {trouble}")), "{:?}", log.0);
    assert_eq!(log.0.iter().filter(|line| line.starts_with("Trouble")).count(), 1, "told once: {:?}", log.0);
    assert_eq!(log.0.last().unwrap(), &format!("Failed {set}: {want}"));
}

#[tokio::test]
async fn cancelling_ends_a_wait() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    let stop = CancellationToken::new();
    let mut observer = |step: &Step<'_>| {
        if matches!(step, Step::Object(_, object, ObjectStep::Waiting(_)) if object.kind().kind == "DaemonSet")
        {
            stop.cancel();
        }
    };
    let slow = Settings { wait_interval: PATIENCE, ..waiting() };
    let error = deploy(&rig.client, &parts, &slow, &mut observer, &stop).await.unwrap_err();
    assert!(error.is_cancelled());
    let want = "interrupted: 8 of 13 objects are done; the next is Namespace numa-scheduler";
    assert_eq!(error.to_string(), want);
    let writes = rig.writes();
    let error = deploy(&rig.client, &parts, &slow, &mut |_: &Step<'_>| {}, &stop).await.unwrap_err();
    assert!(error.is_cancelled() && rig.writes() == writes, "{error}");
    let error = remove(&rig.client, &Component::ALL, &slow, &mut |_: &Step<'_>| {}, &stop).await.unwrap_err();
    assert!(error.is_cancelled() && rig.writes() == writes, "{error}");
}

/// A namespace that cannot go says what holds it, both to who removes it and to who deploys into it.
#[tokio::test]
async fn a_namespace_that_hangs_says_why() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    rig.deploy(&parts, &quick()).await.unwrap();
    // No controller empties namespaces here; the definition is deleted, however long that takes.
    rig.remove(&Component::ALL, &quick()).await.unwrap();
    let definition = find(&parts, CRD);
    until("the definition is gone", async || rig.get(&definition).await.is_none()).await;
    let namespace = find(&parts, "Namespace numa");
    let conditions = json!({ "phase": "Terminating", "conditions": [{
        "type": "NamespaceFinalizersRemaining", "status": "True", "reason": "SomeFinalizersRemain",
        "message": "Some content has finalizers remaining: example.com/hold in 1 resource instances",
    }] });
    rig.status(&namespace, &conditions).await;
    let settings = Settings { wait_timeout: Duration::from_millis(300), ..waiting() };
    let why = "is not gone after 300ms: Some content has finalizers remaining: example.com/hold in 1 resource instances";
    // Without the definition, which may take longer than that to be established again.
    let error = rig.deploy(&parts[1..], &settings).await.unwrap_err().to_string();
    assert_eq!(error, format!("Namespace numa {why}"));
    let error = rig.remove(&[Component::Exporter], &settings).await.unwrap_err().to_string();
    assert_eq!(error, format!("Namespace numa {why}"));
}

#[tokio::test]
async fn pods_really_come_up_or_say_why_not() {
    let Ok(rig) = rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(4);
    let cluster = Cluster::builder().machines([machine]).scheduler(true).controller_manager(true);
    let cluster = cluster.start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let go = async |variant: &Variant, settings: &Settings| {
        let mut log = Log::default();
        let stop = CancellationToken::new();
        let result = deploy(&client, &parts(variant), settings, &mut log.observe(), &stop).await;
        (result, log.0)
    };
    let first = Variant { replicas: 2, ..Variant::default() };
    let (outcome, log) = go(&first, &waiting()).await;
    assert_eq!(outcome.unwrap().findings, [], "{log:?}");

    // An upgrade: new pods, then the old ones go.
    let (outcome, log) = go(&Variant { image: "any:2", ..first.clone() }, &waiting()).await;
    let changed =
        outcome.unwrap().applied.iter().filter(|(_, _, change)| *change == Change::Configured).count();
    assert_eq!(changed, 2, "{log:?}");
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client.clone());
    let running = pods.list(&ListParams::default().fields("status.phase=Running")).await.unwrap().items;
    let images: Vec<_> = running
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap())
        .collect();
    assert_eq!(images, ["any:2"; 3]);

    // A selector cannot be changed: anew, with the old pods gone first.
    let other = Variant { selector: "other", ..first.clone() };
    let (outcome, log) = go(&other, &waiting()).await;
    let recreated =
        outcome.unwrap().applied.iter().filter(|(_, _, change)| *change == Change::Recreated).count();
    assert_eq!(recreated, 2, "{log:?}");

    // No node is like that.
    let nowhere = Variant { nodes: json!({ "no": "node" }), ..other.clone() };
    let short = Settings { wait_timeout: Duration::from_secs(3), ..waiting() };
    let (outcome, _) = go(&nowhere, &short).await;
    let error = outcome.unwrap_err().to_string();
    assert!(
        error.starts_with("Deployment numa-scheduler/scheduler is not ready after 3s: of 2 pods "),
        "{error}"
    );
    assert!(error.contains(": Unschedulable: 0/1 nodes are available"), "{error}");

    // The namespace refuses pods.
    let mut refused = parts(&other);
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "numa-scheduler",
        "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let deployment =
        find(&parts(&Variant { image: "any:3", ..other.clone() }), "Deployment numa-scheduler/scheduler");
    refused[2] = Part::new(Component::Scheduler, [objects::object(namespace), deployment]);
    let mut log = Log::default();
    let stop = CancellationToken::new();
    let error = deploy(&client, &refused, &short, &mut log.observe(), &stop).await.unwrap_err().to_string();
    assert!(error.contains("FailedCreate: ") && error.contains("violates PodSecurity"), "{error}");
    assert!(log.0.iter().any(|line| line.starts_with("Warned Deployment")), "{:?}", log.0);

    let mut log = Log::default();
    remove(&client, &Component::ALL, &waiting(), &mut log.observe(), &stop).await.unwrap();
    for gone in ["Namespace numa", "Namespace numa-scheduler"] {
        assert!(log.0.contains(&format!("Reached {gone} Remove")), "{:?}", log.0);
    }
    let left = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 0, "{left:?}");
}
