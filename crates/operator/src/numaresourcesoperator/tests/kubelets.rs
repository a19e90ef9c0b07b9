//! Kubelets of other distributions than kubeadm: where exporters find them, and what they may do for that.

use exporter::settings::KubeletConfigSource;
use k8s_openapi::api::rbac::v1::ClusterRole;

use super::args::understood;
use super::*;

const IMAGE: &str = "example.com/other:1";

/// A request with these kubelets, for our exporter or for another image.
fn asked(kubelet: &Value, image: &str) -> ClusterState {
    let mut cluster = cluster(Platform::Kubernetes);
    cluster.environment.exporter_image_restricted = false;
    let mut spec = one_group(&json!({}));
    spec["kubelet"] = kubelet.clone();
    spec["imageSpec"] = image.into();
    ask(&mut cluster, &spec);
    cluster
}

/// The directories of the node that are mounted, by their paths in the container.
fn node_directories(cluster: &ClusterState) -> BTreeMap<String, String> {
    let pod = pod(&set(cluster, "worker"));
    let volumes = pod.volumes.iter().flatten();
    let paths: BTreeMap<_, _> =
        volumes.filter_map(|volume| Some((&volume.name, &volume.host_path.as_ref()?.path))).collect();
    let mounts = pod.containers[0].volume_mounts.iter().flatten();
    mounts.filter_map(|mount| Some((mount.mount_path.clone(), (*paths.get(&mount.name)?).clone()))).collect()
}

fn may_ask_kubelets(cluster: &ClusterState) -> (bool, bool) {
    let body = |kind: &str, name: &str| {
        let all = wanted(cluster);
        let found =
            all.into_iter().find(|one| one.object.kind().kind == kind && one.object.name() == name).unwrap();
        found.object.body().clone()
    };
    let role: ClusterRole = serde_json::from_value(body("ClusterRole", "rte")).unwrap();
    let right = api::rbac::covers(&role.rules.unwrap(), &[::exporter::rbac::configz()]);
    let egress = body("NetworkPolicy", "rte-egress-to-api-server")["spec"]["egress"].to_string();
    (right, egress.contains("10250"))
}

/// The source of the configuration, and the mounted directories of the kubelet, for each kind of kubelet.
#[test]
fn exporters_find_their_kubelet() {
    let file = |path: &str, drop_ins: Option<&str>| KubeletConfigSource::File {
        path: path.into(),
        drop_ins: drop_ins.map(Into::into),
    };
    for (kubelet, source, wanted) in [
        (
            json!({ "distribution": "kind" }),
            file("/host-var-lib-kubelet/config.yaml", None),
            vec![
                "/host-podresources=/var/lib/kubelet/pod-resources",
                "/host-var-lib-kubelet/config.yaml=/var/lib/kubelet/config.yaml",
            ],
        ),
        (
            json!({ "root": "/data/kubelet", "configDropIns": "/data/kubelet/config.d" }),
            file("/host-var-lib-kubelet/config.yaml", Some("/host-var-lib-kubelet/config.d")),
            vec![
                "/host-podresources=/data/kubelet/pod-resources",
                "/host-var-lib-kubelet/config.d=/data/kubelet/config.d",
                "/host-var-lib-kubelet/config.yaml=/data/kubelet/config.yaml",
            ],
        ),
        (
            json!({ "config": "/etc/kubernetes/kubelet/config.json", "configDropIns": "/etc/kubernetes/kubelet/config.json.d" }),
            file("/host-kubelet-config/config.json", Some("/host-kubelet-config.d")),
            vec![
                "/host-kubelet-config.d=/etc/kubernetes/kubelet/config.json.d",
                "/host-kubelet-config/config.json=/etc/kubernetes/kubelet/config.json",
                "/host-podresources=/var/lib/kubelet/pod-resources",
            ],
        ),
    ] {
        let cluster = asked(&kubelet, "");
        let settings = understood(&cluster, "worker", &["/etc/resource-topology-exporter", "/run/pfpstatus"]);
        assert_eq!(settings.sources.kubelet_config, source, "{kubelet}");
        let mut mounts: Vec<_> =
            node_directories(&cluster).into_iter().map(|(at, path)| format!("{at}={path}")).collect();
        mounts.retain(|mount| mount.contains("kubelet"));
        assert_eq!(mounts, wanted, "{kubelet}");
        assert_eq!(may_ask_kubelets(&cluster), (false, false), "{kubelet}");
    }
}

