//! What each choice changes, and that it changes nothing else: the file `tests/golden/effects.txt`.

use std::time::Duration;

use api::schedulerconfig::{
    ForeignPodsDetect, InformerMode, PreemptionMode, ResourceWeight, ResyncMethod, ScoringStrategyType,
};

use super::*;
use crate::options::{
    Distribution, Kubelet, KubeletCertificate, KubeletConfig, PullPolicy, SccVersion, Scoring,
};

/// The differences between two sets of objects, one a line: an object that is new (`+`) or gone (`-`), or `object:
/// path: old -> new`. Of lists what is gone and what is new; of pods the path within the pod.
fn differences(before: &[Object], after: &[Object]) -> Vec<String> {
    let (before, after) = (by_name(before), by_name(after));
    let mut lines = Vec::new();
    for (name, object) in &before {
        match after.get(name) {
            None => lines.push(format!("-{name}")),
            Some(other) => {
                let mut own = Vec::new();
                compare("", object.body(), other.body(), &mut own);
                let short = |line: String| {
                    line.replace("spec.template.spec.", "pod.").replace("spec.template.", "pod ")
                };
                lines.extend(own.into_iter().map(|line| format!("{name}: {}", short(line))));
            }
        }
    }
    lines.extend(after.keys().filter(|name| !before.contains_key(*name)).map(|name| format!("+{name}")));
    lines
}

fn compare(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                compare(&at(key), &before[key], &after[key], lines);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            let same = |a: &Value, b: &Value| a == b || (!a["name"].is_null() && a["name"] == b["name"]);
            for value in old {
                match new.iter().find(|other| same(value, other)) {
                    None => lines.push(format!("{path}: -{}", short(value))),
                    Some(other) => compare(&at(text(&value["name"])), value, other, lines),
                }
            }
            let added = new.iter().filter(|value| !old.iter().any(|other| same(other, value)));
            lines.extend(added.map(|value| format!("{path}: +{}", short(value))));
        }
        (Value::Null, _) => lines.push(format!("{path}: +{}", short(after))),
        (_, Value::Null) => lines.push(format!("{path}: -{}", short(before))),
        _ if path.ends_with("scheduler-config.yaml") => {
            let changes = similar::TextDiff::from_lines(text(before), text(after));
            let changes =
                changes.iter_all_changes().filter(|change| change.tag() != similar::ChangeTag::Equal);
            let line = |change: similar::Change<&str>| format!("{}{}", change.tag(), change.value().trim());
            lines.push(changes.map(line).collect::<Vec<_>>().join(" "));
        }
        // It says no more than that the text is another one.
        _ if path.ends_with("configmap.hash") => {}
        _ => lines.push(format!("{path}: {} -> {}", short(before), short(after))),
    }
}

/// A value, or the name of what has one.
fn short(value: &Value) -> String {
    match (value.as_str(), value["name"].as_str()) {
        (Some(text), _) | (None, Some(text)) => text.to_owned(),
        _ => value.to_string(),
    }
}

