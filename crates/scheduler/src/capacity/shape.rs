//! The shape of a pod: amounts of resources, in short.
//!
//! In: text such as `cpu=4,memory=8Gi,example.com/gpu=1`. Out: a Guaranteed pod of one container, as a manifest. Never:
//! a pod that no kubelet would align without a word about it.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};
use topology::quantity::Quantity;
use topology::resource::ResourceName;

use crate::core::Settings;
use crate::explain::target_pod::TargetPod;

/// What a shape looks like, for errors.
const FORM: &str = "allowed is NAME=AMOUNT,..., such as cpu=4,memory=8Gi,example.com/gpu=1";

/// Reads a shape, for a pod of this scheduler.
///
/// # Errors
/// The part that is wrong, with what is allowed.
pub(super) fn manifest(shape: &str, scheduler: &str) -> anyhow::Result<Value> {
    let mut amounts = Map::new();
    for part in shape.split(',') {
        let Some((name, amount)) = part.trim().split_once('=') else { bail!("{part:?}: {FORM}") };
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        ensure!(name.chars().all(is_allowed), "{part:?}: {FORM}");
        ResourceName::new(name).with_context(|| format!("{part:?}: {FORM}"))?;
        let quantity = Quantity::parse(amount).with_context(|| format!("{part:?}: {FORM}"))?;
        ensure!(quantity.sign() > 0, "{part:?}: amounts are above 0");
        ensure!(amounts.insert(name.to_owned(), amount.into()).is_none(), "{name} is there twice");
    }
    for name in ["cpu", "memory"] {
        ensure!(
            amounts.contains_key(name),
            "{name} is missing: only a pod with CPUs and memory is Guaranteed, and so aligned; use --pod for others"
        );
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "shape" },
        "spec": { "schedulerName": scheduler, "containers": [{
            "name": "main", "resources": { "requests": amounts, "limits": amounts },
        }] },
    }))
}

/// The pod of a shape, for questions.
///
/// # Errors
/// As [`manifest`].
pub(super) fn target(shape: &str, scheduler: &str) -> anyhow::Result<TargetPod> {
    TargetPod::of_manifest(manifest(shape, scheduler)?).map_err(anyhow::Error::msg)
}

/// The pod that flags ask about: of a file (`--pod`), or of a shape (`--shape`). `None`: of neither.
///
/// # Errors
/// When the file or the shape cannot be read.
pub(crate) fn of_flags(
    file: Option<&Path>,
    shape: Option<&str>,
    settings: &Settings,
) -> anyhow::Result<Option<TargetPod>> {
    match (file, shape) {
        (Some(file), _) => TargetPod::of_file(file).map(Some),
        (None, Some(shape)) => {
            let scheduler = settings.profiles.first().map_or("", |profile| &*profile.name);
            target(shape, scheduler).context("--shape").map(Some)
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_guaranteed_pods() {
        let pod = manifest("cpu=4, memory=8Gi,v.io/gpu=2", "s").unwrap();
        let amounts = json!({"cpu": "4", "memory": "8Gi", "v.io/gpu": "2"});
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(resources, &json!({"requests": amounts, "limits": amounts}));
    }

    #[test]
    fn errors_name_the_part_and_what_is_allowed() {
        for (shape, words) in [
            ("", "allowed is NAME=AMOUNT"),
            ("cpu", "\"cpu\": allowed is"),
            ("cpu=x,memory=1Gi", "\"cpu=x\": allowed is"),
            ("cpu=0,memory=1Gi", "\"cpu=0\": amounts are above 0"),
            ("cpu=-1,memory=1Gi", "\"cpu=-1\": amounts are above 0"),
            ("cpu=1,cpu=2,memory=1Gi", "cpu is there twice"),
            ("cpu=1", "memory is missing"),
            ("memory=1Gi", "cpu is missing"),
            ("a b=1,cpu=1,memory=1Gi", "\"a b=1\": allowed is"),
        ] {
            let error = format!("{:#}", manifest(shape, "s").unwrap_err());
            assert!(error.contains(words), "{shape:?}: {error}");
        }
    }
}