/// Only our exporter asks its kubelet; it may, and nothing is asked without a check unless that was requested.
#[test]
fn exporters_ask_their_kubelet() {
    for (more, trust, image) in [
        (json!({}), "File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\")", ""),
        (json!({ "certificateAuthority": "kubelets" }), "File(\"/etc/kubelet-ca/ca.crt\")", ""),
        (json!({ "insecure": true }), "Unchecked", ""),
        (json!({}), "", IMAGE),
    ] {
        let mut kubelet = json!({ "distribution": "microk8s" });
        kubelet.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let cluster = asked(&kubelet, image);
        let own = image.is_empty();
        assert_eq!(may_ask_kubelets(&cluster), (own, own), "{kubelet}");
        let root = "/var/snap/microk8s/common/var/lib/kubelet";
        let directories = node_directories(&cluster);
        assert_eq!(directories["/host-podresources"], format!("{root}/pod-resources"));
        assert!(!directories.contains_key("/host-var-lib-kubelet"), "it has credentials");
        if !own {
            assert!(!arguments(&cluster, "worker").iter().any(|arg| arg.starts_with("--kubelet-")));
            continue;
        }
        let settings = understood(&cluster, "worker", &["/etc/resource-topology-exporter", "/run/pfpstatus"]);
        let url = "https://$(NODE_IP):10250/configz";
        let wanted = format!("Configz {{ url: {url:?}, token: ");
        let source = format!("{:?}", settings.sources.kubelet_config);
        assert!(source.starts_with(&wanted) && source.ends_with(&format!("trust: {trust} }}")), "{source}");
        let pod = pod(&set(&cluster, "worker"));
        let maps = pod.volumes.iter().flatten().filter_map(|volume| volume.config_map.as_ref());
        let authority = maps.filter(|map| map.name == "kubelets").count();
        assert_eq!(authority, usize::from(trust.contains("/etc/kubelet-ca")), "{kubelet}");
    }
}

/// Settings that the user states reach the exporters, and no kubelet is waited for.
#[test]
fn stated_settings_are_used() {
    let mut cluster = asked(&json!({ "config": "restricted/pod" }), "");
    cluster.kubelets.clear();
    let config = crate::kubeletconfig::config(&cluster, "worker").unwrap();
    assert!(config.contains("topologyManagerPolicy: restricted\n  topologyManagerScope: pod"), "{config}");
    assert!(!arguments(&cluster, "worker").iter().any(|arg| arg.starts_with("--kubelet-config")));
    let status = round(&mut cluster);
    let condition = status.conditions.iter().find(|one| one.type_ == KUBELETS_CONFIGURED).unwrap();
    assert_eq!(condition.status, "True", "{condition:?}");
}

/// Kubelets that sign their own certificates: our exporters read their files, so only the operator does not know, and
/// the message names the ways out.
#[test]
fn kubelets_with_own_certificates_are_unknown_and_the_way_out_is_named() {
    for (image, error, wanted) in [
        ("", "invalid peer certificate: UnknownIssuer", "Unknown"),
        ("", "timed out", "Unknown"),
        (IMAGE, "invalid peer certificate: UnknownIssuer", "False"),
    ] {
        let mut cluster = asked(&json!({}), image);
        let answers = BTreeMap::from([("worker-0".to_owned(), Err(error.to_owned()))]);
        cluster.kubelets.insert("worker".to_owned(), answers);
        let status = round(&mut cluster);
        let condition = status.conditions.iter().find(|one| one.type_ == KUBELETS_CONFIGURED).unwrap();
        assert_eq!(condition.status, wanted, "{image} {condition:?}");
        assert_eq!(condition.message.lines().count(), 1, "{condition:?}");
        let ways = ["spec.kubelet.certificateAuthority", "spec.kubelet.insecure: true"];
        let named = ways.iter().all(|way| condition.message.contains(way));
        assert_eq!(named, error.contains("certificate"), "{condition:?}");
    }
}

/// Mistakes in the field are Degraded; running exporters stay.
#[test]
fn mistakes_about_kubelets_are_degraded() {
    let mut cluster = asked(&json!({ "root": "relative" }), "");
    let holds = holding(&round(&mut cluster));
    let wanted = "Degraded ValidationErrorUnderNodeGroups spec.kubelet.root: \"relative\" is not allowed";
    assert!(holds.iter().any(|line| line.starts_with(wanted)), "{holds:?}");
}
