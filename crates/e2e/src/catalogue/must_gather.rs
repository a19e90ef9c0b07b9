//! What `must-gather` collects for a support case.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use api::nrt;
use runtime::yaml::{Mode, read_str};
use serde_json::Value;

use crate::fixture::Fixture;
use crate::need::Need::{Operator, SchedulerObject};
use crate::spec::{Result, Spec};
use crate::undo::Target;

/// The definitions of the stack, as plural and group.
const DEFINITIONS: [(&str, &str); 3] = [
    (nrt::PLURAL, nrt::GROUP),
    ("numaresourcesoperators", "nodetopology.openshift.io"),
    ("numaresourcesschedulers", "nodetopology.openshift.io"),
];
/// The group of definitions.
const OF_DEFINITIONS: &str = "apiextensions.k8s.io";

pub(super) fn specs() -> Vec<Spec> {
    vec![
        Spec::new("must-gather/objects", 3, "the stack's objects and logs are collected", collected)
            .needs([Operator, SchedulerObject]),
    ]
}

/// What `oc adm inspect` calls the file of a cluster-scoped object.
fn path(plural: &str, group: &str, name: &str) -> String {
    format!("cluster-scoped-resources/{group}/{plural}/{name}.yaml")
}

async fn collected(f: Fixture) -> Result {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("case");
    let text = root.to_str().context("a folder whose name is no text")?;
    let said = f.cluster_tool(&["must-gather", "--dest-dir", text]).await?;
    // 2: kinds that only some platforms have may be missing.
    ensure!(matches!(said.code, Some(0 | 2)), "exit code {:?}: {}", said.code, said.last());
    for (plural, group) in DEFINITIONS {
        let file = path("customresourcedefinitions", OF_DEFINITIONS, &format!("{plural}.{group}"));
        ensure!(root.join(&file).is_file(), "there is no {file}: {}", said.last());
    }
    for object in [f.nro()?, f.nrs()?] {
        let group = object.api_version.split('/').next().unwrap_or_default();
        has(&root, &path(&object.plural, group, &object.name), &f.uid(&object).await?)?;
    }
    let state = f.cluster().observer.now();
    for node in &f.facts().nodes {
        let report = state.reports.get(&node.name);
        let uid = report.and_then(|report| report.metadata.uid.clone()).unwrap_or_default();
        has(&root, &path(nrt::PLURAL, nrt::GROUP, &node.name), &uid)?;
    }
    let mut workloads = f.exporter_sets().await?;
    workloads.extend([f.manager().await?, f.scheduler_deployment().await?]);
    for workload in workloads {
        has_logs(&f, &root, &workload).await?;
    }
    Ok(())
}

/// The file has the object with this UID.
fn has(root: &Path, file: &str, uid: &str) -> Result {
    let text = fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
    let object: Value = read_str(file, &text, Mode::Lenient)?;
    ensure!(object["metadata"]["uid"] == uid, "{file} has another object than the cluster");
    Ok(())
}

/// Each pod of a workload has a folder with a log that is not empty.
async fn has_logs(f: &Fixture, root: &Path, workload: &Target) -> Result {
    let object = f.read(workload).await?;
    let state = f.cluster().observer.now();
    for pod in crate::operator::selected(&state, &workload.namespace, &object) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let folder = format!("namespaces/{}/pods/{name}", workload.namespace);
        let containers = fs::read_dir(root.join(&folder)).with_context(|| folder.clone())?;
        let mut logs = containers.filter_map(|entry| {
            let entry = entry.ok()?;
            let log = entry.path().join(entry.file_name()).join("logs/current.log");
            fs::metadata(log).ok().map(|found| found.len())
        });
        ensure!(logs.any(|bytes| bytes > 0), "{folder} has no log");
    }
    Ok(())
}
