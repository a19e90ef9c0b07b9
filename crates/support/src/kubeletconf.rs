//! `catkubeletconfmap`: the topology manager settings of a pool's kubelets, as variables for scripts.
//!
//! In: the ConfigMap that the operator keeps for the pool's exporters. Out: `TOPOLOGY_MANAGER_POLICY=...` and
//! `TOPOLOGY_MANAGER_SCOPE=...`, with a prefix. Never: no read at all, however short `-wait` is; the Go tool never
//! reads with its default.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use runtime::client;
use runtime::goflag::{Flag, Kind};
use runtime::yaml::{self, Mode};
use serde::Deserialize;
use tokio::time::Instant;

use crate::call::{self, Call, KUBECONFIG};

/// Time between two reads.
const INTERVAL: Duration = Duration::from_secs(2);
/// Key in the ConfigMap.
const KEY: &str = "config.yaml";

const FLAGS: [Flag; 4] = [
    Flag {
        name: "namespace",
        kind: Kind::Text,
        default: "numaresources",
        help: "namespace of the ConfigMap",
    },
    Flag {
        name: "name",
        kind: Kind::Text,
        default: "numaresourcesoperator-worker",
        help: "name of the ConfigMap",
    },
    Flag { name: "prefix", kind: Kind::Text, default: "", help: "prefix of the variables' names" },
    Flag {
        name: "wait",
        kind: Kind::Duration,
        default: "0s",
        help: "how long to wait for the ConfigMap; 0: read once",
    },
];

/// The part of the exporters' configuration that is read. The fields at the top are those of operators up to 4.18.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    kubelet: Kubelet,
    topology_manager_policy: String,
    topology_manager_scope: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Kubelet {
    topology_manager_policy: String,
    topology_manager_scope: String,
}

/// Runs the tool.
///
/// # Errors
/// When the ConfigMap does not appear in time, cannot be read, or holds no configuration.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&FLAGS, &KUBECONFIG], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let namespace = flags.text("namespace").unwrap_or("numaresources");
    let name = flags.text("name").unwrap_or("numaresourcesoperator-worker");
    let wait = flags.duration("wait").map(|wait| wait.to_std().unwrap_or_default()).unwrap_or_default();
    let client = call::client("catkubeletconfmap", &flags).await?;
    let map = fetch(&client, namespace, name, wait).await?;
    let text = map.data.as_ref().and_then(|data| data.get(KEY));
    let text = text.with_context(|| format!("ConfigMap {namespace}/{name}: no key {KEY}"))?;
    call::print(&variables(
        &format!("ConfigMap {namespace}/{name} {KEY}"),
        text,
        flags.text("prefix").unwrap_or_default(),
    )?)?;
    Ok(ExitCode::SUCCESS)
}

async fn fetch(client: &Client, namespace: &str, name: &str, wait: Duration) -> anyhow::Result<ConfigMap> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let end = Instant::now() + wait;
    loop {
        let reason = match maps.get(name).await {
            Ok(map) => return Ok(map),
            Err(error) if client::is_not_found(&error) || client::is_retryable(&error) => {
                client::brief(&error)
            }
            Err(error) => bail!("ConfigMap {namespace}/{name}: {}", client::brief(&error)),
        };
        let now = Instant::now();
        if now >= end {
            bail!("ConfigMap {namespace}/{name}: {reason}");
        }
        call::log(&format!("ConfigMap {namespace}/{name}: {reason}; trying again"));
        tokio::time::sleep_until(end.min(now + INTERVAL)).await;
    }
}

fn variables(title: &str, text: &str, prefix: &str) -> anyhow::Result<String> {
    let config: Config = yaml::read_str(title, text, Mode::Lenient)?;
    let or = |new: String, old: String| if new.is_empty() { old } else { new };
    let policy = or(config.kubelet.topology_manager_policy, config.topology_manager_policy);
    let scope = or(config.kubelet.topology_manager_scope, config.topology_manager_scope);
    Ok(format!("{prefix}TOPOLOGY_MANAGER_POLICY={policy}\n{prefix}TOPOLOGY_MANAGER_SCOPE={scope}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_become_variables() {
        let table = [
            (
                "kubelet:\n  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n",
                "restricted",
                "pod",
            ),
            ("kubelet: {topologyManagerPolicy: single-numa-node}\npodExclude: []\n", "single-numa-node", ""),
            (
                "topologyManagerPolicy: best-effort\ntopologyManagerScope: container\n",
                "best-effort",
                "container",
            ),
            ("kubelet: {}\n", "", ""),
            ("{}", "", ""),
        ];
        for (text, policy, scope) in table {
            let wanted =
                format!("E2E_TOPOLOGY_MANAGER_POLICY={policy}\nE2E_TOPOLOGY_MANAGER_SCOPE={scope}\n");
            assert_eq!(variables("x", text, "E2E_").unwrap(), wanted, "{text}");
        }
        for wrong in ["kubelet: [", "kubelet: 1", "- a"] {
            assert!(variables("x", wrong, "").unwrap_err().to_string().starts_with("x: "), "{wrong}");
        }
    }
}
