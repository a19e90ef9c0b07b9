//! Entry points: what each reads, and which flags it has.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::document::Kind;

/// Where an input comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    /// A file or folder after this flag.
    Flag(&'static str, Kind),
    /// A file that is an argument.
    Argument(Kind),
    /// Standard input.
    Stdin(Kind),
}

/// An entry point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The words after the program's name.
    pub(super) words: &'static str,
    /// Its inputs.
    pub(super) inputs: &'static [Input],
    /// Whether it asks an API server.
    pub(super) cluster: bool,
    /// Whether it runs until it is told to end.
    pub(super) daemon: bool,
}

const fn offline(words: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { words, inputs, cluster: false, daemon: false }
}

const fn online(words: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { words, inputs, cluster: true, daemon: false }
}

const fn daemon(words: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { words, inputs, cluster: true, daemon: true }
}

use Input::{Argument, Flag, Stdin};

/// All of them. Those that would change a cluster do so to the test's own server.
pub(super) const ENTRIES: &[Entry] = &[
    online("render", &[Flag("--updater-config-file", Kind::ExporterConfig)]),
    online("deploy --dry-run=client", &[]),
    online("deploy --wait --timeout=1s", &[]),
    // Failures of the server may pass, so it tries for a while.
    daemon("remove --timeout=1s", &[]),
    online("setup", &[]),
    online("validate", &[]),
    offline("validate", &[Flag("--offline", Kind::Folder)]),
    online("detect", &[]),
    offline("images", &[]),
    offline("crds", &[]),
    offline("version", &[]),
    daemon(
        "exporter --oneshot",
        &[Flag("--config", Kind::ExporterConfig), Flag("--kubelet-config-file", Kind::KubeletConfig)],
    ),
    daemon(
        "exporter --no-publish --dry-run -o json",
        &[
            Flag("--podresources-socket=fake:", Kind::PodResources),
            Flag("--kubelet-config-file", Kind::KubeletConfig),
        ],
    ),
    daemon("scheduler", &[Flag("--config", Kind::SchedulerConfig)]),
    daemon("operator", &[Flag("--kubelet-token", Kind::Text)]),
    daemon("device-plugin --registration=watcher", &[Flag("--config", Kind::DevicePluginConfig)]),
    daemon("device-plugin --dra=gpu.example.com", &[Flag("--config-dir", Kind::Folder)]),
    offline("hardware convert", &[Argument(Kind::DeviceConfig)]),
    offline("hardware convert -", &[Stdin(Kind::DeviceConfig)]),
    offline("simulate --nodes 2 --pods 20", &[Flag("--workload", Kind::Workload)]),
    offline("simulate --pods 20", &[Flag("--from", Kind::Dump)]),
    offline("simulate", &[]),
    offline("capacity --shape cpu=2,memory=1Gi", &[Flag("--cluster", Kind::Dump)]),
    offline("defrag --shape cpu=12,memory=1Gi", &[Flag("--cluster", Kind::Dump)]),
    offline("cdi validate", &[Argument(Kind::Cdi)]),
    offline("cdi list", &[Flag("--dir", Kind::Folder)]),
    online("e2e --patience=2s", &[]),
    online("must-gather --timeout=2s", &[]),
    offline("fingerprint", &[Stdin(Kind::Text)]),
    offline("completion", &[]),
    daemon("rte", &[Flag("-config", Kind::ExporterConfig)]),
    daemon("nfd-topology-updater", &[Flag("-config", Kind::ExporterConfig)]),
    daemon("kube-scheduler", &[Flag("--config", Kind::SchedulerConfig)]),
    online("deployer render", &[]),
    online("deployer deploy", &[]),
    online("deployer validate", &[]),
    daemon("numaresources-operator", &[]),
    daemon("deviceplugin", &[Flag("-config-dir", Kind::Folder)]),
    online("nrovalidate", &[]),
    offline("pfpsyncchk", &[Flag("-from-rte", Kind::PfpStatus), Flag("-from-scheduler", Kind::PfpStatus)]),
    offline("pfpsyncchk", &[Flag("-must-gather", Kind::Folder)]),
    online("schedlogs", &[]),
    online("lsplatform", &[]),
    online("catkubeletconfmap", &[]),
    online("make-job-foreach-ds", &[Flag("-script", Kind::Text)]),
    daemon("watchnrtattr", &[]),
    offline("lstopics", &[]),
    offline("mkginkgolabelfilter", &[Stdin(Kind::Topics)]),
    offline("envsubst", &[Stdin(Kind::Text)]),
    offline("buildhelper", &[]),
    offline("getdigests", &[Flag("-pull-secret", Kind::PullSecret)]),
    offline("verify-commit", &[]),
];

/// The flags of the entry points, as their help names them.
pub(super) struct Grammar(BTreeMap<&'static str, Vec<String>>);

impl Grammar {
    pub(super) fn read() -> Self {
        let flags = ENTRIES.iter().map(|entry| (entry.words, flags(entry.words)));
        let grammar = Self(flags.collect());
        // A change of the help must not leave the flags untried.
        assert!(grammar.of("validate").contains(&"--offline".to_owned()), "{:?}", grammar.of("validate"));
        assert!(grammar.of("nrovalidate").contains(&"-what".to_owned()), "{:?}", grammar.of("nrovalidate"));
        grammar
    }

    /// The flags of an entry point.
    pub(super) fn of(&self, words: &str) -> &[String] {
        self.0.get(words).map_or(&[], Vec::as_slice)
    }
}

/// Words of the help text that begin a line and look like flags.
fn flags(words: &str) -> Vec<String> {
    let command = words.split_whitespace().take_while(|word| !word.starts_with('-'));
    let output = Command::new(env!("CARGO_BIN_EXE_tholepin"))
        .args(command)
        .arg("--help")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let flag = |line: &str| {
        let words = line.split([' ', ',', '=', '[', '\t']);
        words
            .filter(|word| !word.is_empty())
            .take(2)
            .find(|word| word.len() > 2 && word.starts_with('-'))
            .map(str::to_owned)
    };
    let lines = String::from_utf8_lossy(&text).into_owned();
    let indented = lines.lines().filter(|line| line.starts_with("  "));
    indented.filter_map(flag).filter(|flag| !flag.ends_with("help") && !flag.ends_with("version")).collect()
}
