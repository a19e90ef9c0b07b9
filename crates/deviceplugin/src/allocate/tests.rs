use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::inventory::{DeviceNode, Hardware, Mount, Pci};

fn config(lines: &str) -> Resource {
    let text = format!(
        "version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery: {{list: {{devices: {{}}}}}}\n{lines}"
    );
    Config::parse("x", &text).unwrap().resources.remove(0)
}

fn device(id: &str, zones: &[u32]) -> Device {
    let path = std::path::PathBuf::from(format!("/dev/{id}"));
    let node = DeviceNode { host_path: path.clone(), container_path: path, permissions: "rw".to_owned() };
    let injection =
        Injection { nodes: vec![node], mounts: vec![], envs: [("CARD".to_owned(), id.to_owned())].into() };
    Device {
        hardware: Arc::new(Hardware { zones: zones.to_vec(), injection, pci: None }),
        unhealthy_reason: None,
    }
}

fn inventory() -> inventory::Resource {
    let mut devices = BTreeMap::from(["a", "b"].map(|id| (id.into(), device(id, &[1]))));
    let pci =
        Pci { address: "0000:3b:00.0".to_owned(), vendor: "8086".to_owned(), device: "1572".to_owned() };
    devices.insert(
        "bad".into(),
        Device { unhealthy_reason: Some("link is down".to_owned()), ..device("bad", &[]) },
    );
    let mut card = device("card", &[0]);
    Arc::make_mut(&mut card.hardware).pci = Some(Box::new(pci));
    devices.insert("card".into(), card);
    let mount = Mount { host_path: "/opt".into(), container_path: "/nic".into(), read_only: true };
    let common = Injection { mounts: vec![mount], ..Injection::default() };
    inventory::Resource { cdi_kind: None, devices, common }
}

fn ask(config: &Resource, ids: &[&str]) -> Result<wire::ContainerAllocateResponse, Refusal> {
    allocate(config, &inventory(), &ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
}

#[test]
fn a_container_gets_what_its_devices_need() {
    let answer = ask(&config(""), &["b", "a", "card"]).unwrap();
    assert_eq!(
        answer.devices.iter().map(|node| node.host_path.as_str()).collect::<Vec<_>>(),
        ["/dev/a", "/dev/b", "/dev/card"]
    );
    assert_eq!((answer.mounts.len(), answer.mounts[0].read_only), (1, true));
    let envs = [
        ("CARD", "a,b,card"),
        ("EXAMPLE_COM_NIC_DEVICES", "a,b,card"),
        ("PCIDEVICE_EXAMPLE_COM_NIC", "0000:3b:00.0"),
    ];
    assert_eq!(answer.envs, envs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert!(answer.cdi_devices.is_empty() && answer.annotations.is_empty());
    // The order of the question does not matter.
    assert_eq!(ask(&config(""), &["card", "a", "b"]).unwrap(), answer);
}

#[test]
fn cdi_names_replace_nodes_and_mounts() {
    let answer =
        ask(&config("  cdi: {mode: field}\n  sharing: {replicas: 2}\n"), &["a::1", "a::0", "b::0"]).unwrap();
    let names: Vec<_> = answer.cdi_devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["example.com/nic=a", "example.com/nic=b"]);
    assert!(answer.devices.is_empty() && answer.mounts.is_empty() && answer.annotations.is_empty());
    assert_eq!(answer.envs["CARD"], "a,b", "which files could not say");
    let answer = ask(&config("  cdi: {mode: annotation}\n"), &["a", "b"]).unwrap();
    assert_eq!(answer.envs["CARD"], "a,b");
    assert_eq!(answer.annotations.values().collect::<Vec<_>>(), ["example.com/nic=a,example.com/nic=b"]);
    assert!(answer.annotations.keys().all(|key| key.starts_with("cdi.k8s.io/tholepin_") && key.len() < 74));
    assert!(answer.cdi_devices.is_empty());
}

#[test]
fn sample_variables_name_all_devices() {
    let sample = Resource { sample: true, ..config("") };
    let answer = ask(&sample, &["a", "card"]).unwrap();
    let env = |name: &str| answer.envs[name].as_str();
    assert_eq!((env("_SAMPLE_DEVICE_ASSIGNED"), env("_SAMPLE_DEVICE_NUMA_LOCALITY")), ("a,card", "1,0"));
    assert_eq!((env("EXAMPLECOMNIC_A"), env("EXAMPLECOMNIC_CARD")), ("1", "0"));
    assert!(answer.devices.iter().any(|node| node.host_path == "/dev/null"));
}

#[test]
fn refusals_state_the_reason() {
    let table: &[(&str, &[&str], &str, &str)] = &[
        ("", &[], "empty", "no devices were asked for"),
        ("", &["z"], "unknown", "device \"z\" of example.com/nic is unknown; known are 4 (a, b, bad, ...)"),
        (
            "",
            &["a::0"],
            "unknown",
            "device \"a::0\" of example.com/nic is unknown; known are 4 (a, b, bad, ...)",
        ),
        ("  sharing: {replicas: 2}\n", &["a::2"], "unknown", "known are 8 (a::0, a::1, b::0, ...)"),
        ("", &["a", "bad"], "unhealthy", "device \"bad\" of example.com/nic is not healthy: link is down"),
        ("", &["a", "a"], "twice", "device \"a\" was asked for twice"),
        (
            "  sharing: {replicas: 2, onePerContainer: true}\n",
            &["a::0", "b::0"],
            "shares",
            "allows one for a container",
        ),
    ];
    for (lines, ids, word, wanted) in table {
        let refusal = ask(&config(lines), ids).unwrap_err();
        assert_eq!(refusal.word(), *word);
        assert!(refusal.to_string().contains(wanted), "{refusal}");
    }
}

proptest! {
    /// Only known and healthy devices are allocated, whatever is asked.
    #[test]
    fn only_known_and_healthy_devices_are_allocated(
        ids in prop::collection::vec(prop_oneof!["a|b|bad|card|z", "(a|b|bad)::[0-3]", "\\PC{0,8}"], 0..4),
        replicas in 1_u32..4,
    ) {
        let lines = if replicas > 1 { format!("  sharing: {{replicas: {replicas}}}\n") } else { String::new() };
        let config = config(&lines);
        let legal = |id: &String| {
            let device = sharing::device(id, replicas);
            device.is_some_and(|device| inventory().devices.get(device).is_some_and(Device::is_healthy))
        };
        let unique = ids.iter().collect::<BTreeSet<_>>().len() == ids.len();
        let answer = allocate(&config, &inventory(), &ids);
        prop_assert_eq!(answer.is_ok(), !ids.is_empty() && unique && ids.iter().all(legal));
    }
}
