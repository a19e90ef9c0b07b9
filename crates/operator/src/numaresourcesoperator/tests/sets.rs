//! What the exporters' pods are like, and the objects around them.

use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;

/// Every platform, group configuration and image that makes a difference to pods.
fn each(check: impl Fn(&str, &ClusterState, &DaemonSet, &PodSpec)) {
    for platform in PLATFORMS {
        for mode in ["Periodic", "Events", "PeriodicAndEvents"] {
            for fingerprint in ["Disabled", "EnabledExclusiveResources"] {
                for policy in ["custom", "default"] {
                    for image in ["", "example.com/other:1"] {
                        let mut cluster = cluster(platform);
                        cluster.environment.exporter_image_restricted = false;
                        ask(
                            &mut cluster,
                            &json!({
                                "imageSpec": image,
                                "nodeGroups": [{
                                    "poolName": "worker", "annotations": { POLICY: policy },
                                    "config": { "infoRefreshMode": mode, "podsFingerprinting": fingerprint },
                                }],
                            }),
                        );
                        let set = set(&cluster, "worker");
                        let name = format!("{platform} {mode} {fingerprint} {policy} {image:?}");
                        check(&name, &cluster, &set, &pod(&set));
                    }
                }
            }
        }
    }
}

/// Where a volume is mounted in the exporter.
fn mounted(pod: &PodSpec, path: &str) -> Option<Value> {
    let mounts = pod.containers[0].volume_mounts.as_ref()?;
    let mount = mounts.iter().find(|mount| mount.mount_path.trim_end_matches('/') == path)?;
    let volume = pod.volumes.as_ref()?.iter().find(|volume| volume.name == mount.name)?;
    let mut volume = serde_json::to_value(volume).ok()?;
    volume.as_object_mut()?.remove("name");
    volume["readOnly"] = json!(mount.read_only == Some(true));
    Some(volume)
}

#[test]
fn n058_to_n061_pods_of_all_kinds() {
    each(|name, _, set, pod| {
        let spec = set.spec.as_ref().unwrap();
        assert_eq!(pod.priority_class_name.as_deref(), Some("system-node-critical"), "N058 {name}");
        let affinity = pod.affinity.as_ref().unwrap().pod_anti_affinity.as_ref().unwrap();
        let terms = affinity.required_during_scheduling_ignored_during_execution.as_ref().unwrap();
        assert_eq!(terms.len(), 1, "N059 U021 {name}");
        assert_eq!(terms[0].topology_key, "kubernetes.io/hostname", "N059 {name}");
        let selected = terms[0].label_selector.as_ref().unwrap().match_labels.clone();
        let labels = spec.template.metadata.as_ref().unwrap().labels.clone();
        assert_eq!(selected, labels, "N059 U021 {name}");
        assert!(labels.unwrap().len() == 2, "B-23 {name}");
        let strategy = serde_json::to_value(&spec.update_strategy).unwrap();
        assert_eq!(
            strategy,
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%" } }),
            "N060 {name}"
        );
        for container in &pod.containers {
            assert_eq!(
                container.termination_message_policy.as_deref(),
                Some("FallbackToLogsOnError"),
                "N061 {name}"
            );
            assert!(container.resources.as_ref().unwrap().requests.is_some(), "{name}");
            let security = container.security_context.as_ref().unwrap();
            assert_eq!(security.allow_privilege_escalation, Some(false), "{name}");
        }
        let volumes = pod.volumes.as_ref().unwrap();
        let mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
        assert_eq!(volumes.len(), mounts.len(), "{name}: every volume is mounted");
    });
}

