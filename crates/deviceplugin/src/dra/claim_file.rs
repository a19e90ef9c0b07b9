//! The Container Device Interface file of a claim: what its containers get, and our only memory of the claim.
//!
//! In: a claim's allocated devices, the inventory. Out: a specification with one device for each; what such a file says when it is read back. Never:
//! a device that is unknown, not healthy, or on another node.

use std::collections::{BTreeMap, BTreeSet};

use cdi::{Device, Kind, Spec};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use node::draplugin::wire;

use super::offer::{self, Source};
use crate::allocate::shown;
use crate::cdi_file;
use crate::inventory::Inventory;
use crate::variables::Variables;

/// The annotation with `<namespace>/<name>` of the claim.
pub const CLAIM: &str = "tholepin.dev/claim";
/// The annotation of a device with its name in slices.
pub const DEVICE: &str = "tholepin.dev/device";
/// The annotation of a device with its resource.
pub const RESOURCE: &str = "tholepin.dev/resource";
/// The annotation of a device with its id.
pub const ID: &str = "tholepin.dev/id";

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
    /// Its devices by the names they had in slices, with resource and id; the first files did not tell those.
    pub devices: BTreeMap<String, Option<(String, String)>>,
}

/// A device that a claim was given.
pub type Given<'a> = (&'a DeviceRequestAllocationResult, Source<'a>);

impl Memory {
    /// What this device was called when the claim got it, if it did.
    #[must_use]
    pub fn name_of(&self, source: Source<'_>) -> Option<&str> {
        let (resource, id) = (source.resource, source.id);
        let names = || [offer::name(resource, id), offer::short_name(resource, id)];
        let is = |name: &String, told: &Option<(String, String)>| match told {
            Some((of, held)) => of == resource && held == id,
            None => names().contains(name),
        };
        self.devices.iter().find(|(name, told)| is(name, told)).map(|(name, _)| &**name)
    }
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

/// The devices behind these results.
///
/// # Errors
/// Names the device and what is wrong with it.
pub fn devices<'a>(
    name: &Name,
    results: &[&'a DeviceRequestAllocationResult],
    inventory: &'a Inventory,
) -> Result<Vec<Given<'a>>, String> {
    let known = offer::names(inventory);
    let find = |result: &&'a DeviceRequestAllocationResult| {
        let device = &result.device;
        let source = known
            .get(device)
            .ok_or_else(|| format!("device {device} of claim {name} is not on this node (any more)"))?;
        match &source.device.trouble {
            Some(trouble) => Err(format!("device {device} of claim {name} is unhealthy: {trouble}")),
            None => Ok((*result, *source)),
        }
    };
    results.iter().map(find).collect()
}

