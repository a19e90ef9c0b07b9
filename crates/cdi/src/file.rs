//! Files with specifications.
//!
//! In: a folder, a file name by the rules, a specification. Out: the file, replaced as a whole and only when it
//! differs; the specification in a file. Never: a partial file under its name, a file that runtimes would refuse, or a
//! reader that fails on a file's size or depth.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use runtime::yaml::{self, Mode};

use crate::check::refusal;
use crate::name::Kind;
use crate::spec::Spec;

/// The largest file that is read, enough for tens of thousands of devices.
pub const LIMIT_BYTES: u64 = 16 << 20;

/// The longest file name, in bytes.
const MAX_NAME: usize = 255;

/// The extensions of specification files; runtimes read no others.
pub const EXTENSIONS: [&str; 2] = ["json", "yaml"];

/// The name of a specification file, by the specification's rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName(String);

impl FileName {
    /// The file with all devices of a kind: `<vendor>-<class>.json`.
    ///
    /// # Errors
    /// When the name would be too long for a file system.
    pub fn for_kind(kind: &Kind) -> Result<Self, Error> {
        Self::checked(format!("{}-{}.json", kind.vendor(), kind.class()))
    }

    /// A file that lives as long as something else, such as a claim: `<vendor>-<class>_<id>.json`, with `_` for `/` in
    /// the identifier.
    ///
    /// # Errors
    /// When the identifier is empty or has characters that are not printable ASCII, or the name would be too long for a
    /// file system.
    pub fn transient(kind: &Kind, id: &str) -> Result<Self, Error> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Id(id.to_owned()));
        }
        Self::checked(format!("{}-{}_{}.json", kind.vendor(), kind.class(), id.replace('/', "_")))
    }

    /// The identifier in the name of a transient file of this kind; none for any other name.
    #[must_use]
    pub fn transient_id<'a>(kind: &Kind, name: &'a str) -> Option<&'a str> {
        let rest = name.strip_prefix(kind.vendor())?.strip_prefix('-')?.strip_prefix(kind.class())?;
        rest.strip_prefix('_')?.strip_suffix(".json").filter(|id| !id.is_empty())
    }

    /// The file name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn checked(name: String) -> Result<Self, Error> {
        if name.len() > MAX_NAME { Err(Error::Name(name)) } else { Ok(Self(name)) }
    }
}

/// Reads a file, JSON or YAML, strictly: an unknown field makes it invalid, as it does for runtimes. The specification
/// is not checked.
///
/// # Errors
/// When the file cannot be read, is larger than [`LIMIT_BYTES`], or is not a specification.
pub fn read(path: &Path) -> Result<Spec, yaml::Error> {
    yaml::read_file(path, Mode::Strict, LIMIT_BYTES)
}

/// Reads a specification from text; `name` stands for the file in errors. The specification is not checked.
///
/// # Errors
/// When the text is not a specification.
pub fn parse(name: &str, text: &str) -> Result<Spec, yaml::Error> {
    yaml::read_str(name, text, Mode::Strict)
}

/// The text that is written for a specification: indented JSON, with the lowest sufficient version.
///
/// # Errors
/// When runtimes would refuse the specification.
pub fn render(spec: &Spec) -> Result<String, Error> {
    let spec = spec.clone().with_lowest_version();
    if let Some(problem) = refusal(&spec) {
        return Err(Error::Refused { kind: spec.kind, problem });
    }
    let mut text = serde_json::to_string_pretty(&spec)
        .map_err(|error| Error::Refused { kind: spec.kind.clone(), problem: error.to_string() })?;
    text.push('\n');
    Ok(readable_as_yaml(&text))
}

/// Escapes the characters that YAML readers refuse or take for a line break: runtimes read JSON as YAML.
fn readable_as_yaml(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // All of them are in the range that JSON escapes with four digits, and occur in strings only.
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text
}

/// Makes the file equal the specification; true if it was changed. A missing folder is created (0755). Readers see the
/// old file or the new one. The file is readable by all, as specifications hold no secrets.
///
/// # Errors
/// When runtimes would refuse the specification, or the folder cannot be written to.
pub fn write(dir: &Path, name: &FileName, spec: &Spec) -> Result<bool, Error> {
    let text = render(spec)?;
    let path = dir.join(name.as_str());
    if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(false);
    }
    let failed = |error| Error::Write { path: path.clone(), error };
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(failed)?;
    // Readers go by the extension, so they never read the temporary file.
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".cdi-").suffix(".tmp").permissions(Permissions::from_mode(0o644));
    let mut file = builder.tempfile_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(true)
}

/// Removes the file; true if there was one.
///
/// # Errors
/// When the file exists and cannot be removed.
pub fn remove(dir: &Path, name: &FileName) -> Result<bool, Error> {
    let path = dir.join(name.as_str());
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::Remove { path, error }),
    }
}

/// The identifiers of the transient files of a kind, sorted; empty when there is no such folder. Cost: one read of the
/// folder.
///
/// # Errors
/// When the folder exists and cannot be read.
pub fn transient_ids(dir: &Path, kind: &Kind) -> Result<Vec<String>, Error> {
    let failed = |error| Error::Folder { path: dir.to_owned(), error };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut ids = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        ids.extend(name.to_str().and_then(|name| FileName::transient_id(kind, name)).map(str::to_owned));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Runtimes would refuse the specification.
    #[error("CDI specification of \"{kind}\": {problem}")]
    Refused {
        /// The kind in the specification.
        kind: String,
        /// Why runtimes would refuse it.
        problem: String,
    },
    /// An identifier cannot be part of a file name.
    #[error("\"{0}\" cannot be part of a file name: allowed is printable ASCII without spaces, not empty")]
    Id(String),
    /// A file name is too long.
    #[error("the file name \"{0}\" is longer than {MAX_NAME} characters")]
    Name(String),
    /// A file cannot be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file cannot be removed.
    #[error("cannot remove {}: {error}", .path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A folder cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}
