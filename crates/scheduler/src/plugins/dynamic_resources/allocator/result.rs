//! The allocations that a search has found, as objects of the API.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1 as wire;

use super::{Allocator, Candidate, Choice, ClaimView};
use crate::affinity::NAME;
use crate::devices::views::Place;
use crate::devices::views::claim::wire_amounts;

impl Allocator<'_> {
    /// An allocation for each claim.
    pub(super) fn results(&self) -> Result<Vec<wire::AllocationResult>, String> {
        let claims = self.claims.iter().zip(&self.choices).enumerate();
        let result = |(at, (claim, choices)): (usize, (&&ClaimView, &Vec<Choice<'_>>))| {
            let selector = self.selector(choices);
            let selector = selector
                .map_err(|reason| format!("create NodeSelector for claim {}: {reason}", claim.key.name))?;
            let devices = wire::DeviceAllocationResult {
                config: Some(self.config(at, claim)).filter(|config| !config.is_empty()),
                results: Some(choices.iter().filter_map(|choice| self.result(choice)).collect())
                    .filter(|results: &Vec<_>| !results.is_empty()),
            };
            Ok(wire::AllocationResult {
                devices: Some(devices),
                node_selector: selector,
                ..wire::AllocationResult::default()
            })
        };
        claims.map(result).collect()
    }

    fn result(&self, choice: &Choice<'_>) -> Option<wire::DeviceRequestAllocationResult> {
        let Candidate { device, id, .. } = self.candidates.get(choice.candidate)?;
        let consumed = choice.consumed.as_ref().filter(|amounts| !amounts.is_empty());
        Some(wire::DeviceRequestAllocationResult {
            request: choice.name.clone(),
            driver: id.driver.to_string(),
            pool: id.pool.to_string(),
            device: id.device.to_string(),
            admin_access: choice.ask.is_admin().then_some(true),
            tolerations: Some(choice.ask.tolerations.clone()).filter(|list| !list.is_empty()),
            // The writer gives it its id.
            share_id: choice.consumed.is_some().then(String::new),
            consumed_capacity: consumed.map(wire_amounts),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        })
    }

    /// Configuration of the classes, each once, and of the claim.
    fn config(&self, at: usize, claim: &ClaimView) -> Vec<wire::DeviceAllocationConfiguration> {
        let mut all: Vec<wire::DeviceAllocationConfiguration> = Vec::new();
        let mut of_class = BTreeMap::new();
        let mut names = Vec::new();
        for (request_at, request) in claim.requests.iter().enumerate() {
            let subrequest = self.selected.get(&(at, request_at)).copied().unwrap_or(0);
            let Some(wanted) = self.wanted.get(&(at, request_at, subrequest)) else { continue };
            let name = request.result_name(wanted.ask);
            if let Some(range) = of_class.get(&wanted.class.name) {
                let range: &std::ops::Range<usize> = range;
                let known = all.iter_mut().skip(range.start).take(range.len());
                known.for_each(|it| it.requests.get_or_insert_default().push(name.clone()));
            } else {
                let start = all.len();
                all.extend(wanted.class.config.iter().map(|config| wire::DeviceAllocationConfiguration {
                    opaque: config.opaque.clone(),
                    requests: Some(vec![name.clone()]),
                    source: "FromClass".to_owned(),
                }));
                of_class.insert(&wanted.class.name, start..all.len());
            }
            names.push((&request.name, name));
        }
        for config in &claim.config {
            let of_claim = || wire::DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: config.requests.clone(),
                source: "FromClaim".to_owned(),
            };
            let requests = config.requests.as_deref().unwrap_or_default();
            if requests.is_empty() {
                all.push(of_claim());
                continue;
            }
            let listed =
                names.iter().filter(|(name, full)| requests.contains(name) || requests.contains(full));
            all.extend(listed.map(|_| of_claim()));
        }
        all
    }

    /// The nodes that reach all of the devices; `None`: all.
    fn selector(&self, choices: &[Choice<'_>]) -> Result<Option<NodeSelector>, String> {
        let (mut fields, mut expressions) = (Vec::new(), Vec::new());
        for choice in choices {
            let Some(Candidate { slice, device, .. }) = self.candidates.get(choice.candidate) else {
                continue;
            };
            let place = slice.place_of(device);
            if matches!(place, Place::Node(_)) || device.binds_to_node {
                let this = NodeSelectorRequirement {
                    key: NAME.to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![self.node.name.to_string()]),
                };
                return Ok(Some(one_term(vec![this], Vec::new())));
            }
            let Place::Selected(selector) = place else { continue };
            match selector.wire.node_selector_terms.as_slice() {
                [] => {}
                [term] => {
                    add_new(&mut fields, term.match_fields.iter().flatten());
                    add_new(&mut expressions, term.match_expressions.iter().flatten());
                }
                terms => {
                    return Err(format!("unsupported ResourceSlice.NodeSelector with {} terms", terms.len()));
                }
            }
        }
        let is_limited = !fields.is_empty() || !expressions.is_empty();
        Ok(is_limited.then(|| one_term(fields, expressions)))
    }
}

fn one_term(fields: Vec<NodeSelectorRequirement>, expressions: Vec<NodeSelectorRequirement>) -> NodeSelector {
    let some = |list: Vec<NodeSelectorRequirement>| Some(list).filter(|list| !list.is_empty());
    let term = NodeSelectorTerm { match_fields: some(fields), match_expressions: some(expressions) };
    NodeSelector { node_selector_terms: vec![term] }
}

fn add_new<'a>(
    to: &mut Vec<NodeSelectorRequirement>,
    from: impl Iterator<Item = &'a NodeSelectorRequirement>,
) {
    let values =
        |it: &NodeSelectorRequirement| -> BTreeSet<String> { it.values.iter().flatten().cloned().collect() };
    for new in from {
        let is_same = |known: &NodeSelectorRequirement| {
            known.key == new.key && known.operator == new.operator && values(known) == values(new)
        };
        if !to.iter().any(is_same) {
            to.push(new.clone());
        }
    }
}
