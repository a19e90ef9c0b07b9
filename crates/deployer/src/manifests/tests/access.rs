//! No program may do more than its command line needs, and every rule can match a request.

use ::exporter::compat::Environment;
use ::exporter::rbac::Needs;
use clap::{Parser, ValueEnum as _};

use super::*;
use crate::options::{Distribution, Kubelet, KubeletCertificate, KubeletConfig};

#[derive(Parser)]
struct Exporter {
    #[command(flatten)]
    args: ::exporter::Args,
}

#[derive(Parser)]
struct Scheduling {
    #[command(flatten)]
    args: ::scheduler::args::Args,
}

/// As the exporter understands the flags of its pod on a node with this address.
fn settings(options: &Options) -> ::exporter::Settings {
    let flags = exporter::flags(options).unwrap();
    let flags = flags.iter().map(|flag| flag.replace("$(NODE_IP)", "10.0.0.5"));
    let args = Exporter::try_parse_from(flags).unwrap_or_else(|error| panic!("{error}")).args;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("etc/tholepin/config.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, options.updater.config.clone().unwrap_or_default()).unwrap();
    let around = Environment {
        variables: [("NODE_NAME".to_owned(), "node-0".to_owned())].into(),
        root: dir.path().to_owned(),
        host: "exporter-x".to_owned(),
        user: 0,
    };
    args.settings_in(&around).unwrap_or_else(|problems| panic!("{problems:?}")).0
}

#[test]
fn the_exporters_role_is_what_its_flags_need() {
    let kubelets = Distribution::value_variants().iter().map(|one| one.kubelet()).chain([Kubelet {
        root: "/var/lib/kubelet".to_owned(),
        config: KubeletConfig::Stated {
            policy: topology::policy::Policy::Restricted,
            scope: topology::policy::Scope::Pod,
        },
        certificate: KubeletCertificate::Cluster,
    }]);
    for kubelet in kubelets {
        let mut options = Options::default();
        options.updater.kubelet = Some(kubelet.clone());
        let needs = exporter::needs(&options);
        assert_eq!(needs, Needs::from(&settings(&options)), "{kubelet:?}");
    }
}

#[test]
fn the_exporter_is_told_where_things_are_mounted() {
    let ours = everything().iter().filter(|case| case.options.updater.kind == Updater::Tholepin);
    for Case { name, options, .. } in ours {
        let settings = settings(options);
        let mounts = exporter::mounts(options);
        let mounted = |path: &std::path::Path| {
            assert!(mounts.iter().any(|(mount, _)| path.starts_with(&mount.mount_path)), "{name}: {path:?}");
        };
        mounted(&settings.sources.sysfs);
        mounted(&settings.sources.podresources.file());
        assert_eq!(settings.sources.kubelet_root.is_some(), options.updater.kubelet_root, "{name}");
        settings.sources.kubelet_root.iter().for_each(|root| mounted(root));
        if let ::exporter::settings::KubeletConfigSource::File { path, drop_ins } =
            settings.sources.kubelet_config
        {
            mounted(&path);
            drop_ins.iter().for_each(|dir| mounted(dir));
        }
        assert_eq!(settings.serving.unwrap().address.port(), options.updater.metrics_port, "{name}");
        assert_eq!(settings.health.unwrap().port(), pod::HEALTH, "{name}");
        for (mount, _) in &mounts {
            assert_eq!(mount.read_only, Some(true), "{name}: {}", mount.name);
        }
    }
}

/// The kubelet's key and the tokens of the node's pods are below its root directory, those of a control plane beside
/// its configuration elsewhere.
#[test]
fn the_exporter_sees_no_credentials_unless_asked_to() {
    let file = |path: &str| {
        let config = KubeletConfig::File { path: path.to_owned(), drop_ins: Some("/k/conf.d".to_owned()) };
        Some(Kubelet { root: "/k".to_owned(), config, certificate: KubeletCertificate::Cluster })
    };
    for (config, root, wanted) in [
        (
            "/k/config.yaml",
            false,
            vec![
                "/k/pod-resources Directory",
                "/sys Directory",
                "/k/config.yaml File",
                "/k/conf.d Directory",
            ],
        ),
        ("/k/config.yaml", true, vec!["/k Directory", "/sys Directory"]),
        (
            "/etc/kubernetes/kubelet.conf",
            true,
            vec!["/k Directory", "/sys Directory", "/etc/kubernetes/kubelet.conf File"],
        ),
    ] {
        let mut options = Options::default();
        options.updater.kubelet = file(config);
        options.updater.kubelet_root = root;
        let volumes = exporter::mounts(&options).into_iter().filter_map(|(_, volume)| volume.host_path);
        let volumes: Vec<_> = volumes.map(|host| format!("{} {}", host.path, host.type_.unwrap())).collect();
        assert_eq!(volumes, wanted, "{config}");
    }
}

#[test]
fn the_scheduler_takes_its_flags_and_its_file() {
    let options = Options::default();
    let args =
        Scheduling::try_parse_from(scheduler::flags(&options)).unwrap_or_else(|error| panic!("{error}"));
    let objects = objects(&options);
    let maps = of_kind(&objects, "ConfigMap");
    let map = maps.iter().find(|map| map.namespace() == Some(scheduler::NAMESPACE)).unwrap();
    let (key, content) = map.body()["data"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(args.args.health_probe_bind_address.unwrap().port(), pod::HEALTH);
    assert_eq!(args.args.config.unwrap().file_name().unwrap().to_str(), Some(key.as_str()));
    let file = api::schedulerconfig::SchedulerConfig::parse(text(content)).unwrap();
    assert!(file.leader_election.leader_elect);
    let [lease] = of_kind(&objects, "Role")[..] else { panic!("one Role") };
    assert_eq!(lease.namespace(), Some(file.leader_election.resource_namespace.as_str()));
    assert_eq!(lease.body()["rules"][1]["resourceNames"][0], file.leader_election.resource_name);
}

/// A request that creates something has no name to compare with.
#[test]
fn no_rule_limits_creation_to_names() {
    for Case { name, objects, .. } in everything() {
        for role in objects.iter().filter(|object| object.kind().kind.ends_with("Role")) {
            for rule in list(&role.body()["rules"]) {
                let creates = list(&rule["verbs"]).iter().any(|verb| verb == "create");
                assert!(!creates || rule["resourceNames"].is_null(), "{name}: {role}: {rule}");
                assert!(list(&rule["resourceNames"]).iter().all(|name| name != ""), "{name}: {role}");
            }
        }
    }
}

#[test]
fn old_clusters_get_what_they_have() {
    let has_policy = |platform, version: &str| {
        let mut options = options((platform, version), Updater::Rte, Scheduler::Plugin);
        options.updater.kind = Updater::Tholepin;
        options.updater.kubelet = Some(Distribution::Kubeadm.kubelet());
        !of_kind(&objects(&options), "ValidatingAdmissionPolicy").is_empty()
    };
    for (platform, version, wanted) in [
        (Platform::Kubernetes, "v1.31.9", false),
        (Platform::Kubernetes, "v1.32.0-rc.1", true),
        (Platform::OpenShift, "4.18.1", false),
        (Platform::OpenShift, "4.19.0", true),
        (Platform::HyperShift, "v1.36.0", true),
    ] {
        assert_eq!(has_policy(platform, version), wanted, "{platform} {version}");
    }
}

#[test]
fn an_admission_policy_that_is_left_out_is_told() {
    for (platform, version, wanted) in [
        (Platform::Kubernetes, Some("v1.30.1"), true),
        (Platform::Kubernetes, Some("v1.32.0"), false),
        (Platform::Kubernetes, None, false),
        (Platform::OpenShift, Some("4.18.3"), true),
        (Platform::OpenShift, Some("4.19.0"), false),
    ] {
        let version = version.map(|version| version.parse().unwrap());
        let mut options = Options { platform, version, ..Options::default() };
        // Older clusters do not have the right that `/configz` needs.
        options.updater.kubelet = Some(Distribution::Kubeadm.kubelet());
        let made = objects(&options);
        let told = exporter::policy_left_out(&options);
        assert_eq!(
            (of_kind(&made, "ValidatingAdmissionPolicy").is_empty(), told.is_some()),
            (wanted, wanted)
        );
        options.updater.admission_policy = false;
        assert_eq!(exporter::policy_left_out(&options), None);
    }
}
