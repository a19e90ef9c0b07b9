use std::path::PathBuf;

use clap::Parser;

use super::cli::{Args, answer};

/// Two zones of four cores with two threads each.
const MACHINE: &str = r#"{"num_cores": 16, "num_sockets": 2, "memory_capacity": 4294967296, "topology": [
  {"node_id": 0, "memory": 2147483648, "distances": [10, 21], "cores": [
    {"core_id": 0, "thread_ids": [0, 8], "socket_id": 0}, {"core_id": 1, "thread_ids": [1, 9], "socket_id": 0},
    {"core_id": 2, "thread_ids": [2, 10], "socket_id": 0}, {"core_id": 3, "thread_ids": [3, 11], "socket_id": 0}]},
  {"node_id": 1, "memory": 2147483648, "distances": [21, 10], "cores": [
    {"core_id": 0, "thread_ids": [4, 12], "socket_id": 1}, {"core_id": 1, "thread_ids": [5, 13], "socket_id": 1},
    {"core_id": 2, "thread_ids": [6, 14], "socket_id": 1}, {"core_id": 3, "thread_ids": [7, 15], "socket_id": 1}]}]}"#;

const KUBELET: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: 0,8
";

const DEVICES: &str = r#"[{"resource": "vendor.com/nic", "devices": [{"id": "d0", "nodes": [1]}]}]"#;

fn pod(name: &str, limits: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: main\n    \
         resources: {{limits: {{{limits}, memory: 64Mi}}}}\n"
    )
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(pods: &[String]) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (name, text) in
            [("machine", MACHINE), ("kubelet", KUBELET), ("devices", DEVICES), ("pods", &pods.concat())]
        {
            std::fs::write(files.path(name), text).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, more: &[&str]) -> (String, bool) {
        self.try_run(more).unwrap()
    }

    fn try_run(&self, more: &[&str]) -> anyhow::Result<(String, bool)> {
        let flag = |flag: &str, name| [flag.to_owned(), self.path(name).display().to_string()];
        let files = [
            ("--machine", "machine"),
            ("--kubelet-config", "kubelet"),
            ("--devices", "devices"),
            ("--pods", "pods"),
        ];
        let files = files.into_iter().flat_map(|(name, file)| flag(name, file));
        let line =
            std::iter::once("admit".to_owned()).chain(files).chain(more.iter().map(|&text| text.to_owned()));
        answer(&Line::parse_from(line).args)
    }
}

#[test]
fn pods_get_their_cpus_and_devices_in_order() {
    let files = Files::new(&[
        pod("a", "cpu: 2, vendor.com/nic: 1"),
        pod("b", "cpu: 3"),
        pod("c", "cpu: 6"),
        pod("d", "cpu: 8"),
        pod("e", "cpu: 1500m"),
    ]);
    let (table, rejected) = files.run(&[]);
    let words: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["default/a", "main", "4,12", "vendor.com/nic:", "d0"], "the zone of the device");
    assert_eq!(words[1], ["default/b", "rejected:", "SMTAlignmentError"]);
    assert_eq!(words[2], ["default/c", "main", "1-3,9-11"]);
    assert_eq!(words[3], ["default/d", "rejected:", "TopologyAffinityError"]);
    assert_eq!(words[4], ["default/e", "main", "shared"]);
    assert!(rejected);

    let (json, _) = files.run(&["-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pods"][0]["containers"][0]["cpus"], "4,12");
    assert_eq!(json["pods"][0]["containers"][0]["devices"][0]["ids"][0], "d0");
    assert_eq!(json["pods"][1]["reason"], "SMTAlignmentError");
    assert!(json["pods"][1]["message"].as_str().unwrap().contains("requested 3 cpus not multiple"));
}

#[test]
fn wrong_input_names_file_and_field() {
    let files = Files::new(&[pod("a", "cpu: two")]);
    let error = |more: &[&str]| {
        let line = ["admit", "--machine"].map(str::to_owned).into_iter();
        let line = line
            .chain([files.path("machine").display().to_string()])
            .chain(more.iter().map(|&t| t.to_owned()));
        format!("{:#}", answer(&Line::parse_from(line).args).unwrap_err())
    };
    let path = |name| files.path(name).display().to_string();
    assert!(error(&["--pods", &path("pods")]).contains("spec.containers[0].resources.limits"));
    assert!(error(&["--pods", &path("devices")]).contains("no object of kind Pod"));
    assert!(error(&["--pods", &path("none")]).contains(&path("none")));
    std::fs::write(files.path("machine"), MACHINE.replace("[4, 12]", "[0, 12]")).unwrap();
    assert!(error(&["--pods", &path("pods")]).contains("CPU 0 is listed twice"));
}

