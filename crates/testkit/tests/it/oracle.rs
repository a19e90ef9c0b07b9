//! The oracle: one case for each request, and a placement that real kubelets have shown.

use serde_json::{Value, json};
use testkit::oracle::{Oracle, Release};

const GIB: u64 = 1 << 30;

/// Two zones of 8 cores with 2 threads each, as cAdvisor describes them: CPU n and n + 16 share a core.
fn machine() -> Value {
    let core =
        |core: u64, zone: u64| json!({ "core_id": core, "thread_ids": [core, core + 16], "socket_id": zone });
    let zone = |zone: u64| {
        let cores: Vec<Value> = (zone * 8..zone * 8 + 8).map(|index| core(index, zone)).collect();
        let distances = if zone == 0 { [10, 20] } else { [20, 10] };
        json!({ "node_id": zone, "memory": 32 * GIB, "cores": cores, "distances": distances })
    };
    json!({
        "num_cores": 32, "num_physical_cores": 16, "num_sockets": 2, "memory_capacity": 64 * GIB,
        "topology": [zone(0), zone(1)],
    })
}

/// All managers static, a single zone for each container, CPU 0 and 1 GiB of zone 0 reserved.
fn kubelet() -> Value {
    json!({
        "cpuManagerPolicy": "static", "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static", "systemReserved": { "memory": "1Gi" }, "evictionHard": {},
        "reservedMemory": [{ "numaNode": 0, "limits": { "memory": "1Gi" } }],
        "topologyManagerPolicy": "single-numa-node",
    })
}

fn start() -> Value {
    let device = |id: &str, zone: u64| json!({ "id": id, "nodes": [zone] });
    let devices = json!([{
        "resource": "vendor.com/nic", "preferred": "first",
        "devices": [device("a", 0), device("b", 1), device("c", 0), device("d", 1)],
    }]);
    json!({ "op": "start", "machine": machine(), "kubelet": kubelet(), "devices": devices })
}

fn container(name: &str, limits: &Value) -> Value {
    json!({ "name": name, "image": "image", "resources": { "limits": limits } })
}

/// A pod whose only container has these limits.
fn pod(uid: &str, limits: &Value) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": uid, "uid": uid },
        "spec": { "containers": [container("c", limits)] },
    })
}

fn admit(pod: &Value) -> Value {
    json!({ "op": "admit", "pod": pod })
}

/// An oracle with the machine, or none where tests are skipped.
fn started() -> Option<Oracle> {
    let mut oracle = Oracle::spawn(Release::default()).ok()?;
    let answer = oracle.request(&start()).unwrap();
    assert_eq!(answer["ok"], json!(true), "{answer}");
    Some(oracle)
}

#[test]
fn threads_are_shared_as_in_a_kubelet() {
    let Some(mut oracle) = started() else { return };
    let mut mixed = pod("p", &json!({ "cpu": "2", "memory": "1Gi" }));
    mixed["spec"]["initContainers"] = json!([container("i", &json!({ "cpu": "1", "memory": "1Gi" }))]);
    let answer = oracle.request(&admit(&mixed)).unwrap();
    assert_eq!(answer["admitted"], json!(true), "{answer}");
    assert_eq!(answer["containers"][0]["cpus"], json!("16"));
    assert_eq!(answer["containers"][1]["cpus"], json!("1,17"));
    // Zone 0 has 12 CPUs left, zone 1 has 16.
    let answers = oracle
        .requests(&[
            admit(&pod("q", &json!({ "cpu": "16", "memory": "1Gi" }))),
            admit(&pod("r", &json!({ "cpu": "13", "memory": "1Gi" }))),
        ])
        .unwrap();
    assert_eq!(answers[0]["containers"][0]["cpus"], json!("8-15,24-31"));
    assert_eq!(answers[1]["reason"], json!("TopologyAffinityError"));
}

