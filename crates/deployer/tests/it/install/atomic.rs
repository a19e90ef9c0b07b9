//! A deployment that fails leaves what was there before, if asked to.

use super::objects::{find, object};
use super::*;

fn atomic() -> Settings {
    Settings { atomic: true, ..quick() }
}

/// The parts, and behind them what the API server does not take.
fn broken(variant: &Variant) -> Vec<Part> {
    let mut broken = parts(variant);
    let mut objects = broken[2].objects().to_vec();
    objects.push(object(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "scheduler", "namespace": "numa-scheduler" },
        "spec": { "minAvailable": 1, "maxUnavailable": 1 },
    })));
    broken[2] = Part::new(Component::Scheduler, objects);
    broken
}

#[tokio::test]
async fn a_failure_restores_what_was_there() {
    let Some(rig) = Rig::start().await else { return };
    let _manager = rig.control.start_controller_manager().await.unwrap();
    settled(&rig.admin).await.unwrap();
    let empty = rig.dump().await;
    let none = Variant { replicas: 0, ..Variant::default() };

    let mut log = Log::default();
    let stop = CancellationToken::new();
    let result = deploy(&rig.client, &broken(&none), &atomic(), &mut log.observe(), &stop).await;
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::RolledBack { failures, .. } if failures.is_empty()), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("applying PodDisruptionBudget numa-scheduler/scheduler: "), "{text}");
    assert!(text.ends_with("; the previous state is restored"), "{text}");
    let back = log.0.iter().position(|line| line == "RollingBack").unwrap();
    assert_eq!(log.0[back + 1], "Deleted Deployment numa-scheduler/scheduler", "the last comes first");
    assert_same(&empty, &rig.dump().await);

    // Over an earlier version that another client has changed.
    rig.deploy(&parts(&none), &Settings { wait: true, ..quick() }).await.unwrap();
    let map = find(&parts(&none), "ConfigMap numa/updater");
    rig.merge(&map, &json!({ "data": { "more": "theirs", "text": "theirs too" } })).await;
    settled(&rig.admin).await.unwrap();
    let before = rig.dump().await;
    let newer = Variant { text: "two", role: "other", image: "any:2", ..none.clone() };
    let mut log = Log::default();
    let result = deploy(&rig.client, &broken(&newer), &atomic(), &mut log.observe(), &stop).await;
    assert!(
        matches!(result.unwrap_err(), Error::RolledBack { failures, .. } if failures.is_empty()),
        "{:?}",
        log.0
    );
    for name in ["ConfigMap numa/updater", "ClusterRoleBinding numa-updater", "DaemonSet numa/updater"] {
        assert!(log.0.contains(&format!("Restored {name}")), "{:?}", log.0);
    }
    settled(&rig.admin).await.unwrap();
    assert_same(&relevant(before), &relevant(rig.dump().await));
    // What the next deployment finds is as if nothing had been.
    let outcome = rig.deploy(&parts(&none), &quick()).await.unwrap();
    let changed: Vec<_> = changes(&outcome).into_iter().filter(|(_, c)| *c != Change::Unchanged).collect();
    assert_eq!(changed, [(map.to_string(), Change::Configured)]);
}

#[tokio::test]
async fn stopping_restores_too_and_what_cannot_be_restored_is_told() {
    let Some(rig) = Rig::start().await else { return };
    let first = parts(&Variant::default());
    rig.deploy(&first, &quick()).await.unwrap();
    let before = rig.dump().await;
    let second = parts(&Variant { text: "two", image: "any:2", ..Variant::default() });
    let stop = CancellationToken::new();
    let mut log = Vec::new();
    let mut observer = |step: &Step<'_>| {
        log.push(line(step));
        if log.last().unwrap() == "Configured DaemonSet numa/updater" {
            stop.cancel();
        }
    };
    let error = deploy(&rig.client, &second, &atomic(), &mut observer, &stop).await.unwrap_err();
    assert!(error.is_cancelled() && matches!(error, Error::RolledBack { .. }), "{error}");
    assert_same(&relevant(before), &relevant(rig.dump().await));

    // Half of the cluster does not answer as it should.
    rig.proxy.fail("PUT", "/configmaps/updater", 1, Fault::Status(403));
    rig.proxy.fail("PUT", "/daemonsets/updater", 1, Fault::Status(503));
    let stop = CancellationToken::new();
    let mut observer = |step: &Step<'_>| {
        if line(step) == "Configured DaemonSet numa/updater" {
            stop.cancel();
        }
    };
    let error = deploy(&rig.client, &second, &atomic(), &mut observer, &stop).await.unwrap_err();
    let Error::RolledBack { failures, .. } = &error else { panic!("{error}") };
    assert_eq!(failures, &["restoring ConfigMap numa/updater: 403 Forbidden: as the test wants it"]);
    assert!(error.to_string().contains("the previous state could not be restored completely: "), "{error}");
    let set = rig.get(&find(&first, "DaemonSet numa/updater")).await.unwrap();
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "any:1", "the rest is");
}