/// What is replaced in which file, and what is said then: the message names the file and the field, or is the
/// kubelet's.
#[test]
fn every_kind_of_wrong_input_has_one_clear_line() {
    let cases: &[(&str, &str, &str, &str)] = &[
        ("machine", "[4, 12]", "[0, 12]", "CPU 0 is listed twice"),
        ("machine", "[4, 12]", "[]", "core 0 of zone 1 has no thread"),
        ("machine", "[4, 12]", "[4, 9999]", "CPU id 9999 is too large; allowed are 0 to 8191"),
        ("machine", "\"node_id\": 1", "\"node_id\": 0", "zone 0 is listed twice"),
        ("machine", "\"node_id\": 1", "\"node_id\": 64", "zone id 64 is too large"),
        ("machine", "\"node_id\": 1", "\"node_id\": -1", "topology[1].node_id: invalid value: integer `-1`"),
        (
            "machine",
            "[10, 21]",
            "[10]",
            "zone 0 has 1 distances; allowed are none, or one to each of the 2 zones",
        ),
        ("machine", "\"memory\": 2147483648", "\"memory\": 0", "no zone has memory"),
        (
            "machine",
            "\"memory\": 2147483648",
            "\"memory\": \"2Gi\"",
            "topology[0].memory: invalid type: string \"2Gi\"",
        ),
        ("machine", "\"topology\"", "\"Topology\"", "missing field `topology`"),
        ("kubelet", "v1beta1", "v1", "apiVersion is \"kubelet.config.k8s.io/v1\""),
        ("kubelet", "KubeletConfiguration", "Kubelet", "kind is \"Kubelet\""),
        ("kubelet", "single-numa-node", "single", "topologyManagerPolicy is \"single\"; allowed are none,"),
        ("kubelet", "0,8", "8-0", "reservedSystemCPUs is \"8-0\"; allowed are lists of CPUs such as 0-3,8"),
        (
            "kubelet",
            "\"true\"",
            "\"yes\"",
            "cpuManagerPolicyOptions.full-pcpus-only is \"yes\"; allowed are true, false",
        ),
        ("devices", "[1]", "[-1]", "[0].devices[0].nodes[0]: invalid value: integer `-1`"),
        ("devices", "vendor.com/nic", "", "resource name has 0 bytes; allowed are 1 to 317"),
        ("devices", "\"id\"", "\"name\"", "missing field `id`"),
        ("pods", "kind: Pod", "kind: Node", "no object of kind Pod"),
        (
            "pods",
            "cpu: 1",
            "cpu: -1",
            "spec.containers[0].resources.limits[cpu]: -1 is negative; amounts start at 0",
        ),
    ];
    for (file, from, to, said) in cases {
        let files = Files::new(&[pod("a", "cpu: 1")]);
        let text = std::fs::read_to_string(files.path(file)).unwrap();
        assert!(text.contains(from), "{file} {from}");
        std::fs::write(files.path(file), text.replace(from, to)).unwrap();
        let answer = files.try_run(&[]);
        let error = answer.map(|_| String::new()).unwrap_or_else(|error| format!("{error:#}"));
        assert!(error.contains(said), "{file} {from} -> {to}: {error:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let names_file = error.contains(&files.path(file).display().to_string());
        assert!(names_file || error.contains("pod default/a"), "{file}: {error}");
    }
}

/// Configurations that a kubelet reads and does not start with.
#[test]
fn kubelets_that_refuse_say_so() {
    let cases: &[(&str, &str)] = &[
        ("0,8", "0,99"),
        ("full-pcpus-only: \"true\"", "full-pcpus-only: \"true\", no-such-option: \"true\""),
        ("full-pcpus-only: \"true\"", "distribute-cpus-across-cores: \"true\""),
        ("reservedSystemCPUs: 0,8", "memoryManagerPolicy: Static\nreservedSystemCPUs: 0,8"),
        ("reservedSystemCPUs: 0,8", "reservedSystemCPUs: \"\""),
    ];
    for (from, to) in cases {
        let files = Files::new(&[pod("a", "cpu: 2")]);
        let text = std::fs::read_to_string(files.path("kubelet")).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(files.path("kubelet"), text.replace(from, to)).unwrap();
        assert_eq!(files.try_run(&[]).unwrap(), (String::new(), true), "{from} -> {to}");
    }
}

/// A node whose report names ids: CPU 0 is reserved, a pod holds 1 and 5, a finished init container 2.
const DUMP: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: worker, uid: n1}, status: {allocatable: {cpu: "7", memory: 8Gi, pods: "3"}}}
- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: d, uid: u}, spec: {nodeName: worker, containers: [{name: c, resources: {limits: {cpu: "2", memory: 1Gi}}}]}}
- apiVersion: topology.node.k8s.io/v1alpha2
  kind: NodeResourceTopology
  metadata: {name: worker}
  attributes:
  - {name: topologyManagerPolicy, value: single-numa-node}
  - {name: cpuManagerPolicy, value: static}
  - {name: memoryManagerPolicy, value: None}
  - {name: reservedSystemCPUs, value: "0"}
  - {name: threadSiblings, value: "0-3+4"}
  - {name: containerHoldings, value: "v1 uid ef46db3751d8e999"}
  zones:
  - name: node-0
    type: Node
    attributes: [{name: cpus, value: 0-7}, {name: sockets, value: "0"}, {name: freeCPUs, value: "3-4,6-7"}]
    resources: [{name: cpu, capacity: "8", allocatable: "7", available: "5"}]
"#;

#[test]
fn a_node_of_a_cluster_answers_with_what_its_pods_hold() {
    let files = Files::new(&[pod("a", "cpu: 2"), pod("b", "cpu: 3"), pod("c", "cpu: 1")]);
    std::fs::write(files.path("dump"), DUMP).unwrap();
    let run = |node: &str| {
        let (dump, pods) = (files.path("dump"), files.path("pods"));
        let line =
            ["admit", "--from", dump.to_str().unwrap(), "--node", node, "--pods", pods.to_str().unwrap()];
        answer(&Line::parse_from(line).args)
    };
    let (text, rejected) = run("worker").unwrap();
    assert!(rejected);
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let wanted = [
        "POD CONTAINER CPUS MEMORY DEVICES",
        "default/a main 3,7",
        "default/b rejected: TopologyAffinityError",
        "default/c main 4",
    ];
    assert_eq!(lines, wanted, "whole cores first, and 2 is not free");
    let error = run("other").unwrap_err().to_string();
    assert!(error.ends_with("no node \"other\" with a report; there are worker"), "{error}");
}
