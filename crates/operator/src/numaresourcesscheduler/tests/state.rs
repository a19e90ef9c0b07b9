//! Status and conditions, and when nothing is touched.

use super::*;

/// S002, S023, S030, S031: how many nodes there are, and what is asked for.
#[test]
fn nodes_limit_the_replicas() {
    let too_many = "explicitly set replicas count should not be greater than the number of nodes with the role control-plane: ";
    for (nodes, asked, wanted) in [
        (
            0,
            None,
            Err("failed to compute scheduler replicas: there is no node with the role control-plane"
                .to_owned()),
        ),
        (1, None, Ok(1)),
        (3, None, Ok(3)),
        (3, Some(3), Ok(3)),
        (2, Some(3), Err(format!("{too_many}3 > 2"))),
    ] {
        let mut cluster = asking(|spec| spec.replicas = asked);
        cluster.nodes = control_planes(nodes);
        match wanted {
            Ok(replicas) => {
                assert_eq!(deployment(&cluster)["spec"]["replicas"], replicas);
                let status = status_of(&cluster);
                assert_eq!(holding(&status)[0].0, "Progressing/DeploymentIsUpdating");
                let degraded = condition(&status, "Degraded");
                assert_eq!((degraded.reason.as_str(), degraded.message.as_str()), ("Degraded", ""));
            }
            Err(message) => {
                assert_eq!(desired(&cluster), Desired::Keep);
                assert_eq!(holding(&status_of(&cluster))[0], ("Degraded/InternalError".to_owned(), message));
            }
        }
    }
}

/// S008, S009
#[test]
fn the_status_reports_existing_objects() {
    for (seconds, nanos) in [(11, 0), (7, 400_000_000)] {
        let mut cluster = asking(|spec| {
            spec.cache_resync_period = Some(GoDuration(seconds * 1_000_000_000 + nanos));
            spec.scheduler_name = "x".to_owned();
        });
        running(&mut cluster, 3, 3, 3);
        let found = serde_json::to_value(status_of(&cluster)).unwrap();
        assert_eq!(found["deployment"], json!({ "namespace": NAMESPACE, "name": "secondary-scheduler" }));
        assert_eq!(found["schedulerName"], "x");
        assert_eq!(found["cacheResyncPeriod"], format!("{seconds}s"));
        assert_eq!(
            found["relatedObjects"],
            json!([
                { "group": "", "resource": "namespaces", "name": NAMESPACE },
                { "group": "apps", "resource": "deployments", "namespace": NAMESPACE, "name": "secondary-scheduler" },
            ])
        );
    }
}

/// B-11, B-12: it is available when the newest of it runs, and only as long as it does.
#[test]
fn the_state_is_that_of_the_deployment() {
    let all = ["Available/Available", "Upgradeable/Upgradeable"].as_slice();
    let updating = ["Progressing/DeploymentIsUpdating"].as_slice();
    let stuck = ["Degraded/DeploymentIsStuck"].as_slice();
    // updated, available, what is changed besides
    let unseen = |live: &mut Value| live["metadata"]["generation"] = json!(8);
    let old_ones = |live: &mut Value| live["status"]["replicas"] = json!(4);
    let given_up = |live: &mut Value| {
        let gave_up =
            json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" });
        live["status"]["conditions"].as_array_mut().unwrap().push(gave_up);
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let table: [(&str, i64, i64, Change, &[&str]); 9] = [
        ("done", 3, 3, &|_| {}, all),
        ("a node restarts", 3, 2, &|live| live["status"]["conditions"][0]["status"] = json!("True"), all),
        ("B-11: crashed", 3, 0, &|_| {}, updating),
        ("B-12: not seen yet", 3, 3, &unseen, updating),
        ("B-12: the old ones still run", 1, 3, &|_| {}, updating),
        ("one too many", 3, 3, &old_ones, updating),
        ("given up", 1, 2, &given_up, stuck),
        ("given up once, runs now", 3, 3, &given_up, all),
        ("nothing known", 3, 3, &|live| live["status"] = Value::Null, updating),
    ];
    for (name, updated, available, change, wanted) in table {
        let mut cluster = cluster();
        running(&mut cluster, 3, updated, available);
        let (key, mut live) =
            cluster.observed.iter().map(|(key, live)| (key.clone(), live.clone())).next().unwrap();
        change(&mut live);
        cluster.observed.insert(key, live);
        let held = holding(&status_of(&cluster));
        let held: Vec<&str> = held.iter().map(|(held, _)| held.as_str()).collect();
        assert_eq!(held, [wanted, &["DedicatedInformerActive/DedicatedInformerActive"]].concat(), "{name}");
    }
    let mut none = cluster();
    none.observed = ObservedObjects::default();
    assert_eq!(holding(&status_of(&none))[0].0, "Progressing/DeploymentIsUpdating");
    // E27
    let mut off = asking(|spec| spec.replicas = Some(0));
    running(&mut off, 0, 0, 0);
    assert_eq!(holding(&status_of(&off))[0].0, "Available/Available");
}

/// B-26: a condition that an older operator did not write comes; others' stay; times change when something turns.
#[test]
fn conditions_that_are_missing_come_back() {
    let mut cluster = cluster();
    running(&mut cluster, 3, 3, 3);
    let before = jiff::Timestamp::UNIX_EPOCH;
    let of = |name: &str, status: &str| Condition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: name.to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(before),
    };
    the_one(&mut cluster).status.conditions = vec![
        of("Available", "True"),
        of("Upgradeable", "True"),
        of("Progressing", "True"),
        of("Degraded", "False"),
    ];
    let found = status_of(&cluster);
    let names: Vec<&str> = found.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(names, ["Available", "Upgradeable", "Progressing", "Degraded", "DedicatedInformerActive"]);
    let time = |name: &str| condition(&found, name).last_transition_time.0;
    assert_eq!(
        (time("Available"), time("Progressing"), time("DedicatedInformerActive")),
        (before, now(), now())
    );
    assert!(found.conditions.iter().all(|condition| condition.observed_generation == Some(4)));
}

