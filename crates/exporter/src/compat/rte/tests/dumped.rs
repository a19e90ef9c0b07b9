//! What is dumped, and that it can be read back.

use super::*;

#[test]
fn config_defaults_golden() {
    let golden: Yaml = serde_json::from_str(BUILT_IN).unwrap();
    assert_eq!(dump::tree(&Config::default()), golden);
}

#[test]
fn config_defaults_with_environment_golden() {
    let world = World::new(&[], &[("REFERENCE_CONTAINER_NAME", "pool")]);
    let reference = json!({ "namespace": "rte", "podName": "rte-x", "containerName": "pool" });
    let changes =
        [("nrtUpdater.hostname", json!("node-a")), ("topologyExporter.referenceContainer", reference)];
    assert_eq!(world.dump(&[]), built_in_with(&changes));
}

#[test]
fn the_dump_as_text() {
    let world = World::new(
        &[("/etc/rte/extra/config.yaml", "podExclude:\n- namespacePattern: kube-*\n  namePattern: '*'\n")],
        &[],
    );
    let text = world.ends(&["--dump-config", ".andexit", "--no-publish"]).stdout;
    let wanted = "global:\n  verbose: 2\nnrtUpdater:\n  hostname: node-a\n  noPublish: true\n  patchMode: true\n  \
        patchResync: 10\nresourceMonitor:\n  podExclude:\n  - namePattern: \"*\"\n    namespacePattern: kube-*\n  \
        podSetFingerprint: true\n  podSetFingerprintMethod: with-exclusive-resources\n  sysfsRoot: /sys\n\
        topologyExporter:\n  addNRTOwnerEnable: true\n  kubeletConfigFile: /podresources/config.yaml\n  \
        maxEventPerTimeUnit: 1\n  metricsAddress: \"0.0.0.0\"\n  metricsMode: disabled\n  metricsPort: 2112\n  \
        metricsTLS:\n    certFile: tls.crt\n    certsDir: /etc/secrets/rte\n    keyFile: tls.key\n  \
        podReadinessEnable: true\n  podResourcesSocketPath: unix:///podresources/kubelet.sock\n  \
        sleepInterval: 60000000000\n  timeUnitToLimitEvents: 1000000000\n";
    assert_eq!(text, wanted);
}

/// The ways to say nothing in a file.
#[test]
fn nothing_is_said_by_null_and_minus_one() {
    let text = "topologyExporter: {maxEventPerTimeUnit: -1, sleepInterval: null, metricsTLS:}\nglobal:\n";
    let world = World::new(&[("/etc/rte/daemon/config.yaml", text)], &[]);
    assert_eq!(world.dump(&[]), built_in_with(&[("nrtUpdater.hostname", json!("node-a"))]));
    assert_eq!(world.settings(&[]).intervals.min_gap, std::time::Duration::ZERO);
}

#[test]
fn dump_targets() {
    let world = World::new(&[], &[]);
    assert_eq!(world.plan(&["--dump-config="]).stdout, "");
    let shown = world.plan(&["--dump-config=-"]).stdout;
    assert!(shown.starts_with("global:\n  verbose: 2\n"), "{shown}");
    let exits = world.ends(&["--dump-config", ".andexit"]);
    assert_eq!(exits, Ending { stdout: shown.clone(), ..Ending::default() });
    let logged = world.plan(&["--dump-config=.log"]);
    assert_eq!(logged.stdout, "");
    assert!(logged.notes.contains(&Note::Info(format!("configuration:\n{shown}"))), "{:?}", logged.notes);
    // The dump does not need to know our pod; running does.
    let nameless = World::new(&[], &[("REFERENCE_POD_NAME", "")]);
    assert_eq!(nameless.ends(&["--dump-config=.andexit"]).code, 0);
}

/// The words of our table with some value each, for property tests.
fn some_flag() -> impl Strategy<Value = String> {
    let flags: Vec<&table::Setting> = SETTINGS.iter().filter(|setting| setting.flag.is_some()).collect();
    (proptest::sample::select(flags), 0..4_usize).prop_map(|(setting, number)| {
        let value = match setting.kind {
            table::Kind::Bool => ["true", "false", "1", "F"][number],
            table::Kind::Text => ["/a", "b c", "", "'*': \"#"][number],
            table::Kind::Word(words) => words[number % words.len()],
            table::Kind::Int => ["0", "7", "-1", "1"][number],
            table::Kind::Duration => ["0", "1s", "1h2m3.5s", "60s"][number],
            table::Kind::Container => ["a/b/c", "", "x/y-1/z", "1/2/3"][number],
        };
        format!("--{}={value}", setting.flag.unwrap_or_default())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is dumped and read as the only daemon file, without flags and variables, is what was dumped.
    #[test]
    fn a_dump_read_back_is_the_same(
        flags in prop::collection::vec(some_flag(), 0..12),
        excludes in prop::collection::btree_map(
            "[a-z*]{1,3}",
            prop::collection::btree_set("[a-z/.]{1,4}", 0..3),
            0..3,
        ),
    ) {
        let extra = runtime::yaml::write(&BTreeMap::from([("resourceExclude", excludes)])).unwrap();
        let world = World::new(&[("/etc/rte/extra/config.yaml", &extra)], &[("REFERENCE_CONTAINER_NAME", "pool")]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--dump-config=.andexit"]).collect();
        let first = world.ends(&flags);
        prop_assert_eq!(first.code, 0, "{:?}", first);
        let again = World::new(&[("/etc/rte/daemon/config.yaml", &first.stdout)], &[("NODE_NAME", "other")]);
        let second = again.ends(&["--dump-config=.andexit"]);
        prop_assert_eq!(&first.stdout, &second.stdout);
    }

    #[test]
    fn nothing_panics(
        arguments in prop::collection::vec("-{0,2}[a-z-]{0,8}=?[a-z0-9:/.]{0,8}", 0..4),
        daemon in any::<String>(),
        extra in "[a-zA-Z:{}\\[\\], \n'*-]{0,40}",
    ) {
        let world = World::new(&[("/etc/rte/daemon/config.yaml", &daemon), ("/etc/rte/extra/config.yaml", &extra)], &[]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if let Start::End(ending) = world.start(&arguments) {
            prop_assert!([0, 2, 255].contains(&ending.code));
        }
    }
}