/// The file of a claim that was given these devices.
#[must_use]
pub fn spec(name: &Name, given: &[Given<'_>], kind: &Kind, inventory: &Inventory) -> Spec {
    let mut devices = BTreeMap::new();
    for (result, source) in given {
        let device = &result.device;
        let mut edits = cdi_file::edits(&source.device.hardware.gives);
        if let Some(resource) = inventory.resources.get(source.resource) {
            edits.extend(&cdi_file::edits(&resource.common));
        }
        edits.env = variables(device, given, inventory);
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

/// The variables of a device: those of all devices that a container gets with it, which are those of its request. Each of these devices has the
/// same, as runtimes keep one of several values.
fn variables(device: &str, given: &[Given<'_>], inventory: &Inventory) -> Vec<String> {
    let requests: BTreeSet<&str> = given
        .iter()
        .filter(|(result, _)| result.device == device)
        .map(|(result, _)| request(result))
        .collect();
    let together = || given.iter().filter(|(result, _)| requests.contains(request(result)));
    let mut variables = Variables::default();
    for (_, source) in together() {
        let (name, zones) = cdi_file::zones(source.resource, source.id, source.device);
        variables.add(&name, &zones);
        variables.add_all(&source.device.hardware.gives.envs);
    }
    for resource in together().filter_map(|(_, source)| inventory.resources.get(source.resource)) {
        variables.add_all(&resource.common.envs);
    }
    variables.joined().into_iter().map(|(name, value)| format!("{name}={value}")).collect()
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
    let device = |device: &Device| {
        let told = |key: &str| device.annotations.get(key).cloned();
        Some((told(DEVICE)?, told(RESOURCE).zip(told(ID))))
    };
    let devices = spec.devices.iter().filter_map(device).collect();
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
                gives: Gives {
                    nodes: vec![node(path)],
                    envs: [("CARD".to_owned(), path.to_owned())].into(),
                    ..Gives::default()
                },
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

    /// What a device is called.
    fn nic(id: &str) -> String {
        offer::name("v.example/nic", id)
    }

    /// The file and the answer for a claim with these results.
    fn prepare(given: &[(&str, &str, &str, &str)]) -> Result<(Spec, Vec<wire::Device>), String> {
        let (name, claim, kind) = (name(), claim(given), Kind::new("d.example", "claim").unwrap());
        let results = results(&name, &claim, "d.example", "node-0")?;
        let inventory = inventory();
        let given = devices(&name, &results, &inventory)?;
        Ok((spec(&name, &given, &kind, &inventory), answer(&name, &results, &kind)?))
    }

    #[test]
    fn a_claim_becomes_a_file_and_an_answer() {
        let [a, b] = ["a", "b"].map(nic);
        let given = [
            ("one", "d.example", "node-0", &*a),
            ("other", "stranger.example", "node-0", "x"),
            ("two/small", "d.example", "node-0", &*b),
        ];
        let (spec, answer) = prepare(&given).unwrap();
        assert_eq!(cdi::check::refusal(&spec), None);
        let names: Vec<_> = spec.devices.iter().map(|device| device.name.clone()).collect();
        assert_eq!(names, [format!("u-1-{a}"), format!("u-1-{b}")]);
        let edits = &spec.devices[0].container_edits;
        assert_eq!(edits.device_nodes[0].path, "/dev/a");
        assert!(edits.env.contains(&"COMMON=1".to_owned()), "{:?}", edits.env);
        let memory = memory(&spec).unwrap();
        assert_eq!((&*memory.claim, memory.devices.len()), ("ns/claim", 2));
        assert_eq!(answer.len(), 2);
        let requests: Vec<_> = answer.iter().map(|device| &*device.request_names).collect();
        assert_eq!(requests, [["one"], ["two"]], "as containers name them");
        assert_eq!(answer[1].cdi_device_ids, [format!("d.example/claim=u-1-{b}")]);
    }

    #[test]
    fn devices_of_one_request_share_their_variables() {
        let [a, b] = ["a", "b"].map(nic);
        let envs = |requests: [&str; 2]| {
            let given =
                [(requests[0], "d.example", "node-0", &*a), (requests[1], "d.example", "node-0", &*b)];
            let spec = prepare(&given).unwrap().0;
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
    fn a_device_is_known_again_by_whatever_name() {
        let inventory = inventory();
        let source = |id: &str| offer::names(&inventory)[&nic(id)];
        let memory = |name: &str, told: Option<(&str, &str)>| {
            let told = told.map(|(resource, id)| (resource.to_owned(), id.to_owned()));
            Memory { claim: "ns/claim".to_owned(), devices: [(name.to_owned(), told)].into() }
        };
        for (name, told, is_a) in [
            (&*nic("a"), Some(("v.example/nic", "a")), true),
            ("once", Some(("v.example/nic", "a")), true),
            // Files that do not tell what it was.
            ("nic-a", None, true),
            (&nic("a"), None, true),
            ("nic-b", None, false),
            // Of another resource, or another device.
            ("nic-a", Some(("w.example/nic", "a")), false),
            (&nic("a"), Some(("v.example/nic", "b")), false),
        ] {
            let held = memory(name, told);
            assert_eq!(held.name_of(source("a")), is_a.then_some(name), "{name} {told:?}");
        }
        let results = [("r", "d.example", "node-0", &*nic("a"))];
        let written = super::memory(&prepare(&results).unwrap().0).unwrap();
        assert_eq!(written.name_of(source("a")), Some(&*nic("a")));
        assert_eq!(written.name_of(source("b")), None);
    }

    #[test]
    fn what_cannot_be_prepared() {
        let [a, c] = ["a", "c"].map(nic);
        for (given, words) in [
            (("r", "d.example", "node-0", &*c), format!("device {c} of claim ns/claim is unhealthy: burnt")),
            (
                ("r", "d.example", "node-0", "nic-z"),
                "device nic-z of claim ns/claim is not on this node".to_owned(),
            ),
            (("r", "d.example", "node-1", &*a), format!("given {a} of pool node-1; this is node node-0")),
        ] {
            let error = prepare(&[given]).unwrap_err();
            assert!(error.contains(&words), "{error}");
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
