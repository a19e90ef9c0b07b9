//! Claims on the node `n`, with the devices that they get.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as wire;
use serde_json::{Value, json};

use super::*;
use crate::devices::Change;
use crate::devices::views::{ClassView, SliceView};
use crate::pod::PodView;

/// A slice of the driver `d`, with a pool of its name.
fn slice(name: &str, spec: Value) -> Change {
    let mut object = json!({ "metadata": { "name": name }, "spec": {
        "driver": "d", "nodeName": "n", "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 },
    } });
    let fields = object["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    Change::Slice(Box::new(SliceView::read(&serde_json::from_value::<wire::ResourceSlice>(object).unwrap())))
}

fn devices(changes: Vec<Change>) -> Devices {
    let mut devices = Devices::default();
    let class = json!({ "metadata": { "name": "any" }, "spec": {} });
    let class = serde_json::from_value::<wire::DeviceClass>(class).unwrap();
    devices.apply(Change::Class(Box::new(ClassView::read(&class))));
    changes.into_iter().for_each(|change| drop(devices.apply(change)));
    devices
}

fn claim(spec: Value, results: Option<Value>, name: &str) -> Change {
    let status = results.map(|results| json!({ "allocation": { "devices": { "results": results } } }));
    let object = json!({
        "metadata": { "namespace": "ns", "name": name, "uid": name }, "spec": { "devices": spec }, "status": status,
    });
    let object = serde_json::from_value::<wire::ResourceClaim>(object).unwrap();
    Change::Claim(Box::new(ClaimView::read(&object)))
}

/// The devices that a claim with this spec gets, as `request pool/device`.
fn allocate(mut changes: Vec<Change>, spec: Value) -> Result<Vec<String>, Failure> {
    changes.push(claim(spec, None, "c"));
    let devices = devices(changes);
    let pod = json!({
        "metadata": { "namespace": "ns", "name": "p", "uid": "p" },
        "spec": { "containers": [], "resourceClaims": [{ "name": "c", "resourceClaimName": "c" }] },
    });
    let pod = PodView::read(&serde_json::from_value::<core::Pod>(pod).unwrap());
    let node = json!({ "metadata": { "name": "n", "labels": { "zone": "a" } } });
    let node = NodeView::read(&serde_json::from_value::<core::Node>(node).unwrap());
    let claims = PodClaims::new((&pod.spec, Some(&pod)), &devices, Args::default(), 0).unwrap().unwrap();
    let (found, _) = claims.allocate(&node)?;
    let results = found.into_iter().flat_map(|it| it.devices.unwrap().results.unwrap());
    Ok(results.map(|it| format!("{} {}/{}", it.request, it.pool, it.device)).collect())
}

fn exactly(more: Value) -> Value {
    let mut ask = json!({ "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1 });
    ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ask
}

fn request(name: &str, more: Value) -> Value {
    json!({ "name": name, "exactly": exactly(more) })
}

fn requests(list: &[Value]) -> Value {
    json!({ "requests": list })
}

fn numbered(numa: &[i64]) -> Value {
    let device = |(at, numa): (usize, &i64)| json!({ "name": format!("d{at}"), "attributes": { "numa": { "int": numa } } });
    json!({ "devices": numa.iter().enumerate().map(device).collect::<Vec<_>>() })
}

#[test]
fn requests_get_the_first_devices_that_satisfy_all_of_the_claim() {
    let two = |more: Value| vec![request("q", json!({ "count": 2 })), request("r", more)];
    let with = |mut spec: Value, constraint: Value| {
        spec["constraints"] = json!([constraint]);
        spec
    };
    let taint = json!({ "devices": [
        { "name": "d0", "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] }, { "name": "d1" },
    ] });
    let tolerates = json!({ "tolerations": [{ "key": "k", "operator": "Exists" }] });
    let first = |counts: &[i64]| {
        let ask = |(at, count): (usize, &i64)| {
            let mut ask = exactly(json!({ "count": count }));
            ask["name"] = format!("s{at}").into();
            ask
        };
        json!({ "name": "q", "firstAvailable": counts.iter().enumerate().map(ask).collect::<Vec<_>>() })
    };
    let all = json!({ "allocationMode": "All" });
    let matches = json!({ "matchAttribute": "d/numa" });
    let counters = || {
        vec![
            slice(
                "p",
                json!({
                    "pool": { "name": "p", "generation": 1, "resourceSliceCount": 2 },
                    "devices": [
                        { "name": "half", "consumesCounters": [{ "counterSet": "s", "counters": { "m": { "value": "2" } } }] },
                        { "name": "most", "consumesCounters": [{ "counterSet": "s", "counters": { "m": { "value": "3" } } }] },
                        { "name": "rest", "consumesCounters": [{ "counterSet": "s", "counters": { "m": { "value": "2" } } }] },
                    ],
                }),
            ),
            slice(
                "q",
                json!({
                    "pool": { "name": "p", "generation": 1, "resourceSliceCount": 2 },
                    "sharedCounters": [{ "name": "s", "counters": { "m": { "value": "4" } } }],
                }),
            ),
        ]
    };
    let shared = |taken: &str| {
        vec![
            slice(
                "p",
                json!({ "devices": [
            { "name": "d0", "allowMultipleAllocations": true, "capacity": { "m": { "value": "10" } } },
        ] }),
            ),
            claim(
                json!({}),
                Some(json!([
                    { "request": "q", "driver": "d", "pool": "p", "device": "d0", "shareID": "s",
                      "consumedCapacity": { "m": taken } },
                ])),
                "other",
            ),
        ]
    };
    let needs = json!({ "capacity": { "requests": { "m": "4" } } });
    let taken = |more: Value| {
        let mut result = json!({ "request": "q", "driver": "d", "pool": "p", "device": "d0" });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        vec![slice("p", numbered(&[0, 0])), claim(json!({}), Some(json!([result])), "other")]
    };
    let p = |numa: &[i64]| vec![slice("p", numbered(numa))];
    let unavailable = Err(Failure::Unavailable);
    let got = |list: &[&str]| Ok(list.iter().map(|text| (*text).to_owned()).collect());
    for (changes, spec, wanted) in [
        (p(&[0, 1, 2]), requests(&two(json!({}))), got(&["q p/d0", "q p/d1", "r p/d2"])),
        (p(&[0, 1]), requests(&two(json!({}))), unavailable.clone()),
        (p(&[0, 1, 0]), with(requests(&two(json!({}))[..1]), matches.clone()), got(&["q p/d0", "q p/d2"])),
        (p(&[0, 1, 2]), with(requests(&two(json!({}))[..1]), matches), unavailable.clone()),
        (
            p(&[0, 0, 1]),
            with(requests(&two(json!({}))[..1]), json!({ "distinctAttribute": "d/numa" })),
            got(&["q p/d0", "q p/d2"]),
        ),
        (vec![slice("p", taint.clone())], requests(&[request("q", json!({}))]), got(&["q p/d1"])),
        (vec![slice("p", taint)], requests(&[request("q", tolerates)]), got(&["q p/d0"])),
        (p(&[0, 1]), requests(&[request("q", all.clone())]), got(&["q p/d0", "q p/d1"])),
        (vec![], requests(&[request("q", all.clone())]), unavailable.clone()),
        (p(&[0, 1]), requests(&[first(&[3, 2, 1])]), got(&["q/s1 p/d0", "q/s1 p/d1"])),
        (taken(json!({})), requests(&[request("q", json!({}))]), got(&["q p/d1"])),
        (taken(json!({})), requests(&[request("q", json!({ "adminAccess": true }))]), got(&["q p/d0"])),
        (taken(json!({ "adminAccess": true })), requests(&[request("q", json!({}))]), got(&["q p/d0"])),
        (taken(json!({})), requests(&[request("q", all.clone())]), unavailable.clone()),
        // Half of the counters are left for the second device.
        (counters(), requests(&[request("q", json!({ "count": 2 }))]), got(&["q p/half", "q p/rest"])),
        (counters(), requests(&[request("q", json!({ "count": 3 }))]), unavailable.clone()),
        (shared("6"), requests(&[request("q", needs.clone())]), got(&["q p/d0"])),
        (shared("7"), requests(&[request("q", needs.clone())]), unavailable.clone()),
        (
            shared("2"),
            requests(&[request("q", needs.clone()), request("r", needs.clone())]),
            got(&["q p/d0", "r p/d0"]),
        ),
        (shared("3"), requests(&[request("q", needs.clone()), request("r", needs)]), unavailable.clone()),
    ] {
        assert_eq!(allocate(changes, spec.clone()), wanted, "{spec}");
    }
}

#[test]
fn pools_count_where_the_node_reaches_them_in_their_newest_complete_generation() {
    let of = |name: &str, generation: i64, count: i64, more: Value| {
        let mut spec = json!({
            "pool": { "name": "p", "generation": generation, "resourceSliceCount": count },
            "devices": [{ "name": format!("of-{name}") }],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        slice(name, spec)
    };
    let elsewhere = json!({ "nodeName": "other" });
    let zone = |zone: &str| {
        let expression = json!({ "key": "zone", "operator": "In", "values": [zone] });
        json!({ "nodeName": null, "nodeSelector": { "nodeSelectorTerms": [{ "matchExpressions": [expression] }] } })
    };
    let per_device = json!({ "nodeName": null, "perDeviceNodeSelection": true, "devices": [
        { "name": "x", "nodeName": "other" }, { "name": "y", "allNodes": true },
    ] });
    let twice = json!({ "devices": [{ "name": "x" }, { "name": "x" }] });
    for (changes, wanted) in [
        (vec![of("a", 1, 1, json!({}))], Ok("q p/of-a")),
        (vec![of("a", 1, 1, json!({})), of("b", 2, 1, json!({}))], Ok("q p/of-b")),
        (vec![of("a", 1, 1, json!({})), of("b", 2, 1, elsewhere.clone())], Ok("q p/of-a")),
        (vec![of("a", 1, 2, json!({})), of("b", 2, 1, elsewhere.clone())], Err(Failure::Unavailable)),
        (vec![of("a", 1, 2, json!({}))], Err(Failure::Unavailable)),
        (vec![of("a", 1, 2, json!({})), of("b", 1, 2, elsewhere.clone())], Ok("q p/of-a")),
        (vec![of("a", 1, 1, elsewhere)], Err(Failure::Unavailable)),
        (vec![of("a", 1, 1, json!({ "nodeName": null, "allNodes": true }))], Ok("q p/of-a")),
        (vec![of("a", 1, 1, zone("a"))], Ok("q p/of-a")),
        (vec![of("a", 1, 1, zone("b"))], Err(Failure::Unavailable)),
        (vec![of("a", 1, 1, per_device)], Ok("q p/y")),
        (vec![of("a", 1, 1, twice)], Err(Failure::InvalidPools)),
    ] {
        let shown = format!("{changes:?}");
        let found = allocate(changes, requests(&[request("q", json!({}))]));
        assert_eq!(found, wanted.map(|text| vec![text.to_owned()]), "{shown}");
    }
}

#[test]
fn a_search_ends() {
    // All but one pair match, and no device is left for the last request.
    let numa: Vec<i64> = (0..30).map(|at| at / 2).collect();
    let mut spec = requests(&[request("q", json!({ "count": 16 })), request("r", json!({ "count": 16 }))]);
    spec["constraints"] = json!([]);
    let failure = allocate(vec![slice("p", numbered(&numa))], spec).unwrap_err();
    assert_eq!(failure, Failure::Error("node n: timed out trying to allocate devices".to_owned()));
}
