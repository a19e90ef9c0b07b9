//! The exporters' arguments: what the Go operator's tests say of them, and that our exporter understands all there can
//! be.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use deployer::manifests::pod;
use exporter::compat::{Environment, Peer, Start};
use exporter::settings::{KubeletConfigSource, OwnerKind, PodName, Settings};
use topology::fingerprint::Method;

use super::*;

/// Arguments that are there and arguments that are not, each as a whole or, ending in `=`, as the beginning of one.
struct Row {
    name: &'static str,
    config: Value,
    there: &'static [&'static str],
    absent: &'static [&'static str],
}

fn rows() -> Vec<Row> {
    let row = |name, config, there, absent| Row { name, config, there, absent };
    const FINGERPRINT: &str = "--pods-fingerprint";
    vec![
        row(
            "N018 N026",
            json!({}),
            &["--sleep-interval=10s", FINGERPRINT],
            &["--no-publish", "--pods-fingerprint=false"],
        ),
        row(
            "N021 N022 N025 U019",
            json!({ "podsFingerprinting": "Enabled", "infoRefreshPeriod": "33s", "infoRefreshMode": "Periodic", "infoRefreshPause": "Enabled" }),
            &["--sleep-interval=33s", FINGERPRINT, "--no-publish", "--pods-fingerprint-method=all"],
            &["--notify-file="],
        ),
        row(
            "N023 U019",
            json!({ "podsFingerprinting": "Disabled" }),
            &["--pods-fingerprint=false"],
            &[FINGERPRINT, "--pods-fingerprint-method="],
        ),
        row("N024", json!({ "infoRefreshPeriod": "42s" }), &["--sleep-interval=42s"], &[]),
        row("N027", json!({ "infoRefreshPause": "Enabled" }), &["--no-publish"], &[]),
        row(
            "N027 N028",
            json!({ "infoRefreshPause": "Disabled", "infoRefreshPeriod": "12s" }),
            &["--sleep-interval=12s"],
            &["--no-publish"],
        ),
        row(
            "N029",
            json!({ "podsFingerprinting": "EnabledExclusiveResources" }),
            &[FINGERPRINT, "--pods-fingerprint-method=with-exclusive-resources"],
            &[],
        ),
        row("N029", json!({ "podsFingerprinting": "Enabled" }), &["--pods-fingerprint-method=all"], &[]),
        row(
            "U019 B-02",
            json!({ "infoRefreshMode": "Events", "infoRefreshPeriod": "33s" }),
            &[
                "--notify-file=/run/rte/notify",
                "--sleep-interval=0s",
                "--kubelet-state-dir=/host-var-lib-kubelet",
            ],
            &[],
        ),
        row(
            "U019 B-02",
            json!({ "infoRefreshMode": "PeriodicAndEvents", "infoRefreshPeriod": "33s" }),
            &[
                "--notify-file=/run/rte/notify",
                "--sleep-interval=33s",
                "--kubelet-state-dir=/host-var-lib-kubelet",
            ],
            &[],
        ),
        row(
            "U019 Periodic",
            json!({ "infoRefreshMode": "Periodic" }),
            &["--sleep-interval=10s", "--kubelet-state-dir="],
            &[],
        ),
        row("E15", json!({ "infoRefreshPeriod": "0s" }), &["--sleep-interval=0s"], &[]),
        row("E16", json!({ "infoRefreshPeriod": "1500ms" }), &["--sleep-interval=1.5s"], &[]),
        row(
            "U019 all",
            json!({}),
            &["--refresh-node-resources", "--add-nrt-owner=false", "--sysfs=/host-sys", "-v=2"],
            &[],
        ),
    ]
}

#[test]
fn arguments_state_the_configuration() {
    for platform in PLATFORMS {
        for Row { name, config, there, absent } in rows() {
            let mut cluster = cluster(platform);
            cluster.environment.kubelet_root_mount = true;
            ask(&mut cluster, &one_group(&config));
            let args = arguments(&cluster, "worker");
            let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
            let begins =
                |wanted: &str| wanted.ends_with('=') && args.iter().any(|arg| arg.starts_with(wanted));
            for wanted in there {
                assert!(has(wanted), "{name} {platform}: {wanted} is not in {args:?}");
            }
            for unwanted in absent {
                assert!(!has(unwanted) && !begins(unwanted), "{name} {platform}: {unwanted} is in {args:?}");
            }
            let flags: BTreeSet<&str> = args.iter().filter_map(|arg| arg.split('=').next()).collect();
            assert_eq!(flags.len(), args.len(), "U019 {name} {platform}: a flag twice in {args:?}");
            let command = pod(&set(&cluster, "worker")).containers[0].command.clone();
            assert_eq!(command, Some(vec!["/bin/resource-topology-exporter".to_owned()]), "U019");
        }
    }
}

