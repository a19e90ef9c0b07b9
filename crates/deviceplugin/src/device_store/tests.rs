use super::*;
use crate::config::Discovery;

fn scan(devices: &[(&str, Option<&str>)], volatile: bool) -> Scan {
    let found = |(id, problem): &(&str, Option<&str>)| {
        ((*id).into(), FoundDevice { problem: problem.map(str::to_owned), ..FoundDevice::default() })
    };
    Scan { devices: devices.iter().map(found).collect(), volatile }
}

/// The devices, unhealthy ones with `!`.
fn shown(store: &DeviceStore) -> String {
    let resource = store.resource(&Resource::new("example.com/nic", Discovery::default()));
    let device = |(id, device): (&DeviceId, &Device)| {
        if device.is_healthy() { id.to_string() } else { format!("!{id}") }
    };
    resource.devices.iter().map(device).collect::<Vec<_>>().join(" ")
}

#[test]
fn vanished_devices_are_unhealthy_and_then_forgotten() {
    let secs = Duration::from_secs;
    let policy = config::HealthPolicy {
        recover_after: secs(2),
        forget_after: secs(10),
        ..config::HealthPolicy::default()
    };
    let mut store = DeviceStore::default();
    let mut take = |at, devices: &[(&str, Option<&str>)], volatile| {
        store.update(secs(at), scan(devices, volatile), &policy);
        (shown(&store), store.next_scan_in(secs(at), &policy))
    };
    let every = policy.check_every;
    assert_eq!(take(0, &[("a", None), ("b", Some("broken"))], true), ("a !b".to_owned(), every));
    assert_eq!(take(1, &[("b", None)], true), ("!a !b".to_owned(), secs(2)));
    // Back after a reset: the device has to stay.
    assert_eq!(take(2, &[("a", None), ("b", None)], true), ("!a !b".to_owned(), secs(1)));
    assert_eq!(take(4, &[("a", None), ("b", None)], true), ("a b".to_owned(), every));
    assert_eq!(take(5, &[], true).0, "!a !b");
    assert_eq!(take(14, &[("b", None)], true).0, "!a !b");
    assert_eq!(take(15, &[("b", None)], true).0, "!b");
    // A forgotten device's health is remembered: it has to look healthy first.
    assert_eq!(take(30, &[("a", None), ("b", None)], true).0, "!a b");
    assert_eq!(take(33, &[("a", None), ("b", None)], true).0, "!a b");
    assert_eq!(take(34, &[("a", None), ("b", None)], true).0, "a b");
    assert_eq!(take(35, &[("a", None)], true).0, "a !b");
    assert_eq!(take(45, &[("a", None)], true).0, "a");
    // Health is remembered as long as the longest wait.
    assert_eq!(take(35 + 609, &[("a", None), ("b", None)], true).0, "a !b");
    assert_eq!(take(645, &[("a", None)], true).0, "a !b");
    assert_eq!(take(645 + 610, &[("a", None)], true).0, "a");
    assert_eq!(take(645 + 611, &[("a", None), ("b", None)], true).0, "a b");
    // A device removed from a list is gone at once.
    assert_eq!(take(2000, &[], false).0, "");
}

#[test]
fn unchanged_lists_only_read_health_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health");
    std::fs::write(&path, "ok").unwrap();
    let policy =
        config::HealthPolicy { recover_after: Duration::from_secs(3), ..config::HealthPolicy::default() };
    let with_file = FoundDevice { health_file: Some(path.as_path().into()), ..FoundDevice::default() };
    let mut store = DeviceStore::default();
    let scan = |found: FoundDevice| Scan { devices: BTreeMap::from([("a".into(), found)]), volatile: false };
    store.update(Duration::ZERO, scan(with_file.clone()), &policy);
    let again = |store: &mut DeviceStore, at, text| {
        std::fs::write(&path, text).unwrap();
        store.update_health(Duration::from_secs(at), &policy);
        shown(store)
    };
    assert_eq!(again(&mut store, 1, "on fire"), "!a");
    assert_eq!(again(&mut store, 2, "ok"), "!a");
    assert_eq!(again(&mut store, 5, "ok"), "a");
    assert_eq!(again(&mut store, 6, "on fire"), "!a");
    // The device has no health file any more and only has to wait.
    store.update(Duration::from_secs(7), scan(FoundDevice::default()), &policy);
    assert_eq!(
        store.next_scan_in(Duration::from_secs(7), &policy),
        policy.check_every.min(Duration::from_secs(6))
    );
    assert_eq!(again(&mut store, 12, "on fire"), "!a");
    assert_eq!(again(&mut store, 13, "on fire"), "a");
}

#[test]
fn health_files_are_read_while_scans_fail() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health");
    std::fs::write(&path, "ok").unwrap();
    let policy =
        config::HealthPolicy { recover_after: Duration::from_secs(3), ..config::HealthPolicy::default() };
    let found = FoundDevice { health_file: Some(path.as_path().into()), ..FoundDevice::default() };
    let devices = BTreeMap::from([("a".into(), found), ("b".into(), FoundDevice::default())]);
    let mut store = DeviceStore::default();
    store.update(Duration::ZERO, Scan { devices, volatile: false }, &policy);
    let mut ask = |at, text| {
        std::fs::write(&path, text).unwrap();
        store.update_health_files(Duration::from_secs(at), &policy);
        shown(&store)
    };
    assert_eq!(ask(1, "ok"), "a b");
    assert_eq!(ask(2, "on fire"), "!a b");
    assert_eq!(ask(3, "ok"), "!a b");
    assert_eq!(ask(6, "ok"), "a b");
}

#[test]
fn stated_health_counts_at_once() {
    let policy = config::HealthPolicy::default();
    let mut store = DeviceStore::default();
    for (second, healthy) in [true, false, true].into_iter().enumerate() {
        let found = FoundDevice { stated_unhealthy: !healthy, ..FoundDevice::default() };
        let devices = BTreeMap::from([("a".into(), found)]);
        store.update(Duration::from_secs(second as u64), Scan { devices, volatile: false }, &policy);
        assert_eq!(shown(&store), if healthy { "a" } else { "!a" });
    }
}
