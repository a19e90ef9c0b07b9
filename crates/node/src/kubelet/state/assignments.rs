//! What containers hold, by the UID of their pod, from the checkpoints of all managers.
//!
//! In: the kubelet's root directory. Out: exclusive CPUs, memory and devices of each container, of finished init
//! containers too, which podresources leaves out; the CPUs that no container holds. Never: the name of a pod, which the
//! kubelet's managers do not know, or a part of a checkpoint: one impossible value refuses the whole.
//!
//! Pods that have ended stay until a manager notices: at the next admission, or the CPU manager's check every 10 s.
//!
//! Source: kubelet 1.34 to 1.37 `cpumanager/state/checkpoint.go`, `memorymanager/state/checkpoint.go`,
//! `devicemanager/checkpoint/checkpoint.go`.

use std::collections::BTreeMap;
use std::path::Path;

use topology::cpuset::CpuSet;
use topology::kubelet::hint::{MAX_ZONE_ID, ZoneMask};
use topology::resource::ResourceName;

use super::{Checkpoint, Error, FieldError, read};
use crate::json::{Field, Mismatch};

/// What containers hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    /// CPUs that no container holds, reserved ones included unless reservation is strict; empty without the CPU
    /// manager's policy `static`.
    pub shared_cpus: CpuSet,
    /// By pod UID and container. An empty name stands for the pod as a whole, under pod-level managers.
    pub containers: BTreeMap<(String, String), Assignment>,
}

/// What one container holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Exclusive CPUs.
    pub cpus: CpuSet,
    /// Memory, in the order of the checkpoint.
    pub memory: Vec<Block>,
    /// Devices by resource and id, with the zones they are close to.
    pub devices: BTreeMap<(ResourceName, String), ZoneMask>,
}

/// Memory of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// `memory`, or a size of huge pages.
    pub resource: ResourceName,
    /// The zones.
    pub zones: ZoneMask,
    /// Bytes, over all zones together.
    pub bytes: u64,
}

impl Assignments {
    /// Reads the checkpoints. A manager that has written none has handed out nothing.
    ///
    /// # Errors
    /// When a checkpoint cannot be read, or a field of it makes no sense.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let mut assignments = Self::default();
        read(&root.join(Checkpoint::Cpu.file_name()), |checkpoint| assignments.add_cpus(checkpoint))?;
        read(&root.join(Checkpoint::Memory.file_name()), |checkpoint| assignments.add_memory(checkpoint))?;
        read(&root.join(Checkpoint::Devices.file_name()), |checkpoint| assignments.add_devices(checkpoint))?;
        // The memory manager keeps entries without blocks: of init containers whose memory later ones reuse.
        assignments.containers.retain(|_, assignment| *assignment != Assignment::default());
        Ok(assignments)
    }

    /// What a container holds, made if it is new.
    fn container(&mut self, uid: &str, container: &str) -> &mut Assignment {
        self.containers.entry((uid.to_owned(), container.to_owned())).or_default()
    }

    fn add_cpus(&mut self, checkpoint: &Field) -> Result<(), FieldError> {
        if let Some(shared) = checkpoint.field("defaultCpuSet")? {
            self.shared_cpus = cpus(&shared)?;
        }
        self.add_entries(checkpoint, "cpuSet", |assignment, held| {
            assignment.cpus = cpus(held)?;
            Ok(())
        })
    }

    fn add_memory(&mut self, checkpoint: &Field) -> Result<(), FieldError> {
        self.add_entries(checkpoint, "memoryBlocks", |assignment, held| {
            assignment.memory = blocks(held)?;
            Ok(())
        })
    }

    /// Adds what a checkpoint says of containers, and of pods as a whole in a field of this name.
    fn add_entries(
        &mut self,
        checkpoint: &Field,
        of_pod: &str,
        add: impl Fn(&mut Assignment, &Field) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        for (uid, pod) in pods(checkpoint, "entries")? {
            for (container, held) in pod.fields()? {
                add(self.container(uid, container), &held)?;
            }
        }
        for (uid, pod) in pods(checkpoint, "podEntries")? {
            if let Some(held) = pod.field(of_pod)? {
                add(self.container(uid, ""), &held)?;
            }
        }
        Ok(())
    }

    fn add_devices(&mut self, checkpoint: &Field) -> Result<(), FieldError> {
        let Some(data) = checkpoint.field("Data")? else { return Ok(()) };
        let Some(entries) = data.field("PodDeviceEntries")? else { return Ok(()) };
        for entry in entries.list(|entry| Ok(entry.clone()))? {
            let (uid, container) = (text(&entry, "PodUID")?, text(&entry, "ContainerName")?);
            let resource = name(&entry, &text(&entry, "ResourceName")?)?;
            let Some(by_zone) = entry.field("DeviceIDs")? else { continue };
            for (zone, ids) in by_zone.fields()? {
                // Devices without a zone are under -1.
                let zones = match zone.parse::<i64>() {
                    Ok(-1) => ZoneMask::EMPTY,
                    zone => mask(&ids, zone.ok().and_then(|zone| u32::try_from(zone).ok()))?,
                };
                let held = &mut self.container(&uid, &container).devices;
                for id in ids.list(|id| id.text().map(str::to_owned))? {
                    let known = held.entry((resource, id)).or_default();
                    *known = known.union(zones);
                }
            }
        }
        Ok(())
    }
}

/// The pods of a checkpoint with what it says of each.
fn pods<'a>(checkpoint: &Field<'a>, name: &str) -> Result<Vec<(&'a str, Field<'a>)>, Mismatch> {
    checkpoint.field(name)?.map_or(Ok(Vec::new()), |entries| entries.fields())
}

