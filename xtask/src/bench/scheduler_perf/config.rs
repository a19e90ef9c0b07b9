//! The cases of upstream's `scheduler_perf`: what its configuration files say.
//!
//! In: the folder `test/integration/scheduler_perf` of the Kubernetes module, which Go has in its cache; nothing of
//! it is copied. Out: a plan of operations for a workload of a case.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::operations::{Operation, operation};

/// The name of configuration files.
const CONFIG: &str = "performance-config.yaml";

/// A case: operations with parameters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Case {
    pub(super) name: String,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    default_pod_template_path: Option<String>,
    scheduler_config_path: Option<String>,
    workload_template: Vec<Value>,
    workloads: Vec<Workload>,
    /// The folder of the file, which paths are relative to.
    #[serde(skip)]
    folder: PathBuf,
}

/// Values for the parameters of a case.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Workload {
    pub(super) name: String,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    #[serde(default)]
    params: BTreeMap<String, Value>,
}

/// What to do for a workload.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) operations: Vec<Operation>,
    pub(super) feature_gates: BTreeMap<String, bool>,
    pub(super) default_pod_template: Option<String>,
    pub(super) folder: PathBuf,
}

impl Plan {
    /// Nodes that the operations make.
    pub(super) fn nodes(&self) -> usize {
        let nodes = |operation: &Operation| match operation {
            Operation::CreateNodes(nodes) => nodes.count,
            _ => 0,
        };
        self.operations.iter().map(nodes).sum()
    }

    /// Pods that the operations make, without churn.
    fn pods(&self) -> usize {
        let pods = |operation: &Operation| match operation {
            Operation::CreatePods(pods) => pods.count,
            _ => 0,
        };
        self.operations.iter().map(pods).sum()
    }
}

impl Case {
    /// The operations of a workload, with its parameters. Sets of pods become one operation for each.
    pub(super) fn plan(&self, workload: &Workload, scale: f64) -> anyhow::Result<Plan> {
        let context = || format!("case {}, workload {}", self.name, workload.name);
        ensure!(
            self.scheduler_config_path.is_none(),
            "{}: schedulerConfigPath is not supported; the schedulers run with their defaults",
            context()
        );
        let mut operations = Vec::new();
        for entry in &self.workload_template {
            match operation(entry, &workload.params, scale).with_context(context)? {
                Operation::CreatePodSets(sets) => {
                    for at in 0..sets.count {
                        let Operation::CreatePods(mut pods) = (*sets.create_pods_op).clone() else {
                            bail!("{}: createPodSets has something else than createPods", context());
                        };
                        pods.namespace = Some(format!("{}-{at}", sets.namespace_prefix));
                        operations.push(Operation::CreatePods(pods));
                    }
                }
                other => operations.push(other),
            }
        }
        let mut feature_gates = self.feature_gates.clone();
        feature_gates.extend(workload.feature_gates.clone());
        Ok(Plan {
            operations,
            feature_gates,
            default_pod_template: self.default_pod_template_path.clone(),
            folder: self.folder.clone(),
        })
    }

    /// The workload of a name. Without one, that with the most nodes and then pods that has at most `max_nodes`
    /// nodes and does not turn off `SchedulerQueueingHints`, which this release of Kubernetes cannot.
    pub(super) fn workload(&self, name: Option<&str>, max_nodes: usize) -> anyhow::Result<&Workload> {
        let names = || self.workloads.iter().map(|workload| workload.name.as_str()).collect::<Vec<_>>();
        if let Some(name) = name {
            let found = self.workloads.iter().find(|workload| workload.name == name);
            return found.with_context(|| {
                format!("case {} has no workload {name}, but {}", self.name, names().join(", "))
            });
        }
        let mut largest: Option<(usize, usize, &Workload)> = None;
        for workload in &self.workloads {
            if workload.feature_gates.get("SchedulerQueueingHints") == Some(&false) {
                continue;
            }
            let plan = self.plan(workload, 1.0)?;
            let (nodes, pods) = (plan.nodes(), plan.pods());
            if nodes <= max_nodes && largest.is_none_or(|(n, p, _)| (nodes, pods) > (n, p)) {
                largest = Some((nodes, pods, workload));
            }
        }
        let (_, _, workload) = largest.with_context(|| {
            format!("case {} has no workload of at most {max_nodes} nodes: {}", self.name, names().join(", "))
        })?;
        Ok(workload)
    }
}

