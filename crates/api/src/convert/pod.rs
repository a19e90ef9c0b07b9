//! The resource requests of a pod: from `Pod` to [`PodRequest`].
//!
//! In: a pod of an API server or a file. Out: requests and limits of all its containers. Never: a default other than
//! the API server's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use topology::quantity::Quantity;
use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
use topology::resource::ResourceName;

use super::{ConvertError, Problem};

/// A resource list of a container.
type Wire = BTreeMap<String, WireQuantity>;
/// Amounts in name order, each name once.
type Amounts = Vec<(ResourceName, Quantity)>;

/// Most entries of one list that [`charged_request`] reads. No kubelet has so many resources.
const MAX_ENTRIES: usize = 256;

/// Reads the resource requests and limits of a pod. Missing requests are taken from the limits, as the API server does
/// on creation, so pods from files equal pods from a cluster.
///
/// With pod-level resources the kubelet pins neither CPUs nor memory (1.36, gate `PodLevelResourceManagers` off), so
/// such a pod is never Guaranteed here.
///
/// # Errors
/// [`ConvertError`] with the field's path: for amounts that are no quantities or negative, and for invalid resource
/// names.
pub fn pod_request(pod: &Pod) -> Result<PodRequest, ConvertError> {
    let mut request = whole_pod_request(pod)?;
    if !request.pod_level.is_empty() {
        request.stated_qos = Some(Qos::Burstable);
    }
    Ok(request)
}

/// As [`pod_request`], with the QoS class of pods with pod-level resources, for the model of the kubelet.
///
/// # Errors
/// As [`pod_request`].
pub fn whole_pod_request(pod: &Pod) -> Result<PodRequest, ConvertError> {
    let spec = pod.spec.as_ref();
    let namespace = namespace(pod);
    let mut containers = Vec::new();
    for (wire, kind, at) in members(pod) {
        let list = if kind == ContainerKind::App { "containers" } else { "initContainers" };
        let request = container(wire, kind, namespace);
        containers.push(request.map_err(|error| error.within(&format!("spec.{list}[{at}].")))?);
    }
    let read = |wire, path| list(wire, namespace).map_err(|error: ConvertError| error.within(path));
    let overhead = read(spec.and_then(|spec| spec.overhead.as_ref()), "spec.overhead")?;
    let resources = spec.and_then(|spec| spec.resources.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let pod_level_limits = read(limits, "spec.resources.limits")?;
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let mut pod_level = read(requests, "spec.resources.requests")?;
    add_missing(&mut pod_level, &pod_level_limits);
    Ok(PodRequest { containers, overhead, stated_qos: stated_qos(pod), pod_level, pod_level_limits })
}

/// The requests that a node's totals count of a pod on it, as far as they can be read: never nothing because of one bad
/// field. While a resize is under way the largest of the desired, allocated and actual requests counts, and the desired
/// one does not if the resize is infeasible (component-helpers 1.36 `resource.PodRequests` with `UseStatusResources`).
/// What claims for devices take of the node's own resources is added (`UseDRANodeAllocatableResourceClaimStatus`), but
/// for resources that the pod states as a whole.
///
/// `stated`: the answer of [`pod_request`], so that nothing is read twice. `None`: exactly these requests count.
#[must_use]
pub fn charged_request(pod: &Pod, stated: Option<&PodRequest>) -> Option<PodRequest> {
    if stated.is_some() && !has_amounts_in_status(pod) {
        return None;
    }
    let namespace = namespace(pod);
    let infeasible = is_resize_infeasible(pod);
    let charged = |stated: Amounts, actual: Option<&Wire>, allocated: Option<&Wire>| {
        let mut requests = readable(actual, namespace);
        join(&mut requests, readable(allocated, namespace), Quantity::max);
        if !infeasible || requests.is_empty() {
            join(&mut requests, stated, Quantity::max);
        }
        requests
    };
    let containers = members(pod).enumerate().map(|(at, (wire, kind, _))| {
        let stated = stated.and_then(|stated| stated.containers.get(at)).cloned();
        let container = stated.unwrap_or_else(|| readable_container(wire, kind, namespace));
        let status = status_of(pod, kind, &wire.name);
        let actual = status.and_then(|status| status.resources.as_ref()?.requests.as_ref());
        let allocated = status.and_then(|status| status.allocated_resources.as_ref());
        ContainerRequest { requests: charged(container.requests, actual, allocated), ..container }
    });
    let containers = containers.collect();
    let mut overhead = readable(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()), namespace);
    let stated = pod_level(pod);
    let (status, names) = (pod.status.as_ref(), stated.clone());
    let actual = status.and_then(|status| status.resources.as_ref()?.requests.as_ref());
    let allocated = status.and_then(|status| status.allocated_resources.as_ref());
    let mut pod_level = charged(stated, actual, allocated);
    // Amounts that the spec does not name say nothing of the pod as a whole.
    pod_level.retain(|(name, _)| names.iter().any(|(stated, _)| stated == name));
    let is_stated = |name: &ResourceName| pod_level.iter().any(|(stated, _)| stated == name);
    let claimed = claimed(pod).filter(|(name, _)| !is_stated(name));
    join(&mut overhead, claimed, Quantity::saturating_add);
    let stated_qos = if pod_level.is_empty() { stated_qos(pod) } else { Some(Qos::Burstable) };
    Some(PodRequest { containers, overhead, stated_qos, pod_level, pod_level_limits: Vec::new() })
}

