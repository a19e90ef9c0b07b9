use std::collections::BTreeSet;

use super::*;

fn env(root: &Path, variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Environment { variables, root: root.to_owned(), host: "Host-1".to_owned(), user: 0 }
}

fn run(arguments: &[&str], env: &Environment) -> Result<Plan, Ending> {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    match NFD.start("nfd-topology-updater", arguments, env) {
        Start::Run(plan) => Ok(*plan),
        Start::End(ending) => Err(ending),
    }
}

/// On a machine with nothing mounted.
fn plain(arguments: &[&str]) -> Result<Plan, Ending> {
    let variables = [("NODE_NAME", "node-a"), ("NODE_ADDRESS", "10.0.0.5"), ("KUBERNETES_NAMESPACE", "nfd")];
    run(arguments, &env("/nowhere".as_ref(), &variables))
}

type Show = fn(&Settings) -> String;

const CONFIGZ: &str = "Configz { url: \"https://10.0.0.5:10250/configz\", \
        token: Some(\"/var/run/secrets/kubernetes.io/serviceaccount/token\"), trust: File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\") }";

/// Flags, what is asked of their settings, the answer without them, and with them.
const LINES: &[(&str, Show, &str, &str)] = &[
    ("-oneshot", |s| s.once.to_string(), "false", "true"),
    ("-no-publish", |s| s.publishing.is_some().to_string(), "true", "false"),
    ("-kubeconfig=/k", |s| format!("{:?}", s.kubeconfig), "None", "Some(\"/k\")"),
    (
        "-port=99",
        |s| format!("{:?}", s.serving.as_ref().map(|serving| serving.address)),
        "Some(0.0.0.0:8080)",
        "Some(0.0.0.0:99)",
    ),
    (
        "-port=0",
        |s| format!("{:?}", s.serving.as_ref().map(|serving| serving.address)),
        "Some(0.0.0.0:8080)",
        "None",
    ),
    ("-sleep-interval=30s", |s| format!("{:?}", s.intervals.timer), "60s", "30s"),
    ("-sleep-interval=-1s", |s| format!("{:?}", s.intervals.timer), "60s", "0ns"),
    ("-watch-namespace=ns", |s| format!("{:?}", s.accounting.namespace), "None", "Some(\"ns\")"),
    ("-watch-namespace=", |s| format!("{:?}", s.accounting.namespace), "None", "None"),
    (
        "-kubelet-config-uri=file:///k.yaml",
        |s| format!("{:?}", s.sources.kubelet_config),
        CONFIGZ,
        "File { path: \"/k.yaml\", drop_ins: None }",
    ),
    (
        "-kubelet-config-uri=https://h/configz",
        |s| format!("{:?}", s.sources.kubelet_config),
        CONFIGZ,
        "Configz { url: \"https://h/configz\", token: Some(\"/var/run/secrets/kubernetes.io/serviceaccount/token\"), trust: File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\") }",
    ),
    (
        "-api-auth-token-file=/t",
        |s| format!("{:?}", s.sources.kubelet_config),
        CONFIGZ,
        "Configz { url: \"https://10.0.0.5:10250/configz\", token: Some(\"/t\"), trust: File(\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\") }",
    ),
    (
        "-kubelet-config-insecure",
        |s| format!("{:?}", s.sources.kubelet_config),
        CONFIGZ,
        "Configz { url: \"https://10.0.0.5:10250/configz\", \
        token: Some(\"/var/run/secrets/kubernetes.io/serviceaccount/token\"), trust: Unchecked }",
    ),
    (
        "-podresources-socket=unix:///s",
        |s| format!("{:?}", s.sources.podresources),
        "Socket(\"/var/lib/kubelet/pod-resources/kubelet.sock\")",
        "Socket(\"/s\")",
    ),
    (
        "-podresources-socket=/s",
        |s| format!("{:?}", s.sources.podresources),
        "Socket(\"/var/lib/kubelet/pod-resources/kubelet.sock\")",
        "Socket(\"/s\")",
    ),
    ("-config=/missing", |s| format!("{:?}", s.accounting.exclude), "{}", "{}"),
    ("-pods-fingerprint=false", |s| format!("{:?}", s.accounting.fingerprint), "Some(All)", "None"),
    (
        "-kubelet-state-dir=/k",
        |s| format!("{:?}", s.sources.kubelet_root),
        "Some(\"/var/lib/kubelet\")",
        "Some(\"/k\")",
    ),
    (
        "-kubelet-state-dir=",
        |s| format!("{:?}", s.sources.kubelet_root),
        "Some(\"/var/lib/kubelet\")",
        "None",
    ),
];

#[test]
fn flag_parsing() {
    let mut seen: BTreeSet<&str> = ["version"].into();
    for (flag, show, before, after) in LINES {
        assert_eq!(show(&plain(&[]).unwrap().settings), *before, "without {flag}");
        assert_eq!(show(&plain(&[flag]).unwrap().settings), *after, "{flag}");
        assert_eq!(show(&plain(&[&format!("-{flag}")]).unwrap().settings), *after, "{flag} with two dashes");
        seen.extend(flag[1..].split('=').next());
    }
    assert_eq!(seen, FLAGS.iter().map(|flag| flag.name).collect(), "a row for each flag");
}

