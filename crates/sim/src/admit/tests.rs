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
        answer(&Line::parse_from(line).args).unwrap()
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
