//! A strict reader of JSON trees that tracks the path.
//!
//! In: a [`Value`]. Out: its fields, typed; every error goes to [`Errors`] with its path, so that one run reports all
//! of them. Never: a default; an absent field (or `null`, as in Go) is `None`.

use serde_json::{Map, Value};

use super::{API_VERSION, FieldError, in_tree};
use crate::goduration::GoDuration;

/// The errors so far.
#[derive(Default)]
pub(super) struct Errors(pub(super) Vec<FieldError>);

/// A position in the file: the nested document, and the path inside it.
#[derive(Clone, Default)]
pub(super) struct Position {
    pub(super) context: String,
    pub(super) path: String,
}

/// The fields of one object that have not been read yet.
pub(super) struct Fields {
    pub(super) at: Position,
    map: Map<String, Value>,
    /// The names of fields that were asked for, in order.
    asked: Vec<String>,
}

impl Position {
    pub(super) fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { context: self.context.clone(), path: format!("{}{dot}{name}", self.path) }
    }

    pub(super) fn index(&self, i: usize) -> Self {
        Self { context: self.context.clone(), path: format!("{}[{i}]", self.path) }
    }
}

impl Errors {
    pub(super) fn invalid(&mut self, at: &Position, problem: impl Into<String>) {
        let (context, path) = (at.context.clone(), at.path.clone());
        self.0.push(FieldError::Invalid { context, path, problem: problem.into() });
    }

    fn wrong_type(&mut self, at: &Position, expected: &'static str, found: &Value) {
        let found = match found {
            Value::Null => "nothing".to_owned(),
            Value::Bool(_) | Value::Number(_) => found.to_string(),
            Value::String(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "a mapping".to_owned(),
        };
        let (context, path) = (at.context.clone(), at.path.clone());
        self.0.push(FieldError::Type { context, path, expected, found });
    }
}

impl Fields {
    /// Begins with an object; `null` is an empty one.
    pub(super) fn of(value: Value, at: Position, errors: &mut Errors) -> Self {
        let map = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => {
                let at = if at.path.is_empty() {
                    Position { path: "document".to_owned(), ..at.clone() }
                } else {
                    at.clone()
                };
                errors.wrong_type(&at, "a mapping", &other);
                Map::new()
            }
        };
        Self { at, map, asked: Vec::new() }
    }

    /// Begins with the arguments of a plugin, which are a document of their own: `apiVersion` and `kind` may be left
    /// out. Errors carry `context`.
    pub(super) fn of_args(value: Value, plugin: &str, context: String, errors: &mut Errors) -> Self {
        let mut fields = Self::of(value, Position { context, path: String::new() }, errors);
        let kind = format!("{plugin}Args");
        for (name, allowed) in [("apiVersion", API_VERSION), ("kind", kind.as_str())] {
            if let Some(found) = fields.string(name, errors).filter(|found| found != allowed) {
                let problem = format!("args for plugin {plugin} cannot be {found:?}; allowed is {allowed}");
                errors.invalid(&fields.at.field(name), problem);
            }
        }
        fields
    }

    /// Lets an absent text be the empty one, as in Go: where it is no choice, it must be stated.
    pub(super) fn empty_if_absent(&mut self, name: &str) {
        if self.map.get(name).is_none_or(Value::is_null) {
            self.map.insert(name.to_owned(), "".into());
        }
    }

