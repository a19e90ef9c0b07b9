//! Tools in the operator's image, upgrades, and what collects data for support.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use api::features::Topics;
use api::numaresources::keys::SELINUX_POLICY;
use kube::ResourceExt as _;
use kube::api::ListParams;
use runtime::client::{brief, exec};

use crate::fixture::Fixture;
use crate::machines;
use crate::need::Need::{Exec, Kind, Operator};
use crate::pods::first_container;
use crate::spec::{Result, Skip, Spec};

/// The largest answer.
const ANSWER_BYTES: usize = 64 << 10;
/// The kind of what a pool's machines have.
const MACHINE_CONFIGS: &str = "machineconfigs.machineconfiguration.openshift.io";
/// What the names of MachineConfigs with a SELinux policy begin with.
const SELINUX: &str = "51-";

pub(super) fn specs() -> Vec<Spec> {
    let oc = "the client `oc`, and an image that collects data";
    vec![
        Spec::new("tools/features", 2, "the operator's program lists its features", features)
            .needs([Operator, Exec]),
        Spec::new("tools/platform", 2, "the operator's image tells the platform", platform)
            .needs([Operator, Exec]),
        Spec::absent(
            "tools/label-filter",
            3,
            "features become a label filter",
            "a program of the test image",
        ),
        Spec::absent(
            "tools/validate",
            3,
            "a cluster without KubeletConfigs is objected to",
            "such a cluster",
        ),
        Spec::absent(
            "tools/validate-crd",
            3,
            "a definition without reports is objected to",
            "such a cluster",
        ),
        Spec::new("upgrade/selinux", 2, "no MachineConfig gives exporters a SELinux policy unasked", selinux)
            .labels(&["upgrade"])
            .needs([Operator, Kind(MACHINE_CONFIGS)]),
        Spec::absent("must-gather/objects", 3, "the stack's objects and logs are collected", oc),
        Spec::absent("must-gather/selinux", 3, "the nodes' SELinux contexts are collected", oc),
    ]
}

/// What a program in the operator's container prints.
async fn printed(f: &Fixture, command: &[&str]) -> Result<String> {
    let manager = f.manager().await?;
    let pod = f.pods_of(&manager).await?.into_iter().next().context("the operator has no pod")?;
    let container = first_container(&pod).context("the operator's pod has no container")?;
    exec(&f.cluster().client, container, command, ANSWER_BYTES).await.map_err(|error| {
        Skip(format!("an operator's image with {}: {}", command.join(" "), brief(&error))).into()
    })
}

async fn features(f: Fixture) -> Result {
    let text = printed(&f, &["/bin/numaresources-operator", "--inspect-features"]).await?;
    let topics: Topics = serde_json::from_str(&text).with_context(|| text.clone())?;
    let known: BTreeSet<&String> = topics.active.iter().collect();
    ensure!(!known.is_empty() && known.len() == topics.active.len(), "the features are {text}");
    ensure!(topics.active.iter().any(|topic| topic == "config"), "the features are {text}");
    Ok(())
}

async fn platform(f: Fixture) -> Result {
    let said = printed(&f, &["/bin/lsplatform"]).await?;
    let wanted = f.facts().platform.to_string();
    ensure!(said.trim() == wanted, "it says {said:?}, not {wanted}");
    Ok(())
}

async fn selinux(f: Fixture) -> Result {
    let nro = f.nro()?;
    let groups = f.read(&nro).await?["spec"]["nodeGroups"].as_array().cloned().unwrap_or_default();
    if groups.iter().any(|group| !group["annotations"][SELINUX_POLICY].is_null()) {
        return Err(Skip(format!("node groups without the annotation {SELINUX_POLICY}")).into());
    }
    let all = machines::target("MachineConfig", "machineconfigs", "").api(&f.cluster().client);
    let all = all.list(&ListParams::default()).await.context("listing MachineConfigs")?;
    let prefix = format!("{SELINUX}{}-", nro.name);
    let found = all.iter().map(|config| config.name_any()).find(|name| name.starts_with(&prefix));
    ensure!(found.is_none(), "there is MachineConfig {found:?}");
    Ok(())
}
