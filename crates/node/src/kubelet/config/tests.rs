use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;
use topology::policy::{Manager, Policy, Scope};

use super::*;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn parse(text: &str) -> Result<Configuration, String> {
    Configuration::parse(text, Path::new("/k/config.yaml")).map_err(|error| error.to_string())
}

/// The kubelet's defaults.
fn defaults() -> Configuration {
    Configuration {
        rules: Rules {
            policy: Policy::None,
            scope: Scope::Container,
            cpu_manager: Manager::Off,
            memory_manager: Manager::Off,
        },
        max_allowable_numa_nodes: 8,
        max_pods: DEFAULT_MAX_PODS,
        ..Configuration::default()
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn amount(text: &str) -> ReservedCpus {
    ReservedCpus::Amount(Quantity::parse(text).unwrap())
}

#[test]
fn everything_is_read_and_the_rest_is_ignored() {
    let text = "\
authentication: {anonymous: {enabled: true}}
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: \"true\", align-by-socket: \"F\", of-tomorrow: \"x\"}
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
topologyManagerPolicyOptions: {max-allowable-numa-nodes: \"16\", prefer-closest-numa-nodes: \"1\"}
reservedSystemCPUs: 0,8-9
kubeReserved: {cpu: nonsense the list overrides, memory: 1Gi}
systemReserved: {memory: 256Mi}
evictionHard: {memory.available: 5%, nodefs.available: 0%}
maxPods: 250
featureGates: {PodLevelResourceManagers: true}
reservedMemory:
- numaNode: 1
  limits: {memory: 1Gi, hugepages-2Mi: 4194304}
- {numaNode: 0, limits: {memory: 512e3}}
- numaNode: 1
  limits: {hugepages-1Gi: 1Gi}
";
    let read = parse(&(HEAD.to_owned() + text)).unwrap();
    let recorded = read.recording().to_string();
    assert!(!recorded.contains("nonsense") && !recorded.contains("anonymous"), "{recorded}");
    assert_eq!(parse(&recorded), Ok(read.clone()));
    let huge = |size| ResourceName::new(size).unwrap();
    let zone1 =
        [(ResourceName::MEMORY, 1 << 30), (huge("hugepages-2Mi"), 4 << 20), (huge("hugepages-1Gi"), 1 << 30)];
    let wanted = Configuration {
        rules: Rules {
            policy: Policy::SingleNumaNode,
            scope: Scope::Pod,
            cpu_manager: Manager::Static,
            memory_manager: Manager::Static,
        },
        cpu_manager_options: texts(&[
            ("align-by-socket", "F"),
            ("full-pcpus-only", "true"),
            ("of-tomorrow", "x"),
        ]),
        topology_manager_options: texts(&[
            ("max-allowable-numa-nodes", "16"),
            ("prefer-closest-numa-nodes", "1"),
        ]),
        max_allowable_numa_nodes: 16,
        reserved_cpus: ReservedCpus::Listed(CpuSet::parse("0,8-9").unwrap()),
        reserved_memory: BTreeMap::from([
            (ZoneId(0), BTreeMap::from([(ResourceName::MEMORY, 512_000)])),
            (ZoneId(1), BTreeMap::from(zone1)),
        ]),
        reserved_amounts: BTreeMap::from([(ResourceName::MEMORY, Quantity::parse("1280Mi").unwrap())]),
        eviction_memory: EvictionMemory::Percent(5.0),
        max_pods: 250,
        feature_gates: BTreeMap::from([("PodLevelResourceManagers".to_owned(), true)]),
    };
    assert_eq!(read, wanted);
    assert!(read.prefers_closest_numa_nodes());
    let on: Vec<_> = CpuOption::ALL.into_iter().filter(|option| read.cpu_option(*option)).collect();
    assert_eq!(on, [CpuOption::FullPcpusOnly]);
}

#[test]
fn what_is_missing_or_empty_has_the_kubelets_default() {
    for text in [
        "kind: KubeletConfiguration\n",
        "{}",
        "topologyManagerPolicy: \"\"\ntopologyManagerScope:\nreservedSystemCPUs: \"\"\nreservedMemory: []\n",
        "memoryManagerPolicy: None\ncpuManagerPolicy: none\nreservedMemory: [{numaNode: 0}]\n",
        "CPUManagerPolicy: static\n", // the kubelet's decoder of the main file knows one spelling
        // Without its policy these are ignored.
        "topologyManagerPolicyOptions: null\n---\n{not read: [",
    ] {
        assert_eq!(parse(text), Ok(defaults()), "{text:?}");
    }
}

#[test]
fn options_count_only_with_their_policy() {
    let topology = texts(&[("max-allowable-numa-nodes", "7"), ("prefer-closest-numa-nodes", "maybe")]);
    let cpu = texts(&[("full-pcpus-only", "maybe")]);
    let text = "cpuManagerPolicyOptions: {full-pcpus-only: maybe}\n\
                topologyManagerPolicyOptions: {max-allowable-numa-nodes: '7', prefer-closest-numa-nodes: maybe}\n";
    let read = parse(text).unwrap();
    assert!(!read.cpu_option(CpuOption::FullPcpusOnly) && !read.prefers_closest_numa_nodes());
    let wanted = Configuration { cpu_manager_options: cpu, topology_manager_options: topology, ..defaults() };
    assert_eq!(read, wanted);
}

#[test]
fn reserved_cpus() {
    for (text, wanted, count) in [
        ("{}", amount("0"), 0),
        ("kubeReserved: {cpu: 500m}\nsystemReserved: {cpu: 700m, memory: 1Gi}", amount("1200m"), 2),
        ("kubeReserved: {cpu: '2'}\nreservedSystemCPUs: ''", amount("2"), 2),
        ("systemReserved: {memory: 1Gi}", amount("0"), 0),
        (
            "reservedSystemCPUs: 4-5,0\nsystemReserved: {cpu: '9'}",
            ReservedCpus::Listed(CpuSet::parse("0,4,5").unwrap()),
            3,
        ),
    ] {
        let read = parse(text).unwrap().reserved_cpus;
        assert_eq!((read.count(), read), (count, wanted), "{text}");
    }
}

#[test]
fn values_no_kubelet_accepts_are_refused_by_name() {
    for (text, wanted) in [
        (
            "topologyManagerPolicy: Restricted",
            "topologyManagerPolicy is \"Restricted\"; allowed are none, best-effort, restricted, single-numa-node",
        ),
        ("topologyManagerScope: node", "topologyManagerScope is \"node\"; allowed are container, pod"),
        ("cpuManagerPolicy: Static", "cpuManagerPolicy is \"Static\"; allowed are none, static"),
        ("memoryManagerPolicy: static", "memoryManagerPolicy is \"static\"; allowed are None, Static"),
        ("topologyManagerPolicy: [a]", "topologyManagerPolicy is a list; allowed are text"),
        ("reservedSystemCPUs: 3", "reservedSystemCPUs is 3; allowed are text"),
        ("reservedSystemCPUs: 0-", "reservedSystemCPUs is \"0-\"; allowed are lists of CPUs such as 0-3,8"),
        ("reservedSystemCPUs: ' 0'", "reservedSystemCPUs is \" 0\"; allowed are lists of CPUs such as 0-3,8"),
        ("kubeReserved: {cpu: 1}", "kubeReserved.cpu is 1; allowed are text"),
        (
            "systemReserved: {cpu: '-1'}",
            "systemReserved.cpu is \"-1\"; allowed are quantities from 0 such as 2 or 500m",
        ),
        (
            "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: 'yes'}",
            "cpuManagerPolicyOptions.align-by-socket is \"yes\"; allowed are true, false",
        ),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: true}",
            "cpuManagerPolicyOptions.full-pcpus-only is true; allowed are text",
        ),
        (
            "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: '7'}",
            "topologyManagerPolicyOptions.max-allowable-numa-nodes is \"7\"; allowed are whole numbers from 8",
        ),
        (
            "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {prefer-closest-numa-nodes: on!}",
            "topologyManagerPolicyOptions.prefer-closest-numa-nodes is \"on!\"; allowed are true, false",
        ),
        ("reservedMemory: [{numaNode: -1}]", "reservedMemory[0].numaNode is -1; allowed are NUMA node ids"),
        (
            "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]",
            "reservedMemory[0].limits.cpu is \"1\"; allowed are limits of memory and hugepages-<size>",
        ),
        (
            "reservedMemory: [{limits: {memory: 1500m}}]",
            "reservedMemory[0].limits.memory is \"1500m\"; allowed are whole numbers of bytes above 0",
        ),
        (
            "reservedMemory: [{limits: {memory: 0}}]",
            "reservedMemory[0].limits.memory is \"0\"; allowed are whole numbers of bytes above 0",
        ),
        (
            "reservedMemory: [{limits: {memory: 1}}, {limits: {memory: 1}}]",
            "reservedMemory[1].limits.memory is \"1\"; allowed are one limit of a resource for each NUMA node",
        ),
        ("kind: Pod", "kind is \"Pod\", expected KubeletConfiguration"),
        ("apiVersion: v1", "apiVersion is \"v1\", expected kubelet.config.k8s.io/v1beta1"),
    ] {
        assert_eq!(parse(text), Err(format!("/k/config.yaml: {wanted}")));
    }
}

#[test]
fn texts_that_are_no_configuration_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..8 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    let deep = "[".repeat(50_000);
    for text in [
        "",
        "# nothing\n",
        "- a\n- b",
        "a: b: c",
        "\u{0}\u{1}",
        "topologyManagerPolicy: &a [*a]",
        &bomb,
        &deep,
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with("/k/config.yaml is not a KubeletConfiguration: "), "{error}");
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }
    let error = Configuration::read(&Files { file: "/no/such.yaml".into(), drop_ins: None }).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /no/such.yaml");
}

