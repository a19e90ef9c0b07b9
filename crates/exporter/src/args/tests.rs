use std::collections::BTreeMap;

use clap::{CommandFactory, Parser};

use super::*;

#[derive(Debug, Parser)]
#[command(name = "exporter")]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn env(root: &std::path::Path) -> Environment {
    Environment { variables: BTreeMap::new(), root: root.to_owned(), host: "Host-1".to_owned(), user: 0 }
}

fn parse(line: &str) -> Result<Settings, String> {
    let words = std::iter::once("exporter").chain(line.split_whitespace());
    let args = Cli::try_parse_from(words).map_err(|error| error.to_string())?.args;
    let problems =
        |problems: Vec<Problem>| problems.iter().map(|problem| format!("{problem}\n")).collect::<String>();
    args.settings_in(&env("/nowhere".as_ref())).map(|(settings, _)| settings).map_err(problems)
}

#[test]
fn the_command_is_well_formed() {
    Cli::command().debug_assert();
    let help = Cli::command().render_long_help().to_string();
    for heading in ["Node:", "Accounting:", "Schedule:", "Object:", "Metrics and health:", "Examples:"] {
        assert!(help.contains(heading), "{heading} in {help}");
    }
}

type Show = fn(&Settings) -> String;

fn serving(settings: &Settings) -> String {
    format!("{:?}", settings.serving.as_ref().map(|serving| (serving.address, serving.tls.clone())))
}