/// B-01: the certificate is there wherever it is served, fingerprint or not.
#[test]
fn b01_the_certificate_is_mounted_where_metrics_use_tls() {
    each(|name, _, _, pod| {
        let args = pod.containers[0].args.as_ref().unwrap();
        let tls = args.iter().any(|arg| arg == "--metrics-mode=httptls");
        let own = pod.containers.len() == 1;
        let optional = if own { json!({ "optional": true }) } else { json!({}) };
        let mut wanted = json!({ "readOnly": true, "secret": { "secretName": "rte-metrics-service-cert" } });
        wanted["secret"].as_object_mut().unwrap().extend(optional.as_object().unwrap().clone());
        assert_eq!(mounted(pod, "/etc/secrets/rte"), tls.then_some(wanted), "{name}");
        let status = args
            .iter()
            .any(|arg| arg == "--pods-fingerprint")
            .then(|| json!({ "readOnly": false, "emptyDir": { "medium": "Memory", "sizeLimit": "8Mi" } }));
        assert_eq!(mounted(pod, "/run/pfpstatus"), status, "{name}");
    });
}

/// B-02: every path in the arguments is below a mount, in the modes that need it; U026: so is the variable.
#[test]
fn b02_paths_in_arguments_are_mounted() {
    each(|name, cluster, _, pod| {
        let args = pod.containers[0].args.as_ref().unwrap();
        let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
        let node = |path: &str, kind: &str, read_only: bool| {
            Some(json!({ "readOnly": read_only, "hostPath": { "path": path, "type": kind } }))
        };
        let events = has("--notify-file=/run/rte/notify");
        assert_eq!(
            mounted(pod, "/run/rte"),
            events.then(|| node("/run/rte", "DirectoryOrCreate", false)).flatten(),
            "{name}"
        );
        assert_eq!(mounted(pod, "/host-sys"), node("/sys", "Directory", true), "{name}");
        let kubelet = "/var/lib/kubelet";
        let socket = node(&format!("{kubelet}/pod-resources"), "Directory", true);
        assert_eq!(mounted(pod, "/host-podresources"), socket, "{name}");
        let kubernetes = cluster.environment.platform == Platform::Kubernetes;
        let own = pod.containers.len() == 1;
        let root = node(kubelet, "Directory", true).filter(|_| kubernetes && !own);
        assert_eq!(mounted(pod, "/host-var-lib-kubelet"), root, "{name}");
        let file = node(&format!("{kubelet}/config.yaml"), "File", true).filter(|_| kubernetes && own);
        assert_eq!(mounted(pod, "/host-var-lib-kubelet/config.yaml"), file, "{name}");
        assert_eq!(has("--kubelet-config-file=/host-var-lib-kubelet/config.yaml"), kubernetes, "B-04 {name}");
        let of_ours =
            |flag: &str| assert_eq!(args.iter().any(|arg| arg.starts_with(flag)), own, "{name} {flag}");
        ["--kubelet-state-dir=", "--health-probe-bind-address="].into_iter().for_each(of_ours);
        let probe = pod.containers[0].liveness_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
        let health = probe.map(|get| (get.port.clone(), get.scheme.clone()));
        let plain = (IntOrString::String("health".to_owned()), None);
        assert_eq!(health, own.then_some(plain), "{name}: not the port of metrics");
        let config = json!({ "readOnly": true, "configMap": { "name": "numaresourcesoperator-worker", "optional": true } });
        assert_eq!(mounted(pod, "/etc/resource-topology-exporter"), Some(config), "{name}");
        let variables = pod.containers[0].env.as_ref().unwrap();
        let dumps: Vec<_> = variables.iter().filter(|one| one.name == "PFP_STATUS_DUMP").collect();
        assert_eq!(dumps.len(), usize::from(has("--pods-fingerprint")), "U026 {name}");
        assert!(dumps.iter().all(|one| one.value.as_deref() == Some("/run/pfpstatus")), "U026 {name}");
    });
}

