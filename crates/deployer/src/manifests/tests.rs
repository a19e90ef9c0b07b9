//! What holds for all manifests, whatever is chosen; what each choice changes; and all of them, to be read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::*;
use crate::platform::Platform;

mod access;
mod effects;
mod golden;
mod pods;
mod references;

/// Each kind of cluster, with the newest version in use.
pub(super) const CLUSTERS: [(Platform, &str); 3] =
    [(Platform::Kubernetes, "v1.36.3"), (Platform::OpenShift, "4.20.1"), (Platform::HyperShift, "4.20.1")];
pub(super) const UPDATERS: [Updater; 3] = [Updater::Tholepin, Updater::Rte, Updater::Nfd];
pub(super) const SCHEDULERS: [Scheduler; 2] = [Scheduler::Tholepin, Scheduler::Plugin];

/// What the owner of such a cluster gets who chooses these two and nothing else.
pub(super) fn options(
    (platform, version): (Platform, &str),
    updater: Updater,
    scheduler: Scheduler,
) -> Options {
    let peers = updater != Updater::Tholepin;
    let mut options = if peers { Options::peers() } else { Options::default() };
    options.platform = platform;
    options.version = Some(version.parse().unwrap());
    options.updater.kind = updater;
    options.scheduler.kind = scheduler;
    options
}

/// A set of choices and what it makes.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) objects: Vec<Object>,
}

/// Every cluster, updater and scheduler, each with many sets of further choices.
pub(super) fn everything() -> &'static [Case] {
    static ALL: LazyLock<Vec<Case>> = LazyLock::new(|| {
        let mut all = Vec::new();
        for cluster in CLUSTERS {
            for updater in UPDATERS {
                for scheduler in SCHEDULERS {
                    for (name, change) in CHANGES {
                        let mut options = options(cluster, updater, scheduler);
                        change(&mut options);
                        let name = format!("{} {updater:?} {scheduler:?} {name}", cluster.0);
                        all.push(Case { name, objects: objects(&options), options });
                    }
                }
            }
        }
        all
    });
    &ALL
}

pub(super) type Change = fn(&mut Options);

/// Choices that change what refers to what.
const CHANGES: [(&str, Change); 9] = [
    ("usual", |_| {}),
    ("monitored", |options| options.monitoring = true),
    ("renamed", |options| options.updater.name = Some("other".to_owned())),
    ("elsewhere", |options| {
        options.updater.namespace = Some("here".to_owned());
        options.scheduler.namespace = Some("there".to_owned());
        options.scheduler.lease.namespace = Some("kube-system".to_owned());
    }),
    ("configured", |options| {
        options.updater.config = Some("resourceExclude: {}\n".to_owned());
        options.updater.notify = true;
        options.critical_quota = true;
    }),
    ("several", |options| options.scheduler.replicas = 3),
    ("first constraints", |options| options.updater.scc = crate::options::SccVersion::V1),
    ("no policies", |options| {
        options.updater.custom_selinux_policy = false;
        options.updater.admission_policy = false;
        options.network_policies = false;
    }),
    ("configuration elsewhere", |options| {
        options.updater.kubelet = Some(crate::options::Kubelet {
            root: "/mnt/kubelet".to_owned(),
            config: crate::options::KubeletConfig::File {
                path: "/etc/kubelet/config.json".to_owned(),
                drop_ins: Some("/etc/kubelet/config.d".to_owned()),
            },
            certificate: crate::options::KubeletCertificate::Cluster,
        });
    }),
];

/// All objects of the programs. The definition of the API is the same for all, and takes its time.
pub(super) fn objects(options: &Options) -> Vec<Object> {
    let parts = parts(options, &[Component::Exporter, Component::Scheduler]).unwrap();
    parts.iter().flat_map(Part::objects).cloned().collect()
}

/// Objects of a kind.
pub(super) fn of_kind<'a>(objects: &'a [Object], kind: &str) -> Vec<&'a Object> {
    objects.iter().filter(|object| object.kind().kind == kind).collect()
}

/// Those that have pods, with the pods' template.
pub(super) fn workloads(objects: &[Object]) -> Vec<(&Object, &Value)> {
    let templates = objects.iter().map(|object| (object, &object.body()["spec"]["template"]));
    templates.filter(|(_, template)| template.is_object()).collect()
}

/// Elements of a list, none if it is not there.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text, empty if it is not there.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether all labels of a selector are there.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object();
    wanted.is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value))
}

