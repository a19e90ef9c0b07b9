use super::*;

/// Exit code and both outputs, without a cluster.
fn run(words: &str) -> (u8, String, String) {
    run_in(words, &[])
}

fn run_in(words: &str, environment: &[(&str, &str)]) -> (u8, String, String) {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let variable = |name: &str| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    match start(&words, &variable) {
        Invocation::End(Ending { stdout, stderr, code }) => (code, stdout, stderr),
        Invocation::Run(plan) => (255, String::new(), format!("{plan:?}")),
    }
}

#[test]
fn short_help_is_that_of_the_readme() {
    let wanted = "\
render all the manifests

Usage:
  deployer render [flags]
  deployer render [command]

Available Commands:
  api              render the APIs needed for topology-aware-scheduling
  scheduler-plugin render the scheduler plugin needed for topology-aware-scheduling
  topology-updater render the topology updater needed for topology-aware-scheduling

Flags:
  -h, --help   help for render

Global Flags:
  -P, --platform string          platform to deploy on
      --pull-if-not-present      force pull policies to IfNotPresent.
  -R, --replicas int             set the replica value - where relevant. (default 1)
      --rte-config-file string   inject rte configuration reading from this file.

Use \"deployer render [command] --help\" for more information about a command.
";
    let (code, stdout, stderr) = run("help render");
    assert_eq!((code, stdout.as_str()), (0, wanted));
    assert_eq!(stderr, "all flags: deployer render --help\n");
}

#[test]
fn full_help_has_all_flags() {
    let (code, stdout, stderr) = run("render --help");
    assert_eq!((code, stderr.as_str()), (0, ""));
    for wanted in [
        "\n  policy           render the SELinux policy needed for topology-aware-scheduling\n",
        "\n  -P, --platform string                          platform kind:version to deploy on (example kubernetes:v1.22)\n",
        "\n      --sched-leader-elect-resource string       leader election resource namespaced name \"namespace/name\" (default \"tas-scheduler/nrtmatch-scheduler\")\n",
        "\n      --sched-resync-period duration             inject scheduler resync period. (default 5s)\n",
        "\n      --updater-pfp-enable                       toggle PFP support on the updater side. (default true)\n",
        "\n  -T, --wait-timeout duration                    wait timeout. (default 2m0s)\n",
    ] {
        assert!(stdout.contains(wanted), "{wanted} in\n{stdout}");
    }
    assert_eq!(run("-h render").1, stdout);
    assert_eq!(run("render -v 3 -h").1, stdout);
    for (words, wanted) in [
        (
            "deploy api --help",
            "Usage:\n  deployer deploy api [flags]\n\nFlags:\n  -h, --help   help for api\n\nGlobal Flags:\n",
        ),
        (
            "deploy api --help",
            "  -W, --wait                                     wait for deployment to be all completed.\n",
        ),
        (
            "deploy --help",
            "Flags:\n  -h, --help   help for deploy\n  -W, --wait   wait for deployment to be all completed.\n",
        ),
        ("images --help", "\n  -S, --sha    emit SHA256 pullspects, not tag pullspecs.\n"),
        ("--help", "\nUse \"deployer [command] --help\" for more information about a command.\n"),
        ("--help", "\n  version     emit the version and exits successfully\n"),
        ("completion", "\n  bash        Generate the autocompletion script for bash\n"),
    ] {
        assert!(run(words).1.contains(wanted), "{words}: {wanted} in\n{}", run(words).1);
    }
}

