//! Values of flags and environment variables: from text to types.
//!
//! In: text. Out: values; errors state what is allowed, and clap puts the flag's name before them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use api::goduration::GoDuration;
use api::schedulerconfig::Word;
use k8s_openapi::api::core::v1::Toleration;

use crate::manifests::pod;
use crate::options::{LeaseName, files};

/// The number of schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replicas {
    /// This many; above zero.
    Fixed(i32),
    /// One for each control plane node.
    ControlPlane,
}

/// An interval; zero on the command line is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(pub(super) Option<Duration>);

/// The value of an environment variable. None of ours can have a value that is not UTF-8.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(super) fn word<T: Word>(text: &str) -> Result<T, String> {
    let allowed = || T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    T::parse(text).ok_or_else(|| format!("it must be {}", allowed()))
}

pub(super) fn bool_word(text: &str) -> Result<bool, String> {
    topology::gobool::parse(text).ok_or_else(|| "it must be true or false".to_owned())
}

/// The address of a page; parts of it follow after a `#`.
pub(super) fn page(text: &str) -> Result<String, String> {
    let is_one =
        !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#');
    is_one
        .then(|| text.to_owned())
        .ok_or_else(|| "it must be the address of a page, without spaces and #".to_owned())
}

/// A duration in Go's text form; not negative.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = GoDuration::parse(text).map_err(|error| error.to_string())?;
    duration.to_std().ok_or_else(|| "it must not be negative".to_owned())
}

pub(super) fn period(text: &str) -> Result<Period, String> {
    duration(text).map(|period| Period(Some(period).filter(|period| !period.is_zero())))
}

/// A number, or `auto`. A negative number is `auto` too, as with the Go deployer.
pub(super) fn replicas(text: &str) -> Result<Replicas, String> {
    if text == "auto" {
        return Ok(Replicas::ControlPlane);
    }
    match text.parse::<i32>() {
        Ok(number) if number < 0 => Ok(Replicas::ControlPlane),
        Ok(number) if number > 0 => Ok(Replicas::Fixed(number)),
        _ => Err("it must be a number above zero, or auto".to_owned()),
    }
}

pub(super) fn lease(text: &str) -> Result<LeaseName, String> {
    files::lease(text).map_err(|error| error.to_string())
}

/// An address range, as in `192.0.2.0/24`.
///
/// # Errors
/// For any other text.
pub fn cidr(text: &str) -> Result<String, String> {
    let (address, bits) = text.split_once('/').unwrap_or_default();
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return Err("allowed are address ranges such as 192.0.2.0/24".to_owned()),
    };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= most => Ok(text.to_owned()),
        _ => Err(format!("allowed are 0 to {most} bits after the slash")),
    }
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it must be KEY=VALUE")?;
    if key.is_empty() {
        return Err("it must be KEY=VALUE".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// `KEY[=VALUE][:EFFECT]`; `all` tolerates every taint, `none` is no toleration.
pub(super) fn toleration(text: &str) -> Result<Option<Toleration>, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    match text {
        "none" => return Ok(None),
        "all" => return Ok(Some(pod::tolerate_all())),
        _ => {}
    }
    let (taint, effect) = text.split_once(':').map_or((text, None), |(taint, effect)| (taint, Some(effect)));
    if effect.is_some_and(|effect| !EFFECTS.contains(&effect)) {
        return Err(format!("the effect must be one of {}", EFFECTS.join(", ")));
    }
    let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(value)));
    if key.is_empty() {
        return Err("it must be KEY[=VALUE][:EFFECT], all or none".to_owned());
    }
    let operator = if value.is_some() { "Equal" } else { "Exists" };
    Ok(Some(Toleration {
        key: Some(key.to_owned()),
        operator: Some(operator.to_owned()),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
        ..Toleration::default()
    }))
}

/// The name of a namespace: a label of DNS.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=63).contains(&text.len()) && text.bytes().all(plain);
    if is_name && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("it must be 1 to 63 lower-case letters, digits and dashes, without a dash at an end".to_owned())
}

/// The name of a priority class; empty for none.
pub(super) fn priority_class(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { object_name(text) }
}

/// The name of an object: parts like a namespace's, joined by dots.
pub(super) fn object_name(text: &str) -> Result<String, String> {
    if text.len() <= 253 && text.split('.').all(|part| namespace(part).is_ok()) {
        return Ok(text.to_owned());
    }
    Err("it must be lower-case letters, digits, dashes and dots, with a letter or digit at each end"
        .to_owned())
}

/// A folder of a node.
pub(super) fn folder(text: &str) -> Result<String, String> {
    if text.starts_with('/') && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err("it must be a path that begins with /".to_owned())
}

/// The name of a scheduler, which pods repeat: anything without white space.
pub(super) fn scheduler_name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err("it must be a name without white space".to_owned())
}

/// A registry, and a path in it: what stands before the last `/` of an image.
pub(super) fn registry(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    if image(&format!("{path}/name")).is_ok() && !path.is_empty() {
        return Ok(text.to_owned());
    }
    Err("it must be a registry such as registry.example:5000/path".to_owned())
}

/// The reference of an image: no white space, and no path segment in upper case letters.
pub(super) fn image(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@[]".contains(&byte);
    let repository = text.split('@').next().unwrap_or_default().rsplit_once('/').map_or("", |(path, _)| path);
    let path = repository.split_once('/').map_or("", |(_, path)| path);
    if !text.is_empty() && text.bytes().all(plain) && !path.contains(|c: char| c.is_ascii_uppercase()) {
        return Ok(text.to_owned());
    }
    Err("it must be an image such as registry.example/path/name:tag".to_owned())
}

/// What the file of a flag says; `None` without the flag.
pub(super) fn from_file<T>(
    flag: &str,
    path: &Option<PathBuf>,
    read: impl FnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let Some(path) = path else { return Ok(None) };
    read(path).map(Some).with_context(|| format!("--{flag} {}", path.display()))
}
