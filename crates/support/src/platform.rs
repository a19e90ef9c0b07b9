//! `lsplatform`: the platform of a cluster.
//!
//! In: a cluster. Out: `Kubernetes`, `OpenShift` or `HyperShift`; with `-is-platform` only an exit code: 0 this
//! platform, 1 another one, 2 an error. Never: 1 for an error, as in the Go tool, where scripts take an unreachable
//! cluster for another platform.

use std::process::ExitCode;

use deployer::detect;
use deployer::platform::Platform;
use runtime::goflag::{Flag, Kind};

use crate::call::{self, Call, KUBECONFIG};

const FLAGS: [Flag; 1] = [Flag {
    name: "is-platform",
    kind: Kind::Text,
    default: "",
    help: "print nothing; exit with 0 on this platform (Kubernetes, OpenShift, HyperShift), with 1 on another one, \
           with 2 after an error",
}];

/// Runs the tool.
///
/// # Errors
/// When the platform cannot be detected, or the flag names none.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&FLAGS, &KUBECONFIG], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let wanted: Option<Platform> =
        flags.text("is-platform").filter(|name| !name.is_empty()).map(str::parse).transpose()?;
    let found = detect::platform(&call::client("lsplatform", &flags).await?).await?;
    Ok(match wanted {
        Some(wanted) if wanted == found => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
        None => {
            call::print(&format!("{found}\n"))?;
            ExitCode::SUCCESS
        }
    })
}