#[test]
fn errors_have_the_peers_words() {
    for (words, wanted) in [
        ("render --x", "unknown flag: --x"),
        ("-W deploy", "unknown shorthand flag: 'W' in -W"),
        ("foo", "unknown command \"foo\" for \"deployer\""),
        ("foo --x", "unknown command \"foo\" for \"deployer\""),
        ("rendr", "unknown command \"rendr\" for \"deployer\"\n\nDid you mean this?\n\trender\n"),
        ("re", "unknown command \"re\" for \"deployer\"\n\nDid you mean this?\n\tremove\n\trender\n"),
        ("render foo", "unknown command \"foo\" for \"deployer render\""),
        ("deploy --wait false", "unknown command \"false\" for \"deployer deploy\""),
        ("images --updater-scc v3", "SCC version \"v3\" is invalid"),
        ("images -P a:b:c", "unsupported platform spec: \"a:b:c\""),
        ("images -P :", "unsupported platform spec: \":\""),
        ("images --updater-type=LOCAL", "\"LOCAL\" is invalid updater type"),
        ("images --updater-type=rte", "\"rte\" is invalid updater type"),
        ("images --sched-leader-elect-resource a/b/c", "malformed leader election resource: \"a/b/c\""),
        ("render", "must explicitly select a cluster platform"),
        ("render policy -P kubernetes:1.30", "must explicitly select the OpenShift platform"),
        ("render policy -P openshift", "malformed version: "),
        ("render -P kubernetes:v1.30 -R 0", "non-positive replicas: 0"),
        // The peer ignores these and fails later for another reason.
        ("render -P kubrenetes:1.30", "platform \"kubrenetes\" is none of Kubernetes, OpenShift, HyperShift"),
        ("render -P openshift:new", "malformed version: new"),
        ("images --log-style=loud", "--log-style: \"loud\" is not allowed; it must be classic or structured"),
        (
            "images --rte-config-file=/missing",
            "--rte-config-file /missing: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(run(words), (1, String::new(), format!("{wanted}\n")), "{words}");
    }
    // Of several mistakes the one that the peer checks first.
    assert_eq!(run("images --updater-type=LOCAL --updater-scc=v3 -P :").2, "SCC version \"v3\" is invalid\n");
}

#[test]
fn without_a_command_the_usage_is_no_error() {
    let (code, stdout, stderr) = run("");
    assert_eq!((code, stdout.as_str()), (0, ""));
    assert!(
        stderr.starts_with("Usage:\n  deployer [flags]\n  deployer [command]\n\nAvailable Commands:\n"),
        "{stderr}"
    );
    let (code, stdout, stderr) = run("help nonsense");
    assert_eq!((code, stdout.as_str()), (0, ""));
    assert!(stderr.starts_with("Unknown help topic [`nonsense`]\nUsage:\n"), "{stderr}");
}

#[test]
fn images_in_all_forms() {
    let own = [("TAS_SCHEDULER_PLUGIN_IMAGE", "a/s:1"), ("TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE", "a/c:1")];
    let rte = "quay.io/k8stopologyawareschedwg/resource-topology-exporter:v0.19.3";
    for (words, wanted) in [
        (
            "images",
            format!("TAS_SCHEDULER_PLUGIN_IMAGE=a/s:1\nTAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE=a/c:1\nTAS_RESOURCE_EXPORTER_IMAGE={rte}\n"),
        ),
        (
            "images -J",
            format!("{{\"topology_updater\":\"{rte}\",\"scheduler_plugin\":\"a/s:1\",\"scheduler_controller\":\"a/c:1\"}}\n"),
        ),
        ("images --raw", format!("{rte}\na/s:1\na/c:1\n")),
        ("images -Jr", format!("[\"{rte}\",\"a/s:1\",\"a/c:1\"]\n")),
        (
            "images --raw --sha --updater-type NFD",
            "registry.k8s.io/nfd/node-feature-discovery@sha256:cab8506a76c96a4318d4cb1858ead6fe55a2e0499f69b4201b01d69d4fa14f10\na/s:1\na/c:1\n".to_owned(),
        ),
    ] {
        assert_eq!(run_in(words, &own), (0, wanted, String::new()), "{words}");
    }
    let (_, stdout, _) = run("images --updater-type=NFD");
    assert!(
        stdout.ends_with(
            "TAS_NODE_FEATURE_DISCOVERY_IMAGE=registry.k8s.io/nfd/node-feature-discovery:v0.15.1\n"
        )
    );
    let (_, stdout, _) = run_in("images", &[("TAS_IMAGES_USE_SHA", "")]);
    assert!(stdout.lines().all(|line| line.contains("@sha256:")), "{stdout}");
}

#[test]
fn the_version_is_well_formed() {
    let (code, stdout, _) = run("version");
    assert_eq!(code, 0);
    assert!(stdout.trim().parse::<crate::platform::Version>().is_ok(), "{stdout}");
    assert!(run("version --full").1.starts_with(stdout.trim()));
}

#[test]
fn completion_answers_the_shells() {
    for (words, wanted) in [
        (
            "__complete re",
            "remove\tremove the components and configurations needed for topology-aware-scheduling\nrender\trender all the manifests\n:4\n",
        ),
        ("__completeNoDesc deploy a", "api\n:4\n"),
        ("__completeNoDesc deploy --wai", "--wait\n--wait-interval\n--wait-timeout\n:4\n"),
        ("__completeNoDesc --rte-config-file x", ":0\n"),
        ("__completeNoDesc -P kubernetes ver", "version\n:4\n"),
        ("__completeNoDesc help ver", "version\n:4\n"),
    ] {
        assert_eq!(run(words).1, wanted, "{words}");
    }
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let (code, stdout, _) = run(&format!("completion {shell} --no-descriptions"));
        assert!(
            code == 0 && stdout.contains("topology-updater") && stdout.contains("updater-type"),
            "{shell}"
        );
    }
}