#[test]
fn components_come_in_their_order_and_alone() {
    let options = Options::default();
    let names = |components: &[Component]| -> Vec<&str> {
        parts(&options, components).unwrap().iter().map(|part| part.component().name()).collect()
    };
    assert_eq!(names(&[Component::Scheduler, Component::Api]), ["api", "scheduler"]);
    assert_eq!(names(&Component::ALL), ["api", "exporter", "scheduler"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let table: [(Change, &str); 5] = [
        (|o| o.scheduler.replicas = 0, "non-positive replicas: 0"),
        (|o| o.scheduler.namespace = Some("tholepin".to_owned()), "namespace: \"tholepin\" for updater and"),
        (
            |o| {
                o.platform = Platform::OpenShift;
                o.version = Some("4.19".parse().unwrap());
            },
            "kubelet configuration: configz is not allowed; it must be a file or POLICY/SCOPE before Kubernetes 1.33",
        ),
        (
            |o| {
                o.updater.kind = Updater::Nfd;
                o.updater.kubelet = Some(crate::options::Kubelet {
                    root: "/var/lib/kubelet".to_owned(),
                    config: crate::options::KubeletConfig::Stated {
                        policy: topology::policy::Policy::Restricted,
                        scope: topology::policy::Scope::Pod,
                    },
                    certificate: crate::options::KubeletCertificate::Cluster,
                });
            },
            "kubelet configuration: stated is not allowed; it must be a file or configz",
        ),
        (
            |o| {
                let weight = api::schedulerconfig::ResourceWeight { name: String::new(), weight: 1 };
                o.scheduler.scoring = Some(crate::options::Scoring { kind: None, resources: vec![weight] });
            },
            "the scheduler's configuration: ",
        ),
    ];
    for (change, wanted) in table {
        let mut options = Options::default();
        change(&mut options);
        let error = parts(&options, &Component::ALL).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn text_has_all_objects_in_their_order_and_nothing_of_the_servers() {
    let parts = parts(&Options::peers(), &Component::ALL).unwrap();
    let text = text::render_objects(parts.iter().flat_map(Part::objects)).unwrap();
    let documents: Vec<Value> = text
        .split("---\n")
        .filter(|document| !document.is_empty())
        .map(|document| runtime::yaml::read_str("it", document, runtime::yaml::Mode::Strict).unwrap())
        .collect();
    let list: Value =
        serde_json::from_str(&text::render_objects_json(parts.iter().flat_map(Part::objects))).unwrap();
    assert_eq!(list["items"], Value::Array(documents.clone()));
    let objects: Vec<&Object> = parts.iter().flat_map(Part::objects).collect();
    assert_eq!(documents.len(), objects.len());
    for (document, object) in documents.iter().zip(objects) {
        let mut wanted = object.body().clone();
        wanted.as_object_mut().unwrap().remove("status");
        assert_eq!(document, &wanted);
    }
    assert!(text.starts_with("---\n") && !text.contains("creationTimestamp:") && !text.contains("\nstatus:"));
}

#[test]
fn creation_times_and_status_go() {
    let kind = objects::ObjectKind::new("", "v1", "Thing", "things");
    let body = serde_json::json!({
        "metadata": { "name": "x", "creationTimestamp": null },
        "spec": { "template": { "metadata": { "creationTimestamp": null }, "status": 1 } },
        "status": {},
    });
    let part = Part::new(Component::Api, [Object::from_value(kind, body).unwrap()]);
    let text = text::render_objects(part.objects()).unwrap();
    assert!(!text.contains("creationTimestamp") && !text.contains("\nstatus"), "{text}");
    assert!(text.contains("    status: 1"), "{text}");
}

/// By what `kubectl` would show: kind, namespace, name.
pub(super) fn by_name(objects: &[Object]) -> BTreeMap<String, &Object> {
    objects.iter().map(|object| (object.to_string(), object)).collect()
}

#[test]
fn one_namespace_is_there_already_and_has_everything_once() {
    let mut options = Options { critical_quota: true, ..Options::default() };
    options.scheduler.replicas = 2;
    let made = parts_within(&options, "one", &Component::ALL).unwrap();
    let objects: Vec<&Object> = made.iter().flat_map(Part::objects).collect();
    let names: std::collections::BTreeSet<String> = objects.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), objects.len(), "{names:?}");
    assert!(objects.iter().all(|object| object.kind().kind != "Namespace"));
    assert!(objects.iter().filter_map(|object| object.namespace()).all(|namespace| namespace == "one"));
    // The rest is what each namespace of its own would have, but for the second quota.
    let apart = parts(&options, &Component::ALL).unwrap();
    let apart = apart.iter().flat_map(Part::objects).filter(|object| object.kind().kind != "Namespace");
    assert_eq!(apart.count(), objects.len() + 1);
}
