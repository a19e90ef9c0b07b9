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
