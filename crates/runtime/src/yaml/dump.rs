//! Kubernetes objects in files: lists as `kubectl get -o yaml` or `-o json` prints them, single objects, several
//! documents in a file, folders of files.
//!
//! In: text, a file or a folder. Out: objects, one at a time, so that a long list costs little more than its text.
//! Never: a symbolic link followed in a folder, or more read than the limits allow.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Error, Mode, options, read_bounded, read_text, words};
use list_chunks::ListChunks;

mod list_chunks;

/// The greatest size of a file.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// What stands for `-` in errors.
const STANDARD_INPUT: &str = "standard input";
/// The greatest size of all files of a folder.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The greatest number of files in a folder.
const MAX_FILES: usize = 200_000;
/// The greatest depth of folders.
const MAX_DEPTH: usize = 24;
/// The greatest number of documents in a file.
const MAX_DOCUMENTS: usize = 100_000;

/// A part of a text.
#[derive(Debug, PartialEq)]
pub enum Part {
    /// An item of a list. Without a kind of its own it has that of a typed list, such as `PodList`.
    Item {
        /// Its index in the list.
        index: usize,
        /// The object.
        value: Value,
    },
    /// A whole document; of a list all but the items, which came before.
    Document {
        /// The object, the list, or whatever else the document is.
        value: Value,
        /// Whether it had items.
        is_list: bool,
    },
}

/// Hands over the parts of a text; `name` stands for the file in errors. The caller bounds the size of the text.
///
/// Items without a kind come after all others, because the kind of a list can stand behind its items.
///
/// # Errors
/// When the text is neither YAML nor JSON. Parts before the wrong place were handed over.
pub fn read(name: &str, text: &str, take: &mut dyn FnMut(Part)) -> Result<(), Error> {
    let mut typed: BTreeMap<usize, (String, Value)> = BTreeMap::new();
    let mut lacks_kind = false;
    let failed = |reason: String| Error::new(name, &reason);
    let first = |document: usize, part: Part| match part {
        Part::Item { value, .. } if kind(&value).is_empty() => lacks_kind = true,
        Part::Document { value, is_list } => {
            let of = kind(&value).strip_suffix("List").unwrap_or_default();
            if std::mem::take(&mut lacks_kind) && is_list && !of.is_empty() {
                let version = value.get("apiVersion").cloned().unwrap_or_default();
                typed.insert(document, (of.to_owned(), version));
            }
            take(Part::Document { value, is_list });
        }
        item => take(item),
    };
    walk(text, first).map_err(failed)?;
    if typed.is_empty() {
        return Ok(());
    }
    let second = |document: usize, part: Part| {
        let (Part::Item { index, mut value }, Some((of, version))) = (part, typed.get(&document)) else {
            return;
        };
        if !kind(&value).is_empty() {
            return;
        }
        if let Some(fields) = value.as_object_mut() {
            fields.insert("kind".to_owned(), of.as_str().into());
            if version.is_string() {
                fields.entry("apiVersion").or_insert_with(|| version.clone());
            }
        }
        take(Part::Item { index, value });
    };
    walk(text, second).map_err(failed)
}

fn kind(value: &Value) -> &str {
    value.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Hands over all parts with the number of their document.
fn walk(text: &str, mut take: impl FnMut(usize, Part)) -> Result<(), String> {
    let mut document = 0;
    // No line of JSON begins with `---`, so this parts JSON too.
    for text in documents(text) {
        let first = document;
        let place = |number: usize, error| match number {
            0 => error,
            number => format!("document {}: {error}", number + 1),
        };
        let start = text.strip_prefix("---").unwrap_or(text).trim_start();
        if start.starts_with('{') {
            let mut began = false;
            let json = walk_json(start, &mut document, |document, part| {
                began = true;
                take(document, part);
            });
            // A map of YAML can begin like this, too.
            if json.is_ok() || began {
                json.map_err(|error| place(document, error))?;
                continue;
            }
            document = first;
        }
        at_most(document)?;
        let item = &mut |index, value| take(document, Part::Item { index, value });
        let (value, is_list) = walk_yaml(text, item).map_err(|error| place(document, error))?;
        take(document, Part::Document { value, is_list });
        document += 1;
    }
    Ok(())
}

/// Hands over the items of a YAML document. Returns the rest, and whether it has items.
fn walk_yaml(text: &str, item: &mut dyn FnMut(usize, Value)) -> Result<(Value, bool), String> {
    let (mut count, mut has_more) = (0, false);
    // Items in the rest are those of a second list under the same name.
    if let Some(chunks) = ListChunks::of(text)
        && let Ok((rest, true)) = walk_whole(&chunks.rest, &mut |_, _| has_more = true)
        && !has_more
    {
        let (taken, end) = chunks.read(item);
        if end.is_continue() {
            return Ok((rest, true));
        }
        count = taken;
    }
    let mut later = |index: usize, value| {
        if index >= count {
            item(index, value)
        }
    };
    walk_whole(text, &mut later)
}

fn walk_whole(text: &str, item: &mut dyn FnMut(usize, Value)) -> Result<(Value, bool), String> {
    let options = options(text, Mode::Lenient);
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        Document(item).deserialize(yaml)
    });
    read.map_err(|error| words(&error))
}

