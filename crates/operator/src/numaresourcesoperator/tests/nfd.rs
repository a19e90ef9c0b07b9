//! nfd-topology-updater in the place of the exporter, by `spec.updaterType`.

use exporter::settings::{KubeletConfigSource, Mode, OwnerKind};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};

use super::args::understood;
use super::*;

const OTHER: &str = "registry.example.com/nfd:v0.20";

/// A request for nfd-topology-updater of this image, with these kubelets and this configuration.
fn asked(platform: Platform, image: &str, kubelet: &Value, config: &Value) -> ClusterState {
    let mut cluster = cluster(platform);
    cluster.environment.exporter_image_restricted = false;
    ask(&mut cluster, &spec("NFD", image, kubelet, config));
    cluster
}

fn spec(updater: &str, image: &str, kubelet: &Value, config: &Value) -> Value {
    let mut spec = one_group(config);
    spec["updaterType"] = updater.into();
    spec["imageSpec"] = image.into();
    spec["kubelet"] = kubelet.clone();
    spec
}

/// The program of our image takes all arguments, and does what was asked for.
#[test]
fn our_program_does_what_is_asked_for() {
    for platform in PLATFORMS {
        for (fingerprint, pause, period) in
            [("Enabled", "Disabled", "10s"), ("Disabled", "Enabled", "33s"), ("Enabled", "Enabled", "1m0s")]
        {
            let config = json!({
                "podsFingerprinting": fingerprint, "infoRefreshPause": pause, "infoRefreshPeriod": period,
            });
            let cluster = asked(platform, "", &Value::Null, &config);
            let settings = understood(&cluster, "worker", &["/host-sys"]);
            let name = format!("{platform} {config}");
            let file = KubeletConfigSource::File {
                path: "/host-var/lib/kubelet/config.yaml".into(),
                drop_ins: None,
            };
            assert_eq!(settings.sources.kubelet_config, file, "{name}");
            assert_eq!(settings.sources.kubelet_root, None, "{name}");
            assert_eq!(settings.accounting.fingerprint.is_some(), fingerprint == "Enabled", "{name}");
            let publishing = settings.publishing.map(|one| (one.mode, one.owner));
            let wanted = (pause == "Disabled").then_some((Mode::Apply, OwnerKind::Namespace));
            assert_eq!(publishing, wanted, "{name}");
            let wanted: api::goduration::GoDuration = period.parse().unwrap();
            assert_eq!(Some(settings.intervals.timer), wanted.to_std(), "{name}");
            let port = settings.serving.map(|serving| (serving.address.port(), serving.tls.is_some()));
            assert_eq!(port, Some((2112, false)), "{name}");
            assert_eq!(settings.node, "node-a", "{name}");
        }
    }
}

/// Kubelets are asked with a check of their certificate, unless the request says otherwise.
#[test]
fn kubelets_are_asked_as_requested() {
    let k3s = json!({ "distribution": "k3s" });
    let mut insecure = k3s.clone();
    insecure["insecure"] = true.into();
    for (kubelet, image, flag) in [(&k3s, "", false), (&insecure, "", true), (&insecure, OTHER, false)] {
        let cluster = asked(Platform::Kubernetes, image, kubelet, &json!({}));
        let args = arguments(&cluster, "worker");
        assert!(args.contains(&"--kubelet-config-uri=https://$(NODE_ADDRESS):10250/configz".to_owned()));
        // Other images know no such flag, and check nothing.
        assert_eq!(args.contains(&"--kubelet-config-insecure".to_owned()), flag, "{kubelet} {image}");
        let rules: ClusterRole = find(&cluster, "ClusterRole");
        let right = [::exporter::rbac::configz()];
        assert!(api::rbac::covers(&rules.rules.unwrap(), &right), "{kubelet} {image}");
    }
}

/// Settings that the program would drop are Degraded, with their field; what runs stays.
#[test]
fn kubelets_that_it_cannot_follow_are_degraded() {
    for (kubelet, image, wanted) in [
        (
            json!({ "config": "restricted/pod" }),
            "",
            "config: with updaterType NFD it must be a file or configz",
        ),
        (json!({ "configDropIns": "/d" }), "", "configDropIns: updaterType NFD reads no drop-ins"),
        (
            json!({ "distribution": "k3s", "certificateAuthority": "m" }),
            "",
            "certificateAuthority: updaterType NFD knows no authority but the cluster's",
        ),
        (
            json!({ "distribution": "k3s" }),
            OTHER,
            "insecure: it must be true with updaterType NFD and this image",
        ),
    ] {
        let mut cluster = asked(Platform::Kubernetes, image, &kubelet, &json!({}));
        let holds = holding(&round(&mut cluster));
        let wanted = format!("Degraded ValidationErrorUnderNodeGroups spec.kubelet.{wanted}");
        assert!(holds.iter().any(|line| line.starts_with(&wanted)), "{holds:?}");
        ask(&mut cluster, &spec("RTE", image, &kubelet, &json!({})));
        assert_eq!(holding(&round(&mut cluster)), WELL, "{kubelet}");
    }
    // The operator's flags count likewise.
    let mut cluster = asked(Platform::Kubernetes, "", &Value::Null, &json!({}));
    let stated = "restricted/pod".parse().unwrap();
    let usual = deployer::options::Distribution::Kubeadm.kubelet();
    cluster.environment.kubelet = Some(usual.changed(None, Some(stated)));
    assert!(holding(&round(&mut cluster))[0].contains("spec.kubelet.config: with updaterType NFD"));
}

