//! The checkpoints of the kubelet's managers, for people who compare them with the kubelet's answers, and for readers
//! of what containers hold ([`assignments`]).
//!
//! In: the kubelet's root directory. Out: the fields that are known here, as JSON. Never: another field, or a decision:
//! the checkpoints say what was handed out last, and not what has been released since.

pub mod assignments;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::file::{self, FileError};
use crate::json::{Field, Mismatch};

/// A checkpoint that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// The CPU manager's `cpu_manager_state`: policy, shared CPUs, CPUs by pod and container.
    Cpu,
    /// The memory manager's `memory_manager_state`: policy, zones, blocks by pod and container.
    Memory,
    /// The device manager's `device-plugins/kubelet_internal_checkpoint`: devices by pod and container.
    Devices,
}

/// Why a checkpoint cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is missing.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a checkpoint.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The field and its value.
        reason: String,
    },
}

/// The fields that are kept of a value.
enum Shape {
    /// A text, a number, or true or false.
    Plain,
    /// These fields.
    Fields(&'static [(&'static str, Shape)]),
    /// Values by any name: a pod's UID, a container, a zone, a resource.
    ByName(&'static Shape),
    /// A list of values.
    List(&'static Shape),
}

const CPU: Shape = Shape::Fields(&[
    ("policyName", Shape::Plain),
    ("defaultCpuSet", Shape::Plain),
    ("entries", Shape::ByName(&Shape::ByName(&Shape::Plain))),
    ("podEntries", Shape::ByName(&Shape::Fields(&[("cpuSet", Shape::Plain)]))),
    ("checksum", Shape::Plain),
]);

const MEMORY: Shape = Shape::Fields(&[
    ("policyName", Shape::Plain),
    ("machineState", Shape::ByName(&ZONE)),
    ("entries", Shape::ByName(&Shape::ByName(&Shape::List(&BLOCK)))),
    ("podEntries", Shape::ByName(&Shape::Fields(&[("memoryBlocks", Shape::List(&BLOCK))]))),
    ("checksum", Shape::Plain),
]);

/// Without what plugins tell containers (`AllocResp`), which may have secrets.
const DEVICES: Shape = Shape::Fields(&[
    ("Data", Shape::Fields(&[("PodDeviceEntries", Shape::List(&DEVICE_ENTRY))])),
    ("Checksum", Shape::Plain),
]);

const DEVICE_ENTRY: Shape = Shape::Fields(&[
    ("PodUID", Shape::Plain),
    ("ContainerName", Shape::Plain),
    ("ResourceName", Shape::Plain),
    ("DeviceIDs", Shape::ByName(&Shape::List(&Shape::Plain))),
]);

const ZONE: Shape = Shape::Fields(&[
    ("numberOfAssignments", Shape::Plain),
    ("memoryMap", Shape::ByName(&AMOUNTS)),
    ("cells", Shape::List(&Shape::Plain)),
]);

const AMOUNTS: Shape = Shape::Fields(&[
    ("total", Shape::Plain),
    ("systemReserved", Shape::Plain),
    ("allocatable", Shape::Plain),
    ("reserved", Shape::Plain),
    ("free", Shape::Plain),
]);

const BLOCK: Shape = Shape::Fields(&[
    ("numaAffinity", Shape::List(&Shape::Plain)),
    ("type", Shape::Plain),
    ("size", Shape::Plain),
]);

impl Checkpoint {
    /// All.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Devices];

    /// The file below the kubelet's root directory.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu_manager_state",
            Self::Memory => "memory_manager_state",
            Self::Devices => "device-plugins/kubelet_internal_checkpoint",
        }
    }

    /// The known fields of the checkpoint; `None` if the kubelet has written none, as without policy `static`.
    ///
    /// # Errors
    /// When the file cannot be read, or a field has another type.
    pub fn recording(self, root: &Path) -> Result<Option<String>, Error> {
        let shape = match self {
            Self::Cpu => &CPU,
            Self::Memory => &MEMORY,
            Self::Devices => &DEVICES,
        };
        let kept = read(&root.join(self.file_name()), |checkpoint| Ok(shape.of(checkpoint)?))?;
        Ok(kept.map(|kept| format!("{kept:#}\n")))
    }
}