#[test]
fn of_repeated_keys_the_main_files_last_one_counts() {
    let read = parse("topologyManagerPolicy: none\ntopologyManagerPolicy: restricted\n").unwrap();
    assert_eq!(read.rules.policy, Policy::Restricted);
}

#[test]
fn json_and_anchors_are_fine() {
    let json = "{\n\t\"topologyManagerPolicy\": \"restricted\"\n}\n";
    assert_eq!(parse(json).unwrap().rules.policy, Policy::Restricted);
    let read = parse("x: &r {cpu: '1'}\nkubeReserved: *r\nsystemReserved: {<<: *r}\n").unwrap();
    assert_eq!(read.reserved_cpus, amount("2"));
}

#[test]
fn configz() {
    let name = Path::new("configz of n1");
    let read = |text: &str| Configuration::from_configz(text, name).map_err(|error| error.to_string());
    assert_eq!(read(r#"{"kubeletconfig": {"enableServer": true}}"#), Ok(defaults()));
    let text = r#"{"kubeletconfig": {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "container", "memoryManagerPolicy": "None", "reservedSystemCPUs": "0-1",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}}"#;
    let configuration = read(text).unwrap();
    assert_eq!(configuration.rules.policy, Policy::Restricted);
    assert_eq!(configuration.reserved_cpus.count(), 2);
    assert_eq!(configuration.reserved_memory[&ZoneId(0)][&ResourceName::MEMORY], 100 << 20);
    for (text, wanted) in [
        ("{}", "configz of n1 is not a KubeletConfiguration: has no object \"kubeletconfig\""),
        ("[]", "configz of n1 is not a KubeletConfiguration: has no object \"kubeletconfig\""),
        (
            r#"{"kubeletconfig": {"topologyManagerScope": "x"}}"#,
            "configz of n1: topologyManagerScope is \"x\"; allowed are container, pod",
        ),
    ] {
        assert_eq!(read(text), Err(wanted.to_owned()));
    }
    assert!(read("forbidden").unwrap_err().contains("line 1 column"));
}

/// A main file and a directory `d` of drop-ins, each beginning with [`HEAD`] unless it begins with `!`.
fn dir(main: &str, drop_ins: &[(&str, &str)]) -> (TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    let files = Files { file: dir.path().join("config"), drop_ins: Some(dir.path().join("d")) };
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(&files.file, main).unwrap();
    for (name, text) in drop_ins {
        let path = dir.path().join("d").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = text.strip_prefix('!').map_or_else(|| HEAD.to_owned() + text, str::to_owned);
        fs::write(path, text).unwrap();
    }
    (dir, files)
}

fn read((dir, files): &(TempDir, Files)) -> Result<Configuration, String> {
    let here = dir.path().display().to_string();
    Configuration::read(files).map_err(|error| error.to_string().replace(&here, "{}"))
}

/// Reads the topology policy out of a main file with drop-ins.
fn policy(main: &str, drop_ins: &[(&str, &str)]) -> &'static str {
    read(&dir(main, drop_ins)).unwrap().rules.policy.as_str()
}

#[test]
fn drop_ins_are_merged_in_the_kubelets_order() {
    let one = |policy: &str| format!("topologyManagerPolicy: {policy}\n");
    let (none, best, strict, single) =
        (&*one("none"), &*one("best-effort"), &*one("restricted"), &*one("single-numa-node"));
    for (main, drop_ins, wanted) in [
        (strict, &[][..], "restricted"),
        (strict, &[("10.conf", "")], "restricted"),
        ("{}", &[("20.conf", single), ("10.conf", best)], "single-numa-node"),
        (none, &[("9.conf", best), ("10.conf", single)], "best-effort"),
        (strict, &[("10.yaml", none), ("a.conf.bak", none), ("README", "!: [")], "restricted"),
        (none, &[(".conf", strict), (".hidden.conf", single)], "single-numa-node"),
        (strict, &[("10.conf", "topologyManagerPolicy: null\n")], "none"),
        (strict, &[("10.conf", "topologyManagerPolicy: \"\"\n")], "none"),
        // Names in each directory, not whole paths, are what is ordered: "a" before "a.conf", whereas "/" is after ".".
        (none, &[("a/z.conf", best), ("a.conf", strict)], "restricted"),
        (none, &[("b/deep/er/z.conf", single), ("a.conf", best)], "single-numa-node"),
    ] {
        assert_eq!(policy(main, drop_ins), wanted, "{main:?} {drop_ins:?}");
    }
}

#[test]
fn maps_are_merged_and_lists_replaced() {
    let main = "kubeReserved: {cpu: 500m, memory: 1Gi}\n\
                cpuManagerPolicyOptions: {full-pcpus-only: 'true', strict-cpu-reservation: 'true'}\n\
                reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 1Gi}}]\n";
    let drop_in = "kubeReserved: {cpu: '2'}\nsystemReserved: {cpu: '1'}\n\
                   cpuManagerPolicyOptions: {full-pcpus-only: null, align-by-socket: 'true'}\n\
                   reservedMemory: [{numaNode: 1, limits: {hugepages-2Mi: 2Mi}}]\n";
    let read = read(&dir(main, &[("10.conf", drop_in)])).unwrap();
    assert_eq!(read.reserved_cpus, amount("3"));
    let options = texts(&[("align-by-socket", "true"), ("strict-cpu-reservation", "true")]);
    assert_eq!(read.cpu_manager_options, options);
    let huge = ResourceName::new("hugepages-2Mi").unwrap();
    assert_eq!(read.reserved_memory, BTreeMap::from([(ZoneId(1), BTreeMap::from([(huge, 2 << 20)]))]));
}

/// Go's decoder of the merged result takes any spelling; that the default stands there already decides between two.
#[test]
fn odd_spellings_count_as_in_go() {
    assert_eq!(policy("{}", &[("1.conf", "topologymanagerpolicy: restricted\n")]), "restricted");
    assert_eq!(policy("{}", &[("1.conf", "TopologyManagerPolicy: restricted\n")]), "none");
    assert_eq!(policy("TopologyManagerPolicy: restricted", &[]), "none");
}

#[test]
fn links_are_treated_as_the_kubelet_does() {
    let restricted = HEAD.to_owned() + "topologyManagerPolicy: restricted\n";
    let case = dir("{}", &[]);
    let d = case.0.path().join("d");
    let elsewhere = case.0.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("x.conf"), &restricted).unwrap();
    symlink(&elsewhere, d.join("..data")).unwrap();
    assert_eq!(read(&case).unwrap().rules.policy, Policy::None, "a link to a directory is not followed");
    symlink("..data/x.conf", d.join("x.conf")).unwrap();
    assert_eq!(read(&case).unwrap().rules.policy, Policy::Restricted, "a link to a file is a file");
    symlink(&elsewhere, d.join("y.conf")).unwrap();
    assert_eq!(read(&case), Err("{}/d/y.conf is not a regular file".to_owned()));

    // The directory itself may not be a link either: then nothing in it counts, unless a slash follows.
    let link = case.0.path().join("link");
    symlink(&elsewhere, &link).unwrap();
    let files = |dir: PathBuf| Files { drop_ins: Some(dir), ..case.1.clone() };
    assert_eq!(Configuration::read(&files(link.clone())).unwrap().rules.policy, Policy::None);
    assert_eq!(Configuration::read(&files(link.join(""))).unwrap().rules.policy, Policy::Restricted);
}

