//! Flags and variables.

use super::*;

type Show = fn(&Settings) -> String;

const HTTP: &[&str] = &["--metrics-mode=http"];
const TLS: &[&str] = &["--metrics-mode=httptls"];
/// The kubelet's own answer, whose certificate is checked without a flag too.
const CONFIGZ: &str = "Configz { url: \"https://h/configz\", token: Some(\"/t\"), \
    trust: File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\") }";

fn serving(settings: &Settings) -> String {
    settings.serving.as_ref().map_or("off".to_owned(), |serving| serving.address.to_string())
}

fn tls(settings: &Settings) -> &runtime::tls::Settings {
    settings.serving.as_ref().unwrap().tls.as_ref().unwrap()
}

fn encrypted(settings: &Settings) -> String {
    let tls = tls(settings);
    format!("{} {} {:?}", tls.certificate.display(), tls.key.display(), tls.clients)
}

/// Other flags, a flag, what is asked of the settings, the answer without the flag, and with it.
const FLAGS: &[(&[&str], &str, Show, &str, &str)] = &[
    (&[], "--kubeconfig=/k", |s| format!("{:?}", s.kubeconfig), "None", "Some(\"/k\")"),
    (&[], "--no-publish", |s| s.publishing.is_some().to_string(), "true", "false"),
    (&[], "--oneshot", |s| s.once.to_string(), "false", "true"),
    (&[], "--hostname=node-b", |s| s.node.clone(), "node-a", "node-b"),
    (&[], "--patch-mode=false", |s| format!("{:?}", s.publishing.unwrap().mode), "Patch", "Update"),
    (&[], "--patch-resync=3", |s| format!("{:?}", s.publishing.unwrap().resync), "None", "Some(3)"),
    (&[], "--patch-resync=10", |s| format!("{:?}", s.publishing.unwrap().resync), "None", "Some(10)"),
    (
        &["--patch-resync=3"],
        "--patch-resync=-1",
        |s| format!("{:?}", s.publishing.unwrap().resync),
        "Some(3)",
        "None",
    ),
    (&[], "--watch-namespace=ns", |s| format!("{:?}", s.accounting.namespace), "None", "Some(\"ns\")"),
    (
        &["--watch-namespace=ns"],
        "--watch-namespace=*",
        |s| format!("{:?}", s.accounting.namespace),
        "Some(\"ns\")",
        "None",
    ),
    (&[], "--sysfs=/host-sys", |s| s.sources.sysfs.display().to_string(), "/sys", "/host-sys"),
    (
        &[],
        "--pods-fingerprint=false",
        |s| format!("{:?}", s.accounting.fingerprint),
        "Some(WithExclusiveResources)",
        "None",
    ),
    (
        &[],
        "--pods-fingerprint-method=ALL",
        |s| format!("{:?}", s.accounting.fingerprint),
        "Some(WithExclusiveResources)",
        "Some(All)",
    ),
    (&[], "--pods-fingerprint-status-file=/f", |s| format!("{:?}", s.status.file), "None", "Some(\"/f\")"),
    (&[], "--expose-timing", |s| s.publishing.unwrap().timing.to_string(), "false", "true"),
    (&[], "--refresh-node-resources", |s| format!("{:?}", s.intervals.timer), "60s", "60s"),
    (&[], "--exclude-terminal-pods", |s| format!("{:?}", s.accounting.exclude_pods), "[]", "[]"),
    (
        &[],
        "--topology-manager-policy=restricted",
        |s| format!("{:?}", s.sources.policy),
        "None",
        "Some(Restricted)",
    ),
    (&[], "--topology-manager-scope=pod", |s| format!("{:?}", s.sources.scope), "None", "Some(Pod)"),
    (&[], "--sleep-interval=10s", |s| format!("{:?}", s.intervals.timer), "60s", "10s"),
    (&[], "--sleep-interval=0", |s| format!("{:?}", s.intervals.timer), "60s", "0ns"),
    (
        &[],
        "--kubelet-config-file=/c",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/podresources/config.yaml\", drop_ins: None }",
        "File { path: \"/c\", drop_ins: None }",
    ),
    (
        &["--kubelet-config-file=/c"],
        "--kubelet-config-dir=/d",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/c\", drop_ins: None }",
        "File { path: \"/c\", drop_ins: Some(\"/d\") }",
    ),
    (
        &["--kubelet-config-token=/t"],
        "--kubelet-config-uri=https://h/configz",
        |s| format!("{:?}", s.sources.kubelet_config),
        "File { path: \"/podresources/config.yaml\", drop_ins: None }",
        CONFIGZ,
    ),
    (
        &["--kubelet-config-uri=https://h/configz"],
        "--kubelet-config-token=/t",
        |s| format!("{:?}", s.sources.kubelet_config),
        "Configz { url: \"https://h/configz\", token: Some(\"/var/run/secrets/kubernetes.io/serviceaccount/token\"), \
        trust: File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\") }",
        CONFIGZ,
    ),
    (
        &["--kubelet-config-uri=https://h/configz", "--kubelet-config-token=/t"],
        "--kubelet-config-ca=/ca",
        |s| format!("{:?}", s.sources.kubelet_config),
        CONFIGZ,
        "Configz { url: \"https://h/configz\", token: Some(\"/t\"), trust: File(\"/ca\") }",
    ),
    (
        &["--kubelet-config-uri=https://h/configz", "--kubelet-config-token=/t"],
        "--kubelet-config-insecure",
        |s| format!("{:?}", s.sources.kubelet_config),
        CONFIGZ,
        "Configz { url: \"https://h/configz\", token: Some(\"/t\"), trust: Unchecked }",
    ),
    (
        &[],
        "--kubelet-state-dir=/var/lib/kubelet",
        |s| format!("{:?}", s.sources.kubelet_root),
        "None",
        "Some(\"/var/lib/kubelet\")",
    ),
    (
        &[],
        "--podresources-socket=unix:///x/pod-resources/kubelet.sock",
        |s| format!("{:?} {:?}", s.sources.podresources, s.sources.kubelet_root),
        "Socket(\"/podresources/kubelet.sock\") None",
        "Socket(\"/x/pod-resources/kubelet.sock\") Some(\"/x\")",
    ),
    (
        &[],
        "--podresources-socket=/x.sock",
        |s| format!("{:?}", s.sources.podresources),
        "Socket(\"/podresources/kubelet.sock\")",
        "Socket(\"/x.sock\")",
    ),
    (
        &[],
        "--podresources-socket=fake:///d",
        |s| format!("{:?}", s.sources.podresources),
        "Socket(\"/podresources/kubelet.sock\")",
        "Folder(\"/d\")",
    ),
    (&[], "--podreadiness=false", |s| s.readiness.is_some().to_string(), "true", "false"),
    (&[], "--add-nrt-owner=false", |s| format!("{:?}", s.publishing.unwrap().owner), "Node", "Leave"),
    (&[], "--metrics-mode=HTTP", serving, "off", "0.0.0.0:2112"),
    (HTTP, "--metrics-port=99", serving, "0.0.0.0:2112", "0.0.0.0:99"),
    (
        &[],
        "--health-probe-bind-address=127.0.0.1:99",
        |s| format!("{:?}", s.health),
        "None",
        "Some(127.0.0.1:99)",
    ),
    (HTTP, "--metrics-ip=127.120.110.100", serving, "0.0.0.0:2112", "127.120.110.100:2112"),
    (HTTP, "--metrics-ip=::1", serving, "0.0.0.0:2112", "[::1]:2112"),
    (HTTP, "--metrics-ip=[::1]", serving, "0.0.0.0:2112", "[::1]:2112"),
    (
        TLS,
        "--metrics-certs-dir=/c",
        encrypted,
        "/etc/secrets/rte/tls.crt /etc/secrets/rte/tls.key None",
        "/c/tls.crt /c/tls.key None",
    ),
    (
        TLS,
        "--metrics-cert-file=a",
        encrypted,
        "/etc/secrets/rte/tls.crt /etc/secrets/rte/tls.key None",
        "/etc/secrets/rte/a /etc/secrets/rte/tls.key None",
    ),
    (
        TLS,
        "--metrics-key-file=b",
        encrypted,
        "/etc/secrets/rte/tls.crt /etc/secrets/rte/tls.key None",
        "/etc/secrets/rte/tls.crt /etc/secrets/rte/b None",
    ),
    (
        TLS,
        "--metrics-want-cli-auth",
        encrypted,
        "/etc/secrets/rte/tls.crt /etc/secrets/rte/tls.key None",
        "/etc/secrets/rte/tls.crt /etc/secrets/rte/tls.key Some(System)",
    ),
    (
        &[],
        "--reference-container= a / b /c",
        |s| {
            s.accounting
                .reference
                .as_ref()
                .map_or("none".to_owned(), |c| format!("{}+{}+{}", c.pod.namespace, c.pod.name, c.container))
        },
        "none",
        "a+b+c",
    ),
    (
        &[],
        "--notify-file=/run//rte/./notify",
        |s| format!("{:?}", s.notify_file),
        "None",
        "Some(\"/run/rte/notify\")",
    ),
    (&[], "--max-events-per-second=4", |s| format!("{:?}", s.intervals.min_gap), "0ns", "250ms"),
    (&[], "--max-events-per-second=1", |s| format!("{:?}", s.intervals.min_gap), "0ns", "1s"),
    (
        &["--max-events-per-second=4"],
        "--max-events-per-second=0",
        |s| format!("{:?}", s.intervals.min_gap),
        "250ms",
        "0ns",
    ),
];

