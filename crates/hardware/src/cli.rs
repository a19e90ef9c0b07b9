//! `tholepin hardware`: commands for DeviceConfigs that need no cluster.
//!
//! In: files. Out: manifests on standard output, notes about changes on standard error. Never: a cluster, or a part of
//! the output after an error.

use std::collections::BTreeMap;
use std::io::stdin;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use api::hardware::convert::convert;
use clap::Subcommand;
use deployer::cli::render::ManifestFormat;
use objects::Object;
use runtime::output::OutputArgs;
use runtime::{stderr, stdout, yaml};
use serde_json::Value;

/// The largest file.
const LIMIT_BYTES: u64 = 16 << 20;
/// The most objects in one file.
const OBJECTS: usize = 10_000;
/// The most lines with notes.
const NOTES: usize = 50;

/// What the conversion changed.
#[derive(Debug)]
struct Note {
    /// The object.
    title: String,
    text: String,
}

/// Arguments of `tholepin hardware`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Subcommands.
#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Convert DeviceConfigs of the sample operator (example.com/v1alpha1) to hardware.tholepin.dev/v1alpha1
    #[command(
        long_about = "Convert DeviceConfigs of the authoring guide's sample operator (example.com/v1alpha1) to \
        hardware.tholepin.dev/v1alpha1.\n\n\
        Implicit settings become explicit, and settings without effect are corrected; standard error lists each change. \
        Nothing is printed if an object cannot be converted.",
        after_help = "Examples:\n  tholepin hardware convert old.yaml > new.yaml\n  \
        kubectl get deviceconfigs.example.com -A -o yaml | tholepin hardware convert -o json"
    )]
    Convert {
        /// The file, YAML or JSON, with one or more objects or a List of them; - is standard input
        #[arg(value_name = "FILE", default_value = "-")]
        file: PathBuf,
        #[command(flatten)]
        output: OutputArgs<ManifestFormat>,
    },
}

/// Runs the command.
///
/// # Errors
/// The file cannot be read, or an object in it cannot be converted. Standard output is empty then.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Command::Convert { file, output } = &args.command;
    let (name, text) = match file.to_str() {
        Some("-") => {
            ("standard input".to_owned(), yaml::read_bounded("standard input", stdin(), LIMIT_BYTES)?)
        }
        _ => (file.display().to_string(), yaml::read_text(file, LIMIT_BYTES)?),
    };
    let (text, notes) = converted(&name, &text, output.format)?;
    for note in lines(&notes) {
        stderr::line(note);
    }
    stdout::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The output, and the notes about changes.
fn converted(file: &str, text: &str, format: ManifestFormat) -> anyhow::Result<(String, Vec<Note>)> {
    let mut objects = Vec::new();
    let mut notes = Vec::new();
    for old in items(yaml::read_many(file, text, OBJECTS)?) {
        let title = title(&old);
        let new = convert(&old).with_context(|| format!("{file}: {title}"))?;
        let note = |note: &String| Note { title: title.clone(), text: note.to_string() };
        notes.extend(new.notes.iter().map(note));
        objects.push(Object::new(&new.object));
    }
    if objects.is_empty() {
        bail!("{file}: no object in it: wanted is a DeviceConfig of example.com/v1alpha1");
    }
    Ok((format.write(&objects)?, notes))
}

/// Each note once with the objects that it is about, and no more lines than people read.
fn lines(notes: &[Note]) -> Vec<String> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places = BTreeMap::new();
    for Note { title, text } in notes {
        let place = *places.entry(text).or_insert(texts.len());
        if place == texts.len() {
            texts.push((text, Vec::new()));
        }
        texts[place].1.push(title);
    }
    let line = |(text, titles): &(&str, Vec<&str>)| match titles[..] {
        [first, _, ..] => format!("{first} and {} more: {text}", titles.len() - 1),
        _ => format!("{}: {text}", titles.concat()),
    };
    let mut lines: Vec<String> = texts.iter().take(NOTES).map(line).collect();
    if texts.len() > NOTES {
        let left_out = texts.len() - NOTES;
        lines
            .push(format!("{left_out} more notes are left out; convert fewer objects at a time to see them"));
    }
    lines
}

/// The objects of all documents; a List is replaced by its items.
fn items(documents: Vec<Value>) -> Vec<Value> {
    let mut all = Vec::new();
    for mut document in documents {
        let list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if list => all.extend(items),
            _ => all.push(document),
        }
    }
    all
}

/// The object in words, for messages.
fn title(object: &Value) -> String {
    let word = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().filter(|kind| !kind.is_empty()).unwrap_or("object");
    match (word("namespace"), word("name")) {
        (_, "") => format!("{kind} without a name"),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "
apiVersion: v1
kind: List
items:
- apiVersion: example.com/v1alpha1
  kind: DeviceConfig
  metadata: {name: acc, namespace: hw}
  spec: {driverImage: 'registry.example/acc:1', driverVersion: 1.4.2}
---
apiVersion: example.com/v1alpha1
kind: DeviceConfig
metadata: {name: b}
spec: {driverImage: b, driverVersion: '2', nodeSelector: {a: b}}
";

    #[test]
    fn each_object_is_converted() {
        let (text, notes) = converted("f", OLD, ManifestFormat::Yaml).unwrap();
        let wanted = "---\napiVersion: hardware.tholepin.dev/v1alpha1\nkind: DeviceConfig\nmetadata:\n  name: acc\n  namespace: hw\nspec:\n  \
            driverImage: registry.example/acc\n  driverVersion: \"1.4.2\"\n  imagePullPolicy: Always\n  nodeSelector:\n    \
            feature.node.kubernetes.io/pci-1da3.present: \"true\"\n---\n";
        assert!(text.starts_with("# Rendered by tholepin ") && text.contains(wanted), "{text}");
        let notes = lines(&notes);
        for wanted in [
            "DeviceConfig hw/acc: spec.driverImage is without its tag 1",
            "DeviceConfig b: ",
            "DeviceConfig hw/acc and 1 more: spec.imagePullPolicy",
        ] {
            assert!(notes.iter().any(|note| note.starts_with(wanted)), "{wanted}: {notes:?}");
        }
        let (text, _) = converted("f", OLD, ManifestFormat::Json).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn notes_about_many_objects_are_few_lines() {
        let note = |title: usize, text: usize| Note { title: title.to_string(), text: text.to_string() };
        let equal: Vec<_> = (0..10_000).map(|title| note(title, 0)).collect();
        assert_eq!(lines(&equal), ["0 and 9999 more: 0"]);
        let different: Vec<_> = (0..10_000).map(|text| note(0, text)).collect();
        let lines = lines(&different);
        assert_eq!(lines.len(), NOTES + 1);
        assert!(lines[NOTES].starts_with("9950 more notes are left out"), "{}", lines[NOTES]);
    }

    #[test]
    fn errors_are_one_line_and_nothing_is_printed() {
        let table = [
            ("", "f: no object in it"),
            ("a: [", "f: "),
            ("kind: Pod\napiVersion: v1\nmetadata: {name: p}", "f: Pod p: Pod of v1 is not converted"),
            ("text", "is not converted"),
            (
                "apiVersion: example.com/v1alpha1\nkind: DeviceConfig\nmetadata: {name: a}\nspec:\n",
                "f: DeviceConfig a: spec.driverImage is missing",
            ),
        ];
        for (text, words) in table {
            let error = format!("{:#}", converted("f", text, ManifestFormat::Yaml).unwrap_err());
            assert!(error.contains(words) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}
