//! The objects.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

use super::*;

/// S006
#[test]
fn the_objects_have_the_go_operators_names() {
    let wanted = wanted(&cluster());
    let names: Vec<String> = wanted.iter().map(|one| one.object.to_string()).collect();
    assert_eq!(
        names,
        [
            "ServiceAccount numaresources/secondary-scheduler",
            "ConfigMap numaresources/topo-aware-scheduler-config",
            "ClusterRole topology-aware-scheduler",
            "ClusterRoleBinding topology-aware-scheduler",
            "Role numaresources/topology-aware-scheduler-leader-elect",
            "RoleBinding numaresources/topology-aware-scheduler-leader-elect",
            "NetworkPolicy numaresources/scheduler-default-deny-all",
            "NetworkPolicy numaresources/scheduler-egress-to-api-server",
            "Deployment numaresources/secondary-scheduler",
        ]
    );
    for one in &wanted {
        assert_eq!(one.treatment, Treatment::Own);
        let owner = &one.object.body()["metadata"]["ownerReferences"][0];
        let [kind, uid] = ["kind", "uid"].map(|field| owner[field].as_str().unwrap());
        assert_eq!((kind, uid, &owner["controller"]), ("NUMAResourcesScheduler", "1-2-3", &json!(true)));
        assert_eq!(owner["apiVersion"], "nodetopology.openshift.io/v1");
    }
}

/// B-27: no name limits a `create`, and nothing of the lease is in the ClusterRole.
#[test]
fn rights_are_what_the_scheduler_needs() {
    let rules = |cluster: &ClusterState, kind: &str, name: &str| {
        let role = body(cluster, kind, name);
        serde_json::from_value(role["rules"].clone()).map(|rules: Vec<_>| api::rbac::show(&rules)).unwrap()
    };
    let (go, own) = (cluster(), asking(|spec| spec.image_spec.clear()));
    for cluster in [&go, &own] {
        assert_eq!(
            rules(cluster, "Role", "topology-aware-scheduler-leader-elect"),
            "leases: create; leases[numa-scheduler-leader]: get update"
        );
    }
    assert_eq!(
        rules(&own, "ClusterRole", "topology-aware-scheduler"),
        api::rbac::show(&[scheduler::rbac::cluster(), scheduler::rbac::reviews()].concat())
    );
    let go = rules(&go, "ClusterRole", "topology-aware-scheduler");
    for needed in
        ["noderesourcetopologies: get list watch", "bindings pods/binding: create", "tokenreviews: create"]
    {
        assert!(go.contains(needed), "{needed}: {go}");
    }
    for too_much in ["lease", "podgroups", "elasticquotas", "*"] {
        assert!(!go.contains(too_much), "{too_much}: {go}");
    }
}

/// S011, S024, S028, and what else the Go operator's Deployment has.
#[test]
fn the_deployment_is_the_go_operators() {
    let live = deployment(&cluster());
    let spec = &live["spec"]["template"]["spec"];
    assert_eq!(live["spec"]["replicas"], 3);
    assert_eq!(live["spec"]["selector"], json!({ "matchLabels": { "app": "secondary-scheduler" } }));
    let metadata = &live["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"], json!({ "app": "secondary-scheduler" }));
    let management = "target.workload.openshift.io/management";
    assert_eq!(metadata["annotations"][management], r#"{"effect": "PreferredDuringScheduling"}"#);
    assert_eq!(spec["priorityClassName"], "system-node-critical");
    assert_eq!(spec["serviceAccountName"], "secondary-scheduler");
    assert_eq!(
        spec["topologySpreadConstraints"],
        json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "matchLabelKeys": ["pod-template-hash"],
            "labelSelector": { "matchLabels": { "app": "secondary-scheduler" } },
        }])
    );
    let volumes = json!([
        { "name": "etckubernetes", "configMap": { "name": "topo-aware-scheduler-config" } },
        { "name": "runpfpstatus", "emptyDir": { "medium": "Memory", "sizeLimit": "64Mi" } },
    ]);
    assert_eq!(spec["volumes"], volumes);
    let container = container(&cluster());
    assert_eq!(container["name"], "secondary-scheduler");
    assert_eq!(container["command"], json!(["/bin/kube-scheduler"]));
    assert_eq!(container["args"], json!(["--config=/etc/kubernetes/config.yaml", "-v=2"]));
    assert_eq!(
        container["livenessProbe"]["httpGet"],
        json!({ "path": "/healthz", "port": 10259, "scheme": "HTTPS" })
    );
}

