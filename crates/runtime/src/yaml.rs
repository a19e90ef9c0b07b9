//! YAML (and JSON, which is YAML): the only module that reads and writes it.
//!
//! In: text of bounded size. Out: typed values, or one line that names file, line and reason. Never: an untyped tree,
//! an include, or a value written so that it reads back as another type.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use runtime::yaml::{self, Mode};
//!
//! let ports: BTreeMap<String, u16> = yaml::read_str("ports.yaml", "http: 80\n", Mode::Strict)?;
//! assert_eq!(yaml::write(&ports)?, "http: 80\n");
//! let error = yaml::read_str::<BTreeMap<String, u16>>("ports.yaml", "http: eighty\n", Mode::Strict).unwrap_err();
//! assert!(error.to_string().starts_with("ports.yaml: "));
//! # Ok::<(), yaml::Error>(())
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_saphyr::UserMessageFormatter;
use serde_saphyr::options::DuplicateKeyPolicy;
use std::io::Read;
use std::path::Path;

use crate::output::shortened;

pub mod dump;
mod input;

/// A limit that suffices for any configuration file or manifest.
pub const CONFIG_LIMIT_BYTES: u64 = 4 << 20;

/// The longest line of an error, in bytes.
const REASON_BYTES: usize = 1024;

/// What a reader makes of unknown fields and repeated keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Both are errors: for configuration that people write.
    Strict,
    /// Unknown fields are ignored and the last of repeated keys wins: for files of other programs, which may be newer.
    Lenient,
}

/// Reads one document from a file of at most `limit_bytes`.
///
/// # Errors
/// When the file cannot be read, is too large, is not YAML, or does not have the shape of `T`.
pub fn read_file<T: DeserializeOwned>(path: &Path, mode: Mode, limit_bytes: u64) -> Result<T, Error> {
    read_str(&path.display().to_string(), &read_text(path, limit_bytes)?, mode)
}

/// Reads a text file of at most `limit_bytes`, or a pipe whose writer comes within 5 seconds.
///
/// # Errors
/// When the file cannot be read, is neither regular nor a pipe, is too large, or is not UTF-8.
pub fn read_text(path: &Path, limit_bytes: u64) -> Result<String, Error> {
    let file = path.display().to_string();
    match input::Input::open(path) {
        Ok(open) => read_bounded(&file, open, limit_bytes),
        Err(error) => Err(Error::new(&file, &error.to_string())),
    }
}

