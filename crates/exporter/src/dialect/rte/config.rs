//! The values of the settings, and where each came from.
//!
//! In: files, variables and flags, in this order; what comes later wins, except that a variable counts only where no file has
//! said anything but zero (as in RTE). Out: [`Config`]; what is wrong and what is odd. Never: a value of another kind than the
//! table says.

use std::collections::BTreeMap;
use std::fmt;

use api::goduration::GoDuration;
use runtime::goflag::Parsed;
use serde_json::Value as Yaml;

use super::table::{Key, Kind, SETTINGS, Setting};
use crate::dialect::extra::{Extra, Kubelet, Reader};
use crate::dialect::{Note, Problem, Surroundings};

/// Everything that was configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Config {
    given: BTreeMap<Key, Given>,
    /// Excludes, and whether somebody distilled the kubelet's configuration. (What it distilled is in the settings.)
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
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Text`], [`Kind::Word`] and [`Kind::Container`].
    Text(String),
    /// Of [`Kind::Int`].
    Int(i64),
    /// Of [`Kind::Duration`].
    Duration(GoDuration),
}

/// Who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The program.
    Default,
    /// A file, with the key's path.
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

/// What is wrong with a value: what it must be.
type Allowed = String;

impl Value {
    /// Of a file.
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

    /// Of a variable or the table.
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

    /// Of the command line, which has parsed it already.
    fn of_flag(setting: &Setting, name: &'static str, flags: &Parsed) -> Option<Result<Self, Allowed>> {
        match setting.kind {
            Kind::Bool => flags.bool(name).map(Self::Bool).map(Ok),
            Kind::Int => flags.int(name).map(Self::Int).map(Ok),
            Kind::Duration => flags.duration(name).map(Self::Duration).map(Ok),
            kind => flags.text(name).map(|text| Self::of_text(kind, text)),
        }
    }

    /// Whether it is its kind's zero.
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

/// Reading: each part adds to what was there, and to what is wrong.
impl Config {
    /// Takes one daemon file. Its keys are flattened, so that a later file replaces single ones.
    pub(super) fn take_daemon(&mut self, map: serde_json::Map<String, Yaml>, reader: &mut Reader<'_>) {
        for (key, value) in map {
            self.take_key(key, value, reader);
        }
    }

    fn take_key(&mut self, path: String, yaml: Yaml, reader: &mut Reader<'_>) {
        match (path.as_str(), yaml) {
            (_, Yaml::Null) => {}
            // Two that only the dump has.
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
            // A file's way to say nothing.
            Ok(Value::Int(-1)) if setting.key == Key::MaxEvents => {}
            Ok(value) => self.set(setting.key, value, origin),
            Err(allowed) => {
                let shown: String = yaml.to_string().chars().take(80).collect();
                reader.problems.push(Problem::value(origin.to_string(), shown, allowed));
            }
        }
    }

    /// Takes what a file beside the daemon's says.
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

    /// Takes variables where no file has said anything but zero.
    pub(super) fn take_environment(&mut self, around: &Surroundings, notes: &mut Vec<Note>) {
        for setting in SETTINGS {
            let Some(variable) = setting.variable else { continue };
            if self.given.get(&setting.key).is_some_and(|given| !given.value.is_zero()) {
                continue;
            }
            let parts = ["NAMESPACE", "POD_NAME", "CONTAINER_NAME"].map(|part| format!("{variable}_{part}"));
            let text = match setting.kind {
                Kind::Container => {
                    let parts: Option<Vec<&str>> = parts.iter().map(|name| around.variable(name)).collect();
                    parts.map(|parts| parts.join("/"))
                }
                _ => around.variable(variable).map(str::to_owned),
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

    /// Takes what the command line says.
    pub(super) fn take_flags(&mut self, flags: &Parsed, problems: &mut Vec<Problem>) {
        for setting in SETTINGS {
            let Some(name) = setting.flag else { continue };
            match Value::of_flag(setting, name, flags) {
                None => {}
                // All of them mean no limit; in a file -1 would mean nothing at all.
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
        // An empty directory is a wish too, and one that the dump could not tell from none.
        if flags.text("kubelet-state-dir") == Some("") {
            self.set(Key::KubeletState, Value::Text("none".to_owned()), Origin::Flag("kubelet-state-dir"));
        }
    }

    /// Sets one value that is known to be of the kind.
    pub(super) fn set(&mut self, key: Key, value: Value, origin: Origin) {
        self.given.insert(key, Given { value, origin });
    }

    fn set_text(&mut self, key: Key, text: &str, origin: Origin, problems: &mut Vec<Problem>) {
        match Value::of_text(row(key).kind, text) {
            Ok(value) => self.set(key, value, origin),
            Err(allowed) => problems.push(Problem::value(origin.to_string(), format!("{text:?}"), allowed)),
        }
    }

    /// Words that may not be empty, but are.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        for setting in SETTINGS {
            let Kind::Word(words) = setting.kind else { continue };
            if !setting.default.is_empty() && self.text(setting.key).is_empty() {
                problems.push(Problem::value(self.origin(setting.key).to_string(), "\"\"", words.join(", ")));
            }
        }
    }
}

/// Asking.
impl Config {
    /// The value, given or built in.
    pub(super) fn value(&self, key: Key) -> Value {
        match self.given.get(&key) {
            Some(given) => given.value.clone(),
            None => built_in(row(key)),
        }
    }

    /// Of a [`Kind::Bool`].
    pub(super) fn bool(&self, key: Key) -> bool {
        matches!(self.value(key), Value::Bool(true))
    }

    /// Of a text, word or container.
    pub(super) fn text(&self, key: Key) -> String {
        match self.value(key) {
            Value::Text(text) => text,
            _ => String::new(),
        }
    }

    /// Of a [`Kind::Int`].
    pub(super) fn int(&self, key: Key) -> i64 {
        match self.value(key) {
            Value::Int(value) => value,
            _ => 0,
        }
    }

    /// Of a [`Kind::Duration`].
    pub(super) fn duration(&self, key: Key) -> GoDuration {
        match self.value(key) {
            Value::Duration(value) => value,
            _ => GoDuration(0),
        }
    }

    /// Who said it.
    pub(super) fn origin(&self, key: Key) -> Origin {
        self.given.get(&key).map_or(Origin::Default, |given| given.origin.clone())
    }

    /// Whether somebody wants it so: by flag, or by another value than the built-in one. (A file may be a dump, which
    /// shows everything.)
    pub(super) fn asked(&self, key: Key) -> bool {
        self.given
            .get(&key)
            .is_some_and(|given| matches!(given.origin, Origin::Flag(_)) || given.value != built_in(row(key)))
    }

    /// A problem with this setting's value.
    pub(super) fn problem(&self, key: Key, allowed: impl Into<String>) -> Problem {
        Problem::value(self.origin(key).to_string(), self.value(key).shown(), allowed)
    }
}

/// The built-in value; that each is of its kind is tested.
fn built_in(setting: &Setting) -> Value {
    Value::of_text(setting.kind, setting.default).unwrap_or(Value::Text(String::new()))
}

/// The row of a key; that there is one for each is tested.
fn row(key: Key) -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.key == key).unwrap_or(&SETTINGS[0])
}