#[test]
fn what_no_flag_says() {
    let plan = plain(&["-v=4"]).unwrap();
    let settings = plan.settings;
    assert_eq!(
        (plan.verbosity, settings.node.as_str(), settings.namespace.as_deref()),
        (4, "node-a", Some("nfd"))
    );
    assert_eq!(settings.publishing, Some(PUBLISHING));
    assert!(settings.accounting.topology_policies && settings.readiness.is_none());
}

#[test]
fn deployed_as_its_images_are() {
    let root = tempfile::tempdir().unwrap();
    for dir in ["host-sys", "proc/net", "var/run/secrets/kubernetes.io/serviceaccount"] {
        std::fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    std::fs::write(root.path().join("proc/net/if_inet6"), "").unwrap();
    std::fs::write(root.path().join("var/run/secrets/kubernetes.io/serviceaccount/namespace"), "own\n")
        .unwrap();
    let env = env(root.path(), &[("NODE_ADDRESS", "fd00::5"), ("KUBERNETES_NAMESPACE", "other")]);
    let settings = run(&[], &env).unwrap().settings;
    let shown = format!(
        "{:?} {:?} {:?}",
        settings.sources.sysfs, settings.sources.podresources, settings.sources.kubelet_root
    );
    assert_eq!(
        shown,
        "\"/host-sys\" Socket(\"/host-var/lib/kubelet/pod-resources/kubelet.sock\") Some(\"/host-var/lib/kubelet\")"
    );
    assert_eq!(settings.serving.unwrap().address.to_string(), "[::]:8080");
    let KubeletConfigSource::Configz { url, .. } = settings.sources.kubelet_config else { panic!() };
    assert_eq!(url, "https://[fd00::5]:10250/configz");
    assert_eq!((settings.node.as_str(), settings.namespace.as_deref()), ("host-1", Some("own")));
}

/// As the deployer writes it.
#[test]
fn deployed_by_the_deployer() {
    let arguments = [
        "--kubelet-config-uri=file:///host-var/lib/kubelet/config.yaml",
        "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock",
        "--sleep-interval=10s",
        "-v=1",
        "--pods-fingerprint=true",
        "--kubelet-state-dir=",
    ];
    let settings = run(&arguments, &env("/nowhere".as_ref(), &[("NODE_NAME", "n")])).unwrap().settings;
    assert_eq!((settings.sources.kubelet_root, settings.intervals.timer.as_secs()), (None, 10));
}

#[test]
fn exclude_list() {
    for (text, wanted) in [
        ("excludeList:\n  node-a: [memory]\n  node-b: [cpu]\n", "memory"),
        ("ExcludeList: {'*': [memory, example.com/a], node-a: [cpu]}", "cpu,example.com/a,memory"),
        ("excludeList: {'*': []}", ""),
        ("excludeList:", ""),
        ("", ""),
    ] {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("c"), text).unwrap();
        let env = env(root.path(), &[("NODE_NAME", "node-a"), ("NODE_ADDRESS", "h")]);
        let exclude = run(&["-config=/c"], &env).unwrap().settings.accounting.exclude;
        assert_eq!(exclude.into_iter().collect::<Vec<_>>().join(","), wanted, "{text}");
        std::fs::write(root.path().join("c"), "excludeList: [a]").unwrap();
        let ending = run(&["-config=/c"], &env).unwrap_err();
        assert_eq!(
            (ending.code, ending.stderr.as_str()),
            (1, "error: /c: excludeList: [\"a\"] is not allowed; it must be a map\n")
        );
    }
}

#[test]
fn exit_codes_and_outputs() {
    let version = format!("nfd-topology-updater {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(plain(&["-version"]).unwrap_err(), Ending { stdout: version, ..Ending::default() });
    for (arguments, code, wanted) in [
        (&["-help"][..], 0, "Usage of nfd-topology-updater:\n"),
        (&["-nonsense"], 2, "flag provided but not defined: -nonsense\n"),
        (&["-sleep-interval=never"], 2, "invalid value \"never\" for flag -sleep-interval: parse error\n"),
        (&["-oneshot", "more"], 2, "error: unexpected arguments [\"more\"]; none are allowed\nUsage of "),
        (
            &["-kubelet-config-uri=ftp://h"],
            1,
            "error: -kubelet-config-uri: \"ftp://h\" is not allowed; it must be https://host:port/configz or file:///path\n",
        ),
        (
            &["-podresources-socket=foo://x"],
            1,
            "error: -podresources-socket: \"foo://x\" is no podresources address",
        ),
        (&["-port=70000"], 1, "error: -port: 70000 is not allowed; it must be 0 to 65535\n"),
    ] {
        let ending = plain(arguments).unwrap_err();
        assert!(
            ending.code == code && ending.stderr.contains(wanted) && ending.stdout.is_empty(),
            "{arguments:?}: {ending:?}"
        );
    }
    let ending = run(&[], &env("/nowhere".as_ref(), &[("NODE_NAME", "A")])).unwrap_err();
    assert_eq!((ending.code, ending.stderr.lines().count()), (1, 2), "{ending:?}");
    assert!(ending.stderr.contains("set the variable NODE_ADDRESS, or -kubelet-config-uri"), "{ending:?}");
}
