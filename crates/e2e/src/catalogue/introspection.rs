//! A container of the stack that ends says why.

use anyhow::ensure;
use serde_json::Value;

use crate::fixture::Fixture;
use crate::need::Need::Operator;
use crate::spec::{Result, Spec};
use crate::undo::Target;

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new(
            "introspection/operator",
            3,
            "the operator's containers end with a message from their logs",
            operator,
        ),
        Spec::new(
            "introspection/exporter",
            3,
            "the exporters' containers end with a message from their logs",
            exporters,
        ),
    ];
    specs.into_iter().map(|spec| spec.labels(&["terminationMessage"]).needs([Operator])).collect()
}

async fn operator(f: Fixture) -> Result {
    let manager = f.manager().await?;
    say_why(&f, &manager).await
}

async fn exporters(f: Fixture) -> Result {
    for set in f.exporter_sets().await? {
        say_why(&f, &set).await?;
    }
    Ok(())
}

async fn say_why(f: &Fixture, workload: &Target) -> Result {
    let object = f.read(workload).await?;
    let spec = &object["spec"]["template"]["spec"];
    let of = |list: &str| -> Vec<Value> { spec[list].as_array().cloned().unwrap_or_default() };
    let containers: Vec<Value> = of("initContainers").into_iter().chain(of("containers")).collect();
    ensure!(!containers.is_empty(), "{} {} has no container", workload.kind, workload.name);
    for container in containers {
        let policy = &container["terminationMessagePolicy"];
        let is_right = policy == "FallbackToLogsOnError";
        ensure!(is_right, "container {} of {} has {policy}", container["name"], workload.name);
    }
    Ok(())
}
