//! The resource requests of a pod: from `Pod` to [`PodRequest`].
//!
//! In: a pod of an API server or a file. Out: requests and limits of all its containers. Never: a default other than
//! the API server's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use topology::quantity::Quantity;
use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
use topology::resource::ResourceName;

use super::{ConvertError, Problem};

/// A resource list of a container.
type Wire = BTreeMap<String, WireQuantity>;

/// Reads the resource requests and limits of a pod. Missing requests are taken from the limits, as the API server does
/// on creation, so pods from files equal pods from a cluster.
///
/// # Errors
/// [`ConvertError`] with the field's path: for amounts that are no quantities or negative, for invalid resource names,
/// and for pod-level resources, which are not modelled.
pub fn pod_request(pod: &Pod) -> Result<PodRequest, ConvertError> {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    if spec.resources.as_ref().is_some_and(|r| filled(r.requests.as_ref()) || filled(r.limits.as_ref())) {
        return Err(Problem::Unsupported("pod-level resources").at("spec.resources"));
    }
    let mut containers = Vec::new();
    for (i, wire) in spec.init_containers.iter().flatten().enumerate() {
        let sidecar = wire.restart_policy.as_deref() == Some("Always");
        let kind = if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
        containers.push(container(wire, kind).map_err(|e| e.within(&format!("spec.initContainers[{i}].")))?);
    }
    for (i, wire) in spec.containers.iter().enumerate() {
        let container = container(wire, ContainerKind::App);
        containers.push(container.map_err(|e| e.within(&format!("spec.containers[{i}].")))?);
    }
    let overhead = list(spec.overhead.as_ref()).map_err(|e| e.within("spec.overhead"))?;
    let stated_qos = match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        Some("Guaranteed") => Some(Qos::Guaranteed),
        Some("Burstable") => Some(Qos::Burstable),
        Some("BestEffort") => Some(Qos::BestEffort),
        _ => None,
    };
    Ok(PodRequest { containers, overhead, stated_qos })
}

fn filled(list: Option<&Wire>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

fn container(wire: &Container, kind: ContainerKind) -> Result<ContainerRequest, ConvertError> {
    let resources = wire.resources.as_ref();
    let read = |wire, field| list(wire).map_err(|e: ConvertError| e.within(field));
    let limits = read(resources.and_then(|r| r.limits.as_ref()), "resources.limits")?;
    let mut requests = read(resources.and_then(|r| r.requests.as_ref()), "resources.requests")?;
    for (name, limit) in &limits {
        if let Err(at) = requests.binary_search_by_key(name, |(known, _)| *known) {
            requests.insert(at, (*name, *limit));
        }
    }
    Ok(ContainerRequest { name: wire.name.as_str().into(), kind, requests, limits })
}

/// A resource list in name order. Errors carry `[name]` as their path.
fn list(wire: Option<&Wire>) -> Result<Vec<(ResourceName, Quantity)>, ConvertError> {
    let mut list = Vec::with_capacity(wire.map_or(0, BTreeMap::len));
    for (name, amount) in wire.into_iter().flatten() {
        let at = |problem: Problem| problem.at(format!("[{name}]"));
        let resource = ResourceName::new(name).map_err(|error| at(error.into()))?;
        let quantity = Quantity::parse(amount.0.trim()).map_err(|error| at(error.into()))?;
        if quantity.sign() < 0 {
            return Err(at(Problem::Negative(quantity)));
        }
        list.push((resource, quantity));
    }
    list.sort_unstable_by_key(|(name, _)| *name);
    Ok(list)
}
