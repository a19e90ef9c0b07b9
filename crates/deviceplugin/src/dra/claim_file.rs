//! The Container Device Interface file of a claim: what its containers get, and our only memory of the claim.
//!
//! In: a claim's allocated devices, the inventory. Out: a specification with one device for each; what such a file says when it is read back. Never:
//! a device that is unknown, not healthy, or on another node.

use std::collections::{BTreeMap, BTreeSet};

use cdi::{Device, Kind, Spec};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use node::draplugin::wire;

use super::offer;
use crate::allocate::shown;
use crate::cdi_file;
use crate::inventory::Inventory;

/// The annotation with `<namespace>/<name>` of the claim.
pub const CLAIM: &str = "tholepin.dev/claim";
/// The annotation of a device with its name in slices.
pub const DEVICE: &str = "tholepin.dev/device";

/// A claim by all its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The claim, as `<namespace>/<name>`.
    pub claim: String,
    /// Names of its devices in slices.
    pub devices: BTreeSet<String>,
}

/// What a claim was given by a driver on a node; nothing when it was not.
///
/// # Errors
/// When the object is another claim, or it was given a device of another node.
pub fn results<'a>(
    name: &Name,
    claim: &'a ResourceClaim,
    driver: &str,
    node: &str,
) -> Result<Vec<&'a DeviceRequestAllocationResult>, String> {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if uid != name.uid {
        return Err(format!("claim {name} has UID {uid} now, not {}: it was made again", name.uid));
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
    let ours: Vec<_> = results.iter().filter(|result| result.driver == driver).collect();
    match ours.iter().find(|result| result.pool != node) {
        Some(other) => Err(format!(
            "claim {name} was given {} of pool {}; this is node {node}",
            other.device, other.pool
        )),
        None => Ok(ours),
    }
}

/// The file of a claim with these results.
///
/// # Errors
/// Names the device and what is wrong with it.
pub fn spec(
    name: &Name,
    results: &[&DeviceRequestAllocationResult],
    kind: &Kind,
    inventory: &Inventory,
) -> Result<Spec, String> {
    let known = offer::names(inventory);
    let mut devices = BTreeMap::new();
    for result in results {
        let device = &result.device;
        let source = known
            .get(device)
            .ok_or_else(|| format!("device {device} of claim {name} is not on this node (any more)"))?;
        if let Some(trouble) = &source.device.trouble {
            return Err(format!("device {device} of claim {name} is unhealthy: {trouble}"));
        }
        let mut edits = cdi_file::edits_of(source.resource, source.id, source.device);
        if let Some(resource) = inventory.resources.get(source.resource) {
            edits.extend(&cdi_file::edits(&resource.common));
        }
        let mut described = Device::new(cdi_name(name, device), edits);
        described.annotations.insert(DEVICE.to_owned(), device.clone());
        devices.insert(device.clone(), described);
    }
    let mut spec = Spec::new(kind, devices.into_values().collect());
    spec.annotations.insert(CLAIM.to_owned(), name.to_string());
    Ok(spec.with_lowest_version())
}

/// What the kubelet is told of these results.
///
/// # Errors
/// When a device has no name the container runtime would understand; which cannot be, as long as the API server checks names.
pub fn answer(
    name: &Name,
    results: &[&DeviceRequestAllocationResult],
    kind: &Kind,
) -> Result<Vec<wire::Device>, String> {
    let one = |result: &&DeviceRequestAllocationResult| {
        let cdi = kind.device(&cdi_name(name, &result.device)).map_err(|error| error.to_string())?;
        Ok(wire::Device {
            request_names: vec![request(result).to_owned()],
            pool_name: result.pool.clone(),
            device_name: result.device.clone(),
            cdi_device_ids: vec![cdi.to_string()],
            share_id: result.share_id.clone(),
        })
    };
    results.iter().map(one).collect()
}

/// The name of the request as containers know it: of one with several ways to be met the result tells the way too, `<request>/<subrequest>`.
fn request(result: &DeviceRequestAllocationResult) -> &str {
    result.request.split_once('/').map_or(&*result.request, |(request, _)| request)
}

/// What a file says; nothing when it is none of ours.
#[must_use]
pub fn memory(spec: &Spec) -> Option<Memory> {
    let claim = spec.annotations.get(CLAIM)?.clone();
    let devices = spec.devices.iter().filter_map(|device| device.annotations.get(DEVICE).cloned()).collect();
    Some(Memory { claim, devices })
}

