//! Extended resources of a pod that devices serve where no device plugin does.
//!
//! In: the requests of a pod, and a node. Out: the claim that is to be made for the pod there, with the request behind
//! each resource of a container. Never: a claim for a resource that the node's device plugin has.
//!
//! Source: kube-scheduler 1.36 `dynamicresources/extendeddynamicresources`. Where the device plugin serves all extended
//! resources of a pod that has claims of its own, no claim without requests is made: kube-scheduler makes one, and
//! fails to bind the pod. Cost for each node: containers x resources that devices serve there.

use std::sync::Arc;

use topology::request::{ContainerKind, ContainerNeeds, PodNeeds};
use topology::resource::ResourceName;

use crate::devices::Devices;
use crate::devices::extended::{UNWRITTEN, is_extended};
use crate::devices::views::Amounts;
use crate::devices::views::claim::{Ask, Asks, ClaimView, Mode, Readiness, Request};
use crate::node::{self, NodeView};
use crate::reason::Reason;
use crate::volumes::reference::ClaimKey;

/// A claim that is to be made for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtendedClaim {
    /// The claim, which no API server has yet.
    pub view: ClaimView,
    /// The requests behind the resources of the containers.
    pub mappings: Vec<Mapping>,
}

/// A request that serves a resource of a container (`ContainerExtendedResourceRequest`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The container.
    pub container: Box<str>,
    /// The resource.
    pub resource: ResourceName,
    /// The name of the request.
    pub request: String,
}

/// A request before it is part of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewRequest {
    name: String,
    class: Arc<str>,
    count: i64,
}

/// A claim for the extended resources of a pod on a node. `None`: the node's device plugin serves them all.
///
/// # Errors
/// The [`Reason`] against the node.
pub(super) fn claim_on(
    (needs, namespace): (&PodNeeds, &Arc<str>),
    devices: &Devices,
    view: &NodeView,
) -> Result<Option<ExtendedClaim>, Reason> {
    let mut served = Vec::new();
    for need in needs.totals.iter().filter(|need| need.amount > 0 && is_extended(need.name)) {
        let listed = view.allocatable.binary_search_by_key(&need.name, |it| it.name);
        match devices.class_behind(need.name) {
            Some(class) if view.allocatable(need.name) == 0 => {
                served.push((need.name, Arc::clone(&class.name)))
            }
            _ if listed.is_err() => return Err(Reason::NotServed),
            _ => {}
        }
    }
    if served.is_empty() {
        return Ok(None);
    }
    served.sort_unstable_by_key(|(resource, _)| resource.as_str());
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in &served {
        add(&needs.containers, (*resource, class), &mut requests, &mut mappings);
    }
    requests.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(ExtendedClaim { view: unwritten(namespace, requests), mappings }))
}

/// A claim with these requests, before it is written.
fn unwritten(namespace: &Arc<str>, requests: Vec<NewRequest>) -> ClaimView {
    let request = |it: NewRequest| Request {
        name: it.name.clone(),
        asks: Asks::One(Ask {
            name: it.name,
            class: it.class,
            mode: Mode::Exact(it.count),
            selectors: Vec::new(),
            admin_access: None,
            tolerations: Vec::new(),
            capacity: Amounts::new(),
        }),
    };
    ClaimView {
        key: ClaimKey { namespace: Arc::clone(namespace), name: UNWRITTEN.into() },
        uid: "".into(),
        version: 0,
        is_leaving: false,
        is_protected: false,
        controller: None,
        is_extended: true,
        requests: requests.into_iter().map(request).collect(),
        constraints: Vec::new(),
        config: Vec::new(),
        allocation: None,
        reserved_for: Vec::new(),
        readiness: Readiness::Ready,
    }
}

/// Adds the requests and mappings of one resource. Init containers use the devices of containers that start after them,
/// and share one request for what these lack: they run one after the other (1.36 `createRequestsAndMappings`).
fn add(
    containers: &[ContainerNeeds],
    (resource, class): (ResourceName, &Arc<str>),
    requests: &mut Vec<NewRequest>,
    mappings: &mut Vec<Mapping>,
) {
    let asked = |container: &ContainerNeeds| node::amount(&container.needs, resource);
    let wanted = |at: usize, container: &ContainerNeeds, count: i64| NewRequest {
        name: request_name(at, container, resource),
        class: Arc::clone(class),
        count,
    };
    let mapping = |container: &ContainerNeeds, request: &str| Mapping {
        container: container.name.clone(),
        resource,
        request: request.to_owned(),
    };
    let each = || containers.iter().enumerate().filter(|(_, container)| asked(container) > 0);
    let running: Vec<(usize, NewRequest)> = each()
        .filter(|(_, container)| container.kind.keeps_running())
        .map(|(at, container)| (at, wanted(at, container, asked(container))))
        .collect();
    mappings.extend(running.iter().filter_map(|(at, it)| Some(mapping(containers.get(*at)?, &it.name))));
    let mut most: Option<NewRequest> = None;
    let (mut of_init, mut own) = (Vec::new(), Vec::new());
    for (at, container) in each().filter(|(_, container)| container.kind == ContainerKind::Init) {
        let mut lacking = asked(container);
        for (_, reused) in running.iter().filter(|(later, _)| *later >= at) {
            if lacking <= 0 {
                break;
            }
            of_init.push(mapping(container, &reused.name));
            lacking -= reused.count;
        }
        if lacking > 0 {
            let request = wanted(at, container, lacking);
            own.push(of_init.len());
            of_init.push(mapping(container, &request.name));
            if most.as_ref().is_none_or(|most| most.count < request.count) {
                most = Some(request);
            }
        }
    }
    if let Some(most) = most {
        own.into_iter()
            .filter_map(|at| of_init.get_mut(at).map(|it| it.request.clone_from(&most.name)))
            .for_each(drop);
        requests.push(most);
    }
    requests.extend(running.into_iter().map(|(_, request)| request));
    mappings.append(&mut of_init);
}

/// The name of a request: the number of the container, and that of the resource among those of the container by name.
fn request_name(at: usize, container: &ContainerNeeds, resource: ResourceName) -> String {
    let before = container.needs.iter().filter(|need| need.name.as_str() < resource.as_str()).count();
    format!("container-{at}-request-{before}")
}

#[cfg(test)]
mod tests;
