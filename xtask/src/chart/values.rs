//! The chart's values: what they mean, their defaults, what they may be.
//!
//! In: the flags of `tholepin render`, whose help they have; the defaults of the deployer. Out: `values.yaml` and its
//! schema. Never: a description of an option that has one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Args as _;
use deployer::manifests::pod;
use deployer::options::{Distribution, Options};
use deployer::part::Component;
use serde_json::{Map, Value, json};

use super::template;

/// A value.
pub(super) struct Entry {
    /// Its path, of one or two words.
    path: &'static str,
    about: About,
    default: Value,
    /// What it may be, in the words of JSON Schema.
    allowed: Value,
}

/// Where a value's description is from.
enum About {
    /// A flag of `tholepin render`.
    Flag(&'static str),
    /// Nothing that the deployer has as an option.
    Own(&'static str),
}

use About::{Flag, Own};

/// The images' repository unless a release knows another.
pub(super) const REPOSITORY: &str = "tholepin";
/// A duration as Go writes it.
const DURATION: &str = "^(0|([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$";
/// The sources of a kubelet's configuration.
const SOURCE: &str =
    "^(|/.+|configz(:[1-9][0-9]*)?|(none|best-effort|restricted|single-numa-node)/(container|pod))$";
/// Words that YAML takes for something else than a text.
const YAML_WORDS: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "n"];

/// All values, in the order of the file.
pub(super) fn all(repository: &str, digest: Option<&str>) -> anyhow::Result<Vec<Entry>> {
    let options = Options::default();
    let mut all = images(repository, digest, &options);
    all.extend(cluster(&options));
    all.extend(exporter(&options)?);
    all.extend(scheduler(&options)?);
    Ok(all)
}

fn entry(path: &'static str, about: About, default: impl Into<Value>, allowed: Value) -> Entry {
    Entry { path, about, default: default.into(), allowed }
}

fn switch(path: &'static str, about: About, default: bool) -> Entry {
    entry(path, about, default, json!({"type": "boolean"}))
}

fn text(path: &'static str, about: About, default: &str) -> Entry {
    entry(path, about, default, json!({"type": "string"}))
}

fn number(path: &'static str, about: About, default: impl Into<Value>, least: u32, most: u32) -> Entry {
    entry(path, about, default, json!({"type": "integer", "minimum": least, "maximum": most}))
}

fn one_of(path: &'static str, about: About, default: &str, words: &[&str]) -> Entry {
    entry(path, about, default, json!({"type": "string", "enum": words}))
}

fn map(path: &'static str, about: About, default: Value) -> Entry {
    let allowed = json!({"type": "object", "additionalProperties": {"type": "string"}});
    entry(path, about, default, allowed)
}

fn list(path: &'static str, about: About, default: Value, items: Value) -> Entry {
    entry(path, about, default, json!({"type": "array", "items": items, "uniqueItems": true}))
}

fn images(repository: &str, digest: Option<&str>, options: &Options) -> Vec<Entry> {
    let word = json!({"type": "string", "minLength": 1});
    vec![
        entry("image.repository", Flag("image"), repository, word.clone()),
        text("image.tag", Own("Tag of the image; empty: the chart's appVersion"), ""),
        entry(
            "image.digest",
            Own("Digest of the image, sha256:DIGITS; used instead of the tag"),
            digest.unwrap_or_default(),
            json!({"type": "string", "pattern": "^(|sha256:[0-9a-f]{64})$"}),
        ),
        one_of(
            "image.pullPolicy",
            Own("When the image is pulled: IfNotPresent or Always"),
            options.pull.as_str(),
            &["IfNotPresent", "Always"],
        ),
        list("image.pullSecrets", Own("Secrets with registry credentials, by name"), json!([]), word),
    ]
}

fn cluster(options: &Options) -> Vec<Entry> {
    let word = json!({"type": "string", "minLength": 1});
    let port = json!({"type": "integer", "minimum": 1, "maximum": 65535});
    let platforms = ["kubernetes", "openshift", "hypershift"];
    let distributions = Distribution::names();
    let distributions: Vec<&str> = std::iter::once("").chain(distributions.split(", ")).collect();
    let path = json!({"type": "string", "pattern": "^(|/.*[^/])$"});
    vec![
        one_of("platform", Own("Platform: kubernetes, openshift or hypershift"), "kubernetes", &platforms),
        list(
            "architectures",
            Own("CPU architectures of our image; empty: any node"),
            json!(options.architectures),
            word,
        ),
        switch("networkPolicies", Flag("network-policies"), options.network_policies),
        entry(
            "apiServer.ports",
            Flag("api-server-port"),
            json!(options.api_server_ports),
            json!({"type": "array", "items": port, "minItems": 1, "uniqueItems": true}),
        ),
        list(
            "apiServer.cidrs",
            Flag("api-server-cidr"),
            json!([]),
            json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"}),
        ),
        switch("criticalQuota", Flag("critical-quota"), options.critical_quota),
        switch("monitoring", Flag("monitoring"), options.monitoring),
        text("runbookUrl", Flag("runbook-url"), &options.runbooks),
        switch("crds.install", Own("Install and upgrade the definition of NodeResourceTopology"), true),
        switch(
            "crds.keep",
            Own("Keep the definition, and with it all reports, when the release is uninstalled"),
            true,
        ),
        one_of("kubelet.profile", Flag("kubelet-profile"), "", &distributions),
        entry("kubelet.root", Flag("kubelet-root"), "", path),
        entry("kubelet.config", Flag("kubelet-config"), "", json!({"type": "string", "pattern": SOURCE})),
        text("kubelet.caConfigMap", Flag("kubelet-ca-config-map"), ""),
        switch("kubelet.insecure", Flag("kubelet-insecure"), false),
        switch("kubelet.rootMount", Flag("kubelet-root-mount"), options.updater.kubelet_root),
    ]
}

fn exporter(options: &Options) -> anyhow::Result<Vec<Entry>> {
    let updater = &options.updater;
    let period = updater.sync_period.map_or(0, |period| period.as_nanos());
    let period = api::goduration::GoDuration(i64::try_from(period)?).to_string();
    let port = json!({"type": "integer", "minimum": 1, "maximum": 65535, "not": {"const": pod::HEALTH}});
    Ok(vec![
        switch("exporter.enabled", Own("Install the exporter"), true),
        entry(
            "exporter.syncPeriod",
            Flag("updater-sync-period"),
            period,
            json!({"type": "string", "pattern": DURATION}),
        ),
        number("exporter.verbosity", Flag("updater-verbose"), updater.verbosity, 0, 255),
        switch("exporter.fingerprint", Flag("updater-pfp-enable"), updater.fingerprint),
        text("exporter.config", Own("Text of its configuration file; empty: none"), ""),
        entry("exporter.metricsPort", Flag("metrics-port"), updater.metrics_port, port),
        switch("exporter.admissionPolicy", Flag("admission-policy"), updater.admission_policy),
        map("exporter.nodeSelector", Flag("updater-node-selector"), json!({})),
        tolerations("exporter.tolerations", Flag("updater-toleration"), json!([pod::tolerate_all()])),
        text("exporter.priorityClassName", Flag("updater-priority-class"), "system-node-critical"),
        resources("exporter.resources", Component::Exporter)?,
    ])
}

fn scheduler(options: &Options) -> anyhow::Result<Vec<Entry>> {
    let scheduler = &options.scheduler;
    let name = json!({
        "type": "string", "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "not": {"enum": YAML_WORDS},
    });
    Ok(vec![
        switch("scheduler.enabled", Own("Install the scheduler"), true),
        number(
            "scheduler.replicas",
            Own("Number of replicas, one of which leads"),
            scheduler.replicas,
            1,
            100,
        ),
        entry(
            "scheduler.schedulerName",
            Flag("sched-profile-name"),
            ::scheduler::config::DEFAULT_SCHEDULER_NAME,
            name,
        ),
        number("scheduler.verbosity", Flag("sched-verbose"), scheduler.verbosity, 0, 255),
        switch(
            "scheduler.controlPlaneAffinity",
            Own("Prefer control plane nodes, and tolerate their taints"),
            scheduler.control_plane_affinity,
        ),
        switch("scheduler.disruptionBudget", Flag("disruption-budget"), scheduler.disruption_budget),
        switch(
            "scheduler.deleteRejectedPods",
            Flag("sched-delete-rejected-pods"),
            scheduler.delete_rejected_pods,
        ),
        map("scheduler.nodeSelector", Flag("sched-node-selector"), json!({})),
        tolerations("scheduler.tolerations", Flag("sched-toleration"), json!([])),
        text("scheduler.priorityClassName", Flag("sched-priority-class"), "system-cluster-critical"),
        resources("scheduler.resources", Component::Scheduler)?,
    ])
}

fn tolerations(path: &'static str, about: About, default: Value) -> Entry {
    list(path, about, default, json!({"type": "object"}))
}

fn resources(path: &'static str, component: Component) -> anyhow::Result<Entry> {
    let default = template::resources(component)?;
    Ok(entry(path, Own("Requests and limits of its container"), default, json!({"type": "object"})))
}

impl Entry {
    /// The first and the second word of the path.
    fn words(&self) -> (&'static str, Option<&'static str>) {
        self.path.split_once('.').map_or((self.path, None), |(first, second)| (first, Some(second)))
    }

