//! One session, answer by answer.
//!
//! In: a session and the answers of a kubelet to it. Out: the first difference to the model, if there is one. Never: a
//! difference excused; the one freedom is which of equally good devices the kubelet takes, and the model must agree
//! that they are.

use std::collections::BTreeSet;

use serde_json::Value;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::profile::Minor;

use crate::tally::Tally;
use sim::admit::model::{Chosen, Model, registration};
use sim::admit::session::{Session, Step};
use sim::admit::verdict::{PodVerdict, Resized, Restarted, Started, Verdict};

/// The first step in which model and kubelet differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The step; 0 is the start.
    pub step: usize,
    /// What the kubelet did.
    pub kubelet: String,
    /// What the model did.
    pub model: String,
}

/// Compares a session. Counts what was compared in `tally`.
///
/// # Errors
/// When an answer, a pod or the machine cannot be read.
pub fn compare(
    session: &Session,
    answers: &[Value],
    minor: Minor,
    tally: &mut Tally,
) -> anyhow::Result<Option<Difference>> {
    let started: Started = read(&answers[0])?;
    let model = Model::start(session, minor)?;
    tally.start(session, started.ok);
    let mut model = match model {
        Err(_) if !started.ok => return Ok(None),
        Ok(model) if started.ok => model,
        Ok(_) => return Ok(difference(0, &started, "starts")),
        Err(refused) => return Ok(difference(0, "starts", &refused)),
    };
    let mut alive = BTreeSet::new();
    for (at, (step, answer)) in (1..).zip(session.steps.iter().zip(&answers[1..])) {
        match step {
            Step::Admit { pod } => {
                let mut kubelet: Verdict = read(answer)?;
                kubelet.pod = kubelet.pod.filter(|pod| *pod != PodVerdict::default());
                let verdict = model.admit(pod, &Chosen::of(&kubelet))?;
                kubelet.held.clear();
                if model.is_by_chance() {
                    tally.by_chance += 1;
                    return Ok(None);
                }
                tally.admission(session, &kubelet);
                if !is_same(&kubelet, &verdict) {
                    return Ok(difference(at, &kubelet, &verdict));
                }
                if kubelet.admitted {
                    alive.insert(pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
                }
            }
            Step::Remove { uid } => {
                if alive.remove(uid) {
                    model.remove(uid);
                }
            }
            Step::Resize { pod } => {
                if !alive.contains(pod["metadata"]["uid"].as_str().unwrap_or_default()) {
                    continue;
                }
                let kubelet: Resized = read(answer)?;
                let resized = model.resize(pod)?;
                if model.is_by_chance() {
                    tally.by_chance += 1;
                    return Ok(None);
                }
                tally.resize(&kubelet);
                if kubelet != resized {
                    return Ok(difference(at, &kubelet, &resized));
                }
            }
            Step::Restart { plugins } => {
                let kubelet: Restarted = read(answer)?;
                tally.restart();
                let restarted = model.restart(registration(*plugins), &Lowest);
                if model.is_by_chance() {
                    tally.by_chance += 1;
                    return Ok(None);
                }
                if !is_same_restart(&kubelet, &restarted) {
                    return Ok(difference(at, &kubelet, &restarted));
                }
                if !kubelet.ok {
                    return Ok(None); // There is no kubelet any more.
                }
                for pod in &kubelet.rejected {
                    alive.remove(&pod.uid);
                }
            }
        }
    }
    Ok(None)
}

/// Several scalar resources may be short at once, and the kubelet names any of them.
fn is_same(kubelet: &Verdict, model: &Verdict) -> bool {
    kubelet == model
}

/// The kubelet goes through its containers in any order, and names the first that overlaps.
fn is_same_restart(kubelet: &Restarted, model: &Restarted) -> bool {
    let overlaps = |restarted: &Restarted| restarted.error.contains("overlaps with default cpuset");
    kubelet == model || (overlaps(kubelet) && overlaps(model))
}

fn read<T: serde::de::DeserializeOwned>(answer: &Value) -> anyhow::Result<T> {
    if let Some(panic) = answer.get("panic") {
        anyhow::bail!("the kubelet panicked: {panic}");
    }
    if let (Some(error), None) = (answer.get("error"), answer.get("ok"))
        && answer.get("admitted").is_none()
    {
        anyhow::bail!("the oracle answers: {error}");
    }
    Ok(T::deserialize(answer)?)
}

fn difference(
    step: usize,
    kubelet: &(impl std::fmt::Debug + ?Sized),
    model: &(impl std::fmt::Debug + ?Sized),
) -> Option<Difference> {
    Some(Difference { step, kubelet: format!("{kubelet:?}"), model: format!("{model:?}") })
}
