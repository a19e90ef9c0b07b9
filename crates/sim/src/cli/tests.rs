use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn parse(flags: &str) -> Result<Args, String> {
    let words = ["simulate"].into_iter().chain(flags.split_whitespace());
    Command::try_parse_from(words).map(|command| command.args).map_err(|error| error.to_string())
}

#[test]
fn bad_flags_say_what_is_allowed() {
    for (flags, words) in [
        ("--machine 2-16", "expected ZONESxCPUS"),
        ("--schedulers blind,best", "allowed are blind, nrtmatch, tholepin, ideal"),
        ("--seeds 3", "such as 1-20"),
        ("--seeds 9-3", "such as 1-20"),
        ("--seeds 1-1001", "at most 1000 of them"),
        ("--seeds 1-2 --seed 1", "cannot be used with"),
        ("--pending", "--from"),
        ("--from a --pending --pods 3", "cannot be used with"),
        ("--nrtmatch-resync-period 0", "allowed are 0.001 to 86400 seconds"),
        ("--policy single", "allowed are none, best-effort, restricted, single-numa-node"),
        ("--scope node", "allowed are container, pod"),
        ("--cpu-manager-policy-options full-cores", "allowed are full-pcpus-only, "),
        ("--topology-manager-policy-options closest", "[possible values: prefer-closest-numa-nodes]"),
        ("--latency slow", "allowed are cluster, zero"),
        ("--chart a.jpg", "allowed are names that end in .svg"),
        ("--chart a.png", "a browser or rsvg-convert turns one into PNG"),
        ("--exporters-down 10", "such as 10-70"),
        ("--exporters-down 10-5", "such as 10-70"),
        ("--scheduler-down 1-inf", "such as 10-70"),
        ("--from a --nodes 3", "cannot be used with"),
        ("--workload a --load 3", "cannot be used with"),
        ("-o xml", "invalid value 'xml'"),
        ("--nodes -1", "unexpected argument"),
        ("--add 2x8=2", "--from"),
        ("--remove a", "--live"),
        ("--from a --live", "cannot be used with"),
        ("--live --machine 2x16", "cannot be used with"),
        ("--live --add 2x8", "allowed is SHAPE=N, such as 2x64+gpu4=3"),
        ("--live --add 2x8=0", "allowed is SHAPE=N"),
        ("--live --add 2-8=1", "expected ZONESxCPUS"),
    ] {
        let error = parse(flags).unwrap_err();
        assert!(error.contains(words), "{flags}: {error}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (flags, words) in [
        ("--nodes 0", "the number of machines is 0: allowed are 1 to 20000"),
        ("--zones 65", "the number of zones is 65: allowed are 1 to 64"),
        ("--zones 4294967295", "the number of zones is 4294967295: allowed are 1 to 64"),
        ("--reserved-cpus 32", "the number of reserved CPUs is 32: allowed are 0 to 31"),
        ("--rate 0", "rate is 0"),
        ("--rate NaN", "rate is NaN"),
        ("--load inf", "load is inf"),
        ("--pods 1000001", "pods is 1000001: allowed are 0 to 1000000"),
        ("--max-pending 0", "max_pending is 0"),
        ("--threads-per-core 9", "the number of threads of a core is 9: allowed are 1 to 8"),
        ("--machine 64x4096", "262144 CPUs; allowed are up to 8192"),
        (
            "--cpu-manager-policy-options full-pcpus-only,distribute-cpus-across-cores",
            "the kubelet refuses to start: static policy options",
        ),
        ("--rate 0.000001 --pods 1000000", "up to ten years"),
    ] {
        let args = parse(flags).unwrap();
        let result = machines(&args).and_then(|found| workload(&args, &found, args.seed));
        let error = result.unwrap_err().to_string();
        assert!(error.contains(words), "{flags}: {error}");
    }
}

#[test]
fn moments_are_in_seconds() {
    assert_eq!(parse("--exporters-down 0.5-70").unwrap().exporters_down, Some((500, 70_000)));
}

#[test]
fn flags_shape_the_machines() {
    let args =
        parse("--machine 2x16+gpu2 --zones 4 --cpus-per-zone 8 --reserved-cpus 2 --scope pod --nodes 3")
            .unwrap();
    let machines = machines(&args).unwrap().machines;
    assert_eq!((machines.len(), open_cpus(&machines)), (3, 90));
    let topology = &machines[2].topology;
    assert_eq!(
        (topology.zones.len(), topology.rules.scope, topology.rules.policy),
        (4, Scope::Pod, Policy::SingleNumaNode)
    );
    assert_eq!(topology.zones[3].resources.last().unwrap().allocatable, 2);
    assert_eq!(
        heading(&Workload::default(), &machines),
        "0 pods on 3 nodes with 4 NUMA zones each and 90 CPUs available"
    );
    let machines = Shape::even(1, 2).unwrap().machines(1).unwrap();
    let workload = Workload { max_pending: None, arrivals: vec![crate::workload::Arrival::new(0, 1, 1)] };
    assert_eq!(heading(&workload, &machines), "1 pod on 1 node with 1 NUMA zone each and 1 CPU available");
}

/// Two nodes of one zone; the first has a pod of a controller, one without, and one that belongs to the node.
fn two_nodes() -> tempfile::NamedTempFile {
    let node = |name: &str| {
        format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: {name}, uid: {name}}}, \
             status: {{allocatable: {{cpu: \"8\", memory: 16Gi, pods: \"110\"}}}}}}\n"
        )
    };
    let pod = |name: &str, owner: &str| {
        let owners = match owner {
            "" => String::new(),
            kind => format!(
                ", ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: o, uid: o, controller: true}}]"
            ),
        };
        format!(
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: x, uid: {name}{owners}}}, \
             spec: {{nodeName: first, containers: [{{name: c, resources: {{limits: {{cpu: \"6\", memory: 1Gi}}}}}}]}}, \
             status: {{phase: Running}}}}\n"
        )
    };
    let items = [
        node("first"),
        node("second"),
        pod("made-again", "ReplicaSet"),
        pod("bare", ""),
        pod("of-the-node", "DaemonSet"),
    ];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("apiVersion: v1\nkind: List\nitems:\n{}", items.concat())).unwrap();
    file
}

#[test]
fn nodes_can_be_added_and_removed() {
    let file = two_nodes();
    let with = |flags: &str| {
        parse(&format!("--from {} --zones 1 --pending {flags}", file.path().display())).unwrap()
    };
    let args = with("--remove first --add 2x4+gpu1=2 --add 1x4=1 --policy restricted");
    let found = machines(&args).unwrap();
    let names: Vec<&str> = found.machines.iter().map(|machine| &*machine.view.name).collect();
    assert_eq!(names, ["second", "added-0", "added-1", "added-2"]);
    let policies: Vec<Policy> = found.machines.iter().map(|machine| machine.topology.rules.policy).collect();
    assert_eq!(policies, [Policy::Restricted; 4]);
    let workload = workload(&args, &found, 1).unwrap();
    let placed: Vec<&str> =
        workload.arrivals.iter().filter_map(|arrival| Some(&*arrival.pod.as_ref()?.name)).collect();
    assert_eq!((placed, found.lost.as_slice()), (vec!["made-again"], ["x/bare".to_owned()].as_slice()));
    let text = run_once(&args, &found).unwrap();
    for words in [
        "1 pod on 4 nodes with 1 to 2 NUMA zones each",
        "Tholepin ran all 1",
        "1 pod of removed nodes is among them. 1 pod of removed nodes is lost, without a controller: x/bare.",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!([quoted("2x8+gpu1=2"), quoted("a b"), quoted("it's")], ["2x8+gpu1=2", "'a b'", r"'it'\''s'"]);
    let error = machines(&with("--add 1x4=20000")).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("20002 nodes: allowed are up to 20000"), "{error}");
    let error = machines(&with("--remove first --remove second")).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("no node is left"), "{error}");
    let error = machines(&with("--remove third")).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("there is no node third to remove"), "{error}");
}
