//! What the operator asked for in all scenarios, against what it may: nothing was denied, and there is no right that
//! nothing used.
//!
//! In: audit logs. Out: rights that nothing used. Never: a scenario of its own. It is the last by its name: with one
//! thread, all others have been played when it begins.

use std::sync::Mutex;

use api::rbac::{Rules, missing};
use deployer::platform::Platform;
use k8s_openapi::api::rbac::v1::PolicyRule;
use operator::manifests;
use operator::rbac::rules;
use testkit::audit::Request;
use testkit::controlplane::ControlPlane;

use super::rig::NAMESPACE;
use super::scenario::{Played, Scenario, asked_in_all};

/// How many scenarios there are: calls of [`Scenario::begin`] with [`PLAYED`].
const SCENARIOS: usize = 12;

/// What happened so far.
pub(crate) static PLAYED: Mutex<Played> = Mutex::new(Played::NOTHING);

/// Notes what the operator's account asked for; nothing may have been denied. The operator has ended.
pub(crate) async fn note(scenario: Scenario, control: &ControlPlane, granted: Vec<PolicyRule>) {
    let requests = asked_in_all(control, NAMESPACE, manifests::NAME).await;
    let denied = requests.iter().filter(|request| request.response_status.code == 403);
    assert_eq!(denied.map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
    scenario.note(requests, granted);
}

/// Whether only some of the tests run.
pub(crate) fn is_filtered() -> bool {
    let words: Vec<String> = std::env::args().skip(1).collect();
    words.iter().any(|word| {
        word == "--skip" || word == "--exact" || !word.starts_with('-') && word.parse::<u32>().is_err()
    })
}

#[test]
fn every_right_is_used() {
    // B-36.
    if testkit::env::rig().is_err() || is_filtered() {
        return;
    }
    let played = Played::all(&PLAYED, SCENARIOS);
    let (mut any, mut named) = used(&played.requests, played.granted.clone());
    asked_elsewhere(&mut any, &mut named);
    let unused: Vec<String> = Platform::ALL
        .into_iter()
        .flat_map(|platform| {
            let unused = unused(rules(platform), &any, &named);
            unused.into_iter().map(move |right| format!("{platform}: {right}"))
        })
        .collect();
    println!(
        "rights: {} requests in {SCENARIOS} scenarios, unused rights: {}",
        played.requests.len(),
        unused.len()
    );
    assert_eq!(unused, [""; 0]);
}

/// Rights of these that nothing used: `any` is what was used whatever its name, `named` by name.
pub(crate) fn unused(rules: Rules, any: &[PolicyRule], named: &[PolicyRule]) -> Vec<String> {
    let all = [rules.cluster, rules.namespaced, rules.config_managed].concat();
    let of = |rule: PolicyRule| missing(if rule.resource_names.is_some() { named } else { any }, &[rule]);
    all.into_iter().flat_map(of).collect()
}

/// What was used as rules, with what was granted: whatever its name, and by name.
pub(crate) fn used(requests: &[Request], granted: Vec<PolicyRule>) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let (mut any, mut named) = (granted.clone(), granted);
    for request in requests {
        for rule in request.rules() {
            let names = Some(vec![request.name().to_owned()]);
            any.push(rule.clone());
            named.push(PolicyRule { resource_names: names, ..rule });
        }
    }
    (any, named)
}

/// What others ask in the operator's name.
fn asked_elsewhere(any: &mut Vec<PolicyRule>, named: &mut Vec<PolicyRule>) {
    // Asked by kubelets; [`super::whole`] sees that they answer.
    any.push(exporter::rbac::configz());
    // Asked by the API server itself, about every object that blocks the deletion of its owner.
    for (kind, name) in [
        ("numaresourcesoperators", "numaresourcesoperator"),
        ("numaresourcesschedulers", "numaresourcesscheduler"),
    ] {
        let resource = format!("{kind}/finalizers");
        named.push(api::rbac::rule_for(api::numaresources::GROUP, &[&resource], name, &["update"]));
    }
}