/// Flags, what is asked of their settings, the answer without them, and with them.
const LINES: &[(&str, Show, &str, &str)] = &[
    ("--hostname n1", |s| s.node.clone(), "host-1", "n1"),
    ("--hostname a --hostname b", |s| s.node.clone(), "host-1", "b"),
    (
        "--podresources-socket fake://dir",
        |s| format!("{:?}", s.sources.podresources),
        "Socket(\"/var/lib/kubelet/pod-resources/kubelet.sock\")",
        "Folder(\"dir\")",
    ),
    ("--sysfs /s", |s| format!("{:?}", s.sources.sysfs), "\"/sys\"", "\"/s\""),
    (
        "--kubelet-state-dir=",
        |s| format!("{:?}", s.sources.kubelet_root),
        "Some(\"/var/lib/kubelet\")",
        "None",
    ),
    (
        "--kubelet-config-file /f --kubelet-config-dir /d",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/var/lib/kubelet/config.yaml\", drop_ins: None }",
        "File { path: \"/f\", drop_ins: Some(\"/d\") }",
    ),
    (
        "--kubelet-config-uri https://h:10250/configz --kubelet-config-token= --kubelet-config-ca /ca",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/var/lib/kubelet/config.yaml\", drop_ins: None }",
        "Configz { url: \"https://h:10250/configz\", token: None, trust: File(\"/ca\") }",
    ),
    (
        "--kubelet-config-uri https://h:10250/configz --kubelet-config-token=/t",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/var/lib/kubelet/config.yaml\", drop_ins: None }",
        "Configz { url: \"https://h:10250/configz\", token: Some(\"/t\"), \
        trust: File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\") }",
    ),
    (
        "--kubelet-config-uri https://h:10250/configz --kubelet-config-token=/t --kubelet-config-insecure",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/var/lib/kubelet/config.yaml\", drop_ins: None }",
        "Configz { url: \"https://h:10250/configz\", token: Some(\"/t\"), trust: Unchecked }",
    ),
    (
        "--kubelet-config-uri file:///f",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/var/lib/kubelet/config.yaml\", drop_ins: None }",
        "File { path: \"/f\", drop_ins: None }",
    ),
    (
        "--topology-manager-policy restricted",
        |s| format!("{:?}", s.sources.policy),
        "None",
        "Some(Restricted)",
    ),
    ("--topology-manager-scope=pod", |s| format!("{:?}", s.sources.scope), "None", "Some(Pod)"),
    (
        "--exclude-resource a --exclude-resource b",
        |s| format!("{:?}", s.accounting.exclude),
        "{}",
        "{\"a\", \"b\"}",
    ),
    (
        "--exclude-pods kube-*/* --exclude-pods a/b",
        |s| s.accounting.exclude_pods.iter().map(|p| format!("{} {},", p.namespace, p.name)).collect(),
        "",
        "kube-* *,a b,",
    ),
    ("--watch-namespace ns", |s| format!("{:?}", s.accounting.namespace), "None", "Some(\"ns\")"),
    (
        "--reference-container a/b/c",
        |s| format!("{:?}", s.accounting.reference.as_ref().map(|c| &c.container)),
        "None",
        "Some(\"c\")",
    ),
    (
        "--pods-fingerprint=false",
        |s| format!("{:?}", s.accounting.fingerprint),
        "Some(WithExclusiveResources)",
        "None",
    ),
    (
        "--pods-fingerprint-method ALL",
        |s| format!("{:?}", s.accounting.fingerprint),
        "Some(WithExclusiveResources)",
        "Some(All)",
    ),
    (
        "--pods-fingerprint-status-file /f --pods-fingerprint-status-dir /d",
        |s| format!("{:?} {:?}", s.status.file, s.status.dump),
        "None None",
        "Some(\"/f\") Some(\"/d\")",
    ),
    ("--sleep-interval=0", |s| format!("{:?}", s.intervals.timer), "60s", "0ns"),
    ("--release-interval 1m30s", |s| format!("{:?}", s.intervals.release), "1s", "90s"),
    ("--max-events-per-second 4", |s| format!("{:?}", s.intervals.min_gap), "0ns", "250ms"),
    ("--notify-file /n", |s| format!("{:?}", s.notify_file), "None", "Some(\"/n\")"),
    ("--oneshot", |s| s.once.to_string(), "false", "true"),
    ("--kubeconfig k", |s| format!("{:?}", s.kubeconfig), "None", "Some(\"k\")"),
    ("--no-publish", |s| s.publishing.is_some().to_string(), "true", "false"),
    (
        "--dry-run",
        |s| format!("{:?} {} {}", s.dry_run, s.publishing.is_some(), s.serving.is_some()),
        "None true true",
        "Some(Yaml) false false",
    ),
    (
        "--dry-run -o json --metrics-port 1",
        |s| format!("{:?} {}", s.dry_run, s.serving.is_some()),
        "None true",
        "Some(Json) true",
    ),
    (
        "--write-mode apply --write-resync 5",
        |s| format!("{:?} {:?}", s.publishing.unwrap().mode, s.publishing.unwrap().resync),
        "Patch None",
        "Apply Some(5)",
    ),
    ("--write-mode=update", |s| format!("{:?}", s.publishing.unwrap().mode), "Patch", "Update"),
    (
        "--owner namespace --namespace ns",
        |s| format!("{:?} {:?}", s.publishing.unwrap().owner, s.namespace),
        "Node None",
        "Namespace Some(\"ns\")",
    ),
    ("--owner none", |s| format!("{:?}", s.publishing.unwrap().owner), "Node", "Leave"),
    ("--add-nrt-owner=false", |s| format!("{:?}", s.publishing.unwrap().owner), "Node", "Leave"),
    ("--add-nrt-owner", |s| format!("{:?}", s.publishing.unwrap().owner), "Node", "Node"),
    ("--topology-policies", |s| s.accounting.topology_policies.to_string(), "false", "true"),
    ("--expose-timing", |s| s.publishing.unwrap().timing.to_string(), "false", "true"),
    (
        "--readiness-conditions a/b",
        |s| format!("{:?}", s.readiness.as_ref().map(|pod| &pod.name)),
        "None",
        "Some(\"b\")",
    ),
    ("--metrics-ip ::1 --metrics-port 1", serving, "Some((0.0.0.0:2112, None))", "Some(([::1]:1, None))"),
    ("--metrics-port 0", serving, "Some((0.0.0.0:2112, None))", "None"),
];

#[test]
fn flags_become_settings() {
    for (line, show, before, after) in LINES {
        assert_eq!(show(&parse("").unwrap()), *before, "without {line}");
        assert_eq!(show(&parse(line).unwrap()), *after, "{line}");
    }
}