/// The rights of the program that runs, and no other's; other images write as older versions do, and watch pods.
#[test]
fn rights_are_those_of_the_program_that_runs() {
    let object = "noderesourcetopologies: get list watch create patch";
    let others = "nodes: get list; pods: get; noderesourcetopologies: create get update; pods: list watch";
    for (image, wanted) in [("", object.to_owned()), (OTHER, format!("{object}; {others}"))] {
        let cluster = asked(Platform::Kubernetes, image, &Value::Null, &json!({}));
        let role: ClusterRole = find(&cluster, "ClusterRole");
        assert_eq!(api::rbac::show(&role.rules.unwrap()), wanted, "{image}");
        let role: Role = find(&cluster, "Role");
        assert_eq!(api::rbac::show(&role.rules.unwrap()), "namespaces: get", "{image}");
    }
}

/// Metrics have a Service and an opening only where readers find them: not without TLS on OpenShift.
#[test]
fn metrics_are_where_readers_look() {
    for (platform, image, wanted) in [
        (Platform::Kubernetes, "", true),
        (Platform::Kubernetes, OTHER, false),
        (Platform::OpenShift, "", false),
        (Platform::HyperShift, "", false),
    ] {
        let cluster = asked(platform, image, &Value::Null, &json!({}));
        let names = names(&cluster);
        for name in ["Service numaresources-rte-metrics-service", "NetworkPolicy ingress-to-rte-metrics"] {
            assert_eq!(names.contains(&name.to_owned()), wanted, "{platform} {image} {name}");
        }
        let pod = pod(&set(&cluster, "worker"));
        let container = &pod.containers[0];
        assert_eq!(container.readiness_probe.is_some(), image.is_empty(), "{platform} {image}");
        assert_eq!((pod.containers.len(), pod.readiness_gates.is_some()), (1, false), "{platform} {image}");
    }
}

/// The same DaemonSet rolls; what only the other program needs goes, and comes back.
#[test]
fn a_change_of_the_type_rolls_the_same_set() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &one_group(&json!({})));
    round(&mut cluster);
    let before = desired(&cluster);
    let selector = |cluster: &ClusterState| set(cluster, "worker").spec.unwrap().selector;
    let of_rte = selector(&cluster);
    ask(&mut cluster, &spec("NFD", "", &Value::Null, &json!({})));
    assert_eq!(selector(&cluster), of_rte, "it cannot be changed");
    let deletions = |cluster: &ClusterState| {
        let mut all = changes(cluster);
        all.retain(|change| !change.starts_with("apply"));
        all.sort();
        all
    };
    assert_eq!(
        deletions(&cluster),
        [
            "delete NetworkPolicy ingress-to-rte-metrics",
            "delete SecurityContextConstraints resource-topology-exporter",
            "delete Service numaresources-rte-metrics-service",
        ]
    );
    let status = round(&mut cluster);
    assert_eq!(holding(&status), WELL);
    let config = &status.node_groups[0].config;
    let wanted = (Some(PodsFingerprinting::Enabled), Some(api::numaresources::InfoRefreshMode::Periodic));
    assert_eq!((config.pods_fingerprinting, config.info_refresh_mode), wanted);
    assert_eq!(deletions(&cluster), [""; 0]);
    ask(&mut cluster, &one_group(&json!({})));
    assert_eq!(desired(&cluster), before);
}

/// Only the exporter reads the operator's configuration file.
#[test]
fn there_is_no_configuration_file() {
    let maps = |cluster: &ClusterState| match crate::kubeletconfig::desired(cluster) {
        Desired::Objects(objects) => objects.len(),
        other => panic!("{other:?}"),
    };
    let mut cluster = asked(Platform::Kubernetes, "", &Value::Null, &json!({}));
    assert_eq!(maps(&cluster), 0);
    ask(&mut cluster, &spec("RTE", "", &Value::Null, &json!({})));
    assert_eq!(maps(&cluster), 1);
}

fn find<T: serde::de::DeserializeOwned>(cluster: &ClusterState, kind: &str) -> T {
    let found = wanted(cluster).into_iter().find(|one| one.object.kind().kind == kind);
    serde_json::from_value(found.unwrap().object.body().clone()).unwrap()
}
