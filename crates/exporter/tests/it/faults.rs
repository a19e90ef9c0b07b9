//! Faults, one by one: whatever breaks, readers never see a wrong object, and when it is whole again the newest state
//! arrives.
//!
//! Each case has a node of its own, a stand-in for its kubelet that does what real ones cannot be made to do, and a
//! proxy before the one API server that all cases share. Nothing but what happens on the node causes a look: the timers
//! are as slow as in production, or off. Each case ends with [`Rig::survived`], which looks at every state the object
//! has ever had. What only a real kubelet or controller can show is in `outage`.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testkit::podresources::{Fault as KubeletFault, pod};
use testkit::proxy::Fault;
use topology::fingerprint::Fingerprint;

use super::*;
use rig::{Rig, Writes};

#[path = "faults/apiserver.rs"]
mod apiserver;
#[path = "faults/kubelet.rs"]
mod kubelet;
#[path = "faults/machine.rs"]
mod machine;
#[path = "faults/object.rs"]
mod object;
#[path = "faults/process.rs"]
mod process;
#[path = "faults/rig.rs"]
pub(crate) mod rig;

/// The exporter's path in requests.
const OBJECTS: &str = "/noderesourcetopologies";
