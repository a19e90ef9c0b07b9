//! `schedlogs`: the log of the leading scheduler.
//!
//! In: the lease of the schedulers. Out: the log of its holder's pod, between separators. Never: the log of a waiting
//! replica.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};
use runtime::client::{self, brief};
use runtime::goflag::{Flag, Kind, Parsed};

use crate::call::{self, Call, KUBECONFIG};

/// Lease of the operator's schedulers.
pub const LEASE: &str = "numa-scheduler-leader";
/// Name of their container.
pub const CONTAINER: &str = "secondary-scheduler";
const NAMESPACE: &str = "numaresources";
const SCISSORS: &str = "-------8<-------\n";

const FLAGS: [Flag; 4] = [
    Flag { name: "namespace", kind: Kind::Text, default: NAMESPACE, help: "namespace of the scheduler" },
    Flag { name: "container", kind: Kind::Text, default: CONTAINER, help: "the scheduler's container" },
    Flag { name: "since", kind: Kind::Duration, default: "5m0s", help: "age of the oldest lines" },
    Flag {
        name: "lease",
        kind: Kind::Text,
        default: "",
        help: "lease of the schedulers; default: numa-scheduler-leader, else the only lease of the namespace whose \
               holder is a pod there",
    },
];

/// Runs the tool.
///
/// # Errors
/// When no scheduler leads, or the log cannot be read.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&FLAGS, &KUBECONFIG], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let namespace = flags.text("namespace").unwrap_or(NAMESPACE);
    let client = call::client("schedlogs", &flags).await?;
    let pod = leader(&client, namespace, flags.text("lease").filter(|name| !name.is_empty())).await?;
    let container = container(&pod, flags.text("container").unwrap_or(CONTAINER))?;
    let name = pod.name_any();
    call::log(&format!("leader pod: {namespace}/{name}"));
    let params =
        LogParams { container: Some(container), since_seconds: Some(since(&flags)), ..LogParams::default() };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let text = pods.logs(&name, &params).await;
    let text = text.map_err(|error| anyhow::anyhow!("logs of {namespace}/{name}: {}", brief(&error)))?;
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    call::print(&format!("{SCISSORS}{text}{end}{SCISSORS}"))?;
    Ok(ExitCode::SUCCESS)
}

/// The age of the oldest lines in whole seconds, at least one.
fn since(flags: &Parsed) -> i64 {
    let since = flags.duration("since").map_or(300, |since| since.to_std().unwrap_or_default().as_secs());
    i64::try_from(since).unwrap_or(i64::MAX).max(1)
}

/// The pod of the leading scheduler.
///
/// # Errors
/// When the leader is not clear.
pub async fn leader(client: &Client, namespace: &str, lease: Option<&str>) -> anyhow::Result<Pod> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let failed = |what: String| move |error: kube::Error| anyhow::anyhow!("{what}: {}", brief(&error));
    let name = lease.unwrap_or(LEASE);
    let found = match leases.get(name).await {
        Ok(found) => vec![found],
        Err(error) if lease.is_none() && client::is_not_found(&error) => {
            let all = leases.list(&ListParams::default()).await;
            all.map_err(failed(format!("leases of namespace {namespace}")))?.items
        }
        Err(error) => return Err(failed(format!("lease {namespace}/{name}"))(error)),
    };
    let mut leaders = Vec::new();
    for lease in &found {
        let Some(holder) = holder(lease) else { continue };
        match pods.get(holder).await {
            Ok(pod) => leaders.push(pod),
            Err(error) if client::is_not_found(&error) => {}
            Err(error) => return Err(failed(format!("pod {namespace}/{holder}"))(error)),
        }
    }
    match (leaders.pop(), leaders.is_empty()) {
        (Some(pod), true) => Ok(pod),
        (Some(_), false) => {
            bail!("namespace {namespace}: several leases have holders; -lease selects one")
        }
        (None, _) => bail!("namespace {namespace}: no lease {name} whose holder is a pod there"),
    }
}

/// The name of the holding pod: the part of the identity before the last `_`.
fn holder(lease: &Lease) -> Option<&str> {
    let identity = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let name = identity.rsplit_once('_').map_or(identity, |(name, _)| name);
    (!name.is_empty()).then_some(name)
}

/// The container of this name, else the only container of the pod.
fn container(pod: &Pod, wanted: &str) -> anyhow::Result<String> {
    let names: Vec<&str> =
        pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| container.name.as_str()).collect();
    let found = names.iter().find(|name| **name == wanted);
    let found = found.or(if names.len() == 1 { names.first() } else { None });
    let found = found.with_context(|| {
        format!("pod {}: no container {wanted}; there are {}", pod.name_any(), names.join(", "))
    })?;
    Ok((*found).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn holders_are_pods() {
        for (identity, wanted) in [
            (json!("pod-a_6ba7"), Some("pod-a")),
            (json!("pod_a_6ba7"), Some("pod_a")),
            (json!("pod-a"), Some("pod-a")),
            (json!("_6ba7"), None),
            (json!(""), None),
            (json!(null), None),
        ] {
            let lease: Lease =
                serde_json::from_value(json!({ "spec": { "holderIdentity": identity } })).unwrap();
            assert_eq!(holder(&lease), wanted, "{identity}");
        }
        assert_eq!(holder(&Lease::default()), None);
    }

    #[test]
    fn containers_are_found() {
        let check = |names: &[&str], wanted: &str, found: Option<&str>| {
            let containers: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
            let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": containers } })).unwrap();
            assert_eq!(container(&pod, wanted).ok().as_deref(), found, "{names:?}");
        };
        check(&["a", "b"], "b", Some("b"));
        check(&["a", "b"], "c", None);
        check(&["a"], "c", Some("a"));
        check(&[], "c", None);
    }

    #[test]
    fn time_is_in_seconds() {
        let check = |words: &[&str], seconds: i64| {
            let call = Call {
                program: "schedlogs".to_owned(),
                arguments: words.iter().map(|word| (*word).to_owned()).collect(),
            };
            assert_eq!(since(&call.flags(&[&FLAGS], false).unwrap()), seconds, "{words:?}");
        };
        check(&[], 300);
        check(&["-since", "30s"], 30);
        check(&["--since=1h"], 3600);
        check(&["-since=1ms"], 1);
        check(&["-since=-5m"], 1);
    }
}