#[test]
fn odd_drop_ins_are_refused_by_name() {
    for (name, text, wanted) in [
        (
            "1.conf",
            "topologyManagerPolicy: x\n",
            "{}/d/1.conf: topologyManagerPolicy is \"x\"; allowed are none, best-effort, restricted, single-numa-node",
        ),
        (
            "s/1.conf",
            "cpuManagerPolicy: static\nCPUMANAGERPOLICYOPTIONS: {align-by-socket: 1}\n",
            "{}/d/s/1.conf: cpuManagerPolicyOptions.align-by-socket is 1; allowed are text",
        ),
        ("1.conf", "!", "{}/d/1.conf is not a KubeletConfiguration: it is empty"),
        ("1.conf", "![a]", "{}/d/1.conf is not a KubeletConfiguration: it is not a map of fields"),
        (
            "1.conf",
            "!kind: KubeletConfiguration\n",
            "{}/d/1.conf: apiVersion is \"\", expected kubelet.config.k8s.io/v1beta1",
        ),
        (
            "1.conf",
            "!apiVersion: kubelet.config.k8s.io/v1beta1\n",
            "{}/d/1.conf: kind is \"\", expected KubeletConfiguration",
        ),
    ] {
        assert_eq!(read(&dir("topologyManagerScope: pod", &[(name, text)])), Err(wanted.to_owned()));
    }
    let twice = "cpuManagerPolicy: none\ncpuManagerPolicy: static\n";
    let error = read(&dir("{}", &[("1.conf", twice)])).unwrap_err();
    assert!(error.starts_with("{}/d/1.conf is not a KubeletConfiguration: "), "{error}");
    // What a drop-in does not touch is still the main file's.
    let error = read(&dir("topologyManagerScope: x", &[("1.conf", "cpuManagerPolicy: static\n")]));
    assert_eq!(error, Err("{}/config: topologyManagerScope is \"x\"; allowed are container, pod".to_owned()));

    let (dir, mut files) = dir("{}", &[]);
    files.drop_ins = Some(dir.path().join("missing"));
    assert_eq!(read(&(dir, files)), Err("cannot read {}/missing".to_owned()));
}