/// Reads a configuration file.
fn read(text: &str, folder: &Path) -> anyhow::Result<Vec<Case>> {
    let mut cases: Vec<Case> = serde_saphyr::from_str(text)?;
    cases.iter_mut().for_each(|case| folder.clone_into(&mut case.folder));
    Ok(cases)
}

/// All cases below a folder, by the paths of their files.
pub(super) fn cases(folder: &Path) -> anyhow::Result<Vec<Case>> {
    let mut files = Vec::new();
    files_below(folder, &mut files)?;
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let folder = file.parent().context("a file has no folder")?;
        all.extend(read(&text, folder).with_context(|| format!("{}", file.display()))?);
    }
    ensure!(!all.is_empty(), "{} has no {CONFIG}", folder.display());
    Ok(all)
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), files)?;
        } else if entry.file_name() == CONFIG {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The folder of upstream's cases, in Go's module cache.
pub(super) fn folder() -> anyhow::Result<PathBuf> {
    let module = testkit::env::build::sources().join("kubernetes");
    let list = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
        .current_dir(&module)
        .output()
        .context("running go, which knows where the sources of Kubernetes are")?;
    let missing = || {
        format!(
            "the sources of Kubernetes are not in Go's module cache; fetch them with `go mod download \
             k8s.io/kubernetes` in {}",
            module.display()
        )
    };
    let dir = String::from_utf8_lossy(&list.stdout).trim().to_owned();
    ensure!(list.status.success() && !dir.is_empty(), missing());
    let folder = Path::new(&dir).join("test/integration/scheduler_perf");
    ensure!(folder.is_dir(), missing());
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
- name: Basic
  featureGates: { First: true, Second: true }
  defaultPodTemplatePath: ../pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
  - opcode: createPodSets
    countParam: $sets
    namespacePrefix: init
    createPodsOp:
      opcode: createPods
      count: 3
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  workloads:
  - name: small
    params: { nodes: 5, sets: 2, pods: 10 }
  - name: old
    featureGates: { SchedulerQueueingHints: false }
    params: { nodes: 900, sets: 2, pods: 10 }
  - name: medium
    featureGates: { Second: false }
    params: { nodes: 500, sets: 2, pods: 10 }
  - name: medium-more
    params: { nodes: 500, sets: 2, pods: 20 }
  - name: large
    params: { nodes: 5000, sets: 2, pods: 10 }
- name: Strange
  workloadTemplate:
  - opcode: fly
  workloads:
  - name: one
";

    #[test]
    fn plans_have_values_in_place_of_parameters() {
        let cases = read(TEXT, Path::new("/folder")).unwrap();
        let plan = cases[0].plan(cases[0].workload(Some("medium"), 0).unwrap(), 0.1).unwrap();
        let namespaces: Vec<_> = plan
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::CreatePods(pods) => Some((pods.count, pods.namespace.as_deref())),
                _ => None,
            })
            .collect();
        assert_eq!(namespaces, [(3, Some("init-0")), (1, None)]);
        assert_eq!(plan.nodes(), 50);
        let gates = [("First", true), ("Second", false)].map(|(gate, on)| (gate.to_owned(), on));
        assert_eq!(plan.feature_gates, BTreeMap::from(gates));
        assert_eq!(plan.default_pod_template.as_deref(), Some("../pod.yaml"));
    }

    #[test]
    fn the_largest_workload_within_the_limit_is_chosen() {
        let cases = read(TEXT, Path::new("/folder")).unwrap();
        let chosen = [
            (None, 1000, Some("medium-more")),
            (None, 499, Some("small")),
            (None, 9000, Some("large")),
            (None, 4, None),
            (Some("old"), 4, Some("old")),
            (Some("other"), 1000, None),
        ];
        for (name, max_nodes, expected) in chosen {
            let workload = cases[0].workload(name, max_nodes);
            assert_eq!(workload.ok().map(|w| w.name.as_str()), expected, "{name:?} {max_nodes}");
        }
    }

    #[test]
    fn an_unknown_operation_is_named_with_its_case() {
        let cases = read(TEXT, Path::new("/folder")).unwrap();
        let error = format!("{:#}", cases[1].plan(&cases[1].workloads[0], 1.0).unwrap_err());
        assert!(error.contains("case Strange, workload one") && error.contains("fly"), "{error}");
    }
}