#[test]
fn a_start_says_what_pods_can_have_or_why_there_is_no_kubelet() {
    let Some(mut oracle) = started() else { return };
    let answer = oracle.request(&start()).unwrap();
    assert_eq!(answer["allocatable"]["cpu"], json!("31"));
    assert_eq!(answer["allocatable"]["memory"], json!("63Gi"));
    assert_eq!(answer["allocatable"]["vendor.com/nic"], json!("4"));
    let table = [
        ("topologyManagerPolicy", json!("always"), "invalid configuration: topologyManagerPolicy"),
        ("reservedSystemCPUs", json!("99"), "99 is not a subset of online-cpus"),
        ("featureGates", json!({ "NoSuchGate": true }), "unrecognized feature gate: NoSuchGate"),
        ("systemReserved", json!({ "memory": "2Gi" }), "is not equal to the value"),
        ("cpuManagerPolicyOptions", json!({ "fast": "yes" }), "unknown CPU Manager Policy option"),
    ];
    for (field, value, why) in table {
        let mut request = start();
        request["kubelet"][field] = value;
        let answer = oracle.request(&request).unwrap();
        assert_eq!(answer["ok"], json!(false), "{field}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(why)), "{field}: {answer}");
    }
    // A refusal leaves nothing behind, feature gates included.
    assert_eq!(oracle.request(&start()).unwrap()["ok"], json!(true));
}

#[test]
fn an_admission_has_a_reason_and_all_that_was_given() {
    let Some(mut oracle) = started() else { return };
    let answer = oracle
        .request(&admit(&pod("p", &json!({ "cpu": "2", "memory": "2Gi", "vendor.com/nic": "2" }))))
        .unwrap();
    let given = json!({
        "name": "c", "cpus": "1,17",
        "memory": [{ "zones": [0], "type": "memory", "bytes": 2 * GIB }],
        "devices": [{ "resource": "vendor.com/nic", "ids": ["a", "c"] }],
    });
    assert_eq!(answer, json!({ "admitted": true, "reason": "", "message": "", "containers": [given] }));
    let shared = json!({ "cpu": "31500m", "memory": "1Gi" });
    let answer = oracle.request(&admit(&pod("q", &shared))).unwrap();
    assert_eq!(answer["reason"], json!("OutOfcpu"), "{answer}");
    let mut request = admit(&pod("q", &shared));
    request["totals"] = json!(false);
    assert_eq!(oracle.request(&request).unwrap()["admitted"], json!(true));
}

#[test]
fn what_a_pod_had_is_free_when_the_next_one_comes() {
    let Some(mut oracle) = started() else { return };
    let big = json!({ "cpu": "16", "memory": "1Gi" });
    let answers = oracle
        .requests(&[
            admit(&pod("p", &big)),
            admit(&pod("q", &big)),
            json!({ "op": "remove", "uid": "p" }),
            json!({ "op": "state" }),
            admit(&pod("q", &big)),
            json!({ "op": "state" }),
            json!({ "op": "remove", "uid": "p" }),
        ])
        .unwrap();
    let admitted: Vec<&Value> = [0, 1, 4].map(|index: usize| &answers[index]["admitted"]).into();
    assert_eq!(admitted, [&json!(true), &json!(false), &json!(true)]);
    // The CPU manager sweeps at its next call, and not before.
    assert_eq!(answers[3]["cpu"]["assigned"], json!({ "p": { "c": "8-15,24-31" } }));
    assert_eq!(answers[5]["cpu"]["assigned"], json!({ "q": { "c": "8-15,24-31" } }));
    assert_eq!(answers[5]["cpu"]["default"], json!("0-7,16-23"));
    assert_eq!(answers[5]["memory"]["machine"]["1"]["memoryMap"]["memory"]["free"], json!(31 * GIB));
    assert_eq!(answers[6], json!({ "error": "remove: no pod with uid \"p\"" }));
}

#[test]
fn a_restart_admits_again_from_the_checkpoints() {
    let Some(mut oracle) = started() else { return };
    let limits = json!({ "cpu": "2", "memory": "2Gi", "vendor.com/nic": "1" });
    let before = oracle.requests(&[admit(&pod("p", &limits)), json!({ "op": "state" })]).unwrap();
    for plugins in [true, false] {
        let request = json!({ "op": "restart", "plugins": plugins });
        let after = oracle.requests(&[request, json!({ "op": "state" })]).unwrap();
        assert_eq!(after[0]["rejected"], json!([]), "{after:?}");
        assert_eq!(after[1], before[1]);
    }
    let mut other = kubelet();
    other["reservedSystemCPUs"] = json!("0-1");
    let answer = oracle.request(&json!({ "op": "restart", "kubelet": other })).unwrap();
    let why = "start cpu manager error: not all reserved cpus: \"0-1\" are present in defaultCpuSet";
    assert!(answer["error"].as_str().is_some_and(|error| error.starts_with(why)), "{answer}");
}

#[test]
fn a_resize_is_accepted_deferred_or_infeasible() {
    let Some(mut oracle) = started() else { return };
    let requests = |cpu: &str| json!({ "requests": { "cpu": cpu, "memory": "1Gi" } });
    let sized = |uid: &str, cpu: &str| {
        let mut pod = pod(uid, &json!({}));
        pod["spec"]["containers"][0]["resources"] = requests(cpu);
        pod
    };
    let resize = |pod: &Value| json!({ "op": "resize", "pod": pod });
    let fixed = |cpu: &str| pod("g", &json!({ "cpu": cpu, "memory": "1Gi" }));
    let answers = oracle
        .requests(&[
            admit(&sized("p", "1")),
            admit(&sized("q", "20")),
            admit(&fixed("2")),
            resize(&sized("p", "2")),
            resize(&sized("p", "12")),
            resize(&fixed("3")),
        ])
        .unwrap();
    let outcome: Vec<_> =
        answers[3..].iter().map(|answer| (&answer["resized"], &answer["condition"])).collect();
    let (yes, no) = (&json!(true), &json!(false));
    assert_eq!(
        outcome,
        [(yes, &json!("")), (no, &json!("Deferred")), (no, &json!("Infeasible"))],
        "{answers:?}"
    );
}

#[test]
fn a_line_that_makes_no_sense_is_answered_and_the_next_one_too() {
    let Some(mut oracle) = started() else { return };
    let lines = ["{", "[]", r#"{"op":"guess"}"#, r#"{"op":"admit"}"#, r#"{"op":"state"}"#].map(str::to_owned);
    let answers = oracle.exchange(&lines).unwrap();
    for answer in &answers[..4] {
        assert!(answer.starts_with(r#"{"error":""#), "{answer}");
    }
    assert!(answers[4].starts_with(r#"{"cpu":"#), "{}", answers[4]);
}

#[test]
fn the_same_requests_have_the_same_answers() {
    let Some(mut oracle) = started() else { return };
    let mut requests = vec![start()];
    for index in 0..200 {
        let limits = json!({ "cpu": (index % 5 + 1).to_string(), "memory": "1Gi", "vendor.com/nic": (index % 2).to_string() });
        requests.push(admit(&pod(&format!("p{index}"), &limits)));
        if index % 3 == 2 {
            requests.push(json!({ "op": "remove", "uid": format!("p{}", index - 2) }));
        }
    }
    let first = oracle.requests(&requests).unwrap();
    assert!(first.iter().any(|answer| answer["admitted"] == json!(false)));
    assert_eq!(oracle.requests(&requests).unwrap(), first);
}