#[test]
fn directories_without_end_are_refused() {
    let case = dir("{}", &[("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r.conf", "")]);
    let error = read(&case).unwrap_err();
    let wanted = "more than 16 files or levels, which is not a directory of drop-in files";
    assert!(error.ends_with(wanted), "{error}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![
        "\\PC{0,60}",
        "(topologyManager(Policy|Scope|PolicyOptions)|reservedMemory|kubeReserved|reservedSystemCPUs): \\PC{0,40}",
        "reservedMemory: \\[\\{numaNode: -?[0-9]{1,20}, limits: \\{memory: [-+0-9.eEKMGi]{0,12}\\}\\}\\]",
    ]) {
        let _ = parse(&text);
        let _ = Configuration::from_configz(&text, Path::new("x"));
    }

    /// A later drop-in wins, whatever is in the earlier ones, and one that is empty changes nothing.
    #[test]
    fn the_last_word_counts(picks in proptest::collection::vec(0..4_usize, 1..5)) {
        const POLICIES: [&str; 4] = ["none", "best-effort", "restricted", "single-numa-node"];
        let texts: Vec<_> = picks.iter().map(|pick| format!("topologyManagerPolicy: {}\n", POLICIES[*pick])).collect();
        let names: Vec<_> = (0..=texts.len()).map(|index| format!("{index}.conf")).collect();
        let texts = texts.iter().map(String::as_str).chain(["authentication: {}\n"]);
        let drop_ins: Vec<_> = names.iter().map(String::as_str).zip(texts).collect();
        prop_assert_eq!(policy("topologyManagerPolicy: restricted", &drop_ins), POLICIES[*picks.last().unwrap()]);
    }
}

#[test]
fn a_recording_is_read_as_the_configuration() {
    for text in [
        "",
        "kubeReserved: {cpu: 1500m}\nsystemReserved: {cpu: \"1\", memory: 1Gi}",
        "topologyManagerPolicy: none\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: x}",
        "topologyManagerPolicy: restricted\nreservedMemory: [{numaNode: 3, limits: {memory: 5}}, {numaNode: 1}]",
        "cpuManagerPolicy: static\ntopologyManagerPolicy: best-effort\ntopologyManagerScope: pod",
    ] {
        let read = parse(&(HEAD.to_owned() + text)).unwrap();
        assert_eq!(parse(&read.recording().to_string()), Ok(read), "{text}");
    }
}