#[test]
fn failures_are_reported() {
    let mut cluster = cluster();
    running(&mut cluster, 3, 3, 3);
    let done = Outcome { errors: vec!["b".to_owned(), "a".to_owned()], ..Outcome::default() };
    let (_, found) = status(&cluster, &done, now()).remove(0);
    assert_eq!(holding(&found)[0], ("Degraded/InternalError".to_owned(), "a\nb".to_owned()));
}

/// Without anybody who asks nothing is wanted; what is paused or leaves stays as it is, and nothing is said of it.
#[test]
fn paused_objects_stay_as_they_are() {
    let mut none = cluster();
    none.schedulers.clear();
    assert_eq!(desired(&none), Desired::Nothing);
    assert_eq!(status(&none, &Outcome::default(), now()), []);

    let mut paused = cluster();
    let pause = |value: &str| Some([(keys::PAUSE.to_owned(), value.to_owned())].into());
    the_one(&mut paused).metadata.annotations = pause(keys::ENABLED);
    assert_eq!(desired(&paused), Desired::Keep);
    assert_eq!(status(&paused, &Outcome::default(), now()), []);
    the_one(&mut paused).metadata.annotations = pause("Enabled");
    assert!(matches!(desired(&paused), Desired::Objects(_)));

    let mut leaving = cluster();
    the_one(&mut leaving).metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(desired(&leaving), Desired::Keep);
    assert_eq!(status(&leaving, &Outcome::default(), now()), []);
}

/// One of another name, which the old version of the API may have let in, is told so, and changes nothing.
#[test]
fn only_one_name_is_accepted() {
    let mut cluster = cluster();
    let mut other = cluster.schedulers[keys::SCHEDULER].clone();
    other.metadata.name = Some("other".to_owned());
    other.spec.scheduler_name = "other".to_owned();
    cluster.schedulers.insert("other".to_owned(), other);
    assert!(!text(&cluster).contains("other"));
    let all = status(&cluster, &Outcome::default(), now());
    let [(_, _), (name, found)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(name, "other");
    let (held, message) = holding(found).remove(0);
    assert_eq!(held, "Degraded/IncorrectNUMAResourcesSchedulerResourceName");
    assert!(message.contains("incorrect NUMAResourcesScheduler resource name: other"), "{message}");
    assert_eq!(condition(found, "DedicatedInformerActive").status, "Unknown");
    cluster.schedulers.remove(keys::SCHEDULER);
    assert_eq!(desired(&cluster), Desired::Nothing);
}

/// A refused request leaves what works as it is: Degraded, and Available as before.
#[test]
fn a_refused_request_is_available_while_the_earlier_one_works() {
    let refuse = |spec: &mut Spec| spec.image_spec = digest('b');
    for (available, wanted) in [
        (3, vec!["Available/Available", "Degraded/InvalidSchedulerImage"]),
        (0, vec!["Degraded/InvalidSchedulerImage"]),
    ] {
        let mut cluster = cluster();
        running(&mut cluster, 3, 3, available);
        refuse(&mut the_one(&mut cluster).spec);
        assert_eq!(desired(&cluster), Desired::Keep);
        let mut held: Vec<String> = holding(&status_of(&cluster)).into_iter().map(|(held, _)| held).collect();
        held.retain(|held| !held.starts_with("DedicatedInformer"));
        assert_eq!(held, wanted);
    }
    assert_eq!(holding(&status_of(&asking(refuse)))[0].0, "Degraded/InvalidSchedulerImage");
}

#[test]
fn schedulers_in_other_namespaces_are_degraded() {
    let mut cluster = cluster();
    running(&mut cluster, 3, 3, 3);
    cluster.elsewhere.insert(ObjectKey::of::<Deployment>(Some("there"), "secondary-scheduler"));
    let (held, message) = holding(&status_of(&cluster)).remove(0);
    assert_eq!(held, "Degraded/OperandsInOtherNamespace");
    assert!(message.contains("Deployment there/secondary-scheduler"), "{message}");
}