/// The kubelet's key and the tokens of pods are there only when asked for.
#[test]
fn the_kubelets_root_directory_is_mounted_on_request() {
    for platform in PLATFORMS {
        for (mode, events) in [("Periodic", false), ("PeriodicAndEvents", true)] {
            let mut cluster = cluster(platform);
            cluster.environment.kubelet_root_mount = true;
            ask(&mut cluster, &one_group(&json!({ "infoRefreshMode": mode })));
            let pod = pod(&set(&cluster, "worker"));
            let wanted = platform == Platform::Kubernetes || events;
            let found = mounted(&pod, "/host-var-lib-kubelet");
            assert_eq!(found.is_some(), wanted, "{platform} {mode}");
            assert_eq!(mounted(&pod, "/host-var-lib-kubelet/config.yaml"), None, "{platform} {mode}");
        }
    }
}

/// The SELinux type is the constraints', and the pod is held to those constraints.
#[test]
fn n048_constraints_and_pods_agree() {
    each(|name, cluster, set, pod| {
        let annotations =
            set.spec.as_ref().unwrap().template.metadata.as_ref().unwrap().annotations.clone().unwrap();
        let required = annotations.get("openshift.io/required-scc");
        let security = pod.containers[0].security_context.as_ref().unwrap();
        if cluster.environment.platform == Platform::Kubernetes {
            assert_eq!((required, &security.se_linux_options), (None, &None), "{name}");
            return;
        }
        let custom = name.contains(" custom ");
        let suffix = if custom { "" } else { "-v2" };
        assert_eq!(required, Some(&format!("resource-topology-exporter{suffix}")), "{name}");
        let kind = if custom { "rte.process" } else { "container_device_plugin_t" };
        let options = json!({ "type": kind, "level": "s0" });
        assert_eq!(serde_json::to_value(&security.se_linux_options).unwrap(), options, "{name}");
        let all = wanted(cluster);
        let constraints: Vec<&Value> = all
            .iter()
            .filter(|one| one.object.kind().kind == "SecurityContextConstraints")
            .map(|one| one.object.body())
            .collect();
        assert_eq!(constraints.len(), 2, "N048 {name}");
        let own =
            constraints.iter().find(|one| one["metadata"]["name"] == required.unwrap().as_str()).unwrap();
        assert_eq!(
            own["seLinuxContext"],
            json!({ "type": "MustRunAs", "seLinuxOptions": options }),
            "{name}"
        );
        assert_eq!(own["users"], json!(["system:serviceaccount:numaresources:rte"]), "{name}");
        let kinds: Vec<String> = pod.volumes.iter().flatten().map(kind_of).collect();
        let allowed: Vec<&str> =
            own["volumes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let fits = |kind: &String| allowed == ["*"] || allowed.contains(&kind.as_str());
        assert!(kinds.iter().all(fits), "{name}: {kinds:?} {allowed:?}");
    });
}

fn kind_of(volume: &k8s_openapi::api::core::v1::Volume) -> String {
    let value = serde_json::to_value(volume).unwrap();
    value.as_object().unwrap().keys().find(|key| *key != "name").unwrap().clone()
}

/// B-03: with the verb that the exporter uses, and no other; with what the Go exporter uses if that is what runs.
#[test]
fn b03_roles_are_those_of_the_exporter_that_runs() {
    for (image, cluster_rules, own) in [
        (
            "",
            "noderesourcetopologies: get list watch create patch; noderesourcetopologies: update",
            "pods: get; pods/status: patch; pods/status: update",
        ),
        (
            "example.com/other:1",
            "noderesourcetopologies: get list watch create patch; noderesourcetopologies: create update get list; nodes: watch list",
            "pods: get; pods/status: patch; pods: get; pods/status: update",
        ),
    ] {
        let mut cluster = cluster(Platform::OpenShift);
        cluster.environment.exporter_image_restricted = false;
        ask(&mut cluster, &json!({ "imageSpec": image }));
        let find = |kind: &str| {
            let all = wanted(&cluster);
            all.into_iter().find(|one| one.object.kind().kind == kind).unwrap().object.body().clone()
        };
        let role: ClusterRole = serde_json::from_value(find("ClusterRole")).unwrap();
        assert_eq!(api::rbac::show(&role.rules.unwrap()), cluster_rules, "{image:?}");
        let role: Role = serde_json::from_value(find("Role")).unwrap();
        assert_eq!(api::rbac::show(&role.rules.unwrap()), own, "{image:?}");
    }
}

/// N030 to N033, U020: exactly those that were asked for.
#[test]
fn n030_to_n033_u020_tolerations() {
    let some =
        json!([{ "key": "a", "operator": "Exists" }, { "key": "b", "value": "c", "effect": "NoSchedule" }]);
    for (name, given) in
        [("N030", json!(null)), ("E17", json!([])), ("N031 N032 U020", some), ("N033", json!(null))]
    {
        let mut cluster = cluster(Platform::OpenShift);
        ask(&mut cluster, &one_group(&json!({ "tolerations": given })));
        let wanted: Vec<Toleration> = serde_json::from_value(given).unwrap_or_default();
        assert_eq!(pod(&set(&cluster, "worker")).tolerations.unwrap_or_default(), wanted, "{name}");
    }
}

/// N048: all objects, in the order in which they are made; B-30: the certificate's Service comes before the pods.
#[test]
fn n048_all_objects_in_their_order() {
    let shared = [
        "ServiceAccount rte",
        "Role rte",
        "RoleBinding rte",
        "ClusterRole rte",
        "ClusterRoleBinding rte",
        "ValidatingAdmissionPolicy numaresources-exporter-own-node",
        "ValidatingAdmissionPolicyBinding numaresources-exporter-own-node",
        "NetworkPolicy rte-egress-to-api-server",
        "NetworkPolicy ingress-to-rte-metrics",
        "NetworkPolicy rte-default-deny-all",
    ];
    let constraints = [
        "SecurityContextConstraints resource-topology-exporter",
        "SecurityContextConstraints resource-topology-exporter-v2",
    ];
    for platform in PLATFORMS {
        let mut cluster = cluster(platform);
        ask(&mut cluster, &one_group(&json!({})));
        let mut all = vec!["CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io"];
        all.extend(shared);
        if platform.is_openshift() {
            all.extend(constraints);
        }
        all.extend(["Service numaresources-rte-metrics-service", "DaemonSet numaresourcesoperator-worker"]);
        assert_eq!(names(&cluster), all, "{platform}");
        for one in wanted(&cluster) {
            let owners = one.object.body()["metadata"]["ownerReferences"].clone();
            let shared = one.treatment == Treatment::Share;
            assert_eq!(shared, one.object.kind().kind == "CustomResourceDefinition");
            let owner = json!([{
                "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "name": OPERATOR, "uid": "u-1",
                "controller": true, "blockOwnerDeletion": true,
            }]);
            assert_eq!(owners, if shared { Value::Null } else { owner });
        }
    }
}

/// U017: what no group wants any more is not among what is wanted; what is done about it is the engine's.
#[test]
fn u017_objects_without_a_group() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(
        &mut cluster,
        &json!({ "nodeGroups": [{ "poolName": "worker", "annotations": { POLICY: "custom" } }] }),
    );
    assert_eq!(names(&cluster).iter().filter(|name| name.contains("-worker")).count(), 2);
    ask(&mut cluster, &one_group(&json!({})));
    assert_eq!(names(&cluster).iter().filter(|name| name.contains("-worker")).count(), 1);
}

