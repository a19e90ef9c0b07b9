//! `cargo xtask chart`: the chart for Helm.
//!
//! In: what the deployer makes of options with marks in the place of values. Out: the folder `deploy/chart`. Never: a
//! manifest of its own. The deployer's functions are called for every value of every option that adds, removes or
//! replaces something, and what differs gets a condition.

mod choice;
mod helpers;
mod merge;
mod placeholder;
#[cfg(test)]
mod rig;
mod template;
#[cfg(test)]
mod tests;
mod text;
mod values;

use std::path::PathBuf;

use deployer::part::Component;
use serde::Serialize;

use crate::image::repository;
use crate::tree::{Tree, root};
use template::Template;

/// The folder.
pub(crate) const FOLDER: &str = "deploy/chart";
/// The oldest Kubernetes that the chart is for, as Helm compares versions.
const KUBERNETES: &str = ">=1.30.0-0";

/// Makes the chart.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask chart\n  cargo xtask chart --check\n  \
    cargo xtask chart --output /tmp/chart --repository registry.example/tholepin --digest sha256:DIGITS")]
pub(crate) struct Args {
    /// Only fail when a committed file is stale
    #[arg(long, conflicts_with_all = ["output", "repository", "digest"])]
    check: bool,
    /// Where the chart goes [default: deploy/chart in the repository]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The repository of the image
    #[arg(long, value_name = "NAME", default_value = values::REPOSITORY, requires = "output", value_parser = repository)]
    repository: String,
    /// The digest of the image [default: the image by its tag]
    #[arg(long, value_name = "DIGEST", requires = "output")]
    digest: Option<String>,
}

/// `Chart.yaml`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    api_version: &'static str,
    name: &'static str,
    description: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    version: &'static str,
    app_version: &'static str,
    kube_version: &'static str,
    keywords: [&'static str; 3],
}

/// Writes the chart, or with `check` only fails naming stale files.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = args.output.clone().unwrap_or_else(|| root().join(FOLDER));
    tree(&args.repository, args.digest.as_deref())?.put(&folder, args.check, "cargo xtask chart")
}

/// Fails when a committed file is stale.
pub(crate) fn check() -> anyhow::Result<()> {
    tree(values::REPOSITORY, None)?.put(&root().join(FOLDER), true, "cargo xtask chart")
}

/// The chart's files, for an image in this repository, by its digest or by its tag.
pub(crate) fn tree(repository: &str, digest: Option<&str>) -> anyhow::Result<Tree> {
    let version = env!("CARGO_PKG_VERSION");
    let metadata = Metadata {
        api_version: "v2",
        name: "tholepin",
        description: "NUMA-aware scheduling for Kubernetes",
        kind: "application",
        version,
        app_version: version,
        kube_version: KUBERNETES,
        keywords: ["numa", "scheduler", "topology"],
    };
    let values = values::all(repository, digest)?;
    let mut chart = Tree::default();
    chart.add_yaml("Chart.yaml", &metadata)?;
    chart.add("values.yaml", values::file(&values)?);
    chart.add("values.schema.json", values::schema(&values)?);
    chart.add("templates/_helpers.tpl", helpers::text()?);
    chart.add("templates/NOTES.txt", helpers::NOTES.to_owned());
    let components = [
        ("crds.install", "crd", Template::definition()?),
        ("exporter.enabled", "exporter", Template::of(Component::Exporter)?),
        ("scheduler.enabled", "scheduler", Template::of(Component::Scheduler)?),
    ];
    for (enabled, name, template) in components {
        chart.add(&format!("templates/{name}.yaml"), template.text(name, enabled)?);
    }
    Ok(chart)
}