/// What a choice is made on top of.
type Usual = fn() -> Options;
/// A choice with its name.
type Choice = (&'static str, Change);

fn rte() -> Options {
    options(CLUSTERS[0], Updater::Rte, Scheduler::Plugin)
}

fn nfd() -> Options {
    options(CLUSTERS[0], Updater::Nfd, Scheduler::Plugin)
}

fn openshift() -> Options {
    options(CLUSTERS[1], Updater::Rte, Scheduler::Plugin)
}

fn hypershift() -> Options {
    options(CLUSTERS[2], Updater::Rte, Scheduler::Plugin)
}

fn ours() -> Options {
    options(CLUSTERS[0], Updater::Tholepin, Scheduler::Tholepin)
}

fn ours_on_openshift() -> Options {
    options(CLUSTERS[1], Updater::Tholepin, Scheduler::Tholepin)
}

/// Of our programs.
const MONITORING: [Choice; 1] = [("monitoring", |o| o.monitoring = true)];

/// Of all programs.
const COMMON: [Choice; 7] = [
    ("pull", |o| {
        o.pull = if o.pull == PullPolicy::Always { PullPolicy::IfNotPresent } else { PullPolicy::Always }
    }),
    ("no network policies", |o| o.network_policies = false),
    ("API servers at 8443", |o| o.api_server_ports = vec![8443]),
    ("API servers' addresses", |o| o.api_server_cidrs = vec!["192.0.2.0/28".to_owned()]),
    ("any architecture", |o| o.architectures.clear()),
    ("quota", |o| o.critical_quota = true),
    ("pull secrets", |o| o.pull_secrets = vec!["x".to_owned()]),
];

/// Of what publishes.
const UPDATING: [Choice; 13] = [
    ("verbosity", |o| o.updater.verbosity = 5),
    ("no fingerprint", |o| o.updater.fingerprint = false),
    ("period", |o| o.updater.sync_period = Some(Duration::from_millis(1500))),
    ("no period", |o| o.updater.sync_period = None),
    ("configuration", |o| o.updater.config = Some("a: b\n".to_owned())),
    ("notifications", |o| o.updater.notify = true),
    ("placement", |o| {
        o.updater.node_selector = [("pool".to_owned(), "numa".to_owned())].into();
        o.updater.tolerations = Some(Vec::new());
        o.updater.priority_class = Some("mine".to_owned());
    }),
    ("metrics port", |o| o.updater.metrics_port = 2113),
    ("SELinux type", |o| o.updater.selinux_type = Some("spc_t".to_owned())),
    ("no admission policy", |o| o.updater.admission_policy = false),
    ("kubelet of MicroK8s", |o| o.updater.kubelet = Some(Distribution::Microk8s.kubelet())),
    ("kubelet of Talos, unchecked", |o| {
        let certificate = KubeletCertificate::Unchecked;
        o.updater.kubelet = Some(Kubelet { certificate, ..Distribution::Talos.kubelet() });
    }),
    ("kubelet of Talos, authority in a ConfigMap", |o| {
        let certificate = KubeletCertificate::ConfigMap("kubelets".to_owned());
        o.updater.kubelet = Some(Kubelet { certificate, ..Distribution::Talos.kubelet() });
    }),
];

/// Of RTE on OpenShift.
const OPENSHIFT: [Choice; 6] = [
    ("first constraints", |o| o.updater.scc = SccVersion::V1),
    ("first constraints, no policy", |o| {
        o.updater.scc = SccVersion::V1;
        o.updater.custom_selinux_policy = false;
    }),
    ("no policy", |o| o.updater.custom_selinux_policy = false),
    ("hooks", |o| o.updater.cri_hooks = true),
    ("labels", |o| o.updater.machine_config_labels = [("pool".to_owned(), "numa".to_owned())].into()),
    ("another name", |o| o.updater.name = Some("other".to_owned())),
];

/// Of what schedules.
const SCHEDULING: [Choice; 10] = [
    ("replicas", |o| o.scheduler.replicas = 3),
    ("replicas without a budget", |o| {
        o.scheduler.replicas = 3;
        o.scheduler.disruption_budget = false;
    }),
    ("no control plane affinity", |o| o.scheduler.control_plane_affinity = false),
    ("profile", |o| o.scheduler.profile_name = Some("mine".to_owned())),
    ("no resync period", |o| o.scheduler.resync_seconds = 0),
    ("cache", |o| {
        o.scheduler.cache.foreign_pods_detect = Some(ForeignPodsDetect::All);
        o.scheduler.cache.resync_method = Some(ResyncMethod::All);
        o.scheduler.cache.informer_mode = Some(InformerMode::Shared);
    }),
    ("preemption", |o| o.scheduler.preemption = Some(PreemptionMode::Enabled)),
    ("scoring", |o| {
        let weight = ResourceWeight { name: "cpu".to_owned(), weight: 2 };
        let kind = Some(ScoringStrategyType::MostAllocated);
        o.scheduler.scoring = Some(Scoring { kind, resources: vec![weight] });
    }),
    ("lease", |o| {
        o.scheduler.lease.namespace = Some("kube-system".to_owned());
        o.scheduler.lease.name = Some("mine".to_owned());
    }),
    ("verbosity and placement", |o| {
        o.scheduler.verbosity = 9;
        o.scheduler.node_selector = [("pool".to_owned(), "numa".to_owned())].into();
        o.scheduler.priority_class = Some("mine".to_owned());
    }),
];

fn choices() -> Vec<(String, Usual, Change)> {
    let root: Choice = ("kubelet's root mounted", |o| o.updater.kubelet_root = true);
    let stated: Choice = ("policy stated", |o| {
        o.updater.kubelet = Some(Kubelet {
            root: "/var/lib/kubelet".to_owned(),
            config: KubeletConfig::Stated {
                policy: topology::policy::Policy::Restricted,
                scope: topology::policy::Scope::Pod,
            },
            certificate: KubeletCertificate::Cluster,
        });
    });
    let bases: [(&str, Usual, &[&[Choice]]); 6] = [
        ("ours", ours, &[&COMMON, &UPDATING, &SCHEDULING, &MONITORING]),
        ("RTE and plugin", rte, &[&COMMON, &UPDATING, &OPENSHIFT, &SCHEDULING]),
        ("NFD", nfd, &[&UPDATING]),
        ("RTE on OpenShift", openshift, &[&OPENSHIFT]),
        ("RTE on HyperShift", hypershift, &[&OPENSHIFT, &SCHEDULING[..3]]),
        ("ours on OpenShift", ours_on_openshift, &[&MONITORING]),
    ];
    let mut all: Vec<(String, Usual, Change)> =
        [root, stated].map(|(name, change)| (format!("ours: {name}"), ours as Usual, change)).to_vec();
    for (base, options, groups) in bases {
        for (name, change) in groups.iter().copied().flatten() {
            all.push((format!("{base}: {name}"), options, *change));
        }
    }
    all
}

#[test]
fn each_choice_changes_what_the_file_says() {
    let mut file = String::new();
    for (name, usual, change) in choices() {
        let mut options = usual();
        change(&mut options);
        let lines = differences(&objects(&usual()), &objects(&options));
        file += &format!("# {name}\n{}\n", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
    golden::compare("effects.txt", &file);
}
