use super::*;
use crate::config::Discovery;

fn look(devices: &[(&str, Option<&str>)], volatile: bool) -> Look {
    let found = |(id, seen): &(&str, Option<&str>)| {
        ((*id).into(), Found { seen: seen.map(str::to_owned), ..Found::default() })
    };
    Look { devices: devices.iter().map(found).collect(), volatile }
}

/// `a` healthy, `!a` not.
fn shown(stock: &Stock) -> String {
    let resource = stock.resource(&Resource::new("example.com/nic", Discovery::default()));
    let device =
        |(id, device): (&Id, &Device)| if device.is_healthy() { id.to_string() } else { format!("!{id}") };
    resource.devices.iter().map(device).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_vanishes_is_unhealthy_and_then_forgotten() {
    let secs = Duration::from_secs;
    let policy =
        config::Health { recover_after: secs(2), forget_after: secs(10), ..config::Health::default() };
    let mut stock = Stock::default();
    let mut take = |at, devices: &[(&str, Option<&str>)], volatile| {
        stock.take(secs(at), look(devices, volatile), &policy);
        (shown(&stock), stock.patience(secs(at), &policy))
    };
    let every = policy.check_every;
    assert_eq!(take(0, &[("a", None), ("b", Some("broken"))], true), ("a !b".to_owned(), every));
    assert_eq!(take(1, &[("b", None)], true), ("!a !b".to_owned(), secs(2)));
    // Back after a reset: has to stay.
    assert_eq!(take(2, &[("a", None), ("b", None)], true), ("!a !b".to_owned(), secs(1)));
    assert_eq!(take(4, &[("a", None), ("b", None)], true), ("a b".to_owned(), every));
    assert_eq!(take(5, &[], true).0, "!a !b");
    assert_eq!(take(14, &[("b", None)], true).0, "!a !b");
    assert_eq!(take(15, &[("b", None)], true).0, "!b");
    // It is remembered, so that coming back is not all it takes.
    assert_eq!(take(30, &[("a", None), ("b", None)], true).0, "!a b");
    assert_eq!(take(33, &[("a", None), ("b", None)], true).0, "!a b");
    assert_eq!(take(34, &[("a", None), ("b", None)], true).0, "a b");
    assert_eq!(take(35, &[("a", None)], true).0, "a !b");
    assert_eq!(take(45, &[("a", None)], true).0, "a");
    // For as long as anything ever has to look healthy.
    assert_eq!(take(35 + 609, &[("a", None), ("b", None)], true).0, "a !b");
    assert_eq!(take(645, &[("a", None)], true).0, "a !b");
    assert_eq!(take(645 + 610, &[("a", None)], true).0, "a");
    assert_eq!(take(645 + 611, &[("a", None), ("b", None)], true).0, "a b");
    // Taken out of a list, it is out.
    assert_eq!(take(2000, &[], false).0, "");
}

#[test]
fn the_same_again_only_asks_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health");
    std::fs::write(&path, "ok").unwrap();
    let policy = config::Health { recover_after: Duration::from_secs(3), ..config::Health::default() };
    let with_file = Found { health_file: Some(path.as_path().into()), ..Found::default() };
    let mut stock = Stock::default();
    let look = |found: Found| Look { devices: BTreeMap::from([("a".into(), found)]), volatile: false };
    stock.take(Duration::ZERO, look(with_file.clone()), &policy);
    let again = |stock: &mut Stock, at, text| {
        std::fs::write(&path, text).unwrap();
        stock.take_again(Duration::from_secs(at), &policy);
        shown(stock)
    };
    assert_eq!(again(&mut stock, 1, "on fire"), "!a");
    assert_eq!(again(&mut stock, 2, "ok"), "!a");
    assert_eq!(again(&mut stock, 5, "ok"), "a");
    assert_eq!(again(&mut stock, 6, "on fire"), "!a");
    // Nothing tells about its health any more: it has only to wait.
    stock.take(Duration::from_secs(7), look(Found::default()), &policy);
    assert_eq!(
        stock.patience(Duration::from_secs(7), &policy),
        policy.check_every.min(Duration::from_secs(6))
    );
    assert_eq!(again(&mut stock, 12, "on fire"), "!a");
    assert_eq!(again(&mut stock, 13, "on fire"), "a");
}

#[test]
fn health_files_are_asked_while_nothing_else_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health");
    std::fs::write(&path, "ok").unwrap();
    let policy = config::Health { recover_after: Duration::from_secs(3), ..config::Health::default() };
    let found = Found { health_file: Some(path.as_path().into()), ..Found::default() };
    let devices = BTreeMap::from([("a".into(), found), ("b".into(), Found::default())]);
    let mut stock = Stock::default();
    stock.take(Duration::ZERO, Look { devices, volatile: false }, &policy);
    let mut ask = |at, text| {
        std::fs::write(&path, text).unwrap();
        stock.ask_health_files(Duration::from_secs(at), &policy);
        shown(&stock)
    };
    assert_eq!(ask(1, "ok"), "a b");
    assert_eq!(ask(2, "on fire"), "!a b");
    assert_eq!(ask(3, "ok"), "!a b");
    assert_eq!(ask(6, "ok"), "a b");
}

#[test]
fn what_is_stated_counts_at_once() {
    let policy = config::Health::default();
    let mut stock = Stock::default();
    for (second, healthy) in [true, false, true].into_iter().enumerate() {
        let found = Found { stated_unhealthy: !healthy, ..Found::default() };
        let devices = BTreeMap::from([("a".into(), found)]);
        stock.take(Duration::from_secs(second as u64), Look { devices, volatile: false }, &policy);
        assert_eq!(shown(&stock), if healthy { "a" } else { "!a" });
    }
}
