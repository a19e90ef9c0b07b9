//! Files, and what they and variables say together.

use super::*;

/// Everything a file can say, read back from the dump.
#[test]
fn keys_of_daemon_files_become_the_configuration() {
    for setting in SETTINGS {
        let (text, value) = match setting.kind {
            table::Kind::Bool if setting.default == "true" => ("false", json!(false)),
            table::Kind::Bool => ("true", json!(true)),
            table::Kind::Text => ("/some/text", json!("/some/text")),
            table::Kind::Word(words) => (words[1], json!(words[1])),
            table::Kind::Int => ("77", json!(77)),
            table::Kind::Duration => ("90s", json!(90_000_000_000_i64)),
            table::Kind::Container => {
                ("a/b/c", json!({"namespace": "a", "podName": "b", "containerName": "c"}))
            }
        };
        for path in [Some(setting.path), setting.alias].into_iter().flatten() {
            let (section, key) = path.split_once('.').unwrap();
            let key = key.replace('.', ": {");
            let close = if key.contains('{') { "}" } else { "" };
            let file = format!("{section}: {{{key}: {text}{close}}}\n");
            let world = World::new(&[("/etc/rte/daemon/config.yaml", &file)], &[]);
            let dump = world.dump(&[]);
            assert_eq!(dump.pointer(&format!("/{}", setting.path.replace('.', "/"))), Some(&value), "{file}");
        }
    }
}

#[test]
fn config_tree_00_full() {
    let world = World::new(
        &[
            (
                "/etc/rte/daemon/config.yaml",
                "global:\n  verbose: 2\nnrtUpdater:\n  noPublish: true\n\
                topologyExporter:\n  sleepInterval: 10000000000\n  addNRTOwnerEnable: false\n  referenceContainer: ns/pod/cnt\n",
            ),
            ("/etc/rte/daemon/config.yaml.d/10-verbose.yaml", "global:\n  verbose: 5\n"),
            (
                "/etc/rte/daemon/config.yaml.d/20-fingerprint.conf",
                "resourceMonitor: {podSetFingerprintMethod: All}\n\
                topologyExporter: {sleepInterval: 1m30s}\n",
            ),
            (
                "/etc/rte/extra/config.yaml",
                "kubelet:\n  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n\
                resourceExclude:\n  node-a: [memory, device/exampleA]\n  node-b: [memory]\n  '*': [device/exampleC]\n\
                podExclude:\n- {namespacePattern: kube-*, namePattern: '*'}\n",
            ),
        ],
        &[],
    );
    let changes = [
        ("global.verbose", json!(5)),
        ("nrtUpdater.noPublish", json!(true)),
        ("nrtUpdater.hostname", json!("node-a")),
        ("resourceMonitor.podSetFingerprintMethod", json!("all")),
        (
            "resourceMonitor.resourceExclude",
            json!({"*": ["device/exampleC"], "node-a": ["device/exampleA", "memory"], "node-b": ["memory"]}),
        ),
        ("resourceMonitor.podExclude", json!([{"namePattern": "*", "namespacePattern": "kube-*"}])),
        ("topologyExporter.sleepInterval", json!(90_000_000_000_i64)),
        // RTE leaves it out, and so a dump that is read back brings the owner back.
        ("topologyExporter.addNRTOwnerEnable", json!(false)),
        ("topologyExporter.topologyManagerPolicy", json!("restricted")),
        ("topologyExporter.topologyManagerScope", json!("pod")),
        (
            "topologyExporter.referenceContainer",
            json!({"namespace": "ns", "podName": "pod", "containerName": "cnt"}),
        ),
    ];
    assert_eq!(world.dump(&[]), built_in_with(&changes));
    let plan = world.plan(&[]);
    assert_eq!((plan.verbosity, warnings(&plan).len()), (5, 1), "{:?}", plan.notes);
    let exclude: Vec<String> = plan.settings.accounting.exclude.into_iter().collect();
    assert_eq!(exclude, ["device/exampleA", "device/exampleC", "memory"]);
    assert!(plan.settings.accounting.exclude_pods[0].matches("kube-system", "x"));
    // Another name, other excludes: they follow the name of the object.
    let exclude: Vec<String> =
        world.settings(&["--hostname=node-c"]).accounting.exclude.into_iter().collect();
    assert_eq!(exclude, ["device/exampleC"]);
}

#[test]
fn config_tree_05_environment_fills_the_reference_container() {
    let file = [("/etc/rte/daemon/config.yaml", "global: {verbose: 2}")];
    let world = World::new(&file, &[("REFERENCE_CONTAINER_NAME", "pool")]);
    let reference =
        |settings: &Settings| settings.accounting.reference.clone().map(|container| container.container);
    assert_eq!(reference(&world.settings(&[])).as_deref(), Some("pool"));
    // Not all three: none.
    let world = World::new(&[], &[("REFERENCE_CONTAINER_NAME", "")]);
    assert_eq!(reference(&world.settings(&[])), None);
}

