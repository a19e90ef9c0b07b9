use std::sync::{Arc, Mutex};

use serde_json::json;

use super::classic::Classic;
use super::lines::Lines;
use super::structured::Structured;
use super::*;
use crate::install::step::{Change, ObjectStep, Observer, Operation, Step};
use objects::ObjectKind;

fn object(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Object {
    let plural = format!("{}s", kind.to_lowercase());
    let mut body = json!({ "metadata": { "name": name } });
    if let Some(namespace) = namespace {
        body["metadata"]["namespace"] = namespace.into();
    }
    Object::from_value(ObjectKind::new(group, "v1", kind, &plural), body).unwrap()
}

/// The lines about a deployment and a removal.
fn written<T: Observer>(format: impl FnOnce(Sink) -> T) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&lines);
    let mut observer = format(Box::new(move |line| into.lock().unwrap().push(line.to_owned())));
    let crd = object("apiextensions.k8s.io", "CustomResourceDefinition", None, "noderesourcetopologies.x");
    let set = object("apps", "DaemonSet", Some("numa"), "exporter");
    let pods = object("apps", "Deployment", Some("kube"), "scheduler");
    let space = object("", "Namespace", None, "numa");
    let (api, updater, scheduler) = (Component::Api, Component::Exporter, Component::Scheduler);
    let set_state = |desired, ready| WaitState::DaemonSet { desired, updated: desired, ready };
    for step in [
        Step::Began(Operation::Deploy, api),
        Step::Object(api, &crd, ObjectStep::Applied(Change::Created)),
        Step::Object(api, &crd, ObjectStep::Waiting(WaitState::NotEstablished)),
        Step::Object(api, &crd, ObjectStep::Reached(Operation::Deploy)),
        Step::Ended(Operation::Deploy, api),
        Step::Began(Operation::Deploy, updater),
        Step::Object(updater, &space, ObjectStep::Applied(Change::Unchanged)),
        Step::Object(updater, &set, ObjectStep::Applied(Change::Configured)),
        Step::Object(updater, &set, ObjectStep::Waiting(set_state(0, 0))),
        Step::Object(updater, &set, ObjectStep::Waiting(set_state(3, 1))),
        Step::Object(updater, &set, ObjectStep::Reached(Operation::Deploy)),
        Step::Ended(Operation::Deploy, updater),
        Step::Began(Operation::Remove, scheduler),
        Step::Object(scheduler, &pods, ObjectStep::Deleted),
        Step::Object(scheduler, &pods, ObjectStep::Waiting(WaitState::Present)),
        Step::Object(scheduler, &pods, ObjectStep::Reached(Operation::Remove)),
        Step::Ended(Operation::Remove, scheduler),
        Step::Began(Operation::Remove, updater),
        Step::Object(updater, &space, ObjectStep::Deleted),
        Step::Object(updater, &space, ObjectStep::Waiting(WaitState::Present)),
        Step::Object(updater, &space, ObjectStep::Reached(Operation::Remove)),
        Step::Object(updater, &set, ObjectStep::Failed(Operation::Remove, "403 Forbidden: no".to_owned())),
        Step::Ended(Operation::Remove, updater),
    ] {
        observer.observe(&step);
    }
    drop(observer);
    Arc::into_inner(lines).unwrap().into_inner().unwrap()
}

#[test]
fn the_peers_sentences() {
    let wanted = r#"
deploying topology-aware-scheduling API...
-  API> created CustomResourceDefinition "noderesourcetopologies.x"
...deployed topology-aware-scheduling API!
deploying topology-aware-scheduling topology updater...
-  RTE> unchanged Namespace "numa"
-  RTE> configured DaemonSet "exporter"
wait for all the pods in deployment numa exporter to be running and ready
no pods found for numa exporter
pods of numa exporter not ready yet (1 of 3)
all the pods in daemonset numa exporter are running and ready!
...deployed topology-aware-scheduling topology updater!
removing topology-aware-scheduling scheduler plugin...
-  SCD> deleted Deployment "scheduler"
wait for all the pods in deployment kube scheduler to be gone
all pods gone for deployment kube scheduler are gone!
...removed topology-aware-scheduling scheduler plugin!
removing topology-aware-scheduling topology updater...
-  RTE> deleted Namespace "numa"
wait for the deployment namespace "numa" to be gone
namespace gone for daemonset "numa"!
-  RTE> error deleting DaemonSet "exporter": 403 Forbidden: no
...removed topology-aware-scheduling topology updater!
"#;
    assert_eq!(written(|sink| Classic::new(Updater::Rte, sink)).join("\n"), wanted.trim());
}

