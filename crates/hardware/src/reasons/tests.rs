//! docs/hardware.md compared with the code: each reason and metric is explained there, and no other.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use api::hardware::DeviceConfig;
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;
use crate::cluster_state::{ClusterState, Config, Environment};
use crate::metrics::Metrics;
use crate::plan::{Action, Plan};
use crate::shared::Shared;
use crate::status::{StatusInputs, status};

/// The code words in the first column of the table below a heading, each once.
fn explained(heading: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hardware.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once(&format!("\n### {heading}\n")).unwrap();
    let table =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = table.skip(2).filter_map(|line| line.split('|').nth(1));
    let words: Vec<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let all: BTreeSet<String> = words.iter().cloned().collect();
    assert_eq!(words.len(), all.len(), "{heading}: explained twice: {words:?}");
    all
}

#[track_caller]
fn check<T: Into<String>>(heading: &str, message: impl IntoIterator<Item = T>) {
    let message: BTreeSet<String> = message.into_iter().map(Into::into).collect();
    let explained = explained(heading);
    let missing: Vec<_> = message.difference(&explained).collect();
    let never_said: Vec<_> = explained.difference(&message).collect();
    assert!(
        missing.is_empty() && never_said.is_empty(),
        "docs/hardware.md, {heading}: missing {missing:?}, never message {never_said:?}"
    );
}

#[test]
fn each_reason_is_explained() {
    let config = Config::of(DeviceConfig::default());
    let observed = status(
        &ClusterState::default(),
        &config,
        &Plan::default(),
        &StatusInputs::default(),
        Timestamp::UNIX_EPOCH,
    );
    check("Conditions", observed.conditions.into_iter().map(|condition| condition.type_));
    check("Reasons of conditions", Reason::VARIANTS.iter().map(|reason| reason.as_ref()));
    check("Problems of nodes", ProblemReason::VARIANTS.iter().map(|trouble| trouble.as_ref()));
    check("Events", EventReason::VARIANTS.iter().map(|reason| reason.as_ref()));
}

#[test]
fn each_metric_is_explained() {
    let shared = Shared::new(Environment::default());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, &shared);
    metrics.round(Duration::ZERO);
    metrics.action(&Action::Finalizer(true), None);
    let mut config = DeviceConfig::default();
    config.metadata.name = Some("acc".to_owned());
    shared.update(|cluster| cluster.put_config(Config::of(config)));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    check(
        "Metrics",
        types.map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() }),
    );
}