#[test]
fn config_tree_06_flag_beats_environment() {
    let world = World::new(&[], &[("REFERENCE_CONTAINER_NAME", "pool")]);
    let reference = world.settings(&["--reference-container=a/b/c"]).accounting.reference.unwrap();
    assert_eq!((reference.pod.namespace.as_str(), reference.container.as_str()), ("a", "c"));
    assert_eq!(world.settings(&["--reference-container="]).accounting.reference, None);
}

#[test]
fn variables_of_metrics_count_without_files_and_flags() {
    let variables = [("METRICS_PORT", "9000"), ("METRICS_ADDRESS", "127.0.0.1")];
    let address = |files: &[(&str, &str)], variables: &[(&str, &str)], arguments: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--metrics-mode=http"]).collect();
        World::new(files, variables).settings(&arguments).serving.unwrap().address.to_string()
    };
    let file =
        [("/etc/rte/daemon/config.yaml", "topologyExporter: {metricsPort: 8000, metricsAddress: 127.0.0.2}")];
    let old =
        [("/etc/rte/daemon/config.yaml", "topologyExporter: {metricsPort: 0, MetricsAddress: 127.0.0.3}")];
    assert_eq!(address(&[], &variables, &[]), "127.0.0.1:9000");
    assert_eq!(address(&file, &variables, &[]), "127.0.0.2:8000");
    assert_eq!(address(&old, &variables, &[]), "127.0.0.3:9000");
    assert_eq!(address(&file, &variables, &["--metrics-port=7000"]), "127.0.0.2:7000");
    assert_eq!(address(&[], &[("METRICS_PORT", "many")], &[]), "0.0.0.0:2112");
    let plan = World::new(&[], &[("METRICS_PORT", "many")]).plan(&[]);
    assert!(
        warnings(&plan)[0].starts_with("variable METRICS_PORT: \"many\" has no effect"),
        "{:?}",
        plan.notes
    );
}

#[test]
fn status_variables() {
    let world = World::new(
        &[("/run/pfpstatus/x", "")],
        &[("PFP_STATUS_FILE", "/f"), ("PFP_STATUS_DUMP", "/run/pfpstatus")],
    );
    let status = world.settings(&[]).status;
    assert_eq!(
        (status.file, status.dump),
        (Some(PathBuf::from("/f")), Some(PathBuf::from("/run/pfpstatus")))
    );
    assert_eq!(world.settings(&["--pods-fingerprint-status-file=/g"]).status.file, Some(PathBuf::from("/g")));
    for dump in ["", "/missing", "/run/pfpstatus/x"] {
        let world = World::new(&[("/run/pfpstatus/x", "")], &[("PFP_STATUS_DUMP", dump)]);
        assert_eq!(world.settings(&[]).status.dump, None, "{dump:?} is no directory");
    }
}

#[test]
fn each_variable_of_the_table_is_covered_above() {
    let variables: BTreeSet<&str> = SETTINGS.iter().filter_map(|setting| setting.variable).collect();
    let tested = [
        "METRICS_ADDRESS",
        "METRICS_PORT",
        "NODE_NAME",
        "PFP_STATUS_FILE",
        "REFERENCE",
        "TOPOLOGY_MANAGER_POLICY",
        "TOPOLOGY_MANAGER_SCOPE",
    ];
    assert_eq!(variables, tested.into());
}

#[test]
fn where_files_are_looked_for() {
    let legacy = ("/etc/resource-topology-exporter/config.yaml", "resourceExclude: {'*': [legacy]}");
    let extra = (
        "/etc/rte/extra/config.yaml",
        "resourceExclude: {'*': [extra]}\npodExclude: [{namespacePattern: a, namePattern: b}]",
    );
    let own = ("/etc/rte/own.yaml", "resourceExclude: {'*': [own]}");
    let other = ("/run/rte/extra/config.yaml", "resourceExclude: {'*': [root]}");
    let daemon = ("/run/rte/daemon/config.yaml", "global: {verbose: 6}");
    let excluded = |files: &[(&str, &str)], arguments: &[&str]| {
        let settings = World::new(files, &[]).settings(arguments);
        let names: Vec<String> = settings.accounting.exclude.into_iter().collect();
        format!("{} {}", names.join(","), settings.accounting.exclude_pods.len())
    };
    let all = [legacy, extra, own, other, daemon];
    assert_eq!(excluded(&[legacy], &[]), "legacy 0");
    assert_eq!(excluded(&[extra], &[]), "extra 1", "read without an argument too");
    assert_eq!(excluded(&all, &[]), "legacy 1", "where RTE looks has the last word, key by key");
    assert_eq!(excluded(&all, &["--config=/etc/rte/own.yaml"]), "own 0", "an explicit one stands alone");
    assert_eq!(excluded(&all, &["--config=/etc/rte/missing.yaml"]), " 0", "and may be missing");
    assert_eq!(excluded(&all, &["/run/rte"]), "root 0");
    assert_eq!(
        excluded(&all, &["--config=/etc/rte/own.yaml", "/run/rte"]),
        "root 0",
        "a root beats --config"
    );
    assert_eq!(World::new(&all, &[]).plan(&["/run/rte/"]).verbosity, 6);
    assert_eq!(World::new(&all, &[]).plan(&["/run/rte/../rte/."]).verbosity, 6);
}