/// Unique on the node: two containers may have devices of two claims.
fn cdi_name(name: &Name, device: &str) -> String {
    format!("{}-{device}", name.uid)
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl TryFrom<&wire::Claim> for Name {
    type Error = String;

    fn try_from(claim: &wire::Claim) -> Result<Self, String> {
        // They become parts of file names and of paths at the API server.
        let plain = |text: &str, longest: usize| {
            let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
            let ends = |c: char| c.is_ascii_alphanumeric();
            text.len() <= longest
                && text.starts_with(ends)
                && text.ends_with(ends)
                && text.chars().all(inside)
        };
        for (what, text, longest) in
            [("namespace", &claim.namespace, 63), ("name", &claim.name, 253), ("UID", &claim.uid, 63)]
        {
            if !plain(text, longest) {
                let text = shown(text);
                return Err(format!(
                    "{what} {text:?} of a claim: allowed are letters, digits, - and ., at most {longest}"
                ));
            }
        }
        Ok(Self { namespace: claim.namespace.clone(), name: claim.name.clone(), uid: claim.uid.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inventory::{self, DeviceNode, Gives, Hardware, Resource};
    use serde_json::json;

    fn name() -> Name {
        Name { namespace: "ns".to_owned(), name: "claim".to_owned(), uid: "u-1".to_owned() }
    }

    fn claim(results: &[(&str, &str, &str, &str)]) -> ResourceClaim {
        let results: Vec<_> = results
            .iter()
            .map(|(request, driver, pool, device)| json!({"request": request, "driver": driver, "pool": pool, "device": device}))
            .collect();
        let status = json!({"allocation": {"devices": {"results": results}}});
        serde_json::from_value(
            json!({"metadata": {"name": "claim", "uid": "u-1"}, "spec": {}, "status": status}),
        )
        .unwrap()
    }

    fn inventory() -> Inventory {
        let node = |path: &str| DeviceNode {
            host_path: path.into(),
            container_path: path.into(),
            permissions: "rw".to_owned(),
        };
        let device = |path: &str| inventory::Device {
            hardware: Arc::new(Hardware {
                gives: Gives { nodes: vec![node(path)], ..Gives::default() },
                ..Hardware::default()
            }),
            trouble: None,
        };
        let mut sick = device("/dev/c");
        sick.trouble = Some("burnt".to_owned());
        let devices = [("a", device("/dev/a")), ("b", device("/dev/b")), ("c", sick)];
        let mut resource = Resource::default();
        resource.devices.extend(devices.map(|(id, device)| (id.into(), device)));
        resource.common.envs.insert("COMMON".to_owned(), "1".to_owned());
        Inventory { resources: BTreeMap::from([("v.example/nic".to_owned(), Arc::new(resource))]) }
    }

    /// The file and the answer for a claim with these results.
    fn prepare(given: &[(&str, &str, &str, &str)]) -> Result<(Spec, Vec<wire::Device>), String> {
        let (name, claim, kind) = (name(), claim(given), Kind::new("d.example", "claim").unwrap());
        let results = results(&name, &claim, "d.example", "node-0")?;
        Ok((spec(&name, &results, &kind, &inventory())?, answer(&name, &results, &kind)?))
    }

    #[test]
    fn a_claim_becomes_a_file_and_an_answer() {
        let given = [
            ("one", "d.example", "node-0", "nic-a"),
            ("other", "stranger.example", "node-0", "x"),
            ("two/small", "d.example", "node-0", "nic-b"),
        ];
        let (spec, answer) = prepare(&given).unwrap();
        assert_eq!(cdi::check::refusal(&spec), None);
        let names: Vec<_> = spec.devices.iter().map(|device| &*device.name).collect();
        assert_eq!(names, ["u-1-nic-a", "u-1-nic-b"]);
        let edits = &spec.devices[0].container_edits;
        assert_eq!(edits.device_nodes[0].path, "/dev/a");
        assert!(edits.env.contains(&"COMMON=1".to_owned()), "{:?}", edits.env);
        let memory = memory(&spec).unwrap();
        assert_eq!((&*memory.claim, memory.devices.len()), ("ns/claim", 2));
        assert_eq!(answer.len(), 2);
        let requests: Vec<_> = answer.iter().map(|device| &*device.request_names).collect();
        assert_eq!(requests, [["one"], ["two"]], "as containers name them");
        assert_eq!(answer[1].cdi_device_ids, ["d.example/claim=u-1-nic-b"]);
    }

    #[test]
    fn what_cannot_be_prepared() {
        for (given, words) in [
            (("r", "d.example", "node-0", "nic-c"), "device nic-c of claim ns/claim is unhealthy: burnt"),
            (("r", "d.example", "node-0", "nic-z"), "device nic-z of claim ns/claim is not on this node"),
            (("r", "d.example", "node-1", "nic-a"), "given nic-a of pool node-1; this is node node-0"),
        ] {
            let error = prepare(&[given]).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let again = Name { uid: "u-2".to_owned(), ..name() };
        let error = results(&again, &claim(&[]), "d.example", "node-0").unwrap_err();
        assert!(error.contains("has UID u-1 now, not u-2"), "{error}");
        assert!(results(&name(), &claim(&[]), "d.example", "node-0").unwrap().is_empty());
    }

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        let claim = |namespace: &str, name: &str, uid: &str| wire::Claim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        assert!(Name::try_from(&claim("ns", "a.b", "12-ab")).is_ok());
        for bad in [
            claim("", "a", "u"),
            claim("ns", "a/b", "u"),
            claim("ns", "a", "../u"),
            claim("ns", "a", ""),
            claim("n?", "a", "u"),
        ] {
            assert!(Name::try_from(&bad).is_err(), "{bad:?}");
        }
    }
}