/// S012
#[test]
fn another_configuration_makes_the_pods_anew() {
    let hash = |cluster: &ClusterState| {
        let hash = &deployment(cluster)["spec"]["template"]["metadata"]["annotations"]["configmap.hash"];
        hash.as_str().unwrap().to_owned()
    };
    let other = asking(|spec| spec.scheduler_name = "x".to_owned());
    assert!(!hash(&cluster()).is_empty());
    assert_eq!(hash(&cluster()), hash(&cluster()));
    assert_ne!(hash(&cluster()), hash(&other));
}

/// S015
#[test]
fn dumps_are_written_unless_disabled() {
    for (asked, dumps) in [
        (None, true),
        (Some(CacheResyncDebug::Disabled), false),
        (Some(CacheResyncDebug::DumpJSONFile), true),
    ] {
        let container = container(&asking(|spec| spec.cache_resync_debug = asked));
        let variable = json!([{ "name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus" }]);
        assert_eq!(container["env"], if dumps { variable } else { Value::Null }, "{asked:?}");
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.iter().any(|mount| mount["mountPath"] == "/run/pfpstatus"), dumps, "{asked:?}");
    }
}

/// S024
#[test]
fn resources_are_reserved_when_asked_for() {
    let requests = json!({ "requests": { "cpu": "150m", "memory": "500Mi" } });
    let amounts = json!({ "cpu": "600m", "memory": "1200Mi" });
    let both = json!({ "requests": amounts, "limits": amounts });
    for (asked, wanted) in [
        (None, &requests),
        (Some("burstable"), &requests),
        (Some("Guaranteed"), &requests),
        (Some("guaranteed"), &both),
    ] {
        let mut cluster = cluster();
        let asked_for = asked.map(|value| (keys::SCHEDULER_QOS.to_owned(), value.to_owned()));
        the_one(&mut cluster).metadata.annotations = Some(asked_for.into_iter().collect());
        assert_eq!(&container(&cluster)["resources"], wanted, "{asked:?}");
    }
}

/// S027, and the table of U016.
#[test]
fn flags_follow_the_cluster_and_the_level() {
    let mut cluster = cluster();
    let tls = |min: &str, suites: &str| {
        Some(TlsProfile { min_version: min.to_owned(), cipher_suites: suites.to_owned() })
    };
    for (profile, wanted) in [
        (tls("VersionTLS12", "A,B"), json!(["--tls-min-version=VersionTLS12", "--tls-cipher-suites=A,B"])),
        (tls("VersionTLS13", ""), json!(["--tls-min-version=VersionTLS13", "--tls-cipher-suites="])),
        (None, json!([])),
    ] {
        cluster.tls = profile;
        let flags = container(&cluster)["args"].as_array().unwrap()[2..].to_vec();
        assert_eq!(Value::from(flags), wanted);
    }
    for (level, wanted) in [
        (LogLevel::Unset, "-v=2"),
        (LogLevel::Normal, "-v=2"),
        (LogLevel::Debug, "-v=4"),
        (LogLevel::Trace, "-v=6"),
        (LogLevel::TraceAll, "-v=8"),
    ] {
        the_one(&mut cluster).spec.log_level = level;
        assert_eq!(container(&cluster)["args"][1], wanted);
    }
}

/// U022, S003, S004, S005, B-29: what runs is what is asked for, or the operator's own.
#[test]
fn the_image_is_the_one_asked_for_or_our_own() {
    let by_tag = "registry.example/scheduler:v1".to_owned();
    let table = [
        (digest('a'), true, Ok(digest('a'))),
        (String::new(), true, Ok(OWN.to_owned())),
        (OWN.to_owned(), true, Ok(OWN.to_owned())),
        (by_tag.clone(), true, Err("must be referenced by digest")),
        (digest('b'), true, Err("is not in the trusted list")),
        (digest('b'), false, Ok(digest('b'))),
        (by_tag.clone(), false, Ok(by_tag)),
    ];
    for (asked, checked, wanted) in table {
        let mut cluster = asking(|spec| spec.image_spec.clone_from(&asked));
        if !checked {
            cluster.environment.trusted_schedulers = None;
        }
        match wanted {
            Ok(image) => {
                let container = container(&cluster);
                assert_eq!(container["image"], image.as_str());
                let (pull, ready) =
                    if image == OWN { ("Always".into(), "/readyz") } else { (Value::Null, "/healthz") };
                assert_eq!(container["imagePullPolicy"], pull, "{image}");
                let port = if image == OWN { json!("health") } else { json!(10259) };
                for (probe, path) in [("readinessProbe", ready), ("livenessProbe", "/healthz")] {
                    let get = &container[probe]["httpGet"];
                    assert_eq!((&get["path"], &get["port"]), (&json!(path), &port), "{image}");
                }
                let flag = container["args"].to_string().contains("--health-probe-bind-address");
                assert_eq!(flag, image == OWN, "{image}: the Go scheduler has no such flag");
            }
            Err(reason) => {
                assert_eq!(desired(&cluster), Desired::Keep, "what runs goes on");
                let status = status_of(&cluster);
                let held = holding(&status).remove(0);
                assert_eq!(held.0, "Degraded/InvalidSchedulerImage");
                assert!(held.1.contains(reason), "{}", held.1);
            }
        }
    }
    let mut nameless = asking(|spec| spec.image_spec.clear());
    nameless.environment.own = Image::default();
    assert_eq!(desired(&nameless), Desired::Keep);
}

