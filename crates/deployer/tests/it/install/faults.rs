//! An API server that fails now and then: the deployment gets through, or ends with what it said.

use super::*;

#[tokio::test]
async fn passing_failures_pass() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    rig.deploy(&parts, &quick()).await.unwrap();
    settled(&rig.admin).await.unwrap();
    let wanted = rig.dump().await;
    // Of what is deployed anew, definitions take the longest; the rest says as much.
    let removed = [Component::Scheduler];
    let faults = [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(504),
        Fault::TooMany(1),
        Fault::Mute,
        Fault::Cut(20),
    ];
    // A silent server is given up on after a third of this.
    let settings = Settings { patience: Duration::from_secs(6), ..quick() };
    for fault in faults {
        for (method, path) in [
            ("PATCH", "/serviceaccounts/"),
            ("GET", "/roles/"),
            ("PATCH", "/priorityclasses/numa"),
            ("GET", "/configmaps?"),
        ] {
            rig.proxy.fail(method, path, 1, fault);
        }
        let outcome =
            rig.deploy(&parts, &settings).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(outcome.applied.len(), 13);
        assert_same(&wanted, &rig.dump().await);
        rig.proxy.fail("DELETE", "/serviceaccounts/", 1, fault);
        rig.proxy.fail("DELETE", "/priorityclasses/", 1, fault);
        // No controller empties namespaces here, so the test leaves them out.
        let dry = Settings { dry_run: Some(DryRun::Server), ..settings.clone() };
        let removal = rig.remove(&removed, &dry).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(removal.deleted.len(), 5, "{fault:?}");
        rig.proxy.heal();
    }
}

#[tokio::test]
async fn writes_that_meet_others_are_done_again() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    for path in ["/namespaces/numa?", "/configmaps/", "/deployments/"] {
        rig.proxy.fail("PATCH", path, 2, Fault::Status(409));
    }
    // A kind that one of several API servers does not serve yet.
    rig.proxy.fail("PATCH", "/networkpolicies/", 2, Fault::Status(404));
    let outcome = rig.deploy(&parts, &quick()).await.unwrap();
    assert!(outcome.applied.iter().all(|(_, _, change)| *change == Change::Created));
}

#[tokio::test]
async fn failures_that_last_are_told_in_one_line() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    // An attempt may take a third of it, on a busy machine too.
    let settings = Settings { patience: Duration::from_secs(3), ..quick() };
    for (fault, want) in [
        (Fault::Status(403), "applying ConfigMap numa/updater: 403 Forbidden: as the test wants it"),
        (Fault::Status(500), "applying ConfigMap numa/updater: 500 InternalError: as the test wants it"),
        (Fault::TooMany(60), "applying ConfigMap numa/updater: 429 TooManyRequests: as the test wants it"),
        (Fault::Silence, "applying ConfigMap numa/updater: no answer within 1s"),
        (
            Fault::Status(409),
            "applying ConfigMap numa/updater: the object, its kind or its namespace keeps changing",
        ),
    ] {
        rig.proxy.fail("PATCH", "/configmaps/", u32::MAX, fault);
        let error = rig.deploy(&parts, &settings).await.unwrap_err().to_string();
        assert_eq!(error, want, "{fault:?}");
        rig.proxy.heal();
    }
    // It goes on where it stopped.
    let outcome = rig.deploy(&parts, &quick()).await.unwrap();
    let (there, made): (Vec<_>, Vec<_>) =
        changes(&outcome).into_iter().partition(|(_, change)| *change == Change::Unchanged);
    assert_eq!((there.len(), made.len()), (3, 10), "{made:?}");
}