/// B-23: selectors of pools do not overlap; an existing one, which cannot be changed, stays if it selects our pods.
#[test]
fn b23_selectors() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &groups(&["worker", "infra"], &json!({})));
    let selector = |cluster: &ClusterState, pool: &str| {
        serde_json::to_value(set(cluster, pool).spec.unwrap().selector).unwrap()
    };
    let new = |pool: &str| json!({ "matchLabels": { "name": "resource-topology", "nodegroup.nodetopology.openshift.io/machineconfigpool": pool } });
    assert_eq!(selector(&cluster, "worker"), new("worker"));
    assert_eq!(selector(&cluster, "infra"), new("infra"));
    let old = json!({ "matchLabels": { "name": "resource-topology" } });
    for (live, wanted) in [
        (old.clone(), old),
        (json!({ "matchLabels": { "name": "other" } }), new("worker")),
        (json!({}), new("worker")),
        (json!("nonsense"), new("worker")),
    ] {
        let key = ObjectKey {
            kind: objects::ObjectKind::of::<DaemonSet>(),
            namespace: Some(NAMESPACE.to_owned()),
            name: set_name("worker"),
        };
        cluster.observed.insert(key, json!({ "spec": { "selector": live } }));
        assert_eq!(selector(&cluster, "worker"), wanted, "{live}");
    }
}