/// Reads a text of at most `limit_bytes`; `name` stands for the file in errors.
///
/// # Errors
/// When the text cannot be read, is too large, or is not UTF-8.
pub fn read_bounded(name: &str, input: impl Read, limit_bytes: u64) -> Result<String, Error> {
    let failed = |reason: String| Error::new(name, &reason);
    let mut bytes = Vec::new();
    // One byte beyond the limit tells "too large" from "just fits", also for pipes that have no length.
    let read = input.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > limit_bytes {
        return Err(failed(format!("larger than the limit of {limit_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| failed(format!("not UTF-8: {error}")))
}

/// Reads one document from `text`; `name` stands for the file in errors. The caller bounds the size of `text`;
/// depth and aliases are bounded here.
///
/// # Errors
/// When the text is not YAML, or does not have the shape of `T`.
pub fn read_str<T: DeserializeOwned>(name: &str, text: &str, mode: Mode) -> Result<T, Error> {
    let failed = |reason: String| Error::new(name, &reason);
    let mut unknown = Vec::new();
    let value = serde_saphyr::with_deserializer_from_str_with_options(
        text,
        options(text, mode),
        |document| match mode {
            Mode::Lenient => T::deserialize(document),
            Mode::Strict => serde_ignored::deserialize(document, |path| unknown.push(path.to_string())),
        },
    );
    let value = value.map_err(|error| failed(words(&error)))?;
    if unknown.is_empty() {
        return Ok(value);
    }
    let fields: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    Err(failed(fields.join(", ")))
}

/// Reads all documents of `text` in [`Mode::Lenient`]; `name` stands for the file in errors. Documents without content
/// are left out. The caller bounds the size of `text`.
///
/// # Errors
/// When the text is not YAML, a document does not have the shape of `T`, or there are more than `limit`.
pub fn read_many<T: DeserializeOwned>(name: &str, text: &str, limit: usize) -> Result<Vec<T>, Error> {
    let failed = |reason: String| Error::new(name, &reason);
    let mut bytes = text.as_bytes();
    let documents = serde_saphyr::read_with_options(&mut bytes, options(text, Mode::Lenient));
    let documents = documents.take(limit.saturating_add(1)).collect::<Result<Vec<Option<T>>, _>>();
    let documents = documents.map_err(|error| failed(words(&error)))?;
    if documents.len() > limit {
        return Err(failed(format!("more than {limit} documents")));
    }
    Ok(documents.into_iter().flatten().collect())
}

/// Writes one document, ending in a newline. Strings that a reader could take for another type are quoted, strings of
/// several lines become blocks, and long lines are not folded.
///
/// # Errors
/// When `value` has no YAML form (for example a map keyed by maps).
pub fn write<T: Serialize>(value: &T) -> Result<String, Error> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| Error::new("yaml", &error.to_string()))
}

/// The error in words for users: without advice on types and functions.
fn words(error: &serde_saphyr::Error) -> String {
    let text = error.render_with_formatter(&UserMessageFormatter);
    text.replace(
        "only single YAML document expected but multiple found",
        "there are several documents, not one,",
    )
}

fn options(text: &str, mode: Mode) -> serde_saphyr::Options {
    // Every event, node and scalar byte comes from at least one byte of the text, which is bounded already. Only
    // aliases can multiply it, and they keep their own limits.
    let size = text.len().saturating_add(16);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: size, max_nodes: size, max_total_scalar_bytes: size },
        duplicate_keys: match mode {
            Mode::Strict => DuplicateKeyPolicy::Error,
            Mode::Lenient => DuplicateKeyPolicy::LastWins,
        },
        with_snippet: false,
    }
}

/// YAML that cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct Error {
    /// The file, or the name the caller gave the text.
    pub file: String,
    /// The reason, with line and column or the path of the field.
    pub reason: String,
}

