use super::*;

fn parse(text: &str) -> Result<Rules, String> {
    parse_rules(text, Path::new("/k/config.yaml")).map_err(|error| error.to_string())
}

#[test]
fn rules_are_read_and_the_rest_is_ignored() {
    let rules = parse(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication: {anonymous: {enabled: true}}\n\
         cpuManagerPolicy: static\nmemoryManagerPolicy: Static\ntopologyManagerPolicy: single-numa-node\n\
         topologyManagerScope: pod\ncpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\nreservedMemory: [{numaNode: 0}]\n",
    );
    let wanted = Rules {
        policy: Policy::SingleNumaNode,
        scope: Scope::Pod,
        cpu_manager: Manager::Static,
        memory_manager: Manager::Static,
    };
    assert_eq!(rules, Ok(wanted));
}

#[test]
fn what_is_missing_or_empty_has_the_kubelets_default() {
    let defaults = Rules {
        policy: Policy::None,
        scope: Scope::Container,
        cpu_manager: Manager::Off,
        memory_manager: Manager::Off,
    };
    for text in [
        "kind: KubeletConfiguration\n",
        "{}",
        "topologyManagerPolicy: \"\"\ntopologyManagerScope:\n",
        "memoryManagerPolicy: None\ncpuManagerPolicy: none\n",
    ] {
        assert_eq!(parse(text), Ok(defaults), "{text:?}");
    }
}

#[test]
fn odd_files_are_refused_by_name() {
    for (text, wanted) in [
        (
            "topologyManagerPolicy: Restricted",
            "/k/config.yaml: topologyManagerPolicy is \"Restricted\"; allowed are none, best-effort, restricted, \
             single-numa-node",
        ),
        (
            "topologyManagerScope: node",
            "/k/config.yaml: topologyManagerScope is \"node\"; allowed are container, pod",
        ),
        (
            "cpuManagerPolicy: Static",
            "/k/config.yaml: cpuManagerPolicy is \"Static\"; allowed are none, static",
        ),
        (
            "memoryManagerPolicy: static",
            "/k/config.yaml: memoryManagerPolicy is \"static\"; allowed are None, Static",
        ),
        ("kind: Pod", "/k/config.yaml: kind is \"Pod\", expected KubeletConfiguration"),
    ] {
        assert_eq!(parse(text), Err(wanted.to_owned()));
    }
    for text in
        ["topologyManagerPolicy: [a]", "- a\n- b", "a: b: c", "\u{0}\u{1}", "topologyManagerPolicy: &a [*a]"]
    {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with("/k/config.yaml is not a KubeletConfiguration: "), "{error}");
    }
}

#[test]
fn a_missing_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = read_rules(&dir.path().join("config.yaml")).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read {}/config.yaml", dir.path().display()));
}

#[test]
fn directories_to_watch() {
    let sysfs = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(sysfs.path().join("fs/cgroup/kubepods.slice")).unwrap();
    let [root, socket, config] =
        ["/k", "/k/pod-resources/kubelet.sock", "/etc/kubernetes/kubelet.yaml"].map(Path::new);
    let targets = targets(root, socket, config, sysfs.path());
    let dirs: Vec<_> =
        targets.iter().map(|t| (t.dir.display().to_string(), t.names.clone(), t.tag)).collect();
    let is = |name: &str| Names::Is(name.to_owned());
    assert_eq!(
        dirs,
        [
            ("/k".to_owned(), Names::EndWith("_state"), Change::Allocation),
            ("/k".to_owned(), is("allocated_pods_state"), Change::Admission),
            ("/k/device-plugins".to_owned(), Names::Visible, Change::Devices),
            ("/k/pods".to_owned(), Names::Visible, Change::Pods),
            ("/k/pod-resources".to_owned(), is("kubelet.sock"), Change::Socket),
            ("/etc/kubernetes".to_owned(), is("kubelet.yaml"), Change::Config),
            (format!("{}/fs/cgroup/kubepods.slice", sysfs.path().display()), Names::Visible, Change::Pods),
        ]
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(topologyManager(Policy|Scope): )?\\PC{0,60}") {
        let _ = parse(&text);
    }
}
