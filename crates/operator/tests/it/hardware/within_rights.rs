//! What the operator asked for in all scenarios of DeviceConfigs, against what it may: nothing was denied, and there is
//! no right that nothing used.
//!
//! In: audit logs. Out: rights that nothing used. Never: a scenario of its own. It is the last by its name.

use std::sync::Mutex;

use deployer::platform::Platform;
use hardware::{manifests, rbac};
use k8s_openapi::api::rbac::v1::PolicyRule;
use testkit::audit::Request;
use testkit::controlplane::ControlPlane;

use super::super::scenario::{Played, Scenario, asked, asked_in_all};
use super::super::within_rights::{is_filtered, unused, used};
use super::lab::{self, Lab};
use super::scenarios::SCENARIOS;

/// What happened so far; requests are those in clusters that are not shared.
pub(crate) static PLAYED: Mutex<Played> = Mutex::new(Played::NOTHING);

/// Notes that a scenario went well in the shared cluster, whose log is read when all have been played.
pub(crate) fn note(scenario: Scenario, lab: &Lab) {
    none_denied(&asked(&lab.control, manifests::NAMESPACE, manifests::CONTROLLER.name));
    scenario.note(Vec::new(), Vec::new());
}

/// Notes what was asked for in a cluster of its own. The operator has ended.
pub(crate) async fn note_all(scenario: Scenario, control: &ControlPlane) {
    let requests = asked_in_all(control, manifests::NAMESPACE, manifests::CONTROLLER.name).await;
    none_denied(&requests);
    scenario.note(requests, Vec::new());
}

fn none_denied(requests: &[Request]) {
    let denied = requests.iter().filter(|one| is_denied(one));
    assert_eq!(denied.map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
}

/// Policies of the scenarios, which refuse what rights allow: KMM's webhook, its refusals at will, and k22's own.
const POLICIES: [&str; 3] = ["vmodule.kb.io", "testkit-refuses-modules", "k22"];

/// A policy answers as the lack of a right does; its text names it.
fn is_denied(request: &Request) -> bool {
    let answer = &request.response_status;
    let by = |policy: &str| answer.message.contains(&format!("ValidatingAdmissionPolicy '{policy}'"));
    answer.code == 403 && !POLICIES.into_iter().any(by)
}

#[test]
fn every_right_is_used() {
    // All of them can also be played without the operator's others.
    let all = std::env::args().any(|word| word == "hardware::");
    if testkit::env::rig().is_err() || is_filtered() && !all {
        return;
    }
    let mut requests = Played::all(&PLAYED, SCENARIOS).requests;
    requests.append(&mut lab::over());
    let (mut any, mut named) = used(&requests, Vec::new());
    // Asked where it is a pod, about itself.
    any.push(api::rbac::rule("", &["pods"], &["get"]));
    // What is watched is listed where servers do not send lists as the beginning of a watch.
    for rules in [&mut any, &mut named] {
        let watched = rules.iter().filter(|rule| rule.verbs == ["watch"]).cloned();
        let listed: Vec<_> =
            watched.map(|rule| PolicyRule { verbs: vec!["list".to_owned()], ..rule }).collect();
        rules.extend(listed);
    }
    let unused = unused(rbac::rules(Platform::Kubernetes), &any, &named);
    println!("rights: {} requests in {SCENARIOS} scenarios, unused rights: {}", requests.len(), unused.len());
    assert_eq!(unused, [""; 0]);
}
