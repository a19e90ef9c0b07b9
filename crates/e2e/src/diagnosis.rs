//! What was found when a spec failed.
//!
//! In: a fixture. Out: its pods, their events, the reports of its nodes, what the model says of the pods that wait, and
//! what the stack has logged about them.
//! Never: more than a page.

use std::fmt::Write as _;

use topology::admit::{Scratch, admit};

use crate::amounts::Amounts;
use crate::cluster::NAMESPACE;
use crate::fixture::Fixture;
use crate::logs::{self, Severity};
use crate::observed::Observed;
use crate::placement::state_of;
use crate::pods::SPEC_LABEL;
use crate::settled;

/// The most pods and events of a diagnosis.
const MOST: usize = 20;

/// The page.
pub async fn of(fixture: &Fixture) -> String {
    let state = fixture.cluster().observer.now();
    let mut text = String::new();
    nodes(fixture, &state, &mut text);
    pods(fixture, &state, &mut text);
    said(fixture, &mut text).await;
    text
}

/// The last words of the stack's programs about the spec's objects.
async fn said(fixture: &Fixture, text: &mut String) {
    let lines = logs::of_stack(fixture.cluster(), fixture.began()).await;
    let prefix = format!("{}-", fixture.name());
    let about = lines.iter().filter(|line| line.severity > Severity::Info || line.text.contains(&prefix));
    let about: Vec<_> = about.collect();
    for line in about.iter().skip(about.len().saturating_sub(MOST)) {
        _ = writeln!(text, "log of pod {}: {}", line.pod, line.text);
    }
}

fn nodes(fixture: &Fixture, state: &Observed, text: &mut String) {
    for node in fixture.nodes() {
        match settled::topology(state, &node.name) {
            Err(reason) => _ = writeln!(text, "{reason}"),
            Ok(topology) => {
                let unsettled = settled::settled(state, &node.name).err();
                let note = unsettled.map(|reason| format!(" ({reason})")).unwrap_or_default();
                _ = writeln!(text, "node {}{note}", node.name);
                let free = topology.available();
                for zone in &topology.zones {
                    _ = writeln!(text, "  zone {}: {} free", zone.id.0, Amounts::of_zone(&free, zone.id));
                }
            }
        }
    }
}

fn pods(fixture: &Fixture, state: &Observed, text: &mut String) {
    let labels = fixture.labels();
    let own = state.pods.iter().filter(|((namespace, _), pod)| {
        namespace == NAMESPACE
            && pod.metadata.labels.as_ref().and_then(|l| l.get(SPEC_LABEL)) == labels.get(SPEC_LABEL)
    });
    for ((_, name), pod) in own.take(MOST) {
        _ = writeln!(text, "pod {name}: {}", state_of(pod));
        let waits = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
        if let Ok(request) = api::convert::pod_request(pod)
            && waits
        {
            let needs = request.needs();
            for node in fixture.nodes() {
                let Ok(topology) = settled::topology(state, &node.name) else { continue };
                let answer = admit(topology.rules, &topology.available(), &needs, &mut Scratch::default());
                let answer =
                    answer.map_or_else(|misfit| misfit.constraint.to_string(), |_| "it fits".to_owned());
                _ = writeln!(text, "  the model for node {}: {answer}", node.name);
            }
        }
        let uid = pod.metadata.uid.as_deref();
        let events = state.events.values().filter(|event| event.involved_object.uid.as_deref() == uid);
        for event in events.take(MOST) {
            let word = |word: &Option<String>| word.clone().unwrap_or_default();
            _ = writeln!(text, "  {}: {}", word(&event.reason), word(&event.message));
        }
    }
}
