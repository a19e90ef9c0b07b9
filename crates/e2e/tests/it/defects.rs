//! The suite finds what is broken: each of many defects fails a spec that passes without it.
//!
//! In: the table of defects. Out: one line each with what the spec said. Never: a defect in the program that runs the
//! suite; only the stack has them.

#[path = "defects/program.rs"]
mod program;
#[path = "defects/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use deployer::platform::Platform;
use e2e::catalogue;
use e2e::operator::complete;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::cri::Image;
use tokio::time::Instant;

use super::page::root;
use super::rig::{self, Rig, play_image, programs};
use program::{SWITCH, by_file, with_defects};
use table::{DEFECTS, Defect, IS_ON, LAGGING, Program};

/// The variable that names the defects to try, by words; not set: all.
const CHOSEN: &str = "E2E_DEFECTS";
/// The fewest defects that there have to be.
const FEWEST: usize = 30;
/// The longest wait of a spec: with a defect, which many notice only by waiting in vain, and without.
const PATIENCE: &str = "--patience=15s";
const PATIENCE_WITHOUT: &str = "--patience=60s";
/// The most characters of what a spec said.
const MOST: usize = 120;
/// The user's objects that the operator works for.
const KINDS: [&str; 2] = ["NUMAResourcesOperator", "NUMAResourcesScheduler"];

/// Each text is once in its file, the names differ, and the specs are those of the suite.
#[test]
fn each_defect_has_its_place() {
    let names: BTreeSet<&str> = DEFECTS.iter().map(|defect| defect.name).collect();
    assert_eq!(names.len(), DEFECTS.len(), "two defects have one name");
    assert!(names.len() >= FEWEST, "there are {} defects", names.len());
    let specs: BTreeSet<String> = catalogue::all().into_iter().map(|spec| spec.id).collect();
    for Defect { name, replace, specs: ids, .. } in DEFECTS {
        assert!(replace.contains(IS_ON), "{name} cannot be switched off");
        assert!(!ids.is_empty() && ids.iter().all(|id| specs.contains(*id)), "{name}: {ids:?}");
    }
    for (file, defects) in by_file() {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert_ne!(with_defects(&text, &defects), text);
    }
    let programs: Vec<Program> = DEFECTS.iter().map(|defect| defect.program).collect();
    assert!(programs.is_sorted(), "the defects of one program stand apart");
}

#[test]
#[ignore = "`cargo xtask nightly defects` runs it"]
fn found() {
    let Some(real) = programs() else { return };
    let defects = chosen();
    let folder = tempfile::tempdir().unwrap();
    let switch = folder.path().join("defect");
    let image = image(&switch, "");
    play_image(real, Platform::Kubernetes, image, async |rig| find(&rig, &switch, &defects).await);
}

/// Plays `body` in a cluster whose exporters publish when their timer says so.
pub(crate) fn play_lagging(body: impl AsyncFnOnce(Rig) + Send) {
    let Some(real) = programs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = image(&folder.path().join("defect"), LAGGING.name);
    play_image(real, Platform::Kubernetes, image, body);
}

/// The image of the program with defects; the file `switch` names the one that is on.
fn image(switch: &Path, on: &str) -> Image {
    let broken = program::build();
    fs::write(switch, on).unwrap();
    rig::image(&broken).file(switch, SWITCH)
}

/// The defects to try.
fn chosen() -> Vec<&'static Defect> {
    let names = std::env::var(CHOSEN).unwrap_or_default();
    let names: BTreeSet<&str> = names.split_whitespace().collect();
    let unknown = names.iter().find(|name| DEFECTS.iter().all(|defect| defect.name != **name));
    assert_eq!(unknown, None, "{CHOSEN} names no defect");
    DEFECTS.iter().filter(|defect| names.is_empty() || names.contains(defect.name)).collect()
}

/// Runs the specs without defects, then those of each defect with it.
async fn find(rig: &Rig, switch: &Path, defects: &[&Defect]) {
    let ids: BTreeSet<&str> = defects.iter().flat_map(|defect| defect.specs).copied().collect();
    let healthy = specs(rig, &ids.iter().copied().collect::<Vec<_>>(), PATIENCE_WITHOUT).await;
    assert_eq!(healthy.code, Some(0), "without a defect: {}", healthy.said);
    assert_eq!(healthy.passed, ids.len(), "without a defect: {}", healthy.said);
    let mut missed = Vec::new();
    let mut before = None;
    for defect in defects {
        let began = Instant::now();
        fs::write(switch, defect.name).unwrap();
        let programs: BTreeSet<Program> = before.into_iter().chain([defect.program]).collect();
        start_anew(rig, &programs).await;
        before = Some(defect.program);
        let took = began.elapsed().as_secs();
        let run = specs(rig, defect.specs, PATIENCE).await;
        let all = began.elapsed().as_secs();
        match run.failed.filter(|_| run.code == Some(2)) {
            Some((id, said)) => {
                println!("defect {}: found by {id} in {all} s ({took} s): {said}", defect.name)
            }
            None => {
                println!("defect {}: MISSED in {all} s ({took} s): {:?} {}", defect.name, run.code, run.said);
                missed.push(defect.name);
            }
        }
    }
    println!("defects: {} of {} found", defects.len() - missed.len(), defects.len());
    assert_eq!(missed, [""; 0], "no spec has failed");
}