#[test]
fn flags_become_settings() {
    let world = World::new(&[], &[]);
    let mut seen: BTreeSet<&str> = ["debug"].into();
    for (others, flag, show, before, after) in FLAGS {
        let with = |flag: Option<&'static str>| {
            let arguments: Vec<&str> = others.iter().copied().chain(flag).collect();
            show(&world.settings(&arguments))
        };
        assert_eq!(with(None), *before, "without {flag}");
        assert_eq!(with(Some(flag)), *after, "{flag}");
        assert_eq!(with(Some(&flag[1..])), *after, "{flag} with one dash");
        seen.extend(flag[2..].split('=').next());
    }
    for (name, value) in [
        ("metrics-tls-min-version", "VersionTLS13"),
        ("metrics-tls-cipher-suites", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ] {
        let flag = format!("--{name}={value}");
        let policy = |arguments: &[&str]| tls(&world.settings(arguments)).policy.clone();
        assert_ne!(policy(TLS), policy(&[TLS[0], &flag]), "{flag}");
        seen.insert(name);
    }
    let flags: BTreeSet<&str> = SETTINGS.iter().filter_map(|setting| setting.flag).collect();
    assert_eq!(seen, flags, "a row for each flag");
}

#[test]
fn verbosity_is_the_larger_one() {
    let quiet = World::new(&[], &[]);
    let loud = World::new(&[("/etc/rte/daemon/config.yaml", "global: {verbose: 5}")], &[]);
    for (world, arguments, wanted) in [
        (&quiet, &[][..], 2),
        (&quiet, &["-v=0"], 2),
        (&quiet, &["--v", "6"], 6),
        (&quiet, &["--debug"], 4),
        (&quiet, &["--debug", "-v=7"], 7),
        (&quiet, &["-v=99999"], 255),
        (&loud, &["-v=4"], 5),
        (&loud, &["-v=8"], 8),
    ] {
        assert_eq!(world.plan(arguments).verbosity, wanted, "{arguments:?}");
    }
}