#[test]
fn n019_n020_metrics_are_served_as_the_cluster_wants_it() {
    for (platform, tls, wanted) in [
        (
            Platform::OpenShift,
            Some(("VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")),
            &[
                "--metrics-mode=httptls",
                "--metrics-tls-min-version=VersionTLS12",
                "--metrics-tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            ][..],
        ),
        (
            Platform::HyperShift,
            Some(("VersionTLS13", "")),
            &["--metrics-mode=httptls", "--metrics-tls-min-version=VersionTLS13"],
        ),
        (Platform::OpenShift, Some(("", "")), &["--metrics-mode=httptls"]),
        (Platform::HyperShift, None, &["--metrics-mode=httptls"]),
        (Platform::Kubernetes, None, &["--metrics-mode=http"]),
        (Platform::Kubernetes, Some(("VersionTLS12", "")), &["--metrics-mode=http"]),
    ] {
        let mut cluster = cluster(platform);
        cluster.tls = tls.map(|(version, suites)| TlsProfile {
            min_version: version.to_owned(),
            cipher_suites: suites.to_owned(),
        });
        ask(&mut cluster, &one_group(&json!({})));
        let args = arguments(&cluster, "worker");
        let metrics: Vec<&String> = args.iter().filter(|arg| arg.starts_with("--metrics-")).collect();
        assert_eq!(metrics, wanted, "{platform} {tls:?}");
    }
}

/// U016: in the words of klog.
#[test]
fn u016_levels_of_logs() {
    for (level, wanted) in
        [("Normal", "-v=2"), ("", "-v=2"), ("Debug", "-v=4"), ("Trace", "-v=6"), ("TraceAll", "-v=8")]
    {
        let mut cluster = cluster(Platform::OpenShift);
        let mut spec = one_group(&json!({}));
        spec["logLevel"] = json!(level);
        ask(&mut cluster, &spec);
        let args = arguments(&cluster, "worker");
        let levels: Vec<&String> = args.iter().filter(|arg| arg.starts_with("-v")).collect();
        assert_eq!(levels, [wanted], "{level:?}");
    }
}

/// A profile that leaves our exporter nothing to offer would end it at its start.
#[test]
fn a_tls_profile_that_cannot_be_followed_holds_the_exporters() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &one_group(&json!({})));
    round(&mut cluster);
    let suites = "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned();
    cluster.tls = Some(TlsProfile { min_version: "VersionTLS12".to_owned(), cipher_suites: suites });
    assert!(names(&cluster).contains(&"DaemonSet numaresourcesoperator-worker (held)".to_owned()));
    let holds = holding(&round(&mut cluster));
    assert!(
        holds[0].starts_with("Degraded InternalError the cluster's TLS profile cannot be followed: "),
        "{holds:?}"
    );
}

/// What our exporter makes of its pod: its arguments and variables, with nothing mounted but what `mounted` says.
pub(super) fn understood(cluster: &ClusterState, pool: &str, mounted: &[&str]) -> Settings {
    let pod = pod(&set(cluster, pool));
    let container = &pod.containers[0];
    let root = tempfile::tempdir().unwrap();
    for dir in mounted {
        std::fs::create_dir_all(root.path().join(dir.trim_start_matches('/'))).unwrap();
    }
    let field = |path: &str| match path {
        "spec.nodeName" => "node-a",
        "metadata.namespace" => NAMESPACE,
        "metadata.name" => "pod-a",
        "status.hostIP" => "10.0.0.5",
        other => panic!("{other}"),
    };
    let variable = |variable: &k8s_openapi::api::core::v1::EnvVar| {
        let source = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
        let value = source.map(|source| field(&source.field_path).to_owned());
        (variable.name.clone(), value.or_else(|| variable.value.clone()).unwrap())
    };
    let around = Environment {
        variables: container.env.iter().flatten().map(variable).collect(),
        root: root.path().to_owned(),
        host: "host".to_owned(),
        user: 0,
    };
    let command = container.command.as_ref().unwrap()[0].rsplit('/').next().unwrap().to_owned();
    let peer = Peer::named(&command).unwrap();
    match peer.start(&command, container.args.clone().unwrap(), &around) {
        Start::Run(plan) => plan.settings,
        Start::End(ending) => panic!("{:?}: {}", container.args, ending.stderr),
    }
}