/// What the kubelet has allocated to a pod on its node: `stated` with the CPUs and the memory that the status has in
/// their place. The spec has what is desired, which a kubelet with a static policy refuses to give (kubelet 1.36
/// `UpdatePodFromAllocation`). The QoS class stays, as the API server sees to. `None`: what is stated.
#[must_use]
pub fn allocated_request(pod: &Pod, stated: &PodRequest) -> Option<PodRequest> {
    if !has_amounts_in_status(pod) {
        return None;
    }
    let mut allocated = stated.clone();
    for ((wire, kind, _), container) in members(pod).zip(&mut allocated.containers) {
        let status = status_of(pod, kind, &wire.name);
        let amounts = readable(status.and_then(|status| status.allocated_resources.as_ref()), namespace(pod));
        for (name, request) in &mut container.requests {
            if let Ok(at) = amounts.binary_search_by_key(name, |(known, _)| *known) {
                *request = amounts[at].1;
            }
        }
    }
    allocated.stated_qos = Some(stated.qos());
    (allocated.containers != stated.containers).then_some(allocated)
}

/// What claims for devices take of the node's own resources, as the scheduler that bound the pod has written it
/// (Kubernetes 1.36, gate `DRANodeAllocatableResources`). A name may come several times.
fn claimed(pod: &Pod) -> impl Iterator<Item = (ResourceName, Quantity)> {
    let status = pod.status.as_ref();
    let claims = status.and_then(|status| status.node_allocatable_resource_claim_statuses.as_ref());
    let claims = claims.into_iter().flatten().take(MAX_ENTRIES);
    claims.flat_map(|claim| readable(Some(&claim.resources), namespace(pod)))
}

/// Whether a status has amounts, as kubelets with in-place resize write them, and schedulers for claims.
fn has_amounts_in_status(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    status.resources.is_some()
        || status.node_allocatable_resource_claim_statuses.is_some()
        || status.allocated_resources.is_some()
        || all.any(|container| container.resources.is_some() || container.allocated_resources.is_some())
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// Containers in the order in which the kubelet admits them, each with its place in its list.
fn members(pod: &Pod) -> impl Iterator<Item = (&Container, ContainerKind, usize)> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten().enumerate();
    let init = init.map(|(i, wire)| {
        let sidecar = wire.restart_policy.as_deref() == Some("Always");
        let kind = if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
        (wire, kind, i)
    });
    let app = spec.into_iter().flat_map(|spec| &spec.containers).enumerate();
    init.chain(app.map(|(i, wire)| (wire, ContainerKind::App, i)))
}

fn stated_qos(pod: &Pod) -> Option<Qos> {
    match pod.status.as_ref()?.qos_class.as_deref()? {
        "Guaranteed" => Some(Qos::Guaranteed),
        "Burstable" => Some(Qos::Burstable),
        "BestEffort" => Some(Qos::BestEffort),
        _ => None,
    }
}

