//! Files with specifications.
//!
//! In: a folder, a name by the rules, a specification. Out: the file, replaced as a whole and only when it says something else; what a file says.
//! Never: half a file under its name, a file that runtimes would refuse, a reader that is fooled by size or depth.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use runtime::yaml::{self, Mode};

use crate::check::refusal;
use crate::name::Kind;
use crate::spec::Spec;

/// The largest file that is read: tens of thousands of devices.
pub const LIMIT_BYTES: u64 = 16 << 20;

/// The longest name a file can have.
const MAX_NAME: usize = 255;

/// What files end with; by that readers know them.
pub const EXTENSIONS: [&str; 2] = ["json", "yaml"];

/// A file's name, made by the rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName(String);

impl FileName {
    /// Of the file with all devices of a kind: `<vendor>-<class>.json`.
    ///
    /// # Errors
    /// When it would be too long for a file system.
    pub fn of(kind: &Kind) -> Result<Self, Error> {
        Self::checked(format!("{}-{}.json", kind.vendor(), kind.class()))
    }

    /// Of a file that lives as long as something else, such as a claim: `<vendor>-<class>_<id>.json`, with `_` for `/` in the identifier.
    ///
    /// # Errors
    /// When the identifier is empty or has characters that are not printable ASCII, or the name would be too long for a file system.
    pub fn transient(kind: &Kind, id: &str) -> Result<Self, Error> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Id(id.to_owned()));
        }
        Self::checked(format!("{}-{}_{}.json", kind.vendor(), kind.class(), id.replace('/', "_")))
    }

    /// The identifier in the name of a transient file of this kind.
    #[must_use]
    pub fn transient_id<'a>(kind: &Kind, name: &'a str) -> Option<&'a str> {
        let rest = name.strip_prefix(kind.vendor())?.strip_prefix('-')?.strip_prefix(kind.class())?;
        rest.strip_prefix('_')?.strip_suffix(".json").filter(|id| !id.is_empty())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn checked(name: String) -> Result<Self, Error> {
        if name.len() > MAX_NAME { Err(Error::Name(name)) } else { Ok(Self(name)) }
    }
}

/// Reads a file, JSON or YAML, strictly: a field that is not known makes it invalid, as it does for runtimes. What it says is not checked.
///
/// # Errors
/// When it cannot be read, is larger than [`LIMIT_BYTES`], or is no specification.
pub fn read(path: &Path) -> Result<Spec, yaml::Error> {
    yaml::read_file(path, Mode::Strict, LIMIT_BYTES)
}

/// Reads a specification from text; `name` stands for the file in errors.
///
/// # Errors
/// When the text is no specification.
pub fn parse(name: &str, text: &str) -> Result<Spec, yaml::Error> {
    yaml::read_str(name, text, Mode::Strict)
}

/// What is written for a specification: JSON for people, with the lowest version that covers what it uses.
///
/// # Errors
/// When runtimes would refuse it.
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

/// JSON with every character escaped that readers of YAML refuse or take for a line break: runtimes read JSON as YAML.
fn readable_as_yaml(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // All of them are in the range that JSON escapes with four digits, and stand in strings only.
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text
}

/// Makes the file say this; whether it was changed. The folder is made (0755) when it is missing. Readers see the old file or the new
/// one; the file is readable by all, as the specification's values are no secrets.
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
    // Readers go by the extension, so that they never take this one for a specification.
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".cdi-").suffix(".tmp").permissions(Permissions::from_mode(0o644));
    let mut file = builder.tempfile_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(true)
}

/// Removes the file; whether there was one.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn remove(dir: &Path, name: &FileName) -> Result<bool, Error> {
    let path = dir.join(name.as_str());
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::Remove { path, error }),
    }
}

/// The identifiers of the transient files of a kind, sorted. None when there is no such folder.
///
/// # Errors
/// When the folder is there and cannot be read.
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

/// What went wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A specification that runtimes would refuse.
    #[error("CDI specification of \"{kind}\": {problem}")]
    Refused {
        /// Its kind.
        kind: String,
        /// Why.
        problem: String,
    },
    /// An identifier that makes no name.
    #[error("\"{0}\" makes no file name: it must be printable ASCII without spaces, and not empty")]
    Id(String),
    /// A name that is too long.
    #[error("the file name \"{0}\" is longer than {MAX_NAME} characters")]
    Name(String),
    /// A file that cannot be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file that cannot be removed.
    #[error("cannot remove {}: {error}", .path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A folder that cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}
