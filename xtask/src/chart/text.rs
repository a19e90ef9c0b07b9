//! Templates as text.
//!
//! In: a template's tree. Out: YAML with the actions of Helm's templates. Never: a value that YAML would read as
//! another type; texts that are filled in are quoted.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::choice::{self, Group, Test};
use super::merge::{Alternative, Node};
use super::placeholder::{Form, Placeholder};
use super::template::Template;

/// Writes a template.
pub(super) struct Writer<'t> {
    groups: &'t [Group],
    placeholders: Vec<Placeholder>,
    refused: &'t [(Test, String)],
    lines: Vec<String>,
}

/// A part of a text.
#[derive(Debug)]
enum Piece<'p> {
    Plain(String),
    Filled(&'p Placeholder),
}

impl Template {
    /// The text of a template's file for a component, `exporter` or `scheduler`, if a value is on.
    ///
    /// # Errors
    /// When a placeholder is where it cannot be.
    pub(super) fn text(&self, component: &str, enabled: &str) -> anyhow::Result<String> {
        let placeholders = super::placeholder::all(component);
        let mut writer =
            Writer { groups: &self.groups, placeholders, refused: &self.refused, lines: Vec::new() };
        for (test, reason) in &self.refused {
            let condition = self.groups[test.group].condition(&test.cases, &BTreeSet::new());
            let condition = condition.context("options are always refused")?;
            writer.when(0, Some(condition), |writer| {
                writer.lines.push(format!("{{{{- fail {reason:?} }}}}"));
                Ok(())
            })?;
        }
        let Some((_, Node::List(objects))) = self.objects.first() else { bail!("no objects") };
        for alternative in objects {
            let condition = writer.condition(alternative);
            writer.when(0, condition, |writer| {
                writer.lines.push("---".to_owned());
                writer.entries(0, &alternative.1)
            })?;
        }
        let mut text = writer.config(component, self.config.as_deref());
        text += &format!("{{{{- if $.Values.{enabled} }}}}\n");
        for line in &writer.lines {
            text += line;
            text.push('\n');
        }
        Ok(text + "{{- end }}\n")
    }
}