/// What can be read of pod-level requests.
fn pod_level(pod: &Pod) -> Amounts {
    let namespace = namespace(pod);
    let Some(stated) = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()) else { return Vec::new() };
    let mut amounts = readable(stated.requests.as_ref(), namespace);
    add_missing(&mut amounts, &readable(stated.limits.as_ref(), namespace));
    amounts
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut conditions = status.conditions.iter().flatten();
    let infeasible = Some("Infeasible");
    conditions.any(|one| one.type_ == "PodResizePending" && one.reason.as_deref() == infeasible)
        || status.resize.as_deref() == infeasible
}

fn status_of<'a>(pod: &'a Pod, kind: ContainerKind, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let statuses = match kind {
        ContainerKind::App => &status.container_statuses,
        ContainerKind::Init | ContainerKind::Sidecar => &status.init_container_statuses,
    };
    statuses.iter().flatten().find(|status| status.name == name)
}

fn container(
    wire: &Container,
    kind: ContainerKind,
    namespace: &str,
) -> Result<ContainerRequest, ConvertError> {
    let resources = wire.resources.as_ref();
    let read = |wire, field| list(wire, namespace).map_err(|e: ConvertError| e.within(field));
    let limits = read(resources.and_then(|r| r.limits.as_ref()), "resources.limits")?;
    let mut requests = read(resources.and_then(|r| r.requests.as_ref()), "resources.requests")?;
    add_missing(&mut requests, &limits);
    Ok(ContainerRequest { name: wire.name.as_str().into(), kind, requests, limits })
}

/// What can be read of a container's requests and limits.
fn readable_container(wire: &Container, kind: ContainerKind, namespace: &str) -> ContainerRequest {
    let resources = wire.resources.as_ref();
    let limits = readable(resources.and_then(|resources| resources.limits.as_ref()), namespace);
    let mut requests = readable(resources.and_then(|resources| resources.requests.as_ref()), namespace);
    add_missing(&mut requests, &limits);
    ContainerRequest { name: wire.name.as_str().into(), kind, requests, limits }
}

/// Takes requests that are missing from the limits.
fn add_missing(requests: &mut Amounts, limits: &Amounts) {
    for (name, limit) in limits {
        if let Err(at) = requests.binary_search_by_key(name, |(known, _)| *known) {
            requests.insert(at, (*name, *limit));
        }
    }
}

/// Joins amounts into others; of a name that both have, `both` says how much.
fn join(
    amounts: &mut Amounts,
    more: impl IntoIterator<Item = (ResourceName, Quantity)>,
    both: fn(Quantity, Quantity) -> Quantity,
) {
    for (name, amount) in more {
        match amounts.binary_search_by_key(&name, |(known, _)| *known) {
            Ok(at) => amounts[at].1 = both(amounts[at].1, amount),
            Err(at) => amounts.insert(at, (name, amount)),
        }
    }
}

/// A resource list in name order. Errors carry `[name]` as their path.
fn list(wire: Option<&Wire>, namespace: &str) -> Result<Amounts, ConvertError> {
    let mut list = Vec::new();
    for (name, amount) in wire.into_iter().flatten() {
        let entry = entry(name, amount, namespace);
        list.push(entry.map_err(|problem| problem.at(format!("[{name}]")))?);
    }
    list.sort_unstable_by_key(|(name, _)| *name);
    Ok(list)
}

/// The readable entries of a resource list, in name order.
fn readable(wire: Option<&Wire>, namespace: &str) -> Amounts {
    let entries = wire.into_iter().flatten().take(MAX_ENTRIES);
    let mut list: Amounts =
        entries.filter_map(|(name, amount)| entry(name, amount, namespace).ok()).collect();
    list.sort_unstable_by_key(|(name, _)| *name);
    list
}

fn entry(name: &str, amount: &WireQuantity, namespace: &str) -> Result<(ResourceName, Quantity), Problem> {
    let resource = ResourceName::of_pod(name, namespace)?;
    let quantity = Quantity::parse(amount.0.trim())?;
    if quantity.sign() < 0 {
        return Err(Problem::Negative(quantity));
    }
    Ok((resource, quantity))
}