    /// Takes a field without a check.
    pub(super) fn raw(&mut self, name: &str) -> Option<Value> {
        self.asked.push(name.to_owned());
        self.map.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn string(&mut self, name: &str, errors: &mut Errors) -> Option<String> {
        match self.raw(name)? {
            Value::String(text) => Some(text),
            other => self.wrong(name, "a text", &other, errors),
        }
    }

    pub(super) fn boolean(&mut self, name: &str, errors: &mut Errors) -> Option<bool> {
        match self.raw(name)? {
            Value::Bool(flag) => Some(flag),
            other => self.wrong(name, "true or false", &other, errors),
        }
    }

    /// A whole number of 64 bits.
    pub(super) fn integer(&mut self, name: &str, errors: &mut Errors) -> Option<i64> {
        let value = self.raw(name)?;
        value.as_i64().or_else(|| self.wrong(name, "a whole number of 64 bits", &value, errors))
    }

    /// A whole number of 32 bits.
    pub(super) fn integer32(&mut self, name: &str, errors: &mut Errors) -> Option<i32> {
        let value = self.raw(name)?;
        let number = value.as_i64().and_then(|n| i32::try_from(n).ok());
        number.or_else(|| self.wrong(name, "a whole number of 32 bits", &value, errors))
    }

    pub(super) fn float(&mut self, name: &str, errors: &mut Errors) -> Option<f64> {
        let value = self.raw(name)?;
        value.as_f64().or_else(|| self.wrong(name, "a number", &value, errors))
    }

    /// Go's duration text.
    pub(super) fn duration(&mut self, name: &str, errors: &mut Errors) -> Option<GoDuration> {
        let text = match self.raw(name)? {
            Value::String(text) => text,
            other => return self.wrong(name, "a duration such as \"15s\"", &other, errors),
        };
        match GoDuration::parse(&text) {
            Ok(duration) => Some(duration),
            Err(error) => {
                errors.invalid(&self.at.field(name), error.to_string());
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &str,
        what: &str,
        choices: &[(&str, T)],
        errors: &mut Errors,
    ) -> Option<T> {
        let problem = |text: &str, words: &[&str]| {
            format!("Invalid value: {text:?}: invalid {what}; allowed are {}", words.join(", "))
        };
        self.word(name, choices, problem, errors)
    }

    /// One of a few words, with the error of apimachinery's `field.NotSupported`.
    pub(super) fn supported<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
        errors: &mut Errors,
    ) -> Option<T> {
        self.word(name, choices, in_tree::unsupported, errors)
    }

    fn word<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
        problem: impl FnOnce(&str, &[&str]) -> String,
        errors: &mut Errors,
    ) -> Option<T> {
        let text = self.string(name, errors)?;
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        if found.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            errors.invalid(&self.at.field(name), problem(&text, &words));
        }
        found
    }

    /// A list of texts; none when absent.
    pub(super) fn strings(&mut self, name: &str, errors: &mut Errors) -> Vec<String> {
        let at = self.at.field(name);
        let items = match self.raw(name) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => return self.wrong(name, "a list", &other, errors).unwrap_or_default(),
        };
        let mut texts = Vec::new();
        for (i, item) in items.into_iter().enumerate() {
            match item {
                Value::String(text) => texts.push(text),
                other => errors.wrong_type(&at.index(i), "a text", &other),
            }
        }
        texts
    }

    /// An object; an empty one when absent.
    pub(super) fn object(&mut self, name: &str, errors: &mut Errors) -> Self {
        let value = self.raw(name).unwrap_or_default();
        Self::of(value, self.at.field(name), errors)
    }

    /// The objects of a list; none when absent.
    pub(super) fn objects(&mut self, name: &str, errors: &mut Errors) -> Vec<Self> {
        let at = self.at.field(name);
        match self.raw(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                items.into_iter().enumerate().map(|(i, item)| Self::of(item, at.index(i), errors)).collect()
            }
            Some(other) => {
                errors.wrong_type(&at, "a list", &other);
                Vec::new()
            }
        }
    }

    /// Reports the fields that were not taken as unknown.
    pub(super) fn finish(self, errors: &mut Errors) {
        self.unknown("", errors);
    }

    /// As [`Fields::finish`]; errors name the fields that are known.
    pub(super) fn finish_naming(self, errors: &mut Errors) {
        let known = format!("; allowed are {}", self.asked.join(", "));
        self.unknown(&known, errors);
    }

    fn unknown(self, allowed: &str, errors: &mut Errors) {
        for name in self.map.keys() {
            let Position { context, path } = self.at.field(name);
            errors.0.push(FieldError::Unknown { context, path, allowed: allowed.to_owned() });
        }
    }

    fn wrong<T>(&self, name: &str, expected: &'static str, found: &Value, errors: &mut Errors) -> Option<T> {
        errors.wrong_type(&self.at.field(name), expected, found);
        None
    }
}
