//! The Container Device Interface file of a claim: what its containers get, and the plugin's only record of the claim.
//!
//! In: a claim's allocated devices, the inventory. Out: a specification with one device for each; the record in such a
//! file when it is read back. Never: a device that is unknown, unhealthy, or on another node.

use std::collections::{BTreeMap, BTreeSet};

use cdi::{Device, Kind, Spec};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use node::draplugin::wire;

use super::slice_devices::{self, NamedDevice};
use crate::allocate::shorten;
use crate::cdi_file;
use crate::inventory::Inventory;
use crate::variables::Variables;

/// The file's annotation with the claim's `<namespace>/<name>`.
pub const CLAIM: &str = "tholepin.dev/claim";
/// A device's annotation with its name in slices.
pub const DEVICE: &str = "tholepin.dev/device";
/// A device's annotation with its resource.
pub const RESOURCE: &str = "tholepin.dev/resource";
/// A device's annotation with its id.
pub const ID: &str = "tholepin.dev/id";

/// Namespace, name and UID of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimName {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's UID.
    pub uid: String,
}

/// The record of a claim in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The claim, as `<namespace>/<name>`.
    pub claim: String,
    /// The claim's devices by the names they had in slices, with resource and id; the first versions of the file lack
    /// those.
    pub devices: BTreeMap<String, Option<(String, String)>>,
}

/// A device that is allocated to a claim: the result in its status, and the device of this node.
pub type AllocatedDevice<'a> = (&'a DeviceRequestAllocationResult, NamedDevice<'a>);

impl ClaimRecord {
    /// The name that this device had when the claim got it; none when the claim does not have it.
    #[must_use]
    pub fn name_of(&self, source: NamedDevice<'_>) -> Option<&str> {
        let (resource, id) = (source.resource, source.id);
        let names = || [slice_devices::name(resource, id), slice_devices::short_name(resource, id)];
        let is = |name: &String, recorded: &Option<(String, String)>| match recorded {
            Some((of, held)) => of == resource && held == id,
            None => names().contains(name),
        };
        self.devices.iter().find(|(name, recorded)| is(name, recorded)).map(|(name, _)| &**name)
    }
}

/// The results of a claim's allocation for a driver on a node; empty when there are none.
///
/// # Errors
/// When the object is another claim, or the claim has a device of another node.
pub fn results<'a>(
    name: &ClaimName,
    claim: &'a ResourceClaim,
    driver: &str,
    node: &str,
) -> Result<Vec<&'a DeviceRequestAllocationResult>, String> {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if uid != name.uid {
        return Err(format!("claim {name} has UID {uid} now, not {}: it was created again", name.uid));
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
    let ours: Vec<_> = results.iter().filter(|result| result.driver == driver).collect();
    match ours.iter().find(|result| result.pool != node) {
        Some(other) => Err(format!(
            "claim {name} has device {} of pool {}; this is node {node}",
            other.device, other.pool
        )),
        None => Ok(ours),
    }
}

/// The devices behind these results.
///
/// # Errors
/// Names the device and what is wrong with it.
pub fn devices<'a>(
    name: &ClaimName,
    results: &[&'a DeviceRequestAllocationResult],
    inventory: &'a Inventory,
) -> Result<Vec<AllocatedDevice<'a>>, String> {
    let known = slice_devices::names(inventory);
    let find = |result: &&'a DeviceRequestAllocationResult| {
        let device = &result.device;
        let source = known
            .get(device)
            .ok_or_else(|| format!("device {device} of claim {name} is not on this node"))?;
        match &source.device.unhealthy_reason {
            Some(unhealthy_reason) => {
                Err(format!("device {device} of claim {name} is unhealthy: {unhealthy_reason}"))
            }
            None => Ok((*result, *source)),
        }
    };
    results.iter().map(find).collect()
}

