use k8s_openapi::api::resource::v1 as wire;
use serde_json::{Value, json};

use super::*;

fn claim(name: &str, version: u64, results: Option<Value>) -> ClaimView {
    let status = results.map(|results| json!({ "allocation": { "devices": { "results": results } } }));
    let object = json!({
        "metadata": { "namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string() },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": {
            "deviceClassName": "gpu", "selectors": [{ "cel": { "expression": "true" } }],
        } }] } },
        "status": status,
    });
    let object: wire::ResourceClaim = serde_json::from_value(object).unwrap();
    ClaimView::read(&object)
}

fn change(claim: ClaimView) -> Change {
    Change::Claim(Box::new(claim))
}

fn result(device: &str) -> Value {
    json!([{ "request": "r", "driver": "d", "pool": "p", "device": device }])
}

fn id(device: &str) -> views::DeviceId {
    views::DeviceId { driver: "d".into(), pool: "p".into(), device: device.into() }
}

#[test]
fn devices_are_taken_from_the_decision_until_the_claim_lets_go() {
    let mut devices = Devices::default();
    let key = claim("c", 1, None).key;
    assert_eq!(devices.apply(change(claim("c", 1, None))), Helped::Claim(key.clone()));
    let allocated = claim("c", 5, Some(result("0")));
    devices.assume(&key, allocated.allocation.clone().unwrap());
    assert!(devices.is_pending(&key) && devices.taken().is_exclusive(&id("0")));
    assert_eq!(devices.written(allocated.clone()), Helped::Claim(key.clone()));
    assert!(!devices.is_pending(&key) && devices.taken().is_exclusive(&id("0")));
    // A watch that is behind our write changes nothing; one that has caught up tells nothing new.
    assert_eq!(devices.apply(change(claim("c", 3, None))), Helped::NoPod);
    assert!(devices.taken().is_exclusive(&id("0")));
    assert_eq!(devices.apply(change(allocated)), Helped::NoPod);
    assert_eq!(devices.apply(change(claim("c", 9, None))), Helped::All);
    assert!(!devices.taken().has(&id("0")));
}

#[test]
fn what_is_not_written_is_free_again() {
    let mut devices = Devices::default();
    let allocated = claim("c", 1, Some(result("0")));
    devices.apply(change(claim("c", 1, None)));
    devices.assume(&allocated.key, allocated.allocation.clone().unwrap());
    assert_eq!(devices.unassume(&allocated.key), Helped::All);
    assert!(!devices.taken().has(&id("0")));
    assert_eq!(devices.unassume(&allocated.key), Helped::NoPod);
}

#[test]
fn claims_that_are_gone_leave_their_devices() {
    let mut devices = Devices::default();
    let allocated = claim("c", 1, Some(result("0")));
    devices.apply(change(allocated.clone()));
    assert!(devices.taken().is_exclusive(&id("0")));
    assert_eq!(devices.apply(Change::ClaimGone(allocated.key)), Helped::All);
    assert!(!devices.taken().has(&id("0")));
}

#[test]
fn shared_devices_count_their_capacity_and_admins_nothing() {
    let mut devices = Devices::default();
    let share = |amount: &str| {
        json!([{
            "request": "r", "driver": "d", "pool": "p", "device": "0", "shareID": "s",
            "consumedCapacity": { "memory": amount },
        }])
    };
    let admin = json!([{ "request": "r", "driver": "d", "pool": "p", "device": "1", "adminAccess": true }]);
    for (name, results) in [("a", share("1Gi")), ("b", share("2Gi")), ("c", admin)] {
        devices.apply(change(claim(name, 1, Some(results))));
    }
    assert!(devices.taken().has(&id("0")) && !devices.taken().is_exclusive(&id("0")));
    assert!(!devices.taken().has(&id("1")));
    assert_eq!(devices.taken().capacity(&id("0")).unwrap()["memory"].value(), 3 << 30);
    devices.apply(change(claim("b", 2, None)));
    assert_eq!(devices.taken().capacity(&id("0")).unwrap()["memory"].value(), 1 << 30);
    devices.apply(Change::ClaimGone(claim("a", 1, None).key));
    assert!(!devices.taken().has(&id("0")));
}

#[test]
fn equal_selectors_are_one() {
    let mut devices = Devices::default();
    devices.apply(change(claim("a", 1, None)));
    devices.apply(change(claim("b", 1, None)));
    let selector = |name: &str| {
        let claim = devices.claim(&claim(name, 1, None).key).unwrap();
        Arc::clone(claim.requests[0].asks()[0].selectors[0].as_ref().unwrap())
    };
    assert!(Arc::ptr_eq(&selector("a"), &selector("b")));
}