/// Reads a checkpoint; `None` if there is none.
fn read<T>(path: &Path, parse: impl FnOnce(&Field) -> Result<T, FieldError>) -> Result<Option<T>, Error> {
    let Some(text) = file::read_if_there(path)? else { return Ok(None) };
    let failed = |reason: String| Error::Content { path: path.to_owned(), reason };
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| failed(format!("not JSON: line {} column {}", error.line(), error.column())))?;
    parse(&Field::root(&value)).map(Some).map_err(|error| failed(error.0))
}

/// The words for a field that makes no sense.
struct FieldError(String);

impl From<Mismatch> for FieldError {
    fn from(mismatch: Mismatch) -> Self {
        Self(mismatch.to_string())
    }
}

impl Shape {
    /// What is kept of a value.
    fn of(&self, at: &Field) -> Result<Value, Mismatch> {
        match self {
            Self::Plain => at.plain(),
            Self::List(shape) => Ok(at.list(|item| shape.of(item))?.into()),
            Self::ByName(shape) => {
                let kept = |(name, at): (&str, Field)| Ok((name.to_owned(), shape.of(&at)?));
                Ok(at.fields()?.into_iter().map(kept).collect::<Result<Map<_, _>, _>>()?.into())
            }
            Self::Fields(fields) => {
                let mut kept = Map::new();
                for (name, shape) in *fields {
                    if let Some(field) = at.field(name)? {
                        kept.insert((*name).to_owned(), shape.of(&field)?);
                    }
                }
                Ok(kept.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(checkpoint: Checkpoint, text: &str, wanted: Result<&str, &str>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("device-plugins")).unwrap();
        std::fs::write(dir.path().join(checkpoint.file_name()), text).unwrap();
        let kept = checkpoint.recording(dir.path()).map_err(|error| error.to_string());
        let kept = kept.map(|text| serde_json::from_str::<Value>(&text.unwrap()).unwrap().to_string());
        let kept = kept.map_err(|error| error.replace(&dir.path().display().to_string(), "DIR"));
        assert_eq!(kept.as_deref().map_err(String::as_str), wanted);
    }

    #[test]
    fn known_fields_are_kept() {
        let cpu = r#"{"checksum":7,"defaultCpuSet":"0-3","entries":{"uid":{"c":"4"}},"policyName":"static"}"#;
        check(Checkpoint::Cpu, cpu, Ok(cpu));
        check(
            Checkpoint::Cpu,
            r#"{"policyName":"none","token":"x","entries":null}"#,
            Ok(r#"{"policyName":"none"}"#),
        );
        let memory = r#"{"entries":{"uid":{"c":[{"numaAffinity":[0],"size":5,"type":"memory"}]}},"machineState":{"0":{"cells":[0],"memoryMap":{"memory":{"free":1,"total":2}},"numberOfAssignments":0}}}"#;
        check(Checkpoint::Memory, memory, Ok(memory));
        let more = memory.replace(r#""cells""#, r#""more":{"a":1},"cells""#);
        check(Checkpoint::Memory, &more, Ok(memory));
        let devices = r#"{"Checksum":1,"Data":{"PodDeviceEntries":[{"ContainerName":"c","DeviceIDs":{"0":["a"]},"PodUID":"u","ResourceName":"v.com/d"}]}}"#;
        let more = devices.replace(r#""PodUID""#, r#""AllocResp":"c2VjcmV0","PodUID""#);
        check(Checkpoint::Devices, &more, Ok(devices));
    }

    #[test]
    fn errors_name_file_and_field() {
        let entries = "DIR/cpu_manager_state: entries.a is \"b\", expected an object";
        check(Checkpoint::Cpu, r#"{"entries":{"a":"b"}}"#, Err(entries));
        let plain = "DIR/cpu_manager_state: entries.a.b is a list, expected text, a number, true or false";
        check(Checkpoint::Cpu, r#"{"entries":{"a":{"b":[1]}}}"#, Err(plain));
        check(Checkpoint::Memory, "{", Err("DIR/memory_manager_state: not JSON: line 1 column 1"));
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Checkpoint::Cpu.recording(dir.path()), Ok(None)));
        std::fs::create_dir(dir.path().join("cpu_manager_state")).unwrap();
        assert!(matches!(Checkpoint::Cpu.recording(dir.path()), Err(Error::File(_))));
    }
}