/// The file of a claim with these devices.
#[must_use]
pub fn spec(name: &ClaimName, allocated: &[AllocatedDevice<'_>], kind: &Kind, inventory: &Inventory) -> Spec {
    let mut devices = BTreeMap::new();
    for (result, source) in allocated {
        let device = &result.device;
        let mut edits = cdi_file::edits(&source.device.hardware.injection);
        if let Some(resource) = inventory.resources.get(source.resource) {
            edits.extend(&cdi_file::edits(&resource.common));
        }
        edits.env = variables(device, allocated, inventory);
        let mut described = Device::new(cdi_name(name, device), edits);
        for (key, value) in [(DEVICE, &**device), (RESOURCE, source.resource), (ID, source.id)] {
            described.annotations.insert(key.to_owned(), value.to_owned());
        }
        devices.insert(device, described);
    }
    let mut spec = Spec::new(kind, devices.into_values().collect());
    spec.annotations.insert(CLAIM.to_owned(), name.to_string());
    spec.with_lowest_version()
}

/// The variables of a device. These are the variables of all devices that a container gets with it, which are those of
/// its request; each of these devices has the same, as runtimes keep one of several values.
fn variables(device: &str, allocated: &[AllocatedDevice<'_>], inventory: &Inventory) -> Vec<String> {
    let requests: BTreeSet<&str> = allocated
        .iter()
        .filter(|(result, _)| result.device == device)
        .map(|(result, _)| request(result))
        .collect();
    let together = || allocated.iter().filter(|(result, _)| requests.contains(request(result)));
    let mut variables = Variables::default();
    for (_, source) in together() {
        let (name, zones) = cdi_file::zones_variable(source.resource, source.id, source.device);
        variables.add(&name, &zones);
        variables.add_all(&source.device.hardware.injection.envs);
    }
    for resource in together().filter_map(|(_, source)| inventory.resources.get(source.resource)) {
        variables.add_all(&resource.common.envs);
    }
    variables.joined().into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The answer to the kubelet for these results.
///
/// # Errors
/// When a device's name is not valid for container runtimes, which the API server's own rules exclude.
pub fn prepared_devices(
    name: &ClaimName,
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

/// The request's name as containers use it. For a request with alternatives the result has `<request>/<subrequest>`.
fn request(result: &DeviceRequestAllocationResult) -> &str {
    result.request.split_once('/').map_or(&*result.request, |(request, _)| request)
}

/// The record in a file; none when the file is not one of a claim.
#[must_use]
pub fn record(spec: &Spec) -> Option<ClaimRecord> {
    let claim = spec.annotations.get(CLAIM)?.clone();
    let device = |device: &Device| {
        let recorded = |key: &str| device.annotations.get(key).cloned();
        Some((recorded(DEVICE)?, recorded(RESOURCE).zip(recorded(ID))))
    };
    let devices = spec.devices.iter().filter_map(device).collect();
    Some(ClaimRecord { claim, devices })
}

/// A device's name in the file, unique on the node: two containers may have devices of two claims.
fn cdi_name(name: &ClaimName, device: &str) -> String {
    format!("{}-{device}", name.uid)
}

impl std::fmt::Display for ClaimName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl TryFrom<&wire::Claim> for ClaimName {
    type Error = String;

    fn try_from(claim: &wire::Claim) -> Result<Self, String> {
        // These become parts of file names and of paths at the API server.
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
                let text = shorten(text);
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
    use crate::inventory::{self, DeviceNode, Hardware, Injection, Resource};
    use serde_json::json;

    fn name() -> ClaimName {
        ClaimName { namespace: "ns".to_owned(), name: "claim".to_owned(), uid: "u-1".to_owned() }
    }

    fn claim(results: &[(&str, &str, &str, &str)]) -> ResourceClaim {
        let results: Vec<_> = results
            .iter()
            .map(|(request, driver, pool, device)| {
                json!({"request": request, "driver": driver, "pool": pool, "device": device})
            })
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
                injection: Injection {
                    nodes: vec![node(path)],
                    envs: [("CARD".to_owned(), path.to_owned())].into(),
                    ..Injection::default()
                },
                ..Hardware::default()
            }),
            unhealthy_reason: None,
        };
        let mut sick = device("/dev/c");
        sick.unhealthy_reason = Some("burnt".to_owned());
        let devices = [("a", device("/dev/a")), ("b", device("/dev/b")), ("c", sick)];
        let mut resource = Resource::default();
        resource.devices.extend(devices.map(|(id, device)| (id.into(), device)));
        resource.common.envs.insert("COMMON".to_owned(), "1".to_owned());
        Inventory { resources: BTreeMap::from([("v.example/nic".to_owned(), Arc::new(resource))]) }
    }

    /// A device's name in slices.
    fn nic(id: &str) -> String {
        slice_devices::name("v.example/nic", id)
    }

    /// The file and the answer for a claim with these results.
    fn prepare(allocated: &[(&str, &str, &str, &str)]) -> Result<(Spec, Vec<wire::Device>), String> {
        let (name, claim, kind) = (name(), claim(allocated), Kind::new("d.example", "claim").unwrap());
        let results = results(&name, &claim, "d.example", "node-0")?;
        let inventory = inventory();
        let allocated = devices(&name, &results, &inventory)?;
        Ok((spec(&name, &allocated, &kind, &inventory), prepared_devices(&name, &results, &kind)?))
    }

    #[test]
    fn a_claim_becomes_a_file_and_an_answer() {
        let [a, b] = ["a", "b"].map(nic);
        let allocated = [
            ("one", "d.example", "node-0", &*a),
            ("other", "stranger.example", "node-0", "x"),
            ("two/small", "d.example", "node-0", &*b),
        ];
        let (spec, answer) = prepare(&allocated).unwrap();
        assert_eq!(cdi::check::refusal(&spec), None);
        let names: Vec<_> = spec.devices.iter().map(|device| device.name.clone()).collect();
        assert_eq!(names, [format!("u-1-{a}"), format!("u-1-{b}")]);
        let edits = &spec.devices[0].container_edits;
        assert_eq!(edits.device_nodes[0].path, "/dev/a");
        assert!(edits.env.contains(&"COMMON=1".to_owned()), "{:?}", edits.env);
        let record = record(&spec).unwrap();
        assert_eq!((&*record.claim, record.devices.len()), ("ns/claim", 2));
        assert_eq!(answer.len(), 2);
        let requests: Vec<_> = answer.iter().map(|device| &*device.request_names).collect();
        assert_eq!(requests, [["one"], ["two"]], "as containers name them");
        assert_eq!(answer[1].cdi_device_ids, [format!("d.example/claim=u-1-{b}")]);
    }

    #[test]
    fn devices_of_one_request_share_their_variables() {
        let [a, b] = ["a", "b"].map(nic);
        let envs = |requests: [&str; 2]| {
            let allocated =
                [(requests[0], "d.example", "node-0", &*a), (requests[1], "d.example", "node-0", &*b)];
            let spec = prepare(&allocated).unwrap().0;
            spec.devices.into_iter().map(|device| device.container_edits.env).collect::<Vec<_>>()
        };
        let (a, b) = ("V_EXAMPLE_NIC_A=-1", "V_EXAMPLE_NIC_B=-1");
        let both = vec!["CARD=/dev/a,/dev/b", "COMMON=1", a, b];
        assert_eq!(envs(["one", "one"]), [both.clone(), both]);
        assert_eq!(
            envs(["one", "two/small"]),
            [["CARD=/dev/a", "COMMON=1", a], ["CARD=/dev/b", "COMMON=1", b]]
        );
    }

    #[test]
    fn recorded_devices_are_recognised_by_any_name() {
        let inventory = inventory();
        let source = |id: &str| slice_devices::names(&inventory)[&nic(id)];
        let record = |name: &str, recorded: Option<(&str, &str)>| {
            let recorded = recorded.map(|(resource, id)| (resource.to_owned(), id.to_owned()));
            ClaimRecord { claim: "ns/claim".to_owned(), devices: [(name.to_owned(), recorded)].into() }
        };
        for (name, recorded, is_a) in [
            (&*nic("a"), Some(("v.example/nic", "a")), true),
            ("once", Some(("v.example/nic", "a")), true),
            // Files without resource and id.
            ("nic-a", None, true),
            (&nic("a"), None, true),
            ("nic-b", None, false),
            // Another resource, or another device.
            ("nic-a", Some(("w.example/nic", "a")), false),
            (&nic("a"), Some(("v.example/nic", "b")), false),
        ] {
            let held = record(name, recorded);
            assert_eq!(held.name_of(source("a")), is_a.then_some(name), "{name} {recorded:?}");
        }
        let results = [("r", "d.example", "node-0", &*nic("a"))];
        let written = super::record(&prepare(&results).unwrap().0).unwrap();
        assert_eq!(written.name_of(source("a")), Some(&*nic("a")));
        assert_eq!(written.name_of(source("b")), None);
    }

    #[test]
    fn unpreparable_claims_are_refused() {
        let [a, c] = ["a", "c"].map(nic);
        for (allocated, words) in [
            (("r", "d.example", "node-0", &*c), format!("device {c} of claim ns/claim is unhealthy: burnt")),
            (
                ("r", "d.example", "node-0", "nic-z"),
                "device nic-z of claim ns/claim is not on this node".to_owned(),
            ),
            (
                ("r", "d.example", "node-1", &*a),
                format!("has device {a} of pool node-1; this is node node-0"),
            ),
        ] {
            let error = prepare(&[allocated]).unwrap_err();
            assert!(error.contains(&words), "{error}");
        }
        let again = ClaimName { uid: "u-2".to_owned(), ..name() };
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
        assert!(ClaimName::try_from(&claim("ns", "a.b", "12-ab")).is_ok());
        for bad in [
            claim("", "a", "u"),
            claim("ns", "a/b", "u"),
            claim("ns", "a", "../u"),
            claim("ns", "a", ""),
            claim("n?", "a", "u"),
        ] {
            assert!(ClaimName::try_from(&bad).is_err(), "{bad:?}");
        }
    }
}