/// How a run of some specs ended.
struct Run {
    code: Option<i32>,
    passed: usize,
    /// The first spec that failed, and what it said.
    failed: Option<(String, String)>,
    /// All that was said.
    said: String,
}

/// Runs the specs with these ids.
async fn specs(rig: &Rig, ids: &[&str], patience: &str) -> Run {
    let lines = format!("\\] ({}) ", ids.join("|"));
    let words = ["e2e", patience, "--spec-timeout=2m", "--output=json", "--focus", &lines];
    let ended = rig.run(&words).await;
    let result: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    let cases = result["specs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let failed = cases.iter().find(|case| case["ending"] == "failed");
    Run {
        code: ended.code,
        passed: cases.iter().filter(|case| case["ending"] == "passed").count(),
        failed: failed.map(|case| (text(&case["id"]), text(&case["reason"]).chars().take(MOST).collect())),
        said: format!("{}\nverdicts: {}", ended.stderr, result["verdicts"]),
    }
}

/// Starts the pods of programs anew, and waits until the stack is complete, and as the operator wants it.
async fn start_anew(rig: &Rig, programs: &BTreeSet<Program>) {
    if programs.contains(&Program::Operator) {
        replace(rig, Program::Operator).await;
        // What the operator writes anew tells that it has done its work.
        for kind in KINDS {
            let status =
                json!({ "status": { "conditions": [], "nodeGroups": null, "relatedObjects": null } });
            let name = kind.to_lowercase();
            rig.api(kind).patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        }
        let has_conditions = async |kind: &&str| {
            let object = rig.api(kind).get(&kind.to_lowercase()).await.unwrap();
            object.data["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty())
        };
        let both = async || has_conditions(&KINDS[0]).await && has_conditions(&KINDS[1]).await;
        rig.until("the operator writes both statuses", both).await;
        rig.until("the stack is complete", async || is_complete(rig).await).await;
    }
    for program in programs.iter().filter(|program| **program != Program::Operator) {
        replace(rig, *program).await;
    }
    rig.until("the stack is complete", async || is_complete(rig).await).await;
}

/// Deletes the pods of a program, and waits until none of them is left.
async fn replace(rig: &Rig, program: Program) {
    let pods = Api::<Pod>::all(rig.admin.clone());
    let selector = match program {
        Program::Exporter => "name=resource-topology",
        Program::Scheduler => "app=secondary-scheduler",
        Program::Operator => "app=numaresources-operator",
    };
    let listed = async || {
        let params = kube::api::ListParams::default().labels(selector);
        pods.list(&params).await.unwrap().items
    };
    let uid = |pod: &Pod| pod.metadata.uid.clone();
    let old: BTreeSet<_> = listed().await.iter().map(uid).collect();
    assert!(!old.is_empty(), "there is no pod {selector}");
    for pod in listed().await {
        let namespace = pod.metadata.namespace.unwrap_or_default();
        let pods = Api::<Pod>::namespaced(rig.admin.clone(), &namespace);
        pods.delete(&pod.metadata.name.unwrap_or_default(), &Default::default()).await.unwrap();
    }
    let is_gone = async || listed().await.iter().all(|pod| !old.contains(&uid(pod)));
    rig.until("the old pods are gone", is_gone).await;
}

/// Whether all pods of workloads are there and ready, and none else.
async fn is_complete(rig: &Rig) -> bool {
    let pods = Api::<Pod>::all(rig.admin.clone()).list(&Default::default()).await.unwrap();
    let sets = Api::<DaemonSet>::all(rig.admin.clone()).list(&Default::default()).await.unwrap();
    let deployments = Api::<Deployment>::all(rig.admin.clone()).list(&Default::default()).await.unwrap();
    let sets = sets.items.iter().map(|set| serde_json::to_value(set).unwrap());
    let deployments = deployments.items.iter().map(|one| serde_json::to_value(one).unwrap());
    pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none())
        && sets.chain(deployments).all(|workload| complete(&workload).is_ok())
}