#[test]
fn the_peers_keys_and_values() {
    let wanted = r#"
API: "level"=0 "msg"="deploying topology-aware-scheduling API"
API: "level"=0 "msg"="created" "kind"="CustomResourceDefinition" "name"="noderesourcetopologies.x"
API: "level"=0 "msg"="CRD available" "key"="/noderesourcetopologies.x"
API: "level"=0 "msg"="deployed topology-aware-scheduling API"
NFD: "level"=0 "msg"="deploying topology-aware-scheduling topology updater"
NFD: "level"=0 "msg"="unchanged" "kind"="Namespace" "name"="numa"
NFD: "level"=0 "msg"="configured" "kind"="DaemonSet" "name"="exporter"
NFD: "level"=0 "msg"="daemonset not ready" "key"="numa/exporter" "desired"=0 "current"=0 "ready"=0
NFD: "level"=0 "msg"="daemonset not ready" "key"="numa/exporter" "desired"=3 "current"=3 "ready"=1
NFD: "level"=0 "msg"="daemonset ready" "key"="numa/exporter"
NFD: "level"=0 "msg"="deployed topology-aware-scheduling topology updater!"
SCD: "level"=0 "msg"="removing topology-aware-scheduling scheduler plugin"
SCD: "level"=0 "msg"="deleted" "kind"="Deployment" "name"="scheduler"
SCD: "level"=0 "msg"="object still present" "kind"="Deployment" "key"="kube/scheduler"
SCD: "level"=0 "msg"="object is gone" "kind"="Deployment" "key"="kube/scheduler"
SCD: "level"=0 "msg"="removed topology-aware-scheduling scheduler plugin"
NFD: "level"=0 "msg"="removing topology-aware-scheduling topology updater"
NFD: "level"=0 "msg"="deleted" "kind"="Namespace" "name"="numa"
NFD: "level"=0 "msg"="wait for the namespace to be gone" "namespace"="numa"
NFD: "level"=0 "msg"="object still present" "kind"="Namespace" "key"="/numa"
NFD: "level"=0 "msg"="object is gone" "kind"="Namespace" "key"="/numa"
NFD: "level"=0 "msg"="error deleting" "kind"="DaemonSet" "name"="exporter" "error"="403 Forbidden: no"
NFD: "level"=0 "msg"="removed topology-aware-scheduling topology updater!"
"#;
    assert_eq!(written(|sink| Structured::new(Updater::Nfd, 0, sink)).join("\n"), wanted.trim());
    assert_eq!(written(|sink| Structured::new(Updater::Nfd, -1, sink)), Vec::<String>::new());
}

#[test]
fn our_own_lines() {
    let wanted = "
deploying api
  CustomResourceDefinition noderesourcetopologies.x created
  waiting for CustomResourceDefinition noderesourcetopologies.x: not served yet
  CustomResourceDefinition noderesourcetopologies.x is served
deploying exporter
  DaemonSet numa/exporter configured
  waiting for DaemonSet numa/exporter: no node matches yet
  waiting for DaemonSet numa/exporter: 1 of 3 nodes ready
  DaemonSet numa/exporter is ready
removing scheduler
  Deployment kube/scheduler deleted
  waiting for Deployment kube/scheduler: still there
  Deployment kube/scheduler is gone
removing exporter
  Namespace numa deleted
  waiting for Namespace numa: still there
  Namespace numa is gone
  DaemonSet numa/exporter: 403 Forbidden: no
";
    assert_eq!(written(|sink| Lines::new(false, sink)).join("\n"), wanted.trim());
    let dry = written(|sink| Lines::new(true, sink));
    assert_eq!(dry[1], "  CustomResourceDefinition noderesourcetopologies.x created (dry run)");
}