/// Files, variables, flags, and whose name counts.
#[test]
fn config_precedence() {
    let hostname = ("/etc/rte/daemon/config.yaml", "nrtUpdater: {hostname: of-file}");
    let variable = ("NODE_NAME", "of-variable");
    for (files, variables, arguments, wanted) in [
        (&[][..], &[("NODE_NAME", "")][..], &[][..], "host-1"),
        (&[], &[variable], &[], "of-variable"),
        (&[hostname], &[variable], &[], "of-file"),
        (&[hostname], &[variable], &["--hostname=of-flag"], "of-flag"),
        (&[], &[variable], &["--hostname=of-flag"], "of-flag"),
        (&[("/etc/rte/daemon/config.yaml", "nrtUpdater: {hostname: ''}")], &[variable], &[], "of-variable"),
    ] {
        let settings = World::new(files, variables).settings(arguments);
        assert_eq!(settings.node, wanted, "{files:?} {variables:?} {arguments:?}");
    }
}

#[test]
fn config_precedence_of_policy_and_scope() {
    let extra =
        ("/etc/resource-topology-exporter/config.yaml", "kubelet: {topologyManagerPolicy: restricted}");
    let variables = [("TOPOLOGY_MANAGER_POLICY", "best-effort"), ("TOPOLOGY_MANAGER_SCOPE", "pod")];
    let both = |settings: &Settings| format!("{:?} {:?}", settings.sources.policy, settings.sources.scope);
    let plain = World::new(&[], &variables);
    assert_eq!(both(&plain.settings(&[])), "Some(BestEffort) Some(Pod)");
    let world = World::new(&[extra], &variables);
    assert_eq!(both(&world.settings(&[])), "Some(Restricted) Some(Pod)", "files beat variables");
    let flag = "--topology-manager-policy=single-numa-node";
    assert_eq!(
        both(&world.settings(&[flag])),
        "Some(SingleNumaNode) Some(Pod)",
        "flags beat files, only what they name"
    );
    // Half an override counts; the other half is the kubelet's to say.
    let half = World::new(&[("/podresources/config.yaml", "")], &[]);
    assert_eq!(both(&half.settings(&[flag])), "Some(SingleNumaNode) None");
}