/// One JSON document after the other; `document` is the number of the first, and then of the one after the last.
fn walk_json(text: &str, document: &mut usize, mut take: impl FnMut(usize, Part)) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_str(text);
    loop {
        at_most(*document)?;
        let mut item = |index, value| take(*document, Part::Item { index, value });
        let read = Document(&mut item).deserialize(&mut json);
        let (value, is_list) = read.map_err(|error| error.to_string())?;
        take(*document, Part::Document { value, is_list });
        *document += 1;
        if json.end().is_ok() {
            return Ok(());
        }
    }
}

fn at_most(document: usize) -> Result<(), String> {
    if document < MAX_DOCUMENTS { Ok(()) } else { Err(format!("more than {MAX_DOCUMENTS} documents")) }
}

/// The documents of a YAML text that have content. A line that begins with `---` and white space begins a document,
/// wherever it stands.
fn documents(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut at, mut has_content) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("---").filter(|rest| !rest.starts_with(|c: char| !c.is_whitespace()));
        if rest.is_some() {
            if has_content {
                found.push(&text[start..at]);
            }
            (start, has_content) = (at, false);
        }
        let words = rest.unwrap_or(line).trim();
        has_content |= !words.is_empty() && words != "..." && !words.starts_with(['#', '%']);
        at += line.len();
    }
    if has_content {
        found.push(&text[start..]);
    }
    found
}