/// One takes no lease, so there are never two; several are replaced while others work.
#[test]
fn a_single_replica_is_replaced_and_never_doubled() {
    for (replicas, surge) in [(0, json!(0)), (1, json!(0)), (2, json!("25%")), (3, json!("25%"))] {
        let cluster = asking(|spec| spec.replicas = Some(replicas));
        assert_eq!(
            deployment(&cluster)["spec"]["strategy"]["rollingUpdate"]["maxSurge"],
            surge,
            "{replicas}"
        );
        assert_eq!(text(&cluster).contains("leaderElect: true"), replicas > 1);
    }
}

/// The scheduler that the Go operator left runs on: its image is not in the list of trusted digests, and may have no
/// digest at all.
#[test]
fn an_image_that_runs_stays_trusted() {
    let by_tag = "registry.example/scheduler:v4.19";
    for (running, asked, wanted) in [
        (digest('b'), digest('b'), Some(digest('b'))),
        (by_tag.to_owned(), by_tag.to_owned(), Some(by_tag.to_owned())),
        (digest('b'), digest('c'), None),
        (OWN.to_owned(), digest('b'), None),
    ] {
        let mut cluster = cluster();
        let mut live = deployment(&cluster);
        live["spec"]["template"]["spec"]["containers"][0]["image"] = json!(running);
        insert(&mut cluster, live.clone());
        the_one(&mut cluster).spec.image_spec = asked.clone();
        match wanted {
            Some(image) => assert_eq!(container(&cluster)["image"], image),
            None => assert_eq!(desired(&cluster), Desired::Keep, "{running} {asked}"),
        }
        // A Deployment that the NUMAResourcesScheduler does not own says nothing.
        live["metadata"]["ownerReferences"] = json!([]);
        insert(&mut cluster, live);
        assert_eq!(desired(&cluster), Desired::Keep, "{running} {asked}");
    }
}

/// An operator that cannot grant another scheduler's rights says so, and leaves the Go operator's role to a scheduler
/// that it took over.
#[test]
fn rights_of_other_schedulers_are_granted_only_where_held() {
    let mut cluster = cluster();
    cluster.environment.only_own_scheduler = true;
    assert_eq!(desired(&cluster), Desired::Keep);
    let (held, message) = holding(&status_of(&cluster)).remove(0);
    assert_eq!(held, "Degraded/InvalidSchedulerImage");
    assert!(message.contains("bind the ClusterRole numaresources-manager-other-schedulers to"), "{message}");
    cluster.environment.only_own_scheduler = false;
    let live = deployment(&cluster);
    let role = ObjectKey::of::<ClusterRole>(None, "topology-aware-scheduler");
    let binding = ObjectKey::of::<ClusterRoleBinding>(None, "topology-aware-scheduler");
    let held = |cluster: &ClusterState| -> Vec<String> {
        let held = wanted(cluster).into_iter().filter(|one| one.treatment == Treatment::Hold);
        held.map(|one| one.object.to_string()).collect()
    };
    insert(&mut cluster, live);
    cluster.environment.only_own_scheduler = true;
    assert_eq!(held(&cluster), [""; 0], "there is no role yet");
    let marked = json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "tholepin-operator" } } });
    cluster.observed.insert(role.clone(), marked.clone());
    cluster.observed.insert(binding.clone(), marked);
    assert_eq!(held(&cluster), [""; 0], "it is ours");
    cluster.observed.insert(role, json!({ "metadata": {} }));
    cluster.observed.insert(binding, json!({ "metadata": {} }));
    let kept = ["ClusterRole topology-aware-scheduler", "ClusterRoleBinding topology-aware-scheduler"];
    assert_eq!(held(&cluster), kept);
}
