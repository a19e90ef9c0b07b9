//! `lsplatform`: what kind of cluster it is.
//!
//! In: a cluster. Out: `Kubernetes`, `OpenShift` or `HyperShift`; or, asked for one of them, an exit code alone: 0 it is, 1 it is another one,
//! 2 it could not be found out (the Go tool says 1 for that too, so that a script takes an unreachable cluster for another platform).

use std::process::ExitCode;

use deployer::detect;
use deployer::platform::Platform;
use runtime::goflag::{Flag, Kind};

use crate::tool::{self, Call, KUBECONFIG};

const FLAGS: [Flag; 1] = [Flag {
    name: "is-platform",
    kind: Kind::Text,
    default: "",
    help: "print nothing; exit 0 if it is this platform (Kubernetes, OpenShift, HyperShift), 1 if it is another one, 2 for errors",
}];

/// Runs it.
///
/// # Errors
/// When it cannot be found out, or there is no such platform.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&FLAGS, &KUBECONFIG], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let wanted: Option<Platform> =
        flags.text("is-platform").filter(|name| !name.is_empty()).map(str::parse).transpose()?;
    let found = detect::platform(&tool::client("lsplatform", &flags).await?).await?;
    Ok(match wanted {
        Some(wanted) if wanted == found => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
        None => {
            tool::print(&format!("{found}\n"))?;
            ExitCode::SUCCESS
        }
    })
}