/// Reads one document: its fields without the items, and whether it has items.
struct Document<'a>(&'a mut dyn FnMut(usize, Value));

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = (Value, bool);

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Self::Value, D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = (Value, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut is_list) = (Map::new(), false);
        while let Some(name) = map.next_key::<String>()? {
            if name == "items" {
                map.next_value_seed(Items(&mut *self.0))?;
                is_list = true;
            } else {
                fields.insert(name, map.next_value()?);
            }
        }
        Ok((fields.into(), is_list))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok((Value::Null, false))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok((Value::Null, false))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok((Value::Null, false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok((Value::Null, false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok((Value::Null, false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok((Value::Null, false))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok((Value::Null, false))
    }
}

/// Reads the items of a list; an empty value has none.
struct Items<'a>(&'a mut dyn FnMut(usize, Value));

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, items: D) -> Result<(), D::Error> {
        items.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of Kubernetes objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(value) = seq.next_element()? {
            (self.0)(index, value);
            index += 1;
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Hands over the text of a file, of standard input (`-`), or of each file of a folder that may hold objects, in the
/// order of their names. Files of a folder that are not UTF-8 are left out.
///
/// # Errors
/// When something cannot be read, or exceeds a limit; when standard input is a terminal.
pub fn texts(path: &Path, take: &mut dyn FnMut(&Path, &str)) -> Result<(), Error> {
    if path == Path::new("-") {
        let path = Path::new(STANDARD_INPUT);
        let input = std::io::stdin();
        if input.is_terminal() {
            return Err(failed(path, "a terminal: pipe objects into it, as kubectl get -o yaml prints them"));
        }
        take(path, &read_bounded(STANDARD_INPUT, input, MAX_FILE_BYTES)?);
        return Ok(());
    }
    if !path.is_dir() {
        take(path, &read_text(path, MAX_FILE_BYTES)?);
        return Ok(());
    }
    let mut files = Vec::new();
    collect(path, path, 0, &mut files)?;
    let mut left = MAX_TOTAL_BYTES;
    for file in files {
        let size = fs::metadata(&file).map(|found| found.len()).map_err(|error| failed(&file, error))?;
        left = left.checked_sub(size).ok_or_else(|| {
            failed(path, format!("more than {MAX_TOTAL_BYTES} bytes in all files with YAML or JSON"))
        })?;
        match read_text(&file, MAX_FILE_BYTES) {
            Ok(text) => take(&file, &text),
            Err(error) if error.reason.starts_with("not UTF-8") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Hands over the objects of a file, of standard input (`-`), or of a folder: items of lists, and single objects. Files
/// of a folder that are neither YAML nor JSON are left out.
///
/// # Errors
/// As [`texts`]; and when a file that is named is neither YAML nor JSON. Earlier objects were handed over.
pub fn objects(path: &Path, take: &mut dyn FnMut(Value)) -> Result<(), Error> {
    let is_folder = path.is_dir();
    let mut wrong = None;
    texts(path, &mut |file, text| {
        let read = read(&file.display().to_string(), text, &mut |part| match part {
            Part::Item { value, .. } | Part::Document { value, is_list: false } => take(value),
            Part::Document { .. } => {}
        });
        wrong = wrong.take().or(read.err().filter(|_| !is_folder));
    })?;
    wrong.map_or(Ok(()), Err)
}

/// Collects the files that may hold objects.
fn collect(folder: &Path, root: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    if depth > MAX_DEPTH || files.len() > MAX_FILES {
        return Err(failed(
            root,
            format!("more than {MAX_FILES} files or {MAX_DEPTH} levels of directories"),
        ));
    }
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = entries.map_err(|error| failed(folder, error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(|error| failed(folder, error))?;
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if kind.is_dir() {
            collect(&path, root, depth + 1, files)?;
        } else if kind.is_file() && ["yaml", "yml", "json"].contains(&extension) {
            files.push(path);
        }
    }
    Ok(())
}

fn failed(path: &Path, reason: impl ToString) -> Error {
    Error::new(&path.display().to_string(), &reason.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The names of items and the kinds of documents, in the order in which they come.
    fn parts(text: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let read = read("x", text, &mut |part| {
            found.push(match part {
                Part::Item { index, value } => {
                    let name = value["metadata"]["name"].as_str().unwrap_or("?");
                    format!("{index} {} {name} {}", kind(&value), value["apiVersion"].as_str().unwrap_or("-"))
                }
                Part::Document { value, is_list } => format!("{} {is_list}", kind(&value)),
            });
        });
        read.map(|()| found).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_objects_and_documents_are_read() {
        let pod = "{kind: Pod, apiVersion: v1, metadata: {name: a}}";
        let bare = "{metadata: {name: b}}";
        for (text, wanted) in [
            (String::new(), vec![]),
            ("# nothing\n---\n...\n".to_owned(), vec![]),
            (pod.to_owned(), vec!["Pod false"]),
            (format!("items: [{pod}]\nkind: List\n"), vec!["0 Pod a v1", "List true"]),
            // The kind of the list stands behind its items.
            (
                format!("items: [{bare}, {pod}]\nkind: PodList\napiVersion: v1\n"),
                vec!["1 Pod a v1", "PodList true", "0 Pod b v1"],
            ),
            (format!("kind: List\nitems: [{bare}]\n"), vec!["List true"]),
            ("kind: PodList\nitems:\n".to_owned(), vec!["PodList true"]),
            (
                format!("---\n{pod}\n---\nkind: List\nitems:\n- {pod}\n--- {pod}\n"),
                vec!["Pod false", "0 Pod a v1", "List true", "Pod false"],
            ),
            ("a: |\n  ---\n  b\n".to_owned(), vec![" false"]),
            ("- a\n---\n7\n---\ntext\n---\nnull\n".to_owned(), vec![" false"; 4]),
        ] {
            assert_eq!(parts(&text), Ok(wanted.into_iter().map(str::to_owned).collect()), "{text}");
        }
        let object = |name: &str| json!({ "kind": "Pod", "metadata": { "name": name } });
        let text = format!("{}\n{}", json!({ "items": [object("a")], "kind": "List" }), object("b"));
        assert_eq!(parts(&text), Ok(vec!["0 Pod a -".into(), "List true".into(), "Pod false".into()]));
        let text = format!("{}\n---\n{}\n---\n{pod}\n", object("a"), json!({ "items": [object("b")] }));
        let wanted = ["Pod false", "0 Pod b -", " true", "Pod false"].map(str::to_owned);
        assert_eq!(parts(&text), Ok(wanted.to_vec()), "JSON, JSON and YAML");
        assert_eq!(
            parts(r#"{"items":[{"metadata":{"name":"n"}}],"kind":"NodeList"}"#),
            Ok(vec!["NodeList true".into(), "0 Node n -".into()])
        );
    }

    /// Several threads read it, and one does where an item needs another one.
    #[test]
    fn a_long_list_is_read_as_a_short_one() {
        const ITEMS: usize = 4_000;
        let item = |at: usize| {
            format!(
                "- kind: Pod\n  apiVersion: v1\n  metadata:\n    name: p{at}\n    note: {}\n",
                "x".repeat(60)
            )
        };
        let mut items: Vec<String> = (0..ITEMS).map(item).collect();
        let names = || (0..ITEMS).map(|at| format!("{at} Pod p{at} v1")).chain(["List true".to_owned()]);
        let text = |items: &[String]| format!("kind: List\nitems:\n{}metadata: {{}}\n", items.concat());
        assert!(ListChunks::of(&text(&items)).is_some());
        assert_eq!(parts(&text(&items)), Ok(names().collect()));

        let twice = format!("{}items:\n- kind: Pod\n", text(&items));
        assert!(ListChunks::of(&twice).is_some());
        let found = parts(&twice).unwrap();
        let wanted = [format!("{} Pod p{} v1", ITEMS - 1, ITEMS - 1), "0 Pod ? -".into(), "List true".into()];
        assert_eq!(found[ITEMS - 1..], wanted, "two lists");

        items[0] = items[0].replace("p0", "&first p0");
        items[ITEMS - 2] = items[ITEMS - 2].replace("note: x", "note: *first\n    other: x");
        assert_eq!(parts(&text(&items)), Ok(names().collect()), "an alias");

        items[ITEMS / 2] = "- [\n".to_owned();
        let error = parts(&text(&items)).unwrap_err();
        assert!(error.contains(&format!("line {}, column 1", 4 + ITEMS / 2 * 5)), "{error}");
    }

    /// Layouts that kubectl does not print, in long lists.
    #[test]
    fn long_lists_in_any_layout_have_the_same_items() {
        for item in
            ["- a: 1\r\n", "# c\n- a: 1\n", "-\n  a: 1\n", "- a: 1\n\n", "- - a\n  - b\n", "- |\n  - a\n"]
        {
            let padding = "x".repeat(2_000);
            let text = format!("kind: List\nitems:\n{}", format!("{item}- {padding}\n").repeat(200));
            let (mut found, mut wanted) = (Vec::new(), Vec::new());
            let rest = walk_yaml(&text, &mut |index, value| found.push((index, value)));
            assert_eq!(rest, walk_whole(&text, &mut |index, value| wanted.push((index, value))), "{item}");
            assert!(found == wanted && found.len() == 400, "{item}");
        }
    }

    #[test]
    fn wrong_texts_name_the_document() {
        for (text, wanted) in [
            ("a: [", "x: "),
            ("a: 1\n---\nb: [\n", "x: document 2: "),
            (r#"{"items": [{"kind": "Pod"}, "#, "x: EOF while parsing"),
            ("{\"a\": 1}\n---\n{\"items\": [{}, ", "x: document 2: EOF while parsing"),
            ("{kind: List, items: [", "x: "),
        ] {
            let error = parts(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn folders_are_read_in_order_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("b")).unwrap();
        for (name, text) in [("c.yaml", "c"), ("b/a.json", "b"), ("a.yml", "a"), ("notes.txt", "x")] {
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("d.yaml"), b"\xff").unwrap();
        std::os::unix::fs::symlink(at("c.yaml"), at("e.yaml")).unwrap();
        let mut found = String::new();
        texts(dir.path(), &mut |_, text| found += text).unwrap();
        assert_eq!(found, "abc");
        texts(&at("notes.txt"), &mut |_, text| found += text).unwrap();
        assert_eq!(found, "abcx");
        let missing = texts(&at("missing"), &mut |_, _| {}).unwrap_err();
        assert!(
            missing.to_string().ends_with("missing: No such file or directory (os error 2)"),
            "{missing}"
        );
    }
}