fn text(at: &Field, name: &str) -> Result<String, Mismatch> {
    at.get(name, |field| field.text().map(str::to_owned))
}

fn cpus(at: &Field) -> Result<CpuSet, FieldError> {
    CpuSet::parse(at.text()?).map_err(|error| FieldError(format!("{}: {error}", at.path())))
}

fn blocks(at: &Field) -> Result<Vec<Block>, FieldError> {
    let block = |at: Field| {
        let mut zones = ZoneMask::EMPTY;
        for zone in at.get("numaAffinity", |zones| zones.list(Field::unsigned))? {
            zones = zones.union(mask(&at, u32::try_from(zone).ok())?);
        }
        let resource = name(&at, &text(&at, "type")?)?;
        Ok(Block { resource, zones, bytes: at.get("size", Field::unsigned)? })
    };
    at.list(|item| Ok(item.clone()))?.into_iter().map(block).collect()
}

fn name(at: &Field, text: &str) -> Result<ResourceName, FieldError> {
    ResourceName::new(text).map_err(|error| FieldError(format!("{}: {error}", at.path())))
}

fn mask(at: &Field, zone: Option<u32>) -> Result<ZoneMask, FieldError> {
    let known = zone.filter(|zone| *zone < MAX_ZONE_ID).map(ZoneMask::of);
    let wrong = || format!("{} is of a zone that cannot be; allowed are 0 to {}", at.path(), MAX_ZONE_ID - 1);
    known.ok_or_else(|| FieldError(wrong()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str = r#"{"policyName":"static","defaultCpuSet":"0-1","checksum":1,
        "entries":{"u":{"init":"2-3","main":"4"}},"podEntries":{"w":{"cpuSet":"5-6"}}}"#;
    const MEMORY: &str = r#"{"policyName":"Static","machineState":{},"checksum":1,"entries":{"u":{
        "init":[],"main":[{"numaAffinity":[0,1],"type":"memory","size":7}]}}}"#;
    const PLUGINS: &str = r#"{"Checksum":1,"Data":{"RegisteredDevices":{},"PodDeviceEntries":[
        {"PodUID":"u","ContainerName":"main","ResourceName":"v.com/d","DeviceIDs":{"0":["a","b"],"1":["b"]}},
        {"PodUID":"u","ContainerName":"main","ResourceName":"v.com/e","DeviceIDs":{"-1":["x"]}}]}}"#;

    fn read(cpu: &str, memory: &str, devices: &str) -> Result<Assignments, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("device-plugins")).unwrap();
        for (checkpoint, text) in Checkpoint::ALL.into_iter().zip([cpu, memory, devices]) {
            if !text.is_empty() {
                std::fs::write(dir.path().join(checkpoint.file_name()), text).unwrap();
            }
        }
        let read = Assignments::read(dir.path());
        read.map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    #[test]
    fn all_managers_are_read() {
        let assignments = read(CPU, MEMORY, PLUGINS).unwrap();
        assert_eq!(assignments.shared_cpus.to_string(), "0-1");
        let of =
            |uid: &str, container: &str| &assignments.containers[&(uid.to_owned(), container.to_owned())];
        assert_eq!(of("u", "init").cpus.to_string(), "2-3");
        assert_eq!(of("w", "").cpus.to_string(), "5-6");
        let main = of("u", "main");
        let both: ZoneMask = [0, 1].into_iter().collect();
        assert_eq!(main.memory, [Block { resource: ResourceName::MEMORY, zones: both, bytes: 7 }]);
        let devices = main.devices.iter().map(|((name, id), zones)| (name.as_str(), &**id, *zones));
        let wanted =
            [("v.com/d", "a", ZoneMask::of(0)), ("v.com/d", "b", both), ("v.com/e", "x", ZoneMask::EMPTY)];
        assert_eq!(devices.collect::<Vec<_>>(), wanted);
        assert_eq!(assignments.containers.len(), 3);
    }

    #[test]
    fn managers_that_wrote_nothing_hold_nothing() {
        assert_eq!(read("", "", ""), Ok(Assignments::default()));
        assert_eq!(read(r#"{"policyName":"none","defaultCpuSet":""}"#, "", "{}"), Ok(Assignments::default()));
        assert_eq!(read("", "", r#"{"Data":{"PodDeviceEntries":null}}"#), Ok(Assignments::default()));
    }

    #[test]
    fn errors_name_file_and_field() {
        let cpu = |text| (text, "", "");
        for ((cpu, memory, devices), wanted) in [
            (cpu("{"), "DIR/cpu_manager_state: not JSON: line 1 column 1"),
            (
                cpu(r#"{"entries":{"u":{"c":"3-1"}}}"#),
                "DIR/cpu_manager_state: entries.u.c: CPU range 3-1 runs backwards",
            ),
            (
                ("", r#"{"entries":{"u":{"c":[{"numaAffinity":[64],"type":"memory","size":1}]}}}"#, ""),
                "DIR/memory_manager_state: entries.u.c[0] is of a zone that cannot be; allowed are 0 to 63",
            ),
            (
                (
                    "",
                    "",
                    r#"{"Data":{"PodDeviceEntries":[{"ResourceName":"v.com/d","DeviceIDs":{"x":["a"]}}]}}"#,
                ),
                "DIR/device-plugins/kubelet_internal_checkpoint: Data.PodDeviceEntries[0].DeviceIDs.x is of a zone \
                 that cannot be; allowed are 0 to 63",
            ),
        ] {
            assert_eq!(read(cpu, memory, devices).unwrap_err(), wanted);
        }
    }
}