#[test]
fn tls_is_all_or_nothing() {
    let line = "--metrics-tls-cert /c --metrics-tls-key /k --metrics-tls-client-ca /ca --metrics-tls-min-version VersionTLS13";
    let tls = parse(line).unwrap().serving.unwrap().tls.unwrap();
    let policy = runtime::tls::Policy::parse("VersionTLS13", "").unwrap();
    assert_eq!((tls.certificate, tls.key, tls.policy), ("/c".into(), "/k".into(), policy));
    assert_eq!(tls.clients, Some(runtime::tls::ClientAuth::File("/ca".into())));
    for half in ["--metrics-tls-cert /c", "--metrics-tls-key /k", "--metrics-tls-client-ca /ca"] {
        assert!(parse(half).unwrap_err().contains("required"), "{half}");
    }
}

#[test]
fn the_file_of_config_and_flags_add_up() {
    let root = tempfile::tempdir().unwrap();
    let text = "kubelet: {topologyManagerPolicy: restricted, topologyManagerScope: pod}\nexcludeList: {host-1: [a], '*': [b]}\n\
        resourceExclude: {host-1: [c], other: [d]}\npodExclude: [{namespacePattern: x, namePattern: '*'}]\nnew: 1\n";
    std::fs::write(root.path().join("c.yaml"), text).unwrap();
    let settings = |line: &str| {
        let args =
            Cli::try_parse_from(std::iter::once("exporter").chain(line.split_whitespace())).unwrap().args;
        args.settings_in(&env(root.path()))
    };
    let (told, notes) =
        settings("--config /c.yaml --exclude-resource e --topology-manager-scope container").unwrap();
    assert_eq!(told.accounting.exclude.into_iter().collect::<String>(), "abce");
    assert_eq!(told.accounting.exclude_pods.len(), 1);
    assert_eq!((told.sources.policy, told.sources.scope), (Some(Policy::Restricted), Some(Scope::Container)));
    assert_eq!(notes, [Note::Warning("/c.yaml: unknown key \"new\" has no effect".to_owned())]);
    let problems = settings("--config /missing.yaml --hostname A").unwrap_err();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems[0].starts_with("--hostname: \"A\" is not allowed; "), "{problems:?}");
    assert_eq!(problems[1], "/missing.yaml: does not exist (--config)");
}

#[test]
fn node_names_are_checked() {
    let env = env("/nowhere".as_ref());
    let long = "a".repeat(254);
    for good in ["n", "worker-0", "10.0.0.1", "a.b-c.d", &long[..253]] {
        assert_eq!(crate::compat::node_name(Some(good), &env).as_deref(), Some(good));
    }
    for bad in ["N1", "a,metadata.name=b", "-a", "a-", "a..b", ".", "a/b", "a b", "\u{e4}", &long] {
        assert_eq!(crate::compat::node_name(Some(bad), &env), None, "{bad}");
    }
    assert_eq!(
        crate::compat::node_name(Some(""), &env).as_deref(),
        Some("host-1"),
        "empty means the host's name"
    );
}

#[test]
fn bad_values_say_what_is_allowed() {
    for (line, wanted) in [
        ("--topology-manager-policy strict", "allowed are none, best-effort, restricted, single-numa-node"),
        ("--topology-manager-scope node", "allowed are container, pod"),
        ("--pods-fingerprint-method some", "allowed are with-exclusive-resources, all"),
        ("--sleep-interval -1s", "must not be negative"),
        ("--sleep-interval 60", "missing unit in duration"),
        ("--metrics-port 70000", "70000 is not in 0..=65535"),
        (
            "--metrics-port 8081 --health-probe-bind-address 127.0.0.1:8081",
            "--metrics-port 0.0.0.0:8081 and --health-probe-bind-address 127.0.0.1:8081 want the same port",
        ),
        ("--exclude-pods kube-system", "must be NAMESPACE/NAME, two patterns"),
        ("--readiness-conditions a/b/c", "must be NAMESPACE/POD"),
        ("--reference-container a/b", "must be NAMESPACE/POD/CONTAINER"),
        ("--owner pod", "allowed are node, namespace, none"),
        ("--write-mode force", "allowed are patch, update, apply"),
        ("--dry-run -o xml", "allowed are yaml, json"),
        ("-o json", "--dry-run"),
        ("--owner none --add-nrt-owner", "cannot be used with"),
        ("--kubelet-config-uri http://h", "must be https://HOST:PORT/configz or file:///PATH"),
        ("--kubelet-config-uri https://h --kubelet-config-dir /d", "cannot be used with"),
        ("--podresources-socket http://x", "is no podresources address"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(wanted), "{line}: {error}");
    }
}
