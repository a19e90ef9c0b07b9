//! The values of the settings, each with its origin.
//!
//! In: files, variables and flags, in this order. Later ones override earlier ones, except that a variable counts only
//! where no file has said anything but zero (as in RTE). Out: [`Config`], problems and notes. Never: a value whose kind
//! differs from the table.

use std::collections::BTreeMap;
use std::fmt;

use api::goduration::GoDuration;
use runtime::goflag::Parsed;
use serde_json::Value as Yaml;

use super::table::{Key, Kind, SETTINGS, Setting};
use crate::compat::extra::{Extra, Kubelet, Reader};
use crate::compat::{Environment, Note, Problem};

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Config {
    given: BTreeMap<Key, Given>,
    /// Excludes, and whether a section `kubelet` was found. (Its values are in the settings.)
    pub(super) extra: Extra,
}

/// A value that is not the built-in one.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    value: Value,
    origin: Origin,
}

/// The value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A value of [`Kind::Bool`].
    Bool(bool),
    /// A value of [`Kind::Text`], [`Kind::Word`] and [`Kind::Container`].
    Text(String),
    /// A value of [`Kind::Int`].
    Int(i64),
    /// A value of [`Kind::Duration`].
    Duration(GoDuration),
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The built-in default.
    Default,
    /// A file, and the path of the key.
    File(String, String),
    /// A variable.
    Variable(String),
    /// The command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(file, path) => write!(f, "{file}: {path}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// The allowed values, for a problem.
type Allowed = String;

impl Value {
    /// Converts a value of a file.
    fn of_yaml(kind: Kind, yaml: &Yaml) -> Result<Self, Allowed> {
        let text = |text: &Yaml| text.as_str().map(str::to_owned);
        match kind {
            Kind::Bool => yaml.as_bool().map(Self::Bool).ok_or_else(|| "true or false".to_owned()),
            Kind::Int => yaml.as_i64().map(Self::Int).ok_or_else(|| "a whole number".to_owned()),
            Kind::Text => text(yaml).map(Self::Text).ok_or_else(|| "a text".to_owned()),
            Kind::Word(words) => {
                text(yaml).ok_or_else(|| words.join(", ")).and_then(|text| Self::of_text(kind, &text))
            }
            Kind::Duration => match yaml {
                Yaml::String(text) => Self::of_text(kind, text),
                number => number.as_i64().map(|nanos| Self::Duration(GoDuration(nanos))).ok_or_else(duration),
            },
            Kind::Container => match yaml {
                Yaml::Object(parts) => {
                    let part = |name| parts.get(name).and_then(Yaml::as_str).unwrap_or_default();
                    let parts = [part("namespace"), part("podName"), part("containerName")];
                    Self::of_text(kind, &if parts == ["", "", ""] { String::new() } else { parts.join("/") })
                }
                other => text(other).ok_or_else(container).and_then(|text| Self::of_text(kind, &text)),
            },
        }
    }

    /// Converts the text of a variable or of the table.
    pub(super) fn of_text(kind: Kind, text: &str) -> Result<Self, Allowed> {
        match kind {
            Kind::Bool => match text {
                "" | "false" => Ok(Self::Bool(false)),
                "true" => Ok(Self::Bool(true)),
                _ => Err("true or false".to_owned()),
            },
            Kind::Int if text.is_empty() => Ok(Self::Int(0)),
            Kind::Int => text.parse().map(Self::Int).map_err(|_| "a whole number".to_owned()),
            Kind::Text => Ok(Self::Text(text.to_owned())),
            Kind::Word(words) => {
                let word = text.to_ascii_lowercase();
                let known = word.is_empty() || words.contains(&word.as_str());
                if known { Ok(Self::Text(word)) } else { Err(words.join(", ")) }
            }
            Kind::Duration if text.is_empty() => Ok(Self::Duration(GoDuration(0))),
            Kind::Duration => GoDuration::parse(text).map(Self::Duration).map_err(|_| duration()),
            Kind::Container => {
                let parts: Vec<&str> = text.split('/').map(str::trim).collect();
                let whole = parts.len() == 3 && parts.iter().all(|part| !part.is_empty());
                if text.is_empty() || whole { Ok(Self::Text(parts.join("/"))) } else { Err(container()) }
            }
        }
    }