/// Numaresources-operator mounts no file of the kubelet, but distills it.
#[test]
fn a_section_kubelet_stands_for_a_file_that_is_not_mounted() {
    let path = "/etc/resource-topology-exporter/config.yaml";
    let both = |settings: &Settings| format!("{:?} {:?}", settings.sources.policy, settings.sources.scope);
    let operand =
        ["--sysfs=/host-sys", "--podresources-socket=unix:///host-podresources/kubelet.sock", "-v=2"];
    for (text, wanted) in [
        ("kubelet: {}\n", "Some(None) Some(Container)"),
        ("kubelet:\n", "Some(None) Some(Container)"),
        ("kubelet: {topologyManagerPolicy: single-numa-node}\n", "Some(SingleNumaNode) Some(Container)"),
        ("kubelet: {topologyManagerScope: pod}\n", "Some(None) Some(Pod)"),
        ("podExclude: []\n", "None None"),
    ] {
        assert_eq!(both(&World::new(&[(path, text)], &[]).settings(&operand)), wanted, "{text}");
        // The file is preferred where it exists, or where its path is configured.
        let mounted = World::new(&[(path, text), ("/podresources/config.yaml", "")], &[]);
        let named = World::new(&[(path, text)], &[]);
        let file: Vec<&str> =
            operand.into_iter().chain(["--kubelet-config-file=/host-var-lib-kubelet/config.yaml"]).collect();
        let given = [
            wanted.contains("Single").then_some("Some(SingleNumaNode)"),
            wanted.contains("Pod").then_some("Some(Pod)"),
        ]
        .map(|half| half.unwrap_or("None"))
        .join(" ");
        assert_eq!(both(&mounted.settings(&operand)), given, "{text}");
        assert_eq!(both(&named.settings(&file)), given, "{text}");
    }
    // The operator's optional ConfigMap does not exist, as no KubeletConfig does: its mount is empty.
    let unset = World::new(&[], &[]);
    std::fs::create_dir_all(unset.root.path().join("etc/resource-topology-exporter")).unwrap();
    assert_eq!(both(&unset.settings(&operand)), "Some(None) Some(Container)");
    assert!(
        format!("{:?}", unset.plan(&operand).notes)
            .contains("using the kubelet's defaults, none and container")
    );
    let nothing = World::new(&[], &[]).plan(&operand);
    assert_eq!(both(&nothing.settings), "None None");
    assert!(
        warnings(&nothing)[0].contains("nothing is published until policy and scope are known"),
        "{:?}",
        nothing.notes
    );
}

