//! Versions of the format.
//!
//! In: text, or the fields that a specification uses. Out: a released version. Never: a version that is unknown to this
//! crate.

use std::fmt;
use std::str::FromStr;

use crate::spec::{ContainerEdits, Spec};

/// A released version, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.3.0, the first version that is still read.
    V030,
    /// 0.4.0: types of mounts.
    V040,
    /// 0.5.0: host paths of device nodes, device names that begin with a digit.
    V050,
    /// 0.6.0: annotations, dots in classes.
    V060,
    /// 0.7.0: resctrl, additional groups.
    V070,
    /// 0.8.0: nothing new in files.
    V080,
    /// 1.0.0: nothing new in files.
    V100,
    /// 1.1.0: network interfaces, schemata and monitoring of resctrl.
    V110,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: [Self; 8] =
        [Self::V030, Self::V040, Self::V050, Self::V060, Self::V070, Self::V080, Self::V100, Self::V110];

    /// The version as files have it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::V030 => "0.3.0",
            Self::V040 => "0.4.0",
            Self::V050 => "0.5.0",
            Self::V060 => "0.6.0",
            Self::V070 => "0.7.0",
            Self::V080 => "0.8.0",
            Self::V100 => "1.0.0",
            Self::V110 => "1.1.0",
        }
    }

    /// The lowest version that has everything the specification uses.
    #[must_use]
    pub fn minimum(spec: &Spec) -> Self {
        let digit_first = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
        let annotated =
            !spec.annotations.is_empty() || spec.devices.iter().any(|device| !device.annotations.is_empty());
        let dotted_class = spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
        let names = match () {
            () if annotated || dotted_class => Self::V060,
            () if spec.devices.iter().any(|device| digit_first(&device.name)) => Self::V050,
            () => Self::V030,
        };
        spec.all_edits().map(Self::of_edits).fold(names, Self::max)
    }

    fn of_edits(edits: &ContainerEdits) -> Self {
        let newer_rdt =
            edits.intel_rdt.as_ref().is_some_and(|rdt| !rdt.schemata.is_empty() || rdt.enable_monitoring);
        match () {
            () if newer_rdt || !edits.net_devices.is_empty() => Self::V110,
            () if edits.intel_rdt.is_some() || !edits.additional_gids.is_empty() => Self::V070,
            () if edits.device_nodes.iter().any(|node| !node.host_path.is_empty()) => Self::V050,
            () if edits.mounts.iter().any(|mount| !mount.r#type.is_empty()) => Self::V040,
            () => Self::V030,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl FromStr for Version {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        Self::ALL.into_iter().find(|version| version.text() == plain).ok_or_else(|| Unknown(text.to_owned()))
    }
}

/// A text that is not a known version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a supported version; allowed are 0.3.0, 0.4.0, 0.5.0, 0.6.0, 0.7.0, 0.8.0, 1.0.0, 1.1.0"
)]
pub struct Unknown(String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Device, DeviceNode, IntelRdt, Mount, NetDevice};

    fn edits(change: impl FnOnce(&mut ContainerEdits)) -> ContainerEdits {
        let mut edits = ContainerEdits { env: vec!["A=b".to_owned()], ..ContainerEdits::default() };
        change(&mut edits);
        edits
    }

    /// Checks the version that edits need, in a device and in the file's own edits.
    fn check(what: &str, edits: ContainerEdits, minimum: Version) {
        let kind = "v.example/c".parse().unwrap();
        let mut spec = Spec::new(&kind, vec![Device::new("d", edits.clone())]);
        assert_eq!(spec.cdi_version, minimum.text(), "{what}, of a device");
        spec.devices[0].container_edits = ContainerEdits::default();
        spec.container_edits = edits;
        assert_eq!(Version::minimum(&spec), minimum, "{what}, of the file");
    }

    #[test]
    fn the_minimum_version_follows_the_edits() {
        let node = DeviceNode { host_path: "/dev/h".to_owned(), ..DeviceNode::at("/dev/c") };
        let mount = Mount { r#type: "tmpfs".to_owned(), ..Mount::default() };
        let net = NetDevice { host_interface_name: "a".to_owned(), name: "b".to_owned() };
        let schemata = IntelRdt { schemata: vec!["L3:0=f".to_owned()], ..IntelRdt::default() };
        let monitored = IntelRdt { enable_monitoring: true, ..IntelRdt::default() };
        check("variables", edits(|_| ()), Version::V030);
        check("a plain node", edits(|e| e.device_nodes.push(DeviceNode::at("/dev/c"))), Version::V030);
        check("a type of mount", edits(|e| e.mounts.push(mount.clone())), Version::V040);
        check("a node from elsewhere", edits(|e| e.device_nodes.push(node.clone())), Version::V050);
        check("a group", edits(|e| e.additional_gids.push(0)), Version::V070);
        check("a class of service", edits(|e| e.intel_rdt = Some(IntelRdt::default())), Version::V070);
        check("schemata", edits(|e| e.intel_rdt = Some(schemata)), Version::V110);
        check("monitoring", edits(|e| e.intel_rdt = Some(monitored)), Version::V110);
        check("an interface", edits(|e| e.net_devices.push(net)), Version::V110);
        check("several", edits(|e| (e.mounts, e.device_nodes) = (vec![mount], vec![node])), Version::V050);
    }

    #[test]
    fn names_and_annotations_need_versions_too() {
        let of = |kind: &str, device: &str| Spec {
            kind: kind.to_owned(),
            devices: vec![Device::new(device, edits(|_| ()))],
            ..Spec::default()
        };
        assert_eq!(Version::minimum(&of("v.example/c", "d")), Version::V030);
        assert_eq!(Version::minimum(&of("v.example/c", "0d")), Version::V050);
        assert_eq!(Version::minimum(&of("v.example/c.d", "0d")), Version::V060);
        let note = [("a".to_owned(), "b".to_owned())];
        let mut noted = of("v.example/c", "d");
        noted.devices[0].annotations.extend(note.clone());
        assert_eq!(Version::minimum(&noted), Version::V060);
        let mut noted = of("v.example/c", "d");
        noted.annotations.extend(note);
        assert_eq!(Version::minimum(&noted), Version::V060);
    }

    #[test]
    fn text() {
        for version in Version::ALL {
            assert_eq!(version.text().parse(), Ok(version));
            assert_eq!(format!("v{version}").parse(), Ok(version));
        }
        for text in ["", "v", "vv0.3.0", "0.3", "0.1.0", "0.2.0", "0.9.0", "1.1.1", "2.0.0", "1.1.0 "] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
        let all = Version::ALL.map(Version::text).join(", ");
        assert!("x".parse::<Version>().unwrap_err().to_string().ends_with(&all), "all are named");
    }
}
