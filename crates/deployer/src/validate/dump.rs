//! Evidence from files: dumps of `kubectl` and `oc`, and must-gathers.
//!
//! In: a directory of any layout with YAML and JSON files. Out: the [`Evidence`] in them, with a gap for each area
//! without evidence. Never: a symbolic link followed, more read than the limits allow. Files without objects are
//! ignored.
//!
//! Readable are objects, also several in one file; `List`s, and typed lists such as `PodList`, which are complete; the
//! answer of `/version` or `kubectl version -o yaml`; answers of `/configz` in files with the node's name
//! (`configz/NODE.json`, `NODE.json`, `NODE/configz.json`).

use std::path::Path;

use anyhow::ensure;
use runtime::yaml::dump::{self, Part};
use serde_json::Value;

use super::collect::Collector;
use super::evidence::{Area, Evidence, text};

/// Reads a directory, or one file. The second value has notes about ignored content.
///
/// # Errors
/// When the directory cannot be read, exceeds a limit or has no Kubernetes object.
pub fn read(folder: &Path) -> anyhow::Result<(Evidence, Vec<String>)> {
    Reader::default().read(folder)
}

/// The same, with what a scheduler makes of the objects.
///
/// # Errors
/// Those of [`read`].
pub fn read_with_cluster(folder: &Path) -> anyhow::Result<(Evidence, Vec<String>)> {
    Reader { collector: Collector::with_cluster(), ..Reader::default() }.read(folder)
}

#[derive(Default)]
struct Reader {
    collector: Collector,
    /// Answers of `/configz` with possible names of the node, which is read later.
    configz: Vec<(Vec<String>, String)>,
    any: bool,
    notes: Vec<String>,
}

impl Reader {
    fn read(mut self, folder: &Path) -> anyhow::Result<(Evidence, Vec<String>)> {
        dump::texts(folder, &mut |path, text| self.file(path, text))?;
        let folder = folder.display();
        let expected = "expected are dumps of kubectl or oc as YAML or JSON";
        ensure!(self.any, "{folder}: no Kubernetes object in any file; {expected}");
        Ok(self.finish())
    }

    fn file(&mut self, path: &Path, content: &str) {
        let read = dump::read("", content, &mut |part| match part {
            Part::Item { value, .. } => {
                self.any = true;
                self.collector.object(value);
            }
            Part::Document { value, is_list } => self.document(path, value, is_list),
        });
        if let Err(error) = read {
            let reason: String = error.reason.lines().next().unwrap_or_default().chars().take(200).collect();
            self.notes.push(format!("{}: {reason}", path.display()));
        }
    }

    /// Reads a document; of a list what stands beside its items.
    fn document(&mut self, path: &Path, document: Value, is_list: bool) {
        if let Some(settings) = document.get("kubeletconfig").filter(|settings| settings.is_object()) {
            let answer = serde_json::json!({ "kubeletconfig": settings }).to_string();
            self.configz.push((names(path), answer));
            return;
        }
        let version = [text(&document, "/serverVersion/gitVersion"), text(&document, "/gitVersion")];
        if let Some(version) = version.into_iter().find(|version| !version.is_empty()) {
            self.collector.server_version(version);
            return;
        }
        let kind = text(&document, "/kind");
        match kind.strip_suffix("List").filter(|_| is_list) {
            Some(of) => {
                self.any = true;
                if !of.is_empty() {
                    self.collector.saw_kind(of);
                }
            }
            None if !kind.is_empty() && document.get("metadata").is_some() => {
                self.any = true;
                self.collector.object(document);
            }
            None => {}
        }
    }

    fn finish(mut self) -> (Evidence, Vec<String>) {
        for (names, answer) in std::mem::take(&mut self.configz) {
            match names.iter().find(|name| self.collector.evidence.nodes.contains_key(*name)) {
                Some(node) => self.collector.configz(node, Ok(&answer)),
                None => self.notes.push(format!(
                    "the kubelet configuration in {} belongs to no node in the dump",
                    names.join(" or ")
                )),
            }
        }
        let definition =
            "kubectl get customresourcedefinitions noderesourcetopologies.topology.node.k8s.io -o yaml";
        for (area, missing, command) in [
            (Area::Version, "version", "kubectl version -o yaml, or kubectl get --raw /version"),
            (Area::Nodes, "nodes", "kubectl get nodes -o yaml"),
            (Area::Definition, "definition", definition),
            (Area::Reports, "reports", "kubectl get noderesourcetopologies -o yaml"),
            (Area::Pods, "pods", "kubectl get pods -A -o yaml"),
            (
                Area::Workloads,
                "DaemonSets or Deployments",
                "kubectl get daemonsets,deployments,configmaps -A -o yaml",
            ),
            (Area::Leases, "leases", "kubectl get leases -A -o yaml"),
        ] {
            // Without the definition there is no list of its objects.
            let saw = |area| self.collector.seen.contains(&area);
            let seen = saw(area) || (area == Area::Reports && saw(Area::Definition));
            if !seen {
                self.collector.gap(area, format!("no {missing} in the dump: save {command}"));
            }
        }
        self.notes.append(&mut self.collector.notes);
        (self.collector.finish(None), self.notes)
    }
}

/// Possible node names of a file: the stem, also without `configz`, and the name of the directory.
fn names(path: &Path) -> Vec<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let bare = ["-configz", ".configz", "_configz"].iter().find_map(|end| stem.strip_suffix(end));
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    [bare, Some(stem), folder].into_iter().flatten().map(str::to_owned).collect()
}