    /// Converts the value of a flag that has been parsed.
    fn of_flag(setting: &Setting, name: &'static str, flags: &Parsed) -> Option<Result<Self, Allowed>> {
        match setting.kind {
            Kind::Bool => flags.bool(name).map(Self::Bool).map(Ok),
            Kind::Int => flags.int(name).map(Self::Int).map(Ok),
            Kind::Duration => flags.duration(name).map(Self::Duration).map(Ok),
            kind => flags.text(name).map(|text| Self::of_text(kind, text)),
        }
    }

    /// Whether the value is the zero of its kind.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Bool(value) => !value,
            Self::Text(text) => text.is_empty(),
            Self::Int(value) => *value == 0,
            Self::Duration(value) => value.0 == 0,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Int(value) => value.to_string(),
            Self::Duration(value) => value.to_string(),
        }
    }
}

fn duration() -> Allowed {
    "a duration such as 60s, or nanoseconds".to_owned()
}

fn container() -> Allowed {
    "namespace/pod/container".to_owned()
}

/// Reading: each source adds to the values and to the problems.
impl Config {
    /// Adds a daemon file. Its keys are flattened, so that a later file overrides single ones.
    pub(super) fn take_daemon(&mut self, map: serde_json::Map<String, Yaml>, reader: &mut Reader<'_>) {
        for (key, value) in map {
            self.take_key(key, value, reader);
        }
    }

    fn take_key(&mut self, path: String, yaml: Yaml, reader: &mut Reader<'_>) {
        match (path.as_str(), yaml) {
            (_, Yaml::Null) => {}
            // Two keys that only the dump has.
            ("resourceMonitor.resourceExclude", yaml) => {
                self.extra.resources = Some(reader.excludes(&path, yaml));
            }
            ("resourceMonitor.podExclude", yaml) => self.extra.pods = Some(reader.patterns(&path, yaml)),
            (_, yaml) => match (Setting::at(&path), yaml) {
                (Some(setting), yaml) => self.take_setting(setting, &path, &yaml, reader),
                (None, Yaml::Object(map)) => {
                    for (key, value) in map {
                        self.take_key(format!("{path}.{key}"), value, reader);
                    }
                }
                (None, _) => {
                    let text = format!("{}: unknown key {path:?} has no effect", reader.file);
                    reader.notes.push(Note::Warning(text));
                }
            },
        }
    }

    fn take_setting(&mut self, setting: &Setting, path: &str, yaml: &Yaml, reader: &mut Reader<'_>) {
        let origin = Origin::File(reader.file.to_owned(), path.to_owned());
        match Value::of_yaml(setting.kind, yaml) {
            // The value with which a file states no limit of its own.
            Ok(Value::Int(-1)) if setting.key == Key::MaxEvents => {}
            Ok(value) => self.set(setting.key, value, origin),
            Err(allowed) => {
                let shown: String = yaml.to_string().chars().take(80).collect();
                reader.problems.push(Problem::value(origin.to_string(), shown, allowed));
            }
        }
    }

    /// Adds a file of `--config`.
    pub(super) fn take_extra(&mut self, file: &str, extra: Extra, problems: &mut Vec<Problem>) {
        if let Some(Kubelet { policy, scope }) = &extra.kubelet {
            let settings =
                [(Key::Policy, policy, "topologyManagerPolicy"), (Key::Scope, scope, "topologyManagerScope")];
            for (key, text, name) in settings.into_iter().filter(|(_, text, _)| !text.is_empty()) {
                let origin = Origin::File(file.to_owned(), format!("kubelet.{name}"));
                self.set_text(key, text, origin, problems);
            }
        }
        self.extra.overlay(extra);
    }

    /// Adds variables where no file has said anything but zero.
    pub(super) fn take_environment(&mut self, env: &Environment, notes: &mut Vec<Note>) {
        for setting in SETTINGS {
            let Some(variable) = setting.variable else { continue };
            if self.given.get(&setting.key).is_some_and(|given| !given.value.is_zero()) {
                continue;
            }
            let parts = ["NAMESPACE", "POD_NAME", "CONTAINER_NAME"].map(|part| format!("{variable}_{part}"));
            let text = match setting.kind {
                Kind::Container => {
                    let parts: Option<Vec<&str>> = parts.iter().map(|name| env.variable(name)).collect();
                    parts.map(|parts| parts.join("/"))
                }
                _ => env.variable(variable).map(str::to_owned),
            };
            let Some(text) = text else { continue };
            match Value::of_text(setting.kind, &text) {
                Ok(value) => self.set(setting.key, value, Origin::Variable(variable.to_owned())),
                Err(allowed) => {
                    let text = format!("variable {variable}: {text:?} has no effect; it must be {allowed}");
                    notes.push(Note::Warning(text));
                }
            }
        }
    }

