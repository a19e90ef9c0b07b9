//! Parsers of flag values.
//!
//! In: text. Out: a value, or the allowed values as an error. Never: I/O.

use std::path::PathBuf;

use runtime::http;
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use crate::settings::{ContainerName, Format, Mode, OwnerKind, PodName, PodPattern};

/// A path that may be empty, which clap does not allow by itself.
pub(super) fn path_or_nothing(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

pub(super) fn listen(text: &str) -> Result<http::Listen, http::AddressError> {
    http::address(text)
}

pub(super) fn policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text)
        .ok_or_else(|| "allowed are none, best-effort, restricted, single-numa-node".to_owned())
}

pub(super) fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| "allowed are container, pod".to_owned())
}

/// Case does not matter, as in RTE.
pub(super) fn method(text: &str) -> Result<Method, String> {
    Method::parse(&text.to_ascii_lowercase())
        .ok_or_else(|| "allowed are with-exclusive-resources, all".to_owned())
}

pub(super) fn format(text: &str) -> Result<Format, String> {
    match text {
        "yaml" => Ok(Format::Yaml),
        "json" => Ok(Format::Json),
        _ => Err("allowed are yaml, json".to_owned()),
    }
}

pub(super) fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "patch" => Ok(Mode::Patch),
        "update" => Ok(Mode::Update),
        "apply" => Ok(Mode::Apply),
        _ => Err("allowed are patch, update, apply".to_owned()),
    }
}

pub(super) fn owner(text: &str) -> Result<OwnerKind, String> {
    match text {
        "node" => Ok(OwnerKind::Node),
        "namespace" => Ok(OwnerKind::Namespace),
        "none" => Ok(OwnerKind::Leave),
        _ => Err("allowed are node, namespace, none".to_owned()),
    }
}

pub(super) fn pod_pattern(text: &str) -> Result<PodPattern, String> {
    let [namespace, name] = parts(text, "NAMESPACE/NAME, two patterns")?;
    Ok(PodPattern { namespace, name })
}

pub(super) fn pod(text: &str) -> Result<PodName, String> {
    let [namespace, name] = parts(text, "NAMESPACE/POD")?;
    Ok(PodName { namespace, name })
}

pub(super) fn container(text: &str) -> Result<ContainerName, String> {
    let [namespace, name, container] = parts(text, "NAMESPACE/POD/CONTAINER")?;
    Ok(ContainerName { pod: PodName { namespace, name }, container })
}

/// Splits text into this number of parts at slashes; none may be empty.
fn parts<const N: usize>(text: &str, form: &str) -> Result<[String; N], String> {
    let parts: Vec<String> = text.split('/').map(|part| part.trim().to_owned()).collect();
    let parts: Option<[String; N]> = parts.try_into().ok();
    parts.filter(|parts| parts.iter().all(|part| !part.is_empty())).ok_or_else(|| format!("must be {form}"))
}
