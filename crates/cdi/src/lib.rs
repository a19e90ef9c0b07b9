//! Container Device Interface specifications (1.1.0): how a container gets a device, in files that container runtimes
//! read.
//!
//! In: specifications, as values or as files in folders. Out: checked specifications; files that are replaced as a
//! whole. Never: a container, a device, the Kubernetes API.

pub mod annotation;
pub mod check;
pub mod cli;
pub mod file;
pub mod name;
pub mod registry;
pub mod spec;
pub mod version;

pub use check::{Finding, Severity};
pub use file::{Error, FileName};
pub use name::{Kind, QualifiedName};
pub use registry::Registry;
pub use spec::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
pub use version::Version;

/// The folder for specifications of administrators and packages.
pub const STATIC_DIR: &str = "/etc/cdi";

/// The folder for specifications that programs generate. It is empty after a reboot, and takes precedence over
/// [`STATIC_DIR`].
pub const GENERATED_DIR: &str = "/var/run/cdi";