/// Every mode, fingerprint, pause and TLS setting, on every platform: our exporter runs, and does what was asked for.
#[test]
fn our_exporter_accepts_all_arguments() {
    let mut count = 0;
    for platform in PLATFORMS {
        for mode in ["Periodic", "Events", "PeriodicAndEvents"] {
            for fingerprint in ["Disabled", "Enabled", "EnabledExclusiveResources"] {
                for pause in ["Disabled", "Enabled"] {
                    for tls in
                        [None, Some(("VersionTLS10", "")), Some(("VersionTLS13", "TLS_AES_128_GCM_SHA256"))]
                    {
                        let mut cluster = cluster(platform);
                        cluster.tls = tls.map(|(version, suites)| TlsProfile {
                            min_version: version.to_owned(),
                            cipher_suites: suites.to_owned(),
                        });
                        let config = json!({ "infoRefreshMode": mode, "podsFingerprinting": fingerprint, "infoRefreshPause": pause });
                        ask(&mut cluster, &one_group(&config));
                        let settings = understood(
                            &cluster,
                            "worker",
                            &["/etc/resource-topology-exporter", "/run/pfpstatus"],
                        );
                        check(&settings, platform, [mode, fingerprint, pause]);
                        count += 1;
                    }
                }
            }
        }
    }
    assert_eq!(count, 3 * 3 * 3 * 2 * 3);
}

fn check(settings: &Settings, platform: Platform, [mode, fingerprint, pause]: [&str; 3]) {
    let name = format!("{platform} {mode} {fingerprint} {pause}");
    let timer = if mode == "Events" { Duration::ZERO } else { Duration::from_secs(10) };
    assert_eq!(settings.intervals.timer, timer, "{name}");
    let events = mode != "Periodic";
    assert_eq!(settings.notify_file, events.then(|| PathBuf::from("/run/rte/notify")), "{name}");
    assert_eq!(settings.sources.kubelet_root, None, "{name}: not mounted unless asked for");
    assert_eq!(settings.health.unwrap().port(), pod::HEALTH, "{name}");
    let method = match fingerprint {
        "Disabled" => None,
        "Enabled" => Some(Method::All),
        _ => Some(Method::WithExclusiveResources),
    };
    assert_eq!(settings.accounting.fingerprint, method, "{name}");
    assert_eq!(settings.status.dump, method.map(|_| PathBuf::from("/run/pfpstatus")), "{name}");
    assert_eq!(settings.accounting.reference, None, "{name}: there is no second container");
    assert_eq!(settings.publishing.is_none(), pause == "Enabled", "{name}");
    if let Some(publishing) = settings.publishing {
        assert_eq!(publishing.owner, OwnerKind::Leave, "{name}");
    }
    let pod = PodName { namespace: NAMESPACE.to_owned(), name: "pod-a".to_owned() };
    assert_eq!(settings.readiness, Some(pod), "{name}");
    let serving = settings.serving.as_ref().unwrap();
    assert_eq!(serving.address.to_string(), "0.0.0.0:2112", "{name}");
    assert_eq!(serving.tls.is_some(), platform.is_openshift(), "{name}");
    let file = match platform {
        Platform::Kubernetes => "/host-var-lib-kubelet/config.yaml",
        _ => "/podresources/config.yaml",
    };
    let file = KubeletConfigSource::File { path: PathBuf::from(file), drop_ins: None };
    assert_eq!(settings.sources.kubelet_config, file, "{name}");
    // B-04: without a ConfigMap the kubelets' own configuration counts where it can be read, else the kubelets'
    // defaults.
    assert_eq!(settings.sources.policy.is_some(), platform.is_openshift(), "B-04 {name}");
}