#[test]
fn drop_ins_of_a_mounted_config_map_are_read() {
    let world = World::new(
        &[
            ("/etc/rte/daemon/config.yaml.d/..2026/10.yaml", "global: {verbose: 4}"),
            ("/etc/rte/daemon/config.yaml.d/..2026/20.yaml", "global: {verbose: 5}"),
            ("/etc/rte/daemon/config.yaml.d/sub/30.yaml", "global: {verbose: 9}"),
        ],
        &[],
    );
    world.link("/etc/rte/daemon/config.yaml.d/..data", "..2026");
    world.link("/etc/rte/daemon/config.yaml.d/10.yaml", "..data/10.yaml");
    world.link("/etc/rte/daemon/config.yaml.d/20.yaml", "..data/20.yaml");
    world.link("/etc/rte/daemon/config.yaml.d/40.yaml", "nowhere");
    assert_eq!(
        world.plan(&[]).verbosity,
        5,
        "links count, without a config.yaml too; directories and dead links do not"
    );
}

#[test]
fn configuration_is_read_from_its_directories_only() {
    let file = "global: {verbose: 6}";
    for (home, root, wanted) in [
        ("", "/etc/rte", true),
        ("", "/etc/rte/deeper", true),
        ("", "/run/rte", true),
        ("", "/var/rte", true),
        ("", "/usr/local/etc/rte", true),
        ("", "/etc/resource-topology-exporter", true),
        ("", "/run/user/7/rte", true),
        ("/home/me", "/home/me/.rte", true),
        ("", "/home/me/.rte", false),
        ("", "/run/user/8/rte", false),
        ("", "/etc/rte-anything", false),
        ("", "/etc/rte/../passwd", false),
        ("", "/usr/local/etc/shadow", false),
        ("/home/me", "/home/me", false),
    ] {
        let path = format!("{root}/daemon/config.yaml");
        let plain = crate::compat::environment::clean(path.as_ref());
        let world = World::new(&[(plain.to_str().unwrap(), file)], &[("HOME", home)]);
        match world.start(&[root]) {
            Start::Run(plan) => assert!(wanted && plan.verbosity == 6, "{root}"),
            Start::End(ending) => {
                assert!(!wanted, "{root}: {ending:?}");
                assert_eq!(ending.code, 255);
                assert!(
                    ending.stderr.contains(
                        "is outside of the directories that configuration is read from: /etc/rte, "
                    ),
                    "{ending:?}"
                );
            }
        }
    }
    // Also not through a link, wherever it stands.
    let world = World::new(&[("/etc/passwd", "a: b")], &[]);
    world.link("/etc/rte/daemon/config.yaml.d/10", "../../../passwd");
    assert!(world.ends(&[]).stderr.contains("/etc/passwd is outside"));
    world.link("/etc/rte/link.yaml", "../passwd");
    assert!(world.ends(&["--config=/etc/rte/link.yaml"]).stderr.contains("/etc/passwd is outside"));
    assert!(world.ends(&["--config=/etc/passwd"]).stderr.contains("/etc/passwd is outside"));
}

#[test]
fn config_e2e_policy_of_the_file_and_override() {
    let world = World::new(
        &[("/etc/rte/e2e.yaml", "kubelet: {topologyManagerPolicy: restricted, topologyManagerScope: pod}")],
        &[],
    );
    let rules = |arguments: &[&str]| {
        let dump = world.dump(&[&["--config=/etc/rte/e2e.yaml"], arguments].concat());
        let text = |key: &str| dump["topologyExporter"][key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("topologyManagerPolicy"), text("topologyManagerScope"))
    };
    assert_eq!(rules(&[]), "restricted pod");
    assert_eq!(rules(&["--topology-manager-policy=none"]), "none pod");
}
