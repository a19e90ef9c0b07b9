//! The workflows that a forge runs on pushes and tags.
//!
//! In: the files of `.github/workflows`. Out: whether they can be what they are meant to be. Never: a forge.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::tree::{files, root};

/// A workflow. Fields that are not known are refused, so that a slip does not go unseen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workflow {
    #[serde(rename = "name")]
    _name: String,
    on: BTreeMap<String, Value>,
    permissions: BTreeMap<String, String>,
    #[serde(default, rename = "concurrency")]
    _concurrency: Value,
    env: BTreeMap<String, String>,
    jobs: BTreeMap<String, Job>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Job {
    #[serde(default, rename = "name")]
    _name: Option<String>,
    runs_on: String,
    timeout_minutes: u32,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    strategy: Value,
    #[serde(default, rename = "continue-on-error")]
    _continue_on_error: Option<String>,
    steps: Vec<Step>,
}

/// A step is a script: `uses`, the program of others, is no field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    #[serde(default, rename = "if")]
    _when: Option<String>,
    #[serde(default, rename = "env")]
    _env: BTreeMap<String, String>,
    run: String,
}

fn workflows() -> BTreeMap<String, Workflow> {
    let texts = files(&root().join(".github/workflows")).unwrap();
    let read = |(name, text): (String, String)| {
        let workflow = runtime::yaml::read_many(&name, &text, 1).unwrap().remove(0);
        (name, workflow)
    };
    texts.into_iter().map(read).collect()
}

fn scripts(workflow: &Workflow) -> impl Iterator<Item = &Step> {
    workflow.jobs.values().flat_map(|job| &job.steps)
}

/// Whether a shell can read a script.
fn is_readable(script: &str) -> bool {
    // The forge fills these in first.
    assert!(
        !script.contains("${{"),
        "a script has its values from variables, which cannot become words of it"
    );
    let mut shell = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    shell.wait().unwrap().success()
}

#[test]
fn workflows_are_scripts_that_can_be_read() {
    let all = workflows();
    assert_eq!(all.keys().collect::<Vec<_>>(), ["ci.yml", "release.yml"]);
    for (name, workflow) in &all {
        for step in scripts(workflow) {
            assert!(is_readable(&step.run), "{name}: {}", step.name);
        }
        assert_eq!(workflow.permissions, [("contents".to_owned(), "read".to_owned())].into(), "{name}");
        assert!(workflow.env.contains_key("RUST"), "{name}");
        for job in workflow.jobs.values() {
            assert!(job.runs_on.starts_with("ubuntu-") && job.timeout_minutes > 0, "{name}");
        }
    }
}

#[test]
fn pushes_are_tested_on_two_minors_and_tags_are_released() {
    let all = workflows();
    let runs = |name: &str, part: &str| scripts(&all[name]).any(|step| step.run.contains(part));
    assert!(all["ci.yml"].on.contains_key("push") && runs("ci.yml", " .ci/run"));
    assert_eq!(all["ci.yml"].jobs["run"].strategy["matrix"]["include"].as_array().unwrap().len(), 2);
    assert!(!all["release.yml"].on["push"]["tags"].is_null() && runs("release.yml", "cargo xtask release"));
    assert_eq!(all["release.yml"].jobs["release"].permissions["contents"], "write");
    // The files that the scripts name.
    assert!(root().join(".ci/run").exists());
}