#[test]
fn the_kubelet_root_is_found_where_it_is_mounted() {
    let root = |files: &[(&str, &str)], arguments: &[&str]| {
        World::new(files, &[]).settings(arguments).sources.kubelet_root.map(|path| path.display().to_string())
    };
    let state = [("/host-var-lib-kubelet/cpu_manager_state", "{}")];
    let config = "--kubelet-config-file=/host-var-lib-kubelet/config.yaml";
    assert_eq!(
        root(&[], &["--podresources-socket=unix:///k/pod-resources/kubelet.sock"]).as_deref(),
        Some("/k")
    );
    assert_eq!(root(&state, &[config]).as_deref(), Some("/host-var-lib-kubelet"));
    assert_eq!(root(&[], &[config]), None, "a directory with nothing but the file is not it");
    assert_eq!(root(&state, &[config, "--kubelet-state-dir=/x"]).as_deref(), Some("/x"));
    for nowhere in ["--kubelet-state-dir=", "--kubelet-state-dir=none"] {
        assert_eq!(root(&state, &[config, nowhere]), None);
    }
}

#[test]
fn config_flags_of_the_unit_tests() {
    let world = World::new(
        &[(
            "/etc/rte/x.yaml",
            "resourceExclude:\n  masternode: [memory, device/exampleA]\n  \
        workernode1: [memory, device/exampleB]\n  workernode2: [cpu]\n  '*': [device/exampleC]\n",
        )],
        &[],
    );
    assert_eq!(world.dump(&["--patch-mode=false"])["nrtUpdater"]["patchMode"], json!(false));
    assert_eq!(
        world.dump(&["--oneshot", "--no-publish"])["nrtUpdater"],
        json!({"hostname": "node-a", "noPublish": true, "oneShot": true, "patchMode": true, "patchResync": 10})
    );
    assert_eq!(
        world.dump(&["--refresh-node-resources"])["resourceMonitor"]["refreshNodeResources"],
        json!(true)
    );
    let excludes = &world.dump(&["--config=/etc/rte/x.yaml"])["resourceMonitor"]["resourceExclude"];
    assert_eq!(excludes.as_object().unwrap().len(), 4);
    assert_eq!(excludes["*"], json!(["device/exampleC"]));
}

#[test]
fn certificates_are_also_found_where_manifests_mount_them() {
    let paths = |files: &[(&str, &str)]| {
        let settings =
            World::new(files, &[]).settings(&["--metrics-mode=httptls", "--metrics-want-cli-auth"]);
        let tls = settings.serving.unwrap().tls.unwrap();
        format!("{} {:?}", tls.certificate.display(), tls.clients.unwrap())
    };
    let deep = [
        ("/etc/secrets/rte/tls/tls.crt", ""),
        ("/etc/secrets/rte/tls/tls.key", ""),
        ("/etc/secrets/rte/ca/ca.crt", ""),
    ];
    assert_eq!(paths(&deep), "/etc/secrets/rte/tls/tls.crt File(\"/etc/secrets/rte/ca/ca.crt\")");
    assert_eq!(paths(&deep[..1]), "/etc/secrets/rte/tls.crt System");
}