/// B-22: a pool's own labels, expressions, and no node of a pool that comes before.
#[test]
fn b22_nodes() {
    let mut cluster = cluster(Platform::OpenShift);
    cluster.pools.insert("master".to_owned(), pool("master"));
    cluster.pools.get_mut("infra").unwrap().node_selector = serde_json::from_value(json!({
        "matchLabels": { "node-role.kubernetes.io/infra": "" },
        "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a", "b"] }],
    }))
    .ok();
    ask(&mut cluster, &groups(&["worker", "infra"], &json!({})));
    let nodes = |pool_name: &str| {
        let pod = pod(&set(&cluster, pool_name));
        let affinity = pod.affinity.unwrap().node_affinity.unwrap();
        let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
        let expression = |one: &k8s_openapi::api::core::v1::NodeSelectorRequirement| {
            let values = one.values.clone().unwrap_or_default();
            format!("{} {} {values:?}", one.key, one.operator)
        };
        let terms: Vec<Vec<String>> = terms
            .iter()
            .map(|term| term.match_expressions.iter().flatten().map(expression).collect())
            .collect();
        (pod.node_selector.unwrap(), terms)
    };
    let role = |name: &str| BTreeMap::from([(format!("node-role.kubernetes.io/{name}"), String::new())]);
    let linux = "kubernetes.io/os NotIn [\"windows\"]";
    let no_master = "node-role.kubernetes.io/master NotIn [\"\"]";
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(nodes("infra"), (role("infra"), vec![words(&["zone In [\"a\", \"b\"]", no_master, linux])]));
    assert_eq!(
        nodes("worker"),
        (
            role("worker"),
            vec![
                words(&["node-role.kubernetes.io/infra NotIn [\"\"]", no_master, linux]),
                words(&["zone NotIn [\"a\", \"b\"]", no_master, linux]),
            ]
        )
    );
}

/// N010, B-30: pods are replaced once when their configuration changes: the planned configuration counts.
#[test]
fn n010_b30_pods_follow_their_configuration() {
    let mut cluster = cluster(Platform::OpenShift);
    let hash = |cluster: &ClusterState| {
        let annotations =
            set(cluster, "worker").spec.unwrap().template.metadata.unwrap().annotations.unwrap();
        annotations["configmap.hash"].clone()
    };
    ask(&mut cluster, &one_group(&json!({})));
    let config = |cluster: &ClusterState| crate::kubeletconfig::config(cluster, "worker");
    let wanted = |cluster: &ClusterState| {
        config(cluster).map_or_else(String::new, |text| deployer::manifests::pod::config_hash(&text).1)
    };
    assert_eq!((hash(&cluster).as_str(), wanted(&cluster).as_str()), ("", ""), "nothing is known");
    let mut spec = one_group(&json!({}));
    spec["podExcludes"] = json!([{ "namespace": "kube-*", "name": "*" }]);
    ask(&mut cluster, &spec);
    let before = hash(&cluster);
    assert_eq!(before, wanted(&cluster));
    assert!(!before.is_empty());
    round(&mut cluster);
    assert_eq!(hash(&cluster), before, "the ConfigMap that is there plays no part");
}
