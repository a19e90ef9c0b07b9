//! What the operator asked for in all scenarios of DeviceConfigs, against what it may: nothing was denied, and there is no right that nothing
//! used.
//!
//! In: audit logs. Out: rights that nothing used. Never: a scenario of its own. It is the last by its name.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use deployer::platform::Platform;
use k8s_openapi::api::rbac::v1::PolicyRule;
use operator::deviceconfig::{manifests, rbac};
use operator::rbac::missing;
use testkit::audit::Request;
use testkit::controlplane::ControlPlane;

use super::super::within_rights::{is_filtered, used};
use super::lab::{self, Lab};
use super::scenarios::SCENARIOS;

/// How long all of them may take.
const ALL_WITHIN: Duration = Duration::from_secs(1200);

static PLAYED: Mutex<Played> = Mutex::new(Played { ended: 0, noted: 0, requests: Vec::new() });

struct Played {
    /// Scenarios that ended, however.
    ended: usize,
    /// Scenarios that ended well.
    noted: usize,
    /// What was asked in clusters that are not shared.
    requests: Vec<Request>,
}

/// A scenario that is being played.
pub(crate) struct Scenario(());

impl Scenario {
    pub(crate) fn begin() -> Self {
        Self(())
    }

    /// Notes that it went well in the shared cluster, whose log is read when all have been played.
    pub(crate) fn note(self, lab: &Lab) {
        let denied: Vec<String> =
            ours(&lab.control).filter(is_denied).map(|request| request.to_string()).collect();
        assert_eq!(denied, [""; 0]);
        PLAYED.lock().unwrap().noted += 1;
    }

    /// Notes what was asked for in a cluster of its own.
    pub(crate) fn note_all(self, control: &ControlPlane) {
        let requests: Vec<Request> = ours(control).collect();
        let denied: Vec<String> =
            requests.iter().filter(|one| is_denied(one)).map(ToString::to_string).collect();
        assert_eq!(denied, [""; 0]);
        let mut played = PLAYED.lock().unwrap();
        played.noted += 1;
        played.requests.extend(requests);
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        if let Ok(mut played) = PLAYED.lock() {
            played.ended += 1;
        }
    }
}

/// What the operator's account asked for.
fn ours(control: &ControlPlane) -> impl Iterator<Item = Request> {
    let who = format!("system:serviceaccount:{}:{}", manifests::NAMESPACE, manifests::CONTROLLER.name);
    let all = control.audit().unwrap().requests().unwrap();
    all.into_iter().filter(move |request| request.user.username == who)
}

/// KMM's policies answer so too, and an API server that has not heard of a new kind; both are told by the text.
fn is_denied(request: &Request) -> bool {
    let answer = &request.response_status;
    let is_other = ["ValidatingAdmissionPolicy", "cannot find RESTMapping"];
    answer.code == 403 && !is_other.iter().any(|text| answer.message.contains(text))
}

#[test]
fn every_right_is_used() {
    // All of them can also be played without the operator's others.
    let all = std::env::args().any(|word| word == "hardware::");
    if testkit::env::rig().is_err() || is_filtered() && !all {
        return;
    }
    let began = Instant::now();
    while PLAYED.lock().unwrap().ended < SCENARIOS {
        assert!(began.elapsed() < ALL_WITHIN, "scenarios that never end");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(PLAYED.lock().unwrap().noted, SCENARIOS, "scenarios have failed");
    // Watches are in the log when they are over.
    let mut requests = lab::over();
    requests.retain(|request| request.user.username.ends_with(manifests::CONTROLLER.name));
    requests.append(&mut PLAYED.lock().unwrap().requests);
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
    // Asked by the API server itself, about every object that blocks the deletion of its owner.
    any.push(api::rbac::rule(api::hardware::GROUP, &["deviceconfigs/finalizers"], &["update"]));
    let rules = rbac::rules(Platform::Kubernetes);
    let mut unused = Vec::new();
    for rule in [rules.cluster, rules.namespaced].concat() {
        let used = if rule.resource_names.is_some() { &named } else { &any };
        unused.extend(missing(used, &[rule]));
    }
    println!("rights: {} requests in {SCENARIOS} scenarios, unused rights: {}", requests.len(), unused.len());
    assert_eq!(unused, [""; 0]);
}