#[test]
fn commands_that_need_a_cluster_are_returned() {
    for words in
        ["deploy -W", "remove api", "detect -J", "validate", "setup", "render -P kubernetes:1.30 -R -1"]
    {
        assert_eq!(run(words).0, 255, "{words}");
    }
}

#[test]
fn every_flag_sets_its_option() {
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "resources: {}\n").unwrap();
    let cache = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(cache.path(), "informerMode: Shared\n").unwrap();
    let words = format!(
        "deploy -W -P openshift:4.18 --pull-if-not-present -R 3 --rte-config-file={} --sched-cache-params-config-file={} \
         --sched-ctrlplane-affinity=false --sched-leader-elect-resource=a/ --sched-profile-name=p \
         --sched-resync-period=1m1.9s --sched-verbose=7 --updater-cri-hooks-enable --updater-custom-selinux-policy=false \
         --updater-notif-enable --updater-pfp-enable=false --updater-scc=v1 --updater-sync-period=500ms --updater-type=NFD \
         --updater-verbose=5 -v 4 -E 1s -T 1m --kubeconfig=/k --context=c --log-style=structured --sched-type=THOLEPIN",
        config.path().display(),
        cache.path().display(),
    );
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let (path, parsed) = Path::read(&words);
    let mut request = Request::new(path.command().verb.unwrap(), parsed.unwrap(), &|_| None).unwrap();
    request.parsed = Parsed::default();
    let text = format!("{request:#?}");
    for wanted in [
        "verb: Deploy(\n        [\n            Api,\n            Exporter,\n            Scheduler,",
        "pull: IfNotPresent",
        "replicas: 3",
        "\"resources: {}\\n\"",
        "Shared",
        "control_plane_affinity: false",
        "namespace: Some(\n                    \"a\",",
        "\"nrtmatch-scheduler\"",
        "\"p\"",
        "resync_seconds: 61",
        "verbosity: 7",
        "cri_hooks: true",
        "custom_selinux_policy: false",
        "notify: true",
        "fingerprint: false",
        "scc: V1",
        "500ms",
        "kind: Nfd",
        "verbosity: 5",
        "verbosity: 4",
        "wait_interval: 1s",
        "wait_timeout: 60s",
        "\"/k\"",
        "\"c\"",
        "style: Structured",
        "kind: Tholepin",
        "wait: true",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
    assert_eq!(request.given, "openshift:4.18".parse().unwrap());
}

#[test]
fn our_own_programs_keep_their_defaults() {
    let options = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let (path, parsed) = Path::read(&words);
        Request::new(path.command().verb.unwrap(), parsed.unwrap(), &|_| None).unwrap().options
    };
    let ours = Options::default();
    let ten = Some(std::time::Duration::from_secs(10));
    assert_eq!(options("deploy").updater.sync_period, ten);
    assert_eq!(options("deploy --updater-type=THOLEPIN").updater.sync_period, ours.updater.sync_period);
    assert_eq!(options("deploy --updater-type=THOLEPIN --updater-sync-period=10s").updater.sync_period, ten);
    assert_eq!(options("deploy --updater-sync-period=0").updater.sync_period, None);
    assert_eq!(options("deploy --sched-type=THOLEPIN").scheduler.verbosity, ours.scheduler.verbosity);
}
