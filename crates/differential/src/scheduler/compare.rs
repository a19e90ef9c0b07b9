//! The two answers to a case, compared.

use anyhow::Context as _;
use serde::Deserialize as _;
use serde_json::Value;
use testkit::oracle::Oracle;

use crate::scheduler::case::{Answer, Case};
use crate::scheduler::placement::{Eviction, Placement, place};
use crate::scheduler::tally::Tally;

/// How the answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What kube-scheduler does.
    pub stock: String,
    /// What we do.
    pub ours: String,
}

/// Asks both about a case.
///
/// # Errors
/// When the case cannot be read, or a scheduler fails.
pub fn compare(
    oracle: &mut Oracle,
    case: &Case,
    seed: u64,
    tally: &mut Tally,
) -> anyhow::Result<Option<Difference>> {
    let answer = ask(oracle, case)?;
    tally.count(&answer);
    let placement = place(case, seed)?;
    let mut found = difference(&answer, &placement);
    if found.is_some()
        && let Some(reason) = explained(case, &answer, &placement)
    {
        *tally.explained.entry(reason.to_owned()).or_default() += 1;
        return Ok(None);
    }
    // Among equally good nodes to free, kube-scheduler takes the first of a Go map.
    for _ in 0..AGAIN {
        if found.is_none() || (answer.nominated.is_empty() && answer.deallocated.is_empty()) {
            break;
        }
        found = difference(&ask(oracle, case)?, &placement);
    }
    Ok(found)
}

/// Why answers may differ; docs/compatibility.md says it at length.
fn explained(case: &Case, stock: &Answer, ours: &Placement) -> Option<&'static str> {
    let is_ending = |pod: &Value| pod["metadata"].get("deletionTimestamp").is_some();
    let is_spread = case.pod["spec"].get("topologySpreadConstraints").is_some();
    // Its victims are fewer, as the terminating ones seem to be enough.
    let fewer = |eviction: &Eviction| {
        eviction.node == stock.nominated && stock.victims.len() < eviction.victims.len()
    };
    let stock_preempts_too_soon = match ours {
        Placement::Refused(_, eviction, _) => {
            !stock.nominated.is_empty() && eviction.as_ref().is_none_or(fewer)
        }
        Placement::Node(..) => false,
    };
    if stock_preempts_too_soon && is_spread && case.pods.iter().any(is_ending) {
        return Some("terminating pods counted out of a spread");
    }
    let namesake = |pod: &Value| {
        pod["metadata"]["namespace"] != case.pod["metadata"]["namespace"]
            && claims(pod).any(|claim| claims(&case.pod).any(|own| own == claim))
    };
    let is_refused = match ours {
        Placement::Refused(..) => stock.fits.is_empty(),
        // A nominated pod counts on some node.
        Placement::Node(_, fit, _) => {
            let mut refused = stock.refused.iter().filter(|(_, by)| by.plugin == "VolumeRestrictions");
            refused.any(|(node, _)| fit.contains_key(node))
        }
    };
    (is_refused && has_claim_alone(case) && case.pods.iter().any(namesake))
        .then_some("a claim of the same name in another namespace counted as the pod's")
}

/// Whether one pod at a time has a claim of the pod.
fn has_claim_alone(case: &Case) -> bool {
    case.storage.persistent_volume_claims.iter().any(|claim| {
        claim["metadata"]["namespace"] == case.pod["metadata"]["namespace"]
            && claims(&case.pod).any(|name| *name == claim["metadata"]["name"])
            && claim["spec"]["accessModes"]
                .as_array()
                .is_some_and(|modes| modes.contains(&"ReadWriteOncePod".into()))
    })
}

/// Names of a pod's claims.
fn claims(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"].get("claimName"))
}

/// How often kube-scheduler is asked again about a preemption that differs.
const AGAIN: usize = 24;

/// The answer of kube-scheduler's packages.
///
/// # Errors
/// When they cannot read the case, or fail.
pub fn ask(oracle: &mut Oracle, case: &Case) -> anyhow::Result<Answer> {
    let answer = oracle.request(&serde_json::to_value(case)?)?;
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        anyhow::bail!("kube-scheduler: {error}");
    }
    Answer::deserialize(&answer).with_context(|| answer.to_string())
}

/// Whether our placement is none that kube-scheduler could choose, or the scores or messages are not the same.
#[must_use]
pub fn difference(stock: &Answer, ours: &Placement) -> Option<Difference> {
    let best = stock.best();
    let agrees = match ours {
        // kube-scheduler scores where several nodes fit.
        Placement::Node(node, totals, claims) => {
            best.contains(&node.as_str())
                && (stock.scores.is_empty() || *totals == stock.totals())
                && stock.allocations.get(node).is_none_or(|allocations| allocations == claims)
        }
        Placement::Refused(message, eviction, claim) => {
            let (node, victims) = eviction.as_ref().map_or(("", &[][..]), |e| (&e.node, &e.victims));
            stock.fits.is_empty()
                && is_same_message(message, &stock.message)
                && claim.as_ref().is_none_or(|claim| stock.deallocated.contains(claim))
                && claim.is_some() != stock.deallocated.is_empty()
                && (node, victims) == (stock.nominated.as_str(), &stock.victims)
        }
    };
    (!agrees).then(|| Difference {
        stock: if best.is_empty() {
            let Answer { message, nominated, victims, deallocated, .. } = stock;
            format!("{message} {nominated:?} {victims:?} {deallocated:?}")
        } else {
            let all: Vec<&str> = stock.fits.iter().map(String::as_str).collect();
            let allocations = match ours {
                Placement::Node(node, ..) => stock.allocations.get(node),
                Placement::Refused(..) => None,
            };
            format!("{best:?} of {} {allocations:?}", scores(stock, &all))
        },
        ours: match ours {
            Placement::Node(node, totals, claims) => match stock.refused.get(node) {
                Some(refusal) => format!("{node}, which {} refuses", refusal.plugin),
                None => format!("{node} {totals:?} {claims:?}"),
            },
            Placement::Refused(message, eviction, claim) => format!("{message} {eviction:?} {claim:?}"),
        },
    })
}

/// Whether messages are equal. Of the errors that a filter has on several nodes kube-scheduler tells one at random.
fn is_same_message(ours: &str, stock: &str) -> bool {
    let filter = |message: &str| {
        let (plugin, _) = message.split_once("filter plugin: ")?;
        // Those of several nodes are a list.
        Some(plugin.replace('[', ""))
    };
    ours == stock || filter(ours).is_some_and(|ours| filter(stock) == Some(ours))
}

/// Nodes with their scores.
fn scores(stock: &Answer, nodes: &[&str]) -> String {
    let one = |node: &&str| {
        let plugins = stock.scores.get(*node).map(|score| &score.plugins);
        format!("{node} {:?} {plugins:?}", stock.total(node))
    };
    nodes.iter().map(one).collect::<Vec<_>>().join("; ")
}