    /// Adds the flags.
    pub(super) fn take_flags(&mut self, flags: &Parsed, problems: &mut Vec<Problem>) {
        for setting in SETTINGS {
            let Some(name) = setting.flag else { continue };
            match Value::of_flag(setting, name, flags) {
                None => {}
                // Zero and below mean no limit; in a file -1 means that the key is not set.
                Some(Ok(Value::Int(..0))) if setting.key == Key::MaxEvents => {
                    self.set(setting.key, Value::Int(0), Origin::Flag(name));
                }
                Some(Ok(value)) => self.set(setting.key, value, Origin::Flag(name)),
                Some(Err(allowed)) => {
                    let value = format!("{:?}", flags.text(name).unwrap_or_default());
                    problems.push(Problem::value(format!("--{name}"), value, allowed));
                }
            }
        }
        // An empty directory is explicit too, but the dump could not distinguish it from a missing one.
        if flags.text("kubelet-state-dir") == Some("") {
            self.set(Key::KubeletState, Value::Text("none".to_owned()), Origin::Flag("kubelet-state-dir"));
        }
    }

    /// Sets a value of the right kind.
    pub(super) fn set(&mut self, key: Key, value: Value, origin: Origin) {
        self.given.insert(key, Given { value, origin });
    }

    fn set_text(&mut self, key: Key, text: &str, origin: Origin, problems: &mut Vec<Problem>) {
        match Value::of_text(row(key).kind, text) {
            Ok(value) => self.set(key, value, origin),
            Err(allowed) => problems.push(Problem::value(origin.to_string(), format!("{text:?}"), allowed)),
        }
    }

    /// Reports words that must not be empty, but are.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        for setting in SETTINGS {
            let Kind::Word(words) = setting.kind else { continue };
            if !setting.default.is_empty() && self.text(setting.key).is_empty() {
                problems.push(Problem::value(self.origin(setting.key).to_string(), "\"\"", words.join(", ")));
            }
        }
    }
}

/// Queries.
impl Config {
    /// The value, configured or built in.
    pub(super) fn value(&self, key: Key) -> Value {
        match self.given.get(&key) {
            Some(given) => given.value.clone(),
            None => built_in(row(key)),
        }
    }

    /// The value of a [`Kind::Bool`].
    pub(super) fn bool(&self, key: Key) -> bool {
        matches!(self.value(key), Value::Bool(true))
    }

    /// The value of a text, word or container.
    pub(super) fn text(&self, key: Key) -> String {
        match self.value(key) {
            Value::Text(text) => text,
            _ => String::new(),
        }
    }

    /// The value of a [`Kind::Int`].
    pub(super) fn int(&self, key: Key) -> i64 {
        match self.value(key) {
            Value::Int(value) => value,
            _ => 0,
        }
    }

    /// The value of a [`Kind::Duration`].
    pub(super) fn duration(&self, key: Key) -> GoDuration {
        match self.value(key) {
            Value::Duration(value) => value,
            _ => GoDuration(0),
        }
    }

    /// The origin of the value.
    pub(super) fn origin(&self, key: Key) -> Origin {
        self.given.get(&key).map_or(Origin::Default, |given| given.origin.clone())
    }

    /// Whether the value was chosen: by a flag, or by another value than the built-in one. (A file may be a dump, which
    /// contains all settings.)
    pub(super) fn is_explicit(&self, key: Key) -> bool {
        self.given
            .get(&key)
            .is_some_and(|given| matches!(given.origin, Origin::Flag(_)) || given.value != built_in(row(key)))
    }

    /// A problem with the value of this setting.
    pub(super) fn problem(&self, key: Key, allowed: impl Into<String>) -> Problem {
        Problem::value(self.origin(key).to_string(), self.value(key).shown(), allowed)
    }
}

/// The built-in value; a test checks that it is of its kind.
fn built_in(setting: &Setting) -> Value {
    Value::of_text(setting.kind, setting.default).unwrap_or(Value::Text(String::new()))
}

/// The row of a key; a test checks that there is one for each.
fn row(key: Key) -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.key == key).unwrap_or(&SETTINGS[0])
}
