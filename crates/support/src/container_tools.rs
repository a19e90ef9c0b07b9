//! `cat`, `printenv` and `chroot`: tools that collectors and jobs need in containers, and that an image with one
//! program lacks.
//!
//! In: a command line. Out: text, or the command in place of this program. Never: the content of a file other than a
//! record of fingerprints: permission to enter a container must not reveal its token.
//!
//! With these names in the image, the Go operator's must-gather scripts work on our pods as on its own, and our
//! collector treats both alike.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use runtime::stderr;

use crate::call::{self, Call};

/// Variable with the folder of the records.
pub const DUMP: &str = "PFP_STATUS_DUMP";
/// Folder of the records if the variable is not set.
pub const FOLDER: &str = "/run/pfpstatus";

/// Prints files of the folder that [`DUMP`] names, else of [`FOLDER`]. Files that cannot be printed are reported on
/// standard error, and the exit code is 1.
///
/// # Errors
/// When standard output cannot be written.
pub fn cat(call: &Call) -> anyhow::Result<ExitCode> {
    let folder = std::env::var_os(DUMP).filter(|dir| !dir.is_empty()).map_or(FOLDER.into(), PathBuf::from);
    let mut code = ExitCode::SUCCESS;
    if call.arguments.is_empty() {
        stderr::line(format_args!("usage: {} FILE..., files of {}", call.program, folder.display()));
        return Ok(ExitCode::FAILURE);
    }
    for file in &call.arguments {
        let shown = open(&folder, Path::new(file)).and_then(|mut file| {
            let copied = io::copy(&mut file, &mut io::stdout().lock());
            copied.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(0) } else { Err(error) })
        });
        if let Err(error) = shown {
            stderr::line(format_args!("{}: {file}: {error}", call.program));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn open(folder: &Path, file: &Path) -> io::Result<File> {
    // Links count as their targets.
    let (folder, real) = (folder.canonicalize(), file.canonicalize()?);
    let inside = folder.as_ref().is_ok_and(|folder| real.starts_with(folder));
    if inside && real.is_file() {
        return File::open(real);
    }
    Err(io::Error::other(format!("only files in the folder that {DUMP} names, or in {FOLDER}, are printed")))
}

/// Prints the values of variables, or all variables without arguments. The exit code is 1 if a variable is not set.
///
/// # Errors
/// When standard output cannot be written.
pub fn printenv(call: &Call) -> anyhow::Result<ExitCode> {
    let (text, complete) = variables(
        &call.arguments,
        std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())),
    );
    call::print(&text)?;
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn variables(wanted: &[String], all: impl Iterator<Item = (String, String)>) -> (String, bool) {
    let mut all: Vec<_> = all.collect();
    all.sort();
    if wanted.is_empty() {
        return (all.iter().map(|(name, value)| format!("{name}={value}\n")).collect(), true);
    }
    let of =
        |name: &String| all.iter().find(|(known, _)| known == name).map(|(_, value)| format!("{value}\n"));
    let found: Vec<Option<String>> = wanted.iter().map(of).collect();
    (found.iter().flatten().cloned().collect(), found.iter().all(Option::is_some))
}

/// Replaces this process by a command with another root: `chroot DIR COMMAND ARG...`. Does not return on success.
///
/// # Errors
/// When the root cannot be changed, or the command cannot be run.
pub fn chroot(call: &Call) -> anyhow::Result<ExitCode> {
    let [dir, command, arguments @ ..] = call.arguments.as_slice() else {
        bail!("usage: {} DIR COMMAND [ARG...]", call.program);
    };
    rustix::process::chroot(dir).with_context(|| format!("making {dir} the root"))?;
    std::env::set_current_dir("/").context("entering the new root")?;
    let error = Command::new(command).args(arguments).exec();
    Err(error).with_context(|| format!("running {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_records_are_printed() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, secret) = (dir.path().join("pfpstatus"), dir.path().join("token"));
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("node"), "[]").unwrap();
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, folder.join("link")).unwrap();
        let check = |file: PathBuf, shown: bool| {
            assert_eq!(open(&folder, &file).is_ok(), shown, "{}", file.display());
        };
        check(folder.join("node"), true);
        check(folder.join("sub/../node"), true);
        check(folder.join("sub"), false);
        check(folder.join("missing"), false);
        check(folder.join("../token"), false);
        check(folder.join("link"), false);
        check(secret.clone(), false);
        assert!(open(&dir.path().join("missing"), &secret).is_err());
    }

    #[test]
    fn variables_are_printed() {
        let check = |wanted: &[&str], text: &str, complete: bool| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            let all = [("B", "2"), ("A", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(variables(&wanted, all.into_iter()), (text.to_owned(), complete), "{wanted:?}");
        };
        check(&[], "A=1\nB=2\n", true);
        check(&["B"], "2\n", true);
        check(&["B", "C", "A"], "2\n1\n", false);
    }
}
