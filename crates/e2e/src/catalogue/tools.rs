//! Tools in the operator's image, upgrades, and what collects data for support.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use api::features::Topics;
use api::numaresources::keys::SELINUX_POLICY;
use kube::ResourceExt as _;
use kube::api::ListParams;
use runtime::client::{brief, exec};
use serde_json::Value;
use topology::policy::Policy;

use super::install::remove_exporters;
use crate::fixture::Fixture;
use crate::label_filter::LabelFilter;
use crate::machines;
use crate::need::Need::{Exec, Kind, Operator};
use crate::pods::first_container;
use crate::spec::{Result, Skip, Spec};
use crate::tool::Given;

/// The largest answer.
const ANSWER_BYTES: usize = 64 << 10;
/// The kind of what a pool's machines have.
const MACHINE_CONFIGS: &str = "machineconfigs.machineconfiguration.openshift.io";
/// What the names of MachineConfigs with a SELinux policy begin with.
const SELINUX: &str = "51-";

pub(super) fn specs() -> Vec<Spec> {
    vec![
        Spec::new("tools/features", 2, "the operator's program lists its features", features)
            .needs([Operator, Exec]),
        Spec::new("tools/platform", 2, "the operator's image tells the platform", platform)
            .needs([Operator, Exec]),
        Spec::new("tools/label-filter", 3, "features become a label filter, which specs match", label_filter),
        Spec::new(
            "tools/validate",
            1,
            "`validate` objects to the kubelets that do not align, and to no others",
            validate,
        )
        .needs([Exec]),
        Spec::new("tools/validate-crd", 3, "`validate` objects to a definition without reports", no_reports)
            .labels(&["disruptive"])
            .needs([Operator]),
        Spec::new("upgrade/selinux", 2, "no MachineConfig gives exporters a SELinux policy unasked", selinux)
            .labels(&["upgrade"])
            .needs([Operator, Kind(MACHINE_CONFIGS)]),
        Spec::absent(
            "must-gather/selinux",
            3,
            "the nodes' SELinux contexts are collected",
            "programs of the nodes, and SELinux in force there",
        ),
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

/// What the Go tool answers: input and output; no output is a refusal.
const FILTERS: [(&str, Option<&str>); 4] = [
    (r#"{"active":["foo","bar","foobar"]}"#, Some("feature: containsAny {foo,bar,foobar}\n")),
    (r#"{"active":["foo"],"other":1}"#, Some("feature: containsAny {foo}\n")),
    ("{}", Some("feature: containsAny {}\n")),
    (r#"{"active":"#, None),
];

async fn label_filter(f: Fixture) -> Result {
    let ask = async |input: &str| f.tool(&["mkginkgolabelfilter"], Given { input, ..Given::default() }).await;
    for (input, wanted) in FILTERS {
        let said = ask(input).await?;
        let is_right =
            said.stdout == wanted.unwrap_or_default() && (said.code == Some(0)) == wanted.is_some();
        ensure!(is_right, "{input}: {said:?}");
    }
    let topics = Topics::own();
    let said = ask(&topics.to_json()).await?;
    let filter = LabelFilter::parse(said.stdout.trim()).map_err(anyhow::Error::msg)?;
    for topic in &topics.active {
        ensure!(filter.matches([&*format!("feature:{topic}")]), "{said:?} does not choose {topic}");
    }
    ensure!(!filter.matches(["feature:e2e-none"]), "{said:?} chooses what is no feature");
    Ok(())
}

/// The nodes to which `validate` objects by a check, whatever label they have.
async fn objections(f: &Fixture, check: &str) -> Result<BTreeSet<String>> {
    let words = ["validate", "--output=json", "--selector=kubernetes.io/hostname", "--only", check];
    let said = f.cluster_tool(&words).await?;
    ensure!(matches!(said.code, Some(0 | 1)), "validate: exit code {:?}: {}", said.code, said.last());
    let document: Value = serde_json::from_str(&said.stdout).with_context(|| said.stdout.clone())?;
    let findings = document["findings"].as_array().into_iter().flatten();
    let of_check = findings.filter(|finding| finding["id"] == check);
    let objects = of_check.filter_map(|finding| finding["object"].as_str()?.strip_prefix("Node "));
    Ok(objects.map(str::to_owned).collect())
}

/// The reports say which kubelets align; `validate` asks the kubelets themselves.
async fn validate(f: Fixture) -> Result {
    let objections = objections(&f, "topology-manager-policy").await?;
    for node in &f.facts().nodes {
        let (name, policy) = (&node.name, node.rules().policy);
        let is_right = objections.contains(name) == (policy != Policy::SingleNumaNode);
        ensure!(
            is_right,
            "node {name} has policy {}; there are objections to {objections:?}",
            policy.as_str()
        );
    }
    Ok(())
}

async fn no_reports(f: Fixture) -> Result {
    let check = "report-missing";
    let before = objections(&f, check).await?;
    let nodes = remove_exporters(&f).await?;
    let wrongly = nodes.iter().find(|node| before.contains(*node));
    ensure!(wrongly.is_none(), "there was an objection to node {wrongly:?}, which had a report");
    let now = objections(&f, check).await?;
    let missed = nodes.iter().find(|node| !now.contains(*node));
    ensure!(missed.is_none(), "there is no objection to node {missed:?}, which has no report");
    Ok(())
}
