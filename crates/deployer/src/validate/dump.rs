//! Evidence from files: dumps of `kubectl` and `oc`, and must-gathers.
//!
//! In: a directory of any layout with YAML and JSON files. Out: the [`Evidence`] in them, with a gap for each area
//! without evidence. Never: a symbolic link followed, more read than the limits allow. Files without objects are
//! ignored.
//!
//! Readable are objects, also several in one file; `List`s, and typed lists such as `PodList`, which are complete; the
//! answer of `/version` or `kubectl version -o yaml`; answers of `/configz` in files with the node's name
//! (`configz/NODE.json`, `NODE.json`, `NODE/configz.json`).

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use serde_json::Value;

use super::collect::Collector;
use super::evidence::{Area, Evidence, text};

/// The greatest number of files.
const MAX_FILES: usize = 200_000;
/// The greatest depth of directories.
const MAX_DEPTH: usize = 24;
/// The greatest size of a file.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The greatest size of all files.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The greatest number of documents in a file.
const MAX_DOCUMENTS: usize = 100_000;

/// Reads a directory. The second value has notes about ignored content.
///
/// # Errors
/// When the directory cannot be read, exceeds a limit or has no Kubernetes object.
pub fn read(folder: &Path) -> anyhow::Result<(Evidence, Vec<String>)> {
    let mut files = Vec::new();
    walk(folder, folder, 0, &mut files)?;
    let mut reader = Reader::default();
    let mut left = MAX_TOTAL_BYTES;
    for path in files {
        if let Some(content) = content(&path, &mut left, folder)? {
            reader.file(&path, &content);
        }
    }
    let folder = folder.display();
    let expected = "expected are dumps of kubectl or oc as YAML or JSON";
    ensure!(reader.any, "{folder}: no Kubernetes object in any file; {expected}");
    Ok(reader.finish())
}

/// Collects the files that may hold objects, in the order of their names.
fn walk(folder: &Path, root: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let failed = |error| anyhow!("{}: {error}", folder.display());
    if depth > MAX_DEPTH || files.len() > MAX_FILES {
        bail!("{}: more than {MAX_FILES} files or {MAX_DEPTH} levels of directories", root.display());
    }
    let mut entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(failed)?;
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if kind.is_dir() {
            walk(&path, root, depth + 1, files)?;
        } else if kind.is_file() && ["yaml", "yml", "json"].contains(&extension) {
            files.push(path);
        }
    }
    Ok(())
}

/// The text of a file; `None` if it is not UTF-8.
fn content(path: &Path, left: &mut u64, root: &Path) -> anyhow::Result<Option<String>> {
    let failed = |error| anyhow!("{}: {error}", path.display());
    let limit = MAX_FILE_BYTES.min(*left);
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        let (root, path) = (root.display(), path.display());
        bail!("{root}: more than {MAX_FILE_BYTES} bytes in {path} or {MAX_TOTAL_BYTES} bytes in all");
    }
    *left -= bytes.len() as u64;
    Ok(String::from_utf8(bytes).ok())
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
    fn file(&mut self, path: &Path, content: &str) {
        match documents(content) {
            Ok(documents) => documents.into_iter().for_each(|document| self.document(path, document)),
            Err(reason) => {
                let reason: String = reason.lines().next().unwrap_or_default().chars().take(200).collect();
                self.notes.push(format!("{}: {reason}", path.display()));
            }
        }
    }

    fn document(&mut self, path: &Path, mut document: Value) {
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
        let kind = text(&document, "/kind").to_owned();
        let Some(of) = kind.strip_suffix("List").filter(|_| document.get("items").is_some()) else {
            if !kind.is_empty() && document.get("metadata").is_some() {
                self.any = true;
                self.collector.object(document);
            }
            return;
        };
        self.any = true;
        if !of.is_empty() {
            self.collector.saw_kind(of);
        }
        let api_version = document.get("apiVersion").cloned().unwrap_or_default();
        let Some(Value::Array(items)) = document.get_mut("items").map(Value::take) else { return };
        for mut item in items {
            if let (Some(fields), false) = (item.as_object_mut(), of.is_empty()) {
                // Items of a typed list have no kind.
                fields.entry("kind").or_insert_with(|| of.into());
                if api_version.is_string() {
                    fields.entry("apiVersion").or_insert_with(|| api_version.clone());
                }
            }
            self.collector.object(item);
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

/// The documents of a text: one or more JSON values, or YAML.
fn documents(content: &str) -> Result<Vec<Value>, String> {
    let start = content.trim_start();
    if start.starts_with('{') {
        let values = serde_json::Deserializer::from_str(start).into_iter::<Value>().take(MAX_DOCUMENTS);
        if let Ok(values) = values.collect::<Result<Vec<_>, _>>() {
            return Ok(values);
        }
    }
    runtime::yaml::read_many("yaml", content, MAX_DOCUMENTS).map_err(|error| error.reason)
}
