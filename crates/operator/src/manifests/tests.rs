use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler};
use deployer::platform::Platform;
use serde_json::Value;

use super::*;
use testkit::manifests::check_references;

fn on(platform: Platform) -> Options {
    let mut options = super::options();
    options.common.platform = platform;
    options.common.monitoring = platform.is_openshift();
    options
}

fn of_kind<'o>(objects: &'o [Object], kind: &str) -> Vec<&'o Object> {
    objects.iter().filter(|object| object.kind().kind == kind).collect()
}

/// The objects that an object refers to are made before it.
#[test]
fn referenced_objects_exist() {
    for platform in Platform::ALL {
        let objects = objects(&on(platform));
        check_references(objects.iter().map(Object::body), NAMESPACE, &[crate::rbac::CONFIG_MANAGED]);
    }
}

#[test]
fn referenced_ports_are_open() {
    for platform in Platform::ALL {
        let objects = objects(&on(platform));
        let container =
            &of_kind(&objects, "Deployment")[0].body()["spec"]["template"]["spec"]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        let named = |name: &Value| {
            let port = ports.iter().find(|port| port["name"] == *name);
            port.unwrap_or_else(|| panic!("{platform}: no port {name}"))["containerPort"].clone()
        };
        let service = &of_kind(&objects, "Service")[0].body()["spec"]["ports"][0];
        assert_eq!(named(&service["targetPort"]), service["port"]);
        for probe in ["livenessProbe", "readinessProbe"] {
            named(&container[probe]["httpGet"]["port"]);
        }
        let open = of_kind(&objects, "NetworkPolicy");
        let open = open.iter().find(|policy| policy.name() == "ingress-to-operator-metrics").unwrap();
        assert_eq!(open.body()["spec"]["ingress"][0]["ports"][0]["port"], service["port"]);
    }
}

#[test]
fn kubelets_are_asked_on_kubernetes_only() {
    for platform in Platform::ALL {
        let kubernetes = platform == Platform::Kubernetes;
        let policies = network_policies(&on(platform));
        let ports = serde_json::to_value(&policies[1].spec).unwrap()["egress"].to_string();
        assert_eq!(ports.contains("10250"), kubernetes, "{platform}");
        let rules = crate::rbac::rules(platform).cluster;
        assert_eq!(api::rbac::covers(&rules, &[exporter::rbac::configz()]), kubernetes, "{platform}");
    }
}

#[test]
fn options_reach_their_objects() {
    let mut options = on(Platform::OpenShift);
    options.namespace = "elsewhere".to_owned();
    options.common.images.tholepin = "registry.example/tholepin@sha256:0".to_owned();
    options.common.pull_secrets = vec!["registry".to_owned()];
    options.common.network_policies = false;
    options.common.critical_quota = true;
    let objects = objects(&options);
    for object in &objects {
        assert_ne!(object.namespace(), Some(NAMESPACE), "{object}");
        assert!(!object.body().to_string().contains(&format!("\"{NAMESPACE}\"")), "{object}");
    }
    assert!(of_kind(&objects, "NetworkPolicy").is_empty());
    assert_eq!(of_kind(&objects, "ResourceQuota").len(), 1);
    let pod = &of_kind(&objects, "Deployment")[0].body()["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/tholepin@sha256:0");
    assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
}

/// The port of API servers reaches the operator, for the policies of exporters and scheduler; the default is its own.
#[test]
fn ports_of_api_servers_reach_the_operator() {
    for (ports, wanted) in [
        (vec![6443, 443], vec!["operator"]),
        (vec![8443], vec!["operator", "--api-server-port=8443"]),
        (vec![16443, 443], vec!["operator", "--api-server-port=16443", "--api-server-port=443"]),
    ] {
        let mut options = on(Platform::Kubernetes);
        options.common.api_server_ports = ports;
        let objects = objects(&options);
        let pod = &of_kind(&objects, "Deployment")[0].body()["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["args"], serde_json::json!(wanted));
    }
    let mut options = on(Platform::Kubernetes);
    options.common.api_server_cidrs = vec!["192.0.2.1/32".to_owned()];
    options.common.updater.kubelet_root = true;
    let objects = objects(&options);
    let pod = &of_kind(&objects, "Deployment")[0].body()["spec"]["template"]["spec"];
    let wanted = ["operator", "--api-server-cidr=192.0.2.1/32", "--kubelet-root-mount"];
    assert_eq!(pod["containers"][0]["args"], serde_json::json!(wanted));
}

/// The rights of other schedulers are the operator's only where such a one is asked for.
#[test]
fn rights_of_other_schedulers_are_bound_on_request() {
    for (kind, wanted) in
        [(deployer::options::Scheduler::Tholepin, 0), (deployer::options::Scheduler::Plugin, 1)]
    {
        let mut options = on(Platform::OpenShift);
        options.common.scheduler.kind = kind;
        let objects = objects(&options);
        let named = |kind: &str| {
            of_kind(&objects, kind).iter().filter(|one| one.name() == access::OTHER_SCHEDULERS).count()
        };
        assert_eq!((named("ClusterRole"), named("ClusterRoleBinding")), (1, wanted));
    }
}

#[test]
fn only_openshift_gets_its_own_fields() {
    for platform in Platform::ALL {
        let text: String = objects(&on(platform)).iter().map(|object| object.body().to_string()).collect();
        let words = [
            "openshift.io/cluster-monitoring",
            "serving-cert-secret-name",
            "metrics-service-cert",
            "ServiceMonitor",
        ];
        for word in words {
            assert_eq!(text.contains(word), platform.is_openshift(), "{platform}: {word}");
        }
    }
}

/// A sample is read back unchanged, and fits the platform.
#[test]
fn samples_are_read_back_unchanged() {
    for platform in Platform::ALL {
        let objects = samples::objects(platform);
        let operator: NumaResourcesOperator = serde_json::from_value(objects[0].body().clone()).unwrap();
        assert_eq!(operator, samples::numa_resources_operator(platform));
        let scheduler: NumaResourcesScheduler = serde_json::from_value(objects[1].body().clone()).unwrap();
        assert_eq!(scheduler, samples::numa_resources_scheduler());
        let group = &operator.spec.node_groups[0];
        assert_eq!(group.node_selector.is_some(), platform == Platform::Kubernetes, "{platform}");
        assert_eq!(group.pool_name.is_none(), platform == Platform::OpenShift, "{platform}");
    }
}