impl Error {
    /// A parser quotes what it could not read, however long that is.
    fn new(file: &str, reason: &str) -> Self {
        Self { file: file.to_owned(), reason: shortened(reason, REASON_BYTES).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Config {
        scheduler_name: String,
        profiles: Vec<Profile>,
    }

    #[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Profile {
        weight: i64,
        enabled: bool,
    }

    #[track_caller]
    fn rejects(text: &str, mode: Mode, wants: &[&str]) {
        let error = read_str::<Config>("file.yaml", text, mode).unwrap_err().to_string();
        for want in wants {
            assert!(error.contains(want), "{error:?} does not say {want:?}");
        }
        assert!(error.starts_with("file.yaml: ") && !error.contains('\n'), "{error:?}");
    }

    #[test]
    fn unknown_fields_are_named_with_their_path() {
        let text = "schedulerName: x\nprofiles:\n- weight: 1\n  wait: 2\nextra: {}\n";
        rejects(text, Mode::Strict, &["unknown field \"profiles.0.wait\"", "unknown field \"extra\""]);
        let lenient: Config = read_str("file.yaml", text, Mode::Lenient).unwrap();
        assert_eq!(lenient.profiles, [Profile { weight: 1, enabled: false }]);
    }

    #[test]
    fn errors_name_the_line() {
        rejects("profiles:\n- weight: heavy\n", Mode::Strict, &["line 2"]);
        rejects("profiles: [\n", Mode::Lenient, &["line"]);
        rejects("schedulerName: a\nschedulerName: b\n", Mode::Strict, &["line 2", "schedulerName"]);
        rejects("- a\n", Mode::Strict, &["line 1"]);
    }

    #[test]
    fn errors_are_in_words_for_users() {
        let null = ["null is not allowed here", "line 1"];
        rejects("schedulerName: null\n", Mode::Lenient, &null);
        rejects(
            "schedulerName: a\n---\nschedulerName: b\n",
            Mode::Lenient,
            &["there are several documents, not one, at line"],
        );
        for text in
            ["schedulerName: null\n", "a: 1\n---\na: 2\n", "a: 1\na: 2\n", "profiles: [{weight: null}]\n"]
        {
            let error = read_str::<Config>("x", text, Mode::Strict).unwrap_err().to_string();
            let rust = ["Option", "from_str", "Policy", "String>", "struct"];
            assert!(rust.iter().all(|word| !error.contains(word)), "{error}");
        }
    }

    #[test]
    fn repeated_keys_keep_the_last_when_lenient() {
        let config: Config = read_str("x", "schedulerName: a\nschedulerName: b\n", Mode::Lenient).unwrap();
        assert_eq!(config.scheduler_name, "b");
    }

    #[test]
    fn json_is_yaml() {
        let text = r#"{"schedulerName": "a\tb", "profiles": [{"weight": 3, "enabled": true}]}"#;
        let config: Config = read_str("x", text, Mode::Strict).unwrap();
        let profiles = vec![Profile { weight: 3, enabled: true }];
        assert_eq!(config, Config { scheduler_name: "a\tb".into(), profiles });
    }

    #[test]
    fn documents_are_read_one_after_the_other() {
        let text = "---\nschedulerName: a\n---\n# nothing\n---\nschedulerName: b\n...\n";
        let read = |limit| read_many::<Config>("file.yaml", text, limit);
        let names: Vec<String> = read(3).unwrap().into_iter().map(|config| config.scheduler_name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(read(1).unwrap_err().to_string(), "file.yaml: more than 1 documents");
        assert!(read_many::<Config>("file.yaml", "a: [", 9).is_err());
        assert!(read_many::<Config>("file.yaml", "", 9).unwrap().is_empty());
    }

    #[test]
    fn hostile_texts_end_in_an_error() {
        let deep = "[".repeat(100_000);
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        for text in [deep, bomb] {
            assert!(read_str::<BTreeMap<String, serde_json::Value>>("x", &text, Mode::Lenient).is_err());
        }
    }

    #[test]
    fn files_are_bounded_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        let missing = read_file::<Config>(&path, Mode::Strict, 100).unwrap_err().to_string();
        assert!(missing.starts_with(&path.display().to_string()), "{missing}");
        std::fs::write(&path, "schedulerName: abc\n").unwrap();
        assert_eq!(read_file::<Config>(&path, Mode::Strict, 19).unwrap().scheduler_name, "abc");
        let large = read_file::<Config>(&path, Mode::Strict, 18).unwrap_err();
        assert_eq!(large.reason, "larger than the limit of 18 bytes");
        std::fs::write(&path, b"schedulerName: \xff\n").unwrap();
        assert!(read_file::<Config>(&path, Mode::Strict, 100).unwrap_err().reason.contains("not UTF-8"));
    }

    #[test]
    fn large_dumps_are_not_refused_for_their_size() {
        let items: Vec<String> = (0..300_000).map(|number| format!("- {number}\n")).collect();
        let numbers: Vec<u32> = read_str("x", &items.concat(), Mode::Lenient).unwrap();
        assert_eq!(numbers.len(), 300_000);
    }

    #[test]
    fn strings_read_back_as_strings() {
        let long = "word ".repeat(60);
        let awkward = [
            "yes",
            "no",
            "on",
            "null",
            "~",
            "1e3",
            "0x10",
            "012",
            "1_000",
            "12:30:45",
            "",
            " a",
            long.trim(),
        ];
        for text in
            awkward.iter().chain(&["- a", "a: b", "#x", "multi\nline\n", "tab\t", "2001-01-01", "y", "<<"])
        {
            let map = BTreeMap::from([("n".to_owned(), (*text).to_owned())]);
            let written = write(&map).unwrap();
            assert_eq!(
                read_str::<BTreeMap<String, String>>("x", &written, Mode::Strict).unwrap(),
                map,
                "{written}"
            );
            let typed: BTreeMap<String, serde_json::Value> = read_str("x", &written, Mode::Strict).unwrap();
            assert!(typed["n"].is_string(), "{written}");
        }
    }

    #[test]
    fn texts_are_blocks_and_lines_are_lines() {
        let long = "word ".repeat(60);
        let map = BTreeMap::from([("a", long.trim()), ("b", "x: 1\ny: 2\n"), ("c", "z")]);
        let want = format!("a: {}\nb: |\n  x: 1\n  y: 2\nc: z\n", long.trim());
        assert_eq!(write(&map).unwrap(), want);
    }
}