impl Writer<'_> {
    /// The definition of the configuration file's text.
    fn config(&self, component: &str, config: Option<&str>) -> String {
        let Some(config) = config else { return String::new() };
        let piece = |piece: &Piece<'_>| match piece {
            Piece::Plain(text) => plain(text),
            Piece::Filled(placeholder) => format!("{{{{ {} }}}}", placeholder.expression),
        };
        let text: String = self.pieces(config).iter().map(piece).collect();
        format!("{{{{- define \"tholepin.{component}.config\" }}}}{text}{{{{ end -}}}}\n")
    }

    /// Lines that are there on a condition.
    fn when(
        &mut self,
        indent: usize,
        condition: Option<String>,
        lines: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(condition) = condition else { return lines(self) };
        let space = " ".repeat(indent);
        self.lines.push(format!("{space}{{{{- if {condition} }}}}"));
        lines(self)?;
        self.lines.push(format!("{space}{{{{- end }}}}"));
        Ok(())
    }

    /// The condition of an alternative: its tests, and that something of it is there.
    fn condition(&self, (tests, node): &Alternative) -> Option<String> {
        let mut conditions: Vec<String> = tests.iter().filter_map(|test| self.test(test)).collect();
        conditions.extend(self.presence(node));
        choice::all(conditions)
    }

    fn test(&self, test: &Test) -> Option<String> {
        let impossible = self.refused.iter().filter(|(refused, _)| refused.group == test.group);
        let impossible = impossible.flat_map(|(refused, _)| refused.cases.iter().copied()).collect();
        self.groups[test.group].condition(&test.cases, &impossible)
    }

    /// The condition that a map or list is not empty; `None` if it never is, or is meant to be.
    fn presence(&self, node: &Node) -> Option<String> {
        let parts: Vec<&Alternative> = match node {
            Node::Scalar(_) => return None,
            Node::Map(entries) => entries.iter().flat_map(|(_, alternatives)| alternatives).collect(),
            Node::List(elements) => elements.iter().collect(),
        };
        let conditions: Option<Vec<String>> = parts.iter().map(|part| self.condition(part)).collect();
        choice::any(conditions?)
    }

    /// The entries of a map.
    fn entries(&mut self, indent: usize, node: &Node) -> anyhow::Result<()> {
        let Node::Map(entries) = node else { bail!("not a map: {node:?}") };
        for (key, alternatives) in entries {
            for alternative in alternatives {
                let condition = self.condition(alternative);
                self.when(indent, condition, |writer| writer.entry(indent, key, &alternative.1))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, indent: usize, key: &str, node: &Node) -> anyhow::Result<()> {
        let space = " ".repeat(indent);
        let key = quoted(key)?;
        match node {
            Node::Scalar(value) => {
                let value = self.scalar(indent + 2, value)?;
                if value.starts_with("{{-") {
                    self.lines.extend([format!("{space}{key}:"), format!("{space}  {value}")]);
                } else {
                    self.lines.push(format!("{space}{key}: {value}"));
                }
            }
            Node::Map(entries) if entries.is_empty() => self.lines.push(format!("{space}{key}: {{}}")),
            Node::List(elements) if elements.is_empty() => self.lines.push(format!("{space}{key}: []")),
            Node::Map(entries) => {
                self.lines.push(format!("{space}{key}:"));
                match self.spread(entries)? {
                    Some(value) => self.lines.push(format!(
                        "{}{{{{- toYaml ({value}) | nindent {} }}}}",
                        " ".repeat(indent + 2),
                        indent + 2
                    )),
                    None => self.entries(indent + 2, node)?,
                }
            }
            Node::List(elements) => {
                self.lines.push(format!("{space}{key}:"));
                for element in elements {
                    let condition = self.condition(element);
                    self.when(indent + 2, condition, |writer| writer.element(indent + 2, &element.1))?;
                }
            }
        }
        Ok(())
    }

    /// The expression of a map with all entries of a value; those of the value win.
    fn spread(&self, entries: &[(String, Vec<Alternative>)]) -> anyhow::Result<Option<String>> {
        let is = |key: &String| {
            self.placeholders.iter().find(|known| known.form == Form::Entries && known.mark == key)
        };
        let Some(placeholder) = entries.iter().find_map(|(key, _)| is(key)) else { return Ok(None) };
        let mut fixed = Vec::new();
        for (key, alternatives) in entries.iter().filter(|(key, _)| is(key).is_none()) {
            match &**alternatives {
                [(tests, Node::Scalar(Value::String(text)))] if tests.is_empty() => {
                    fixed.push(format!("{key:?} {text:?}"));
                }
                _ => bail!("{key} is beside entries of a value and not fixed"),
            }
        }
        Ok(Some(format!("mergeOverwrite (dict {}) {}", fixed.join(" "), placeholder.expression)))
    }

    fn element(&mut self, indent: usize, node: &Node) -> anyhow::Result<()> {
        let space = " ".repeat(indent);
        if let Some(expression) = self.elements(node) {
            self.lines.push(format!("{space}{{{{- toYaml {expression} | nindent {indent} }}}}"));
            return Ok(());
        }
        let Some(each) = self.each(node).cloned() else { return self.item(indent, node) };
        self.lines.push(format!("{space}{{{{- range {} }}}}", each.expression));
        // Inside, the value is what the range is at.
        let at = self.placeholders.iter().position(|known| known.mark == each.mark);
        let at = at.context("no such placeholder")?;
        let inside = Placeholder { expression: ".".to_owned(), form: Form::Text, ..each };
        let outside = std::mem::replace(&mut self.placeholders[at], inside);
        let done = self.item(indent, node);
        self.placeholders[at] = outside;
        done?;
        self.lines.push(format!("{space}{{{{- end }}}}"));
        Ok(())
    }

    fn item(&mut self, indent: usize, node: &Node) -> anyhow::Result<()> {
        let space = " ".repeat(indent);
        match node {
            Node::Scalar(value) => {
                let value = self.scalar(indent + 2, value)?;
                self.lines.push(format!("{space}- {value}"));
            }
            Node::Map(_) => {
                let first = self.lines.len();
                self.entries(indent + 2, node)?;
                let line = self.lines.get_mut(first).context("an empty element")?;
                match line.trim_start().starts_with("{{") {
                    true => self.lines.insert(first, format!("{space}-")),
                    false => line.replace_range(indent..indent + 1, "-"),
                }
            }
            Node::List(_) => bail!("a list in a list"),
        }
        Ok(())
    }

    /// The expression of all elements that stand for this one.
    fn elements(&self, node: &Node) -> Option<&str> {
        let Node::Map(entries) = node else { return None };
        let keys = entries.iter().filter(|(key, _)| key == "key").flat_map(|(_, alternatives)| alternatives);
        let mut marks = keys.filter_map(|(_, node)| match node {
            Node::Scalar(Value::String(text)) => Some(text),
            _ => None,
        });
        let known = |text: &String| {
            self.placeholders.iter().find(|known| known.form == Form::Elements && known.mark == text)
        };
        marks.find_map(known).map(|known| &*known.expression)
    }

    /// The placeholder in an element of which there is one for each value.
    fn each(&self, node: &Node) -> Option<&Placeholder> {
        match node {
            Node::Scalar(value) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.placeholders.iter().find(|known| known.form == Form::Each && known.mark == text)
            }
            Node::Map(entries) => entries.iter().flat_map(|(_, of)| of).find_map(|(_, node)| self.each(node)),
            Node::List(_) => None,
        }
    }

    /// A scalar behind a key or a dash; what is filled in as a whole is indented by `indent`.
    fn scalar(&self, indent: usize, value: &Value) -> anyhow::Result<String> {
        let Value::String(text) = value else {
            let digits = value.to_string();
            let known = self.placeholders.iter().find(|known| known.mark == digits);
            return Ok(known.map_or(digits, |known| format!("{{{{ {} }}}}", known.expression)));
        };
        Ok(match &*self.pieces(text) {
            [Piece::Filled(known)] if known.form == Form::Whole => {
                format!("{{{{- toYaml {} | nindent {indent} }}}}", known.expression)
            }
            [Piece::Filled(known)] => format!("{{{{ {} | quote }}}}", known.expression),
            [Piece::Plain(_)] | [] => plain(&quoted(text)?),
            pieces => {
                let (mut format, mut arguments) = (String::new(), String::new());
                for piece in pieces {
                    match piece {
                        Piece::Plain(text) => format += &text.replace('%', "%%"),
                        Piece::Filled(known) => {
                            format += "%v";
                            arguments += &format!(" ({})", known.expression);
                        }
                    }
                }
                format!("{{{{ printf {format:?}{arguments} | quote }}}}")
            }
        })
    }

    /// A text in parts.
    fn pieces(&self, text: &str) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((at, known)) = self.first(rest) {
            if at > 0 {
                pieces.push(Piece::Plain(rest[..at].to_owned()));
            }
            pieces.push(Piece::Filled(known));
            rest = &rest[at + known.mark.len()..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Plain(rest.to_owned()));
        }
        pieces
    }

    /// The first placeholder in a text; the longest of several at the same place. Numbers are whole numbers.
    fn first(&self, text: &str) -> Option<(usize, &Placeholder)> {
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let found = self.placeholders.iter().filter_map(|known| {
            let at = text.find(known.mark)?;
            let (before, after) = (&text[..at], &text[at + known.mark.len()..]);
            let is_part = is_digit(before.chars().next_back()) || is_digit(after.chars().next());
            (known.form != Form::Number || !is_part).then_some((at, known))
        });
        found.min_by_key(|(at, known)| (*at, std::cmp::Reverse(known.mark.len())))
    }
}

/// A text as YAML has it on one line.
pub(super) fn quoted(text: &str) -> anyhow::Result<String> {
    if text.contains('\n') {
        return Ok(Value::from(text).to_string());
    }
    Ok(runtime::yaml::write(&text)?.trim_end().to_owned())
}

/// A text in which Helm finds no action.
fn plain(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}