    fn description(&self, flags: &clap::Command) -> anyhow::Result<String> {
        let name = match self.about {
            Own(text) => return Ok(text.to_owned()),
            Flag(name) => name,
        };
        let flag = flags.get_arguments().find(|flag| flag.get_long() == Some(name));
        let help =
            flag.and_then(clap::Arg::get_help).with_context(|| format!("no flag --{name} with help"))?;
        Ok(without_command_line(&help.to_string()))
    }
}

/// A flag's help without what holds on the command line alone: how words are written and joined there, and defaults.
fn without_command_line(help: &str) -> String {
    let ends = [" (repeatable", " [default", " [env", ": KEY["];
    let end = ends.iter().filter_map(|end| help.find(end)).min().unwrap_or(help.len());
    help[..end].to_owned()
}

/// `values.yaml`.
pub(super) fn file(entries: &[Entry]) -> anyhow::Result<String> {
    let flags = flags();
    let mut text = "# The values of tholepin's chart; `cargo xtask chart` writes them from the options of the deployer.\n"
        .to_owned();
    let mut section = None;
    for entry in entries {
        let (first, second) = entry.words();
        if section != Some(first) || second.is_none() {
            text.push('\n');
        }
        if second.is_some() && section != Some(first) {
            let _ = writeln!(text, "{first}:");
        }
        section = Some(first);
        let indent = if second.is_some() { "  " } else { "" };
        for line in wrapped(&entry.description(&flags)?, 110) {
            let _ = writeln!(text, "{indent}# {line}");
        }
        let map: BTreeMap<&str, &Value> = [(second.unwrap_or(first), &entry.default)].into();
        for line in runtime::yaml::write(&map)?.lines() {
            let _ = writeln!(text, "{indent}{line}");
        }
    }
    Ok(text)
}

/// `values.schema.json`.
pub(super) fn schema(entries: &[Entry]) -> anyhow::Result<String> {
    let flags = flags();
    let mut properties = Map::new();
    for entry in entries {
        let mut allowed = entry.allowed.clone();
        allowed["description"] = entry.description(&flags)?.into();
        match entry.words() {
            (name, None) => drop(properties.insert(name.to_owned(), allowed)),
            (section, Some(name)) => {
                let section = properties.entry(section).or_insert_with(|| object(Map::new()));
                section["properties"][name] = allowed;
            }
        }
    }
    // Helm gives it to every chart.
    properties.insert("global".to_owned(), json!({"type": "object"}));
    let mut schema = object(properties);
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    Ok(format!("{schema:#}\n"))
}

/// A map with these keys and no others.
fn object(properties: Map<String, Value>) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn flags() -> clap::Command {
    deployer::cli::render::Args::augment_args(clap::Command::new("render"))
}

/// Lines of at most so many columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, String::len);
        if line > 0 && line + 1 + word.len() > columns {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
